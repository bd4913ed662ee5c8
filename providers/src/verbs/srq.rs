//! Shared receive queues.

use uverbs_abi::layout::cmd::{
    IB_USER_VERBS_CMD_MODIFY_SRQ, IB_USER_VERBS_CMD_QUERY_SRQ, ib_uverbs_destroy_srq_resp,
    ib_uverbs_modify_srq, ib_uverbs_query_srq, ib_uverbs_query_srq_resp,
};
use uverbs_abi::layout::ids::{attr, method, object};
use uverbs_abi::layout::verbs::{IB_SRQ_LIMIT, IB_UVERBS_SRQT_BASIC};
use uverbs_abi::{Command, CommandError, Session};

use crate::contract::SrqSpec;
use crate::types::SrqHandle;

/// A new shared receive queue, as far as the kernel's own half goes.
#[derive(Clone, Copy, Debug)]
pub struct Created {
    /// The kernel's handle.
    pub handle: SrqHandle,
    /// Requests that it holds.
    pub max_wr: u32,
    /// Scatter/gather elements of one request.
    pub max_sge: u32,
}

/// SRQ_CREATE; the driver's part of the reply goes to `uhw_out`.
///
/// # Errors
/// The kernel's refusal; `EINVAL` for sizes of 0 or above the device's limits.
pub fn create(
    session: &Session,
    spec: &SrqSpec<'_>,
    uhw_out: &mut [u8],
) -> Result<Created, CommandError> {
    let (mut max_wr, mut max_sge) = (0u32, 0u32);
    let limit = 0u32;
    let mut command = Command::new("SRQ_CREATE", object::SRQ, method::srq::CREATE);
    command
        .new_object(attr::srq_create::HANDLE)
        .object(attr::srq_create::PD_HANDLE, spec.pd.0)
        .constant(attr::srq_create::TYPE, u64::from(IB_UVERBS_SRQT_BASIC))
        .input(attr::srq_create::USER_HANDLE, &spec.token)
        .input(attr::srq_create::MAX_WR, &spec.max_wr)
        .input(attr::srq_create::MAX_SGE, &spec.max_sge)
        .input(attr::srq_create::LIMIT, &limit)
        .output(attr::srq_create::RESP_MAX_WR, &mut max_wr)
        .output(attr::srq_create::RESP_MAX_SGE, &mut max_sge);
    if !uhw_out.is_empty() {
        command.output_bytes(attr::uhw::OUT, uhw_out);
    }
    if let Some(events) = spec.events {
        command.fd(attr::srq_create::EVENT_FD, events);
    }
    let handle = SrqHandle(session.run(&mut command)?.object()?);
    Ok(Created {
        handle,
        max_wr,
        max_sge,
    })
}

/// MODIFY_SRQ, the limit only. `uhw_in` is the driver's part of the request.
///
/// # Errors
/// The kernel's refusal; `EINVAL` for a limit above the queue's size.
pub fn set_limit(
    session: &Session,
    srq: SrqHandle,
    limit: u32,
    uhw_in: &[u8],
) -> Result<(), CommandError> {
    let request = ib_uverbs_modify_srq {
        srq_handle: srq.0,
        attr_mask: IB_SRQ_LIMIT,
        srq_limit: limit,
        ..Default::default()
    };
    let mut command = Command::invoke_write("MODIFY_SRQ", IB_USER_VERBS_CMD_MODIFY_SRQ);
    command.core_in(&request);
    if !uhw_in.is_empty() {
        command.input_bytes(attr::uhw::IN, uhw_in);
    }
    session.run(&mut command).map(drop)
}

/// QUERY_SRQ.
///
/// # Errors
/// The kernel's refusal.
pub fn query(session: &Session, srq: SrqHandle) -> Result<ib_uverbs_query_srq_resp, CommandError> {
    let request = ib_uverbs_query_srq {
        srq_handle: srq.0,
        ..Default::default()
    };
    let mut response = ib_uverbs_query_srq_resp::default();
    let mut command = Command::invoke_write("QUERY_SRQ", IB_USER_VERBS_CMD_QUERY_SRQ);
    command.core(&request, &mut response);
    session.run(&mut command)?;
    Ok(response)
}

/// SRQ_DESTROY: gives the asynchronous events that the kernel had handed out.
///
/// # Errors
/// The kernel's refusal; `EBUSY` while a queue pair uses it.
pub fn destroy(session: &Session, srq: SrqHandle) -> Result<u32, CommandError> {
    let mut reported = ib_uverbs_destroy_srq_resp::default();
    let mut command = Command::new("SRQ_DESTROY", object::SRQ, method::srq::DESTROY);
    command
        .object(attr::srq_destroy::HANDLE, srq.0)
        .output(attr::srq_destroy::RESP, &mut reported);
    session.run_destroy(&mut command)?;
    Ok(reported.events_reported)
}

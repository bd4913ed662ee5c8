//! Work queues.

use uverbs_abi::layout::ids::{attr, method, object};
use uverbs_abi::layout::verbs::IB_UVERBS_WQT_RQ;
use uverbs_abi::{Command, CommandError, Session};

use crate::contract::WqSpec;
use crate::types::{WqHandle, WqNum};

/// A new work queue, as far as the kernel's own half goes.
#[derive(Clone, Copy, Debug)]
pub struct Created {
    /// The kernel's handle.
    pub handle: WqHandle,
    /// The device's number of it.
    pub wq_num: WqNum,
    /// Requests that it holds.
    pub max_wr: u32,
    /// Scatter/gather elements of one request.
    pub max_sge: u32,
}

/// WQ_CREATE of a receive queue, the one type there is; the driver's part goes in by `uhw_in` and
/// out by `uhw_out`. Since Linux 5.8.
///
/// # Errors
/// The kernel's refusal; unsupported where the driver has no work queues (rxe, siw).
pub fn create(
    session: &Session,
    spec: &WqSpec<'_>,
    uhw_in: &[u8],
    uhw_out: &mut [u8],
) -> Result<Created, CommandError> {
    let (mut max_wr, mut max_sge, mut wq_num) = (0u32, 0u32, 0u32);
    let mut command = Command::new("WQ_CREATE", object::WQ, method::wq::CREATE);
    command
        .new_object(attr::wq_create::HANDLE)
        .object(attr::wq_create::PD_HANDLE, spec.pd.0)
        .object(attr::wq_create::CQ_HANDLE, spec.cq.0)
        .input(attr::wq_create::USER_HANDLE, &spec.token)
        .constant(attr::wq_create::TYPE, u64::from(IB_UVERBS_WQT_RQ))
        .input(attr::wq_create::MAX_WR, &spec.max_wr)
        .input(attr::wq_create::MAX_SGE, &spec.max_sge)
        .flags(attr::wq_create::FLAGS, 0)
        .output(attr::wq_create::RESP_MAX_WR, &mut max_wr)
        .output(attr::wq_create::RESP_MAX_SGE, &mut max_sge)
        .output(attr::wq_create::RESP_WQ_NUM, &mut wq_num);
    if !uhw_out.is_empty() {
        command.output_bytes(attr::uhw::OUT, uhw_out);
    }
    if let Some(events) = spec.events {
        command.fd(attr::wq_create::EVENT_FD, events);
    }
    if !uhw_in.is_empty() {
        command.input_bytes(attr::uhw::IN, uhw_in);
    }
    let handle = WqHandle(session.run(&mut command)?.object()?);
    Ok(Created {
        handle,
        wq_num: WqNum(wq_num),
        max_wr,
        max_sge,
    })
}

/// WQ_DESTROY: gives the asynchronous events that the kernel had handed out.
///
/// # Errors
/// The kernel's refusal; `EBUSY` while an indirection table uses it.
pub fn destroy(session: &Session, wq: WqHandle) -> Result<u32, CommandError> {
    let mut reported = 0u32;
    let mut command = Command::new("WQ_DESTROY", object::WQ, method::wq::DESTROY);
    command
        .object(attr::wq_destroy::HANDLE, wq.0)
        .output(attr::wq_destroy::RESP, &mut reported);
    session.run_destroy(&mut command)?;
    Ok(reported)
}

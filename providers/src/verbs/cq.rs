//! Completion channels and completion queues.

use std::os::fd::OwnedFd;

use uverbs_abi::layout::cmd::{
    IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, IB_USER_VERBS_CMD_REQ_NOTIFY_CQ,
    ib_uverbs_create_comp_channel, ib_uverbs_destroy_cq_resp, ib_uverbs_req_notify_cq,
};
use uverbs_abi::layout::ids::{attr, method, object};
use uverbs_abi::{Command, CommandError, Session};

use crate::contract::{Arm, CqReported, CqSpec};
use crate::types::CqHandle;

/// CREATE_COMP_CHANNEL: a file of completion events, which is blocking. Closing it destroys it.
///
/// # Errors
/// The kernel's refusal.
pub fn create_channel(session: &Session) -> Result<OwnedFd, CommandError> {
    let request = ib_uverbs_create_comp_channel::default();
    let mut command =
        Command::invoke_write("CREATE_COMP_CHANNEL", IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL);
    command
        .core_in(&request)
        .new_fd_in_reply(attr::invoke_write::CORE_OUT);
    session.run(&mut command)?.into_fd()
}

/// A new completion queue, as far as the kernel's own half goes.
#[derive(Clone, Copy, Debug)]
pub struct Created {
    /// The kernel's handle.
    pub handle: CqHandle,
    /// Completions that it holds.
    pub depth: u32,
}

/// CQ_CREATE; the driver's part of the reply goes to `uhw_out`.
///
/// # Errors
/// The kernel's refusal; `EINVAL` for a depth of 0 or above the device's `max_cqe`.
pub fn create(
    session: &Session,
    spec: &CqSpec<'_>,
    uhw_out: &mut [u8],
) -> Result<Created, CommandError> {
    let mut depth = 0u32;
    let mut command = Command::new("CQ_CREATE", object::CQ, method::cq::CREATE);
    command
        .new_object(attr::cq_create::HANDLE)
        .input(attr::cq_create::CQE, &spec.depth)
        .input(attr::cq_create::USER_HANDLE, &spec.token)
        .input(attr::cq_create::COMP_VECTOR, &spec.vector)
        .output(attr::cq_create::RESP_CQE, &mut depth);
    if !uhw_out.is_empty() {
        command.output_bytes(attr::uhw::OUT, uhw_out);
    }
    if let Some(channel) = spec.channel {
        command.fd(attr::cq_create::COMP_CHANNEL, channel);
    }
    if let Some(events) = spec.events {
        command.fd(attr::cq_create::EVENT_FD, events);
    }
    let handle = CqHandle(session.run(&mut command)?.object()?);
    Ok(Created { handle, depth })
}

/// CQ_DESTROY: gives the events that the kernel had handed out.
///
/// # Errors
/// The kernel's refusal; `EBUSY` while a queue pair uses it.
pub fn destroy(session: &Session, cq: CqHandle) -> Result<CqReported, CommandError> {
    let mut reported = ib_uverbs_destroy_cq_resp::default();
    let mut command = Command::new("CQ_DESTROY", object::CQ, method::cq::DESTROY);
    command
        .object(attr::cq_destroy::HANDLE, cq.0)
        .output(attr::cq_destroy::RESP, &mut reported);
    session.run_destroy(&mut command)?;
    Ok(CqReported {
        completion: reported.comp_events_reported,
        asynchronous: reported.async_events_reported,
    })
}

/// REQ_NOTIFY_CQ.
///
/// # Errors
/// The kernel's refusal.
pub fn arm(session: &Session, cq: CqHandle, kind: Arm) -> Result<(), CommandError> {
    let request = ib_uverbs_req_notify_cq {
        cq_handle: cq.0,
        solicited_only: u32::from(kind == Arm::Solicited),
    };
    let mut command = Command::invoke_write("REQ_NOTIFY_CQ", IB_USER_VERBS_CMD_REQ_NOTIFY_CQ);
    command.core_in(&request);
    session.run(&mut command).map(drop)
}

//! Queue pairs.

use uverbs_abi::layout::cmd::{
    IB_USER_VERBS_CMD_MODIFY_QP, IB_USER_VERBS_CMD_QUERY_QP, ib_uverbs_destroy_qp_resp,
    ib_uverbs_modify_qp, ib_uverbs_query_qp, ib_uverbs_query_qp_resp,
};
use uverbs_abi::layout::ids::{attr, method, object};
use uverbs_abi::layout::verbs::{IB_QP_STATE, IB_UVERBS_QP_CREATE_SQ_SIG_ALL, ib_uverbs_qp_cap};
use uverbs_abi::{Cause, Command, CommandError, Session};

use crate::contract::QpSpec;
use crate::types::{QpCaps, QpHandle, QpNum, QpState};

/// A new queue pair, as far as the kernel's own half goes.
#[derive(Clone, Copy, Debug)]
pub struct Created {
    /// The kernel's handle.
    pub handle: QpHandle,
    /// The number that the peer needs.
    pub qp_num: QpNum,
    /// Sizes as granted.
    pub caps: QpCaps,
}

/// QP_CREATE; the driver's part of the reply goes to `uhw_out`.
///
/// # Errors
/// The kernel's refusal; `EINVAL` for sizes above the device's limits.
pub fn create(
    session: &Session,
    spec: &QpSpec<'_>,
    uhw_out: &mut [u8],
) -> Result<Created, CommandError> {
    let asked = ib_uverbs_qp_cap {
        max_send_wr: spec.caps.max_send_wr,
        max_recv_wr: spec.caps.max_recv_wr,
        max_send_sge: spec.caps.max_send_sge,
        max_recv_sge: spec.caps.max_recv_sge,
        max_inline_data: spec.caps.max_inline_data,
    };
    let mut granted = ib_uverbs_qp_cap::default();
    let mut qp_num = 0u32;
    let flags = if spec.signal_all {
        IB_UVERBS_QP_CREATE_SQ_SIG_ALL
    } else {
        0
    };
    let mut command = Command::new("QP_CREATE", object::QP, method::qp::CREATE);
    command
        .new_object(attr::qp_create::HANDLE)
        .object(attr::qp_create::PD_HANDLE, spec.pd.0)
        .object(attr::qp_create::SEND_CQ_HANDLE, spec.send_cq.0)
        .object(attr::qp_create::RECV_CQ_HANDLE, spec.recv_cq.0)
        .constant(attr::qp_create::TYPE, u64::from(spec.qp_type.raw()))
        .input(attr::qp_create::USER_HANDLE, &spec.token)
        .input(attr::qp_create::CAP, &asked)
        .output(attr::qp_create::RESP_CAP, &mut granted)
        .output(attr::qp_create::RESP_QP_NUM, &mut qp_num);
    if !uhw_out.is_empty() {
        command.output_bytes(attr::uhw::OUT, uhw_out);
    }
    if let Some(srq) = spec.srq {
        command.object(attr::qp_create::SRQ_HANDLE, srq.0);
    }
    if flags != 0 {
        command.flags(attr::qp_create::FLAGS, flags);
    }
    if let Some(events) = spec.events {
        command.fd(attr::qp_create::EVENT_FD, events);
    }
    let handle = QpHandle(session.run(&mut command)?.object()?);
    Ok(Created {
        handle,
        qp_num: QpNum(qp_num),
        caps: QpCaps {
            max_send_wr: granted.max_send_wr,
            max_recv_wr: granted.max_recv_wr,
            max_send_sge: granted.max_send_sge,
            max_recv_sge: granted.max_recv_sge,
            max_inline_data: granted.max_inline_data,
        },
    })
}

/// MODIFY_QP with a whole request; its handle is filled in here.
///
/// # Errors
/// The kernel's refusal.
pub fn modify(
    session: &Session,
    qp: QpHandle,
    request: &ib_uverbs_modify_qp,
) -> Result<(), CommandError> {
    let request = ib_uverbs_modify_qp {
        qp_handle: qp.0,
        ..*request
    };
    let mut command = Command::invoke_write("MODIFY_QP", IB_USER_VERBS_CMD_MODIFY_QP);
    command.core_in(&request);
    session.run(&mut command).map(drop)
}

/// MODIFY_QP to the error state.
///
/// # Errors
/// The kernel's refusal.
pub fn modify_to_error(session: &Session, qp: QpHandle) -> Result<(), CommandError> {
    let request = ib_uverbs_modify_qp {
        attr_mask: IB_QP_STATE,
        qp_state: QpState::Err.raw(),
        ..Default::default()
    };
    modify(session, qp, &request)
}

/// QUERY_QP with the attributes of `mask` (`IB_QP_*`).
///
/// # Errors
/// The kernel's refusal.
pub fn query(
    session: &Session,
    qp: QpHandle,
    mask: u32,
) -> Result<ib_uverbs_query_qp_resp, CommandError> {
    let request = ib_uverbs_query_qp {
        qp_handle: qp.0,
        attr_mask: mask,
        ..Default::default()
    };
    let mut response = ib_uverbs_query_qp_resp::default();
    let mut command = Command::invoke_write("QUERY_QP", IB_USER_VERBS_CMD_QUERY_QP);
    command.core(&request, &mut response);
    session.run(&mut command)?;
    Ok(response)
}

/// QUERY_QP, the state only.
///
/// # Errors
/// The kernel's refusal; [`Cause::BadReply`] for a state that does not exist.
pub fn query_state(session: &Session, qp: QpHandle) -> Result<QpState, CommandError> {
    let response = query(session, qp, IB_QP_STATE)?;
    QpState::from_raw(response.qp_state).ok_or(CommandError {
        command: "QUERY_QP",
        cause: Cause::BadReply("the state is none of the seven"),
    })
}

/// QP_DESTROY: gives the asynchronous events that the kernel had handed out.
///
/// # Errors
/// The kernel's refusal; `EBUSY` while a multicast group is attached or a command is under way.
pub fn destroy(session: &Session, qp: QpHandle) -> Result<u32, CommandError> {
    let mut reported = ib_uverbs_destroy_qp_resp::default();
    let mut command = Command::new("QP_DESTROY", object::QP, method::qp::DESTROY);
    command
        .object(attr::qp_destroy::HANDLE, qp.0)
        .output(attr::qp_destroy::RESP, &mut reported);
    session.run_destroy(&mut command)?;
    Ok(reported.events_reported)
}

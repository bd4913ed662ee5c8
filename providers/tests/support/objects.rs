//! Objects of the rxe provider on a played kernel.

use std::sync::Arc;

use uverbs_providers::abi::Session;
use uverbs_providers::contract::{CqSpec, Provider, QpOps, QpSpec, SrqSpec};
use uverbs_providers::error::{PostCause, PostError};
use uverbs_providers::rxe::Rxe;
use uverbs_providers::types::{CqHandle, PdHandle, QpCaps, QpState, QpType, QueueId, SrqHandle};
use uverbs_providers::wr::{RecvWr, SendWr};

use super::kernel::Fake;

pub fn cq_spec(depth: u32) -> CqSpec<'static> {
    CqSpec {
        depth,
        token: 1,
        channel: None,
        vector: 0,
        events: None,
    }
}

pub fn qp_spec(send: u32, recv: u32, srq: Option<SrqHandle>) -> QpSpec<'static> {
    QpSpec {
        pd: PdHandle(1),
        qp_type: QpType::Rc,
        send_cq: CqHandle(1),
        recv_cq: CqHandle(1),
        srq,
        caps: QpCaps {
            max_send_wr: send,
            max_recv_wr: recv,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline_data: 32,
        },
        signal_all: false,
        token: 2,
        events: None,
    }
}

pub fn srq_spec(max_wr: u32) -> SrqSpec<'static> {
    SrqSpec {
        pd: PdHandle(1),
        max_wr,
        max_sge: 2,
        token: 3,
        events: None,
    }
}

/// A queue pair in RTS with its kernel.
pub fn ready(send: u32, recv: u32) -> (Arc<Fake>, Arc<Session>, Box<dyn QpOps>) {
    let (fake, session) = Fake::open();
    let qp = Rxe.create_qp(&session, &qp_spec(send, recv, None)).unwrap();
    qp.state_changed(QpState::Rts).unwrap();
    (fake, session, qp)
}

pub fn sends(range: std::ops::Range<u64>) -> Vec<SendWr<'static>> {
    range
        .map(|id| SendWr::send_inline(id, b"x").signaled())
        .collect()
}

pub fn recvs(range: std::ops::Range<u64>) -> Vec<RecvWr<'static>> {
    range.map(|id| RecvWr::new(id, &[])).collect()
}

/// What posting to this queue pair says.
pub fn refusal(qp: &dyn QpOps, accepted: usize, cause: PostCause) -> PostError {
    PostError::new(QueueId::QueuePair(qp.qp_num()), accepted, cause)
}

pub fn full(qp: &dyn QpOps, accepted: usize) -> PostError {
    refusal(qp, accepted, PostCause::QueueFull)
}

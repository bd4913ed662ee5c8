//! `rdma_rxe`, RoCE in software: the kernel does the work, and the queues are ordinary memory that
//! both sides see.
//!
//! Ground truth: `rdma/rdma_user_rxe.h` and the kernel's `drivers/infiniband/sw/rxe`.
//!
//! ```text
//!   create     core command + our reply bytes ─► where to map ─► SharedQueue ─► ring on a shelf
//!   wqe, wc    what a slot says: pure functions
//!   work       a ring of requests; recv  one of receives, as qp and srq each have it
//!   cq qp srq  the operations of the contract
//! ```
//!
//! Must never leave a kernel object behind when a creation fails, and must never keep one mapping
//! longer than its object for any use but unmapping.

pub mod cq;
mod posted;
pub mod qp;
mod receivers;
mod recv;
pub mod srq;
pub mod wc;
mod work;
pub mod wqe;

use std::ops::RangeInclusive;
use std::sync::Arc;

use uverbs_abi::Session;
use uverbs_abi::layout::rxe::{
    RXE_UVERBS_ABI_VERSION, mminfo, rxe_create_cq_resp, rxe_create_qp_resp, rxe_create_srq_resp,
};
use zerocopy::IntoBytes;

use self::cq::RxeCq;
use self::qp::{Core, RxeQp};
use self::recv::RecvQueue;
use self::srq::RxeSrq;
use self::work::WorkQueue;
use self::wqe::{SGE_LEN, SendLimits};
use crate::contract::{CqOps, CqSpec, Provider, QpOps, QpSpec, SrqOps, SrqSpec};
use crate::error::CreateError;
use crate::ring::Corrupt;
use crate::shared::SharedQueue;
use crate::types::QueueId;
use crate::verbs;

const CQ_CREATE: &str = "CQ_CREATE";
const SRQ_CREATE: &str = "SRQ_CREATE";
const QP_CREATE: &str = "QP_CREATE";

/// What the kernel's `RXE_MAX_INLINE_DATA` (`rxe_param.h`) comes to; the same on 6.1, 6.12 and the
/// newest kernel.
const MAX_INLINE: u32 = 512;

/// The provider for `rdma_rxe`.
#[derive(Clone, Copy, Debug)]
pub struct Rxe;

impl Provider for Rxe {
    fn name(&self) -> &'static str {
        "rxe"
    }

    fn driver_abis(&self) -> RangeInclusive<u32> {
        // Version 1 was the same on 64-bit machines, but no kernel that has the ioctls reports it.
        RXE_UVERBS_ABI_VERSION..=RXE_UVERBS_ABI_VERSION
    }

    fn dereg_fences(&self) -> bool {
        // The kernel looks the key up for each packet and waits for those under way.
        true
    }

    fn max_inline_data(&self) -> Option<u32> {
        Some(MAX_INLINE)
    }

    fn create_cq(
        &self,
        session: &Arc<Session>,
        spec: &CqSpec<'_>,
    ) -> Result<Box<dyn CqOps>, CreateError> {
        let mut reply = rxe_create_cq_resp::default();
        let created = verbs::cq::create(session, spec, reply.as_mut_bytes())?;
        let build = || {
            let queue = map(session, CQ_CREATE, &reply.mi, spec.depth.max(created.depth))?;
            let cq = RxeCq::new(queue, session, created.handle).map_err(corrupt(CQ_CREATE))?;
            Ok(Box::new(cq))
        };
        match build() {
            Ok(cq) => Ok(cq),
            Err(error) => {
                // The first error is the one to tell; if this one fails too, the object goes when
                // the file is closed.
                let _ = verbs::cq::destroy(session, created.handle);
                Err(error)
            }
        }
    }

    fn create_srq(
        &self,
        session: &Arc<Session>,
        spec: &SrqSpec<'_>,
    ) -> Result<Box<dyn SrqOps>, CreateError> {
        let mut reply = rxe_create_srq_resp::default();
        let created = verbs::srq::create(session, spec, reply.as_mut_bytes())?;
        let build = || {
            let least = spec.max_wr.max(created.max_wr);
            let tail = elements(created.max_sge);
            let work = work_queue(session, SRQ_CREATE, &reply.mi, least, tail)?;
            let id = QueueId::SharedReceiveQueue(created.handle);
            Ok(RecvQueue::new(work, created.max_sge, id))
        };
        match build() {
            Ok(ring) => {
                let (session, handle) = (Arc::clone(session), created.handle);
                Ok(Box::new(RxeSrq::new(
                    session,
                    handle,
                    ring,
                    created.max_sge,
                )))
            }
            Err(error) => {
                // As above.
                let _ = verbs::srq::destroy(session, created.handle);
                Err(error)
            }
        }
    }

    fn create_qp(
        &self,
        session: &Arc<Session>,
        spec: &QpSpec<'_>,
    ) -> Result<Box<dyn QpOps>, CreateError> {
        // All zero: with a shared receive queue the kernel leaves the receive half as it is.
        let mut reply = rxe_create_qp_resp::default();
        let created = verbs::qp::create(session, spec, reply.as_mut_bytes())?;
        let build = || {
            let core = Arc::new(Core::new(
                Arc::clone(session),
                created.handle,
                created.qp_num,
            ));
            let caps = &created.caps;
            let least = spec.caps.max_send_wr.max(caps.max_send_wr);
            let limits = SendLimits {
                max_sge: caps.max_send_sge,
                max_inline: caps.max_inline_data,
            };
            let tail = elements(limits.max_sge).max(limits.max_inline.into());
            let send = work_queue(session, QP_CREATE, &reply.sq_mi, least, tail)?;
            let recv = match spec.srq {
                Some(_) => None,
                None => {
                    let least = spec.caps.max_recv_wr.max(caps.max_recv_wr);
                    let tail = elements(caps.max_recv_sge);
                    let work = work_queue(session, QP_CREATE, &reply.rq_mi, least, tail)?;
                    Some(RecvQueue::new(work, caps.max_recv_sge, core.id()))
                }
            };
            Ok(Box::new(RxeQp::new(core, caps, send, limits, recv)))
        };
        match build() {
            Ok(qp) => Ok(qp),
            Err(error) => {
                // As above.
                let _ = verbs::qp::destroy(session, created.handle);
                Err(error)
            }
        }
    }
}

/// Maps a queue that the kernel has just described; `least` is what it must hold.
fn map<const HEAD: usize>(
    session: &Session,
    command: &'static str,
    info: &mminfo,
    least: u32,
) -> Result<SharedQueue<HEAD>, CreateError> {
    let bad = |what| CreateError::BadQueue { command, what };
    let size = usize::try_from(info.size).map_err(|_| bad("it is larger than memory"))?;
    if size == 0 {
        return Err(bad("the kernel offered no queue to map"));
    }
    let queue = SharedQueue::new(session.map(info.offset, size)?).map_err(bad)?;
    // One slot stays empty, so the mask is what it holds.
    if queue.mask() < least {
        return Err(bad("it holds less than was granted"));
    }
    Ok(queue)
}

/// As [`map`], for requests that have up to `tail` bytes after their head.
fn work_queue<const HEAD: usize>(
    session: &Session,
    command: &'static str,
    info: &mminfo,
    least: u32,
    tail: u64,
) -> Result<WorkQueue<HEAD>, CreateError> {
    let queue = map(session, command, info, least)?;
    if !holds(queue.slot_len(), HEAD, tail) {
        return Err(too_small(command));
    }
    WorkQueue::new(queue).map_err(corrupt(command))
}

/// Bytes of `count` scatter/gather elements.
fn elements(count: u32) -> u64 {
    u64::from(count) * SGE_LEN as u64
}

/// Whether a slot has room for `tail` bytes after `head`.
fn holds(slot: usize, head: usize, tail: u64) -> bool {
    slot.checked_sub(head)
        .is_some_and(|room| tail <= room as u64)
}

fn too_small(command: &'static str) -> CreateError {
    CreateError::BadQueue {
        command,
        what: "its slots are smaller than the granted sizes",
    }
}

fn corrupt(command: &'static str) -> impl Fn(Corrupt) -> CreateError {
    move |Corrupt| CreateError::BadQueue {
        command,
        what: "its indices are out of range",
    }
}

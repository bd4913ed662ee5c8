//! rxe's queue pair: a ring of sends with a doorbell, and a ring of receives without one.
//!
//! Ground truth: the kernel's `rxe_req.c`, `rxe_resp.c`, `rxe_qp.c`. Each ring has a lock of its
//! own, so that posting receives never waits for a doorbell.
//!
//! A doorbell is rung under the lock: whoever destroys the queue pair waits for it, so it can reach
//! neither a handle that has been given to somebody else nor make the destroy say "busy".

mod core;
mod recv;
mod send;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use uverbs_abi::CommandError;
use uverbs_abi::sys::process::Life;

pub(super) use self::core::{Core, usable};
use self::recv::Received;
pub use self::recv::RecvRing;
pub use self::send::SendRing;
use super::cq::foreign;
use super::posted;
use super::receivers::{Receiver, Receivers};
use super::recv::RecvQueue;
use super::work::WorkQueue;
use super::wqe::{SEND_HEAD, SendLimits};
use crate::contract::{ExclusiveRecv, ExclusiveSend, Posted, QpOps};
use crate::error::{CloseError, PostCause, PostError, TakeCause, TakeError};
use crate::shelf::{Absent, Shelf};
use crate::types::{QpCaps, QpHandle, QpNum, QpState};
use crate::verbs;
use crate::wr::{RecvWr, SendWr};

/// rxe's queue pair.
pub struct RxeQp {
    core: Arc<Core>,
    life: Life,
    caps: QpCaps,
    // Boxed: of what else was tried, a shared send is the shortest so.
    send: Shelf<Box<SendRing>>,
    /// None with a shared receive queue.
    recv: Option<Arc<Receiver>>,
    /// Where that is entered.
    receivers: Option<Arc<Receivers>>,
}

impl RxeQp {
    #[inline]
    pub(super) fn new(
        core: Arc<Core>,
        granted: &QpCaps,
        send: WorkQueue<SEND_HEAD>,
        limits: SendLimits,
        recv: Option<RecvQueue>,
    ) -> Self {
        // What the rings really hold: 6.1 reports what was asked for instead.
        let caps = QpCaps {
            max_send_wr: send.capacity(),
            max_recv_wr: recv.as_ref().map_or(0, RecvQueue::capacity),
            max_recv_sge: if recv.is_some() {
                granted.max_recv_sge
            } else {
                0
            },
            ..*granted
        };
        let recv = recv.map(|queue| {
            let ring = RecvRing::new(queue, Arc::clone(&core));
            Arc::new(Receiver::new(ring, core.id()))
        });
        let receivers = recv.as_ref().and_then(|recv| {
            let receivers = Receivers::of(&core.session)?;
            receivers.insert(core.qp_num, recv);
            Some(receivers)
        });
        Self {
            life: core.session.status().life(),
            send: Shelf::new(Box::new(SendRing::new(send, limits, Arc::clone(&core)))),
            core,
            caps,
            recv,
            receivers,
        }
    }

    fn absent(&self, absent: Absent) -> PostError {
        self.core.refuses(0, absent.into())
    }

    fn cannot_be_taken(&self, cause: TakeCause) -> TakeError {
        TakeError::new(self.core.id(), cause)
    }

    /// [`post_recv`](QpOps::post_recv) after the quick way.
    #[inline(never)]
    fn post_recv_otherwise(
        recv: &Receiver,
        wrs: &[RecvWr<'_>],
        posted: Option<Received>,
        sleepers: bool,
    ) -> Result<(), PostError> {
        if sleepers {
            recv.wake();
        }
        match posted {
            Some(Received::All) => Ok(()),
            // It is in the queue; if somebody has taken that meanwhile, they look after it.
            Some(Received::AllMaybeFailed) => recv
                .with(|ring| ring.posted(Ok(()), wrs.len()))
                .unwrap_or(Ok(())),
            Some(Received::Nothing) | None => {
                recv.with_or_else(|ring| ring.post_recv(wrs), |absent| recv.absent(absent))
            }
        }
    }

    /// [`post_recv`](QpOps::post_recv) where it is not plain that this process may.
    #[inline(never)]
    fn post_recv_late(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.ours()?;
        match self.recv.as_deref() {
            Some(recv) => {
                recv.with_or_else(|ring| ring.post_recv(wrs), |absent| recv.absent(absent))
            }
            None => Err(self.core.refuses(0, PostCause::UsesSharedReceiveQueue)),
        }
    }

    /// Whether a lock may be taken.
    #[inline]
    fn ours(&self) -> Result<(), PostError> {
        if self.life.is_on() || self.core.session.is_ours() {
            Ok(())
        } else {
            Err(self.core.refuses(0, PostCause::ForeignProcess))
        }
    }

    /// Whether a ring is one of ours, and there is a lock that may be taken.
    fn is_from_here(&self, core: &Arc<Core>) -> bool {
        Arc::ptr_eq(core, &self.core) && self.core.session.is_ours()
    }
}

impl Drop for RxeQp {
    fn drop(&mut self) {
        if let (Some(recv), Some(receivers)) = (&self.recv, &self.receivers)
            && self.core.session.is_ours()
        {
            receivers.remove(self.core.qp_num, recv);
        }
    }
}

/// What tells it from others, in place of its locks and addresses.
impl fmt::Debug for RxeQp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RxeQp")
            .field("handle", &self.core.handle.0)
            .field("qp_num", &self.core.qp_num.0)
            .finish_non_exhaustive()
    }
}

impl QpOps for RxeQp {
    fn handle(&self) -> QpHandle {
        self.core.handle
    }

    fn qp_num(&self) -> QpNum {
        self.core.qp_num
    }

    fn caps(&self) -> QpCaps {
        self.caps
    }

    fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        self.ours()?;
        self.send
            .with_or_else(|ring| ring.post_send(wrs), |absent| self.absent(absent))
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        // No call in this that comes back, so that nothing has to be put aside for one.
        if self.life.is_on()
            && let Some(recv) = self.recv.as_deref()
        {
            let (posted, sleepers) = recv.try_quick(|ring| ring.post_one(wrs));
            if posted == Some(Received::All) && !sleepers {
                return Ok(());
            }
            return Self::post_recv_otherwise(recv, wrs, posted, sleepers);
        }
        self.post_recv_late(wrs)
    }

    fn posted(&self, wr_id: u64) -> Vec<Posted> {
        if !self.core.session.is_ours() {
            return Vec::new();
        }
        let sends = self
            .send
            .with(|ring| ring.work.read_back(|slot| posted::send(slot, wr_id)));
        let recv = self.recv.as_deref();
        let receives = recv.map(|shelf| shelf.with(|ring| ring.queue.posted(wr_id)));
        let mut found = sends.unwrap_or_default();
        found.extend(receives.and_then(Result::ok).unwrap_or_default());
        found
    }

    fn known_state(&self) -> QpState {
        self.core.state()
    }

    fn commands(&self) -> &Mutex<()> {
        &self.core.commands
    }

    fn state_changed(&self, state: QpState) -> Result<(), CommandError> {
        let before = self.core.state.swap(state.raw(), Ordering::Relaxed);
        if before == QpState::Sqd.raw() && state == QpState::Rts {
            // What was posted in SQD waits for somebody to say so.
            self.core.session.doorbell(self.core.handle.0)?;
        }
        Ok(())
    }

    fn set_max_rd_atomic(&self, max_rd_atomic: u8) {
        self.core
            .no_reads
            .store(max_rd_atomic == 0, Ordering::Relaxed);
    }

    fn settle(&self) {
        if let Some(recv) = self.recv.as_deref().filter(|_| self.core.session.is_ours()) {
            // As in `Receivers::failed`.
            let _ = recv.with(|ring| ring.settle());
        }
    }

    fn take_send(&self) -> Result<ExclusiveSend, TakeError> {
        if !self.core.session.is_ours() {
            return Err(self.cannot_be_taken(TakeCause::ForeignProcess));
        }
        match self.send.take() {
            Ok(ring) => Ok(ExclusiveSend::Rxe(ring)),
            Err(absent) => Err(self.cannot_be_taken(absent.into())),
        }
    }

    fn put_back_send(&self, queue: ExclusiveSend) {
        let ExclusiveSend::Rxe(mut ring) = queue;
        if self.is_from_here(&ring.core) {
            // What could not be told yet and cannot now is told with the next post.
            let _ = ring.ring_owed();
            self.send.put_back(ring);
        }
    }

    fn take_recv(&self) -> Result<ExclusiveRecv, TakeError> {
        if !self.core.session.is_ours() {
            return Err(self.cannot_be_taken(TakeCause::ForeignProcess));
        }
        match self.recv.as_deref().map(|recv| recv.take()) {
            Some(Ok(ring)) => Ok(ExclusiveRecv::Rxe(Box::new(ring))),
            Some(Err(absent)) => Err(self.cannot_be_taken(absent.into())),
            None => Err(self.cannot_be_taken(TakeCause::UsesSharedReceiveQueue)),
        }
    }

    fn put_back_recv(&self, queue: ExclusiveRecv) {
        let ExclusiveRecv::Rxe(ring) = queue;
        if let (true, Some(shelf)) = (self.is_from_here(&ring.core), &self.recv) {
            shelf.put_back(*ring);
            // A failure that was polled meanwhile found nobody to tell.
            self.settle();
        }
    }

    fn destroy(&self) -> Result<u32, CloseError> {
        if !self.core.session.is_ours() {
            return Err(foreign("QP_DESTROY"));
        }
        let send = self.send.close()?;
        let recv = match self.recv.as_deref().map(|recv| recv.close()).transpose() {
            Ok(recv) => recv,
            Err(absent) => {
                self.send.reopen(send);
                return Err(absent.into());
            }
        };
        match verbs::qp::destroy(&self.core.session, self.core.handle) {
            // The rings are unmapped here, after the kernel object is gone.
            Ok(reported) => Ok(reported),
            Err(error) if error.is_done() => Err(error.into()),
            Err(error) => {
                self.send.reopen(send);
                if let (Some(shelf), Some(recv)) = (&self.recv, recv) {
                    shelf.reopen(recv);
                }
                Err(error.into())
            }
        }
    }
}

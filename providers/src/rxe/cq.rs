//! rxe's completion queue: a ring that the kernel fills and we empty.
//!
//! Ground truth: the kernel's `rxe_cq.c`, `rxe_queue.h`. Polling is memory only; arming and
//! destroying are commands.
//!
//! Must never move the consumer index for a completion that was not handed out, and must never take
//! the lock in a process that inherited it.

use std::sync::Arc;

use uverbs_abi::{Cause, CommandError, Session};

use super::receivers::Receivers;
use super::wc::{WC_LEN, decode};
use crate::contract::{Arm, CqOps, CqReported, ExclusiveCq};
use crate::error::{CloseError, PollError};
use crate::ring::{Consumer, Corrupt, Masked};
use crate::shared::SharedQueue;
use crate::shelf::{Absent, Shelf};
use crate::types::CqHandle;
use crate::verbs;
use crate::wc::{Wc, WcStatus};

/// The ring of one completion queue.
#[derive(Debug)]
pub struct CqRing {
    queue: SharedQueue<WC_LEN>,
    consumer: Consumer<Masked>,
    session: Arc<Session>,
    handle: CqHandle,
}

impl CqRing {
    pub(super) fn new(
        queue: SharedQueue<WC_LEN>,
        session: Arc<Session>,
        handle: CqHandle,
    ) -> Result<Self, Corrupt> {
        let rule = Masked::new(queue.mask()).ok_or(Corrupt)?;
        let consumer = Consumer::new(rule, queue.producer(), queue.consumer())?;
        Ok(Self {
            queue,
            consumer,
            session,
            handle,
        })
    }

    /// Moves completions out, oldest first; gives how many.
    ///
    /// # Errors
    /// [`PollError`]. Completions that are still queued when the device goes come first.
    pub fn poll(&mut self, out: &mut [Wc]) -> Result<usize, PollError> {
        if self.session.is_ours() {
            self.poll_ours(out)
        } else {
            Err(PollError::ForeignProcess)
        }
    }

    #[inline]
    fn poll_ours(&mut self, out: &mut [Wc]) -> Result<usize, PollError> {
        // At least 1: "nothing left" must not be said of a ring that was not looked at.
        let wanted = u32::try_from(out.len()).unwrap_or(u32::MAX).max(1);
        let ready = self
            .consumer
            .available(self.queue.producer(), wanted)
            .map_err(|Corrupt| PollError::CorruptRing)?;
        if ready == 0 {
            return if self.session.is_gone() {
                Err(PollError::DeviceGone)
            } else {
                Ok(0)
            };
        }
        let mut failed = false;
        let mut taken = 0u32;
        for (wc, ahead) in out.iter_mut().zip(0..ready) {
            *wc = decode(self.queue.copy_out(self.consumer.slot(ahead)));
            failed |= wc.status != WcStatus::Success;
            taken = ahead.wrapping_add(1);
        }
        self.consumer.release(self.queue.consumer(), taken);
        // `taken <= out.len()`.
        let taken = taken as usize;
        if failed {
            self.tell(out.get(..taken).unwrap_or_default());
        }
        Ok(taken)
    }

    /// Before the caller can act on a failure: some queue pair is in the error state, and those
    /// that failed may have receives that came too late to be flushed.
    #[cold]
    fn tell(&self, completions: &[Wc]) {
        self.session.note_error();
        let Some(receivers) = Receivers::of(&self.session) else {
            return;
        };
        let mut last = None;
        for wc in completions
            .iter()
            .filter(|wc| wc.status != WcStatus::Success)
        {
            if last.replace(wc.qp_num) != Some(wc.qp_num) {
                receivers.failed(wc.qp_num);
            }
        }
    }
}

/// rxe's completion queue.
#[derive(Debug)]
pub struct RxeCq {
    session: Arc<Session>,
    handle: CqHandle,
    depth: u32,
    ring: Shelf<Box<CqRing>>,
}

impl RxeCq {
    pub(super) fn new(ring: CqRing) -> Self {
        Self {
            session: Arc::clone(&ring.session),
            handle: ring.handle,
            depth: ring.queue.mask(),
            ring: Shelf::new(Box::new(ring)),
        }
    }
}

impl From<Absent> for PollError {
    fn from(absent: Absent) -> Self {
        match absent {
            Absent::InExclusiveUse => Self::InExclusiveUse,
            Absent::Destroyed => Self::Destroyed,
        }
    }
}

impl From<Absent> for CloseError {
    fn from(absent: Absent) -> Self {
        match absent {
            Absent::InExclusiveUse => Self::InExclusiveUse,
            Absent::Destroyed => Self::Destroyed,
        }
    }
}

/// The refusal to destroy what another process made.
pub(super) fn foreign(command: &'static str) -> CloseError {
    CloseError::Command(CommandError {
        command,
        cause: Cause::ForeignProcess,
    })
}

impl CqOps for RxeCq {
    fn handle(&self) -> CqHandle {
        self.handle
    }

    fn depth(&self) -> u32 {
        self.depth
    }

    fn poll<'b>(&self, out: &'b mut [Wc]) -> Result<&'b mut [Wc], PollError> {
        if !self.session.is_ours() {
            return Err(PollError::ForeignProcess);
        }
        let taken = self.ring.with(|ring| ring.poll_ours(out))??;
        Ok(out.get_mut(..taken).unwrap_or_default())
    }

    fn arm(&self, kind: Arm) -> Result<(), CommandError> {
        verbs::cq::arm(&self.session, self.handle, kind)
    }

    fn take(&self) -> Result<ExclusiveCq, PollError> {
        if !self.session.is_ours() {
            return Err(PollError::ForeignProcess);
        }
        Ok(ExclusiveCq::Rxe(self.ring.take()?))
    }

    fn put_back(&self, queue: ExclusiveCq) {
        let ExclusiveCq::Rxe(ring) = queue;
        let same = Arc::ptr_eq(&ring.session, &self.session) && ring.handle == self.handle;
        if same && self.session.is_ours() {
            self.ring.put_back(ring);
        }
    }

    fn destroy(&self) -> Result<CqReported, CloseError> {
        if !self.session.is_ours() {
            return Err(foreign("CQ_DESTROY"));
        }
        let ring = self.ring.close()?;
        match verbs::cq::destroy(&self.session, self.handle) {
            // The ring is unmapped here, after the kernel object is gone.
            Ok(reported) => Ok(reported),
            Err(error) => {
                self.ring.reopen(ring);
                Err(error.into())
            }
        }
    }
}

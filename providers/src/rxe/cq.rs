//! rxe's completion queue: a ring that the kernel fills and we empty.
//!
//! Ground truth: the kernel's `rxe_cq.c`, `rxe_queue.h`. Polling is memory only; arming and
//! destroying are commands.
//!
//! Must never move the consumer index for a completion that was not handed out, and must never take
//! the lock in a process that inherited it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use uverbs_abi::sys::process::Life;
use uverbs_abi::{Cause, CommandError, Session};

use super::receivers::Receivers;
use super::wc::{WC_LEN, decode_pairs};
use crate::contract::{Arm, CqOps, CqReported, ExclusiveCq};
use crate::error::{CloseError, PollError};
use crate::ring::{Consumer, Corrupt, Glance, Index, Masked};
use crate::shared::{ProducerIndex, SharedQueue};
use crate::shelf::{Absent, Shelf};
use crate::types::CqHandle;
use crate::verbs;
use crate::wc::{Wc, WcStatus};

/// The ring of one completion queue.
#[derive(Debug)]
pub struct CqRing {
    queue: SharedQueue<WC_LEN>,
    consumer: Consumer<Masked>,
    life: Life,
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
            life: session.status().life(),
            session,
            handle,
        })
    }

    /// Moves completions out, oldest first, and gives the part of `out` that was filled.
    ///
    /// # Errors
    /// [`PollError`]. Completions that are still queued when the device goes come first.
    #[inline]
    pub fn poll<'b>(&mut self, out: &'b mut [Wc]) -> Result<&'b mut [Wc], PollError> {
        self.poll_if(self.life.is_on(), out)
    }

    /// [`poll`](Self::poll), where the life has been looked at.
    #[inline(always)]
    fn poll_if<'b>(&mut self, is_on: bool, out: &'b mut [Wc]) -> Result<&'b mut [Wc], PollError> {
        // What a busy loop does most of the time, to find nothing or one, is all in the caller.
        if is_on {
            match self.consumer.glance(self.queue.producer()) {
                Glance::Nothing => return Ok(&mut []),
                Glance::One if !out.is_empty() => {
                    let wc = decode_pairs(self.queue.slots(self.consumer.first()).copy_pairs());
                    if wc.status == WcStatus::Success {
                        self.consumer.release_one(self.queue.consumer());
                        let filled = out.get_mut(..1).unwrap_or_default();
                        filled.fill(wc);
                        return Ok(filled);
                    }
                }
                _ => {}
            }
        }
        let taken = self.poll_some(out);
        out.get_mut(..taken).ok_or_else(|| self.fault())
    }

    /// Moves the one completion out that is there, if it is just one, and no failure. Otherwise nothing
    /// has happened.
    #[inline]
    fn poll_one(&mut self, out: &mut [Wc], idle: &Idle) -> bool {
        if self.consumer.glance(self.queue.producer()) != Glance::One {
            return false;
        }
        let wc = decode_pairs(self.queue.slots(self.consumer.first()).copy_pairs());
        if wc.status != WcStatus::Success {
            return false;
        }
        idle.set(UNKNOWN);
        self.consumer.release_one(self.queue.consumer());
        idle.set(self.consumer.first());
        out.fill(wc);
        true
    }

    /// How many completions were moved out, or more than there is room for: then there is a
    /// [`fault`](Self::fault).
    #[inline(never)]
    fn poll_some(&mut self, out: &mut [Wc]) -> usize {
        if !self.life.is_on() && !self.session.is_ours() {
            return usize::MAX;
        }
        let known = self.consumer.known();
        let ready = if known as usize >= out.len().max(1) {
            known
        } else {
            match self.consumer.look(self.queue.producer()) {
                Ok(0) if self.session.is_gone() => return usize::MAX,
                Ok(ready) => ready,
                Err(Corrupt) => return usize::MAX,
            }
        };
        let taken = out.len().min(ready as usize);
        let mut slots = self.queue.slots(self.consumer.first());
        let mut statuses = 0;
        for wc in out.iter_mut().take(taken) {
            *wc = decode_pairs(slots.copy_pairs());
            // Success is 0.
            statuses |= wc.status.raw();
            slots.advance();
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "no more than are ready, and those an index counts"
        )]
        self.consumer.release(self.queue.consumer(), taken as u32);
        if statuses != 0 {
            self.tell(out.get(..taken).unwrap_or_default());
        }
        taken
    }

    /// Why [`poll_some`](Self::poll_some) gave up.
    #[cold]
    #[inline(never)]
    fn fault(&mut self) -> PollError {
        if !self.session.is_ours() {
            PollError::ForeignProcess
        } else if self.session.is_gone() && self.consumer.look(self.queue.producer()).is_ok() {
            PollError::DeviceGone
        } else {
            PollError::CorruptRing
        }
    }

    /// Before the caller can act on a failure: some queue pair is in the error state, and those
    /// that failed may have receives that came too late to be flushed.
    #[cold]
    #[inline(never)]
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
    life: Life,
    session: Arc<Session>,
    handle: CqHandle,
    depth: u32,
    idle: Idle,
    ring: Shelf<Box<CqRing>>,
}

/// What says without the lock that a completion queue is empty: where the kernel's index stands when
/// it is, or [`UNKNOWN`].
///
/// It is made unknown under the lock, before completions are given back, and known again under the
/// lock when there are none left. The kernel's index is read first, with Acquire. If it has come round
/// since the word was written, then the kernel has seen slots given back, and whoever sees that index
/// sees the word unknown or newer. So "empty" is true of what was published before that index was
/// read, as with the lock; what comes later makes an event, if one was asked for.
#[derive(Debug)]
struct Idle {
    kernel: ProducerIndex,
    at: AtomicU32,
}

/// No index: there are at most 2³¹ slots.
const UNKNOWN: u32 = u32::MAX;

impl Idle {
    fn new(kernel: ProducerIndex) -> Self {
        Self {
            kernel,
            at: AtomicU32::new(UNKNOWN),
        }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        // Acquire in the trait: see the type.
        let seen = self.kernel.get().load_acquire();
        seen == self.at.load(Ordering::Relaxed)
    }

    /// Under the lock of the ring.
    #[inline]
    fn set(&self, at: u32) {
        // Relaxed: before a release of slots, which is a Release; or after it, by whoever has the lock.
        self.at.store(at, Ordering::Relaxed);
    }
}

impl RxeCq {
    pub(super) fn new(ring: CqRing) -> Self {
        Self {
            life: ring.life,
            session: Arc::clone(&ring.session),
            handle: ring.handle,
            depth: ring.queue.mask(),
            idle: Idle::new(ring.queue.producer_index()),
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

impl RxeCq {
    /// [`poll`](CqOps::poll) where there seems to be more than one, or somebody else.
    #[inline(never)]
    fn poll_locked<'b>(&self, out: &'b mut [Wc]) -> Result<&'b mut [Wc], PollError> {
        self.ring.with_or(|ring| {
            self.idle.set(UNKNOWN);
            let found = ring.poll_if(true, out);
            if ring.consumer.known() == 0 {
                self.idle.set(ring.consumer.first());
            }
            found
        })
    }

    /// [`poll`](CqOps::poll) where it is not plain that this process may, and that there is a device.
    #[cold]
    #[inline(never)]
    fn poll_late<'b>(&self, out: &'b mut [Wc]) -> Result<&'b mut [Wc], PollError> {
        if !self.session.is_ours() {
            return Err(PollError::ForeignProcess);
        }
        self.ring.with_or(|ring| {
            self.idle.set(UNKNOWN);
            ring.poll(out)
        })
    }
}

impl CqOps for RxeCq {
    fn handle(&self) -> CqHandle {
        self.handle
    }

    fn depth(&self) -> u32 {
        self.depth
    }

    fn poll<'b>(&self, out: &'b mut [Wc]) -> Result<&'b mut [Wc], PollError> {
        // Before the lock.
        if self.life.is_on() {
            if self.idle.is_empty() {
                return Ok(&mut []);
            }
            // No call in this, so that nothing has to be put aside for one.
            if let Some(first) = out.get_mut(..1)
                && self.ring.try_with(|ring| ring.poll_one(first, &self.idle)) == Some(true)
            {
                return Ok(out.get_mut(..1).unwrap_or_default());
            }
            self.poll_locked(out)
        } else {
            self.poll_late(out)
        }
    }

    fn arm(&self, kind: Arm) -> Result<(), CommandError> {
        verbs::cq::arm(&self.session, self.handle, kind)
    }

    fn take(&self) -> Result<ExclusiveCq, PollError> {
        if !self.session.is_ours() {
            return Err(PollError::ForeignProcess);
        }
        let ring = self.ring.take()?;
        // Nobody makes it known before the ring is back.
        self.idle.set(UNKNOWN);
        Ok(ExclusiveCq::Rxe(ring))
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
        self.idle.set(UNKNOWN);
        match verbs::cq::destroy(&self.session, self.handle) {
            // The ring is unmapped after the kernel object is gone, together with `self`.
            Ok(reported) => Ok(reported),
            Err(error) if error.is_done() => Err(error.into()),
            Err(error) => {
                self.ring.reopen(ring);
                Err(error.into())
            }
        }
    }
}

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
use super::wc::{STATUS, WC_LEN, decode_pairs, has_failed};
use crate::contract::{Arm, CqOps, CqReported, ExclusiveCq};
use crate::error::{CloseError, PollError, TakeCause, TakeError};
use crate::ring::{Consumer, Corrupt, Glance, Index, Masked};
use crate::shared::{ProducerIndex, SharedQueue};
use crate::shelf::{Absent, Shelf};
use crate::types::{CqHandle, QueueId};
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
        let taken = if is_on {
            match self.consumer.glance(self.queue.producer()) {
                Glance::Nothing => return Ok(&mut []),
                Glance::One if !out.is_empty() => {
                    if let Some(wc) = self.success() {
                        self.consumer.release_one(self.queue.consumer());
                        let filled = out.get_mut(..1).unwrap_or_default();
                        filled.fill(wc);
                        return Ok(filled);
                    }
                }
                _ => {}
            }
            self.poll_some(out)
        } else {
            self.poll_late(out)
        };
        out.get_mut(..taken).ok_or_else(|| self.fault())
    }

    /// The oldest completion, which a look has shown to be there, if it is no failure.
    #[inline]
    fn success(&self) -> Option<Wc> {
        let slot = self.consumer.first();
        // The status on its own, since taking it out of what is moved as one costs more.
        let failed = has_failed(self.queue.copy_word::<STATUS>(slot));
        (!failed).then(|| decode_pairs(self.queue.copy_pairs(slot)))
    }

    /// Moves the one completion out that is there, if it is just one, and no failure. Otherwise nothing
    /// has happened.
    #[inline]
    fn poll_one(&mut self, out: &mut [Wc], idle: &Idle) -> Option<()> {
        if self.consumer.glance(self.queue.producer()) != Glance::One {
            return None;
        }
        let wc = self.success()?;
        // Known before it is given back: it has been taken out, whoever is to have it.
        idle.set(self.consumer.after_one());
        self.consumer.release_one(self.queue.consumer());
        out.fill(wc);
        Some(())
    }

    /// How many completions were moved out, or more than there is room for: then there is a
    /// [`fault`](Self::fault).
    #[inline(never)]
    fn poll_some(&mut self, out: &mut [Wc]) -> usize {
        // What this leaves to other calls it does at its end, so that nothing has to be put aside.
        let known = self.consumer.known();
        let ready = if known as usize >= out.len() {
            known
        } else {
            match self.consumer.look(self.queue.producer()) {
                Ok(ready) => ready,
                Err(Corrupt) => return usize::MAX,
            }
        };
        let taken = out.len().min(ready as usize);
        let out = out.get_mut(..taken).unwrap_or_default();
        match self
            .queue
            .read_straight(self.consumer.first(), out, decode_pairs)
        {
            Some(seen) => self.polled(out, seen),
            None => self.poll_round(out),
        }
    }

    /// [`poll_some`](Self::poll_some) of completions that are there, beyond the last slot, which is
    /// followed by the first.
    #[inline(never)]
    fn poll_round(&mut self, out: &mut [Wc]) -> usize {
        let mut seen = [0; 2];
        for (ahead, wc) in (0..).zip(out.iter_mut()) {
            let [first, rest @ ..] = self.queue.copy_pairs(self.consumer.slot(ahead));
            let ([a, b], [c, d]) = (seen, first);
            seen = [a | c, b | d];
            let [second, third] = rest;
            *wc = decode_pairs([first, second, third]);
        }
        self.polled(out, seen)
    }

    /// Gives back the slots that `out` has been filled from, and says how many; `seen` is what the first
    /// 16 bytes of all of them are, bit by bit.
    #[inline]
    fn polled(&mut self, out: &[Wc], [_, statuses]: [u64; 2]) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "no more than are ready, and those an index counts"
        )]
        self.consumer
            .release(self.queue.consumer(), out.len() as u32);
        if has_failed(statuses) {
            self.tell(out)
        } else {
            out.len()
        }
    }

    /// [`poll_some`](Self::poll_some) where it is not plain that this process may, and that there is a
    /// device.
    #[cold]
    #[inline(never)]
    fn poll_late(&mut self, out: &mut [Wc]) -> usize {
        if !self.session.is_ours() {
            return usize::MAX;
        }
        let taken = self.poll_some(out);
        let nothing_left = taken == 0 && self.consumer.look(self.queue.producer()) == Ok(0);
        if nothing_left && self.session.is_gone() {
            usize::MAX
        } else {
            taken
        }
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

    /// Says how many there are, and before the caller can act on a failure: some queue pair is in the error state, and those
    /// that failed may have receives that came too late to be flushed.
    #[cold]
    #[inline(never)]
    fn tell(&self, completions: &[Wc]) -> usize {
        self.session.note_error();
        let Some(receivers) = Receivers::of(&self.session) else {
            return completions.len();
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
        completions.len()
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

    /// [`poll`](CqOps::poll) after the quick way, with the first place filled if that has `polled`.
    #[inline(never)]
    fn poll_otherwise<'b>(
        &self,
        out: &'b mut [Wc],
        polled: bool,
        sleepers: bool,
    ) -> Result<&'b mut [Wc], PollError> {
        if sleepers {
            self.ring.wake();
        }
        if polled {
            Ok(out.get_mut(..1).unwrap_or_default())
        } else {
            self.poll_locked(out)
        }
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
            // No call in this that comes back, so that nothing has to be put aside for one.
            let (polled, sleepers) = self.ring.try_quick(|ring| {
                let first = out.get_mut(..1)?;
                ring.poll_one(first, &self.idle)
            });
            if polled.is_some() && !sleepers {
                return Ok(out.get_mut(..1).unwrap_or_default());
            }
            self.poll_otherwise(out, polled.is_some(), sleepers)
        } else {
            self.poll_late(out)
        }
    }

    fn arm(&self, kind: Arm) -> Result<(), CommandError> {
        verbs::cq::arm(&self.session, self.handle, kind)
    }

    fn take(&self) -> Result<ExclusiveCq, TakeError> {
        let refused = |cause| TakeError::new(QueueId::CompletionQueue(self.handle), cause);
        if !self.session.is_ours() {
            return Err(refused(TakeCause::ForeignProcess));
        }
        let ring = self.ring.take().map_err(|absent| refused(absent.into()))?;
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

//! rxe's completion queue: a ring that the kernel fills and we empty.
//!
//! Ground truth: the kernel's `rxe_cq.c`, `rxe_queue.h`. Polling is memory only; arming and
//! destroying are commands.
//!
//! Must never move the consumer index for a completion that was not handed out, and must never take
//! the lock in a process that inherited it.

use std::fmt;
use std::sync::Arc;

use uverbs_abi::sys::process::Life;
use uverbs_abi::{Cause, CommandError, Session};

use super::receivers::Receivers;
use super::wc::{STATUS, WC_LEN, decode_pairs, has_failed};
use crate::contract::{Arm, CqOps, CqReported, ExclusiveCq};
use crate::error::{CloseError, PollError, TakeCause, TakeError};
use crate::ring::{Consumer, Corrupt, Glance, Index, IndexRule, Masked, low};
use crate::shared::{Reader, SharedQueue, View};
use crate::shelf::{Absent, Numbered, Shelf, Turn};
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
    #[inline]
    fn new(
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
        let taken = if self.life.is_on() {
            self.poll_alive(out)
        } else {
            self.poll_late(out)
        };
        if taken > out.len() {
            return Err(self.fault());
        }
        Ok(out.get_mut(..taken).unwrap_or_default())
    }

    /// [`poll`](Self::poll), where the life has been looked at: how many completions were moved out, or
    /// more than there is room for: then there is a [`fault`](Self::fault).
    #[inline(always)]
    fn poll_alive(&mut self, out: &mut [Wc]) -> usize {
        // What a busy loop does most of the time, to find nothing or one, is all in the caller.
        let seen = match self.consumer.glance(self.queue.producer()) {
            Glance::Nothing => return 0,
            Glance::One(seen) => {
                if let Some(first) = out.first_mut()
                    && let Some(wc) = success(self.queue.view(), self.consumer.first())
                {
                    self.consumer.release_one(self.queue.consumer(), seen);
                    *first = wc;
                    return 1;
                }
                seen
            }
            Glance::Else(seen) => seen,
        };
        self.poll_some(out, seen)
    }

    /// [`poll_alive`](Self::poll_alive) where `seen` is the kernel's index.
    #[inline(never)]
    fn poll_some(&mut self, out: &mut [Wc], seen: u32) -> usize {
        // What this leaves to other calls it does at its end, so that nothing has to be put aside.
        let Ok(ready) = self.consumer.ready_at(seen) else {
            return usize::MAX;
        };
        let taken = out.len().min(ready as usize);
        let out = out.get_mut(..taken).unwrap_or_default();
        match self
            .queue
            .read_straight(self.consumer.first(), out, decode_pairs)
        {
            Some(together) => self.polled(out, ready, together),
            None => self.poll_round(out, ready),
        }
    }

    /// [`poll_some`](Self::poll_some) of completions that are there, beyond the last slot, which is
    /// followed by the first.
    #[inline(never)]
    fn poll_round(&mut self, out: &mut [Wc], ready: u32) -> usize {
        let mut together = [0; 2];
        for (ahead, wc) in (0..).zip(out.iter_mut()) {
            let [first, rest @ ..] = self.queue.view().copy_pairs(self.consumer.slot(ahead));
            let ([a, b], [c, d]) = (together, first);
            together = [a | c, b | d];
            let [second, third] = rest;
            *wc = decode_pairs([first, second, third]);
        }
        self.polled(out, ready, together)
    }

    /// Gives back the slots that `out` has been filled from, of the `ready` ones, and says how many;
    /// `together` is what the first 16 bytes of all of them are, bit by bit.
    #[inline]
    fn polled(&mut self, out: &[Wc], ready: u32, [_, statuses]: [u64; 2]) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "no more than are ready, and those an index counts"
        )]
        self.consumer
            .release_of(self.queue.consumer(), ready, out.len() as u32);
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
        let taken = self.poll_some(out, self.queue.producer().load_acquire());
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

/// The completion in a slot that is filled, if it is no failure.
#[inline]
fn success(queue: View<'_, WC_LEN>, slot: u32) -> Option<Wc> {
    // The status on its own, since taking it out of what is moved as one costs more.
    let failed = has_failed(queue.copy_word::<STATUS>(slot));
    (!failed).then(|| decode_pairs(queue.copy_pairs(slot)))
}

impl Numbered for CqRing {
    #[inline]
    fn number(&self) -> Option<u32> {
        self.consumer.idle_at()
    }

    #[inline]
    fn resume(&mut self, number: u32) {
        self.consumer.resume(number);
    }
}

/// rxe's completion queue.
///
/// On the [`Shelf`], its number is the slot that is taken next. So a poll without the lock can say that
/// there is nothing: the kernel's index is read first, with Acquire, and then the number. If the index
/// has come round since the number was written, then the kernel has seen slots given back, which whoever
/// holds the lock does, and whoever sees that index sees the lock held or something newer. So "empty" is
/// true of what was published before the index was read, as with the lock; what comes later makes an
/// event, if one was asked for.
///
/// One completion is taken under the lock without touching the ring itself: what a slot is read and given
/// back by is here as well, and the number is all that changes.
pub struct RxeCq {
    life: Life,
    session: Arc<Session>,
    handle: CqHandle,
    depth: u32,
    rule: Masked,
    queue: Reader<WC_LEN>,
    ring: Shelf<CqRing>,
}

impl RxeCq {
    #[inline]
    pub(super) fn new(
        queue: SharedQueue<WC_LEN>,
        session: &Arc<Session>,
        handle: CqHandle,
    ) -> Result<Self, Corrupt> {
        let (queue, reader) = queue.with_reader();
        let ring = CqRing::new(queue, Arc::clone(session), handle)?;
        Ok(Self {
            life: ring.life,
            session: Arc::clone(session),
            handle,
            depth: reader.mask(),
            rule: ring.consumer.rule(),
            queue: reader,
            ring: Shelf::new(ring),
        })
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
    /// [`try_poll`](CqOps::try_poll) of more than one, or of a failure, by whoever has the lock. Its
    /// arguments come first as they are.
    #[inline(never)]
    fn poll_ring(&self, out: &mut [Wc], turn: Turn<'_, CqRing>) -> usize {
        let polled = turn.with_or(|ring| Ok::<_, PollError>(ring.poll_alive(out)));
        polled.unwrap_or(usize::MAX)
    }

    /// [`try_poll`](CqOps::try_poll) where somebody else is at it, or it is not plain that this process
    /// may, and that there is a device.
    #[cold]
    #[inline(never)]
    fn poll_late(&self, out: &mut [Wc]) -> usize {
        match self.poll_waiting(out) {
            Ok(found) => found.len(),
            Err(_) => usize::MAX,
        }
    }

    /// [`poll`](CqOps::poll), without the short way.
    fn poll_waiting<'b>(&self, out: &'b mut [Wc]) -> Result<&'b mut [Wc], PollError> {
        if self.life.is_on() || self.session.is_ours() {
            self.ring.with_or(|ring| ring.poll(out))
        } else {
            Err(PollError::ForeignProcess)
        }
    }

    /// What is left to do after [`try_poll`](CqOps::try_poll) has taken one and others sleep.
    #[cold]
    #[inline(never)]
    fn wake(&self) -> usize {
        self.ring.wake();
        1
    }
}

/// What tells it from others, in place of its locks and addresses.
impl fmt::Debug for RxeCq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RxeCq")
            .field("handle", &self.handle.0)
            .field("depth", &self.depth)
            .finish_non_exhaustive()
    }
}

impl CqOps for RxeCq {
    fn handle(&self) -> CqHandle {
        self.handle
    }

    fn depth(&self) -> u32 {
        self.depth
    }

    fn try_poll(&self, out: &mut [Wc]) -> usize {
        // Before the lock.
        if !self.life.is_on() {
            return self.poll_late(out);
        }
        let queue = self.queue.view();
        // Acquire in the trait, and then the word: see the type.
        let seen = queue.producer().load_acquire();
        let word = self.ring.word();
        if u64::from(seen) == word {
            return 0;
        }
        let Some(turn) = self.ring.turn(word) else {
            return self.poll_late(out);
        };
        // No call in this that comes back, so that nothing has to be put aside for one. The index is looked
        // at once more, since the ring may have been gone round meanwhile; none equals a word that is no
        // number.
        let (at, next) = (turn.word(), self.rule.step_low(turn.word()));
        let seen = queue.producer().load_acquire();
        if u64::from(seen) == next
            && let Some(first) = out.first_mut()
            && let Some(wc) = success(queue, low(at))
        {
            // Release in the trait: the kernel may fill the slot again only after our reads.
            queue.consumer().store_release(seen);
            *first = wc;
            if turn.leave(seen) { self.wake() } else { 1 }
        } else {
            self.poll_ring(out, turn)
        }
    }

    fn poll<'b>(&self, out: &'b mut [Wc]) -> Result<&'b mut [Wc], PollError> {
        let taken = self.try_poll(out);
        if taken > out.len() {
            return self.poll_waiting(out);
        }
        Ok(out.get_mut(..taken).unwrap_or_default())
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
        Ok(ExclusiveCq::Rxe(Box::new(ring)))
    }

    fn put_back(&self, queue: ExclusiveCq) {
        let ExclusiveCq::Rxe(ring) = queue;
        let same = Arc::ptr_eq(&ring.session, &self.session) && ring.handle == self.handle;
        if same && self.session.is_ours() {
            self.ring.put_back(*ring);
        }
    }

    fn destroy(&self) -> Result<CqReported, CloseError> {
        if !self.session.is_ours() {
            return Err(foreign("CQ_DESTROY"));
        }
        let ring = self.ring.close()?;
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

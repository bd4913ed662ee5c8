//! Arm, poll once more, wait: in this order, so that no completion is slept through; and what several
//! who wait for one queue owe each other.
//!
//! Ground truth: `ibv_req_notify_cq(3)`: only what comes after the arming is told. It must never wait
//! without having polled an armed queue and found it empty.

use uverbs_providers::wc::Wc;

use super::bell::{Bell, Rope};
use crate::event::EventError;
use crate::event::sync::{AtomicU32, Fault, Ordering, planted};

/// Those who wait for one queue.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// How many wait for a completion, armed or about to arm.
    waiting: AtomicU32,
    /// Wakes them where the kernel does not.
    pub(crate) bell: Bell,
}

/// A queue as one who waits for it needs it.
pub(crate) trait Awaited {
    /// What ends a wait.
    type Error: From<EventError>;

    /// Whether waiting has come to an end: stopped, destroyed, gone.
    fn check(&self) -> Result<(), Self::Error>;

    /// How many completions there were, up to the length of `out`.
    fn poll(&self, out: &mut [Wc]) -> Result<usize, Self::Error>;

    /// Asks for one event of the next completion.
    fn arm(&self) -> Result<(), Self::Error>;

    /// Who waits for this queue.
    fn crowd(&self) -> &Crowd;
}

/// What to do next in order to wait.
pub(crate) enum Step<'b> {
    /// There are completions.
    Ready(&'b mut [Wc]),
    /// The queue is armed, and was empty after that.
    Wait {
        /// As it was given.
        room: &'b mut [Wc],
        /// Tells of the queue's destroy.
        rope: Rope,
    },
}

/// One who waits for completions of a queue, perhaps beside others.
pub(crate) struct Waiter<'q, Q: Awaited> {
    queue: &'q Q,
    /// Whether it is among those that the queue counts.
    is_counted: bool,
    /// Whether it has taken an event, which others may have waited for, too; or the hint of one who had.
    is_told: bool,
}

impl<'q, Q: Awaited> Waiter<'q, Q> {
    pub(crate) const fn new(queue: &'q Q) -> Self {
        Self {
            queue,
            is_counted: false,
            is_told: false,
        }
    }

    /// The queue that is waited for.
    pub(super) const fn queue(&self) -> &'q Q {
        self.queue
    }

    /// Polls; if there is nothing, arms and polls once more.
    pub(crate) fn step<'b>(&mut self, out: &'b mut [Wc]) -> Result<Step<'b>, Q::Error> {
        let wanted = !out.is_empty();
        // Even where there is something to be polled: whoever was stopped is to end.
        self.queue.check()?;
        if self.is_told && self.others_wait() && !planted(Fault::NoArmingForOthers) {
            // The event that was taken here has disarmed the queue, and nobody else would be told of
            // what comes after the poll.
            self.queue.arm().inspect_err(|_| self.hand_on())?;
        }
        let count = self.poll(out)?;
        if count != 0 || !wanted {
            return Ok(Step::Ready(out.get_mut(..count).unwrap_or_default()));
        }
        if !planted(Fault::CountAfterArming) {
            self.count_in();
        }
        // Before the arming: see there.
        let rope = self.queue.crowd().bell.hang()?;
        self.queue.arm()?;
        if planted(Fault::CountAfterArming) {
            self.count_in();
        }
        let count = self.poll(out)?;
        if count == 0 {
            return Ok(Step::Wait { room: out, rope });
        }
        Ok(Step::Ready(out.get_mut(..count).unwrap_or_default()))
    }

    /// Polls. No event tells of what came between the one that was taken here and the arming: if there
    /// may be more of it than there was room for, or if it cannot be had from here (the queue is in
    /// exclusive use), the next one is to look.
    pub(crate) fn poll(&self, out: &mut [Wc]) -> Result<usize, Q::Error> {
        let polled = self.queue.poll(out);
        if !polled.as_ref().is_ok_and(|count| *count < out.len()) {
            self.hand_on();
        }
        polled
    }

    /// Has the next one look, if there may be something that no event will tell of.
    fn hand_on(&self) {
        if self.is_told && self.others_wait() && !planted(Fault::NoNudge) {
            self.queue.crowd().bell.nudge();
        }
    }

    /// An event of the queue has been taken, or somebody has left completions that no event will
    /// tell of.
    pub(crate) const fn nudged(&mut self) {
        self.is_told = true;
    }

    fn count_in(&mut self) {
        if !self.is_counted {
            self.is_counted = true;
            // SeqCst, and before the arming: whoever takes the event that this arming leads to finds
            // this one counted in `others_wait`; of a later arming nobody has to know.
            self.queue.crowd().waiting.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn others_wait(&self) -> bool {
        // SeqCst: pairs with `count_in`.
        self.queue.crowd().waiting.load(Ordering::SeqCst) > u32::from(self.is_counted)
    }
}

impl<Q: Awaited> Drop for Waiter<'_, Q> {
    fn drop(&mut self) {
        if self.is_counted {
            // Relaxed: who is seen to wait for too long costs an arming.
            self.queue.crowd().waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

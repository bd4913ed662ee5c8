//! One slot of the ledger: what is still owed for an object, and who waits for it.
//!
//! A slot serves one token and is never used for another; whoever holds an ack holds the slot, so
//! that an ack finds its counter however late it comes. An ack takes no lock, and nothing here calls
//! the system unless somebody sleeps.

use std::time::{Duration, Instant};

use uverbs_abi::sys::process::Mark;

use super::counter::{Counter, Counts, Reported, Sort};
use super::sync::{Alarm, Fault, planted};

/// What is owed for an object, shared by the table, the object and, at times, the acks.
pub(crate) struct Slot {
    home: Mark,
    asynchronous: Counter,
    completion: Counter,
    /// Rung at each ack and when the create settles, if somebody waits for it.
    changed: Alarm,
}

impl Slot {
    pub(super) fn new(home: Mark) -> Self {
        Self {
            home,
            asynchronous: Counter::default(),
            completion: Counter::default(),
            changed: Alarm::new(),
        }
    }

    #[inline(always)]
    const fn counter(&self, sort: Sort) -> &Counter {
        match sort {
            Sort::Asynchronous => &self.asynchronous,
            Sort::Completion => &self.completion,
        }
    }

    /// An event was read, and reaches somebody who will ack it. Under the table's lock.
    #[inline(always)]
    pub(super) fn deliver(&self, sort: Sort) {
        self.counter(sort).deliver();
    }

    /// A record that reaches nobody: read and acked in one step. Under the table's lock; if the answer
    /// is yes, [`ring`](Self::ring) is to be called without it.
    #[must_use]
    pub(super) fn ack_on_behalf(&self, sort: Sort) -> bool {
        self.deliver(sort);
        if planted(Fault::NoAckOnBehalf) {
            return false;
        }
        let is_awaited = self.counter(sort).ack(1);
        if planted(Fault::AsksOfOneSort) {
            self.asynchronous.has_sleepers()
        } else {
            is_awaited
        }
    }

    /// Acks so many events. In a forked child it is the child's own copy that is changed, and nobody
    /// is woken.
    #[inline(always)]
    pub(super) fn ack(&self, sort: Sort, count: u32) {
        if self.counter(sort).ack(count) && !planted(Fault::SilentAck) {
            self.ring();
        }
    }

    /// Wakes those who sleep until the object's create is over, if there are any: after a change under
    /// the table's lock, under which they look.
    pub(super) fn wake(&self) {
        // Whoever sleeps is counted for both sorts, so either says it. Not so after an ack, which is
        // looked for without the lock: there only the word that it has changed does.
        if self.asynchronous.has_sleepers() {
            self.ring();
        }
    }

    /// Wakes those who sleep.
    #[cold]
    pub(super) fn ring(&self) {
        // In a forked child the lock may be held by a thread that is not there.
        if self.home.is_ours() {
            self.changed.ring();
        }
    }

    /// Sleeps for as long as `waits` says so. With a deadline: false if it has passed.
    pub(super) fn sleep_while(
        &self,
        deadline: Option<Instant>,
        mut waits: impl FnMut() -> bool,
    ) -> bool {
        if !waits() {
            return true;
        }
        let is_late = planted(Fault::CountAfterLook);
        let mut counted = (!is_late).then(|| Sleeper::of(self));
        loop {
            let since = self.changed.listen();
            if !waits() {
                return true;
            }
            if counted.is_none() {
                counted = Some(Sleeper::of(self));
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return false;
            }
            self.changed.sleep(since, left);
        }
    }

    /// Events of both sorts that are handed over and not acked. Exact under the table's lock.
    pub(super) fn outstanding(&self) -> u32 {
        let asynchronous = self.asynchronous.outstanding();
        asynchronous.saturating_add(self.completion.outstanding())
    }

    /// In a forked child: nothing.
    pub(super) fn counts(&self, sort: Sort) -> Counts {
        if self.home.is_ours() {
            self.counter(sort).counts()
        } else {
            Counts::default()
        }
    }

    /// Waits until as many were acked as the kernel says were read, or, where it could not say, as
    /// were read here. With a deadline: how many are missing when it has passed.
    pub(super) fn settle(&self, reported: Reported, deadline: Option<Instant>) -> Result<(), u32> {
        let mut missing = 0;
        let is_settled = self.sleep_while(deadline, || {
            missing = self
                .asynchronous
                .missing(reported.asynchronous)
                .saturating_add(self.completion.missing(reported.completion));
            missing != 0
        });
        if is_settled { Ok(()) } else { Err(missing) }
    }

    #[cfg(all(test, not(uverbs_loom)))]
    pub(super) fn wrap_counts_soon(&self) {
        self.asynchronous.wrap_soon();
        self.completion.wrap_soon();
    }
}

/// One who sleeps until something changes, counted as long as this exists.
struct Sleeper<'a>(&'a Slot);

impl<'a> Sleeper<'a> {
    fn of(slot: &'a Slot) -> Self {
        slot.asynchronous.count_sleeper();
        slot.completion.count_sleeper();
        Self(slot)
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.0.asynchronous.uncount_sleeper();
        self.0.completion.uncount_sleeper();
    }
}

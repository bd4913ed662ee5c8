//! One slot of the ledger: in what phase of its life an object is, and what is still owed for it.
//!
//! ```text
//!            commit              begin_close             closed, or drop
//!  Reserved ────────► Live ───────────────────► Closing ─────────────────► Gone
//!     │                │ ▲                         │                         ▲
//!     │                │ └───────── reopen ────────┘ (the kernel refused)    │
//!     │                └──────────── the last handle was dropped ────────────┤
//!     └───────────────────────────── the create failed ──────────────────────┘
//! ```
//!
//! A slot serves one token and is never used for another; whoever holds an ack holds the slot, so
//! that an ack finds its counter however late it comes. The lock must never be held while an
//! object is dropped, nor over a system call.

use std::fmt;
use std::mem;
use std::time::{Duration, Instant};

use uverbs_abi::sys::process::Mark;

use super::counter::{Counter, Counts, Reported, Sort};
use super::ledger::{ClosePolicy, Refused};
use super::sync::{Arc, Condvar, Fault, Mutex, lock, planted, wait, wait_timeout};

/// What an object has in the ledger, shared with the events that are out.
pub(super) struct Slot<O> {
    home: Mark,
    state: Mutex<State<O>>,
    /// Notified at each ack and when the create settles.
    changed: Condvar,
}

struct State<O> {
    phase: Phase<O>,
    asynchronous: Counter,
    completion: Counter,
}

enum Phase<O> {
    /// The create is under way; its events have to wait for the outcome.
    Reserved,
    /// Events lead to the object.
    Live(O),
    /// The destroy is under way; events are acked for the object by whoever reads them.
    Closing,
    /// Nobody will see the object again; late events are acked as in `Closing`.
    Gone,
}

impl<O> State<O> {
    const fn counter(&mut self, sort: Sort) -> &mut Counter {
        match sort {
            Sort::Asynchronous => &mut self.asynchronous,
            Sort::Completion => &mut self.completion,
        }
    }

    /// A record that reaches nobody: read and acked in one step.
    fn ack_on_behalf(&mut self, sort: Sort) {
        let counter = self.counter(sort);
        counter.deliver();
        if !planted(Fault::NoAckOnBehalf) {
            counter.ack(1);
        }
    }

    /// Events of both sorts that are handed over and not acked.
    const fn outstanding(&self) -> u32 {
        let asynchronous = self.asynchronous.outstanding();
        asynchronous.saturating_add(self.completion.outstanding())
    }

    /// Events of both sorts that are not acked, of those that were read.
    const fn missing(&self, reported: Reported) -> u32 {
        let asynchronous = self.asynchronous.missing(reported.asynchronous);
        asynchronous.saturating_add(self.completion.missing(reported.completion))
    }
}

impl<O> Slot<O> {
    pub(super) fn new(home: Mark) -> Self {
        let state = State {
            phase: Phase::Reserved,
            asynchronous: Counter::default(),
            completion: Counter::default(),
        };
        Self {
            home,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Reserved to live. Of a slot that is gone already, the object is dropped.
    pub(super) fn commit(&self, object: O) {
        let mut state = lock(&self.state);
        if matches!(state.phase, Phase::Reserved) {
            state.phase = Phase::Live(object);
            drop(state);
            self.changed.notify_all();
        } else {
            drop(state);
            drop(object);
        }
    }

    /// The owner of the object is going away. False if a destroy has taken over.
    pub(super) fn abandon(&self) -> bool {
        if !self.home.is_ours() {
            return false;
        }
        let mut state = lock(&self.state);
        if !matches!(state.phase, Phase::Reserved | Phase::Live(_)) {
            return false;
        }
        let before = mem::replace(&mut state.phase, Phase::Gone);
        drop(state);
        if !planted(Fault::SilentAbort) {
            self.changed.notify_all();
        }
        drop(before);
        true
    }

    /// Live to closing, in one step with the refusal. Gives out the object.
    pub(super) fn begin_close(&self, policy: ClosePolicy) -> Result<O, Refused>
    where
        O: Clone,
    {
        let mut state = lock(&self.state);
        if !matches!(state.phase, Phase::Live(_)) {
            return Err(Refused::Destroyed);
        }
        let outstanding = state.outstanding();
        if policy == ClosePolicy::IfNoneOutstanding && outstanding != 0 {
            return Err(Refused::Outstanding(outstanding));
        }
        if planted(Fault::RefusalApartFromMark) {
            drop(state);
            state = lock(&self.state);
        }
        match mem::replace(&mut state.phase, Phase::Closing) {
            Phase::Live(object) => {
                if planted(Fault::NoClosingMark) {
                    state.phase = Phase::Live(object.clone());
                }
                Ok(object)
            }
            other => {
                state.phase = other;
                Err(Refused::Destroyed)
            }
        }
    }

    /// Closing to live again.
    pub(super) fn reopen(&self, object: O) {
        lock(&self.state).phase = Phase::Live(object);
    }

    /// Closing to gone.
    pub(super) fn close(&self) {
        let before = mem::replace(&mut lock(&self.state).phase, Phase::Gone);
        drop(before);
    }

    /// What a record of this slot leads to. Without an object it has been acked.
    pub(super) fn look_up(this: Arc<Self>, sort: Sort) -> Option<(O, Ack<O>)>
    where
        O: Clone,
    {
        let mut state = lock(&this.state);
        while matches!(state.phase, Phase::Reserved) && !planted(Fault::NoWaitForCreate) {
            state = wait(&this.changed, state);
        }
        if let Phase::Live(object) = &state.phase {
            let object = object.clone();
            state.counter(sort).deliver();
            drop(state);
            let ack = Ack {
                slot: this,
                sort,
                count: 1,
            };
            return Some((object, ack));
        }
        state.ack_on_behalf(sort);
        drop(state);
        this.changed.notify_all();
        None
    }

    /// Acks a record that nobody will look up. Waits for nothing.
    pub(super) fn ack_on_behalf(&self, sort: Sort) {
        lock(&self.state).ack_on_behalf(sort);
        self.changed.notify_all();
    }

    fn ack(&self, sort: Sort, count: u32) {
        if !self.home.is_ours() {
            return;
        }
        lock(&self.state).counter(sort).ack(count);
        if !planted(Fault::SilentAck) {
            self.changed.notify_all();
        }
    }

    /// In a forked child: nothing, since the lock may be held by a thread that is not there.
    pub(super) fn counts(&self, sort: Sort) -> Counts {
        if !self.home.is_ours() {
            return Counts::default();
        }
        lock(&self.state).counter(sort).counts()
    }

    /// Waits until as many were acked as the kernel says were read, or, where it could not say, as
    /// were read here. With a deadline: how many are missing when it has passed.
    pub(super) fn settle(&self, reported: Reported, deadline: Option<Instant>) -> Result<(), u32> {
        let mut state = lock(&self.state);
        loop {
            let missing = state.missing(reported);
            if missing == 0 {
                return Ok(());
            }
            let Some(deadline) = deadline else {
                state = wait(&self.changed, state);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return Err(missing);
            }
            state = wait_timeout(&self.changed, state, left);
        }
    }

    #[cfg(all(test, not(uverbs_loom)))]
    pub(super) fn wrap_counts_soon(&self) {
        let mut state = lock(&self.state);
        state.asynchronous = Counter::near_the_end();
        state.completion = Counter::near_the_end();
    }
}

/// The ack that delivered events of one object owe: one, unless others have been added. Paid when
/// this is dropped, once, whatever happens to the object meanwhile.
pub(crate) struct Ack<O> {
    slot: Arc<Slot<O>>,
    sort: Sort,
    count: u32,
}

impl<O> Ack<O> {
    /// Takes over what another one owes, to be paid in one step. Gives it back if it is owed for
    /// another object, or if it would be more than can be counted.
    pub(crate) fn absorb(&mut self, mut other: Self) -> Result<(), Self> {
        let is_same = Arc::ptr_eq(&self.slot, &other.slot) && self.sort == other.sort;
        match self.count.checked_add(other.count) {
            Some(sum) if is_same => {
                (self.count, other.count) = (sum, 0);
                Ok(())
            }
            _ => Err(other),
        }
    }

    /// How many events it is for.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }
}

impl<O> Drop for Ack<O> {
    fn drop(&mut self) {
        if self.count != 0 {
            self.slot.ack(self.sort, self.count);
        }
    }
}

impl<O> fmt::Debug for Ack<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ack").finish_non_exhaustive()
    }
}

/// A live handle and the ack owed for having it. The ack is paid first: whoever waits for it must
/// not be kept waiting by what the last handle has to clear away, least of all when it is the same
/// thread.
pub(crate) struct Held<L, O> {
    // Dropped after the body of `drop`, in this order.
    live: L,
    ack: Option<Ack<O>>,
}

impl<L, O> Held<L, O> {
    pub(crate) const fn new(live: L, ack: Option<Ack<O>>) -> Self {
        Self { live, ack }
    }

    pub(crate) const fn live(&self) -> &L {
        &self.live
    }

    /// Lets go of the handle and keeps the debt. Nothing waits for an ack when a last handle goes.
    pub(crate) fn into_ack(mut self) -> Option<Ack<O>> {
        self.ack.take()
    }
}

impl<L, O> Drop for Held<L, O> {
    fn drop(&mut self) {
        if !planted(Fault::ReleaseBeforeAck) {
            drop(self.ack.take());
        }
    }
}

impl<L: fmt::Debug, O> fmt::Debug for Held<L, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.live.fmt(f)
    }
}

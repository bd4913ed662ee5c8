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
use super::sync::{Alarm, Arc, Fault, Lock, planted};

/// What an object has in the ledger, shared with the events that are out.
pub(super) struct Slot<O> {
    home: Mark,
    state: Lock<State<O>>,
    /// Rung at each ack and when the create settles, if somebody waits for it.
    changed: Alarm,
}

struct State<O> {
    phase: Phase<O>,
    asynchronous: Counter,
    completion: Counter,
    /// How many wait for `changed`: waking costs a system call even where nobody sleeps.
    sleepers: u32,
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
            sleepers: 0,
        };
        Self {
            home,
            state: Lock::new(state),
            changed: Alarm::new(),
        }
    }

    /// Reserved to live. Of a slot that is gone already, the object is dropped.
    pub(super) fn commit(&self, object: O) {
        let refused = self.change(|state| {
            if matches!(state.phase, Phase::Reserved) {
                state.phase = Phase::Live(object);
                None
            } else {
                Some(object)
            }
        });
        drop(refused);
    }

    /// The owner of the object is going away. False if a destroy has taken over.
    pub(super) fn abandon(&self) -> bool {
        if !self.home.is_ours() {
            return false;
        }
        let abandon = |state: &mut State<O>| match state.phase {
            Phase::Reserved | Phase::Live(_) => Some(mem::replace(&mut state.phase, Phase::Gone)),
            Phase::Closing | Phase::Gone => None,
        };
        let before = if planted(Fault::SilentAbort) {
            self.state.with(abandon)
        } else {
            self.change(abandon)
        };
        before.is_some()
    }

    /// Live to closing, in one step with the refusal. Gives out the object.
    pub(super) fn begin_close(&self, policy: ClosePolicy) -> Result<O, Refused>
    where
        O: Clone,
    {
        let judge = |state: &mut State<O>| {
            if !matches!(state.phase, Phase::Live(_)) {
                return Err(Refused::Destroyed);
            }
            match state.outstanding() {
                0 => Ok(()),
                _ if policy == ClosePolicy::Always => Ok(()),
                outstanding => Err(Refused::Outstanding(outstanding)),
            }
        };
        if planted(Fault::RefusalApartFromMark) {
            self.state.with(judge)?;
        }
        self.state.with(|state| {
            if !planted(Fault::RefusalApartFromMark) {
                judge(state)?;
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
        })
    }

    /// Closing to live again.
    pub(super) fn reopen(&self, object: O) {
        let before = self
            .state
            .with(|state| mem::replace(&mut state.phase, Phase::Live(object)));
        drop(before);
    }

    /// Closing to gone.
    pub(super) fn close(&self) {
        let before = self
            .state
            .with(|state| mem::replace(&mut state.phase, Phase::Gone));
        drop(before);
    }

    /// What a record of this slot leads to. Without an object it has been acked.
    ///
    /// `reach` makes of the object what its event is to hold. It must not drop a handle of the object,
    /// nor wait: the slot is locked.
    #[inline(always)]
    pub(super) fn look_up<T>(
        this: Arc<Self>,
        sort: Sort,
        reach: impl FnOnce(&O) -> T,
    ) -> Option<(T, Ack<O>)> {
        let found = this.state.with(|state| match &state.phase {
            Phase::Live(object) => {
                let made = reach(object);
                state.counter(sort).deliver();
                Ok(made)
            }
            _ => Err(reach),
        });
        match found {
            Ok(made) => {
                let count = 1;
                let slot = this;
                Some((made, Ack { slot, sort, count }))
            }
            Err(reach) => Self::look_up_later(this, sort, reach),
        }
    }

    /// The rest of [`look_up`](Self::look_up): there was no object, perhaps not yet.
    #[cold]
    fn look_up_later<T>(
        this: Arc<Self>,
        sort: Sort,
        reach: impl FnOnce(&O) -> T,
    ) -> Option<(T, Ack<O>)> {
        if !planted(Fault::NoWaitForCreate) {
            this.sleep_while(None, |state| matches!(state.phase, Phase::Reserved));
        }
        let made = this.change(|state| {
            if let Phase::Live(object) = &state.phase {
                let made = reach(object);
                state.counter(sort).deliver();
                return Some(made);
            }
            state.ack_on_behalf(sort);
            None
        })?;
        let ack = Ack {
            slot: this,
            sort,
            count: 1,
        };
        Some((made, ack))
    }

    /// Acks a record that nobody will look up. Waits for nothing.
    pub(super) fn ack_on_behalf(&self, sort: Sort) {
        self.change(|state| state.ack_on_behalf(sort));
    }

    fn ack(&self, sort: Sort, count: u32) {
        if !self.home.is_ours() {
            return;
        }
        let ack = |state: &mut State<O>| state.counter(sort).ack(count);
        if planted(Fault::SilentAck) {
            self.state.with(ack);
        } else {
            self.change(ack);
        }
    }

    /// Changes the state, and wakes those who wait for that.
    #[inline]
    fn change<R>(&self, change: impl FnOnce(&mut State<O>) -> R) -> R {
        let (result, sleepers) = self.state.with(|state| (change(state), state.sleepers));
        // Whoever counts itself among them later has seen the change: both happen under the lock.
        if sleepers != 0 {
            self.changed.ring();
        }
        result
    }

    /// Sleeps for as long as `waits` says so of the state. With a deadline: false if it has passed.
    fn sleep_while(
        &self,
        deadline: Option<Instant>,
        mut waits: impl FnMut(&State<O>) -> bool,
    ) -> bool {
        let mut counted = 0;
        loop {
            let since = self.state.with(|state| {
                state.sleepers -= mem::take(&mut counted);
                waits(state).then(|| {
                    counted = 1;
                    state.sleepers += counted;
                    self.changed.listen()
                })
            });
            let Some(since) = since else { return true };
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                self.state.with(|state| state.sleepers -= counted);
                return false;
            }
            self.changed.sleep(since, left);
        }
    }

    /// In a forked child: nothing, since the lock may be held by a thread that is not there.
    pub(super) fn counts(&self, sort: Sort) -> Counts {
        if !self.home.is_ours() {
            return Counts::default();
        }
        self.state.with(|state| state.counter(sort).counts())
    }

    /// Waits until as many were acked as the kernel says were read, or, where it could not say, as
    /// were read here. With a deadline: how many are missing when it has passed.
    pub(super) fn settle(&self, reported: Reported, deadline: Option<Instant>) -> Result<(), u32> {
        let mut missing = 0;
        let is_settled = self.sleep_while(deadline, |state| {
            missing = state.missing(reported);
            missing != 0
        });
        if is_settled { Ok(()) } else { Err(missing) }
    }

    #[cfg(all(test, not(uverbs_loom)))]
    pub(super) fn wrap_counts_soon(&self) {
        self.state.with(|state| {
            state.asynchronous = Counter::near_the_end();
            state.completion = Counter::near_the_end();
        });
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
    #[inline]
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
    #[inline]
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

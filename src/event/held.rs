//! What is owed for an event that was handed over, and the handle that it is owed for.
//!
//! An ack is paid by dropping, once; there is no way to pay one twice, or for another object.

use std::fmt;

use super::counter::Sort;
use super::slot::Slot;
use super::sync::Arc;
#[cfg(all(test, uverbs_loom))]
use super::sync::{Fault, planted};

/// The ack that delivered events of one object owe: one, unless others have been added. Paid when
/// this is dropped, once, whatever happens to the object meanwhile.
pub(crate) struct Ack {
    slot: Arc<Slot>,
    sort: Sort,
    count: u32,
}

impl Ack {
    /// Of an event that was counted as delivered, for which nobody else owes one.
    pub(super) const fn new(slot: Arc<Slot>, sort: Sort) -> Self {
        let count = 1;
        Self { slot, sort, count }
    }

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

impl Drop for Ack {
    fn drop(&mut self) {
        if self.count != 0 {
            self.slot.ack(self.sort, self.count);
        }
    }
}

impl fmt::Debug for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ack").finish_non_exhaustive()
    }
}

/// What one ack of one sort is owed for.
pub(crate) struct Debt<'a> {
    slot: &'a Arc<Slot>,
    sort: Sort,
}

impl<'a> Debt<'a> {
    #[inline(always)]
    pub(super) const fn new(slot: &'a Arc<Slot>, sort: Sort) -> Self {
        Self { slot, sort }
    }

    /// Takes it over from the handle, which must owe it no more.
    pub(crate) fn take_over(&self) -> Ack {
        Ack::new(Arc::clone(self.slot), self.sort)
    }
}

/// What an event holds: a live handle, if it is about an object.
pub(crate) trait Owing {
    /// What is owed for having it, as long as it is held. The object itself leads there.
    fn debt(&self) -> Option<Debt<'_>>;
}

/// A live handle and the ack owed for having it. The ack is paid first: whoever waits for it must
/// not be kept waiting by what the last handle has to clear away, least of all when it is the same
/// thread.
pub(crate) struct Held<L: Owing> {
    // Dropped after the body of `drop`.
    live: L,
    /// Paid after the handle was let go of, where a model wants that.
    #[cfg(all(test, uverbs_loom))]
    late: Option<Ack>,
}

impl<L: Owing> Held<L> {
    #[inline(always)]
    pub(crate) const fn new(live: L) -> Self {
        Self {
            live,
            #[cfg(all(test, uverbs_loom))]
            late: None,
        }
    }

    #[inline(always)]
    pub(crate) const fn live(&self) -> &L {
        &self.live
    }

    pub(crate) const fn live_mut(&mut self) -> &mut L {
        &mut self.live
    }
}

impl<L: Owing> Drop for Held<L> {
    #[inline(always)]
    fn drop(&mut self) {
        let Some(debt) = self.live.debt() else { return };
        #[cfg(all(test, uverbs_loom))]
        if planted(Fault::ReleaseBeforeAck) {
            self.late = Some(debt.take_over());
            return;
        }
        debt.slot.ack(debt.sort, 1);
    }
}

impl<L: Owing + fmt::Debug> fmt::Debug for Held<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.live.fmt(f)
    }
}

//! Locks as the ledger uses them, the gate of an object and the bell of a queue: the standard
//! library's, or loom's when they are modelled.
//!
//! A poisoned lock is taken as it is: nothing of ours panics while it holds one half-changed, and
//! a panic elsewhere must not keep an event from being acked.

#[cfg(all(test, uverbs_loom))]
use loom::sync as source;
#[cfg(not(all(test, uverbs_loom)))]
use std::sync as source;

use std::sync::PoisonError;
use std::time::Duration;

pub(crate) use self::source::atomic::{AtomicBool, Ordering};
pub(crate) use self::source::{
    Arc, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// Takes a lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification, at most so long. Whether there was one is for the caller to see.
pub(super) fn wait_timeout<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
) -> MutexGuard<'a, T> {
    condvar
        .wait_timeout(guard, timeout)
        .unwrap_or_else(PoisonError::into_inner)
        .0
}

/// A fault that a model puts in on purpose, to see that it would be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An event lets go of its live handle before it acks.
    ReleaseBeforeAck,
    /// A destroy does not hide the object from look-ups.
    NoClosingMark,
    /// A refusal to destroy, and the mark, are two steps.
    RefusalApartFromMark,
    /// A look-up does not wait for the create that is under way.
    NoWaitForCreate,
    /// A reader that comes too late does not ack for the object.
    NoAckOnBehalf,
    /// An ack wakes nobody.
    SilentAck,
    /// A record lost between read and look-up is not acked.
    NoAckOnPanic,
    /// An index is used again under the same generation.
    SameGeneration,
    /// A failed create wakes nobody.
    SilentAbort,
    /// Who waits for a queue can be woken by its destroy only from after the arming on.
    #[cfg(all(test, uverbs_loom))]
    HangAfterArming,
    /// A destroy wakes those who wait before it is alone at the gate.
    #[cfg(all(test, uverbs_loom))]
    RingBeforeClosing,
}

/// Whether a model has put in this fault. Outside of the models never, and at no cost.
#[cfg(not(all(test, uverbs_loom)))]
#[inline(always)]
pub(crate) const fn planted(_: Fault) -> bool {
    false
}

#[cfg(all(test, uverbs_loom))]
pub(crate) use super::model::planted;

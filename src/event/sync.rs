//! Locks as the ledger uses them: the standard library's, or loom's when the ledger is modelled.
//!
//! A poisoned lock is taken as it is: nothing of ours panics while it holds one half-changed, and
//! a panic elsewhere must not keep an event from being acked.

#[cfg(all(test, uverbs_loom))]
use loom::sync as source;
#[cfg(not(all(test, uverbs_loom)))]
use std::sync as source;

use std::sync::PoisonError;
use std::time::Duration;

pub(super) use self::source::{Arc, Condvar, Mutex, MutexGuard};

/// Takes a lock.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification.
pub(super) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
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
pub(super) enum Fault {
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
}

/// Whether a model has put in this fault. Outside of the models never, and at no cost.
#[cfg(not(all(test, uverbs_loom)))]
#[inline(always)]
pub(super) const fn planted(_: Fault) -> bool {
    false
}

#[cfg(all(test, uverbs_loom))]
pub(super) use super::model::planted;

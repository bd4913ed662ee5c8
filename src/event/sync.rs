//! Locks as the ledger uses them, the gate of an object and the bell of a queue: the standard
//! library's, or loom's when they are modelled.
//!
//! No account is kept of panics: nothing of ours panics while it holds a lock half-changed, and
//! a panic elsewhere must not keep an event from being acked.

#[cfg(all(test, uverbs_loom))]
use loom::sync as source;
#[cfg(not(all(test, uverbs_loom)))]
use std::sync as source;

use std::sync::PoisonError;
use std::time::Duration;

pub(crate) use self::source::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
pub(crate) use self::source::{
    Arc, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// A lock around some tens of instructions.
#[cfg(not(all(test, uverbs_loom)))]
pub(super) use uverbs_providers::lock::Lock;

/// The same, as loom sees it.
#[cfg(all(test, uverbs_loom))]
pub(super) struct Lock<T>(Mutex<T>);

#[cfg(all(test, uverbs_loom))]
impl<T> Lock<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(super) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        work(&mut lock(&self.0))
    }

    pub(super) fn lock(&self) -> Guard<'_, T> {
        Guard(lock(&self.0))
    }
}

/// Its value, as loom sees it.
#[cfg(all(test, uverbs_loom))]
pub(super) struct Guard<'l, T>(MutexGuard<'l, T>);

#[cfg(all(test, uverbs_loom))]
impl<T> Guard<'_, T> {
    pub(super) fn value(&mut self) -> &mut T {
        &mut self.0
    }
}

/// Takes a lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Where threads sleep until something has changed that is under a [`Lock`]. Whoever means to sleep
/// [listens](Self::listen) while it holds the lock; whoever has changed something rings without it.
pub(super) struct Alarm {
    rung: Mutex<u64>,
    changed: Condvar,
}

impl Alarm {
    pub(super) fn new() -> Self {
        Self {
            rung: Mutex::new(0),
            changed: Condvar::new(),
        }
    }

    /// How often it has been rung; to be given to [`sleep`](Self::sleep).
    pub(super) fn listen(&self) -> u64 {
        *lock(&self.rung)
    }

    /// Until it has been rung since, or, if there is a limit, at most so long: the caller looks.
    pub(super) fn sleep(&self, since: u64, limit: Option<Duration>) {
        let mut rung = lock(&self.rung);
        while *rung == since {
            if let Some(limit) = limit {
                let woken = self.changed.wait_timeout(rung, limit);
                drop(woken.unwrap_or_else(PoisonError::into_inner));
                return;
            }
            rung = wait(&self.changed, rung);
        }
    }

    /// Wakes everyone who has listened.
    #[cold]
    pub(super) fn ring(&self) {
        let mut rung = lock(&self.rung);
        *rung = rung.wrapping_add(1);
        drop(rung);
        self.changed.notify_all();
    }
}

/// A fault that a model puts in on purpose, to see that it would be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An event lets go of its live handle before it acks.
    #[cfg(all(test, uverbs_loom))]
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
    /// Whether somebody waits for an ack is asked of the other sort's count.
    AsksOfOneSort,
    /// A record lost between read and look-up is not acked.
    NoAckOnPanic,
    /// An index is used again under the same generation.
    SameGeneration,
    /// A failed create wakes nobody.
    SilentAbort,
    /// Whoever waits for acks is counted only after it has looked whether they are there.
    CountAfterLook,
    /// An ack does not order what was done with the object before what comes after the destroy.
    RelaxedAck,
    /// Who waits for a queue can be woken by its destroy only from after the arming on.
    #[cfg(all(test, uverbs_loom))]
    HangAfterArming,
    /// A destroy wakes those who wait before it is alone at the gate.
    #[cfg(all(test, uverbs_loom))]
    RingBeforeClosing,
    /// Who takes an event does not arm the queue again for the others who wait.
    NoArmingForOthers,
    /// Who leaves completions that no event tells of does not say so to the others.
    NoNudge,
    /// Who waits is counted only when an event may have been raised for it.
    CountAfterArming,
}

/// Whether a model has put in this fault. Outside of the models never, and at no cost.
#[cfg(not(all(test, uverbs_loom)))]
#[inline(always)]
pub(crate) const fn planted(_: Fault) -> bool {
    false
}

#[cfg(all(test, uverbs_loom))]
pub(crate) use super::model::planted;

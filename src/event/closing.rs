//! An explicit destroy, step by step: hide the object, let the kernel destroy it, wait for what is
//! still held.
//!
//! Ground truth: `ibv_destroy_qp(3)` and its siblings, which return only when every affiliated
//! event that was read has been acked. No step may hold a lock of the ledger over the next.

use std::fmt;
use std::time::{Duration, Instant};

use super::counter::Reported;
use super::ledger::Registration;

/// A destroy that has begun: the object is hidden, the kernel is to be asked.
///
/// Dropped with no outcome (a panic on the way), the object stays hidden for good: it may or may
/// not exist in the kernel, and its number there may be another's by now.
#[must_use = "say how the kernel's destroy went"]
pub(crate) struct Closing<'a, O> {
    registration: &'a Registration<O>,
    /// What the token led to; `None` once the outcome is known.
    object: Option<O>,
}

impl<'a, O> Closing<'a, O> {
    pub(super) const fn new(registration: &'a Registration<O>, object: O) -> Self {
        Self {
            registration,
            object: Some(object),
        }
    }

    /// The kernel refused: the object is there as before. What was read of it in between was told
    /// as of an object gone.
    pub(crate) fn reopen(mut self) {
        if let Some(object) = self.object.take() {
            self.registration.reopen(object);
        }
    }

    /// The kernel has destroyed the object, of which it says that so many events were read.
    pub(crate) fn closed(self, reported: impl Into<Reported>) -> Settling<'a, O> {
        self.settle(reported.into())
    }

    /// The object is gone, and the kernel could not say how many of its events were read. Those
    /// that this process has read are waited for.
    pub(crate) fn closed_unknown(self) -> Settling<'a, O> {
        self.settle(Reported::default())
    }

    fn settle(mut self, reported: Reported) -> Settling<'a, O> {
        drop(self.object.take());
        Settling {
            registration: self.registration,
            reported,
        }
    }
}

impl<O> Drop for Closing<'_, O> {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            self.registration.end();
            drop(object);
        }
    }
}

impl<O> fmt::Debug for Closing<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Closing")
            .field(&self.registration.token())
            .finish()
    }
}

/// An object that the kernel has destroyed and that still has events out.
///
/// As long as this exists, a reader that comes late with a record of the object acks it on the
/// object's behalf. Dropped, the token is retired; acks that come later go to the slot, where
/// nobody waits for them.
#[must_use = "wait for the acks, or say that you will not"]
pub(crate) struct Settling<'a, O> {
    registration: &'a Registration<O>,
    reported: Reported,
}

impl<O> Settling<'_, O> {
    /// Waits until every event that was read of the object is acked: for ever, if one is held by
    /// the calling thread, was forgotten, or was read by another process.
    pub(crate) fn wait(self) {
        // Without a deadline it returns only when nothing is missing.
        let _: Result<(), u32> = self.registration.slot().settle(self.reported, None);
    }

    /// The same, for at most `timeout`. May be called again.
    ///
    /// # Errors
    /// How many events are still not acked.
    pub(crate) fn wait_timeout(&self, timeout: Duration) -> Result<(), u32> {
        // A deadline too far to be reckoned is none.
        let deadline = Instant::now().checked_add(timeout);
        self.registration.slot().settle(self.reported, deadline)
    }
}

impl<O> Drop for Settling<'_, O> {
    fn drop(&mut self) {
        self.registration.end();
    }
}

impl<O> fmt::Debug for Settling<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settling")
            .field("token", &self.registration.token())
            .field("reported", &self.reported)
            .finish_non_exhaustive()
    }
}

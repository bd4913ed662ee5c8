//! Wakes those who wait for one completion queue where the kernel does not: all of them when it is
//! destroyed, and the next one when somebody leaves completions that no event will tell of.
//!
//! The order that matters: who waits hangs the bell up *before* arming the queue, which passes the
//! queue's gate; a destroy rings *after* it has closed that gate for good. So either the arming finds
//! the queue destroyed, or the destroy finds the bell. It must never be rung for a destroy that was
//! refused, since it rings for good.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno as Nix;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::event::EventError;
use crate::event::sync::{Arc, AtomicBool, Mutex, Ordering, lock};

/// Has a descriptor once somebody has had to wait, and costs nothing before.
#[derive(Debug, Default)]
pub(crate) struct Bell(Mutex<Option<Rope>>);

/// What becomes readable when the bell is rung, for good, or when one of those who wait is nudged, until
/// one of them has taken that.
#[derive(Clone, Debug)]
pub(crate) struct Rope(Arc<Hung>);

#[derive(Debug)]
struct Hung {
    fd: EventFd,
    is_rung: AtomicBool,
    /// Whether anybody was ever nudged. Before that, nobody needs to ask.
    has_nudged: AtomicBool,
    /// In place of the descriptor, which loom cannot wait for.
    #[cfg(all(test, uverbs_loom))]
    model: super::model::Readiness,
}

impl Bell {
    /// What to watch while waiting.
    ///
    /// # Errors
    /// If there is no file descriptor left.
    pub(crate) fn hang(&self) -> Result<Rope, EventError> {
        let mut hung = lock(&self.0);
        if let Some(rope) = &*hung {
            return Ok(rope.clone());
        }
        let rope = Rope(Arc::new(Hung {
            fd: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            is_rung: AtomicBool::new(false),
            has_nudged: AtomicBool::new(false),
            #[cfg(all(test, uverbs_loom))]
            model: super::model::Readiness::default(),
        }));
        Ok(hung.insert(rope).clone())
    }

    /// Wakes those who wait now, and whoever comes later.
    pub(crate) fn ring(&self) {
        if let Some(Rope(hung)) = &*lock(&self.0) {
            // Release, before the wake: pairs with the Acquire load in `is_rung`, so that whoever is
            // woken finds the reason.
            hung.is_rung.store(true, Ordering::Release);
            // The counter cannot be full: that takes 2^64 nudges.
            let _: Result<usize, Nix> = hung.fd.write(1);
            #[cfg(all(test, uverbs_loom))]
            hung.model.begin();
        }
    }

    /// Wakes one of those who wait, to poll.
    pub(crate) fn nudge(&self) {
        if let Some(Rope(hung)) = &*lock(&self.0) {
            // Release, before the wake: pairs with the Acquire load in `take_nudge`.
            hung.has_nudged.store(true, Ordering::Release);
            // As above.
            let _: Result<usize, Nix> = hung.fd.write(1);
            #[cfg(all(test, uverbs_loom))]
            hung.model.begin();
        }
    }

    /// What a model of the channel does when an event has come.
    #[cfg(all(test, uverbs_loom))]
    pub(super) fn event_came(&self) {
        if let Some(Rope(hung)) = &*lock(&self.0) {
            hung.model.begin();
        }
    }
}

impl Rope {
    #[cfg(all(test, uverbs_loom))]
    pub(super) fn model(&self) -> &super::model::Readiness {
        &self.0.model
    }

    /// Whether the queue has been destroyed since the bell was hung up.
    pub(crate) fn is_rung(&self) -> bool {
        // Acquire: pairs with the Release store in `ring`.
        self.0.is_rung.load(Ordering::Acquire)
    }

    /// Whether it is for the caller to poll, and for nobody else.
    pub(crate) fn take_nudge(&self) -> bool {
        // Acquire: pairs with the Release store in `nudge`.
        if !self.0.has_nudged.load(Ordering::Acquire) || self.0.fd.read().is_err() {
            return false;
        }
        if self.is_rung() {
            // It may be the ring that was taken, which is for everyone.
            let _: Result<usize, Nix> = self.0.fd.write(1);
        }
        true
    }
}

/// Whether both are of the same queue.
impl PartialEq for Rope {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl AsFd for Rope {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

#[cfg(all(test, not(uverbs_loom)))]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::Bell;

    #[test]
    fn a_nudge_is_for_one_and_the_ring_for_all() {
        let bell = Bell::default();
        bell.nudge();
        let (one, other) = (bell.hang().unwrap(), bell.hang().unwrap());
        assert!(!one.take_nudge(), "nobody was there");
        bell.nudge();
        assert!(one.take_nudge());
        assert!(!other.take_nudge());
        // Whoever takes a nudge together with the ring leaves that readable.
        bell.nudge();
        bell.ring();
        for rope in [&one, &other, &one] {
            assert!(rope.take_nudge() && rope.is_rung());
        }
    }
}

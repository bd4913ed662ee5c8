//! Wakes those who wait for one completion queue when it is destroyed, of which the kernel tells
//! nobody.
//!
//! The order that matters: who waits hangs the bell up *before* arming the queue, which passes the
//! queue's gate; a destroy rings *after* it has closed that gate for good. So either the arming finds
//! the queue destroyed, or the destroy finds the bell. It must never be rung for a destroy that was
//! refused, since it rings for good.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use nix::errno::Errno as Nix;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::event::EventError;

/// Has a descriptor once somebody has had to wait, and costs nothing before.
#[derive(Debug, Default)]
pub(crate) struct Bell(OnceLock<Rope>);

/// What becomes readable, for good, when the bell is rung.
#[derive(Clone, Debug)]
pub(crate) struct Rope(Arc<Hung>);

#[derive(Debug)]
struct Hung {
    fd: EventFd,
    is_rung: AtomicBool,
}

impl Bell {
    /// What to watch while waiting.
    ///
    /// # Errors
    /// If there is no file descriptor left.
    pub(crate) fn hang(&self) -> Result<&Rope, EventError> {
        if let Some(rope) = self.0.get() {
            return Ok(rope);
        }
        let made = Rope(Arc::new(Hung {
            fd: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            is_rung: AtomicBool::new(false),
        }));
        // Of two who come at once one is first, and the other's is closed again.
        Ok(self.0.get_or_init(|| made))
    }

    /// Wakes those who wait now, and whoever comes later.
    pub(crate) fn ring(&self) {
        if let Some(Rope(hung)) = self.0.get() {
            // Release, before the wake: pairs with the Acquire load in `is_rung`, so that whoever is
            // woken finds the reason.
            hung.is_rung.store(true, Ordering::Release);
            // The counter cannot be full: a queue is destroyed once.
            let _: Result<usize, Nix> = hung.fd.write(1);
        }
    }
}

impl Rope {
    /// Whether the queue has been destroyed since the bell was hung up.
    pub(crate) fn is_rung(&self) -> bool {
        // Acquire: pairs with the Release store in `ring`.
        self.0.is_rung.load(Ordering::Acquire)
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

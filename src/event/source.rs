//! One event file of the kernel, with what its readers share: the state that ends them, and the
//! means to wake them.
//!
//! Ground truth: `ib_uverbs_event_read` and `ib_uverbs_event_poll`. The kernel ends a reader
//! neither when the device is removed nor when the command file is closed, so an eventfd of ours
//! does. It must never be read: once written it wakes every reader, present and future, and each
//! finds the reason in a flag that is never taken back. It must never keep the command file open.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno as Nix;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use uverbs_abi::session::Status;

use super::ledger::Ledger;
use super::record::{RECORD_LEN, RawEvent};
use super::subject::WeakObject;
use super::{AsyncEvent, AsyncEventKind, Class, EventError, Subject};

/// An event file, as its context and its readers share it.
#[derive(Debug)]
pub(crate) struct EventSource {
    file: OwnedFd,
    wake: EventFd,
    ledger: Ledger<WeakObject>,
    status: Arc<Status>,
    stopped: AtomicBool,
    closed: AtomicBool,
    gone: AtomicBool,
}

impl EventSource {
    /// Takes over an event file, which is non-blocking from here on, and starts a ledger for the
    /// objects whose events come through it.
    ///
    /// # Errors
    /// If there is no file descriptor left for waking the readers.
    pub(crate) fn new(file: OwnedFd, status: Arc<Status>) -> io::Result<Self> {
        let flags = OFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GETFL)?);
        fcntl(&file, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self {
            file,
            wake,
            ledger: Ledger::new(),
            status,
            stopped: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        })
    }

    /// The ledger for objects whose events come through this file.
    pub(crate) const fn ledger(&self) -> &Ledger<WeakObject> {
        &self.ledger
    }

    /// The event file, to be named when an object is created.
    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Readable, for good, once the readers are to end.
    pub(super) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The context is going away: ends all readers once they have read what is queued.
    pub(crate) fn close(&self) {
        self.end(&self.closed);
    }

    /// Ends all readers at once.
    pub(super) fn stop(&self) {
        self.end(&self.stopped);
    }

    /// Says so to everyone who asks, and wakes everyone who waits.
    fn end(&self, flag: &AtomicBool) {
        // The eventfd is the parent's, too: waking its readers is not for a child to do.
        if !self.status.is_ours() {
            return;
        }
        // Release, before the wake: pairs with the Acquire loads in `stopped` and `ending`, so
        // that whoever is woken finds the reason.
        flag.store(true, Ordering::Release);
        // The counter cannot be full, which is the one way for this to fail: it takes 2^64 ends.
        let _: Result<usize, Nix> = self.wake.write(1);
    }

    /// The device is gone: for the readers, and for every call on the context.
    pub(super) fn device_gone(&self) {
        self.status.mark_gone();
        self.end(&self.gone);
    }

    /// What forbids to read at all.
    pub(super) fn check(&self) -> Result<(), EventError> {
        if !self.status.is_ours() {
            return Err(EventError::ForeignProcess);
        }
        // Acquire: pairs with the Release store in `end`.
        if self.stopped.load(Ordering::Acquire) {
            return Err(EventError::Stopped);
        }
        Ok(())
    }

    /// What awaits a reader that finds nothing more to read.
    pub(super) fn ending(&self) -> Option<EventError> {
        // Acquire: pairs with the Release store in `end`.
        if self.gone.load(Ordering::Acquire) {
            Some(EventError::DeviceGone)
        } else if self.closed.load(Ordering::Acquire) {
            Some(EventError::ContextClosed)
        } else {
            None
        }
    }

    /// Whether a call on the context has found the device gone. The event that says so to the
    /// readers follows.
    pub(super) fn is_doomed(&self) -> bool {
        self.status.is_gone()
    }

    /// Reads one event, if there is one.
    pub(super) fn read(&self) -> Result<Option<AsyncEvent>, EventError> {
        // Memory of our own, and large enough: the kernel takes the event off the queue, and
        // counts it, before it finds that it cannot store it.
        let mut bytes = [0; RECORD_LEN];
        let len = loop {
            match nix::unistd::read(&self.file, &mut bytes) {
                Ok(len) => break len,
                Err(Nix::EINTR) => {}
                Err(Nix::EAGAIN) => return Ok(None),
                Err(Nix::EIO) => {
                    self.device_gone();
                    return Err(EventError::DeviceGone);
                }
                Err(errno) => return Err(errno.into()),
            }
        };
        let record = RawEvent::parse(bytes.get(..len).unwrap_or_default())?;
        let unclaimed = self.ledger.unclaimed(record.element);
        let event = AsyncEvent::of(record, unclaimed);
        match (event.kind(), event.subject()) {
            (AsyncEventKind::DeviceFatal, Subject::Device) => self.device_gone(),
            // Whoever posts to a queue pair wants to know that its state may have changed.
            (kind, _) if kind.class() == Class::Qp => self.status.note_error(),
            _ => {}
        }
        Ok(Some(event))
    }

    /// Waits until there may be something to read, or the readers are being ended, or the time is
    /// up, or a signal came.
    pub(super) fn poll(&self, timeout: PollTimeout) -> Result<(), EventError> {
        let mut fds = [
            PollFd::new(self.file.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Nix::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

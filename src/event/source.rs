//! One queue of asynchronous events: an event file of the kernel, and the ledger of the objects
//! whose events come through it. All queues of a context share one ledger.
//!
//! Ground truth: `ib_uverbs_event_read`. It must never lose a record that was read.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno as Nix;
use uverbs_abi::session::Status;

use super::file::EventFile;
use super::ledger::Ledger;
use super::record::{RECORD_LEN, RawEvent};
use super::subject::WeakObject;
use super::{AsyncEvent, AsyncEventKind, Class, EventError};

/// An event file, as its context and its readers share it.
#[derive(Debug)]
pub(crate) struct EventSource {
    file: Arc<EventFile>,
    ledger: Ledger<WeakObject>,
}

impl EventSource {
    /// Takes over an event file, which is non-blocking from here on, and starts a ledger for the
    /// objects whose events come through it.
    ///
    /// # Errors
    /// If there is no file descriptor left for waking the readers.
    pub(crate) fn new(file: OwnedFd, status: Arc<Status>) -> io::Result<Self> {
        Ok(Self {
            file: EventFile::leader(file, status)?,
            ledger: Ledger::new(),
        })
    }

    /// Takes over another event file of the same context. Its queue shares the ledger, and ends when
    /// the context's own does.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn another(&self, file: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            file: self.file.follower(file)?,
            ledger: self.ledger.clone(),
        })
    }

    /// The ledger for objects whose events come through this file.
    pub(crate) const fn ledger(&self) -> &Ledger<WeakObject> {
        &self.ledger
    }

    /// The file, for waiting and for ending.
    pub(crate) const fn file(&self) -> &Arc<EventFile> {
        &self.file
    }

    /// The event file, to be named when an object is created.
    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        self.file.fd()
    }

    /// The context is going away: ends all readers of it once they have read what is queued.
    pub(crate) fn close(&self) {
        self.file.close();
    }

    /// Reads one event, if there is one.
    pub(super) fn read(&self) -> Result<Option<AsyncEvent>, EventError> {
        // Memory of our own, and large enough: the kernel takes the event off the queue, and
        // counts it, before it finds that it cannot store it.
        let mut bytes = [0; RECORD_LEN];
        let len = match self.file.read(&mut bytes) {
            Ok(Some(len)) => len,
            Ok(None) => return Ok(None),
            Err(errno) => return Err(self.refused(errno)),
        };
        let RawEvent { element, kind } = RawEvent::parse(bytes, len)?;
        let class = kind.class();
        if !class.is_object() {
            return Ok(Some(self.of_no_object(kind, element)));
        }
        if class == Class::Qp {
            // Whoever posts to a queue pair wants to know that its state may have changed.
            self.file.note_error();
        }
        let unclaimed = self.ledger.unclaimed(element);
        Ok(Some(AsyncEvent::of_object(kind, unclaimed)))
    }

    #[cold]
    fn refused(&self, errno: Nix) -> EventError {
        if errno == Nix::EIO {
            self.file.device_gone();
            return EventError::DeviceGone;
        }
        errno.into()
    }

    #[cold]
    fn of_no_object(&self, kind: AsyncEventKind, element: u64) -> AsyncEvent {
        let record = RawEvent { element, kind };
        if kind == AsyncEventKind::DeviceFatal && record.port().is_some() {
            self.file.device_gone();
        }
        AsyncEvent::of_no_object(record, self.ledger.unclaimed(element))
    }
}

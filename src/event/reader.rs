//! Reading asynchronous events: waiting, not waiting, waiting for so long, and being stopped.
//!
//! Ground truth: `ibv_get_async_event(3)`. It must never block in `read()`, where nothing could
//! wake it and another reader may have been faster; never lose or double an event because of a
//! signal; never spin.

use std::iter::FusedIterator;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use super::file::Until;
use super::source::EventSource;
use super::{AsyncEvent, EventError};

/// Reads the asynchronous events of one queue: the context's own
/// ([`Context::events`](crate::Context::events)), or one that was made for some objects
/// ([`Context::event_queue`](crate::Context::event_queue)).
///
/// Clones, and readers of the context's queue that are asked for anew, share the queue: each event
/// reaches exactly one of them, in no particular turn. Any number of threads may read at once. A
/// reader does not keep the context open; when that is closed, the readers read what is queued and
/// then end. So they do when the device is found to be gone, by DEVICE_FATAL or by a call that fails:
/// in the second case the event may come too late to be read.
///
/// Events about ports and the device come to every queue of a context, a copy to each.
///
/// Nothing orders events of different objects and ports among each other: take a port event as a
/// reason to query the port.
#[doc(alias = "ibv_get_async_event")]
#[derive(Clone, Debug)]
pub struct AsyncEvents {
    source: Arc<EventSource>,
}

impl AsyncEvents {
    pub(crate) const fn new(source: Arc<EventSource>) -> Self {
        Self { source }
    }

    pub(crate) fn source(&self) -> &EventSource {
        &self.source
    }

    /// Waits for the next event.
    ///
    /// If the event is about an object whose creation has not returned yet on another thread, it
    /// waits for that, too; [`next_timeout`](Self::next_timeout) and even
    /// [`try_next`](Self::try_next) do the same.
    ///
    /// # Errors
    /// [`EventError::Stopped`] after [`stop`](Self::stop); [`EventError::ContextClosed`] and
    /// [`EventError::DeviceGone`] when nothing is left to read and nothing will come;
    /// [`EventError::ForeignProcess`] in a forked child; [`EventError::BadRecord`] and
    /// [`EventError::Os`] if the kernel does what it never should.
    #[doc(alias = "ibv_get_async_event")]
    #[doc(alias = "wait")]
    #[allow(
        clippy::should_implement_trait,
        reason = "clones share the events, so it takes `&self`; `iter` gives the iterator"
    )]
    pub fn next(&self) -> Result<AsyncEvent, EventError> {
        loop {
            if let Some(event) = self.next_until(Until::Forever)? {
                return Ok(event);
            }
        }
    }

    /// Waits for the next event, at most for `timeout`, which is rounded up to whole milliseconds.
    /// `None` when the time is up.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    #[doc(alias = "wait_timeout")]
    pub fn next_timeout(&self, timeout: Duration) -> Result<Option<AsyncEvent>, EventError> {
        self.next_until(Until::after(timeout))
    }

    /// The next event, if there is one. For use with `poll(2)` or `epoll(7)`: call it until it
    /// gives `None`.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    #[inline]
    pub fn try_next(&self) -> Result<Option<AsyncEvent>, EventError> {
        // Asked before the read: what was queued when an end was announced is still read.
        if self.source.file().is_undisturbed() {
            return self.source.read();
        }
        self.next_until(Until::Now)
    }

    /// Ends this reader and all others of the same queue, those that are waiting as well, with [`EventError::Stopped`]. For good; what is queued stays unread.
    ///
    /// In a forked child it does nothing.
    pub fn stop(&self) {
        self.source.file().stop();
    }

    /// The events one after the other, each waited for.
    pub fn iter(&self) -> Incoming {
        Incoming {
            events: self.clone(),
            ended: false,
        }
    }

    /// A file descriptor that becomes readable, for good, when the readers are to end: they were
    /// stopped, the context is closed, or the device is gone. An event loop should watch it beside
    /// the one of [`as_fd`](AsFd::as_fd), which shows nothing of this, and then call
    /// [`try_next`](Self::try_next) until it gives an error. Do not read from it.
    #[must_use]
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.source.file().wake_fd()
    }

    fn next_until(&self, until: Until) -> Result<Option<AsyncEvent>, EventError> {
        let file = self.source.file();
        let (mut reads, mut waited) = (until.reads_first(file), false);
        loop {
            file.check()?;
            // Asked before the read: what was queued when the end was announced is still read.
            let ending = file.ending();
            if reads || ending.is_some() {
                if let Some(event) = self.source.read()? {
                    if !waited {
                        file.note_hit();
                    }
                    return Ok(Some(event));
                }
                if let Some(ending) = ending {
                    return Err(ending);
                }
            }
            match until.left() {
                Some(timeout) => {
                    file.poll(timeout, None)?;
                    waited = true;
                }
                None if !reads => {}
                None => return Ok(None),
            }
            reads = true;
        }
    }
}

/// Readable when an event may be there to be read.
impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.event_fd()
    }
}

/// Waits for one event after the other. Made by [`AsyncEvents::iter`].
///
/// Ends when the reader is stopped or the context closed; any other error is the last item.
#[derive(Debug)]
pub struct Incoming {
    events: AsyncEvents,
    ended: bool,
}

impl Iterator for Incoming {
    type Item = Result<AsyncEvent, EventError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.events.next();
        self.ended = next.is_err();
        match next {
            Err(EventError::Stopped | EventError::ContextClosed) => None,
            other => Some(other),
        }
    }
}

impl FusedIterator for Incoming {}

impl IntoIterator for AsyncEvents {
    type Item = Result<AsyncEvent, EventError>;
    type IntoIter = Incoming;

    fn into_iter(self) -> Incoming {
        Incoming {
            events: self,
            ended: false,
        }
    }
}

impl IntoIterator for &AsyncEvents {
    type Item = Result<AsyncEvent, EventError>;
    type IntoIter = Incoming;

    fn into_iter(self) -> Incoming {
        self.iter()
    }
}

//! Events as streams, for programs that run on tokio (feature `tokio`).
//!
//! ```
//! use uverbs::stream::CompletionStream;
//! use uverbs::Wc;
//! # use uverbs::{AccessFlags, ConnectOptions, PathOptions, Rc, RecvWr, SendWr};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let context = uverbs::fake::Fabric::new().add_device("rxe0").open()?;
//! let channel = context.create_completion_channel()?;
//! let cq = context.create_cq(16).channel(&channel, 0).build()?;
//! # let pd = context.alloc_pd()?;
//! # let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
//! # let here = qp.prepare(&PathOptions::default())?;
//! # qp.connect(&here, &here, &ConnectOptions::default())?;
//! # let room = pd.allocate(64, AccessFlags::LOCAL_WRITE)?;
//! # qp.post_recv(&[RecvWr::new(2, &[room.slice(..)?])])?;
//! # qp.post_send(&[SendWr::send(1, &[room.slice(..8)?]).signaled()])?;
//! let mut stream = CompletionStream::new(&channel)?;
//! let mut room = [Wc::default(); 16];
//! for completion in stream.wait(&cq, &mut room).await? {
//!     println!("{} is done", completion.ok()?.wr_id);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Whoever drops a future or a stream loses no event: one is taken from the kernel in the same step
//! in which it is handed over. Streams of one reader or channel share its events, as threads do.

// Readiness of the runtime is edge-triggered, and of an error alone it does not wake a reader (a
// completion channel shows its end in no other way). So the runtime watches an epoll instance of
// ours, which has the file and the eventfd in it, level-triggered: it is readable when either has
// anything to say.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use ::tokio::runtime::Handle;
use ::tokio::task::coop::poll_proceed;
use futures_core::Stream;
use futures_core::stream::FusedStream;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use uverbs_abi::Errno;
use uverbs_abi::sys::process::Mark;
use uverbs_providers::wc::Wc;

use crate::channel::{CompletionChannel, CompletionEvent, Rope, Step, WaitError, Waiter};
use crate::cq::CompletionQueue;
use crate::event::{AsyncEvent, AsyncEvents, EventError};

/// An epoll instance as the runtime wants it.
#[derive(Debug)]
struct Watched(Epoll);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.0.as_raw_fd()
    }
}

/// Becomes ready when there may be something to read, or the end of it.
#[derive(Debug)]
struct Ready {
    // Always there, until it is dropped.
    watched: Option<AsyncFd<Watched>>,
    /// Watched as well, while completions of one queue are waited for.
    rope: Option<Rope>,
    home: Mark,
}

impl Ready {
    /// Watches these, which must stay open as long as this does.
    fn new(fds: [BorrowedFd<'_>; 2]) -> io::Result<Self> {
        // Asked first, since the runtime's own type panics.
        Handle::try_current().map_err(io::Error::other)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for fd in fds {
            epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        }
        #[allow(
            deprecated,
            reason = "its successor (tokio 1.54) is unsafe, for types that may hand out another \
                      descriptor later or not keep it open; this one owns the one it hands out"
        )]
        let watched = AsyncFd::with_interest(Watched(epoll), Interest::READABLE)?;
        Ok(Self {
            watched: Some(watched),
            rope: None,
            home: Mark::here(),
        })
    }

    /// Watches this queue's bell as well, and no other's.
    fn listen(&mut self, rope: Option<&Rope>) -> Result<(), EventError> {
        if self.rope.as_ref() == rope || !self.home.is_ours() {
            return Ok(());
        }
        let Some(watched) = &self.watched else {
            return Err(EventError::RuntimeGone);
        };
        let epoll = &watched.get_ref().0;
        if let Some(former) = self.rope.take() {
            epoll.delete(former)?;
        }
        if let Some(rope) = rope {
            epoll.add(rope, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
            self.rope = Some(rope.clone());
        }
        Ok(())
    }

    /// Calls `read` until it gives something, or until it gave nothing *after* readiness had been
    /// cleared: then whatever comes wakes the task.
    fn poll<T>(
        &self,
        cx: &mut TaskContext<'_>,
        mut read: impl FnMut() -> Result<Option<T>, EventError>,
    ) -> Poll<Result<T, EventError>> {
        // Whoever finds an event each time must let other tasks have their turn now and then.
        let turn = ready!(poll_proceed(cx));
        let Some(watched) = &self.watched else {
            return Poll::Ready(Err(EventError::RuntimeGone));
        };
        loop {
            if let Some(found) = read().transpose() {
                turn.made_progress();
                return Poll::Ready(found);
            }
            match watched.poll_read_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(mut guard)) => guard.clear_ready(),
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(Err(match error.raw_os_error() {
                        Some(errno) => EventError::Os(Errno::from_raw(errno)),
                        None => EventError::RuntimeGone,
                    }));
                }
            }
        }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        if !self.home.is_ours() {
            // The runtime's epoll instance is the parent's, too: to take the stream out of it is not for
            // a child to do.
            mem::forget(self.watched.take());
        }
    }
}

/// What both streams do, of a reader that gives its events one by one.
macro_rules! stream {
    ($stream:ident, $reader:ident, $event:ty) => {
        impl $stream {
            /// Waits for the next event. `None` once the stream has ended.
            ///
            /// A future of it can be dropped at any time: it holds no event.
            ///
            /// # Errors
            /// As the `next` of the stream, for which see the type.
            pub async fn next(&mut self) -> Option<Result<$event, EventError>> {
                std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
            }
        }

        impl Stream for $stream {
            type Item = Result<$event, EventError>;

            fn poll_next(
                mut self: Pin<&mut Self>,
                cx: &mut TaskContext<'_>,
            ) -> Poll<Option<Self::Item>> {
                if self.ended {
                    return Poll::Ready(None);
                }
                if let Err(error) = self.ready.listen(None) {
                    self.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
                let Poll::Ready(next) = self.ready.poll(cx, || self.$reader.try_next()) else {
                    return Poll::Pending;
                };
                self.ended = next.is_err();
                Poll::Ready(match next {
                    Err(EventError::Stopped | EventError::ContextClosed) => None,
                    other => Some(other),
                })
            }
        }

        impl FusedStream for $stream {
            fn is_terminated(&self) -> bool {
                self.ended
            }
        }
    };
}

/// The asynchronous events of a context, one after the other.
///
/// Ends when the reader is stopped or the context closed; any other error is the last item.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
#[doc(alias = "ibv_get_async_event")]
pub struct AsyncEventStream {
    // Before what it watches.
    ready: Ready,
    events: AsyncEvents,
    ended: bool,
}

impl AsyncEventStream {
    /// A stream of a reader's events.
    ///
    /// # Errors
    /// Outside of a tokio runtime, or if there is no file descriptor left.
    ///
    /// # Panics
    /// If the runtime was built without I/O (`enable_io`).
    pub fn new(events: &AsyncEvents) -> io::Result<Self> {
        Ok(Self {
            ready: Ready::new([events.as_fd(), events.wake_fd()])?,
            events: events.clone(),
            ended: false,
        })
    }
}

stream!(AsyncEventStream, events, AsyncEvent);

/// The events of a completion channel, one after the other, and the wait for completions.
///
/// Ends when the channel is stopped or the context closed; any other error is the last item.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
#[doc(alias = "ibv_get_cq_event")]
pub struct CompletionStream {
    // Before what it watches.
    ready: Ready,
    channel: CompletionChannel,
    ended: bool,
}

impl CompletionStream {
    /// A stream of a channel's events.
    ///
    /// # Errors
    /// Outside of a tokio runtime, or if there is no file descriptor left.
    ///
    /// # Panics
    /// If the runtime was built without I/O (`enable_io`).
    pub fn new(channel: &CompletionChannel) -> io::Result<Self> {
        Ok(Self {
            ready: Ready::new([channel.as_fd(), channel.wake_fd()])?,
            channel: channel.clone(),
            ended: false,
        })
    }

    /// As [`CompletionQueue::wait`] for a queue of this channel: polls, and if there is nothing arms,
    /// polls once more, and waits.
    ///
    /// A future of it can be dropped at any time: completions stay in the queue, which may be left
    /// armed, and no event is lost.
    ///
    /// # Errors
    /// [`WaitError`].
    pub async fn wait<'b>(
        &mut self,
        cq: &CompletionQueue,
        mut out: &'b mut [Wc],
    ) -> Result<&'b mut [Wc], WaitError> {
        match cq.channel() {
            Some(channel) if channel == self.channel => {}
            Some(_) => return Err(WaitError::OtherChannel),
            None => return Err(WaitError::NoChannel),
        }
        // Whoever finds completions each time must let other tasks have their turn now and then.
        ::tokio::task::consume_budget().await;
        let mut waiter = Waiter::new(cq);
        loop {
            let rope = match waiter.step(out)? {
                Step::Ready(done) => return Ok(done),
                Step::Wait { room, rope } => {
                    out = room;
                    rope
                }
            };
            self.ready.listen(Some(&rope))?;
            let told = std::future::poll_fn(|cx| {
                self.ready.poll(cx, || match self.channel.try_next()? {
                    Some(event) => Ok(Some(Some(event))),
                    None => Ok((rope.is_rung() || rope.take_nudge()).then_some(None)),
                })
            });
            // Between here and the poll of the queue nothing is awaited.
            match told.await? {
                Some(event) => waiter.told(event)?,
                None if rope.is_rung() => return Err(WaitError::Destroyed),
                None => waiter.nudged(),
            }
        }
    }
}

stream!(CompletionStream, channel, CompletionEvent);

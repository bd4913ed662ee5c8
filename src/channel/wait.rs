//! Waiting for completions of one queue, and why there may be none to be had.

use std::io;
use std::time::Duration;

use thiserror::Error;
use uverbs_abi::{Errno, Explain, Report};
use uverbs_providers::contract::Arm;
use uverbs_providers::error::PollError;
use uverbs_providers::wc::Wc;

use super::waiter::{Awaited, Crowd, Step, Waiter};
use super::{ChannelSource, CompletionEvent};
use crate::cq::CompletionQueue;
use crate::error::{ObjectError, ObjectErrorCause, into_io};
use crate::event::{EventError, Until};

/// Why there are no completions to be had by waiting.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The queue was made without a channel, so nothing will ever tell of it.
    #[error("the completion queue has no channel; make it with `channel`")]
    NoChannel,
    /// The queue was made with another channel than that of the stream waited on, which will never
    /// hear of it.
    #[error("the completion queue has another channel than the stream")]
    OtherChannel,
    /// The event that came is another queue's, which shares the channel. It is handed over here:
    /// deal with its queue and wait again. Where many queues share a channel, take the events from
    /// [`CompletionChannel::next`](crate::CompletionChannel::next) instead.
    #[error("the event that came is of another completion queue, which shares the channel")]
    OtherQueue(CompletionEvent),
    /// The queue has been destroyed through another handle, before the wait or during it.
    #[error("the completion queue has been destroyed")]
    Destroyed,
    /// The queue could not be polled.
    #[error(transparent)]
    Poll(PollError),
    /// The queue could not be armed.
    #[error("cannot arm {0}")]
    Arm(#[source] ObjectError),
    /// The wait was ended.
    #[error(transparent)]
    Event(#[from] EventError),
}

impl From<PollError> for WaitError {
    fn from(error: PollError) -> Self {
        match error {
            PollError::Destroyed => Self::Destroyed,
            other => Self::Poll(other),
        }
    }
}

impl From<ObjectError> for WaitError {
    fn from(error: ObjectError) -> Self {
        match error.cause {
            ObjectErrorCause::Destroyed => Self::Destroyed,
            _ => Self::Arm(error),
        }
    }
}

impl Explain for WaitError {
    fn errno(&self) -> Option<Errno> {
        match self {
            Self::NoChannel | Self::OtherChannel | Self::OtherQueue(_) | Self::Destroyed => None,
            Self::Poll(error) => Explain::errno(error),
            Self::Arm(error) => error.errno(),
            Self::Event(error) => Explain::errno(error),
        }
    }

    fn explain(&self, report: &mut Report) {
        match self {
            Self::NoChannel => {
                report
                    .meaning("only a channel tells that a queue has something; without one, poll");
                report.next(
                    "`context.create_cq(depth).channel(&channel, 0)`, with a channel from \
                     `Context::create_completion_channel`",
                );
            }
            Self::OtherChannel => {
                report.meaning("a stream hears of the queues of its own channel, and of no other");
                report.next(
                    "make the stream of the queue's own channel, `CompletionQueue::channel`, or the queue \
                     with the stream's",
                );
            }
            Self::OtherQueue(_) => {
                report.meaning("the event is in this error, and acked when that is dropped");
                report.next("give each queue that is waited for by itself a channel of its own");
            }
            Self::Destroyed => {
                report.cause("`destroy` was called through another clone of the handle");
                report.next("let whoever waits for it end first");
            }
            Self::Poll(error) => error.explain(report),
            Self::Arm(error) => error.explain(report),
            Self::Event(EventError::Stopped) => {
                report.cause(
                    "`CompletionChannel::stop` was called on the queue's channel, through whatever handle",
                );
                report
                    .meaning("the channel is not read any more; polling the queue goes on working");
                report.next(
                    "to wait again: `Context::create_completion_channel`, and a new queue on it",
                );
            }
            Self::Event(error) => error.explain(report),
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::NoChannel | Self::OtherChannel | Self::Destroyed => io::ErrorKind::InvalidInput,
            Self::OtherQueue(_) => io::ErrorKind::ResourceBusy,
            Self::Poll(error) => error.kind(),
            Self::Arm(error) => error.kind(),
            Self::Event(error) => error.kind(),
        }
    }
}

into_io!(WaitError);

impl CompletionQueue {
    /// Polls, and waits for completions if there are none: arms the queue, polls once more, waits
    /// for the event, acks it. Gives the part of `out` that was filled, never an empty one unless
    /// `out` is.
    ///
    /// The queue must have been made with a [channel](crate::CompletionQueueBuilder::channel), and
    /// be the only one on it: of what others raise, one event is handed over as
    /// [`WaitError::OtherQueue`].
    ///
    /// There may be more completions than there was room for: call it until done, it polls first.
    /// Several threads may wait for one queue; a completion ends the wait of one of them, and what that
    /// one has no room for ends the wait of the next. What ends all of them is a destroy of the queue
    /// through another handle, [`CompletionChannel::stop`](crate::CompletionChannel::stop), or the end of
    /// the device.
    ///
    /// The first wait that finds nothing makes a descriptor, which the queue keeps.
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn wait<'b>(&self, out: &'b mut [Wc]) -> Result<&'b mut [Wc], WaitError> {
        self.wait_until(out, Until::Forever)
    }

    /// As [`wait`](Self::wait), for at most `timeout`, rounded up to whole milliseconds. Empty when
    /// the time is up. The queue is left armed then.
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn wait_timeout<'b>(
        &self,
        out: &'b mut [Wc],
        timeout: Duration,
    ) -> Result<&'b mut [Wc], WaitError> {
        self.wait_until(out, Until::after(timeout))
    }

    fn wait_until<'b>(
        &self,
        mut out: &'b mut [Wc],
        until: Until,
    ) -> Result<&'b mut [Wc], WaitError> {
        let mut waiter = Waiter::new(self);
        loop {
            let rope = match waiter.step(out)? {
                Step::Ready(done) => return Ok(done),
                Step::Wait { room, rope } => {
                    out = room;
                    rope
                }
            };
            match self.source()?.next_until(until, Some(&rope))? {
                Some(event) => waiter.told(event)?,
                None if rope.is_rung() => return Err(WaitError::Destroyed),
                // Time is up, or somebody has left something here, or both.
                None => {
                    waiter.nudged();
                    if until.left().is_none() {
                        let count = waiter.poll(out)?;
                        return Ok(out.get_mut(..count).unwrap_or_default());
                    }
                }
            }
        }
    }

    fn source(&self) -> Result<&ChannelSource, WaitError> {
        self.inner.channel.as_deref().ok_or(WaitError::NoChannel)
    }
}

impl Awaited for CompletionQueue {
    type Error = WaitError;

    fn check(&self) -> Result<(), WaitError> {
        Ok(self.source()?.file().check()?)
    }

    fn poll(&self, out: &mut [Wc]) -> Result<usize, WaitError> {
        Ok(Self::poll(self, out)?.len())
    }

    fn arm(&self) -> Result<(), WaitError> {
        Ok(Self::arm(self, Arm::Next)?)
    }

    fn crowd(&self) -> &Crowd {
        &self.inner.crowd
    }
}

impl Waiter<'_, CompletionQueue> {
    /// Acks an event of the queue; hands another's over.
    pub(crate) fn told(&mut self, event: CompletionEvent) -> Result<(), WaitError> {
        if event.cq() == self.queue() {
            self.nudged();
            Ok(())
        } else {
            Err(WaitError::OtherQueue(event))
        }
    }
}

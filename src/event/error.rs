//! Why a reader of events has none to give.

use std::io;

use uverbs_abi::error::too_many_files;
use uverbs_abi::{CommandError, Errno, Explain, Report};

use super::record::BadRecord;
use crate::error::into_io;

/// Why no event could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The reader, or the completion channel, was told to stop, here or through another clone. It
    /// stays so.
    #[error("the event reader or completion channel was stopped")]
    Stopped,
    /// The context was closed and all its events have been read. It stays so.
    #[error("the context is closed, and all of its events have been read")]
    ContextClosed,
    /// The device is gone and all its events have been read. It stays so.
    #[error("the device is gone; destroy what is left and open it again when it is back")]
    DeviceGone,
    /// The reader was inherited through `fork()`; its events are the parent's.
    #[error("the event reader was inherited through fork(); open the device anew in this process")]
    ForeignProcess,
    /// What was read is not one record (of 16 bytes, or of 8 for a completion event), and nothing
    /// was made of it.
    #[error(
        "read {len} bytes where an event record has 16 (8 on a completion channel); is this the \
         device's own file?"
    )]
    BadRecord {
        /// How many bytes were read.
        len: usize,
    },
    /// The tokio runtime that a stream was made in is not there any more. What the stream was made of
    /// goes on.
    #[error(
        "the runtime that the stream was made in has been shut down; make a stream in another one"
    )]
    RuntimeGone,
    /// The kernel refused to read or to wait.
    #[error("cannot read events ({0})")]
    Os(#[source] Errno),
}

/// A queue of events could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventQueueError {
    /// The kernel refused; unsupported where it is too old for the call, which is of Linux 5.8 (6.1 is
    /// the oldest that was tried).
    #[error("cannot make a queue of events: {0}")]
    Command(#[from] CommandError),
    /// The descriptors for waiting on it could not be prepared.
    #[error("cannot make a queue of events: no descriptor for waiting on it: {0}")]
    Wait(#[source] io::Error),
}

impl From<BadRecord> for EventError {
    fn from(BadRecord { len }: BadRecord) -> Self {
        Self::BadRecord { len }
    }
}

impl From<nix::errno::Errno> for EventError {
    fn from(errno: nix::errno::Errno) -> Self {
        Self::Os(errno.into())
    }
}

impl Explain for EventError {
    /// `EIO` for a device that is gone.
    fn errno(&self) -> Option<Errno> {
        match self {
            Self::Os(errno) => Some(*errno),
            Self::DeviceGone => Some(Errno::EIO),
            _ => None,
        }
    }

    fn explain(&self, report: &mut Report) {
        match self {
            Self::Stopped => {
                report.cause(
                    "`stop` was called, on this handle or on another of the same queue or channel",
                );
                report.meaning("its events are not read any more, through whatever handle");
                report.next(
                    "stop when no more events are wanted; `Context::event_queue` makes another queue, and \
                     `Context::create_completion_channel` another channel, for what is created on it from \
                     then on",
                );
            }
            Self::ContextClosed => {
                report.cause("the last handle to the context and to what was made on it went");
                report.next("keep one as long as events are wanted: a reader does not");
            }
            Self::DeviceGone => {
                report.cause("the device was removed, or its driver unloaded");
            }
            Self::ForeignProcess => {
                report.meaning("the events are the parent's, and each is for one reader only");
            }
            Self::BadRecord { .. } => {
                report
                    .cause("the descriptor was closed elsewhere, and its number is another file's");
            }
            Self::RuntimeGone => {
                report.meaning("what the stream was made of is as it was");
            }
            Self::Os(_) => {
                report.next("look the number up in read(2) and poll(2)");
            }
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Stopped => io::ErrorKind::ConnectionAborted,
            Self::ContextClosed | Self::RuntimeGone => io::ErrorKind::NotConnected,
            Self::DeviceGone => io::ErrorKind::NetworkDown,
            Self::ForeignProcess => io::ErrorKind::PermissionDenied,
            Self::BadRecord { .. } => io::ErrorKind::InvalidData,
            Self::Os(errno) => errno.kind(),
        }
    }
}

impl Explain for EventQueueError {
    fn errno(&self) -> Option<Errno> {
        match self {
            Self::Command(error) => error.errno(),
            Self::Wait(error) => error.raw_os_error().map(Errno::from_raw),
        }
    }

    fn explain(&self, report: &mut Report) {
        match self {
            Self::Command(error) => error.explain(report),
            Self::Wait(_) => {
                report.meaning(
                    "each queue of events takes a descriptor, and one for waking its readers",
                );
                if let Some(errno) = self.errno() {
                    too_many_files(errno, report);
                }
            }
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Command(error) => error.kind(),
            Self::Wait(error) => error.kind(),
        }
    }
}

into_io!(EventError, EventQueueError);

//! Why an object was not destroyed.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use thiserror::Error;
use uverbs_abi::count::Count;
use uverbs_abi::{CommandError, Errno, Explain, Report};
use uverbs_providers::error::CloseError;
use uverbs_providers::types::QueueId;

/// An object was not destroyed, or its events are still out.
#[derive(Debug)]
pub struct DestroyError<T> {
    object: Option<T>,
    /// Which one.
    pub id: QueueId,
    /// What stood in the way.
    pub cause: DestroyErrorCause,
    /// If something else uses it: which objects do of those that were made on this open device and
    /// are not destroyed. Looked up after the kernel had refused.
    pub holders: Vec<QueueId>,
    held: Held,
}

/// How many of its events were out, by sort, when the error was made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    pub(crate) asynchronous: u32,
    pub(crate) completion: u32,
}

impl<T> fmt::Display for DestroyError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.id)?;
        match &self.cause {
            DestroyErrorCause::Busy { users, source } => {
                let named = Named(&self.holders);
                write!(f, "{source}; {users}{named}: destroy or drop those first")
            }
            DestroyErrorCause::InExclusiveUse if self.is_of_cq() => {
                f.write_str("it is in exclusive use; drop the handle that has it first")
            }
            cause => fmt::Display::fmt(cause, f),
        }
    }
}

impl<T: fmt::Debug> StdError for DestroyError<T> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.source()
    }
}

/// The cause of a [`DestroyError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DestroyErrorCause {
    /// Events about it have been handed out and are not acked; it was left alone.
    #[error("not all of its events are acked ({outstanding} held); drop what is held first")]
    Outstanding {
        /// How many.
        outstanding: u32,
    },
    /// It is destroyed, and after the whole time some of its events are still held.
    #[error("it is destroyed, but not all of its events are acked ({outstanding} still held)")]
    StillHeld {
        /// How many.
        outstanding: u32,
    },
    /// It had been destroyed through another handle.
    #[error("it has been destroyed already")]
    Destroyed,
    /// An exclusive handle holds one of its queues.
    #[error("one of its queues is in exclusive use; drop the exclusive handle first")]
    InExclusiveUse,
    /// Something else uses it: `EBUSY`.
    #[error("{source}; {users}: destroy or drop those first")]
    Busy {
        /// What can use it.
        users: &'static str,
        /// The refusal.
        source: CommandError,
    },
    /// The kernel refused.
    #[error("{0}")]
    Command(#[from] CommandError),
}

/// The first few by name, the others by their number.
struct Named<'e>(&'e [QueueId]);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 8;
        let mut lead = " (";
        for holder in self.0.iter().take(MOST) {
            write!(f, "{lead}{holder}")?;
            lead = ", ";
        }
        match self.0.len().checked_sub(MOST) {
            _ if self.0.is_empty() => Ok(()),
            None | Some(0) => f.write_str(")"),
            Some(others) => write!(f, " and {others} more)"),
        }
    }
}

impl<T> DestroyError<T> {
    pub(crate) const fn kept(
        object: T,
        id: QueueId,
        cause: DestroyErrorCause,
        holders: Vec<QueueId>,
        held: Held,
    ) -> Self {
        Self {
            object: Some(object),
            id,
            cause,
            holders,
            held,
        }
    }

    pub(crate) const fn gone(id: QueueId, cause: DestroyErrorCause, held: Held) -> Self {
        Self {
            object: None,
            id,
            cause,
            holders: Vec::new(),
            held,
        }
    }

    const fn is_of_cq(&self) -> bool {
        matches!(self.id, QueueId::CompletionQueue(_))
    }

    /// The object, whole and usable as before, unless it is gone.
    #[must_use]
    pub fn into_object(self) -> Option<T> {
        self.object
    }
}

impl DestroyErrorCause {
    /// Whether there is no object any more that could be given back.
    pub(crate) const fn is_of_one_gone(&self) -> bool {
        match self {
            Self::Destroyed => true,
            Self::Command(error) => error.is_done(),
            _ => false,
        }
    }

    /// What the kernel's refusal means for an object that `users` can use.
    pub(crate) fn of(error: CloseError, users: &'static str) -> Self {
        match error {
            CloseError::Command(source) if source.errno() == Some(Errno::EBUSY) => {
                Self::Busy { users, source }
            }
            other => other.into(),
        }
    }
}

impl From<CloseError> for DestroyErrorCause {
    fn from(error: CloseError) -> Self {
        match error {
            CloseError::InExclusiveUse => Self::InExclusiveUse,
            CloseError::Destroyed => Self::Destroyed,
            CloseError::Command(error) => Self::Command(error),
            _ => Self::Destroyed,
        }
    }
}

impl Explain for DestroyErrorCause {
    fn errno(&self) -> Option<Errno> {
        match self {
            Self::Busy { source, .. } | Self::Command(source) => source.errno(),
            _ => None,
        }
    }

    fn explain(&self, report: &mut Report) {
        match self {
            Self::Outstanding { .. } => {
                report.meaning("an event that is held keeps what it is about from being forgotten");
                held_causes(report);
                report.next(
                    "drop or `ack` what is held, and try again; dropping the object's last handle waits for \
                     no event",
                );
            }
            Self::StillHeld { .. } => {
                report.meaning("the object is gone, and nothing else need be done about it");
                held_causes(report);
                report.next(
                    "drop or `ack` what is held where it should not be; an ack is still good",
                );
            }
            Self::Busy { .. } => {
                report.cause(
                    "a handle to what uses it is alive somewhere: a clone, or one in an event",
                );
                report.next(
                    "destroy or drop what uses it, then destroy this again: its handle is in the error, \
                     `into_object`",
                );
            }
            Self::Command(source) => source.explain(report),
            Self::Destroyed => {
                report.cause("`destroy` was called through another clone of the handle");
                report.next("nothing: it is gone, as was asked for");
            }
            Self::InExclusiveUse => {
                report.cause("an exclusive handle is alive, here or in another thread");
                report.next(
                    "drop that handle, then destroy this again: it is in the error, `into_object`",
                );
            }
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Busy { source, .. } | Self::Command(source) => source.kind(),
            Self::Outstanding { .. } | Self::InExclusiveUse => io::ErrorKind::ResourceBusy,
            Self::StillHeld { .. } => io::ErrorKind::TimedOut,
            Self::Destroyed => io::ErrorKind::InvalidInput,
        }
    }
}

/// Where an event can be that was not acked.
fn held_causes(report: &mut Report) {
    report.cause("an event is kept in a variable, a queue or a log");
    report.cause("an event was forgotten (`mem::forget`): nothing will ever ack it");
}

impl Held {
    fn explain(self, report: &mut Report) {
        if self.completion != 0 {
            report.found(format!(
                "held: {}, as `CompletionEvent` or in `CompletionAcks`",
                Count(self.completion.into(), "completion event")
            ));
        }
        if self.asynchronous != 0 {
            report.found(format!(
                "held: {}, as `AsyncEvent`",
                Count(self.asynchronous.into(), "asynchronous event")
            ));
        }
    }
}

impl<T: fmt::Debug> Explain for DestroyError<T> {
    fn errno(&self) -> Option<Errno> {
        self.cause.errno()
    }

    fn explain(&self, report: &mut Report) {
        if matches!(self.cause, DestroyErrorCause::Busy { .. }) && self.holders.is_empty() {
            report.found("nothing that was made through this context is known to use it");
        }
        self.held.explain(report);
        self.cause.explain(report);
    }

    fn kind(&self) -> io::ErrorKind {
        self.cause.kind()
    }
}

/// Of the [kind](Explain::kind) that the error says.
impl<T: fmt::Debug + Send + Sync + 'static> From<DestroyError<T>> for io::Error {
    fn from(error: DestroyError<T>) -> Self {
        Self::new(error.kind(), error)
    }
}

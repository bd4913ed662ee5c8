//! Why an object was not destroyed.

use std::fmt;
use std::io;

use thiserror::Error;
use uverbs_abi::{CommandError, Errno, Explain, Report};
use uverbs_providers::error::CloseError;

/// An object was not destroyed, or its events are still out.
#[derive(Debug, Error)]
#[error("{cause}")]
pub struct DestroyError<T> {
    object: Option<T>,
    /// What stood in the way.
    pub cause: DestroyErrorCause,
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
    #[error(transparent)]
    Command(#[from] CommandError),
}

impl<T> DestroyError<T> {
    pub(crate) const fn kept(object: T, cause: DestroyErrorCause) -> Self {
        Self {
            object: Some(object),
            cause,
        }
    }

    pub(crate) const fn gone(cause: DestroyErrorCause) -> Self {
        Self {
            object: None,
            cause,
        }
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
            Self::Outstanding { .. } | Self::StillHeld { .. } => {
                report.meaning("an event that is held keeps what it is about from being forgotten");
                report
                    .next("drop or `ack` each `AsyncEvent`; look for one kept in a queue or a log");
            }
            Self::Busy { .. } => {
                report.cause("a handle to what uses it is alive somewhere");
            }
            Self::Command(source) => source.explain(report),
            Self::Destroyed | Self::InExclusiveUse => {}
        }
    }
}

impl<T: fmt::Debug> Explain for DestroyError<T> {
    fn errno(&self) -> Option<Errno> {
        self.cause.errno()
    }

    fn explain(&self, report: &mut Report) {
        self.cause.explain(report);
    }
}

impl<T: fmt::Debug + Send + Sync + 'static> From<DestroyError<T>> for io::Error {
    fn from(error: DestroyError<T>) -> Self {
        Self::new(super::kind(error.errno()), error)
    }
}

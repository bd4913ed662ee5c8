//! Why an object was not destroyed.

use thiserror::Error;
use uverbs_abi::CommandError;
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
    /// Asynchronous events about it have been handed out and are not acked; it was left alone.
    #[error("{outstanding} of its events are held and not acked; drop them first")]
    Outstanding {
        /// How many.
        outstanding: u32,
    },
    /// It is destroyed, and after the whole time some of its events are still held.
    #[error("it is destroyed, but {outstanding} of its events are still held and not acked")]
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
    /// The kernel refused; `EBUSY` while something else uses it.
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

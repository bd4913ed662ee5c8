//! Why a device, a port or an object could not be asked or told something.

use thiserror::Error;
use uverbs_abi::{CommandError, Errno};

/// A query failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct QueryError(#[from] pub CommandError);

/// A protection domain could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("cannot make a protection domain: {0}")]
pub struct AllocPdError(#[from] pub CommandError);

/// A command on an object failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The object has been destroyed through another handle.
    #[error("the {object} has been destroyed")]
    Destroyed {
        /// Which kind of object.
        object: &'static str,
    },
    /// The kernel refused.
    #[error(transparent)]
    Command(#[from] CommandError),
}

impl ObjectError {
    /// The kernel's error number, where it was the kernel that refused.
    #[must_use]
    pub const fn errno(&self) -> Option<Errno> {
        match self {
            Self::Destroyed { .. } => None,
            Self::Command(error) => error.errno(),
        }
    }
}

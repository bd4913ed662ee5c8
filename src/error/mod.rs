//! Errors, one small type for each operation. Each names the verb, the object and the kernel's error
//! number, and where it can be known the next step; `source()` keeps the cause.
//!
//! Every one implements [`Explain`](crate::Explain): its text is the short form, `report()` gives
//! the long one, `errno()` the kernel's number. `docs/errors.md` lists them all.

mod create;
mod destroy;
mod memory;
mod open;
mod query;

pub use create::{CreateError, CreateErrorCause, Limit, NoProviderReason};
pub use destroy::{DestroyError, DestroyErrorCause};
pub use memory::{
    DeregisterError, DeregisterErrorCause, RangeError, RegisterError, RegisterErrorCause,
};
pub use open::{ListError, OpenError};
pub use query::{AllocPdError, ObjectError, QueryError, QueryTarget};

use std::io;

use uverbs_abi::Errno;

/// How an error becomes one of `std::io`, with itself inside: the kind is that of the kernel's
/// number, and `InvalidInput` where nobody asked the kernel.
macro_rules! into_io {
    ($($error:ty),+ $(,)?) => {$(
        impl From<$error> for std::io::Error {
            fn from(error: $error) -> Self {
                let kind = $crate::error::kind($crate::Explain::errno(&error));
                Self::new(kind, error)
            }
        }
    )+};
}

pub(crate) use into_io;

pub(crate) fn kind(errno: Option<Errno>) -> io::ErrorKind {
    match errno {
        Some(Errno::ENOTTY | Errno::EPROTONOSUPPORT | Errno::EOPNOTSUPP | Errno::ENOSYS) => {
            io::ErrorKind::Unsupported
        }
        Some(errno) => io::Error::from(errno).kind(),
        None => io::ErrorKind::InvalidInput,
    }
}

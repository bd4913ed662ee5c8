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
pub(crate) use destroy::Held;
pub use destroy::{DestroyError, DestroyErrorCause};
pub use memory::{
    DeregisterError, DeregisterErrorCause, RangeError, RegisterError, RegisterErrorCause,
};
pub use open::{ListError, OpenError};
pub use query::{AllocPdError, ObjectError, ObjectErrorCause, QueryError, QueryTarget};

/// How an error becomes one of `std::io`, with itself inside.
macro_rules! into_io {
    ($($error:ty),+ $(,)?) => {$(
        /// Of the [kind](crate::Explain::kind) that the error says.
        impl From<$error> for std::io::Error {
            fn from(error: $error) -> Self {
                Self::new($crate::Explain::kind(&error), error)
            }
        }
    )+};
}

pub(crate) use into_io;

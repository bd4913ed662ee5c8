//! Errors, one small type for each operation. Each names the verb, the object and the kernel's error
//! number, and where it can be known the next step; `source()` keeps the cause.

mod create;
mod destroy;
mod memory;
mod open;
mod query;

pub use create::{CreateError, CreateErrorCause};
pub use destroy::{DestroyError, DestroyErrorCause};
pub use memory::{
    DeregisterError, DeregisterErrorCause, RangeError, RegisterError, RegisterErrorCause,
};
pub use open::{ListError, OpenError};
pub use query::{AllocPdError, ObjectError, QueryError};

//! What a program has attached to an object, to find it again from the object's events.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A value of any type, or none.
#[derive(Clone, Default)]
pub(crate) struct UserData(Option<Arc<dyn Any + Send + Sync>>);

impl UserData {
    pub(crate) const NONE: Self = Self(None);

    pub(crate) fn new<D: Any + Send + Sync>(data: D) -> Self {
        Self(Some(Arc::new(data)))
    }

    /// The value, if there is one and it is of this type.
    pub(crate) fn get<D: Any>(&self) -> Option<&D> {
        self.0
            .as_deref()
            .and_then(<dyn Any + Send + Sync>::downcast_ref)
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(_) => "UserData(some)",
            None => "UserData(none)",
        })
    }
}

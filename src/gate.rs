//! The gate of one object: commands go through it together, a destroy goes through it alone.
//!
//! Without it the kernel could give a handle's number to another object between "is it still
//! there?" and the command that names it, and a command under way would make a destroy fail with
//! `EBUSY`. The fast paths need no gate: there the lock of the queue does the same.

use std::sync::PoisonError;

use crate::event::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Whether the kernel object is there, and who is using it.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    destroyed: RwLock<bool>,
}

/// The kernel object stays while this is held.
#[derive(Debug)]
pub(crate) struct Pass<'g> {
    _held: RwLockReadGuard<'g, bool>,
}

/// Nobody else is at the kernel object while this is held.
#[derive(Debug)]
pub(crate) struct Alone<'g> {
    destroyed: RwLockWriteGuard<'g, bool>,
}

impl Gate {
    /// Enters for a command; `None` once the object has been destroyed.
    pub(crate) fn enter(&self) -> Option<Pass<'_>> {
        // A panic while the lock was held cannot have left it half-changed: it guards one `bool`.
        let held = self
            .destroyed
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        (!*held).then_some(Pass { _held: held })
    }

    /// Enters alone, for a destroy; `None` once the object has been destroyed.
    pub(crate) fn enter_alone(&self) -> Option<Alone<'_>> {
        let held = self
            .destroyed
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        (!*held).then_some(Alone { destroyed: held })
    }

    /// Whether the object is still to be destroyed, by the one who alone has it left: nobody can be in.
    pub(crate) fn is_left(&mut self) -> bool {
        let destroyed = self.destroyed.get_mut();
        !*destroyed.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Alone<'_> {
    /// Records that the kernel object is gone, and lets the next one in to learn of it.
    pub(crate) fn destroyed(mut self) {
        *self.destroyed = true;
    }
}

#[cfg(all(test, not(uverbs_loom)))]
mod tests {
    use super::Gate;

    #[test]
    fn after_a_destroy_nobody_enters() {
        let mut gate = Gate::default();
        drop(gate.enter_alone());
        assert!(
            gate.enter().is_some(),
            "a destroy that failed leaves the gate open"
        );
        if let Some(alone) = gate.enter_alone() {
            alone.destroyed();
        }
        assert!(gate.enter().is_none());
        assert!(gate.enter_alone().is_none());
        assert!(!gate.is_left() && Gate::default().is_left());
    }
}

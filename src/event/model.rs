//! The ledger under loom: every order of steps that its users' threads can take.

use std::cell::Cell;

use super::sync::Fault;

thread_local! {
    static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Whether the model that runs has put in this fault.
pub(super) fn planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

//! What was made on an open device and is not destroyed, for errors only: who rests on what, and which
//! registration has which key. Nothing is decided by it.
//!
//! An object is entered after it was made, and taken out before the kernel is asked to destroy it,
//! since its number may be another's as soon as the kernel has; a refusal enters it again.
//!
//! It must never be looked at in a forked child: a thread that is not there may hold a lock. Whoever
//! calls has asked the session, or has just had a command done.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uverbs_providers::types::{AccessFlags, CqHandle, Lkey, PdHandle, QueueId, SrqHandle};

/// The objects of one open device.
#[derive(Debug, Default)]
pub(crate) struct Living {
    queues: Mutex<BTreeMap<QueueId, Rests>>,
    regions: Mutex<BTreeMap<u32, Region>>,
}

/// What a queue rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rests {
    pub(crate) cqs: [CqHandle; 2],
    pub(crate) srq: Option<SrqHandle>,
}

/// What a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) pd: PdHandle,
    pub(crate) access: AccessFlags,
    pub(crate) start: u64,
    pub(crate) length: u64,
}

impl Living {
    pub(crate) fn enter(&self, holder: QueueId, rests: Rests) {
        lock(&self.queues).insert(holder, rests);
    }

    pub(crate) fn leave(&self, holder: QueueId) -> Option<Rests> {
        lock(&self.queues).remove(&holder)
    }

    /// Who rests on something.
    pub(crate) fn holders(&self, rests: impl Fn(&Rests) -> bool) -> Vec<QueueId> {
        let queues = lock(&self.queues);
        let found = queues.iter().filter(|(_, on)| rests(on));
        found.map(|(holder, _)| *holder).collect()
    }

    pub(crate) fn enter_region(&self, lkey: Lkey, region: Region) {
        lock(&self.regions).insert(lkey.0, region);
    }

    pub(crate) fn leave_region(&self, lkey: Lkey) -> Option<Region> {
        lock(&self.regions).remove(&lkey.0)
    }

    pub(crate) fn region(&self, lkey: Lkey) -> Option<Region> {
        lock(&self.regions).get(&lkey.0).copied()
    }
}

/// Each holds whole entries, whatever panicked.
fn lock<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

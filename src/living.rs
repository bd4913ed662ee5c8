//! What was made on an open device and is not destroyed, for errors only: who rests on what, and which
//! registration has which key. Nothing is decided by it.
//!
//! An object is entered after it was made, and taken out before the kernel is asked to destroy it,
//! since its number may be another's as soon as the kernel has; a refusal enters it again.
//!
//! It must never be looked at in a forked child: a thread that is not there may hold a lock. Whoever
//! calls has asked the session, or has just had a command done.

use std::sync::{Mutex, MutexGuard, PoisonError};

use uverbs_providers::table::Table;
use uverbs_providers::types::{AccessFlags, CqHandle, Lkey, PdHandle, QueueId, SrqHandle};

/// The objects of one open device.
#[derive(Debug, Default)]
pub(crate) struct Living {
    table: Mutex<Table<Entry>>,
}

/// One object. Numbers of different kinds may be equal; its key says which kind it is.
#[derive(Clone, Copy, Debug)]
enum Entry {
    Queue(QueueId, Rests),
    Region(Region),
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
        self.lock()
            .insert(holder.key(), Entry::Queue(holder, rests));
    }

    pub(crate) fn leave(&self, holder: QueueId) -> Option<Rests> {
        match self.lock().remove(holder.key())? {
            Entry::Queue(_, rests) => Some(rests),
            Entry::Region(_) => None,
        }
    }

    /// Who rests on something, in order.
    pub(crate) fn holders(&self, rests: impl Fn(&Rests) -> bool) -> Vec<QueueId> {
        let mut found: Vec<QueueId> = Vec::new();
        for (_, entry) in self.lock().iter() {
            if let Entry::Queue(holder, on) = entry
                && rests(on)
            {
                let place = found.partition_point(|other| other < holder);
                found.insert(place, *holder);
            }
        }
        found
    }

    pub(crate) fn enter_region(&self, lkey: Lkey, region: Region) {
        self.lock().insert(of_region(lkey), Entry::Region(region));
    }

    pub(crate) fn leave_region(&self, lkey: Lkey) -> Option<Region> {
        match self.lock().remove(of_region(lkey))? {
            Entry::Region(region) => Some(region),
            Entry::Queue(..) => None,
        }
    }

    pub(crate) fn region(&self, lkey: Lkey) -> Option<Region> {
        match self.lock().get(of_region(lkey))? {
            Entry::Region(region) => Some(*region),
            Entry::Queue(..) => None,
        }
    }

    /// It holds whole entries, whatever panicked.
    fn lock(&self) -> MutexGuard<'_, Table<Entry>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Apart from the keys of all queues, which have something in their upper half.
fn of_region(lkey: Lkey) -> u64 {
    lkey.0.into()
}

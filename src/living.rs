//! What was made on an open device and is not destroyed, for errors only: who rests on what, and which
//! registration has which key. Nothing is decided by it.
//!
//! An object is entered after it was made, and taken out before the kernel is asked to destroy it,
//! since its number may be another's as soon as the kernel has; a refusal enters it again.
//!
//! It must never be looked at in a forked child: a thread that is not there may hold a lock. Whoever
//! calls has asked the session, or has just had a command done.

use uverbs_providers::lock::Lock;
use uverbs_providers::table::Table;
use uverbs_providers::types::{AccessFlags, CqHandle, Lkey, PdHandle, QueueId, SrqHandle};

/// The objects of one open device.
#[derive(Debug)]
pub(crate) struct Living {
    table: Lock<Table<Entry>>,
}

impl Default for Living {
    fn default() -> Self {
        Self {
            table: Lock::new(Table::new()),
        }
    }
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
        let entry = Entry::Queue(holder, rests);
        self.table.with(|table| table.insert(holder.key(), entry));
    }

    pub(crate) fn leave(&self, holder: QueueId) -> Option<Rests> {
        match self.table.with(|table| table.remove(holder.key()))? {
            Entry::Queue(_, rests) => Some(rests),
            Entry::Region(_) => None,
        }
    }

    /// Who rests on something, in order.
    pub(crate) fn holders(&self, rests: impl Fn(&Rests) -> bool) -> Vec<QueueId> {
        let mut found: Vec<QueueId> = self.table.with(|table| {
            let queues = table.iter().filter_map(|(_, entry)| match entry {
                Entry::Queue(holder, on) if rests(on) => Some(*holder),
                _ => None,
            });
            queues.collect()
        });
        found.sort_unstable();
        found
    }

    pub(crate) fn enter_region(&self, lkey: Lkey, region: Region) {
        let entry = Entry::Region(region);
        self.table
            .with(|table| table.insert(of_region(lkey), entry));
    }

    pub(crate) fn leave_region(&self, lkey: Lkey) -> Option<Region> {
        match self.table.with(|table| table.remove(of_region(lkey)))? {
            Entry::Region(region) => Some(region),
            Entry::Queue(..) => None,
        }
    }

    pub(crate) fn region(&self, lkey: Lkey) -> Option<Region> {
        match self
            .table
            .with(|table| table.get(of_region(lkey)).copied())?
        {
            Entry::Region(region) => Some(region),
            Entry::Queue(..) => None,
        }
    }
}

/// Apart from the keys of all queues, which have something in their upper half.
fn of_region(lkey: Lkey) -> u64 {
    lkey.0.into()
}

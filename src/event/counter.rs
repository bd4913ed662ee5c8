//! How many events of one object were read, and how many of those were acked.
//!
//! The kernel counts what is read in 32 bits and lets the count wrap; so does this. Only
//! differences and equality mean anything.

use uverbs_providers::contract::CqReported;

/// The two sorts of events, which the kernel counts apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// What happened to an object.
    Asynchronous,
    /// That a completion queue has something to be polled.
    Completion,
}

/// How many events of an object the kernel says were read; `None` where it does not say, and the
/// own count stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reported {
    pub(crate) asynchronous: Option<u32>,
    pub(crate) completion: Option<u32>,
}

/// Of an object that has no completion events.
impl From<u32> for Reported {
    fn from(asynchronous: u32) -> Self {
        Self {
            asynchronous: Some(asynchronous),
            completion: None,
        }
    }
}

impl From<CqReported> for Reported {
    fn from(reported: CqReported) -> Self {
        Self {
            asynchronous: Some(reported.asynchronous),
            completion: Some(reported.completion),
        }
    }
}

/// One object's events of one sort, for diagnosis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How many were read and found their way to the object: handed over, or, where that could
    /// not be, acked on its behalf. Wraps, as the kernel's count does.
    pub delivered: u32,
    /// How many of them were acked. Wraps.
    pub acked: u32,
    /// How many of them are held by somebody and not acked yet.
    pub outstanding: u32,
}

/// Counts one sort of events of one object.
#[derive(Debug, Default)]
pub(super) struct Counter {
    delivered: u32,
    acked: u32,
}

impl Counter {
    /// One event more was read for the object.
    pub(super) const fn deliver(&mut self) {
        self.delivered = self.delivered.wrapping_add(1);
    }

    /// So many events more were acked.
    pub(super) const fn ack(&mut self, count: u32) {
        self.acked = self.acked.wrapping_add(count);
    }

    /// How many are not acked, of those that were read here.
    pub(super) const fn outstanding(&self) -> u32 {
        self.delivered.wrapping_sub(self.acked)
    }

    /// How many are not acked, of those that the kernel says were read.
    pub(super) const fn missing(&self, reported: Option<u32>) -> u32 {
        match reported {
            // As a difference with a sign: of a kernel that says fewer than were acked nothing is
            // waited for.
            Some(reported) => match reported.wrapping_sub(self.acked) {
                missing @ ..=0x7fff_ffff => missing,
                _ => 0,
            },
            None => self.outstanding(),
        }
    }

    pub(super) const fn counts(&self) -> Counts {
        Counts {
            delivered: self.delivered,
            acked: self.acked,
            outstanding: self.outstanding(),
        }
    }

    /// A counter that wraps soon.
    #[cfg(all(test, not(uverbs_loom)))]
    pub(super) const fn near_the_end() -> Self {
        Self {
            delivered: u32::MAX,
            acked: u32::MAX,
        }
    }
}

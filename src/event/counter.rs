//! How many events of one object were read, and how many of those were acked.
//!
//! The kernel counts what is read in 32 bits and lets the count wrap; so does this. Only
//! differences and equality mean anything.

use uverbs_providers::contract::CqReported;

use super::sync::{AtomicU32, AtomicU64, Fault, Ordering, planted};

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
    /// Changes under the table's lock alone.
    delivered: AtomicU32,
    /// In the upper half how many were acked, in the lower half how many sleep until there are more:
    /// so an ack learns in the same step whether it has to wake anybody.
    acked: AtomicU64,
}

/// One more that was acked.
const ACK: u64 = 1 << 32;

impl Counter {
    /// One event more was read for the object. Under the table's lock.
    #[inline(always)]
    pub(super) fn deliver(&self) {
        // Relaxed: nobody else changes it, and whoever needs the exact number has the lock.
        let delivered = self.delivered.load(Ordering::Relaxed);
        self.delivered
            .store(delivered.wrapping_add(1), Ordering::Relaxed);
    }

    /// So many events more were acked. Whether somebody sleeps until then.
    #[inline(always)]
    pub(super) fn ack(&self, count: u32) -> bool {
        // Release: pairs with the Acquire in `acked`; what was done with the object before its event
        // was acked has been done when a destroy that waits for the ack returns.
        let order = if planted(Fault::RelaxedAck) {
            Ordering::Relaxed
        } else {
            Ordering::Release
        };
        let before = self.acked.fetch_add(u64::from(count) * ACK, order);
        !before.is_multiple_of(ACK)
    }

    /// Counts one who sleeps; to be looked at what was acked only afterwards. Then either the ack is
    /// seen, or whoever acks sees the sleeper: both change one word.
    pub(super) fn count_sleeper(&self) {
        self.acked.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn uncount_sleeper(&self) {
        self.acked.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn has_sleepers(&self) -> bool {
        // Relaxed: whoever asks has the order from the table's lock.
        !self.acked.load(Ordering::Relaxed).is_multiple_of(ACK)
    }

    fn acked(&self) -> u32 {
        // Acquire: pairs with the Release in `ack`.
        (self.acked.load(Ordering::Acquire) / ACK) as u32
    }

    /// How many are not acked, of those that were read here. What is acked is looked at first: so it
    /// is never more than was delivered.
    pub(super) fn outstanding(&self) -> u32 {
        self.counts().outstanding
    }

    /// How many are not acked, of those that the kernel says were read.
    pub(super) fn missing(&self, reported: Option<u32>) -> u32 {
        match reported {
            // As a difference with a sign: of a kernel that says fewer than were acked nothing is
            // waited for.
            Some(reported) => match reported.wrapping_sub(self.acked()) {
                missing @ ..=0x7fff_ffff => missing,
                _ => 0,
            },
            None => self.outstanding(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let acked = self.acked();
        let delivered = self.delivered.load(Ordering::Relaxed);
        Counts {
            delivered,
            acked,
            outstanding: delivered.wrapping_sub(acked),
        }
    }

    /// As of a counter that wraps soon.
    #[cfg(all(test, not(uverbs_loom)))]
    pub(super) fn wrap_soon(&self) {
        self.delivered.store(u32::MAX, Ordering::Relaxed);
        self.acked
            .store(u64::from(u32::MAX) * ACK, Ordering::Relaxed);
    }
}

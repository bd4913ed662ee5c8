//! A ring of receives, as a queue pair and a shared receive queue both have one.
//!
//! Ground truth: the kernel's `rxe_queue.h`; it looks at the ring when a packet arrives, and wants
//! no doorbell.

use super::posted;
use super::work::WorkQueue;
use super::wqe::{RECV_HEAD, below, encode_recv, encode_recv_one};
use crate::contract::Posted;
use crate::error::PostError;
use crate::shelf::Numbered;
use crate::types::QueueId;
use crate::wr::RecvWr;

/// The ring itself.
#[derive(Debug)]
pub(super) struct RecvQueue {
    work: WorkQueue<RECV_HEAD>,
    max_sge: u32,
    /// See [`below`].
    below: u32,
    /// Whose it is, for errors.
    id: QueueId,
}

impl Numbered for RecvQueue {}

impl RecvQueue {
    #[inline]
    pub(super) const fn new(work: WorkQueue<RECV_HEAD>, max_sge: u32, id: QueueId) -> Self {
        Self {
            work,
            max_sge,
            below: below(max_sge),
            id,
        }
    }

    /// How many requests it holds.
    pub(super) const fn capacity(&self) -> u32 {
        self.work.capacity()
    }

    /// What was posted under a number.
    pub(super) fn posted(&self, wr_id: u64) -> Vec<Posted> {
        self.work.read_back(|slot| posted::receive(slot, wr_id))
    }

    /// Puts one request in and publishes it, if it is one of the usual ones and there is known to be
    /// room. Otherwise nothing has happened.
    #[inline]
    #[must_use]
    pub(super) fn post_one(&mut self, wr: &RecvWr<'_>) -> bool {
        let below = self.below;
        self.work.is_open()
            && self
                .work
                .post_one(wr, |wr, slot| encode_recv_one(wr, below, slot))
    }

    /// Puts requests in and publishes them at once, if all of them go. Otherwise nothing has happened,
    /// and [`post_until_fault`](Self::post_until_fault) tells why.
    #[inline]
    #[must_use]
    pub(super) fn post_all(&mut self, wrs: &[RecvWr<'_>]) -> bool {
        let below = self.below;
        let filled = self
            .work
            .fill_straight(wrs, |wr, slot| encode_recv_one(wr, below, slot));
        if filled {
            self.work.publish(wrs.len());
            return true;
        }
        self.post_any(wrs)
    }

    /// [`post_all`](Self::post_all) of any requests, wherever they go.
    #[inline(never)]
    fn post_any(&mut self, wrs: &[RecvWr<'_>]) -> bool {
        let max_sge = self.max_sge;
        let filled = self
            .work
            .fill(wrs, |wr, slot| encode_recv(wr, max_sge, slot).is_ok());
        if filled {
            self.work.publish(wrs.len());
        }
        filled
    }

    /// Puts requests in, in order, up to the first that does not go, and publishes them at once.
    #[cold]
    #[inline(never)]
    pub(super) fn post_until_fault(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        let max_sge = self.max_sge;
        self.work
            .post_until_fault(wrs, |wr, slot| encode_recv(wr, max_sge, slot))
            .map_err(|(accepted, cause)| PostError::new(self.id, accepted, cause))
    }

    /// Puts requests in, in order, up to the first that does not go.
    #[inline(never)]
    pub(super) fn post(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        if self.post_all(wrs) {
            Ok(())
        } else {
            self.post_until_fault(wrs)
        }
    }
}

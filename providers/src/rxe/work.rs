//! A ring of work requests: what the send queue, the receive queue and the shared receive queue have
//! in common. What a slot says is the encoder's business, and what happens afterwards the caller's.
//!
//! Ground truth: the kernel's `rxe_queue.h`.
//!
//! Must never publish a slot that was not filled.

use crate::error::{PostCause, PostError};
use crate::ring::{Corrupt, Masked, Producer};
use crate::shared::{Filled, SharedQueue, Slot};

/// The queue and our place in it.
#[derive(Debug)]
pub(super) struct WorkQueue<const HEAD: usize> {
    queue: SharedQueue<HEAD>,
    producer: Producer<Masked>,
}

impl<const HEAD: usize> WorkQueue<HEAD> {
    pub(super) fn new(queue: SharedQueue<HEAD>) -> Result<Self, Corrupt> {
        let rule = Masked::new(queue.mask()).ok_or(Corrupt)?;
        let producer = Producer::new(rule, queue.producer(), queue.consumer())?;
        Ok(Self { queue, producer })
    }

    /// How many requests it holds.
    pub(super) const fn capacity(&self) -> u32 {
        self.queue.mask()
    }

    /// What slots hold of requests that were posted, whether they are done or not, the slot that was
    /// filled last first. For errors.
    pub(super) fn read_back<T>(
        &self,
        mut read: impl FnMut(&Filled<'_, HEAD>) -> Option<T>,
    ) -> Vec<T> {
        let mask = self.queue.mask();
        let newest = self.producer.first().wrapping_sub(1);
        (0..=mask)
            .filter_map(|back| read(&self.queue.slots(newest.wrapping_sub(back) & mask)))
            .collect()
    }

    /// Puts one request in and publishes it, if it goes. Otherwise nothing has happened.
    #[inline]
    #[must_use]
    pub(super) fn post_one<W>(
        &mut self,
        wr: &W,
        encode: impl FnOnce(&W, Slot<'_, HEAD>) -> bool,
    ) -> bool {
        if self.producer.known() == 0 || !encode(wr, self.queue.slot_mut(self.producer.first())) {
            return false;
        }
        self.producer.publish(self.queue.producer(), 1);
        true
    }

    /// Puts requests in and publishes them at once, if all of them go. Otherwise nothing has happened,
    /// and [`post_until_fault`](Self::post_until_fault) tells why.
    #[inline]
    #[must_use]
    pub(super) fn post_all<W>(
        &mut self,
        wrs: &[W],
        mut encode: impl FnMut(&W, Slot<'_, HEAD>) -> bool,
    ) -> bool {
        if !self.producer.has_room(self.queue.consumer(), wrs.len()) {
            return false;
        }
        let mut slots = self.queue.slots_mut(self.producer.first());
        for wr in wrs {
            if !encode(wr, slots.slot()) {
                return false;
            }
            slots.advance();
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "there is room for that many, which an index counts"
        )]
        self.producer
            .publish(self.queue.producer(), wrs.len() as u32);
        true
    }

    /// Puts requests in, in order, up to the first that does not go, and publishes them at once.
    #[cold]
    #[inline(never)]
    pub(super) fn post_until_fault<W>(
        &mut self,
        wrs: &[W],
        mut encode: impl FnMut(&W, Slot<'_, HEAD>) -> Result<(), PostCause>,
    ) -> Result<(), PostError> {
        let wanted = u32::try_from(wrs.len()).unwrap_or(u32::MAX);
        let free = self
            .producer
            .free(self.queue.consumer(), wanted)
            .map_err(|Corrupt| PostError::new(0, PostCause::CorruptRing))?;
        let mut slots = self.queue.slots_mut(self.producer.first());
        let mut filled = 0u32;
        let mut fault = None;
        for wr in wrs {
            if filled == free {
                fault = Some(PostCause::QueueFull);
                break;
            }
            if let Err(cause) = encode(wr, slots.slot()) {
                fault = Some(cause);
                break;
            }
            slots.advance();
            filled = filled.wrapping_add(1);
        }
        self.producer.publish(self.queue.producer(), filled);
        // `filled <= wrs.len()`.
        fault.map_or(Ok(()), |cause| Err(PostError::new(filled as usize, cause)))
    }
}

//! A ring of work requests: what the send queue, the receive queue and the shared receive queue have
//! in common. What a slot says is the encoder's business, and what happens afterwards the caller's.
//!
//! Ground truth: the kernel's `rxe_queue.h`.
//!
//! Must never publish a slot that was not filled.

use crate::error::PostCause;
use crate::ring::{Corrupt, Masked, Producer};
use crate::shared::{Filled, SharedQueue, Slot};

/// The queue and our place in it.
#[derive(Debug)]
pub(super) struct WorkQueue<const HEAD: usize> {
    queue: SharedQueue<HEAD>,
    producer: Producer<Masked>,
}

impl<const HEAD: usize> WorkQueue<HEAD> {
    #[inline]
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
            .filter_map(|back| read(&self.queue.filled(newest.wrapping_sub(back))))
            .collect()
    }

    /// Whether there is known to be room for one request.
    #[inline]
    #[must_use]
    pub(super) const fn is_open(&self) -> bool {
        self.producer.is_open()
    }

    /// Puts one request in, for which there is room, and publishes it, if it goes. Otherwise nothing
    /// has happened.
    #[inline]
    #[must_use]
    pub(super) fn post_one<W>(
        &mut self,
        wr: &W,
        encode: impl FnOnce(&W, Slot<'_, HEAD>) -> bool,
    ) -> bool {
        if !encode(wr, self.queue.slot_mut(self.producer.first())) {
            return false;
        }
        self.producer.publish(self.queue.producer(), 1);
        true
    }

    /// Puts requests in, if there is known to be room for them, up to the last slot, and all of them go.
    /// They are not published.
    #[inline]
    #[must_use]
    pub(super) fn fill_straight<W>(
        &mut self,
        wrs: &[W],
        encode: impl FnMut(&W, Slot<'_, HEAD>) -> bool,
    ) -> bool {
        self.producer.known() as usize >= wrs.len()
            && self.queue.fill_straight(self.producer.first(), wrs, encode)
    }

    /// Puts requests in, if there is room for them and all of them go. They are not published.
    #[inline]
    #[must_use]
    pub(super) fn fill<W>(
        &mut self,
        wrs: &[W],
        encode: impl FnMut(&W, Slot<'_, HEAD>) -> bool,
    ) -> bool {
        self.producer.has_room(self.queue.consumer(), wrs.len())
            && self.queue.fill(self.producer.first(), wrs, encode)
    }

    /// The index of the slot after the last published one.
    pub(super) fn first(&self) -> u32 {
        self.producer.first()
    }

    /// The index of the slot after the last one that was published before these.
    pub(super) fn first_before(&self, count: usize) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "as many are published, which an index counts"
        )]
        let count = count as u32;
        self.first().wrapping_sub(count) & self.capacity()
    }

    /// Publishes requests that have been put in, and for which there is room.
    #[inline]
    pub(super) fn publish(&mut self, count: usize) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "there is room for that many, which an index counts"
        )]
        self.producer.publish(self.queue.producer(), count as u32);
    }

    /// Puts requests in, in order, up to the first that does not go, and publishes them at once. The
    /// error is how many went, and why not all.
    #[cold]
    #[inline(never)]
    pub(super) fn post_until_fault<W>(
        &mut self,
        wrs: &[W],
        mut encode: impl FnMut(&W, Slot<'_, HEAD>) -> Result<(), PostCause>,
    ) -> Result<(), (usize, PostCause)> {
        let wanted = u32::try_from(wrs.len()).unwrap_or(u32::MAX);
        let free = self
            .producer
            .free(self.queue.consumer(), wanted)
            .map_err(|Corrupt| (0, PostCause::CorruptRing))?;
        let (mut filled, mut fault) = (0u32, None);
        // What stops it is told below.
        let _ = self.queue.fill(self.producer.first(), wrs, |wr, slot| {
            let filling = if filled == free {
                Err(PostCause::QueueFull)
            } else {
                encode(wr, slot)
            };
            match filling {
                Ok(()) => filled = filled.wrapping_add(1),
                Err(cause) => fault = Some(cause),
            }
            fault.is_none()
        });
        self.producer.publish(self.queue.producer(), filled);
        // `filled <= wrs.len()`.
        fault.map_or(Ok(()), |cause| Err((filled as usize, cause)))
    }
}

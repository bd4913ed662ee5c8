//! Who may move which index of a ring, and when. No memory, no mapping, no slot: two indices and a
//! rule.
//!
//! Ground truth: the kernel's `rxe_queue.h`, which reads the index that the user moves with
//! `smp_load_acquire` and publishes its own with `smp_store_release`.
//!
//! ```text
//!            consumer                producer
//!               │                       │
//!   ┌───┬───┬───▼───┬───────┬───────┬───▼───┬───┐
//!   │   │   │ taken │ ready │ ready │ free  │   │     what is between the two is the consumer's,
//!   └───┴───┴───────┴───────┴───────┴───────┴───┘     the rest is the producer's
//! ```
//!
//! Each side keeps its own index privately and writes the shared word once for each batch; that
//! word is never read back, so whoever scribbles on it cannot confuse us. Of the other side's index
//! is kept what it allows; it is read again only when that does not cover what is wanted, and
//! believed only if it can be true: otherwise the answer is [`Corrupt`]. Nothing here loops or
//! panics.

use std::sync::atomic::{AtomicU32, Ordering};

use thiserror::Error;

/// A shared index. A trait, so that a model checker's atomics can take the place of real ones.
pub trait Index {
    /// Reads what the other side has published. Pairs with its Release store: the slots that it
    /// had filled, or was done with, are seen as it left them.
    fn load_acquire(&self) -> u32;

    /// Reads without taking part in any ordering.
    fn load_relaxed(&self) -> u32;

    /// Publishes our index. Pairs with the other side's Acquire load: what we did to the slots
    /// comes before.
    fn store_release(&self, value: u32);
}

impl Index for AtomicU32 {
    #[inline]
    fn load_acquire(&self) -> u32 {
        // Acquire: pairs with the kernel's smp_store_release of the index that it moves.
        self.load(Ordering::Acquire)
    }

    #[inline]
    fn load_relaxed(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }

    #[inline]
    fn store_release(&self, value: u32) {
        // Release: pairs with the kernel's smp_load_acquire of the index that we move.
        self.store(value, Ordering::Release);
    }
}

/// The other side's index is one that it cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a ring index is out of range")]
pub struct Corrupt;

/// How a driver counts.
pub trait IndexRule: Copy {
    /// How many entries can be in the ring at once.
    fn capacity(self) -> u32;

    /// Whether an index can have this value at all.
    fn is_valid(self, index: u32) -> bool;

    /// The index `by` entries further on.
    fn step(self, index: u32, by: u32) -> u32;

    /// How many entries lie from `from` up to `to`.
    fn distance(self, from: u32, to: u32) -> u32;

    /// The slot of the entry with this index.
    fn slot(self, index: u32) -> u32;

    /// [`step`](Self::step) by one of the index in the lower half of a word, whose upper half stays as
    /// it is.
    #[inline]
    fn step_low(self, word: u64) -> u64 {
        pack(self.step(low(word), 1), high(word))
    }
}

/// Two numbers in one word.
#[inline]
const fn pack(low: u32, high: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// The lower half of a word.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the lower half is what is asked for"
)]
pub(crate) const fn low(word: u64) -> u32 {
    word as u32
}

/// The upper half of a word.
#[inline]
const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// rxe's rule: indices are stored masked, and one slot stays empty, so that full and empty differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Masked {
    /// The mask of a slot's number, below ones for the upper half.
    wide: u64,
}

impl Masked {
    /// The rule for `mask + 1` slots, if that is a power of two that fits a `u32`. A ring of one
    /// slot can hold nothing; rxe makes such for a queue that is asked for with size 0.
    #[must_use]
    pub const fn new(mask: u32) -> Option<Self> {
        if mask != u32::MAX && mask & mask.wrapping_add(1) == 0 {
            Some(Self {
                wide: pack(mask, u32::MAX),
            })
        } else {
            None
        }
    }

    #[inline]
    const fn mask(self) -> u32 {
        low(self.wide)
    }
}

impl IndexRule for Masked {
    #[inline]
    fn capacity(self) -> u32 {
        self.mask()
    }

    #[inline]
    fn is_valid(self, index: u32) -> bool {
        index <= self.mask()
    }

    #[inline]
    fn step(self, index: u32, by: u32) -> u32 {
        index.wrapping_add(by) & self.mask()
    }

    #[inline]
    fn distance(self, from: u32, to: u32) -> u32 {
        to.wrapping_sub(from) & self.mask()
    }

    #[inline]
    fn slot(self, index: u32) -> u32 {
        index & self.mask()
    }

    #[inline]
    fn step_low(self, word: u64) -> u64 {
        // Nothing is carried into the upper half: an index is at most 2³¹ - 1.
        word.wrapping_add(1) & self.wide
    }
}

/// Both indices as they lie in shared memory, checked: (ours, theirs).
fn adopt(
    rule: impl IndexRule,
    ours: &impl Index,
    theirs: &impl Index,
) -> Result<(u32, u32), Corrupt> {
    let (ours, theirs) = (ours.load_relaxed(), theirs.load_acquire());
    if rule.is_valid(ours) && rule.is_valid(theirs) {
        Ok((ours, theirs))
    } else {
        Err(Corrupt)
    }
}

/// The side that fills slots.
#[derive(Clone, Copy, Debug)]
pub struct Producer<R> {
    rule: R,
    /// Ours: the next slot to fill. The shared word is a copy of it.
    next: u32,
    /// Up to where slots may be filled, as far as the other side's index was last seen. Kept as an
    /// index, which stays as it is when slots are published.
    limit: u32,
}

impl<R: IndexRule> Producer<R> {
    /// Takes over the producer's side of a ring.
    ///
    /// # Errors
    /// [`Corrupt`] if either index cannot be.
    pub fn new(rule: R, producer: &impl Index, consumer: &impl Index) -> Result<Self, Corrupt> {
        let (next, consumer) = adopt(rule, producer, consumer)?;
        let used = rule.distance(consumer, next);
        let free = rule.capacity().checked_sub(used).ok_or(Corrupt)?;
        let limit = rule.step(next, free);
        Ok(Self { rule, next, limit })
    }

    /// Whether a slot may be filled, as far as the consumer's index was last seen.
    #[inline]
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.next != self.limit
    }

    /// How many slots may be filled, as far as the consumer's index was last seen.
    #[inline]
    #[must_use]
    pub fn known(&self) -> u32 {
        self.rule.distance(self.next, self.limit)
    }

    /// How many slots may be filled now. Looks at the consumer's index only if what was known
    /// before does not cover `wanted`.
    ///
    /// # Errors
    /// [`Corrupt`] if the consumer has moved to where it cannot be: out of the ring, backwards, or
    /// past the producer.
    #[inline]
    pub fn free(&mut self, consumer: &impl Index, wanted: u32) -> Result<u32, Corrupt> {
        let known = self.known();
        if known >= wanted {
            Ok(known)
        } else {
            self.look(consumer)
        }
    }

    /// Whether `wanted` slots may be filled. Looks at the consumer's index only if what was known
    /// before does not cover them; a no may also mean that the index cannot be.
    #[inline]
    #[must_use]
    pub fn has_room(&mut self, consumer: &impl Index, wanted: usize) -> bool {
        self.known() as usize >= wanted
            || self
                .look(consumer)
                .is_ok_and(|free| free as usize >= wanted)
    }

    // Once for many requests, so not where each of them is posted.
    #[inline(never)]
    fn look(&mut self, consumer: &impl Index) -> Result<u32, Corrupt> {
        // Acquire in the trait: pairs with the consumer's Release store after it was done with the
        // slots, so that filling them anew cannot come before.
        let seen = consumer.load_acquire();
        let used = self.rule.distance(seen, self.next);
        match self.rule.capacity().checked_sub(used) {
            // Less than before means that it went backwards.
            Some(free) if self.rule.is_valid(seen) && free >= self.known() => {
                self.limit = self.rule.step(self.next, free);
                Ok(free)
            }
            _ => Err(Corrupt),
        }
    }

    /// The slot after the last published one.
    #[inline]
    #[must_use]
    pub fn first(&self) -> u32 {
        // Ours is always one that can be.
        self.next
    }

    /// The slot that comes `ahead` after the last published one. Filling it is allowed if `ahead`
    /// is less than what [`free`](Self::free) gave.
    #[inline]
    #[must_use]
    pub fn slot(&self, ahead: u32) -> u32 {
        self.rule.slot(self.rule.step(self.next, ahead))
    }

    /// Hands over the next `count` slots with one store. Filled slots that are not published stay
    /// ours and are filled again next time.
    #[inline]
    pub fn publish(&mut self, producer: &impl Index, count: u32) {
        // More than is free would overtake the consumer; callers never ask for it.
        debug_assert!(count <= self.known(), "published more slots than were free");
        if count != 0 {
            self.next = self.rule.step(self.next, count);
            // Release in the trait: the consumer must see the slots filled.
            producer.store_release(self.next);
        }
    }
}

/// What a [`glance`](Consumer::glance) shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glance {
    /// No filled slot is waiting.
    Nothing,
    /// Just one is; this is the index that was seen.
    One(u32),
    /// [`Consumer::ready_at`] tells, of the index that was seen.
    Else(u32),
}

/// The side that empties slots.
#[derive(Clone, Copy, Debug)]
pub struct Consumer<R> {
    rule: R,
    /// In the lower half the next slot to take, which is ours: the shared word is a copy of it. In the
    /// upper half how many slots from there on are filled, as far as the other side's index was last
    /// seen. In one word, so that to compare it with an index asks of both.
    place: u64,
}

impl<R: IndexRule> Consumer<R> {
    /// Takes over the consumer's side of a ring.
    ///
    /// # Errors
    /// [`Corrupt`] if either index cannot be.
    pub fn new(rule: R, producer: &impl Index, consumer: &impl Index) -> Result<Self, Corrupt> {
        let (next, producer) = adopt(rule, consumer, producer)?;
        let ready = rule.distance(next, producer);
        if ready <= rule.capacity() {
            let place = pack(next, ready);
            Ok(Self { rule, place })
        } else {
            Err(Corrupt)
        }
    }

    /// How this ring counts.
    #[must_use]
    pub const fn rule(&self) -> R {
        self.rule
    }

    /// How many filled slots are waiting, as far as the producer's index was last seen.
    #[inline]
    #[must_use]
    pub const fn known(&self) -> u32 {
        high(self.place)
    }

    /// The slot after the last released one, if none is known to be filled: then it is all there is to
    /// know, and [`resume`](Self::resume) goes on from it.
    #[inline]
    #[must_use]
    pub const fn idle_at(&self) -> Option<u32> {
        if self.known() == 0 {
            Some(low(self.place))
        } else {
            None
        }
    }

    /// Goes on where others have come to, who started from [`idle_at`](Self::idle_at) and released
    /// slots by the same rule.
    #[inline]
    pub const fn resume(&mut self, next: u32) {
        self.place = pack(next, 0);
    }

    /// In as few steps as can be, whether there is nothing or one: both say so only of an index that
    /// can be, and only if nothing was known to be there.
    #[inline]
    #[must_use]
    pub fn glance(&self, producer: &impl Index) -> Glance {
        // Acquire in the trait: pairs with the producer's Release store after it filled the slot.
        let seen = producer.load_acquire();
        // An index is no more than the lower half, so it equals a word that knows of nothing only.
        if u64::from(seen) == self.place {
            Glance::Nothing
        } else if u64::from(seen) == self.rule.step_low(self.place) {
            Glance::One(seen)
        } else {
            Glance::Else(seen)
        }
    }

    /// Gives back the one slot that a [`glance`](Self::glance) showed, with the index that it saw.
    #[inline]
    pub fn release_one(&mut self, consumer: &impl Index, seen: u32) {
        debug_assert!(
            u64::from(seen) == self.rule.step_low(self.place),
            "more was known to be there, or not just one"
        );
        self.place = u64::from(seen);
        // Release in the trait: the producer may fill the slot again only after our reads.
        consumer.store_release(seen);
    }

    /// How many filled slots are waiting. Looks at the producer's index only if what was known
    /// before does not cover `wanted`. Moves nothing, however often it is called.
    ///
    /// # Errors
    /// [`Corrupt`] if the producer has moved to where it cannot be: out of the ring, backwards, or
    /// past the consumer.
    #[inline]
    pub fn available(&mut self, producer: &impl Index, wanted: u32) -> Result<u32, Corrupt> {
        if self.known() >= wanted {
            Ok(self.known())
        } else {
            self.look(producer)
        }
    }

    /// Looks at the producer's index in any case; gives how many filled slots are waiting.
    ///
    /// # Errors
    /// As [`available`](Self::available).
    #[inline]
    pub fn look(&mut self, producer: &impl Index) -> Result<u32, Corrupt> {
        // Acquire in the trait: pairs with the producer's Release store after it filled the slots.
        let ready = self.ready_at(producer.load_acquire())?;
        self.place = pack(self.first(), ready);
        Ok(ready)
    }

    /// How many filled slots are waiting by an index that a [`glance`](Self::glance) showed.
    ///
    /// # Errors
    /// As [`available`](Self::available).
    #[inline]
    pub fn ready_at(&self, seen: u32) -> Result<u32, Corrupt> {
        let ready = self.rule.distance(self.first(), seen);
        if !self.rule.is_valid(seen) || ready < self.known() || ready > self.rule.capacity() {
            return Err(Corrupt);
        }
        Ok(ready)
    }

    /// The slot after the last released one.
    #[inline]
    #[must_use]
    pub const fn first(&self) -> u32 {
        // Ours is always one that can be.
        low(self.place)
    }

    /// The slot that comes `ahead` after the last released one. Reading it is allowed if `ahead`
    /// is less than what [`available`](Self::available) gave.
    #[inline]
    #[must_use]
    pub fn slot(&self, ahead: u32) -> u32 {
        self.rule.slot(self.rule.step(self.first(), ahead))
    }

    /// Gives the next `count` slots back with one store; none at all if `count` is 0.
    #[inline]
    pub fn release(&mut self, consumer: &impl Index, count: u32) {
        if count != 0 {
            self.release_of(consumer, self.known(), count);
        }
    }

    /// Gives the next `count` slots back of the `ready` that [`ready_at`](Self::ready_at) gave, with
    /// one store in any case.
    #[inline]
    pub fn release_of(&mut self, consumer: &impl Index, ready: u32, count: u32) {
        // More than is there would pass the producer; callers never ask for it.
        debug_assert!(count <= ready, "released more slots than were filled");
        let next = self.rule.step(self.first(), count);
        self.place = pack(next, ready.wrapping_sub(count));
        // Release in the trait: the producer may fill the slots again only after our reads.
        consumer.store_release(next);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests;

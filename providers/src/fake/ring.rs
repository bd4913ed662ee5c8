//! The kernel's side of a mapped queue: the index that we move is private, the user's is read.
//!
//! Ground truth: `struct rxe_queue_buf`, and the kernel's `rxe_queue.c` for how sizes are rounded.
//! The slots are reached by whole words of 8 bytes, the indices by words of 4, as the other side
//! does it, so that no two accesses of different sizes ever race.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uverbs_abi::layout::rxe::queue_buf;
use uverbs_abi::{Errno, Mapping};
use zerocopy::FromZeros;

use super::faults::Spoil;
use crate::shared::SharedQueue;

const WORD: usize = size_of::<u64>();

/// One queue of the kernel's.
#[derive(Debug)]
pub(super) struct Ring {
    words: Arc<[AtomicU64]>,
    header: SharedQueue<WORD>,
    /// Words of a slot.
    stride: usize,
    mask: u32,
    /// The consumer's index of a work queue, the producer's of a completion queue.
    index: u32,
}

/// Two 32-bit values that follow one another.
fn pair(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

impl Ring {
    /// A queue for at least `asked` entries of `bytes` bytes.
    pub(super) fn new(asked: u32, bytes: usize) -> Result<Self, Errno> {
        let slots = asked
            .checked_add(1)
            .and_then(u32::checked_next_power_of_two)
            .ok_or(Errno::EINVAL)?;
        let slot = bytes.next_power_of_two().max(64);
        let len = queue_buf::DATA + usize::try_from(slots).map_err(|_| Errno::ENOMEM)? * slot;
        let words = AtomicU64::new_vec_zeroed(len / WORD).map_err(|_| Errno::ENOMEM)?;
        let words: Arc<[AtomicU64]> = words.into();
        let mask = slots - 1;
        if let Some(first) = words.first() {
            first.store(pair(slot.trailing_zeros(), mask), Ordering::Relaxed);
        }
        let header = SharedQueue::new(Mapping::Heap(Arc::clone(&words)));
        let header = header.map_err(|_| Errno::EINVAL)?;
        Ok(Self {
            words,
            header,
            stride: slot / WORD,
            mask,
            index: 0,
        })
    }

    /// The memory, to be mapped.
    pub(super) const fn words(&self) -> &Arc<[AtomicU64]> {
        &self.words
    }

    /// Bytes of the memory.
    pub(super) fn len(&self) -> usize {
        size_of_val::<[AtomicU64]>(&self.words)
    }

    /// Entries that it holds.
    pub(super) const fn capacity(&self) -> u32 {
        self.mask
    }

    fn slot(&self, index: u32) -> &[AtomicU64] {
        let at = usize::try_from(index & self.mask).unwrap_or_default() * self.stride;
        let start = queue_buf::DATA / WORD + at;
        self.words
            .get(start..start + self.stride)
            .unwrap_or_default()
    }

    /// Entries of a work queue that the user has put in and we have not taken.
    pub(super) fn waiting(&self) -> u32 {
        // Acquire: pairs with the user's Release store after filling the slots.
        let producer = self.header.producer().load(Ordering::Acquire);
        producer.wrapping_sub(self.index) & self.mask
    }

    /// The oldest entry of a work queue.
    pub(super) fn head(&self) -> Option<Vec<u64>> {
        let words = || {
            self.slot(self.index)
                .iter()
                .map(|word| word.load(Ordering::Relaxed))
                .collect()
        };
        (self.waiting() != 0).then(words)
    }

    /// Is done with the oldest entry.
    pub(super) fn advance(&mut self) {
        self.index = self.index.wrapping_add(1) & self.mask;
        // Release: pairs with the user's Acquire load before a slot is filled again.
        self.header.consumer().store(self.index, Ordering::Release);
    }

    /// Puts an entry into a completion queue; false if it is full.
    pub(super) fn push(&mut self, entry: &[u64]) -> bool {
        // Acquire: pairs with the user's Release store after reading the slots.
        let consumer = self.header.consumer().load(Ordering::Acquire);
        let next = self.index.wrapping_add(1) & self.mask;
        if next == consumer & self.mask {
            return false;
        }
        for (word, value) in self.slot(self.index).iter().zip(entry) {
            word.store(*value, Ordering::Relaxed);
        }
        self.index = next;
        // Release: pairs with the user's Acquire load before a slot is read.
        self.header.producer().store(next, Ordering::Release);
        true
    }

    /// What the move to RESET does: the slots are zeroed, the indices stay.
    pub(super) fn wipe(&mut self) {
        for word in self.words.iter().skip(queue_buf::DATA / WORD) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Scribbles over the header.
    pub(super) fn spoil(&self, spoil: Spoil) {
        let log2 = (self.stride * WORD).trailing_zeros();
        let first = |value| {
            if let Some(word) = self.words.first() {
                word.store(value, Ordering::Relaxed);
            }
        };
        match spoil {
            Spoil::SlotSize(wrong) => first(pair(wrong, self.mask)),
            Spoil::IndexMask(wrong) => first(pair(log2, wrong)),
            Spoil::Producer(wrong) => self.header.producer().store(wrong, Ordering::Release),
            Spoil::Consumer(wrong) => self.header.consumer().store(wrong, Ordering::Release),
            Spoil::NoQueue | Spoil::Unmappable => {}
        }
    }
}

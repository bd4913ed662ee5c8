//! UNSAFE ROOM 2: memory that another party reads and writes at the same time.
//!
//! Ground truth: `struct rxe_queue_buf` in `rdma/rdma_user_rxe.h`: a header with two constants and
//! two indices, then the slots. The constants are read once, checked against the mapping, and kept;
//! what the shared memory says about them later counts for nothing.
//!
//! Every access is a relaxed atomic one, of 4 bytes in the header and of 8 bytes in a slot. So even
//! a party that breaks the index protocol makes wrong values here and never a data race, and no
//! `&` or `&mut` to plain memory that somebody else writes ever exists. On the machines that matter
//! such an access is an ordinary load or store.
#![allow(
    unsafe_code,
    reason = "follows the pointer of a mapping that the kernel shares"
)]

mod slot;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use uverbs_abi::Mapping;
use uverbs_abi::layout::rxe::queue_buf;

use self::slot::Cursor;
pub use self::slot::{Filled, Slot, Slots, Tail};

/// Slots are at least a cache line…
const MIN_LOG2_SLOT: u32 = 6;
/// … and no driver makes them longer than this.
const MAX_LOG2_SLOT: u32 = 16;

/// Bytes that one access to a slot moves.
const WORD: usize = size_of::<u64>();

/// A mapped queue whose slots have at least `HEAD` bytes.
pub struct SharedQueue<const HEAD: usize> {
    /// First byte of the mapping.
    base: *mut u8,
    mask: u32,
    /// Bytes of a slot, a power of two.
    step: usize,
    /// Bytes of all slots less one; their number is a power of two as well.
    wrap: usize,
    /// Words of a slot after its head.
    tail: usize,
    /// Owns what `base` points to; never replaced.
    mapping: Arc<Mapping>,
}

// SAFETY: `base` points into `mapping`, which moves along and is itself Send; the memory belongs
// to no thread, and is reached by atomic accesses only.
unsafe impl<const HEAD: usize> Send for SharedQueue<HEAD> {}

impl<const HEAD: usize> SharedQueue<HEAD> {
    /// Bytes that every slot has, since its length is a power of two.
    const LEAST_SLOT: usize = if HEAD > 1 << MIN_LOG2_SLOT {
        HEAD.next_power_of_two()
    } else {
        1 << MIN_LOG2_SLOT
    };

    /// Takes a mapping over, if its header describes a queue that fits into it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(mapping: Mapping) -> Result<Self, &'static str> {
        const { assert!(HEAD.is_multiple_of(WORD) && HEAD != 0) };
        let base = mapping.base().as_ptr();
        if mapping.len() < queue_buf::DATA {
            return Err("the mapping is shorter than the queue's header");
        }
        if !base.addr().is_multiple_of(align_of::<AtomicU64>()) {
            return Err("the mapping is not aligned");
        }
        let mut this = Self {
            base,
            mask: 0,
            step: 1 << MIN_LOG2_SLOT,
            wrap: 0,
            tail: 0,
            mapping: Arc::new(mapping),
        };
        let log2_slot = this
            .header_word::<{ queue_buf::LOG2_ELEM_SIZE }>()
            .load(Ordering::Relaxed);
        let mask = this
            .header_word::<{ queue_buf::INDEX_MASK }>()
            .load(Ordering::Relaxed);
        if !(MIN_LOG2_SLOT..=MAX_LOG2_SLOT).contains(&log2_slot) {
            return Err("the slot size is out of range");
        }
        if HEAD > 1 << log2_slot {
            return Err("the slots are too small");
        }
        if mask & mask.wrapping_add(1) != 0 {
            return Err("the number of slots is no power of two");
        }
        // At most 2^32 slots of 2^16 bytes: no overflow in 64 bits.
        let needed = ((u64::from(mask) + 1) << log2_slot) + queue_buf::DATA as u64;
        if usize::try_from(needed).is_ok_and(|needed| needed <= this.mapping.len()) {
            this.mask = mask;
            this.step = 1 << log2_slot;
            // What is needed fits a `usize`, so this does.
            this.wrap = (mask as usize + 1) * this.step - 1;
            this.tail = (this.step - HEAD) / WORD;
            Ok(this)
        } else {
            Err("the slots do not fit into the mapping")
        }
    }

    /// Number of slots less one.
    #[inline]
    #[must_use]
    pub const fn mask(&self) -> u32 {
        self.mask
    }

    /// Bytes of a slot.
    #[inline]
    #[must_use]
    pub const fn slot_len(&self) -> usize {
        self.step
    }

    /// The index that the filling side moves.
    #[inline]
    #[must_use]
    pub fn producer(&self) -> &AtomicU32 {
        self.header_word::<{ queue_buf::PRODUCER_INDEX }>()
    }

    /// The index that the emptying side moves.
    #[inline]
    #[must_use]
    pub fn consumer(&self) -> &AtomicU32 {
        self.header_word::<{ queue_buf::CONSUMER_INDEX }>()
    }

    /// The same index for others to look at, while the queue is in somebody's hands.
    #[must_use]
    pub fn producer_index(&self) -> ProducerIndex {
        ProducerIndex {
            word: self.producer().as_ptr(),
            _mapping: Arc::clone(&self.mapping),
        }
    }

    #[inline]
    fn header_word<const AT: usize>(&self) -> &AtomicU32 {
        const { assert!(AT.is_multiple_of(size_of::<u32>()) && AT + 4 <= queue_buf::DATA) };
        let word = self.base.wrapping_add(AT).cast::<u32>();
        // SAFETY: `AT + 4 <= DATA` (above) and `DATA <= len` (`new`), so the word lies in the
        // mapping, which lives as long as `self`; `base` is 8-aligned and `AT` 4-aligned; both we
        // and the kernel reach the words of the header by whole-word accesses only.
        unsafe { AtomicU32::from_ptr(word) }
    }

    /// Somebody at one of the slots; an index beyond the last one comes round again.
    #[inline]
    const fn cursor(&self, index: u32) -> Cursor {
        Cursor {
            data: self.base.wrapping_add(queue_buf::DATA),
            offset: (index as usize).wrapping_mul(self.step),
            step: self.step,
            wrap: self.wrap,
        }
    }

    /// A slot to be filled.
    #[inline]
    pub fn slot_mut(&mut self, index: u32) -> Slot<'_, HEAD> {
        Slot::new(self.cursor(index), self.tail)
    }

    /// The slots from one on, to be filled one after another.
    #[inline]
    pub fn slots_mut(&mut self, first: u32) -> Slots<'_, HEAD> {
        Slots::new(self.cursor(first), self.tail)
    }

    /// The slots from one on, to be read one after another.
    #[inline]
    #[must_use]
    pub fn slots(&self, first: u32) -> Filled<'_, HEAD> {
        Filled::new(self.cursor(first))
    }

    /// Copies the first `N` 8-byte words of a slot out.
    #[inline]
    #[must_use]
    pub fn copy_out<const N: usize>(&self, index: u32) -> [u64; N] {
        self.slots(index).copy_out()
    }
}

impl<const HEAD: usize> fmt::Debug for SharedQueue<HEAD> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedQueue")
            .field("mask", &self.mask)
            .field("slot_len", &self.slot_len())
            .field("producer", &self.producer().load(Ordering::Relaxed))
            .field("consumer", &self.consumer().load(Ordering::Relaxed))
            .finish()
    }
}

/// The index that the filling side of a queue moves, apart from the queue. The memory stays mapped for
/// as long as this lives.
pub struct ProducerIndex {
    /// Into the mapping; never replaced.
    word: *mut u32,
    /// Owns what `word` points to.
    _mapping: Arc<Mapping>,
}

// SAFETY: `word` points into `_mapping`, which moves along and is itself Send and Sync; it is reached
// by atomic accesses only.
unsafe impl Send for ProducerIndex {}
// SAFETY: as above.
unsafe impl Sync for ProducerIndex {}

impl ProducerIndex {
    /// The index.
    #[inline]
    #[must_use]
    pub fn get(&self) -> &AtomicU32 {
        // SAFETY: `word` came from a reference to this very word (`producer_index`), which lies in the
        // mapping; that is unmapped no earlier than `self` is dropped. All access is by whole words.
        unsafe { AtomicU32::from_ptr(self.word) }
    }
}

impl fmt::Debug for ProducerIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProducerIndex({})", self.get().load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests;

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

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use uverbs_abi::Mapping;
use uverbs_abi::layout::rxe::queue_buf;

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
    log2_slot: u32,
    /// Words of a slot after its head.
    tail: usize,
    /// Owns what `base` points to; never replaced.
    _mapping: Mapping,
}

// SAFETY: `base` points into `_mapping`, which moves along and is itself Send; the memory belongs
// to no thread, and is reached by atomic accesses only.
unsafe impl<const HEAD: usize> Send for SharedQueue<HEAD> {}

impl<const HEAD: usize> SharedQueue<HEAD> {
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
            log2_slot: MIN_LOG2_SLOT,
            tail: 0,
            _mapping: mapping,
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
        if usize::try_from(needed).is_ok_and(|needed| needed <= this._mapping.len()) {
            this.mask = mask;
            this.log2_slot = log2_slot;
            this.tail = (this.slot_len() - HEAD) / WORD;
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
        1 << self.log2_slot
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

    #[inline]
    fn header_word<const AT: usize>(&self) -> &AtomicU32 {
        const { assert!(AT.is_multiple_of(size_of::<u32>()) && AT + 4 <= queue_buf::DATA) };
        let word = self.base.wrapping_add(AT).cast::<u32>();
        // SAFETY: `AT + 4 <= DATA` (above) and `DATA <= len` (`new`), so the word lies in the
        // mapping, which lives as long as `self`; `base` is 8-aligned and `AT` 4-aligned; both we
        // and the kernel reach the words of the header by whole-word accesses only.
        unsafe { AtomicU32::from_ptr(word) }
    }

    /// First byte of a slot; an index beyond the last one is masked into the ring.
    #[inline]
    fn slot_base(&self, index: u32) -> *mut u8 {
        let offset = ((index & self.mask) as usize) << self.log2_slot;
        self.base.wrapping_add(queue_buf::DATA).wrapping_add(offset)
    }

    /// A slot to be filled.
    #[inline]
    pub fn slot_mut(&mut self, index: u32) -> Slot<'_, HEAD> {
        let base = self.slot_base(index);
        Slot {
            base,
            next: base.wrapping_add(HEAD),
            room: self.tail,
            queue: PhantomData,
        }
    }

    /// Copies the first `N` 8-byte words of a slot out.
    #[inline]
    #[must_use]
    pub fn copy_out<const N: usize>(&self, index: u32) -> [u64; N] {
        const { assert!(N * WORD <= HEAD) };
        let base = self.slot_base(index);
        std::array::from_fn(|i| {
            let word = base.wrapping_add(i * WORD).cast::<u64>();
            // SAFETY: `slot_base` gives a slot of this queue, all of which lie in the mapping
            // (`new`), and `(i + 1) * 8 <= HEAD <= slot_len`; slots start at multiples of 64 from
            // the 8-aligned base; the kernel may write at the same time, hence atomic.
            unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Relaxed)
        })
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

/// One slot of a queue, to be filled word by word: a head whose places are known when compiling,
/// and a tail that grows.
pub struct Slot<'q, const HEAD: usize> {
    /// Its first byte; `HEAD` bytes from here belong to it.
    base: *mut u8,
    /// Where the tail goes on; `room` words from here belong to it.
    next: *mut u8,
    room: usize,
    queue: PhantomData<&'q mut SharedQueue<HEAD>>,
}

impl<const HEAD: usize> Slot<'_, HEAD> {
    /// The same slot for somebody else to go on with.
    #[inline]
    pub fn reborrow(&mut self) -> Slot<'_, HEAD> {
        Slot {
            base: self.base,
            next: self.next,
            room: self.room,
            queue: PhantomData,
        }
    }

    /// Fills the 8 bytes at `AT`, which must lie in the head: the compiler checks it.
    #[inline]
    pub fn put<const AT: usize>(&mut self, word: u64) {
        const { assert!(AT.is_multiple_of(WORD) && AT + WORD <= HEAD) };
        let at = self.base.wrapping_add(AT).cast::<u64>();
        // SAFETY: `AT + 8 <= HEAD`, and the head lies in the mapping (`SharedQueue::new`: a slot
        // has at least `HEAD` bytes, and all slots fit), which the borrow of the queue keeps alive;
        // slots start at multiples of 64 from the 8-aligned base and `AT` is a multiple of 8; the
        // kernel may look at the same time, hence atomic.
        unsafe { AtomicU64::from_ptr(at) }.store(word, Ordering::Relaxed);
    }

    /// Appends 8 bytes to the tail. In a full slot nothing happens: callers know from the limits,
    /// checked against the slot's length when the queue was made, that there is room.
    #[inline]
    pub fn push(&mut self, word: u64) {
        debug_assert!(self.room != 0, "the slot is full");
        if let Some(room) = self.room.checked_sub(1) {
            let at = self.next.cast::<u64>();
            // SAFETY: `room` words from `next` lie in the slot, and it was at least 1; `next` is a
            // multiple of 8 from a slot start that is itself 64-aligned to the 8-aligned base; the
            // mapping is kept alive by the borrow of the queue; the kernel may look, hence atomic.
            unsafe { AtomicU64::from_ptr(at) }.store(word, Ordering::Relaxed);
            self.next = self.next.wrapping_add(WORD);
            self.room = room;
        }
    }

    /// Appends two words for each item, as [`push`](Self::push) would one by one; ends the tail.
    #[inline]
    pub fn push_pairs<T>(self, items: &[T], mut words: impl FnMut(&T) -> [u64; 2]) {
        debug_assert!(items.len() <= self.room / 2, "the slot is full");
        let mut at = self.next.cast::<u64>();
        // No more items than there is room for, so the loop need not look again.
        for item in items.iter().take(self.room / 2) {
            for word in words(item) {
                // SAFETY: `room` words from `next` lie in the slot, and at most that many are
                // written, one after another; alignment, owner and the other party as in `push`.
                unsafe { AtomicU64::from_ptr(at) }.store(word, Ordering::Relaxed);
                at = at.wrapping_add(1);
            }
        }
    }
}

impl<const HEAD: usize> fmt::Debug for Slot<'_, HEAD> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Slot({HEAD} bytes of head, room for {} words)",
            self.room
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use uverbs_abi::Mapping;

    use super::SharedQueue;

    fn words(bytes: usize, log2: u32, mask: u32) -> Arc<[AtomicU64]> {
        let words: Arc<[AtomicU64]> = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
        if let Some(first) = words.first() {
            let [a, b, c, d] = log2.to_ne_bytes();
            let [e, f, g, h] = mask.to_ne_bytes();
            first.store(
                u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
                Ordering::Relaxed,
            );
        }
        words
    }

    fn queue(bytes: usize, log2: u32, mask: u32) -> Result<SharedQueue<48>, &'static str> {
        SharedQueue::new(Mapping::Heap(words(bytes, log2, mask)))
    }

    #[test]
    fn takes_what_fits_exactly_and_nothing_less() {
        let queue_of = |bytes| queue(bytes, 6, 3);
        let made = queue_of(384 + 4 * 64).unwrap();
        assert_eq!((made.mask(), made.slot_len()), (3, 64));
        assert!(queue_of(384 + 4 * 64 - 8).is_err());
        assert!(queue_of(384).is_err());
        assert!(queue_of(376).is_err());
        assert!(queue_of(0).is_err());
    }

    #[test]
    fn refuses_headers_that_cannot_be() {
        for (log2, mask) in [
            (5, 3),
            (17, 3),
            (0, 3),
            (u32::MAX, 3),
            (6, 2),
            (6, 4),
            (6, u32::MAX),
            (16, 1),
        ] {
            assert!(queue(4096, log2, mask).is_err(), "log2 {log2}, mask {mask}");
        }
        let small = SharedQueue::<208>::new(Mapping::Heap(words(4096, 7, 3)));
        assert_eq!(small.unwrap_err(), "the slots are too small");
    }

    #[test]
    fn writes_inside_its_slot_only() {
        let memory = words(384 + 4 * 64, 6, 3);
        let mut queue = SharedQueue::<48>::new(Mapping::Heap(Arc::clone(&memory))).unwrap();
        // 6 is slot 2 once more.
        let mut slot = queue.slot_mut(6);
        slot.put::<0>(1);
        slot.put::<40>(2);
        slot.push(3);
        slot.reborrow().push(4);
        let found: Vec<(usize, u64)> = memory
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .enumerate()
            .skip(1)
            .filter(|(_, word)| *word != 0)
            .collect();
        let start = (384 + 2 * 64) / 8;
        assert_eq!(
            found,
            [(start, 1), (start + 5, 2), (start + 6, 3), (start + 7, 4)]
        );
        assert_eq!(queue.copy_out::<6>(2), [1, 0, 0, 0, 0, 2]);
    }

    #[test]
    fn pairs_end_with_the_slot() {
        let memory = words(384 + 4 * 64, 6, 3);
        let mut queue = SharedQueue::<40>::new(Mapping::Heap(Arc::clone(&memory))).unwrap();
        queue.slot_mut(3).push_pairs(&[7], |n| [*n, *n + 1]);
        let at = (384 + 3 * 64 + 40) / 8;
        let found: Vec<u64> = memory
            .iter()
            .skip(at)
            .map(|word| word.load(Ordering::Relaxed))
            .collect();
        assert_eq!(found, [7, 8, 0]);
        let wrote = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            queue.slot_mut(0).push_pairs(&[1, 2, 3], |_| [u64::MAX; 2]);
        }));
        assert_eq!(wrote.is_err(), cfg!(debug_assertions));
        let next_slot = (384 + 64) / 8;
        assert!(
            memory
                .iter()
                .skip(next_slot)
                .all(|w| w.load(Ordering::Relaxed) != u64::MAX)
        );
    }

    #[test]
    fn a_full_slot_takes_no_more() {
        let memory = words(384 + 4 * 64, 6, 3);
        let mut queue = SharedQueue::<48>::new(Mapping::Heap(Arc::clone(&memory))).unwrap();
        let mut slot = queue.slot_mut(0);
        slot.push(1);
        slot.push(2);
        for _ in 0..3 {
            let wrote = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                slot.push(u64::MAX);
            }));
            assert_eq!(wrote.is_err(), cfg!(debug_assertions));
        }
        assert!(
            memory
                .iter()
                .all(|word| word.load(Ordering::Relaxed) != u64::MAX)
        );
    }

    #[test]
    fn the_indices_are_where_the_kernel_has_them() {
        let memory = words(384 + 4 * 64, 6, 3);
        let queue = SharedQueue::<48>::new(Mapping::Heap(Arc::clone(&memory))).unwrap();
        queue.producer().store(u32::MAX, Ordering::Relaxed);
        queue.consumer().store(u32::MAX, Ordering::Relaxed);
        let at = |byte: usize| {
            memory
                .get(byte / 8)
                .unwrap()
                .load(Ordering::Relaxed)
                .to_ne_bytes()
        };
        assert_eq!(at(128), [255, 255, 255, 255, 0, 0, 0, 0]);
        assert_eq!(at(256), [255, 255, 255, 255, 0, 0, 0, 0]);
    }
}

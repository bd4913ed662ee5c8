//! UNSAFE ROOM 2: memory that another party reads and writes at the same time.
//!
//! Ground truth: `struct rxe_queue_buf` in `rdma/rdma_user_rxe.h`: a header with two constants and
//! two indices, then the slots. The constants are read once, checked against the mapping, and kept;
//! what the shared memory says about them later counts for nothing.
//!
//! Every access is a relaxed atomic one, of 4 bytes in the header and of 8 bytes in a slot, or, on
//! x86-64, a move of 16 bytes in an assembler block, which the machine makes two of the latter at the
//! worst. So even a party that breaks the index protocol makes wrong values here and never a data
//! race, and no `&` or `&mut` to plain memory that somebody else writes ever exists. On the machines
//! that matter such an access is an ordinary load or store.
#![allow(
    unsafe_code,
    reason = "follows the pointer of a mapping that the kernel shares"
)]

mod slot;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use uverbs_abi::Mapping;
use uverbs_abi::layout::rxe::queue_buf;

pub use self::slot::{Filled, Slot, Tail};
use self::slot::{Pair, load_pairs};

/// Slots are at least a cache line…
const MIN_LOG2_SLOT: u32 = 6;
/// … and no driver makes them longer than this.
const MAX_LOG2_SLOT: u32 = 16;

/// Bytes that one access to a slot moves.
const WORD: usize = size_of::<u64>();

/// A mapped queue whose slots have at least `HEAD` bytes.
pub struct SharedQueue<const HEAD: usize> {
    /// The first slot. The header lies right before it, and so within reach of the one pointer.
    data: *mut u8,
    mask: u32,
    /// Bytes of a slot, a power of two.
    step: usize,
    /// Bytes of a slot after its head.
    tail: usize,
    /// How many slots there are.
    slots: usize,
    /// Owns what `data` points into, perhaps together with readers; never replaced.
    mapping: Owner,
}

/// Who keeps a mapping.
enum Owner {
    /// The queue, for itself.
    Alone(Mapping),
    /// The queue and its readers.
    Together(Arc<Mapping>),
}

// SAFETY: `data` points into `mapping`, which is shared with readers and is itself Send and Sync
// (below); the memory belongs to no thread, and is reached by atomic accesses only.
unsafe impl<const HEAD: usize> Send for SharedQueue<HEAD> {}
const _: () = {
    const fn goes_anywhere<T: Send + Sync>() {}
    goes_anywhere::<Mapping>();
};

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
        let (base, len) = (mapping.base().as_ptr(), mapping.len());
        if len < queue_buf::DATA {
            return Err("the mapping is shorter than the queue's header");
        }
        if !base.addr().is_multiple_of(align_of::<AtomicU64>()) {
            return Err("the mapping is not aligned");
        }
        let mut this = Self {
            data: base.wrapping_add(queue_buf::DATA),
            mask: 0,
            step: 1 << MIN_LOG2_SLOT,
            tail: 0,
            slots: 0,
            mapping: Owner::Alone(mapping),
        };
        let log2_slot = this
            .view()
            .header_word::<{ queue_buf::LOG2_ELEM_SIZE }>()
            .load(Ordering::Relaxed);
        let mask = this
            .view()
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
        if usize::try_from(needed).is_ok_and(|needed| needed <= len) {
            this.mask = mask;
            this.step = 1 << log2_slot;
            this.tail = this.step - HEAD;
            this.slots = mask as usize + 1;
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

    /// What is at hand to read it by.
    #[inline]
    #[must_use]
    pub const fn view(&self) -> View<'_, HEAD> {
        View {
            data: self.data,
            queue: self,
        }
    }

    /// The index that the filling side moves.
    #[inline]
    #[must_use]
    pub fn producer(&self) -> &AtomicU32 {
        self.view().producer()
    }

    /// The index that the emptying side moves.
    #[inline]
    #[must_use]
    pub fn consumer(&self) -> &AtomicU32 {
        self.view().consumer()
    }

    /// Itself, and once more for others to look at while it is in somebody's hands.
    #[inline]
    #[must_use]
    pub fn with_reader(self) -> (Self, Reader<HEAD>) {
        let mapping = match self.mapping {
            Owner::Alone(mapping) => Arc::new(mapping),
            Owner::Together(mapping) => mapping,
        };
        let with = |mapping| Self {
            mapping: Owner::Together(mapping),
            ..self
        };
        (with(Arc::clone(&mapping)), Reader(with(mapping)))
    }

    #[inline]
    const fn at(&self, index: u32) -> *mut u8 {
        self.view().at(index)
    }

    /// A slot to be filled.
    #[inline]
    pub fn slot_mut(&mut self, index: u32) -> Slot<'_, HEAD> {
        Slot::new(self.at(index), self.tail)
    }

    /// A slot to be read.
    #[must_use]
    pub const fn filled(&self, index: u32) -> Filled<'_, HEAD> {
        Filled::new(self.at(index), self.step)
    }

    /// Whether so many slots from one on come one after another: the last is followed by the first.
    #[inline]
    #[must_use]
    pub const fn is_straight(&self, first: u32, count: usize) -> bool {
        let before = (first & self.mask) as usize;
        count <= self.mask as usize + 1 - before
    }

    /// Fills the slots from one on, each with one item, for as long as `fill` says that it could, and
    /// says whether all were. They are [straight](Self::is_straight), or none is filled.
    #[inline]
    #[must_use]
    pub fn fill_straight<T>(
        &mut self,
        first: u32,
        items: &[T],
        mut fill: impl FnMut(&T, Slot<'_, HEAD>) -> bool,
    ) -> bool {
        if !self.is_straight(first, items.len()) {
            return false;
        }
        let (mut at, step, tail) = (self.at(first), self.step, self.tail);
        let mut left = items;
        while let [item, rest @ ..] = left {
            // A slot, since there is one for each item up to the last of them all.
            if !fill(item, Slot::new(at, tail)) {
                return false;
            }
            at = at.wrapping_add(step);
            left = rest;
        }
        true
    }

    /// Fills the slots from one on, each with one item, for as long as `fill` says that it could, and
    /// says whether all were. None is filled twice.
    #[must_use]
    pub fn fill<T>(
        &mut self,
        first: u32,
        items: &[T],
        mut fill: impl FnMut(&T, Slot<'_, HEAD>) -> bool,
    ) -> bool {
        let mut items = items.iter();
        let slots = (0..=self.mask).map(|ahead| self.at(first.wrapping_add(ahead)));
        let all = slots
            .zip(items.by_ref())
            .all(|(at, item)| fill(item, Slot::new(at, self.tail)));
        all && items.len() == 0
    }

    /// Makes something of the first 48 bytes of each of the slots from one on, as many as `out` has
    /// places for. Gives what the first 16 of all of them are together, bit by bit; or nothing, having
    /// done nothing, if they are not [straight](Self::is_straight).
    #[inline]
    pub fn read_straight<T>(
        &self,
        first: u32,
        out: &mut [T],
        read: impl Fn([[u64; 2]; 3]) -> T,
    ) -> Option<[u64; 2]> {
        const { assert!(6 * WORD <= HEAD && size_of::<T>() > 1) };
        let before = (first & self.mask) as usize;
        // Not too much for a `usize`: places that are longer than a byte fill no more than half of memory.
        if before.wrapping_add(out.len()) > self.slots {
            return None;
        }
        let mut together = Pair::default();
        let mut next = |place: &mut T, (pairs, first): ([[u64; 2]; 3], Pair)| {
            together = together.or(first);
            *place = read(pairs);
        };
        let (mut at, step) = (self.at(first), self.step);
        // Several at a time, so that there is less to do around them.
        let (fours, rest) = out.as_chunks_mut::<4>();
        for [one, two, three, four] in fours {
            // SAFETY: as in `copy_pairs`: `at` is a slot, as are those `step` bytes apart after it, since
            // there is one for each place up to the last of them all.
            next(one, unsafe { load_pairs::<0>(at, step) });
            // SAFETY: as above.
            next(two, unsafe { load_pairs::<1>(at, step) });
            // SAFETY: as above.
            next(three, unsafe { load_pairs::<2>(at, step) });
            // SAFETY: as above.
            next(four, unsafe { load_pairs::<1>(at, 3 * step) });
            at = at.wrapping_add(4 * step);
        }
        for one in rest {
            // SAFETY: as above.
            next(one, unsafe { load_pairs::<0>(at, step) });
            at = at.wrapping_add(step);
        }
        Some(together.into())
    }

    /// Copies the first `N` 8-byte words of a slot out.
    #[inline]
    #[must_use]
    pub fn copy_out<const N: usize>(&self, index: u32) -> [u64; N] {
        const { assert!(N * WORD <= HEAD) };
        let at = self.at(index);
        std::array::from_fn(|i| {
            let word = at.wrapping_add(i * WORD).cast::<u64>();
            // SAFETY: `at` is the start of a slot, all slots lie in the mapping (`new`), which lives as
            // long as `self`, and `(i + 1) * 8 <= HEAD`, which a slot has; slots start at multiples of
            // 64 from the 8-aligned base; the kernel may write at the same time, hence atomic.
            unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Relaxed)
        })
    }
}

/// A queue that is read, with the pointer to it apart from what else is known of it: it stays in a register
/// where the compiler must think that another thread changes the rest.
#[derive(Clone, Copy)]
pub struct View<'q, const HEAD: usize> {
    /// As the queue has it.
    data: *mut u8,
    queue: &'q SharedQueue<HEAD>,
}

impl<'q, const HEAD: usize> View<'q, HEAD> {
    /// The index that the filling side moves.
    #[inline]
    #[must_use]
    pub fn producer(self) -> &'q AtomicU32 {
        self.header_word::<{ queue_buf::PRODUCER_INDEX }>()
    }

    /// The index that the emptying side moves.
    #[inline]
    #[must_use]
    pub fn consumer(self) -> &'q AtomicU32 {
        self.header_word::<{ queue_buf::CONSUMER_INDEX }>()
    }

    #[inline]
    fn header_word<const AT: usize>(self) -> &'q AtomicU32 {
        const { assert!(AT.is_multiple_of(size_of::<u32>()) && AT + 4 <= queue_buf::DATA) };
        let word = self.data.wrapping_sub(queue_buf::DATA - AT).cast::<u32>();
        // SAFETY: `data` is `DATA` bytes after the mapping's start, `AT + 4 <= DATA` (above) and
        // `DATA <= len` (`new`), so the word lies in the mapping, which lives as long as the queue; that
        // is 8-aligned, `DATA` too, and `AT` 4-aligned; both we and the kernel reach the words of the
        // header by whole-word accesses only.
        unsafe { AtomicU32::from_ptr(word) }
    }

    /// The first byte of a slot; an index beyond the last one comes round again.
    #[inline]
    const fn at(self, index: u32) -> *mut u8 {
        let index = (index & self.queue.mask) as usize;
        self.data.wrapping_add(index.wrapping_mul(self.queue.step))
    }

    /// Copies the first three pairs of words of a slot out, each in one move where the machine can.
    #[inline]
    #[must_use]
    pub fn copy_pairs(self, index: u32) -> [[u64; 2]; 3] {
        const { assert!(6 * WORD <= HEAD) };
        // SAFETY: as in `copy_out`: the 48 bytes from here lie in the slot's head, are 8-aligned, and
        // stay mapped.
        unsafe { load_pairs::<0>(self.at(index), 0) }.0
    }

    /// Copies the 8 bytes at `AT` in a slot out.
    #[inline]
    #[must_use]
    pub fn copy_word<const AT: usize>(self, index: u32) -> u64 {
        const { assert!(AT.is_multiple_of(WORD) && AT + WORD <= HEAD) };
        let word = self.at(index).wrapping_add(AT).cast::<u64>();
        // SAFETY: as in `copy_out`, with `AT + 8 <= HEAD`.
        unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Relaxed)
    }
}

impl<const HEAD: usize> fmt::Debug for View<'_, HEAD> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.queue, f)
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

/// A queue that is only looked at, by anybody. The memory stays mapped for as long as this lives.
#[derive(Debug)]
pub struct Reader<const HEAD: usize>(SharedQueue<HEAD>);

// SAFETY: what a queue does behind `&` is to read its own fields, which nobody changes, and to reach the
// memory by atomic accesses; there is no way to a `&mut` of this one.
unsafe impl<const HEAD: usize> Sync for Reader<HEAD> {}

impl<const HEAD: usize> Deref for Reader<HEAD> {
    type Target = SharedQueue<HEAD>;

    #[inline]
    fn deref(&self) -> &SharedQueue<HEAD> {
        &self.0
    }
}

#[cfg(test)]
mod tests;

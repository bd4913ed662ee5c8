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
use std::sync::Arc;
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

    /// Where a slot begins, in bytes after the header; an index beyond the last one comes round again
    /// in `Slots::base`.
    #[inline]
    const fn offset(&self, index: u32) -> usize {
        (index as usize).wrapping_mul(self.step)
    }

    /// A slot to be filled.
    #[inline]
    pub fn slot_mut(&mut self, index: u32) -> Slot<'_, HEAD> {
        let slots = self.slots_mut(index);
        Slot::new(slots.base(), slots.tail)
    }

    /// The slots from one on, to be filled one after another.
    #[inline]
    pub fn slots_mut(&mut self, first: u32) -> Slots<'_, HEAD> {
        Slots {
            data: self.base.wrapping_add(queue_buf::DATA),
            offset: self.offset(first),
            step: self.step,
            wrap: self.wrap,
            tail: self.tail,
            queue: PhantomData,
        }
    }

    /// The slots from one on, to be read one after another.
    #[inline]
    #[must_use]
    pub fn slots(&self, first: u32) -> Filled<'_, HEAD> {
        Filled {
            data: self.base.wrapping_add(queue_buf::DATA),
            offset: self.offset(first),
            step: self.step,
            wrap: self.wrap,
            queue: PhantomData,
        }
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

/// Where slots are, and at which one of them somebody is.
///
/// `offset & wrap` is always the start of a slot: `offset` is a multiple of `step`, which is a power
/// of two and divides `wrap + 1`, the bytes of all slots together, another power of two.
pub struct Slots<'q, const HEAD: usize> {
    data: *mut u8,
    offset: usize,
    step: usize,
    wrap: usize,
    tail: usize,
    queue: PhantomData<&'q mut SharedQueue<HEAD>>,
}

impl<const HEAD: usize> Slots<'_, HEAD> {
    /// The slot that is next to be filled.
    #[inline]
    pub fn slot(&mut self) -> Slot<'_, HEAD> {
        Slot::new(self.base(), self.tail)
    }

    #[inline]
    const fn base(&self) -> *mut u8 {
        self.data.wrapping_add(self.offset & self.wrap)
    }

    /// Goes on to the following slot.
    #[inline]
    pub fn advance(&mut self) {
        self.offset = self.offset.wrapping_add(self.step);
    }
}

impl<const HEAD: usize> fmt::Debug for Slots<'_, HEAD> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slots(at byte {})", self.offset & self.wrap)
    }
}

/// As [`Slots`], to be read.
pub struct Filled<'q, const HEAD: usize> {
    data: *mut u8,
    offset: usize,
    step: usize,
    wrap: usize,
    queue: PhantomData<&'q SharedQueue<HEAD>>,
}

impl<const HEAD: usize> Filled<'_, HEAD> {
    /// Copies the first `N` 8-byte words of the slot out.
    #[inline]
    #[must_use]
    pub fn copy_out<const N: usize>(&self) -> [u64; N] {
        const { assert!(N * WORD <= HEAD) };
        let base = self.base();
        std::array::from_fn(|i| {
            let word = base.wrapping_add(i * WORD).cast::<u64>();
            // SAFETY: `base` is the start of a slot (`Slots`), all slots lie in the mapping
            // (`SharedQueue::new`), which the borrow of the queue keeps alive, and
            // `(i + 1) * 8 <= HEAD`, which a slot has; slots start at multiples of 64 from the
            // 8-aligned base; the kernel may write at the same time, hence atomic.
            unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Relaxed)
        })
    }

    /// Copies the first three pairs of words of the slot out, each in one move where the machine can.
    #[inline]
    #[must_use]
    pub fn copy_pairs(&self) -> [[u64; 2]; 3] {
        const { assert!(6 * WORD <= HEAD) };
        // SAFETY: as in `copy_out`: the 48 bytes from here lie in the slot's head, are 8-aligned, and
        // stay mapped.
        unsafe { load_pairs(self.base().cast()) }
    }

    #[inline]
    const fn base(&self) -> *mut u8 {
        self.data.wrapping_add(self.offset & self.wrap)
    }

    /// Goes on to the following slot.
    #[inline]
    pub fn advance(&mut self) {
        self.offset = self.offset.wrapping_add(self.step);
    }
}

impl<const HEAD: usize> fmt::Debug for Filled<'_, HEAD> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filled(at byte {})", self.offset & self.wrap)
    }
}

/// Three times two words, moved as one. Another party may write them meanwhile: then it is open which
/// bytes of them are old and which are new.
///
/// # Safety
/// 48 bytes from `words` are 8-aligned, mapped for reading, and behind no reference.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn load_pairs(words: *mut u64) -> [[u64; 2]; 3] {
    use std::arch::x86_64::__m128i;

    let (first, second, third): (__m128i, __m128i, __m128i);
    // SAFETY: reads 48 bytes that may be read (the caller) and does nothing else. The machine makes
    // ordinary 8-byte loads of it at the worst, each the same as a relaxed one of the language; an
    // assembler block is no access that the language could call a data race.
    unsafe {
        std::arch::asm!(
            "movups {first}, xmmword ptr [{words}]",
            "movups {second}, xmmword ptr [{words} + 16]",
            "movups {third}, xmmword ptr [{words} + 32]",
            words = in(reg) words,
            first = out(xmm_reg) first,
            second = out(xmm_reg) second,
            third = lateout(xmm_reg) third,
            options(nostack, preserves_flags, readonly),
        );
    }
    zerocopy::transmute!([first, second, third])
}

/// Three times two words, one after the other.
///
/// # Safety
/// 48 bytes from `words` are 8-aligned, mapped for reading, and behind no reference.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
unsafe fn load_pairs(words: *mut u64) -> [[u64; 2]; 3] {
    std::array::from_fn(|pair| {
        std::array::from_fn(|half| {
            let word = words.wrapping_add(pair * 2 + half);
            // SAFETY: one of the six words (the caller); another party may write, hence atomic.
            unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Relaxed)
        })
    })
}

/// One slot of a queue, to be filled word by word: a head whose places are known when compiling,
/// and a tail.
// Two words, so that it is handed over in registers.
pub struct Slot<'q, const HEAD: usize> {
    /// Its first byte; `HEAD` bytes from here, and `room` words after them, belong to it.
    base: *mut u8,
    room: usize,
    queue: PhantomData<&'q mut SharedQueue<HEAD>>,
}

impl<'q, const HEAD: usize> Slot<'q, HEAD> {
    /// The slot at `base`, whose head is followed by `room` words.
    #[inline]
    const fn new(base: *mut u8, room: usize) -> Self {
        Self {
            base,
            room,
            queue: PhantomData,
        }
    }

    /// The same slot for somebody else to go on with.
    #[inline]
    pub const fn reborrow(&mut self) -> Slot<'_, HEAD> {
        Slot::new(self.base, self.room)
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

    /// Fills the first two words of the tail, which every slot has: the compiler checks it.
    #[inline]
    pub fn put_pair(&mut self, words: [u64; 2]) {
        const { assert!(HEAD + 2 * WORD <= SharedQueue::<HEAD>::LEAST_SLOT) };
        let mut at = self.base.wrapping_add(HEAD).cast::<u64>();
        for word in words {
            // SAFETY: `HEAD + 16` is at most the least length of a slot with this head (above), so
            // both words lie in this one; all else as in `put`.
            unsafe { AtomicU64::from_ptr(at) }.store(word, Ordering::Relaxed);
            at = at.wrapping_add(1);
        }
    }

    /// Fills the tail with bytes, the last word of them made up with zeros. If they do not fit,
    /// nothing happens: callers know from the limits, checked against the slot's length when the
    /// queue was made, that they do.
    #[inline]
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        let fits = bytes.len() <= self.room * WORD;
        debug_assert!(fits, "the slot is full");
        if !fits {
            return;
        }
        let mut at = self.base.wrapping_add(HEAD).cast::<u64>();
        // By two words for as long as there are two, then by one.
        let (pairs, mut rest) = bytes.as_chunks::<{ 2 * WORD }>();
        for pair in pairs {
            let words: [u64; 2] = zerocopy::transmute!(*pair);
            for word in words {
                // SAFETY: `room` words after the head lie in the slot, and the bytes fill no more
                // (`fits`), one word after another; alignment, owner and the other party as in `put`.
                unsafe { AtomicU64::from_ptr(at) }.store(word, Ordering::Relaxed);
                at = at.wrapping_add(1);
            }
        }
        if let Some((word, others)) = rest.split_first_chunk::<WORD>() {
            // SAFETY: as above.
            unsafe { AtomicU64::from_ptr(at) }.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            at = at.wrapping_add(1);
            rest = others;
        }
        if !rest.is_empty() {
            let last = rest
                .iter()
                .rev()
                .fold(0, |word, byte| word << 8 | u64::from(*byte));
            // SAFETY: the bytes do not end with a whole word, so that this one, the last that they
            // touch, is among the `room` words too; all else as above.
            unsafe { AtomicU64::from_ptr(at) }.store(last.to_le(), Ordering::Relaxed);
        }
    }

    /// The tail, to be filled from its start.
    #[inline]
    pub const fn tail(self) -> Tail<'q, HEAD> {
        Tail {
            next: self.base.wrapping_add(HEAD),
            room: self.room,
            queue: PhantomData,
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

/// What follows the head of a slot; it grows word by word.
pub struct Tail<'q, const HEAD: usize> {
    /// Where it goes on; `room` words from here belong to it.
    next: *mut u8,
    room: usize,
    queue: PhantomData<&'q mut SharedQueue<HEAD>>,
}

impl<const HEAD: usize> Tail<'_, HEAD> {
    /// Appends 8 bytes. In a full slot nothing happens: callers know from the limits, checked against
    /// the slot's length when the queue was made, that there is room.
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
}

impl<const HEAD: usize> fmt::Debug for Tail<'_, HEAD> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tail(room for {} words)", self.room)
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
        let mut tail = slot.reborrow().tail();
        tail.push(3);
        tail.push(4);
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
    fn bytes_fill_whole_words_and_end_with_the_slot() {
        let memory = words(384 + 4 * 64, 6, 3);
        let mut queue = SharedQueue::<40>::new(Mapping::Heap(Arc::clone(&memory))).unwrap();
        queue
            .slot_mut(3)
            .put_bytes(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        queue.slot_mut(2).put_bytes(&[0xff; 24]);
        queue.slot_mut(1).put_bytes(&[]);
        let tail = |slot: usize| -> Vec<u64> {
            let at = (384 + slot * 64 + 40) / 8;
            let words = memory.get(at..at + 3).unwrap();
            words.iter().map(|w| w.load(Ordering::Relaxed)).collect()
        };
        assert_eq!(
            tail(3),
            [0x0807_0605_0403_0201u64.to_le(), 0x0a09u64.to_le(), 0]
        );
        assert_eq!(tail(2), [u64::MAX; 3]);
        assert_eq!(tail(1), [0; 3]);
        let wrote = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            queue.slot_mut(0).put_bytes(&[0xff; 25]);
        }));
        assert_eq!(wrote.is_err(), cfg!(debug_assertions));
        assert_eq!(tail(0), [0; 3]);
        assert_eq!(queue.copy_out::<5>(1), [0; 5], "the next one is untouched");
    }

    #[test]
    fn a_pair_follows_the_head() {
        let memory = words(384 + 4 * 64, 6, 3);
        let mut queue = SharedQueue::<40>::new(Mapping::Heap(Arc::clone(&memory))).unwrap();
        queue.slot_mut(1).put_pair([7, 8]);
        let found: Vec<(usize, u64)> = memory
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .enumerate()
            .skip(1)
            .filter(|(_, word)| *word != 0)
            .collect();
        let at = (384 + 64 + 40) / 8;
        assert_eq!(found, [(at, 7), (at + 1, 8)]);
    }

    #[test]
    fn slots_come_one_after_another_and_round_again() {
        let memory = words(384 + 4 * 64, 6, 3);
        let mut queue = SharedQueue::<48>::new(Mapping::Heap(Arc::clone(&memory))).unwrap();
        let mut slots = queue.slots_mut(3);
        for n in 1..=3 {
            slots.slot().put::<0>(n);
            slots.advance();
        }
        let mut filled = queue.slots(3);
        for n in 1..=3 {
            assert_eq!(filled.copy_out(), [n]);
            filled.advance();
        }
        assert_eq!(queue.copy_out(3), [1]);
        assert_eq!(queue.copy_out(0), [2]);
        assert_eq!(queue.copy_out(1), [3]);
    }

    #[test]
    fn a_full_slot_takes_no_more() {
        let memory = words(384 + 4 * 64, 6, 3);
        let mut queue = SharedQueue::<48>::new(Mapping::Heap(Arc::clone(&memory))).unwrap();
        let mut slot = queue.slot_mut(0).tail();
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

//! UNSAFE ROOM 2, continued: going from slot to slot, filling them and reading them.
//!
//! What holds of every access is said in the module above. Only [`SharedQueue`] makes a [`Cursor`], and
//! everything here begins with one.
#![allow(
    unsafe_code,
    reason = "follows the pointer of a mapping that the kernel shares"
)]

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{SharedQueue, WORD};

/// Where slots are, and at which one of them somebody is.
///
/// `offset & wrap` is always the start of a slot: `offset` is a multiple of `step`, which is a power
/// of two and divides `wrap + 1`, the bytes of all slots together, another power of two.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    /// The first slot.
    pub(super) data: *mut u8,
    /// Bytes from there, not yet brought round.
    pub(super) offset: usize,
    /// Bytes of a slot.
    pub(super) step: usize,
    /// Bytes of all slots, less one.
    pub(super) wrap: usize,
}

impl Cursor {
    /// The slot's first byte.
    #[inline]
    const fn base(&self) -> *mut u8 {
        self.data.wrapping_add(self.offset & self.wrap)
    }

    /// Goes on to the following slot.
    #[inline]
    const fn advance(&mut self) {
        self.offset = self.offset.wrapping_add(self.step);
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}", self.offset & self.wrap)
    }
}

/// Slots to be filled, one after another.
#[derive(Debug)]
pub struct Slots<'q, const HEAD: usize> {
    at: Cursor,
    tail: usize,
    queue: PhantomData<&'q mut SharedQueue<HEAD>>,
}

impl<const HEAD: usize> Slots<'_, HEAD> {
    #[inline]
    pub(super) const fn new(at: Cursor, tail: usize) -> Self {
        Self {
            at,
            tail,
            queue: PhantomData,
        }
    }

    /// The slot that is next to be filled.
    #[inline]
    pub fn slot(&mut self) -> Slot<'_, HEAD> {
        Slot::new(self.at, self.tail)
    }

    /// Goes on to the following slot.
    #[inline]
    pub const fn advance(&mut self) {
        self.at.advance();
    }
}

/// Slots to be read, one after another.
#[derive(Debug)]
pub struct Filled<'q, const HEAD: usize> {
    at: Cursor,
    queue: PhantomData<&'q SharedQueue<HEAD>>,
}

impl<const HEAD: usize> Filled<'_, HEAD> {
    #[inline]
    pub(super) const fn new(at: Cursor) -> Self {
        Self {
            at,
            queue: PhantomData,
        }
    }

    /// Copies the first `N` 8-byte words of the slot out.
    #[inline]
    #[must_use]
    pub fn copy_out<const N: usize>(&self) -> [u64; N] {
        const { assert!(N * WORD <= HEAD) };
        let base = self.at.base();
        std::array::from_fn(|i| {
            let word = base.wrapping_add(i * WORD).cast::<u64>();
            // SAFETY: `base` is the start of a slot (`Cursor`), all slots lie in the mapping
            // (`SharedQueue::new`), which the borrow of the queue keeps alive, and
            // `(i + 1) * 8 <= HEAD`, which a slot has; slots start at multiples of 64 from the
            // 8-aligned base; the kernel may write at the same time, hence atomic.
            unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Relaxed)
        })
    }

    /// Copies the 8-byte word at byte `at` of the slot out, if it is in the slot and begins at a multiple
    /// of 8. For errors: what the compiler can check, [`copy_out`](Self::copy_out) reads.
    #[must_use]
    pub fn word(&self, at: usize) -> Option<u64> {
        if !at.is_multiple_of(WORD) || at > self.at.step - WORD {
            return None;
        }
        let word = self.at.base().wrapping_add(at).cast::<u64>();
        // SAFETY: `at + 8 <= step`, so the word lies in the slot (a slot has `step` bytes, no fewer than
        // 64); all else as in `copy_out`.
        Some(unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Relaxed))
    }

    /// Copies the first three pairs of words of the slot out, each in one move where the machine can.
    #[inline]
    #[must_use]
    pub fn copy_pairs(&self) -> [[u64; 2]; 3] {
        const { assert!(6 * WORD <= HEAD) };
        // SAFETY: as in `copy_out`: the 48 bytes from here lie in the slot's head, are 8-aligned, and
        // stay mapped.
        unsafe { load_pairs(self.at.base().cast()) }
    }

    /// Goes on to the following slot.
    #[inline]
    pub const fn advance(&mut self) {
        self.at.advance();
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
    /// The slot that somebody is at, whose head is followed by `room` words.
    #[inline]
    pub(super) const fn new(at: Cursor, room: usize) -> Self {
        Self {
            base: at.base(),
            room,
            queue: PhantomData,
        }
    }

    /// The same slot for somebody else to go on with.
    #[inline]
    pub const fn reborrow(&mut self) -> Slot<'_, HEAD> {
        Slot {
            base: self.base,
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

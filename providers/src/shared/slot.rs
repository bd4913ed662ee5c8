//! UNSAFE ROOM 2, continued: filling a slot, and moves of 16 bytes.
//!
//! What holds of every access is said in the module above. Only [`SharedQueue`] makes a [`Slot`].
#![allow(
    unsafe_code,
    reason = "follows the pointer of a mapping that the kernel shares"
)]

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{SharedQueue, WORD};

/// Fills two words `AT` bytes after `base`, as one. Another party may read them meanwhile: then it is
/// open which bytes of them it sees as they were before.
///
/// # Safety
/// 16 bytes from `base + AT` are 8-aligned, mapped for writing, and behind no reference.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn store_pair<const AT: usize>(base: *mut u8, words: [u64; 2]) {
    let words: std::arch::x86_64::__m128i = zerocopy::transmute!(words);
    // SAFETY: writes 16 bytes that may be written (the caller) and does nothing else. The machine makes
    // ordinary 8-byte stores of it at the worst, each the same as a relaxed one of the language; an
    // assembler block is no access that the language could call a data race.
    unsafe {
        std::arch::asm!(
            "movups xmmword ptr [{base} + {at}], {words}",
            base = in(reg) base,
            at = const AT,
            words = in(xmm_reg) words,
            options(nostack, preserves_flags),
        );
    }
}

/// Fills two words `AT` bytes after `base`, one after the other.
///
/// # Safety
/// 16 bytes from `base + AT` are 8-aligned, mapped for writing, and behind no reference.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
unsafe fn store_pair<const AT: usize>(base: *mut u8, words: [u64; 2]) {
    let mut at = base.wrapping_add(AT).cast::<u64>();
    for word in words {
        // SAFETY: one of the two words (the caller); another party may read, hence atomic.
        unsafe { AtomicU64::from_ptr(at) }.store(word, Ordering::Relaxed);
        at = at.wrapping_add(1);
    }
}

/// Copies 16 bytes from `from` to `AT` bytes after `base`, as one: [`store_pair`] of what need not be
/// looked at.
///
/// # Safety
/// As for [`store_pair`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn copy_pair<const AT: usize>(base: *mut u8, from: &[u8; 2 * WORD]) {
    // SAFETY: reads 16 bytes that are borrowed, writes as `store_pair` does, and does nothing else.
    unsafe {
        std::arch::asm!(
            "movups {pair}, xmmword ptr [{from}]",
            "movups xmmword ptr [{base} + {at}], {pair}",
            base = in(reg) base,
            at = const AT,
            from = in(reg) from.as_ptr(),
            pair = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies 16 bytes from `from` to `AT` bytes after `base`, one word after the other.
///
/// # Safety
/// As for [`store_pair`].
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
unsafe fn copy_pair<const AT: usize>(base: *mut u8, from: &[u8; 2 * WORD]) {
    // SAFETY: the same.
    unsafe { store_pair::<AT>(base, zerocopy::transmute!(*from)) }
}

/// Two words that are held as one where the machine can.
#[derive(Clone, Copy)]
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) struct Pair(std::arch::x86_64::__m128i);
#[derive(Clone, Copy)]
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) struct Pair([u64; 2]);

impl Pair {
    /// Both of them, bit by bit.
    #[inline]
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    pub(super) fn or(self, other: Self) -> Self {
        // SAFETY: every x86-64 processor has SSE2.
        Self(unsafe { std::arch::x86_64::_mm_or_si128(self.0, other.0) })
    }

    /// Both of them, bit by bit.
    #[inline]
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    pub(super) const fn or(self, Self([first, second]): Self) -> Self {
        let Self([a, b]) = self;
        Self([a | first, b | second])
    }
}

impl Default for Pair {
    #[inline]
    fn default() -> Self {
        Self(zerocopy::transmute!([0u64; 2]))
    }
}

impl From<Pair> for [u64; 2] {
    #[inline]
    fn from(Pair(pair): Pair) -> Self {
        zerocopy::transmute!(pair)
    }
}

/// Three times two words, moved as one, and the first of them once more, as it is. They are `TIMES` (0, 1 or 2)
/// times `step` bytes after `base`. Another party may write them meanwhile: then it is open which bytes of
/// them are old and which are new.
///
/// # Safety
/// 48 bytes from there are 8-aligned, mapped for reading, and behind no reference.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(super) unsafe fn load_pairs<const TIMES: usize>(
    base: *mut u8,
    step: usize,
) -> ([[u64; 2]; 3], Pair) {
    use std::arch::x86_64::__m128i;

    const { assert!(TIMES <= 2) };
    let (first, second, third): (__m128i, __m128i, __m128i);
    macro_rules! load {
        ($from:literal $(, $step:ident)?) => {
            // SAFETY: reads 48 bytes that may be read (the caller) and does nothing else. The machine makes
            // ordinary 8-byte loads of it at the worst, each the same as a relaxed one of the language; an
            // assembler block is no access that the language could call a data race.
            unsafe {
                std::arch::asm!(
                    concat!("movups {first}, xmmword ptr [", $from, "]"),
                    concat!("movups {second}, xmmword ptr [", $from, " + 16]"),
                    concat!("movups {third}, xmmword ptr [", $from, " + 32]"),
                    base = in(reg) base,
                    $($step = in(reg) $step,)?
                    first = out(xmm_reg) first,
                    second = out(xmm_reg) second,
                    third = lateout(xmm_reg) third,
                    options(nostack, preserves_flags, readonly),
                )
            }
        };
    }
    match TIMES {
        0 => load!("{base}"),
        1 => load!("{base} + {step}", step),
        _ => load!("{base} + 2 * {step}", step),
    }
    (zerocopy::transmute!([first, second, third]), Pair(first))
}

/// Three times two words, one after the other, and the first two once more.
///
/// # Safety
/// 48 bytes from `TIMES * step` bytes after `base` are 8-aligned, mapped for reading, and behind no reference.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
pub(super) unsafe fn load_pairs<const TIMES: usize>(
    base: *mut u8,
    step: usize,
) -> ([[u64; 2]; 3], Pair) {
    let words = base.wrapping_add(TIMES.wrapping_mul(step)).cast::<u64>();
    let pairs: [[u64; 2]; 3] = std::array::from_fn(|pair| {
        std::array::from_fn(|half| {
            let word = words.wrapping_add(pair * 2 + half);
            // SAFETY: one of the six words (the caller); another party may write, hence atomic.
            unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Relaxed)
        })
    });
    let [first, ..] = pairs;
    (pairs, Pair(first))
}

/// One slot of a queue, to be read word by word.
pub struct Filled<'q, const HEAD: usize> {
    /// Its first byte; `len` bytes from here belong to it.
    base: *mut u8,
    len: usize,
    queue: PhantomData<&'q SharedQueue<HEAD>>,
}

impl<const HEAD: usize> Filled<'_, HEAD> {
    /// The slot of `len` bytes at `base`.
    pub(super) const fn new(base: *mut u8, len: usize) -> Self {
        Self {
            base,
            len,
            queue: PhantomData,
        }
    }

    /// Copies the 8-byte word at byte `at` of the slot out, if it is in the slot and begins at a multiple
    /// of 8. For errors: what the compiler can check, [`View::copy_word`](super::View::copy_word) reads.
    #[must_use]
    pub fn word(&self, at: usize) -> Option<u64> {
        if !at.is_multiple_of(WORD) || at > self.len - WORD {
            return None;
        }
        let word = self.base.wrapping_add(at).cast::<u64>();
        // SAFETY: `at + 8 <= len`, so the word lies in the slot (a slot has no fewer than 64 bytes), which
        // lies in the mapping (`SharedQueue::new`), which the borrow of the queue keeps alive; slots
        // start at multiples of 64 from the 8-aligned base; the kernel may write at the same time, hence
        // atomic.
        Some(unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Relaxed))
    }
}

impl<const HEAD: usize> fmt::Debug for Filled<'_, HEAD> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filled({} bytes)", self.len)
    }
}

/// One slot of a queue, to be filled word by word: a head whose places are known when compiling,
/// and a tail.
// Two words, so that it is handed over in registers.
pub struct Slot<'q, const HEAD: usize> {
    /// Its first byte; `HEAD` bytes from here, and `room` after them, belong to it.
    base: *mut u8,
    room: usize,
    queue: PhantomData<&'q mut SharedQueue<HEAD>>,
}

impl<'q, const HEAD: usize> Slot<'q, HEAD> {
    /// The slot at `base`, whose head is followed by `room` bytes, a multiple of 8.
    #[inline]
    pub(super) const fn new(base: *mut u8, room: usize) -> Self {
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

    /// Fills the 16 bytes at `AT`, which must lie in the head: the compiler checks it.
    #[inline]
    pub fn put_two<const AT: usize>(&mut self, words: [u64; 2]) {
        const { assert!(AT.is_multiple_of(WORD) && AT + 2 * WORD <= HEAD) };
        // SAFETY: `AT + 16 <= HEAD`; all else as in `put`.
        unsafe { store_pair::<AT>(self.base, words) }
    }

    /// Fills the first two words of the tail, which every slot has: the compiler checks it.
    #[inline]
    pub fn put_pair(&mut self, words: &[u64; 2]) {
        const { assert!(HEAD + 2 * WORD <= SharedQueue::<HEAD>::LEAST_SLOT) };
        // SAFETY: `HEAD + 16` is at most the least length of a slot with this head (above), so both
        // words lie in this one; all else as in `put`.
        unsafe { copy_pair::<HEAD>(self.base, zerocopy::transmute_ref!(words)) }
    }

    /// Fills the tail with bytes, the last word of them made up with zeros, and says whether there is
    /// room for them; if not, nothing happens.
    #[inline]
    #[must_use]
    pub fn put_bytes(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() > self.room {
            return false;
        }
        let mut at = self.base.wrapping_add(HEAD);
        // By two words for as long as there are two, then by one.
        let (pairs, mut rest) = bytes.as_chunks::<{ 2 * WORD }>();
        for pair in pairs {
            // SAFETY: `room` bytes after the head lie in the slot, and these are no more
            // (above), one word after another; alignment, owner and the other party as in `put`.
            unsafe { copy_pair::<0>(at, pair) };
            at = at.wrapping_add(2 * WORD);
        }
        if rest.is_empty() {
            return true;
        }
        let mut at = at.cast::<u64>();
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
            // touch, is among those words too: `room` is a multiple of 8; all else as above.
            unsafe { AtomicU64::from_ptr(at) }.store(last.to_le(), Ordering::Relaxed);
        }
        true
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
            "Slot({HEAD} bytes of head, room for {} bytes)",
            self.room
        )
    }
}

/// What follows the head of a slot; it grows word by word.
pub struct Tail<'q, const HEAD: usize> {
    /// Where it goes on; `room` bytes from here belong to it.
    next: *mut u8,
    room: usize,
    queue: PhantomData<&'q mut SharedQueue<HEAD>>,
}

impl<const HEAD: usize> Tail<'_, HEAD> {
    /// Appends 8 bytes. In a full slot nothing happens: callers know from the limits, checked against
    /// the slot's length when the queue was made, that there is room.
    #[inline]
    pub fn push(&mut self, word: u64) {
        debug_assert!(self.room >= WORD, "the slot is full");
        if let Some(room) = self.room.checked_sub(WORD) {
            let at = self.next.cast::<u64>();
            // SAFETY: `room` bytes from `next` lie in the slot, and it was at least 8; `next` is a
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
        write!(f, "Tail(room for {} bytes)", self.room)
    }
}

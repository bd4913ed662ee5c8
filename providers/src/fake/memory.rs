//! UNSAFE ROOM of the fake kernel: registered memory, which the real kernel reaches through the
//! pages that it has pinned, and this one through the address that it was told.
//!
//! The rule by which bytes are reached is that of the regions themselves (`src/mr/memory.rs`): an
//! aligned word of 8 bytes inside the registration only ever as a word, the few bytes before the
//! first and after the last such word only as bytes, and all of it atomically. So the program may
//! look while the fake writes, as it may with a device.
//!
//! Must never be asked for anything outside of a registration that is there now: whoever calls holds
//! the lock of the fabric, under which registrations come and go.
#![allow(
    unsafe_code,
    reason = "follows the addresses of registered memory, as a device does"
)]

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// The memory of one registration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    base: usize,
    len: usize,
}

impl Region {
    /// What REG_MR names. Nothing is dereferenced before a work request asks for it.
    pub(super) fn new(start: u64, length: u64) -> Option<Self> {
        let base = usize::try_from(start).ok()?;
        let len = usize::try_from(length).ok()?;
        base.checked_add(len)?;
        Some(Self { base, len })
    }

    /// Whether these bytes lie inside.
    pub(super) fn holds(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// The offsets from which and up to which bytes are reached as words.
    const fn words(&self) -> (usize, usize) {
        let lead = self.base.wrapping_neg() % WORD;
        let first = if lead < self.len { lead } else { self.len };
        (first, first + (self.len - first) / WORD * WORD)
    }

    fn pointer(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(self.holds(offset, len), "outside of the registration");
        std::ptr::with_exposed_provenance_mut(self.base + offset)
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        let pointer = self.pointer(offset, 1);
        // SAFETY: `pointer` asserts that the byte lies in the registration. Whoever registered it
        // promised that the device may reach it (`StableBytes`, `RawMemory::new`), exposed its
        // provenance, and keeps it valid until the deregistration has returned, which takes the
        // fabric's lock that our caller holds. Bytes outside the words are reached as bytes only.
        unsafe { AtomicU8::from_ptr(pointer) }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        let pointer = self.pointer(offset, WORD).cast::<u64>();
        assert!(pointer.is_aligned(), "no word begins there");
        // SAFETY: as in `byte`, for 8 bytes, and aligned; an aligned word inside the registration is
        // only ever reached as a word.
        unsafe { AtomicU64::from_ptr(pointer) }
    }

    /// Copies out of it.
    pub(super) fn read(&self, offset: usize, out: &mut [u8]) {
        let (first, last) = self.words();
        let (mut at, mut rest) = (offset, out);
        while !rest.is_empty() {
            let inside = at >= first && at < last;
            let within = if inside { (at - first) % WORD } else { 0 };
            let step = if inside {
                (WORD - within).min(rest.len())
            } else {
                1
            };
            let (now, later) = rest.split_at_mut(step);
            if inside {
                // Relaxed throughout: the completion, published with Release, is what orders.
                let value = self.word(at - within).load(Ordering::Relaxed).to_ne_bytes();
                now.copy_from_slice(value.get(within..within + step).unwrap_or_default());
            } else {
                now.fill(self.byte(at).load(Ordering::Relaxed));
            }
            (at, rest) = (at + step, later);
        }
    }

    /// Copies into it.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        let (first, last) = self.words();
        let (mut at, mut rest) = (offset, bytes);
        while let Some(byte) = rest.first() {
            let inside = at >= first && at < last;
            let within = if inside { (at - first) % WORD } else { 0 };
            let step = if inside {
                (WORD - within).min(rest.len())
            } else {
                1
            };
            let (now, later) = rest.split_at(step);
            if !inside {
                self.byte(at).store(*byte, Ordering::Relaxed);
            } else if let Ok(whole) = <[u8; WORD]>::try_from(now) {
                self.word(at)
                    .store(u64::from_ne_bytes(whole), Ordering::Relaxed);
            } else {
                let word = self.word(at - within);
                // The word's other bytes may change meanwhile: they stay as they are found.
                let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
                    let mut value = old.to_ne_bytes();
                    if let Some(part) = value.get_mut(within..within + step) {
                        part.copy_from_slice(now);
                    }
                    Some(u64::from_ne_bytes(value))
                });
            }
            (at, rest) = (at + step, later);
        }
    }

    /// Changes the aligned word at `offset` in one step, and gives what it was.
    pub(super) fn update(&self, offset: usize, change: impl Fn(u64) -> u64) -> u64 {
        let word = self.word(offset);
        let before = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(change(old)));
        before.unwrap_or_else(|old| old)
    }
}

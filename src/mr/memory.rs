//! UNSAFE ROOM 4, second half: reaching bytes that somebody else may be writing.
//!
//! Two threads may hold a region, and the device and peers write it at any time, so no reference to
//! its bytes may exist and every access is atomic. Accesses to one byte must all be of one size
//! (mixed sizes that race are undefined for Rust's atomics), hence the rule: an aligned word of 8
//! bytes that lies wholly inside the buffer is only ever reached as a word; the few bytes before
//! the first and after the last such word only as bytes.
//!
//! Must never hand out a pointer or a reference to the bytes.
#![allow(
    unsafe_code,
    reason = "atomic access to memory that the device writes too"
)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use uverbs_abi::CommandError;
use uverbs_providers::sge::Sge;
use uverbs_providers::types::AccessFlags;
use uverbs_providers::verbs::{self, mr::Registered};

use super::{MrInner, StableBytes};
use crate::pd::ProtectionDomain;

const WORD: usize = size_of::<u64>();

/// The bytes of a registered buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
}

// SAFETY: the bytes are reached through atomics only, which any thread may use.
unsafe impl Send for Memory {}
// SAFETY: as above; `Memory` itself is never changed.
unsafe impl Sync for Memory {}

impl Memory {
    /// # Safety
    /// For as long as the value or a copy of it is used, `base` must be valid for reads of `len`
    /// bytes. If `writable`, also for writes, and nobody in this program may reach those bytes in any
    /// other way; if not, nobody at all may write them.
    pub(super) const unsafe fn new(base: NonNull<u8>, len: usize, writable: bool) -> Self {
        Self {
            base,
            len,
            writable,
        }
    }

    /// Registers the bytes; `access` must let nobody write what is not writable.
    pub(super) fn register(
        &self,
        pd: &ProtectionDomain,
        access: AccessFlags,
    ) -> Result<Registered, CommandError> {
        assert!(self.writable || !access.intersects(AccessFlags::NEED_WRITABLE));
        let (session, start) = (pd.context().session(), self.address());
        let len = self.len as u64;
        // SAFETY: the bytes stay valid until the region that this is part of has ended the
        // registration, and for good if that fails (`MrInner`'s `Drop`); until then they are
        // reached through this module alone, which expects others to write them (contract of
        // `new`), or, if nobody may, nobody can (just asserted).
        unsafe { verbs::mr::register(session, pd.inner.handle, start, len, start, access) }
    }

    pub(super) fn address(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The offsets from which and up to which bytes are reached as words.
    fn words(&self) -> (usize, usize) {
        let lead = self.base.as_ptr().addr().wrapping_neg() % WORD;
        let first = lead.min(self.len);
        (first, first + (self.len - first) / WORD * WORD)
    }

    /// The byte at `offset`, which must lie outside the words.
    fn byte(&self, offset: usize) -> &AtomicU8 {
        assert!(self.writable && offset < self.len);
        // SAFETY: `offset < len`, so the pointer stays inside the buffer of `new`.
        let pointer = unsafe { self.base.add(offset) };
        // SAFETY: valid for `len` bytes and reached through atomics only (contract of `new`); bytes
        // outside the words are reached through this function alone, so sizes never mix.
        unsafe { AtomicU8::from_ptr(pointer.as_ptr()) }
    }

    /// The word at `offset`, which must be one of the words' offsets.
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.checked_add(WORD).is_some_and(|end| end <= self.len));
        // SAFETY: `offset + 8 <= len`, so the pointer stays inside the buffer of `new`.
        let pointer = unsafe { self.base.add(offset) }.cast::<u64>();
        assert!(pointer.is_aligned());
        // SAFETY: aligned (just asserted), valid for 8 bytes, and reached through atomics only
        // (contract of `new`); an aligned word inside the buffer is reached through this function
        // alone, so sizes never mix.
        unsafe { AtomicU64::from_ptr(pointer.as_ptr()) }
    }

    /// Copies out of the buffer. Panics past its end; the caller checks.
    pub(super) fn read(&self, offset: usize, out: &mut [u8]) {
        if !self.writable {
            return self.read_constant(offset, out);
        }
        let (first, last) = self.words();
        let mut at = offset;
        let mut rest = out;
        while !rest.is_empty() {
            let step = if at < first || at >= last {
                // Relaxed throughout: a completion, which was polled with acquire, is what says
                // that the device is done; these loads only must not be torn within a word.
                rest[0] = self.byte(at).load(Ordering::Relaxed);
                1
            } else {
                let within = (at - first) % WORD;
                let value = self.word(at - within).load(Ordering::Relaxed).to_ne_bytes();
                let step = (WORD - within).min(rest.len());
                rest[..step].copy_from_slice(&value[within..within + step]);
                step
            };
            rest = &mut rest[step..];
            at += step;
        }
    }

    /// Copies out of a buffer that nobody writes.
    fn read_constant(&self, offset: usize, out: &mut [u8]) {
        let end = offset.checked_add(out.len());
        assert!(end.is_some_and(|end| end <= self.len));
        // SAFETY: `offset <= len`, so the pointer stays inside the buffer of `new`.
        let from = unsafe { self.base.add(offset) };
        // SAFETY: `offset + out.len() <= len`; valid for reads and written by nobody (contract of
        // `new`); `out` is borrowed exclusively, so the two do not overlap.
        unsafe {
            from.as_ptr()
                .copy_to_nonoverlapping(out.as_mut_ptr(), out.len())
        };
    }

    /// Copies into the buffer. Panics past its end; the caller checks.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        let (first, last) = self.words();
        let mut at = offset;
        let mut rest = bytes;
        while let Some(byte) = rest.first() {
            let step = if at < first || at >= last {
                self.byte(at).store(*byte, Ordering::Relaxed);
                1
            } else {
                let within = (at - first) % WORD;
                let step = (WORD - within).min(rest.len());
                let word = self.word(at - within);
                if let Some(whole) = rest.first_chunk::<WORD>().filter(|_| within == 0) {
                    word.store(u64::from_ne_bytes(*whole), Ordering::Relaxed);
                } else {
                    // The word's other bytes may change under us: they stay as they are found.
                    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
                        let mut value = old.to_ne_bytes();
                        value[within..within + step].copy_from_slice(&rest[..step]);
                        Some(u64::from_ne_bytes(value))
                    });
                }
                step
            };
            rest = &rest[step..];
            at += step;
        }
    }

    fn is_word(&self, offset: usize) -> bool {
        let (first, last) = self.words();
        offset >= first && offset < last && (offset - first).is_multiple_of(WORD)
    }

    fn aligned_word(&self, offset: usize) -> Option<&AtomicU64> {
        self.is_word(offset).then(|| self.word(offset))
    }

    /// One word, or `None` if the offset is not that of a word.
    pub(super) fn load(&self, offset: usize) -> Option<u64> {
        if self.writable {
            return Some(self.aligned_word(offset)?.load(Ordering::Relaxed));
        }
        let mut bytes = [0; WORD];
        self.is_word(offset)
            .then(|| self.read_constant(offset, &mut bytes))?;
        Some(u64::from_ne_bytes(bytes))
    }

    /// One word, or `None` if the offset is not that of a word.
    pub(super) fn store(&self, offset: usize, value: u64) -> Option<()> {
        self.aligned_word(offset)?.store(value, Ordering::Relaxed);
        Some(())
    }
}

impl<B: StableBytes> MrInner<B> {
    /// A stretch of the region for a work request; the caller has checked it against the length.
    pub(super) fn element(&self, start: usize, length: u32) -> Sge {
        let address = self.memory.address() + start as u64;
        // SAFETY: `lkey` is that of this region's own registration, whose translation covers the
        // region's bytes and no others, with the access that the owner allows (`register` checked
        // it). The bytes are this region's until the registration has ended, after which the device
        // refuses the key (provider: `dereg_fences`; else the memory is kept, `PdInner::bury`).
        unsafe { Sge::from_raw(address, length, self.registered.lkey) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer whose part `skip..` is the memory, so that its ends are unaligned.
    fn with_memory(skip: usize, len: usize, test: impl FnOnce(Memory)) {
        let mut words = vec![0u64; (skip + len).div_ceil(8) + 1];
        let base = NonNull::new(words.as_mut_ptr().cast::<u8>()).unwrap();
        // SAFETY: `skip` bytes from the start are inside the vector.
        let base = unsafe { base.add(skip) };
        // SAFETY: inside the vector, which outlives the test's use and is reached in no other way.
        let memory = unsafe { Memory::new(base, len, true) };
        test(memory);
    }

    #[test]
    fn copies_agree_with_a_plain_buffer_at_every_offset_and_alignment() {
        for skip in 0..9 {
            for len in [1, 2, 7, 8, 9, 15, 16, 17, 40] {
                with_memory(skip, len, |memory| {
                    let mut model = vec![0u8; len];
                    let mut next = 1u8;
                    for start in 0..len {
                        for count in [0, 1, 3, 8, 11, len] {
                            let count = count.min(len - start);
                            let bytes: Vec<u8> = (0..count)
                                .map(|_| {
                                    next = next.wrapping_add(1);
                                    next
                                })
                                .collect();
                            memory.write(start, &bytes);
                            model[start..start + count].copy_from_slice(&bytes);
                            let mut seen = vec![0; len - start];
                            memory.read(start, &mut seen);
                            assert_eq!(seen, model[start..], "skip {skip} len {len} at {start}");
                        }
                    }
                });
            }
        }
    }

    #[test]
    fn words_are_reached_only_where_they_are_aligned() {
        with_memory(3, 20, |memory| {
            assert_eq!(memory.load(0), None);
            assert_eq!(memory.store(5, 0x0102_0304_0506_0708), Some(()));
            assert_eq!(memory.load(5), Some(0x0102_0304_0506_0708));
            assert_eq!(memory.load(6), None);
            assert_eq!(
                memory.load(13),
                None,
                "the last word would end past the buffer"
            );
        });
    }

    #[test]
    fn threads_may_write_neighbouring_bytes_of_one_word() {
        with_memory(0, 8, |memory| {
            std::thread::scope(|scope| {
                for index in 0..8u8 {
                    scope.spawn(move || {
                        for round in 0..50u8 {
                            memory.write(usize::from(index), &[round ^ index]);
                        }
                    });
                }
            });
            let mut seen = [0; 8];
            memory.read(0, &mut seen);
            assert_eq!(
                seen,
                std::array::from_fn(|index| 49 ^ u8::try_from(index).unwrap())
            );
        });
    }
}

//! A stretch of memory shared with another party: the kernel, or the fake one in tests.
//!
//! Holding a [`Mapping`] gives a base and a length and nothing else. Reading and writing through it
//! is the business of the provider crate's `shared` module, the only one that may follow the
//! pointer.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use memmap2::MmapRaw;

/// Memory that somebody else reads and writes too; unmapped when dropped.
pub enum Mapping {
    /// A mapping of the device node.
    Mmap(MmapRaw),
    /// Ordinary memory, for a kernel that is played in the same process (tests, Miri).
    Heap(Arc<[AtomicU64]>),
}

impl Mapping {
    /// The first byte. Page-aligned for a mapping of the device, 8-aligned otherwise.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        let pointer = match self {
            Self::Mmap(map) => map.as_mut_ptr(),
            Self::Heap(words) => words.as_ptr().cast_mut().cast(),
        };
        NonNull::new(pointer).unwrap_or(NonNull::<u64>::dangling().cast())
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Mmap(map) => map.len(),
            Self::Heap(words) => size_of_val::<[AtomicU64]>(words),
        }
    }

    /// Whether it holds no byte at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Mmap(_) => "Mmap",
            Self::Heap(_) => "Heap",
        };
        write!(f, "Mapping::{kind}({} bytes)", self.len())
    }
}

//! What the tests of this crate share: memory that plays a mapped queue, and the other side of it,
//! written from the kernel's headers alone, so that it cannot repeat a mistake of the crate.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "a test may fail")]
#![allow(unsafe_code, reason = "makes elements that no device ever sees")]

pub mod kernel;
pub mod objects;
pub mod read;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uverbs_providers::abi::Mapping;
use uverbs_providers::sge::Sge;
use uverbs_providers::types::Lkey;

/// An element that names no memory of anybody's.
pub fn sge(addr: u64, length: u32, lkey: u32) -> Sge {
    // SAFETY: no device is there to look at it; the fake kernel follows no address.
    unsafe { Sge::from_raw(addr, length, Lkey(lkey)) }
}

/// A queue as the kernel sees it (`struct rxe_queue_buf`).
#[derive(Clone, Debug)]
pub struct Queue {
    pub words: Arc<[AtomicU64]>,
    pub log2: u32,
    pub mask: u32,
}

impl Queue {
    /// `slots` slots of `2^log2` bytes, all of them `fill`.
    pub fn new(slots: u32, log2: u32, fill: u8) -> Self {
        assert!(slots.is_power_of_two());
        let bytes = 384 + ((slots as usize) << log2);
        let words = (0..bytes / 8)
            .map(|i| {
                AtomicU64::new(if i < 48 {
                    0
                } else {
                    u64::from_ne_bytes([fill; 8])
                })
            })
            .collect();
        let this = Self {
            words,
            log2,
            mask: slots - 1,
        };
        this.set_u32(0, log2);
        this.set_u32(4, slots - 1);
        this
    }

    pub fn mapping(&self) -> Mapping {
        Mapping::Heap(Arc::clone(&self.words))
    }

    pub fn len(&self) -> usize {
        self.words.len() * 8
    }

    pub fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at.is_multiple_of(8));
        let words = &self.words[at / 8..(at + len).div_ceil(8)];
        let mut bytes: Vec<u8> = words
            .iter()
            .flat_map(|word| word.load(Ordering::Acquire).to_ne_bytes())
            .collect();
        bytes.truncate(len);
        bytes
    }

    pub fn set_bytes(&self, at: usize, bytes: &[u8]) {
        assert!(at.is_multiple_of(8) && bytes.len().is_multiple_of(8));
        for (word, bytes) in self.words[at / 8..].iter().zip(bytes.chunks_exact(8)) {
            word.store(
                u64::from_ne_bytes(bytes.try_into().unwrap()),
                Ordering::Relaxed,
            );
        }
    }

    fn u32(&self, at: usize) -> u32 {
        let word = self.words[at / 8].load(Ordering::Acquire).to_ne_bytes();
        u32::from_ne_bytes(word[at % 8..at % 8 + 4].try_into().unwrap())
    }

    pub fn set_u32(&self, at: usize, value: u32) {
        let mut word = self.words[at / 8].load(Ordering::Acquire).to_ne_bytes();
        word[at % 8..at % 8 + 4].copy_from_slice(&value.to_ne_bytes());
        self.words[at / 8].store(u64::from_ne_bytes(word), Ordering::Release);
    }

    pub fn producer(&self) -> u32 {
        self.u32(128)
    }

    pub fn consumer(&self) -> u32 {
        self.u32(256)
    }

    pub fn set_producer(&self, index: u32) {
        self.set_u32(128, index);
    }

    pub fn set_consumer(&self, index: u32) {
        self.set_u32(256, index);
    }

    pub fn slot_at(&self, index: u32) -> usize {
        assert!(index <= self.mask);
        384 + ((index as usize) << self.log2)
    }

    pub fn slot(&self, index: u32) -> Vec<u8> {
        self.bytes(self.slot_at(index), 1 << self.log2)
    }

    pub fn waiting(&self) -> u32 {
        self.producer().wrapping_sub(self.consumer()) & self.mask
    }

    /// Takes the oldest slot, as the kernel does with a work queue.
    pub fn take(&self) -> Option<Vec<u8>> {
        if self.waiting() == 0 {
            return None;
        }
        let slot = self.slot(self.consumer());
        self.set_consumer((self.consumer() + 1) & self.mask);
        Some(slot)
    }

    /// Fills the next slot, as the kernel does with a completion queue; false if it is full.
    pub fn give(&self, bytes: &[u8]) -> bool {
        if self.waiting() == self.mask {
            return false;
        }
        self.set_bytes(self.slot_at(self.producer()), bytes);
        self.set_producer((self.producer() + 1) & self.mask);
        true
    }
}

/// A completion's 48 bytes (`struct ib_uverbs_wc`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Cqe {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub byte_len: u32,
    pub ex: [u8; 4],
    pub qp_num: u32,
    pub flags: u32,
}

impl Cqe {
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.wr_id.to_ne_bytes());
        for word in [self.status, self.opcode, 0, self.byte_len] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(self.ex);
        for word in [self.qp_num, 0, self.flags, 0, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        assert_eq!(bytes.len(), 48);
        bytes
    }
}

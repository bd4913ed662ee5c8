//! UNSAFE ROOM 3: the scatter/gather element, and the promise behind it.
//!
//! There is no `unsafe` block here; the room exists since [`Sge::from_raw`] declares a promise.
//! An element that comes from a region's `slice` keeps it by construction.
#![allow(
    unsafe_code,
    reason = "declares the promise that a raw element rests on"
)]

use std::fmt;

use crate::types::Lkey;

/// Longest message, and so longest element, in bytes (InfiniBand specification, § 9.7.4): 2³¹.
pub const MAX_MESSAGE: u32 = 1 << 31;

/// A stretch of registered memory, as a work request names it: address, length, lkey.
///
/// Opaque on purpose: it comes from `MemoryRegion::slice`, which has checked it against the
/// region. It borrows nothing. If the region is gone by the time the device looks, the device
/// refuses the key and the request fails; with which status depends on the driver
/// ([`LocalProtectionError`](crate::wc::WcStatus::LocalProtectionError) by the specification, others
/// on rxe).
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
#[doc(alias = "ibv_sge")]
pub struct Sge {
    /// The address; then length and lkey as they follow one another in memory, so that all of it is
    /// moved as one.
    words: [u64; 2],
}

impl Sge {
    /// An element from its three numbers.
    ///
    /// # Safety
    /// For as long as a request with this element can be under way, the device may read, and for a
    /// request that receives also write, the bytes that the device's translation of `lkey` gives
    /// for this range. The caller promises that this breaks no reference and no owner's claim to
    /// those bytes. With a key whose registration spans memory that is not known to the
    /// registration (implicit on-demand paging), that is the whole address space.
    #[must_use]
    pub const unsafe fn from_raw(addr: u64, length: u32, lkey: Lkey) -> Self {
        let length_lkey = if cfg!(target_endian = "little") {
            length as u64 | (lkey.0 as u64) << 32
        } else {
            (length as u64) << 32 | lkey.0 as u64
        };
        Self {
            words: [addr, length_lkey],
        }
    }

    /// The address that the device translates: the region's `hca_va` plus the offset.
    #[must_use]
    pub const fn addr(&self) -> u64 {
        let [addr, _] = self.words;
        addr
    }

    /// Length in bytes.
    #[inline]
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a zero-length element is ordinary"
    )]
    pub const fn len(&self) -> u32 {
        let [_, length_lkey] = self.words;
        let [a, b, c, d, ..] = length_lkey.to_ne_bytes();
        u32::from_ne_bytes([a, b, c, d])
    }

    /// The key of the registration.
    #[must_use]
    pub const fn lkey(&self) -> Lkey {
        let [_, length_lkey] = self.words;
        let [.., a, b, c, d] = length_lkey.to_ne_bytes();
        Lkey(u32::from_ne_bytes([a, b, c, d]))
    }

    /// Address, then length and lkey, as the structures of drivers have them in memory.
    #[inline]
    #[must_use]
    pub const fn words(&self) -> &[u64; 2] {
        &self.words
    }
}

impl fmt::Debug for Sge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sge({} bytes, lkey {:#x})", self.len(), self.lkey().0)
    }
}

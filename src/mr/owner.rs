//! UNSAFE ROOM 4, first half: whose memory a region is.
//!
//! A registered buffer is not kept as what it was: a `Box` that is moved asserts that nobody else
//! reaches its bytes, and the device does. So the owner is dissolved into raw parts while the
//! device has access, and rebuilt afterwards.
#![allow(
    unsafe_code,
    reason = "takes buffers apart and puts them together again"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use super::memory::Memory;

/// A buffer that a region can own: bytes that stay where they are.
///
/// # Safety
/// `dissolve` must give a pointer to initialised bytes that stays valid for reads of `len` bytes (and
/// writes, if `WRITABLE`) until `rebuild`, wherever the parts are moved; and while they are apart, nobody may
/// reach those bytes through anything else, but for reads if not `WRITABLE`.
pub unsafe trait StableBytes: Sized + Send + 'static {
    /// Whether the bytes may be written.
    const WRITABLE: bool;

    /// Takes the buffer apart.
    fn dissolve(self) -> RawParts<Self>;

    /// Puts it together again.
    ///
    /// # Safety
    /// The three must come from this type's own `dissolve`, each set used once.
    unsafe fn rebuild(base: NonNull<u8>, len: usize, extra: usize) -> Self;
}

/// A buffer taken apart. Forgetting it leaks the buffer.
pub struct RawParts<B: StableBytes> {
    base: NonNull<u8>,
    len: usize,
    extra: usize,
    owner: std::marker::PhantomData<B>,
}

// SAFETY: it stands for a `B`, which is `Send`; nothing here reaches the bytes.
unsafe impl<B: StableBytes> Send for RawParts<B> {}
// SAFETY: a shared `RawParts` gives numbers only.
unsafe impl<B: StableBytes> Sync for RawParts<B> {}

impl<B: StableBytes> RawParts<B> {
    /// The parts of a buffer: its first byte, its length, and one more number for `rebuild`.
    #[must_use]
    pub const fn new(base: NonNull<u8>, len: usize, extra: usize) -> Self {
        Self {
            base,
            len,
            extra,
            owner: std::marker::PhantomData,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn memory(&self) -> Memory {
        // SAFETY: `StableBytes` promises that the bytes stay valid and are reached by nobody else
        // until `rebuild`, or only read by anybody if the buffer is not writable; a region drops its
        // `Memory` for good before it rebuilds.
        unsafe { Memory::new(self.base, self.len, B::WRITABLE) }
    }

    pub(super) fn rebuild(self) -> B {
        // SAFETY: the parts come from `B::dissolve` (a `RawParts<B>` that somebody else made is
        // bound by the same trait's contract), and `self` is used up.
        unsafe { B::rebuild(self.base, self.len, self.extra) }
    }
}

/// A buffer that is put together again, and so freed, when this is dropped, and not before.
pub(super) struct Buried<B: StableBytes>(Option<RawParts<B>>);

impl<B: StableBytes> Buried<B> {
    pub(super) const fn new(parts: RawParts<B>) -> Self {
        Self(Some(parts))
    }
}

impl<B: StableBytes> Drop for Buried<B> {
    fn drop(&mut self) {
        drop(self.0.take().map(RawParts::rebuild));
    }
}

impl<B: StableBytes> fmt::Debug for RawParts<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawParts({} bytes)", self.len)
    }
}

// SAFETY: a boxed slice does not move with the box; `dissolve` gives up the box, and with it the
// only way to the bytes.
unsafe impl StableBytes for Box<[u8]> {
    const WRITABLE: bool = true;

    fn dissolve(self) -> RawParts<Self> {
        let len = self.len();
        let base = Self::into_raw(self).cast::<u8>();
        RawParts::new(NonNull::new(base).unwrap_or(NonNull::dangling()), len, 0)
    }

    unsafe fn rebuild(base: NonNull<u8>, len: usize, _extra: usize) -> Self {
        let slice = std::ptr::slice_from_raw_parts_mut(base.as_ptr(), len);
        // SAFETY: pointer and length come from `into_raw` in `dissolve`, used once.
        unsafe { Self::from_raw(slice) }
    }
}

// SAFETY: the vector's allocation does not move with the vector, and cannot grow while the vector
// is apart; `dissolve` gives up the only way to the bytes. Only the initialised part counts.
unsafe impl StableBytes for Vec<u8> {
    const WRITABLE: bool = true;

    fn dissolve(self) -> RawParts<Self> {
        let mut vector = ManuallyDrop::new(self);
        let base = NonNull::new(vector.as_mut_ptr()).unwrap_or(NonNull::dangling());
        RawParts::new(base, vector.len(), vector.capacity())
    }

    unsafe fn rebuild(base: NonNull<u8>, len: usize, extra: usize) -> Self {
        // SAFETY: the three come from a vector taken apart in `dissolve`, used once.
        unsafe { Self::from_raw_parts(base.as_ptr(), len, extra) }
    }
}

// SAFETY: static bytes stay for ever, and are only read, here and elsewhere.
unsafe impl StableBytes for &'static [u8] {
    const WRITABLE: bool = false;

    fn dissolve(self) -> RawParts<Self> {
        RawParts::new(NonNull::from(self).cast(), self.len(), 0)
    }

    unsafe fn rebuild(base: NonNull<u8>, len: usize, _extra: usize) -> Self {
        // SAFETY: pointer and length are those of a static slice.
        unsafe { std::slice::from_raw_parts(base.as_ptr(), len) }
    }
}

// SAFETY: the shared allocation does not move with the handle, the handle that is apart keeps it
// alive, and everybody only reads it (`Arc::get_mut` fails while there is another handle).
unsafe impl StableBytes for Arc<[u8]> {
    const WRITABLE: bool = false;

    fn dissolve(self) -> RawParts<Self> {
        let len = self.len();
        let base = Self::into_raw(self).cast::<u8>().cast_mut();
        RawParts::new(NonNull::new(base).unwrap_or(NonNull::dangling()), len, 0)
    }

    unsafe fn rebuild(base: NonNull<u8>, len: usize, _extra: usize) -> Self {
        let slice = std::ptr::slice_from_raw_parts(base.as_ptr(), len);
        // SAFETY: pointer and length come from `into_raw` in `dissolve`, used once.
        unsafe { Self::from_raw(slice) }
    }
}

/// Zeroed memory on page boundaries, what the device likes best: from 2 MiB on on those of huge pages,
/// so that the kernel can take such, and has fewer to pin.
pub struct PageBuf {
    base: NonNull<u8>,
    len: usize,
}

const PAGE: usize = 4096;
/// Of the processors that this runs on most.
const HUGE_PAGE: usize = 2 << 20;

fn layout_of(len: usize) -> Option<Layout> {
    let align = if len < HUGE_PAGE { PAGE } else { HUGE_PAGE };
    Layout::from_size_align(len, align).ok()
}

// SAFETY: it owns its bytes, like a boxed slice.
unsafe impl Send for PageBuf {}
// SAFETY: as above; a shared `PageBuf` only reads.
unsafe impl Sync for PageBuf {}

impl PageBuf {
    /// `len` zeroed bytes, the first on a page boundary (4 KiB; from 2 MiB on 2 MiB).
    ///
    /// Ends the program, as all allocations do, if there is not so much memory; for a length that
    /// somebody else chose there is [`try_zeroed`](Self::try_zeroed).
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let layout = layout_of(len).unwrap_or(Layout::new::<u8>());
        Self::try_zeroed(len).unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// As [`zeroed`](Self::zeroed); `None` if there is not so much memory.
    #[must_use]
    pub fn try_zeroed(len: usize) -> Option<Self> {
        let layout = layout_of(len)?;
        if len == 0 {
            let base = NonNull::dangling();
            return Some(Self { base, len });
        }
        // SAFETY: the layout's size is not 0.
        let base = unsafe { alloc_zeroed(layout) };
        NonNull::new(base).map(|base| Self { base, len })
    }

    /// The bytes.
    #[must_use]
    pub const fn as_slice(&self) -> &[u8] {
        // SAFETY: `base` is valid for `len` initialised bytes, which `self` owns.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    /// The bytes, to be changed.
    #[must_use]
    pub const fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: `base` is valid for `len` initialised bytes, which `self` owns and is borrowed
        // exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl Drop for PageBuf {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        if let Some(layout) = layout_of(self.len) {
            // SAFETY: allocated in `zeroed` with this layout, freed once.
            unsafe { dealloc(self.base.as_ptr(), layout) };
        }
    }
}

impl fmt::Debug for PageBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageBuf({} bytes)", self.len)
    }
}

// SAFETY: the allocation does not move with the value; `dissolve` gives up the only way to it.
unsafe impl StableBytes for PageBuf {
    const WRITABLE: bool = true;

    fn dissolve(self) -> RawParts<Self> {
        let whole = ManuallyDrop::new(self);
        RawParts::new(whole.base, whole.len, 0)
    }

    unsafe fn rebuild(base: NonNull<u8>, len: usize, _extra: usize) -> Self {
        Self { base, len }
    }
}

/// Memory that somebody else looks after.
#[derive(Debug)]
pub struct RawMemory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: whoever made it promised that the memory may be used from any thread (`new`).
unsafe impl Send for RawMemory {}

impl RawMemory {
    /// `len` bytes at `base`.
    ///
    /// # Safety
    /// From the moment when they are registered until the registration has ended (for ever, if it
    /// cannot be ended) the bytes must be initialised and mapped for reading and writing, whatever
    /// the access flags: the region's own `write_at` writes them as well. Meanwhile the device, and
    /// any peer with the key, may read them, and write them if the access flags allow. The caller
    /// promises that nothing in the program rests on their being otherwise, that they may be reached
    /// from any thread, and that nothing in the program reaches them in any other way: neither a
    /// reference, nor another region that overlaps this one.
    #[must_use]
    pub const unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Self { base, len }
    }

    /// The first byte.
    #[must_use]
    pub const fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }
}

// SAFETY: whoever made the `RawMemory` promised just this.
unsafe impl StableBytes for RawMemory {
    const WRITABLE: bool = true;

    fn dissolve(self) -> RawParts<Self> {
        RawParts::new(self.base, self.len, 0)
    }

    unsafe fn rebuild(base: NonNull<u8>, len: usize, _extra: usize) -> Self {
        Self { base, len }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZero;

    use super::*;

    /// Says of itself what cannot be.
    #[derive(Debug)]
    struct Wraps;

    // SAFETY: there are no bytes; the test wants it refused for its numbers.
    unsafe impl StableBytes for Wraps {
        const WRITABLE: bool = true;

        fn dissolve(self) -> RawParts<Self> {
            let last = NonZero::new(usize::MAX - 9).unwrap_or(NonZero::<usize>::MAX);
            RawParts::new(NonNull::without_provenance(last), 20, 0)
        }

        unsafe fn rebuild(_: NonNull<u8>, _: usize, _: usize) -> Self {
            Self
        }
    }

    #[test]
    #[cfg(feature = "fake")]
    fn a_range_that_wraps_is_refused_before_the_kernel_is_asked() {
        use crate::{AccessFlags, Errno, Explain, RegisterErrorCause};

        let device = crate::fake::Fabric::new().add_device("rxe0");
        let context = device.open().expect("a device");
        let pd = context.alloc_pd().expect("a protection domain");
        device.fail_always("REG_MR", Errno::EIO);
        let error = pd.register(Wraps, AccessFlags::LOCAL_WRITE).err();
        let error = error.expect("it was registered");
        let start = u64::MAX - 9;
        let cause = RegisterErrorCause::Wraps { start, length: 20 };
        assert_eq!(error.cause, cause);
        assert!(error.buffer.is_some() && Explain::errno(&error).is_none());
        assert_eq!(
            error.to_string(),
            "cannot register 20 bytes: the range wraps: 20 bytes at 0xfffffffffffffff6 end past the \
             last address"
        );
    }
}

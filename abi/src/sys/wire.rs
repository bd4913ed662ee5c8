//! UNSAFE ROOM 1, continued: a command as the kernel reads it, in a place for the longest one, of which
//! no more is written than the command has.
//!
//! Ground truth: `struct ib_uverbs_ioctl_hdr` and `struct ib_uverbs_attr` in `rdma_user_ioctl.h`.
//!
//! Beside each attribute lies what it [carries](Load). An address stands in an attribute only once the
//! command has been [laid out](Wire::lay_out), at the moment of a call. It must never say of an attribute
//! another length than that of the slice beside it.
#![allow(
    unsafe_code,
    reason = "hands out the attributes that have been written, of a place that is not written before"
)]

use std::fmt;
use std::mem::{MaybeUninit, needs_drop};
use std::os::fd::BorrowedFd;
use std::slice;

use zerocopy::IntoBytes;

use crate::layout::ioctl::{UVERBS_ATTR_F_MANDATORY, ib_uverbs_attr, ib_uverbs_ioctl_hdr};

/// The most attributes that one command can carry.
pub const MAX_ATTRS: usize = 16;

/// What an attribute carries, beside what its own 16 bytes say.
#[derive(Debug)]
pub(crate) enum Load<'a> {
    /// A value of up to 8 bytes, all of it in the attribute.
    Inline,
    /// Bytes for the kernel to read, by address.
    In(&'a [u8]),
    /// Bytes for the kernel to fill, by address.
    Out(&'a mut [u8]),
    /// The handle of an object.
    Object,
    /// Room for the handle of a new object.
    NewObject,
    /// A descriptor.
    Fd(BorrowedFd<'a>),
    /// Room for the number of a new descriptor.
    NewFd,
    /// The same in 4 bytes of their own, by address.
    NewFdInReply,
}

/// A slice of a command that the kernel gets by address.
#[derive(Debug)]
pub enum Slice<'s> {
    /// The kernel reads it.
    In(&'s [u8]),
    /// The kernel writes it.
    Out(&'s mut [u8]),
}

/// Bytes of the answer of a [`Load::NewFdInReply`].
pub(crate) const REPLY_FD_LEN: u16 = 4;

/// Header and attributes as the kernel reads them, and writes handles and flags back.
#[repr(C)]
pub(crate) struct Wire<'a> {
    header: ib_uverbs_ioctl_hdr,
    // Right after the header: both are multiples of 8 bytes, and aligned to 8. The first `count` are
    // written, here and below.
    attrs: [MaybeUninit<ib_uverbs_attr>; MAX_ATTRS],
    loads: [MaybeUninit<Load<'a>>; MAX_ATTRS],
    count: usize,
    /// Which of them say something that is good for one call: an address, or a place for a descriptor.
    by_call: u32,
}

const _: () = {
    assert!(std::mem::offset_of!(Wire<'_>, attrs) == size_of::<ib_uverbs_ioctl_hdr>());
    assert!(!needs_drop::<Load<'_>>(), "nobody drops them");
};

impl<'a> Wire<'a> {
    #[inline(always)]
    pub(crate) fn new(object_id: u16, method_id: u16) -> Self {
        Self {
            header: ib_uverbs_ioctl_hdr {
                object_id,
                method_id,
                ..Default::default()
            },
            attrs: [const { MaybeUninit::uninit() }; MAX_ATTRS],
            loads: [const { MaybeUninit::uninit() }; MAX_ATTRS],
            count: 0,
            by_call: 0,
        }
    }

    pub(crate) const fn header(&self) -> &ib_uverbs_ioctl_hdr {
        &self.header
    }

    /// How many attributes there are.
    #[inline(always)]
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Adds an attribute, mandatory, if there is room. `len` and `data` are what its 16 bytes say; of one
    /// that goes by address `len` is the length of its slice.
    #[inline(always)]
    #[must_use]
    pub(crate) fn push(&mut self, id: u16, len: u16, data: u64, load: Load<'a>) -> bool {
        let at = self.count;
        let (Some(attr), Some(place)) = (self.attrs.get_mut(at), self.loads.get_mut(at)) else {
            return false;
        };
        attr.write(ib_uverbs_attr {
            attr_id: id,
            len,
            flags: UVERBS_ATTR_F_MANDATORY,
            data,
            ..Default::default()
        });
        if matches!(
            load,
            Load::In(_) | Load::Out(_) | Load::NewFd | Load::NewFdInReply
        ) {
            self.by_call |= 1 << at;
        }
        place.write(load);
        self.count = at + 1;
        true
    }

    /// The attributes, and what each carries.
    #[inline]
    pub(crate) fn parts(&self) -> (&[ib_uverbs_attr], &[Load<'a>]) {
        // SAFETY: `push` alone moves `count`, by one after it has written the place that `count` was at,
        // in both arrays, and no further than they are long.
        let attrs = unsafe { slice::from_raw_parts(self.attrs.as_ptr().cast(), self.count) };
        // SAFETY: as above.
        let loads = unsafe { slice::from_raw_parts(self.loads.as_ptr().cast(), self.count) };
        (attrs, loads)
    }

    /// The same, to be answered.
    #[inline]
    pub(crate) fn parts_mut(&mut self) -> (&mut [ib_uverbs_attr], &mut [Load<'a>]) {
        let attrs = self.attrs.as_mut_ptr().cast();
        // SAFETY: as in `parts`; `self` is borrowed exclusively.
        let attrs = unsafe { slice::from_raw_parts_mut(attrs, self.count) };
        let loads = self.loads.as_mut_ptr().cast();
        // SAFETY: as above, and in another array.
        let loads = unsafe { slice::from_raw_parts_mut(loads, self.count) };
        (attrs, loads)
    }

    /// Completes it for a call, with `address` deciding what stands for each slice; `reply_fd` is where
    /// a [`Load::NewFdInReply`] goes.
    #[inline]
    pub(crate) fn lay_out(
        &mut self,
        driver: u32,
        reply_fd: &mut u32,
        mut address: impl FnMut(Slice<'_>) -> u64,
    ) {
        let length = size_of::<ib_uverbs_ioctl_hdr>() + self.count * size_of::<ib_uverbs_attr>();
        let header = &mut self.header;
        // At most 16 attributes: both fit.
        (header.num_attrs, header.length) = (len16(self.count), len16(length));
        header.driver_id = driver;
        let mut left = self.by_call;
        let (attrs, loads) = self.parts_mut();
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            let (Some(attr), Some(load)) = (attrs.get_mut(at), loads.get_mut(at)) else {
                return;
            };
            attr.data = match load {
                Load::In(bytes) => address(Slice::In(bytes)),
                Load::Out(bytes) => address(Slice::Out(bytes)),
                // Neither number 0, nor that of an earlier call, which is somebody's.
                Load::NewFd => u64::MAX,
                _ => address(Slice::Out(reply_fd.as_mut_bytes())),
            };
            // What was answered to an earlier call is not answered to this one.
            attr.flags &= UVERBS_ATTR_F_MANDATORY;
        }
    }
}

#[inline]
fn len16(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

impl fmt::Debug for Wire<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (attrs, loads) = self.parts();
        f.debug_struct("Wire")
            .field("header", &self.header)
            .field("attrs", &attrs)
            .field("loads", &loads)
            .finish()
    }
}

//! UNSAFE ROOM 1: the system calls on a uverbs file, and nothing else.
//!
//! Ground truth: `rdma_user_ioctl.h` for the ioctl; `uverbs_main.c` for what `write`, `mmap` and
//! `read` do. It must never interpret an error, retry, or keep an address after a call returns.
#![allow(
    unsafe_code,
    reason = "the ioctl, and taking over descriptors that the kernel made"
)]

pub(crate) mod bell;
pub mod process;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use memmap2::MmapOptions;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{Mode, fstat};

use crate::command::{Command, Entry, MAX_ATTRS, Value};
use crate::kernel::Kernel;
use crate::layout::ioctl::{
    RDMA_VERBS_IOCTL, UVERBS_ATTR_F_MANDATORY, UVERBS_ATTR_F_VALID_OUTPUT, ib_uverbs_attr,
    ib_uverbs_ioctl_hdr,
};
use crate::legacy::Doorbell;
use crate::{Errno, Mapping, legacy};

/// An open `/dev/infiniband/uverbsN`.
#[derive(Debug)]
pub struct UverbsFd {
    // Shared with the session, which writes doorbells to it itself.
    file: Arc<OwnedFd>,
}

impl UverbsFd {
    /// Opens a node for reading and writing, close-on-exec.
    ///
    /// # Safety
    /// Commands name memory by address: by registering it, or where a driver's part of a command
    /// holds an address. Whoever has the file, or a [`Session`](crate::Session) on it, must run only
    /// commands whose effect on this program's memory it vouches for, and must carry out what it is
    /// asked to carry out: if another [`Kernel`] stands before this one, it may not say that a
    /// region has been deregistered when it has not.
    ///
    /// # Errors
    /// What the kernel said; [`io::ErrorKind::NotFound`] with its own text if the node is there
    /// but is not, or no longer, the character device `expected` (as `st_rdev` has it).
    pub unsafe fn open(path: &Path, expected: Option<u64>) -> io::Result<Self> {
        // Not by `std::fs`: with musl that marks the file close-on-exec by a call of its own.
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let file = loop {
            match openat(AT_FDCWD, path, flags, Mode::empty()) {
                Err(nix::errno::Errno::EINTR) => {}
                other => break other?,
            }
        };
        let found = fstat(&file)?;
        let is_char = found.st_mode & libc::S_IFMT == libc::S_IFCHR;
        let is_wanted = expected.is_none_or(|dev| found.st_rdev == dev);
        if !is_char || !is_wanted {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the node does not belong to this device (any more)",
            ));
        }
        Ok(Self {
            file: Arc::new(file),
        })
    }
}

impl AsFd for UverbsFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Header and attributes as the kernel reads them, and writes handles and flags back.
#[repr(C)]
#[derive(Debug)]
pub struct Wire {
    /// The header.
    pub header: ib_uverbs_ioctl_hdr,
    /// The attributes; the header says how many count.
    pub attrs: [ib_uverbs_attr; MAX_ATTRS],
}

impl Wire {
    /// Lays a command out, with `address` deciding what stands for each slice.
    #[must_use]
    pub fn new(
        driver: u32,
        command: &mut Command<'_>,
        mut address: impl FnMut(Slice<'_>) -> u64,
        reply_fd: &mut u32,
    ) -> Self {
        let mut attrs = [ib_uverbs_attr::default(); MAX_ATTRS];
        let (object_id, method_id) = (command.object_id(), command.method_id());
        let mut count = 0u16;
        for (entry, attr) in command.entries_mut().zip(attrs.iter_mut()) {
            count += 1;
            attr.attr_id = entry.id;
            attr.flags = if entry.mandatory {
                UVERBS_ATTR_F_MANDATORY
            } else {
                0
            };
            (attr.len, attr.data) = match &mut entry.value {
                Value::Inline { len, data } => (*len, u64::from_ne_bytes(*data)),
                Value::In(bytes) => (len16(bytes), address(Slice::In(bytes))),
                Value::Out(bytes) => (len16(bytes), address(Slice::Out(bytes))),
                Value::Object(handle) => (0, u64::from(*handle)),
                // A descriptor that nobody writes back must not be taken for number 0.
                Value::NewFd(_) => (0, u64::MAX),
                Value::NewObject(_) => (0, 0),
                Value::Fd(fd) => (0, i64::from(fd.as_raw_fd()).cast_unsigned()),
                Value::NewFdInReply(_) => (
                    4,
                    address(Slice::Out(zerocopy::IntoBytes::as_mut_bytes(reply_fd))),
                ),
            };
        }
        let length =
            size_of::<ib_uverbs_ioctl_hdr>() + usize::from(count) * size_of::<ib_uverbs_attr>();
        let header = ib_uverbs_ioctl_hdr {
            length: u16::try_from(length).unwrap_or(u16::MAX),
            object_id,
            method_id,
            num_attrs: count,
            driver_id: driver,
            ..Default::default()
        };
        Self { header, attrs }
    }
}

/// A slice of a command that the kernel gets by address.
#[derive(Debug)]
pub enum Slice<'s> {
    /// The kernel reads it.
    In(&'s [u8]),
    /// The kernel writes it.
    Out(&'s mut [u8]),
}

/// `Command` refuses anything longer when it is built.
fn len16(bytes: &[u8]) -> u16 {
    u16::try_from(bytes.len()).unwrap_or(u16::MAX)
}

fn address_of(slice: Slice<'_>) -> u64 {
    let address = match slice {
        Slice::In(bytes) => bytes.as_ptr().expose_provenance(),
        Slice::Out(bytes) => bytes.as_mut_ptr().expose_provenance(),
    };
    address as u64
}

impl Kernel for UverbsFd {
    fn ioctl(&self, driver: u32, command: &mut Command<'_>) -> Result<(), Errno> {
        let mut reply_fd = u32::MAX;
        let mut wire = Wire::new(driver, command, address_of, &mut reply_fd);
        // SAFETY: `wire` is a header followed without a gap by the `num_attrs` attributes it
        // announces (both are asserted to be 24 and 16 bytes with alignment 8), and outlives the
        // call. Every address in it comes from a slice that `command` borrows, writable where the
        // kernel writes, or from `reply_fd`; `len` is that slice's length, so the kernel stays
        // inside; and it uses none of them after it returns.
        let result =
            unsafe { libc::ioctl(self.file.as_raw_fd(), RDMA_VERBS_IOCTL as _, &raw mut wire) };
        if result < 0 {
            return Err(Errno::last());
        }
        for (entry, attr) in command.entries_mut().zip(wire.attrs.iter()) {
            take_back(entry, attr, reply_fd);
        }
        Ok(())
    }

    fn write(&self, frame: &mut [u8], response: &mut [u8]) -> Result<(), Errno> {
        // The kernel believes what a frame says of the response's length, and other commands carry
        // addresses of their own.
        if !legacy::is_doorbell(frame) || response.len() < legacy::DOORBELL_RESPONSE_LEN {
            return Err(Errno::EINVAL);
        }
        if let Some(slot) = frame.get_mut(8..16) {
            slot.copy_from_slice(&address_of(Slice::Out(response)).to_ne_bytes());
        }
        match nix::unistd::write(&*self.file, frame) {
            Ok(written) if written == frame.len() => Ok(()),
            Ok(_) => Err(Errno::EIO),
            Err(errno) => Err(errno.into()),
        }
    }

    fn doorbell(&self, doorbell: &Doorbell) -> Result<(), Errno> {
        bell::ring(self.file.as_raw_fd(), doorbell)
            .map_err(|unrung| unrung.errno().unwrap_or(Errno::EIO))
    }

    fn doorbell_file(&self) -> Option<&Arc<OwnedFd>> {
        Some(&self.file)
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        MmapOptions::new()
            .offset(offset)
            .len(len)
            .map_raw(&*self.file)
            .map(Mapping::Mmap)
            .map_err(|error| Errno::from(&error))
    }
}

/// Reads back what the kernel left in one attribute of a command that succeeded.
fn take_back(entry: &mut Entry<'_>, attr: &ib_uverbs_attr, reply_fd: u32) {
    entry.answered = attr.flags & UVERBS_ATTR_F_VALID_OUTPUT != 0;
    match &mut entry.value {
        Value::NewObject(handle) => *handle = u32::try_from(attr.data).ok(),
        Value::NewFd(fd) => *fd = i32::try_from(attr.data.cast_signed()).ok().and_then(adopt),
        Value::NewFdInReply(fd) if entry.answered => *fd = reply_fd.try_into().ok().and_then(adopt),
        _ => {}
    }
}

/// Takes over a descriptor that the kernel has just made for us.
fn adopt(fd: i32) -> Option<OwnedFd> {
    if fd < 0 {
        return None;
    }
    // SAFETY: called only for a command that succeeded, with the number that the kernel wrote for
    // the descriptor it installed for this call (uverbs installs it on success only); nobody else
    // has been told of it, so it is ours alone.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

//! UNSAFE ROOM 1: the system calls on a uverbs file, and nothing else.
//!
//! Ground truth: `rdma_user_ioctl.h` for the ioctl; `uverbs_main.c` for what `write`, `mmap` and
//! `read` do. It must never interpret an error, retry, or use an address after a call returns.
#![allow(
    unsafe_code,
    reason = "the ioctl, and taking over descriptors that the kernel made"
)]

pub(crate) mod bell;
pub mod process;
pub(crate) mod wire;

pub use self::wire::Slice;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use memmap2::MmapOptions;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{Mode, fstat};

use crate::command::Command;
use crate::kernel::Kernel;
use crate::layout::ioctl::{RDMA_VERBS_IOCTL, ib_uverbs_attr, ib_uverbs_ioctl_hdr};
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

/// A command as the kernel would get it, with `address` deciding what stands for each slice: for tests, and
/// for who counts what that costs. `reply_fd` is where the number of a descriptor goes that is a whole
/// response.
pub fn laid_out<'c>(
    command: &'c mut Command<'_>,
    driver: u32,
    reply_fd: &mut u32,
    address: impl FnMut(Slice<'_>) -> u64,
) -> (&'c ib_uverbs_ioctl_hdr, &'c [ib_uverbs_attr]) {
    let wire = command.wire_mut();
    wire.lay_out(driver, reply_fd, address);
    (wire.header(), wire.parts().0)
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
        let wire = command.wire_mut();
        wire.lay_out(driver, &mut reply_fd, address_of);
        // SAFETY: `wire` is a header followed without a gap by the `num_attrs` attributes that it
        // announces, all of them written, and outlives the call. Where the kernel takes an attribute for
        // an address, one has just been put there of a slice that `command` borrows, writable where the
        // kernel writes, or of `reply_fd`; `len` is that slice's length, so the kernel stays inside; and
        // it uses none of them after it returns.
        let result =
            unsafe { libc::ioctl(self.file.as_raw_fd(), RDMA_VERBS_IOCTL as _, &raw mut *wire) };
        if result < 0 {
            return Err(Errno::last());
        }
        command.take_back(reply_fd, adopt);
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

/// Takes over a descriptor that the kernel has just made for us.
fn adopt(number: i64) -> Option<OwnedFd> {
    let fd = i32::try_from(number).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: called only for a command that succeeded, with the number that the kernel wrote for
    // the descriptor it installed for this call (uverbs installs it on success only); nobody else
    // has been told of it, so it is ours alone.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

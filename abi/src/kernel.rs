//! The seam between us and the device node: everything the crates above ask of a kernel goes
//! through [`Kernel`], so that a test can play the other side.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::command::Command;
use crate::legacy::Doorbell;
use crate::{Errno, Mapping, legacy};

/// One open uverbs file. The real one is [`UverbsFd`](crate::sys::UverbsFd).
///
/// Implementations neither retry nor interpret: an error number is handed on as it came.
pub trait Kernel: Send + Sync + fmt::Debug {
    /// Runs one ioctl command. On success every answered output has been filled in, and
    /// [`Command::entries`] shows which were.
    fn ioctl(&self, driver: u32, command: &mut Command<'_>) -> Result<(), Errno>;

    /// Hands over one `write()` command: a doorbell, the only one that is sent this way, and the only
    /// one that the real kernel's file takes (`EINVAL` otherwise). The kernel is given the address of `response` in bytes 8
    /// to 16 of `frame`, where every command that has a response keeps that address.
    ///
    /// Fails with `EACCES` in a process that is not, or is no longer, the one that opened the file
    /// as far as credentials go: after `fork()`, or after any change of user or group id.
    fn write(&self, frame: &mut [u8], response: &mut [u8]) -> Result<(), Errno>;

    /// Rings: [`write`](Self::write) of a doorbell's frame.
    fn doorbell(&self, doorbell: &Doorbell) -> Result<(), Errno> {
        let mut frame = *doorbell.frame();
        self.write(&mut frame, &mut [0; legacy::DOORBELL_RESPONSE_LEN])
    }

    /// A file that doorbells may as well be written to, without a call of [`doorbell`](Self::doorbell).
    /// Asked for once. By itself there is none, and a kernel that is asked for every doorbell need not
    /// know of this.
    fn doorbell_file(&self) -> Option<&Arc<OwnedFd>> {
        None
    }

    /// Maps `len` bytes from `offset`, shared, for reading and writing.
    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno>;
}

/// A kernel that is never written to, for processes that may do nothing but ioctls: a write is refused
/// before it is made, with the error at which a [`Session`](crate::Session) goes over to ioctls.
#[derive(Debug)]
pub struct IoctlOnly<K>(pub K);

impl<K: Kernel> Kernel for IoctlOnly<K> {
    fn ioctl(&self, driver: u32, command: &mut Command<'_>) -> Result<(), Errno> {
        self.0.ioctl(driver, command)
    }

    fn write(&self, _frame: &mut [u8], _response: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::EACCES)
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        self.0.map(offset, len)
    }
}

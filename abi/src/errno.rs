//! An error number of the kernel, as a value.
//!
//! Ground truth: `errno(3)`. Names and texts come from `nix`, so that no table of ours can drift.

use std::error::Error;
use std::fmt;
use std::io;

use crate::CommandError;

/// An error number as the kernel returned it, always positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

impl Errno {
    /// Operation not permitted.
    pub const EPERM: Self = Self(libc::EPERM);
    /// No such file or directory.
    pub const ENOENT: Self = Self(libc::ENOENT);
    /// Interrupted system call.
    pub const EINTR: Self = Self(libc::EINTR);
    /// Input/output error; from uverbs: the device has been removed.
    pub const EIO: Self = Self(libc::EIO);
    /// Bad file descriptor.
    pub const EBADF: Self = Self(libc::EBADF);
    /// Try again.
    pub const EAGAIN: Self = Self(libc::EAGAIN);
    /// Out of memory; from memory registration most often the locked-memory limit.
    pub const ENOMEM: Self = Self(libc::ENOMEM);
    /// Permission denied.
    pub const EACCES: Self = Self(libc::EACCES);
    /// Bad address.
    pub const EFAULT: Self = Self(libc::EFAULT);
    /// Device or resource busy.
    pub const EBUSY: Self = Self(libc::EBUSY);
    /// No such device.
    pub const ENODEV: Self = Self(libc::ENODEV);
    /// Invalid argument.
    pub const EINVAL: Self = Self(libc::EINVAL);
    /// Not a tty; from uverbs: a kernel without the ioctl interface.
    pub const ENOTTY: Self = Self(libc::ENOTTY);
    /// No space left; from uverbs: a command or reply shorter than the kernel's structure.
    pub const ENOSPC: Self = Self(libc::ENOSPC);
    /// Function not implemented.
    pub const ENOSYS: Self = Self(libc::ENOSYS);
    /// Protocol not supported; from uverbs: unknown object, method or mandatory attribute.
    pub const EPROTONOSUPPORT: Self = Self(libc::EPROTONOSUPPORT);
    /// Operation not supported.
    pub const EOPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    /// Network is unreachable.
    pub const ENETUNREACH: Self = Self(libc::ENETUNREACH);
    /// Connection timed out.
    pub const ETIMEDOUT: Self = Self(libc::ETIMEDOUT);
    /// No route to host.
    pub const EHOSTUNREACH: Self = Self(libc::EHOSTUNREACH);

    /// Wraps an error number; the sign is dropped, since kernel interfaces differ in it.
    #[must_use]
    pub const fn from_raw(errno: i32) -> Self {
        Self(errno.saturating_abs())
    }

    /// The number itself, positive.
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// The kernel's number behind any error: of the first, among it and its sources, that is the
    /// kernel's refusal. A [`std::io::Error`] that was made of an error of these crates has no
    /// `raw_os_error` of its own, since it keeps the error and its words; this finds it.
    ///
    /// ```
    /// use std::io;
    /// use uverbs_abi::{CommandError, Errno};
    ///
    /// let error = io::Error::from(CommandError::refused("REG_MR", Errno::ENOMEM));
    /// assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    /// assert_eq!((error.raw_os_error(), Errno::of(&error)), (None, Some(Errno::ENOMEM)));
    /// ```
    #[must_use]
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(errno) = error.downcast_ref::<Self>() {
                return Some(*errno);
            }
            if let Some(refusal) = error.downcast_ref::<CommandError>() {
                return refusal.errno();
            }
            // One that was made of an error names the sources of that as its own, and not that.
            if let Some(error) = error.downcast_ref::<io::Error>() {
                let inner = error.get_ref().map(|inner| inner as &(dyn Error + 'static));
                if let Some(errno) = error.raw_os_error().map(Self::from_raw) {
                    return Some(errno);
                }
                next = inner;
            } else {
                next = error.source();
            }
        }
        None
    }

    /// The kind of [`std::io::Error`] that it makes. What says that there is no such command is
    /// `Unsupported`, whichever of its numbers.
    #[must_use]
    pub fn kind(self) -> io::ErrorKind {
        match self {
            Self::ENOTTY | Self::EPROTONOSUPPORT | Self::EOPNOTSUPP | Self::ENOSYS => {
                io::ErrorKind::Unsupported
            }
            other => io::Error::from(other).kind(),
        }
    }

    /// What the calling thread's last failed system call left behind.
    #[must_use]
    pub fn last() -> Self {
        Self(nix::errno::Errno::last_raw())
    }
}

impl From<nix::errno::Errno> for Errno {
    fn from(errno: nix::errno::Errno) -> Self {
        Self(errno as i32)
    }
}

impl From<&io::Error> for Errno {
    fn from(error: &io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match nix::errno::Errno::from_raw(self.0) {
            nix::errno::Errno::UnknownErrno => write!(f, "errno {}", self.0),
            known => write!(f, "{known:?}: {}", known.desc().to_ascii_lowercase()),
        }
    }
}

impl Error for Errno {}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match nix::errno::Errno::from_raw(self.0) {
            nix::errno::Errno::UnknownErrno => write!(f, "Errno({})", self.0),
            known => write!(f, "{known:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Errno;

    #[test]
    fn names_its_number_and_drops_the_sign() {
        assert_eq!(Errno::from_raw(-22), Errno::EINVAL);
        assert_eq!(Errno::EINVAL.to_string(), "EINVAL: invalid argument");
        assert_eq!(Errno::from_raw(4095).to_string(), "errno 4095");
        assert_eq!(Errno::from_raw(i32::MIN).raw(), i32::MAX);
    }
}

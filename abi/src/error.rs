//! Why a command failed: the command's name, and one cause.

use std::fmt;
use std::io;

use crate::Errno;

/// A uverbs command that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandError {
    /// The command, as the kernel names it: `CQ_CREATE`, `REG_MR`, …
    pub command: &'static str,
    /// What stood in the way.
    pub cause: Cause,
}

/// The cause of a [`CommandError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The kernel refused, with this number.
    Errno(Errno),
    /// The running kernel or this device does not know the command, or a part of it that cannot
    /// be left out.
    Unsupported(Errno),
    /// The device has been removed. Nothing but destroying what is left will succeed any more.
    DeviceGone,
    /// The object belongs to another process: it was inherited through `fork()`. Only the process
    /// that opened the device may use it.
    ForeignProcess,
    /// The command could not be put into the kernel's format; nothing was sent.
    Malformed(&'static str),
    /// The kernel reported success, and yet left out a part of the reply.
    BadReply(&'static str),
}

impl CommandError {
    /// A refusal with `errno`, told apart from "this kernel cannot do that".
    #[must_use]
    pub fn refused(command: &'static str, errno: Errno) -> Self {
        let cause = match errno {
            Errno::ENOTTY | Errno::EPROTONOSUPPORT | Errno::EOPNOTSUPP | Errno::ENOSYS => {
                Cause::Unsupported(errno)
            }
            other => Cause::Errno(other),
        };
        Self { command, cause }
    }

    /// The kernel's error number, where it was the kernel that refused.
    #[must_use]
    pub const fn errno(&self) -> Option<Errno> {
        match self.cause {
            Cause::Errno(errno) | Cause::Unsupported(errno) => Some(errno),
            Cause::DeviceGone => Some(Errno::EIO),
            Cause::ForeignProcess | Cause::Malformed(_) | Cause::BadReply(_) => None,
        }
    }

    /// Whether the kernel or the device lacks the command.
    #[must_use]
    pub const fn is_unsupported(&self) -> bool {
        matches!(self.cause, Cause::Unsupported(_))
    }

    /// Whether the device has been removed.
    #[must_use]
    pub const fn is_device_gone(&self) -> bool {
        matches!(self.cause, Cause::DeviceGone)
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let command = self.command;
        match self.cause {
            Cause::Errno(errno) => write!(f, "{command} failed ({errno})"),
            Cause::Unsupported(errno) => {
                write!(
                    f,
                    "{command} is not supported by this kernel or device ({errno})"
                )
            }
            Cause::DeviceGone => write!(f, "{command}: the device is gone"),
            Cause::ForeignProcess => write!(
                f,
                "{command}: the object was inherited through fork(); open the device anew in this process"
            ),
            Cause::Malformed(what) => write!(f, "{command} was not sent: {what}"),
            Cause::BadReply(what) => {
                write!(f, "{command}: the kernel's reply is incomplete: {what}")
            }
        }
    }
}

impl std::error::Error for CommandError {}

impl From<CommandError> for io::Error {
    fn from(error: CommandError) -> Self {
        let kind = match (error.cause, error.errno()) {
            (Cause::Unsupported(_), _) => io::ErrorKind::Unsupported,
            (_, Some(errno)) => Self::from(errno).kind(),
            (Cause::BadReply(_), None) => io::ErrorKind::InvalidData,
            (Cause::ForeignProcess, None) => io::ErrorKind::PermissionDenied,
            (_, None) => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

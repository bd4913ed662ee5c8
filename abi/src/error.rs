//! Why a command failed: the command's name, and one cause.

use std::fmt;
use std::io;

use crate::{Errno, Explain, Report};

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

    /// Whether the kernel has carried the command out all the same: only the reply was no good.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self.cause, Cause::BadReply(_))
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
                )?;
                match seen_in(command) {
                    Some((major, minor)) => write!(f, "; Linux {major}.{minor} has it"),
                    None => Ok(()),
                }
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

impl Explain for CommandError {
    fn errno(&self) -> Option<Errno> {
        Self::errno(self)
    }

    fn explain(&self, report: &mut Report) {
        match self.cause {
            Cause::Unsupported(_) => {
                if let Some(release) = running_release() {
                    report.found(format!("this machine runs Linux {release}"));
                }
                report.cause("the kernel is older than the command");
                report.cause("the device's driver does not have the command");
            }
            Cause::DeviceGone => {
                report.next("drop what was made on the device, and open it again when it is back");
            }
            Cause::ForeignProcess => {
                report.meaning(
                    "queues and their locks are shared with the parent, or copies of the parent's; \
                     dropping them here leaves the parent's alone",
                );
                report.next("open the device in the process that uses it, after the fork");
            }
            Cause::Errno(Errno::EACCES | Errno::EPERM) => {
                report.next("look at the process's capabilities and at its container's rules");
            }
            Cause::Malformed(_) | Cause::BadReply(_) => {
                report.cause("a defect of this crate, or a kernel that it does not know");
                report.next("report it, with the kernel's release");
            }
            Cause::Errno(errno) => too_many_files(errno, report),
        }
    }

    /// `NetworkDown` for a device that is gone, as sockets have it whose interface is.
    fn kind(&self) -> io::ErrorKind {
        match (self.cause, self.errno()) {
            (Cause::DeviceGone, _) => io::ErrorKind::NetworkDown,
            (Cause::Unsupported(_), _) => io::ErrorKind::Unsupported,
            (Cause::BadReply(_), None) => io::ErrorKind::InvalidData,
            (Cause::ForeignProcess, None) => io::ErrorKind::PermissionDenied,
            (_, Some(errno)) => errno.kind(),
            (_, None) => io::ErrorKind::InvalidInput,
        }
    }
}

/// Says which limit it is, if there is no descriptor left.
#[doc(hidden)]
pub fn too_many_files(errno: Errno, report: &mut Report) {
    match errno.raw() {
        libc::EMFILE => {
            report.meaning("the process has as many files open as it may");
            report.next("raise its limit: `ulimit -n`");
        }
        libc::ENFILE => {
            report.meaning("the system has as many files open as it may");
            report.next("raise its limit: `sysctl fs.file-max`");
        }
        _ => {}
    }
}

/// The oldest Linux release whose headers have a command, of those that were looked at: 6.1, 6.12 and
/// 7.3 (`include/uapi/rdma/ib_user_ioctl_cmds.h`). For commands that came after the ioctl interface
/// itself; which release brought them was not looked up.
const fn seen_in(command: &str) -> Option<(u32, u32)> {
    match command.as_bytes() {
        b"QUERY_GID_TABLE" | b"QUERY_GID_ENTRY" | b"REG_DMABUF_MR" => Some((6, 1)),
        _ => None,
    }
}

/// The running kernel's release, as `uname -r` has it.
fn running_release() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    Some(text.trim().to_owned()).filter(|release| !release.is_empty())
}

impl From<CommandError> for io::Error {
    fn from(error: CommandError) -> Self {
        Self::new(error.kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_too_new_tells_a_release_that_has_it() {
        let error = CommandError::refused("REG_DMABUF_MR", Errno::EOPNOTSUPP);
        assert!(error.to_string().ends_with("; Linux 6.1 has it"));
        let text = error.report().to_string();
        assert!(text.starts_with(&error.to_string()), "{text}");
        assert!(text.contains("older than the command"), "{text}");
        let plain = CommandError::refused("REG_MR", Errno::EOPNOTSUPP);
        assert!(!plain.to_string().contains("has it"), "{plain}");
    }

    #[test]
    fn which_limit_of_open_files_is_reached_is_told() {
        let of = |errno| CommandError::refused("COMP_CHANNEL_CREATE", Errno::from_raw(errno));
        let text = of(libc::EMFILE).report().to_string();
        assert!(
            text.ends_with("next: raise its limit: `ulimit -n`"),
            "{text}"
        );
        let text = of(libc::ENFILE).report().to_string();
        assert!(text.ends_with("`sysctl fs.file-max`"), "{text}");
        assert!(of(libc::EBUSY).report().notes().is_empty());
    }

    /// The core, the ioctl interface and drivers each have a number for it.
    #[test]
    fn every_number_for_unsupported_is_one_kind() {
        for errno in [
            Errno::EOPNOTSUPP,
            Errno::EPROTONOSUPPORT,
            Errno::ENOTTY,
            Errno::ENOSYS,
        ] {
            let error = CommandError::refused("REG_DMABUF_MR", errno);
            assert!(error.is_unsupported(), "{error}");
            assert_eq!(error.errno(), Some(errno));
            assert_eq!(io::Error::from(error).kind(), io::ErrorKind::Unsupported);
        }
        let other = CommandError::refused("REG_DMABUF_MR", Errno::EBADF);
        assert!(!other.is_unsupported());
    }
}

//! Why memory was not registered, not given back, or not reached.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use thiserror::Error;
use uverbs_abi::count::Count;
use uverbs_abi::{CommandError, Errno, Explain, Report};

use super::into_io;
use crate::diagnose::MemoryFinding;

/// Memory could not be registered. The buffer comes back with it, if it can.
#[derive(Debug)]
#[non_exhaustive]
pub struct RegisterError<B> {
    /// The buffer that was to be registered; `None` if there was no memory for it, or if the kernel
    /// registered it without saying so, and it had to be leaked.
    pub buffer: Option<B>,
    /// Its length in bytes.
    pub length: usize,
    /// What stood in the way.
    pub cause: RegisterErrorCause,
    /// What was looked up about the memory after the kernel had refused.
    pub findings: Vec<MemoryFinding>,
}

impl<B> fmt::Display for RegisterError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = Count(self.length as u64, "byte");
        write!(f, "cannot register {bytes}: {}", self.cause)?;
        fmt::Display::fmt(&Findings(&self.cause, &self.findings), f)
    }
}

impl<B: fmt::Debug> StdError for RegisterError<B> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.source()
    }
}

/// What of the findings belongs into the short form: what tells why this number came.
struct Findings<'e>(&'e RegisterErrorCause, &'e [MemoryFinding]);

impl fmt::Display for Findings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errno = self.0.errno();
        for finding in self.1 {
            let tells = match finding {
                MemoryFinding::NotMapped { .. } | MemoryFinding::ReadOnly { .. } => {
                    errno == Some(Errno::EFAULT)
                }
                MemoryFinding::File { .. } => {
                    matches!(errno, Some(Errno::EFAULT | Errno::EOPNOTSUPP))
                }
                MemoryFinding::Pinned { .. } => {
                    matches!(
                        self.0,
                        RegisterErrorCause::Memlock { .. }
                            | RegisterErrorCause::MaybeMemlock { .. }
                    )
                }
                MemoryFinding::HugePages { .. } => false,
            };
            if tells {
                write!(f, "; {finding}")?;
            }
        }
        Ok(())
    }
}

/// The cause of a [`RegisterError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RegisterErrorCause {
    /// No bytes at all.
    #[error("a region needs at least 1 byte")]
    Empty,
    /// There is not so much memory.
    #[error("there is not so much memory")]
    NoMemory,
    /// The range ends past the last address there is.
    #[error("the range wraps: {length} bytes at {start:#x} end past the last address")]
    Wraps {
        /// The first byte.
        start: u64,
        /// Bytes.
        length: u64,
    },
    /// More than the device can register at once.
    #[error("the device registers at most {max_mr_size} bytes at once ({source})")]
    TooLarge {
        /// The device's limit, looked up after the kernel had refused.
        max_mr_size: u64,
        /// The refusal.
        source: CommandError,
    },
    /// No room, without a limit of locked memory that could be in the way.
    #[error("{source}; no room: the device has max_mr {max_mr} in all")]
    NoRoom {
        /// How many regions the device has room for in all; how many there are was not looked up.
        max_mr: u32,
        /// The refusal.
        source: CommandError,
    },
    /// Remote writes or atomics without local writes.
    #[error("REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE as well")]
    NeedsLocalWrite,
    /// A right to write on memory that its owner may only read, or the right to bind windows, for
    /// which the kernel wants writable memory too.
    #[error(
        "the buffer is read-only: leave LOCAL_WRITE, REMOTE_WRITE, REMOTE_ATOMIC and MW_BIND out"
    )]
    ReadOnly,
    /// No room, in a process with a limit of locked memory that what it needs and what it was found to
    /// have pinned do not reach.
    #[error(
        "{source}; no room in memory or in the device's table, or the locked-memory limit is too low \
         after all: {need} bytes are needed, the limit is {limit} bytes for all of the process"
    )]
    MaybeMemlock {
        /// Bytes that this registration pins, in whole pages.
        need: u64,
        /// The process's limit in bytes at the time of failing.
        limit: u64,
        /// The refusal.
        source: CommandError,
    },
    /// More locked memory than the process may have: this registration, and what devices have pinned
    /// of it already, are above the limit, and it has no `CAP_IPC_LOCK`.
    #[error(
        "the locked-memory limit is too low: {need} bytes are needed, the limit is {limit} bytes \
         for all of the process; raise it with `ulimit -l`, in limits.conf or in the service's \
         unit ({source})"
    )]
    Memlock {
        /// Bytes that this registration pins, in whole pages.
        need: u64,
        /// The process's limit in bytes at the time of failing.
        limit: u64,
        /// The refusal.
        source: CommandError,
    },
    /// The kernel refused.
    #[error("{0}")]
    Command(#[from] CommandError),
}

/// A region could not be deregistered, and nothing was freed. The region comes back with it.
#[derive(Debug)]
pub struct DeregisterError<R> {
    /// The region as it was.
    pub region: R,
    /// What stood in the way.
    pub cause: DeregisterErrorCause,
}

impl<R> fmt::Display for DeregisterError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot deregister the region: {}", self.cause)
    }
}

impl<R: fmt::Debug> StdError for DeregisterError<R> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.source()
    }
}

/// The cause of a [`DeregisterError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeregisterErrorCause {
    /// The device may go on writing for a while after a deregistration, so that the buffer cannot be
    /// had back before its protection domain is gone.
    #[error(
        "this driver does not say when the device has stopped writing; drop the region instead"
    )]
    NotFenced,
    /// Other handles to the region are alive.
    #[error("{}", Others(*others))]
    Shared {
        /// How many.
        others: usize,
    },
    /// The kernel refused.
    #[error("{0}")]
    Command(#[from] CommandError),
}

/// A range that is not inside its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RangeError {
    /// It begins or ends past the end.
    #[error("bytes {start}..{end} are not inside a region of {}", Count(*len as u64, "byte"))]
    Outside {
        /// First byte.
        start: usize,
        /// Past the last byte.
        end: usize,
        /// The region's length.
        len: usize,
    },
    /// It begins past the end, whatever its length.
    #[error("byte {start} is past the end of a region of {}", Count(*len as u64, "byte"))]
    PastEnd {
        /// First byte.
        start: usize,
        /// The region's length.
        len: usize,
    },
    /// It ends before it begins.
    #[error("the range {start}..{end} is reversed: it ends before it begins")]
    Reversed {
        /// First byte.
        start: usize,
        /// Past the last byte.
        end: usize,
    },
    /// It ends past the last address that there is.
    #[error("what begins at byte {start} and ends past every address is not inside a region of {}", Count(*len as u64, "byte"))]
    Endless {
        /// First byte.
        start: usize,
        /// The region's length.
        len: usize,
    },
    /// Longer than one message may be.
    #[error("{given} bytes are more than one element can hold: at most 2147483648")]
    TooLong {
        /// The range's length.
        given: usize,
    },
    /// Elements of at most 0 bytes, which hold nothing.
    #[error("a region cannot be cut into elements of at most 0 bytes")]
    ZeroMaximum,
    /// A write to memory whose owner may only read it.
    #[error("the buffer is read-only")]
    ReadOnly,
    /// An 8-byte access at an address that is not a multiple of 8.
    #[error("byte {offset} is not 8-aligned in memory")]
    Unaligned {
        /// The offset.
        offset: usize,
    },
}

impl RegisterErrorCause {
    /// The kernel's error number, where it was the kernel that refused; `ENOMEM` where there was no
    /// memory for the buffer.
    #[must_use]
    pub const fn errno(&self) -> Option<Errno> {
        match self {
            Self::Memlock { source, .. }
            | Self::MaybeMemlock { source, .. }
            | Self::TooLarge { source, .. }
            | Self::NoRoom { source, .. }
            | Self::Command(source) => source.errno(),
            Self::NoMemory => Some(Errno::ENOMEM),
            Self::Empty | Self::NeedsLocalWrite | Self::ReadOnly | Self::Wraps { .. } => None,
        }
    }
}

impl<B: fmt::Debug> Explain for RegisterError<B> {
    fn errno(&self) -> Option<Errno> {
        self.cause.errno()
    }

    fn explain(&self, report: &mut Report) {
        for finding in &self.findings {
            report.found(finding.to_string());
        }
        match self.cause {
            RegisterErrorCause::Memlock { .. } => {
                report.meaning(
                    "registered memory is pinned page by page, and counted for the process, unless it \
                     has CAP_IPC_LOCK",
                );
                report.cause("limits.conf was changed, and this session began before that");
                report.cause("a service, launcher or container sets a limit of its own");
                report.next(
                    "`ulimit -l` or `prlimit --memlock` in the very environment that it runs in",
                );
            }
            RegisterErrorCause::MaybeMemlock { source, .. } => {
                source.explain(report);
                report.cause("the machine is short of memory");
                report.cause("the device's regions are used up; `rdma resource` counts them");
                report.cause(
                    "the limit of locked memory, if more was pinned when this failed than is now",
                );
                report.next(
                    "register fewer, larger regions; compare `ulimit -l` with VmPin in \
                     /proc/PID/status",
                );
            }
            RegisterErrorCause::Command(source) if source.errno() == Some(Errno::EFAULT) => {
                report.cause("a right to write on memory that is mapped read-only");
                report.cause("a part of the range is not mapped, or was unmapped meanwhile");
                report.next(
                    "leave LOCAL_WRITE and the remote rights to write out, or map it writable",
                );
            }
            RegisterErrorCause::Command(source) if source.errno() == Some(Errno::EOPNOTSUPP) => {
                let is_file =
                    |finding: &MemoryFinding| matches!(finding, MemoryFinding::File { .. });
                if self.findings.iter().any(is_file) {
                    report.cause(
                        "files of most file systems cannot be pinned for long; anonymous memory, tmpfs, \
                         memfd and hugetlbfs can",
                    );
                }
                source.explain(report);
            }
            RegisterErrorCause::TooLarge { source, .. } => {
                source.explain(report);
                report.next("register it in parts, each a region of its own");
            }
            RegisterErrorCause::NoRoom { source, .. } => {
                source.explain(report);
                report.cause("the machine is short of memory");
                report.cause("the device's regions are used up; `rdma resource` counts them");
                report.next("register fewer, larger regions, and hand out stretches of them");
            }
            RegisterErrorCause::Command(source) => source.explain(report),
            RegisterErrorCause::Empty => {
                report.next("for a message of no bytes give a request no elements at all");
            }
            RegisterErrorCause::NoMemory => {
                report
                    .next("ask for less, or look at the process's limits: `ulimit -v`, its cgroup");
            }
            RegisterErrorCause::Wraps { .. } => {
                report.next("check address and length that `RawMemory` or `RawParts` was made of");
            }
            RegisterErrorCause::NeedsLocalWrite => {
                report.meaning("what a peer may write, the device must be able to write for it");
                report.next("add LOCAL_WRITE");
            }
            RegisterErrorCause::ReadOnly => {
                report.meaning("a buffer such as `&'static [u8]` must never change");
                report.next(
                    "register a `Vec<u8>`, or let `ProtectionDomain::allocate` make the memory",
                );
            }
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self.cause {
            RegisterErrorCause::Command(source)
            | RegisterErrorCause::Memlock { source, .. }
            | RegisterErrorCause::MaybeMemlock { source, .. }
            | RegisterErrorCause::TooLarge { source, .. }
            | RegisterErrorCause::NoRoom { source, .. } => source.kind(),
            RegisterErrorCause::NoMemory => io::ErrorKind::OutOfMemory,
            RegisterErrorCause::ReadOnly => io::ErrorKind::PermissionDenied,
            RegisterErrorCause::Empty
            | RegisterErrorCause::Wraps { .. }
            | RegisterErrorCause::NeedsLocalWrite => io::ErrorKind::InvalidInput,
        }
    }
}

/// Of the [kind](Explain::kind) that the error says.
impl<B: fmt::Debug + Send + Sync + 'static> From<RegisterError<B>> for io::Error {
    fn from(error: RegisterError<B>) -> Self {
        Self::new(error.kind(), error)
    }
}

struct Others(usize);

impl fmt::Display for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("another handle to it is alive; drop it first"),
            many => write!(f, "{many} other handles to it are alive; drop them first"),
        }
    }
}

impl<R: fmt::Debug> Explain for DeregisterError<R> {
    fn errno(&self) -> Option<Errno> {
        match &self.cause {
            DeregisterErrorCause::Command(source) => source.errno(),
            DeregisterErrorCause::NotFenced | DeregisterErrorCause::Shared { .. } => None,
        }
    }

    fn explain(&self, report: &mut Report) {
        match &self.cause {
            DeregisterErrorCause::Command(source) => {
                source.explain(report);
                if source.errno() == Some(Errno::EBUSY) {
                    report.cause("memory windows are bound to it");
                }
            }
            DeregisterErrorCause::NotFenced => {
                report.meaning(
                    "its memory is then kept until the last object of its protection domain is gone",
                );
            }
            DeregisterErrorCause::Shared { .. } => {
                report.meaning("the buffer comes back to the owner of the last handle");
                report.next("drop the clones first; the region is in this error: `error.region`");
            }
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match &self.cause {
            DeregisterErrorCause::Command(source) => source.kind(),
            DeregisterErrorCause::NotFenced => io::ErrorKind::Unsupported,
            DeregisterErrorCause::Shared { .. } => io::ErrorKind::ResourceBusy,
        }
    }
}

/// Of the [kind](Explain::kind) that the error says.
impl<R: fmt::Debug + Send + Sync + 'static> From<DeregisterError<R>> for io::Error {
    fn from(error: DeregisterError<R>) -> Self {
        Self::new(error.kind(), error)
    }
}

impl Explain for RangeError {
    /// None: the kernel is not asked.
    fn errno(&self) -> Option<Errno> {
        None
    }

    fn explain(&self, report: &mut Report) {
        match self {
            Self::Reversed { .. } => {
                report.cause("start and end are exchanged, or the end is meant as a length");
                report.next("a length of `n` from `start` on is `start..start + n`");
            }
            Self::Outside { .. } | Self::PastEnd { .. } | Self::Endless { .. } => {
                report.meaning("offsets count from the region's first byte, whatever its address");
                report.next("compare with `MemoryRegion::len`, or register more");
            }
            Self::TooLong { .. } => {
                report.next("cut it: `MemoryRegion::slices`");
            }
            Self::ZeroMaximum => {
                report.next("take the path MTU, or the longest message of the device");
            }
            Self::ReadOnly => {
                report.cause("the region owns a buffer such as `&'static [u8]`");
                report.next(
                    "register a `Vec<u8>`, or let `ProtectionDomain::allocate` make the memory",
                );
            }
            Self::Unaligned { .. } => {
                report.meaning("what counts is the address: region and offset together");
                report.next(
                    "take offsets that are multiples of 8, in memory from `ProtectionDomain::allocate`, \
                     which begins at a page",
                );
            }
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::ReadOnly => io::ErrorKind::PermissionDenied,
            _ => io::ErrorKind::InvalidInput,
        }
    }
}

into_io!(RangeError);

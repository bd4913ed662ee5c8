//! Errors, one small type for each operation. Each names the verb, the object and the kernel's error
//! number, and where it can be known the next step; `source()` keeps the cause.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;
use uverbs_abi::layout::driver::DriverId;
use uverbs_abi::{CommandError, Errno};
use uverbs_providers::error::{CloseError, CreateError as ProviderError};

/// The device list could not be read.
#[derive(Debug, Error)]
#[error("cannot list RDMA devices: {path}: {source}", path = path.display())]
pub struct ListError {
    /// What was being read.
    pub path: PathBuf,
    /// What the kernel said.
    pub source: io::Error,
}

/// A device could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no device of that name.
    #[error("no RDMA device is called {name:?}; {}", present_devices(present))]
    NoSuchDevice {
        /// The name asked for.
        name: String,
        /// The names there are.
        present: Vec<String>,
    },
    /// The list could not be read.
    #[error(transparent)]
    List(#[from] ListError),
    /// The device node could not be opened.
    #[error("cannot open {path}: {source}{}", node_hint(source), path = path.display())]
    Node {
        /// The node.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The running kernel speaks another uverbs ABI.
    #[error("the kernel speaks uverbs ABI {found}, this crate speaks {wanted}")]
    KernelAbi {
        /// The kernel's.
        found: u32,
        /// Ours.
        wanted: u32,
    },
    /// The kernel refused a command that opening needs.
    #[error("cannot open {device}: {source}{}", old_kernel_hint(source))]
    Command {
        /// The device.
        device: String,
        /// The refusal.
        source: CommandError,
    },
    /// The descriptors for waiting on events could not be prepared.
    #[error("cannot open {device}: no descriptor for waiting on events: {source}")]
    Events {
        /// The device.
        device: String,
        /// The refusal.
        source: io::Error,
    },
}

fn present_devices(present: &[String]) -> String {
    if present.is_empty() {
        "there is none at all (is a driver such as rdma_rxe loaded, and ib_uverbs?)".to_owned()
    } else {
        format!("there are: {}", present.join(", "))
    }
}

fn node_hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "; this process may not: look at the node's mode and group, and in a container at its \
             device rules"
        }
        Some(libc::ENOENT) => {
            "; sysfs has the device, /dev has no node for it: run udev, or make the node (in a \
             container: pass /dev/infiniband in)"
        }
        Some(libc::ENXIO | libc::ENODEV) => "; the device has been removed",
        _ => "",
    }
}

fn old_kernel_hint(source: &CommandError) -> &'static str {
    if source.is_unsupported() {
        "; this crate needs Linux 5.10 or newer"
    } else {
        ""
    }
}

/// A query failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct QueryError(#[from] pub CommandError);

/// A protection domain could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("cannot make a protection domain: {0}")]
pub struct AllocPdError(#[from] pub CommandError);

/// An object with queues could not be made. Nothing is left behind.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cannot make a {object}: {cause}{}", Limits(limits))]
pub struct CreateError {
    /// What was to be made.
    pub object: &'static str,
    /// What stood in the way.
    pub cause: CreateErrorCause,
    /// What was asked for beyond what the device has: name, asked, limit. Looked up after the
    /// kernel had refused.
    pub limits: Vec<(&'static str, u64, u64)>,
}

/// The cause of a [`CreateError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CreateErrorCause {
    /// The device's driver has no provider in this build.
    #[error(
        "no provider for the device's driver {driver:?} (driver ABI {abi}) is built in: queries, \
         protection domains and events work, queues do not"
    )]
    NoProvider {
        /// The driver.
        driver: DriverId,
        /// The version of its own part of the ABI.
        abi: u32,
    },
    /// A size of 0 that must be at least 1.
    #[error("{what} must be at least 1")]
    Zero {
        /// Which size.
        what: &'static str,
    },
    /// Two objects that do not belong to the same open device.
    #[error("the {what} belongs to another open device")]
    OtherContext {
        /// Which object.
        what: &'static str,
    },
    /// An object that it needs has been destroyed.
    #[error("the {what} has been destroyed")]
    Destroyed {
        /// Which object.
        what: &'static str,
    },
    /// The kernel refused, or described a queue that cannot be.
    #[error(transparent)]
    Refused(#[from] ProviderError),
}

struct Limits<'e>(&'e [(&'static str, u64, u64)]);

impl fmt::Display for Limits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, asked, limit)) in self.0.iter().enumerate() {
            let lead = if index == 0 { "; " } else { ", " };
            write!(
                f,
                "{lead}{name} {asked} was asked for, the device has {limit}"
            )?;
        }
        Ok(())
    }
}

/// Memory could not be registered. The buffer comes back with it, if it can.
#[derive(Debug, Error)]
#[error("cannot register {length} bytes: {cause}")]
pub struct RegisterError<B> {
    /// The buffer that was to be registered; `None` if there was no memory for it, or if the kernel
    /// registered it without saying so, and it had to be leaked.
    pub buffer: Option<B>,
    /// Its length in bytes.
    pub length: usize,
    /// What stood in the way.
    pub cause: RegisterErrorCause,
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
    /// Remote writes or atomics without local writes.
    #[error("REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE as well")]
    NeedsLocalWrite,
    /// A right to write on memory that its owner may only read, or the right to bind windows, for
    /// which the kernel wants writable memory too.
    #[error(
        "the buffer is read-only: leave LOCAL_WRITE, REMOTE_WRITE, REMOTE_ATOMIC and MW_BIND out"
    )]
    ReadOnly,
    /// More locked memory than the process may have.
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
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// A region could not be deregistered, and nothing was freed. The region comes back with it.
#[derive(Debug, Error)]
#[error("cannot deregister the region: {cause}")]
pub struct DeregisterError<R> {
    /// The region as it was.
    pub region: R,
    /// What stood in the way.
    pub cause: DeregisterErrorCause,
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
    #[error("{others} other handles to it are alive; drop them first")]
    Shared {
        /// How many.
        others: usize,
    },
    /// The kernel refused.
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// A range that is not inside its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RangeError {
    /// It begins or ends past the end.
    #[error("bytes {start}..{end} are not inside a region of {len} bytes")]
    Outside {
        /// First byte.
        start: usize,
        /// Past the last byte.
        end: usize,
        /// The region's length.
        len: usize,
    },
    /// Longer than one message may be.
    #[error("{given} bytes are more than one element can hold: at most 2147483648")]
    TooLong {
        /// The range's length.
        given: usize,
    },
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

/// An object was not destroyed, or its events are still out.
#[derive(Debug, Error)]
#[error("{cause}")]
pub struct DestroyError<T> {
    object: Option<T>,
    /// What stood in the way.
    pub cause: DestroyErrorCause,
}

/// The cause of a [`DestroyError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DestroyErrorCause {
    /// Asynchronous events about it have been handed out and are not acked; it was left alone.
    #[error("{outstanding} of its events are held and not acked; drop them first")]
    Outstanding {
        /// How many.
        outstanding: u32,
    },
    /// It is destroyed, and after the whole time some of its events are still held.
    #[error("it is destroyed, but {outstanding} of its events are still held and not acked")]
    StillHeld {
        /// How many.
        outstanding: u32,
    },
    /// It had been destroyed through another handle.
    #[error("it has been destroyed already")]
    Destroyed,
    /// An exclusive handle holds one of its queues.
    #[error("one of its queues is in exclusive use; drop the exclusive handle first")]
    InExclusiveUse,
    /// The kernel refused; `EBUSY` while something else uses it.
    #[error(transparent)]
    Command(#[from] CommandError),
}

impl<T> DestroyError<T> {
    pub(crate) const fn kept(object: T, cause: DestroyErrorCause) -> Self {
        Self {
            object: Some(object),
            cause,
        }
    }

    pub(crate) const fn gone(cause: DestroyErrorCause) -> Self {
        Self {
            object: None,
            cause,
        }
    }

    /// The object, whole and usable as before, unless it is gone.
    #[must_use]
    pub fn into_object(self) -> Option<T> {
        self.object
    }
}

impl From<CloseError> for DestroyErrorCause {
    fn from(error: CloseError) -> Self {
        match error {
            CloseError::InExclusiveUse => Self::InExclusiveUse,
            CloseError::Destroyed => Self::Destroyed,
            CloseError::Command(error) => Self::Command(error),
            _ => Self::Destroyed,
        }
    }
}

/// A command on an object failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The object has been destroyed through another handle.
    #[error("the {object} has been destroyed")]
    Destroyed {
        /// Which kind of object.
        object: &'static str,
    },
    /// The kernel refused.
    #[error(transparent)]
    Command(#[from] CommandError),
}

impl ObjectError {
    /// The kernel's error number, where it was the kernel that refused.
    #[must_use]
    pub const fn errno(&self) -> Option<Errno> {
        match self {
            Self::Destroyed { .. } => None,
            Self::Command(error) => error.errno(),
        }
    }
}

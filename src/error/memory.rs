//! Why memory was not registered, not given back, or not reached.

use thiserror::Error;
use uverbs_abi::CommandError;

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

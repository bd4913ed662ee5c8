//! Errors of the data path and of creation, one small type for each operation.

mod explain;

use std::error::Error as StdError;
use std::fmt;

use thiserror::Error;
use uverbs_abi::{Cause, CommandError, Errno};

use crate::types::{QpState, QueueId};

/// Why a batch of work requests was not posted whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "bad_wr")]
pub struct PostError {
    /// Where it was to be posted.
    pub queue: QueueId,
    /// How many of the batch, from its start, are in the queue and will complete. Unless `cause` is
    /// [`PostCause::Doorbell`], the one after them is the one at fault.
    pub accepted: usize,
    /// What stood in the way.
    pub cause: PostCause,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.queue)?;
        match self.accepted {
            0 => f.write_str("nothing was posted: ")?,
            1 => f.write_str("1 work request was posted, then: ")?,
            many => write!(f, "{many} work requests were posted, then: ")?,
        }
        // Of a batch; alone it needs no number.
        if self.accepted > 0 && self.cause.is_of_request() {
            write!(f, "request {}, counted from 0: ", self.accepted)?;
        }
        fmt::Display::fmt(&self.cause, f)
    }
}

impl StdError for PostError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.source()
    }
}

/// The cause of a [`PostError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PostCause {
    /// No free slot. A send queue empties as its requests are done and their completions polled, a
    /// receive queue as messages arrive.
    #[error("the queue is full; wait for requests to be done, and poll their completions")]
    QueueFull,
    /// More scatter/gather elements than the queue was made for.
    #[error("scatter/gather elements: the request has {given}, the queue takes {max}")]
    TooManySge {
        /// In the request.
        given: usize,
        /// The queue's limit.
        max: u32,
    },
    /// More inline bytes than the queue was made for.
    #[error("bytes of inline data: the request has {given}, the queue pair takes {max}")]
    InlineTooLong {
        /// In the request.
        given: u64,
        /// The queue pair's limit.
        max: u32,
    },
    /// More bytes in one message than the device takes: 2³¹ by the specification, one less on rxe.
    #[error("the message has {given} bytes, the device takes {max}")]
    MessageTooLong {
        /// In the request.
        given: u64,
        /// The device's limit.
        max: u32,
    },
    /// An atomic operation on anything but 8 bytes.
    #[error("an atomic operation needs 8 bytes for its result, the element has {given}")]
    AtomicLength {
        /// In the request.
        given: u32,
    },
    /// The queue pair is not, or not yet, in a state to take such requests.
    #[error("the queue pair is in state {state}; {needs}")]
    WrongState {
        /// As this crate last knew it.
        state: QpState,
        /// What to do.
        needs: &'static str,
    },
    /// An RDMA READ or atomic on a queue pair that may have none under way: it would never start.
    #[error(
        "the queue pair may have no RDMA READ or atomic under way: its max_rd_atomic is 0, as was \
         asked for or as the peer serves none"
    )]
    NoReads,
    /// The queue pair receives through a shared receive queue.
    #[error("the queue pair has a shared receive queue; post receives there")]
    UsesSharedReceiveQueue,
    /// An exclusive handle holds the queue.
    #[error("the queue is in exclusive use; post through the exclusive handle")]
    InExclusiveUse,
    /// The device's queues have no part in user space.
    #[error("the device has no queue to post to; it is for control and events only")]
    NoDataPath,
    /// The object has been destroyed.
    #[error("the object has been destroyed")]
    Destroyed,
    /// The object was inherited through `fork()`.
    #[error("the object was inherited through fork(); open the device anew in this process")]
    ForeignProcess,
    /// The device has been removed.
    #[error("the device is gone")]
    DeviceGone,
    /// The kernel left indices in the shared queue that cannot be.
    #[error("the queue's indices are out of range; destroy the object")]
    CorruptRing,
    /// The requests are in the queue, but the kernel could not be told. They start with the next
    /// doorbell that succeeds.
    #[error("the doorbell failed: {0}")]
    Doorbell(#[source] CommandError),
}

impl PostError {
    /// A batch for `queue` that failed with `cause` after `accepted` requests.
    #[must_use]
    pub const fn new(queue: QueueId, accepted: usize, cause: PostCause) -> Self {
        Self {
            queue,
            accepted,
            cause,
        }
    }
}

/// Why a queue was not given to one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{queue} cannot be had for exclusive use: {cause}")]
pub struct TakeError {
    /// Which, or whose.
    pub queue: QueueId,
    /// What stood in the way.
    #[source]
    pub cause: TakeCause,
}

/// The cause of a [`TakeError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TakeCause {
    /// An exclusive handle holds the queue.
    #[error("it is in exclusive use; drop the handle that has it first")]
    InExclusiveUse,
    /// The queue pair receives through a shared receive queue.
    #[error("it has a shared receive queue, which many post to")]
    UsesSharedReceiveQueue,
    /// The device's queues have no part in user space.
    #[error("the device has no queue to take; it is for control and events only")]
    NoDataPath,
    /// The object has been destroyed.
    #[error("it has been destroyed")]
    Destroyed,
    /// The object was inherited through `fork()`.
    #[error("it was inherited through fork(); open the device anew in this process")]
    ForeignProcess,
}

impl TakeError {
    /// `queue` was not to be had.
    #[must_use]
    pub const fn new(queue: QueueId, cause: TakeCause) -> Self {
        Self { queue, cause }
    }
}

/// Why a completion queue could not be polled. A failed work request is no such error: it is a
/// completion with a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
// As long as the length that a poll gives instead, so that nobody puts one together from bytes.
#[repr(usize)]
pub enum PollError {
    /// An exclusive handle holds the queue.
    #[error("the completion queue is in exclusive use; poll the exclusive handle")]
    InExclusiveUse,
    /// The device's queues have no part in user space.
    #[error("the device has no queue to take; it is for control and events only")]
    NoDataPath,
    /// The object has been destroyed.
    #[error("the completion queue has been destroyed")]
    Destroyed,
    /// The object was inherited through `fork()`.
    #[error("the object was inherited through fork(); open the device anew in this process")]
    ForeignProcess,
    /// The device has been removed, and every completion it left has been polled.
    #[error("the device is gone, and no completion is left")]
    DeviceGone,
    /// The kernel left indices in the shared queue that cannot be.
    #[error("the completion queue's indices are out of range; destroy it")]
    CorruptRing,
}

/// Why an object with queues was not created. Nothing is left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The create command, or the mapping after it, was refused.
    #[error("{0}")]
    Command(#[from] CommandError),
    /// The kernel described a queue that cannot be.
    #[error("{command}: the queue that the kernel made is not as this driver makes them: {what}")]
    BadQueue {
        /// The create command.
        command: &'static str,
        /// What is wrong.
        what: &'static str,
    },
}

/// Why an object was not destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CloseError {
    /// An exclusive handle holds one of its queues.
    #[error("one of its queues is in exclusive use; drop the exclusive handle first")]
    InExclusiveUse,
    /// It has been destroyed already.
    #[error("it has been destroyed already")]
    Destroyed,
    /// The kernel refused.
    #[error("{0}")]
    Command(#[from] CommandError),
}

impl CloseError {
    /// Whether the kernel object is gone all the same: it went with its device, or never was ours.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        match self {
            Self::Destroyed => true,
            Self::Command(error) => {
                matches!(error.cause, Cause::DeviceGone | Cause::ForeignProcess) || error.is_done()
            }
            Self::InExclusiveUse => false,
        }
    }
}

impl PostCause {
    /// The kernel's error number, where it was the kernel that refused; `EIO` for a device that is
    /// gone.
    #[must_use]
    pub const fn errno(&self) -> Option<Errno> {
        match self {
            Self::Doorbell(error) => error.errno(),
            Self::DeviceGone => Some(Errno::EIO),
            _ => None,
        }
    }
}

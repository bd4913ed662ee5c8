//! Errors of the data path and of creation, one small type for each operation.

use thiserror::Error;
use uverbs_abi::{Cause, CommandError, Errno, Explain, Report};

use crate::types::QpState;

/// Why a batch of work requests was not posted whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("posted {accepted} of the work requests, then: {cause}")]
#[doc(alias = "bad_wr")]
pub struct PostError {
    /// How many of the batch, from its start, are in the queue and will complete. Unless `cause` is
    /// [`PostCause::Doorbell`], the one after them is the one at fault.
    pub accepted: usize,
    /// What stood in the way.
    pub cause: PostCause,
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
    #[error("the request has {given} scatter/gather elements, the queue takes {max}")]
    TooManySge {
        /// In the request.
        given: usize,
        /// The queue's limit.
        max: u32,
    },
    /// More inline bytes than the queue was made for.
    #[error("the request has {given} bytes of inline data, the queue pair takes {max}")]
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
    Doorbell(CommandError),
}

impl PostError {
    /// A batch that failed with `cause` after `accepted` requests.
    #[must_use]
    pub const fn new(accepted: usize, cause: PostCause) -> Self {
        Self { accepted, cause }
    }
}

/// Why a completion queue could not be polled. A failed work request is no such error: it is a
/// completion with a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
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
    #[error(transparent)]
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
    #[error(transparent)]
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

impl Explain for PostError {
    fn errno(&self) -> Option<Errno> {
        self.cause.errno()
    }

    fn explain(&self, report: &mut Report) {
        if self.accepted != 0 {
            report.meaning(format!(
                "the first {} of the batch are queued and will complete; post the rest again",
                self.accepted
            ));
        }
        match self.cause {
            PostCause::QueueFull => {
                report
                    .cause("requests are not signalled, so that nothing tells when they are done");
                report.cause("completions are not polled");
                report.cause("the peer does not answer, or posts no receives");
                report.next("poll, or make the queue larger");
            }
            PostCause::TooManySge { .. } => {
                report.next(
                    "ask for more with max_send_sge, max_recv_sge or max_sge, or copy together",
                );
            }
            PostCause::InlineTooLong { .. } => {
                report.next("ask for more with max_inline_data, or send from a region");
            }
            PostCause::NoReads => {
                report.cause("the peer's endpoint says max_dest_rd_atomic 0: its `PathOptions`");
                report.cause("max_rd_atomic 0 in `ConnectOptions`");
                report.next(
                    "prepare the peer with max_dest_rd_atomic of 1 or more, and connect again",
                );
            }
            PostCause::DeviceGone => {
                report.next("drop what was made on the device, and open it again when it is back");
            }
            PostCause::Doorbell(error) => error.explain(report),
            _ => {}
        }
    }
}

impl Explain for PollError {
    /// `EIO` for a device that is gone.
    fn errno(&self) -> Option<Errno> {
        match self {
            Self::DeviceGone => Some(Errno::EIO),
            _ => None,
        }
    }
}

impl Explain for CreateError {
    fn errno(&self) -> Option<Errno> {
        match self {
            Self::Command(error) => error.errno(),
            Self::BadQueue { .. } => None,
        }
    }

    fn explain(&self, report: &mut Report) {
        match self {
            Self::Command(error) => error.explain(report),
            Self::BadQueue { .. } => {
                report.cause("a kernel newer than this crate, or a defect of either");
            }
        }
    }
}

impl Explain for CloseError {
    fn errno(&self) -> Option<Errno> {
        match self {
            Self::Command(error) => error.errno(),
            Self::InExclusiveUse | Self::Destroyed => None,
        }
    }
}

macro_rules! into_io {
    ($($error:ty)+) => {$(
        /// The kind is that of the kernel's number, and `InvalidInput` where there is none.
        impl From<$error> for std::io::Error {
            fn from(error: $error) -> Self {
                let kind = error
                    .errno()
                    .map_or(std::io::ErrorKind::InvalidInput, |errno| Self::from(errno).kind());
                Self::new(kind, error)
            }
        }
    )+};
}

into_io!(PostError PollError CreateError CloseError);

//! What the errors of the data path and of creation say in their long form, and which kind of
//! `std::io::Error` each is.

use std::io;

use uverbs_abi::{Errno, Explain, Report};

use super::{CloseError, CreateError, PollError, PostCause, PostError, TakeCause, TakeError};
use crate::types::{QpState, QueueId};

impl Explain for PostError {
    fn errno(&self) -> Option<Errno> {
        self.cause.errno()
    }

    fn explain(&self, report: &mut Report) {
        let queued = match self.accepted {
            0 => String::new(),
            1 => String::from("the first of the batch is queued and will complete; "),
            many => format!("the first {many} of the batch are queued and will complete; "),
        };
        let at = self.accepted;
        if self.cause.is_of_request() {
            report.meaning(format!(
                "{queued}request {at} of the batch, counted from 0, is at fault"
            ));
            report.next(format!(
                "mend request {at} first (`wrs[{at}]`; its `wr_id` tells which it is), then post it and \
                 what comes after it"
            ));
        } else if at > 0 {
            report.meaning(format!("{queued}post the rest again"));
        }
        if let PostCause::TooManySge { .. } = self.cause {
            let is_shared = !matches!(self.queue, QueueId::QueuePair(_));
            report.next(if is_shared {
                "ask for more with max_sge when making the queue, or copy together"
            } else {
                "ask for more when making the queue pair, with max_send_sge for sends or \
                 max_recv_sge for receives, or copy together"
            });
        }
        self.cause.tell(report);
    }

    fn kind(&self) -> io::ErrorKind {
        match self.cause {
            PostCause::QueueFull => io::ErrorKind::WouldBlock,
            PostCause::WrongState { .. } => io::ErrorKind::NotConnected,
            PostCause::InExclusiveUse => io::ErrorKind::ResourceBusy,
            PostCause::NoDataPath => io::ErrorKind::Unsupported,
            PostCause::ForeignProcess => io::ErrorKind::PermissionDenied,
            PostCause::DeviceGone => io::ErrorKind::NetworkDown,
            PostCause::CorruptRing => io::ErrorKind::InvalidData,
            PostCause::Doorbell(error) => error.kind(),
            PostCause::TooManySge { .. }
            | PostCause::InlineTooLong { .. }
            | PostCause::MessageTooLong { .. }
            | PostCause::AtomicLength { .. }
            | PostCause::NoReads
            | PostCause::UsesSharedReceiveQueue
            | PostCause::Destroyed => io::ErrorKind::InvalidInput,
        }
    }
}

/// What several errors say alike.
mod say {
    use uverbs_abi::Report;

    pub(super) fn exclusive(report: &mut Report) {
        report.cause("an exclusive handle of the queue is alive, here or in another thread");
        report.next("work through that handle, or drop it first");
    }

    pub(super) fn destroyed(report: &mut Report) {
        report.cause("`destroy` was called through another clone of the handle");
        report.next("let whoever still uses it end first, or drop handles instead of destroying");
    }

    pub(super) fn gone(report: &mut Report) {
        report.next("drop what was made on the device, and open it again when it is back");
    }

    pub(super) fn foreign(report: &mut Report) {
        report.meaning(
            "the queue and its lock are the parent's; dropping them here leaves those alone",
        );
        report.next("open the device in the process that uses it, after the fork");
    }

    pub(super) fn corrupt(report: &mut Report) {
        report
            .cause("something in this process wrote to the memory that is shared with the kernel");
        report.cause("a defect of the kernel's driver, or of this crate");
        report.next("look for stray writes (unsafe code, C libraries), then make the object anew");
    }

    pub(super) fn no_data_path(report: &mut Report) {
        report.meaning("the provider that the context was made with has no queues in user space");
        report.next("use a device, or a provider, that has them");
    }
}

impl PostCause {
    /// Whether it is one request of the batch that is at fault, whatever the queue's state.
    pub(super) const fn is_of_request(&self) -> bool {
        matches!(
            self,
            Self::TooManySge { .. }
                | Self::InlineTooLong { .. }
                | Self::MessageTooLong { .. }
                | Self::AtomicLength { .. }
                | Self::NoReads
        )
    }

    fn tell(&self, report: &mut Report) {
        match *self {
            Self::QueueFull => {
                report
                    .cause("requests are not signalled, so that nothing tells when they are done");
                report.cause("completions are not polled");
                report.cause("the peer does not answer, or posts no receives");
                report.cause(
                    "the doorbell is held back, so that the device was told of none of them",
                );
                report.next("poll, or make the queue larger");
            }
            // Which limit it was, the queue tells.
            Self::TooManySge { .. } => {}
            Self::InlineTooLong { .. } => {
                report.next("ask for more with max_inline_data, or send from a region");
            }
            Self::NoReads => {
                report.cause("the peer's endpoint says max_dest_rd_atomic 0: its `PathOptions`");
                report.cause("max_rd_atomic 0 in `ConnectOptions`");
                report.next(
                    "prepare the peer with max_dest_rd_atomic of 1 or more, and connect again",
                );
            }
            Self::MessageTooLong { .. } => {
                report.next("send it as several messages; `MemoryRegion::slices` cuts a region");
            }
            Self::AtomicLength { .. } => {
                report.next("give it an element of 8 bytes: `region.slice(at..at + 8)`");
            }
            Self::WrongState { state, .. } => {
                report.meaning(
                    "receives can be posted from INIT on, sends from RTS on; `prepare` leads to INIT, \
                     `connect` from there to RTS",
                );
                match state {
                    QpState::Reset => {
                        report.cause("`prepare` was not called, or RESET came after it");
                    }
                    _ => {
                        report.cause("`connect` was not called yet, or it failed half-way");
                    }
                }
                report.next("look at `QueuePair::state`, and at what `connect` gave");
            }
            Self::UsesSharedReceiveQueue => {
                report.next("post to `SharedReceiveQueue::post_recv`: `qp.srq()` is the handle");
            }
            Self::InExclusiveUse => say::exclusive(report),
            Self::NoDataPath => say::no_data_path(report),
            Self::Destroyed => say::destroyed(report),
            Self::ForeignProcess => say::foreign(report),
            Self::CorruptRing => say::corrupt(report),
            Self::DeviceGone => say::gone(report),
            Self::Doorbell(error) => {
                report.meaning("the requests are in the queue, and start with the next doorbell");
                error.explain(report);
            }
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

    fn explain(&self, report: &mut Report) {
        match self {
            Self::InExclusiveUse => say::exclusive(report),
            Self::NoDataPath => say::no_data_path(report),
            Self::Destroyed => say::destroyed(report),
            Self::ForeignProcess => say::foreign(report),
            Self::DeviceGone => say::gone(report),
            Self::CorruptRing => say::corrupt(report),
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::InExclusiveUse => io::ErrorKind::ResourceBusy,
            Self::NoDataPath => io::ErrorKind::Unsupported,
            Self::Destroyed => io::ErrorKind::InvalidInput,
            Self::ForeignProcess => io::ErrorKind::PermissionDenied,
            Self::DeviceGone => io::ErrorKind::NetworkDown,
            Self::CorruptRing => io::ErrorKind::InvalidData,
        }
    }
}

impl Explain for TakeError {
    fn errno(&self) -> Option<Errno> {
        None
    }

    fn explain(&self, report: &mut Report) {
        match self.cause {
            TakeCause::InExclusiveUse => say::exclusive(report),
            TakeCause::UsesSharedReceiveQueue => {
                report.next("post to `SharedReceiveQueue::post_recv`: `qp.srq()` is the handle");
            }
            TakeCause::NoDataPath => say::no_data_path(report),
            TakeCause::Destroyed => say::destroyed(report),
            TakeCause::ForeignProcess => say::foreign(report),
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self.cause {
            TakeCause::InExclusiveUse => io::ErrorKind::ResourceBusy,
            TakeCause::NoDataPath => io::ErrorKind::Unsupported,
            TakeCause::UsesSharedReceiveQueue | TakeCause::Destroyed => io::ErrorKind::InvalidInput,
            TakeCause::ForeignProcess => io::ErrorKind::PermissionDenied,
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
                report.next("report it, with the kernel's release");
            }
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Command(error) => error.kind(),
            Self::BadQueue { .. } => io::ErrorKind::InvalidData,
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

    fn explain(&self, report: &mut Report) {
        match self {
            Self::Command(error) => error.explain(report),
            Self::InExclusiveUse => say::exclusive(report),
            Self::Destroyed => say::destroyed(report),
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Command(error) => error.kind(),
            Self::InExclusiveUse => io::ErrorKind::ResourceBusy,
            Self::Destroyed => io::ErrorKind::InvalidInput,
        }
    }
}

macro_rules! into_io {
    ($($error:ty)+) => {$(
        /// Of the [kind](Explain::kind) that the error says.
        impl From<$error> for io::Error {
            fn from(error: $error) -> Self {
                Self::new(error.kind(), error)
            }
        }
    )+};
}

into_io!(PostError PollError TakeError CreateError CloseError);

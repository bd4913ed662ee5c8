//! What a driver's provider must be able to do.
//!
//! The contract speaks numbers and plain data, never objects of the crate above: a provider cannot
//! keep a protection domain alive, since it cannot name one. Calls come in batches, so that one
//! dynamic dispatch, one lock and one doorbell serve many work requests.
//!
//! Every method may be called from any thread at any time. In a process that inherited the object
//! through `fork()` every call says so before it takes a lock, since the lock may have been held by
//! a thread that does not exist in the child.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use uverbs_abi::{Cause, CommandError, Errno, Session};

use crate::error::{CloseError, CreateError, PollError, PostError, TakeError};
use crate::types::{
    CqHandle, Lkey, PdHandle, QpCaps, QpHandle, QpNum, QpState, QpType, Rkey, SrqHandle, WqHandle,
    WqNum,
};
use crate::wc::Wc;
use crate::wr::{RecvWr, SendWr};

/// What to create a completion queue with.
#[derive(Clone, Copy, Debug)]
pub struct CqSpec<'a> {
    /// Completions that it must hold; at least 1.
    pub depth: u32,
    /// Comes back in its events.
    pub token: u64,
    /// Where completion events go.
    pub channel: Option<BorrowedFd<'a>>,
    /// Which completion vector serves it.
    pub vector: u32,
    /// Where asynchronous events go.
    pub events: Option<BorrowedFd<'a>>,
}

/// What to create a shared receive queue with.
#[derive(Clone, Copy, Debug)]
pub struct SrqSpec<'a> {
    /// The protection domain.
    pub pd: PdHandle,
    /// Requests that it must hold; at least 1.
    pub max_wr: u32,
    /// Scatter/gather elements of one request.
    pub max_sge: u32,
    /// Comes back in its events.
    pub token: u64,
    /// Where asynchronous events go.
    pub events: Option<BorrowedFd<'a>>,
}

/// What to create a queue pair with.
#[derive(Clone, Copy, Debug)]
pub struct QpSpec<'a> {
    /// The protection domain.
    pub pd: PdHandle,
    /// The transport.
    pub qp_type: QpType,
    /// Where send completions go.
    pub send_cq: CqHandle,
    /// Where receive completions go.
    pub recv_cq: CqHandle,
    /// Where receives come from, if not from a queue of its own.
    pub srq: Option<SrqHandle>,
    /// Sizes wanted.
    pub caps: QpCaps,
    /// Whether every send request makes a completion.
    pub signal_all: bool,
    /// Comes back in its events.
    pub token: u64,
    /// Where asynchronous events go.
    pub events: Option<BorrowedFd<'a>>,
}

/// What to create a work queue with: a queue of receives that several queue pairs can share out
/// among themselves.
#[derive(Clone, Copy, Debug)]
pub struct WqSpec<'a> {
    /// The protection domain.
    pub pd: PdHandle,
    /// Where its completions go.
    pub cq: CqHandle,
    /// Requests that it must hold; at least 1.
    pub max_wr: u32,
    /// Scatter/gather elements of one request.
    pub max_sge: u32,
    /// Comes back in its events.
    pub token: u64,
    /// Where asynchronous events go.
    pub events: Option<BorrowedFd<'a>>,
}

/// Events of a destroyed completion queue that the kernel handed out, to be acked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CqReported {
    /// Completion events.
    pub completion: u32,
    /// Asynchronous events.
    pub asynchronous: u32,
}

/// A work request as it was found in its queue after something had failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// Whether it is a receive.
    pub is_receive: bool,
    /// Whether the device was to write to the memory: a receive, an RDMA READ, an atomic.
    pub writes: bool,
    /// The memory that it names; nothing for inline data.
    pub elements: Vec<Element>,
    /// What it names of the peer's memory, if it is of that kind.
    pub remote: Option<Remote>,
}

/// A place in the peer's memory that a request names, as plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The address that the peer's device translates.
    pub addr: u64,
    /// The key of the peer's registration.
    pub rkey: Rkey,
    /// Whether it is for an atomic operation.
    pub is_atomic: bool,
}

/// A stretch of memory that a request names, as plain numbers: to be talked about, not to be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// The address that the device translates.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// The key of the registration.
    pub lkey: Lkey,
}

/// What a completion queue is to be armed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// The next completion of any kind.
    Next,
    /// The next solicited completion: of a message that its sender marked so. A failure counts as
    /// well where the driver keeps to the specification; rxe does not count it.
    Solicited,
}

/// A kernel driver that this crate can work with.
pub trait Provider: Send + Sync + fmt::Debug {
    /// The driver's name, for people.
    fn name(&self) -> &'static str;

    /// The versions of the driver's own part of the ABI that this provider speaks.
    fn driver_abis(&self) -> std::ops::RangeInclusive<u32>;

    /// Whether a deregistration that has returned guarantees that the device touches the memory no
    /// more. Where it does not, a region's memory is kept until the last queue pair of its
    /// protection domain is gone. The evidence for each driver is in `docs/safety.md`.
    fn dereg_fences(&self) -> bool;

    /// The most bytes of inline data that a queue pair of the driver can have, for errors only: no
    /// attribute of a device tells it. `None` where it is not one number.
    fn max_inline_data(&self) -> Option<u32> {
        None
    }

    /// Creates a completion queue.
    ///
    /// # Errors
    /// [`CreateError`]; nothing is left behind.
    fn create_cq(
        &self,
        session: &Arc<Session>,
        spec: &CqSpec<'_>,
    ) -> Result<Box<dyn CqOps>, CreateError>;

    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// [`CreateError`]; nothing is left behind.
    fn create_srq(
        &self,
        session: &Arc<Session>,
        spec: &SrqSpec<'_>,
    ) -> Result<Box<dyn SrqOps>, CreateError>;

    /// Creates a queue pair.
    ///
    /// # Errors
    /// [`CreateError`]; nothing is left behind.
    fn create_qp(
        &self,
        session: &Arc<Session>,
        spec: &QpSpec<'_>,
    ) -> Result<Box<dyn QpOps>, CreateError>;

    /// Creates a work queue. Most drivers have none: as long as a provider says nothing of them,
    /// they are not supported.
    ///
    /// # Errors
    /// [`CreateError`]; nothing is left behind.
    fn create_wq(
        &self,
        session: &Arc<Session>,
        spec: &WqSpec<'_>,
    ) -> Result<Box<dyn WqOps>, CreateError> {
        let (_, _) = (session, spec);
        Err(CreateError::Command(CommandError {
            command: "WQ_CREATE",
            cause: Cause::Unsupported(Errno::EOPNOTSUPP),
        }))
    }
}

/// A driver's completion queue.
pub trait CqOps: Send + Sync + fmt::Debug {
    /// The kernel's handle.
    fn handle(&self) -> CqHandle;

    /// Completions that it holds, as granted.
    fn depth(&self) -> u32;

    /// Moves completions out, oldest first, and gives the part of `out` that was filled.
    ///
    /// # Errors
    /// [`PollError`].
    fn poll<'b>(&self, out: &'b mut [Wc]) -> Result<&'b mut [Wc], PollError>;

    /// As [`poll`](Self::poll), in as few steps as can be: how many completions were moved out, to the
    /// start of `out`, in one register. More than there is room for means that none was, and that `poll`
    /// tells what there is; so says a provider that has no shorter way.
    fn try_poll(&self, out: &mut [Wc]) -> usize {
        let _ = out;
        usize::MAX
    }

    /// Asks for one completion event.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn arm(&self, kind: Arm) -> Result<(), CommandError>;

    /// Takes the queue out for use by one owner.
    ///
    /// # Errors
    /// If it is out already, destroyed, or another process's.
    fn take(&self) -> Result<ExclusiveCq, TakeError>;

    /// Puts it back; after a destroy it is dropped instead.
    fn put_back(&self, queue: ExclusiveCq);

    /// Destroys the kernel object. Whoever uses the queue at this moment finishes first; whoever
    /// comes after is told that it is gone. If the kernel refuses, all is as before.
    ///
    /// # Errors
    /// [`CloseError`].
    fn destroy(&self) -> Result<CqReported, CloseError>;
}

/// A driver's shared receive queue.
pub trait SrqOps: Send + Sync + fmt::Debug {
    /// The kernel's handle.
    fn handle(&self) -> SrqHandle;

    /// Requests that it holds, as granted.
    fn max_wr(&self) -> u32;

    /// Scatter/gather elements of one request, as granted.
    fn max_sge(&self) -> u32;

    /// Posts receives, in order.
    ///
    /// # Errors
    /// [`PostError`]; `accepted` counts those that are in the queue.
    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostError>;

    /// What is left in the queue of requests that were posted with a number, the latest first; they may
    /// be done long since. For errors only, and empty where it cannot be told.
    fn posted(&self, wr_id: u64) -> Vec<Posted> {
        let _ = wr_id;
        Vec::new()
    }

    /// Arms the limit event: it comes when fewer than `limit` requests are left. 0 disarms.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn set_limit(&self, limit: u32) -> Result<(), CommandError>;

    /// Destroys the kernel object; see [`CqOps::destroy`]. Gives the number of asynchronous events
    /// that the kernel handed out.
    ///
    /// # Errors
    /// [`CloseError`].
    fn destroy(&self) -> Result<u32, CloseError>;
}

/// A driver's work queue.
pub trait WqOps: Send + Sync + fmt::Debug {
    /// The kernel's handle.
    fn handle(&self) -> WqHandle;

    /// The device's number of it.
    fn wq_num(&self) -> WqNum;

    /// Requests that it holds, as granted.
    fn max_wr(&self) -> u32;

    /// Scatter/gather elements of one request, as granted.
    fn max_sge(&self) -> u32;

    /// Destroys the kernel object; see [`CqOps::destroy`]. Gives the number of asynchronous events
    /// that the kernel handed out.
    ///
    /// # Errors
    /// [`CloseError`].
    fn destroy(&self) -> Result<u32, CloseError>;
}

/// A driver's queue pair.
pub trait QpOps: Send + Sync + fmt::Debug {
    /// The kernel's handle.
    fn handle(&self) -> QpHandle;

    /// The number that the peer needs.
    fn qp_num(&self) -> QpNum;

    /// Sizes as granted.
    fn caps(&self) -> QpCaps;

    /// Encodes and publishes send requests, in order, then rings the doorbell once.
    ///
    /// # Errors
    /// [`PostError`]; `accepted` counts those that are in the queue.
    fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), PostError>;

    /// Posts receives, in order.
    ///
    /// # Errors
    /// [`PostError`]; `accepted` counts those that are in the queue.
    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostError>;

    /// As [`SrqOps::posted`], of both queues.
    fn posted(&self, wr_id: u64) -> Vec<Posted> {
        let _ = wr_id;
        Vec::new()
    }

    /// The state as last known: after a command of ours, or as found since. The kernel may have
    /// moved it to the error state unnoticed.
    fn known_state(&self) -> QpState;

    /// Held over every command that asks for the state or changes it, and what is then stored of
    /// it: whoever looked earlier must not store later. Never taken before a queue's own lock by
    /// the same thread.
    fn commands(&self) -> &Mutex<()>;

    /// Tells the provider that a command has moved the queue pair to another state, or found it
    /// there. Called with [`commands`](Self::commands) held.
    ///
    /// # Errors
    /// The kernel's refusal of a command that the change made necessary.
    fn state_changed(&self, state: QpState) -> Result<(), CommandError>;

    /// Tells the provider that a command has set how many RDMA READs and atomics may be under way:
    /// with 0 it refuses to post one, which would never start.
    fn set_max_rd_atomic(&self, max_rd_atomic: u8) {
        let _ = max_rd_atomic;
    }

    /// Called after [`commands`](Self::commands) has been let go, whatever came of the command: what
    /// was put off because a command was under way is done now.
    fn settle(&self);

    /// Takes the send queue out for use by one owner.
    ///
    /// # Errors
    /// If it is out already, destroyed, or another process's.
    fn take_send(&self) -> Result<ExclusiveSend, TakeError>;

    /// Puts the send queue back; after a destroy it is dropped instead.
    fn put_back_send(&self, queue: ExclusiveSend);

    /// Takes the receive queue out for use by one owner.
    ///
    /// # Errors
    /// If it is out already, destroyed, another process's, or a shared one.
    fn take_recv(&self) -> Result<ExclusiveRecv, TakeError>;

    /// Puts the receive queue back; after a destroy it is dropped instead.
    fn put_back_recv(&self, queue: ExclusiveRecv);

    /// Destroys the kernel object; see [`CqOps::destroy`]. Gives the number of asynchronous events
    /// that the kernel handed out.
    ///
    /// # Errors
    /// [`CloseError`].
    fn destroy(&self) -> Result<u32, CloseError>;
}

/// A completion queue in the hands of one owner: no lock, dispatched without a table.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExclusiveCq {
    /// rxe's.
    #[cfg(feature = "rxe")]
    Rxe(Box<crate::rxe::cq::CqRing>),
}

/// A send queue in the hands of one owner.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExclusiveSend {
    /// rxe's.
    #[cfg(feature = "rxe")]
    Rxe(Box<crate::rxe::qp::SendRing>),
}

/// A receive queue in the hands of one owner.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExclusiveRecv {
    /// rxe's.
    #[cfg(feature = "rxe")]
    Rxe(Box<crate::rxe::qp::RecvRing>),
}

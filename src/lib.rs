//! RDMA verbs in pure Rust. The crate opens the kernel's uverbs device itself and speaks its ABI:
//! no libibverbs, no provider plug-ins, no C compiler; one static binary is enough.
//!
//! ```text
//!   Context ◄─ ProtectionDomain ◄─ MemoryRegion
//!      ▲  ▲          ▲
//!      │  │          └──────────── QueuePair ─► CompletionQueue (send, receive)
//!      │  └── CompletionQueue          └──────► SharedReceiveQueue, if any
//!      └───── AsyncEvents, CompletionChannel (for waiting; they do not keep the context)
//! ```
//!
//! Every object is a cheap handle that keeps what it rests on, so they can be dropped in any order
//! and put into one struct. Nothing blocks in `Drop`; the verbs that wait are called `destroy`.
//!
//! # A first program
//! ```
//! use uverbs::{AccessFlags, ConnectOptions, Context, PathOptions, Rc, RecvWr, SendWr, Wc};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # // Stand in for a device and a peer, so that this runs anywhere: the queue pair is its own peer.
//! # struct Context;
//! # impl Context {
//! #     fn open(name: &str) -> Result<uverbs::Context, uverbs::OpenError> {
//! #         uverbs::fake::Fabric::new().add_device(name).open()
//! #     }
//! # }
//! # fn exchange(local: &uverbs::Endpoint) -> uverbs::Endpoint { *local }
//! let context = Context::open("rxe0")?;
//! let pd = context.alloc_pd()?;
//! let cq = context.create_cq(16).build()?;
//! let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
//!
//! let local = qp.prepare(&PathOptions::default())?;
//! let remote = exchange(&local); // 40 bytes each way, by whatever means there are
//! let inbox = pd.allocate(4096, AccessFlags::LOCAL_WRITE)?;
//! // Before connecting: a send waits, by default without end, until its peer has posted a receive.
//! qp.post_recv(&[RecvWr::new(2, &[inbox.slice(..)?])])?;
//! qp.connect(&local, &remote, &ConnectOptions::default())?;
//!
//! let region = pd.allocate(4096, AccessFlags::empty())?;
//! region.write_at(0, b"hello")?;
//! qp.post_send(&[SendWr::send(1, &[region.slice(..5)?]).signaled()])?;
//!
//! let mut completions = [Wc::default(); 16];
//! let mut done = 0;
//! while done < 2 {
//!     for completion in cq.poll(&mut completions)? {
//!         println!("{} is done", completion.ok()?.wr_id); // 1: ours has arrived; 2: theirs is here
//!         done += 1;
//!     }
//!     std::thread::yield_now();
//! }
//! # assert_eq!(inbox.to_vec(..5)?, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//! - **Features**: `rxe` (default), the provider for soft-RoCE; `fake`, the module `uverbs::fake`:
//!   devices played in memory, for tests; `tokio`, the module `uverbs::stream`: events and completions
//!   as streams and futures.
//! - **Waiting** for completions: [`CompletionQueue::wait`] and
//!   [`wait_timeout`](CompletionQueue::wait_timeout), with a [`CompletionChannel`]. The rules are in
//!   `docs/completion-events.md`.
//! - **Events**: what happens to objects, ports and the device comes through [`Context::events`], each
//!   with a handle of what it is about ([`AsyncEvent`]). `docs/events-howto.md` has code to take over,
//!   for threads, `poll`, `epoll` and tokio.
//! - **Errors** are short as text. [`Explain`] gives the long form with causes and the next step
//!   (`use uverbs::Explain`, then `error.report()`); a `main` that ends in a [`Report`] prints it by
//!   itself; [`QueuePair::diagnose`] explains a completion that failed. `docs/errors.md` has every
//!   message.
//! - **Coming from C**: searching this documentation for `ibv_…` finds the counterpart; what is
//!   different is in `docs/from-libibverbs.md`.
//!
//! # Where `unsafe` is
//! Posting is safe, and rests on conditions that `docs/safety.md` lists: a region owns its buffer
//! and outlives the device's access to it, and a work request names memory only through a region.
//! What cannot be checked is in few places, each named: [`RawMemory`], [`StableBytes`],
//! [`Sge::from_raw`].
//!
//! # What does not compile
//! An event is acked once, since the ack takes it:
//! ```compile_fail,E0382
//! fn twice(event: uverbs::AsyncEvent) {
//!     event.ack();
//!     event.ack();
//! }
//! ```
//! A destroyed object cannot be used through the handle that destroyed it:
//! ```compile_fail,E0382
//! fn after(cq: uverbs::CompletionQueue) {
//!     let _ = cq.destroy();
//!     cq.depth();
//! }
//! ```
//! A registered buffer is the region's, and cannot be grown or freed meanwhile:
//! ```compile_fail,E0382
//! fn keep(pd: &uverbs::ProtectionDomain, mut buffer: Vec<u8>) {
//!     let region = pd.register(buffer, uverbs::AccessFlags::LOCAL_WRITE);
//!     buffer.push(1);
//! }
//! ```
//! Borrowed memory cannot be registered: the region could outlive it.
//! ```compile_fail
//! fn borrow(pd: &uverbs::ProtectionDomain) {
//!     let bytes = [0u8; 64];
//!     let region = pd.register(&bytes[..], uverbs::AccessFlags::empty());
//! }
//! ```
//! Registered bytes are never behind a reference:
//! ```compile_fail
//! fn peek(region: &uverbs::MemoryRegion) -> &[u8] {
//!     region.as_ref()
//! }
//! ```
//! A work request names memory only through a region:
//! ```compile_fail,E0451
//! let forged = uverbs::Sge { addr: 0x1000, length: 64, lkey: 7 };
//! ```
//! ```compile_fail,E0133
//! let forged = uverbs::Sge::from_raw(0x1000, 64, uverbs::Lkey(7));
//! ```
//! The kinds of transport are the specification's:
//! ```compile_fail,E0277
//! #[derive(Debug)]
//! enum Mine {}
//! impl uverbs::Transport for Mine {
//!     const TYPE: uverbs::QpType = uverbs::QpType::Rc;
//! }
//! ```
//! While one owner has a queue exclusively, posting needs that owner, one call at a time:
//! ```compile_fail,E0596
//! fn shared(queue: &uverbs::ExclusiveSendQueue) {
//!     let _ = queue.post_send(&[]);
//! }
//! ```
//! Polled completions lie in the caller's array, which cannot be polled into again while they are
//! looked at:
//! ```compile_fail,E0499
//! fn overlap(cq: &uverbs::CompletionQueue) {
//!     let mut room = [uverbs::Wc::default(); 4];
//!     let first = cq.poll(&mut room).unwrap();
//!     let second = cq.poll(&mut room).unwrap();
//!     println!("{first:?} {second:?}");
//! }
//! ```

#![deny(unsafe_code)]

mod attr;
mod caps;
mod channel;
mod context;
mod cq;
mod device;
mod diagnose;
mod error;
pub mod event;
#[cfg(feature = "fake")]
pub mod fake;
mod gate;
mod gid;
mod lent;
mod living;
mod mr;
mod open;
mod options;
mod pd;
mod qp;
mod srq;
#[cfg(feature = "tokio")]
pub mod stream;
mod teardown;
mod user_data;
mod wq;

pub use attr::{AtomicCap, DeviceAttr, LinkLayer, ObsoleteAttr, PortAttr, PortState};
pub use caps::{CqModerationCaps, OdpCaps, RssCaps, TagMatchingCaps};
pub use channel::{CompletionAcks, CompletionChannel, CompletionEvent, WaitError};
pub use context::Context;
pub use cq::{CompletionQueue, CompletionQueueBuilder, ExclusiveCompletionQueue};
#[doc(hidden)]
pub use device::Discovery;
pub use device::{Device, NetnsMode, NodeType, devices, netns_mode};
pub use diagnose::{MemoryFinding, PathFinding};
pub use error::{
    AllocPdError, CreateError, CreateErrorCause, DeregisterError, DeregisterErrorCause,
    DestroyError, DestroyErrorCause, Limit, ListError, NoProviderReason, ObjectError,
    ObjectErrorCause, OpenError, QueryError, QueryTarget, RangeError, RegisterError,
    RegisterErrorCause,
};
pub use event::{AsyncEvent, AsyncEventKind, AsyncEvents, EventError, Subject};
pub use gid::{Gid, GidEntry, GidType};
pub use mr::{MemoryRegion, PageBuf, RawMemory, RawParts, Slices, StableBytes};
pub use options::OpenOptions;
pub use pd::ProtectionDomain;
pub use qp::{
    AckTimeout, AddressVector, AnyQueuePair, ConnectError, ConnectOptions, Endpoint, EndpointError,
    ExclusiveReceiveQueue, ExclusiveSendQueue, GlobalRoute, HeldDoorbell, ModifyError,
    ModifyErrorCause, PathOptions, QpAttr, QpAttrMask, QpInfo, QueuePair, QueuePairBuilder, Rc,
    RnrTimer, Transport,
};
pub use srq::{SharedReceiveQueue, SharedReceiveQueueBuilder, SrqAttr};
pub use wq::{WorkQueue, WorkQueueBuilder};

pub use uverbs_abi::layout::driver::DriverId;
pub use uverbs_abi::{Cause, CommandError, Errno, Explain, Note, Report};
pub use uverbs_providers::contract::Arm;
pub use uverbs_providers::error::{
    CreateError as ProviderCreateError, PollError, PostCause, PostError, TakeCause, TakeError,
};
pub use uverbs_providers::explain::Explanation;
pub use uverbs_providers::sge::Sge;
pub use uverbs_providers::types::{
    AccessFlags, CqHandle, Lkey, Mtu, QpCaps, QpNum, QpState, QpType, QueueId, Rkey, SrqHandle,
    WqNum,
};
pub use uverbs_providers::wc::{Wc, WcError, WcFlags, WcOpcode, WcStatus};
pub use uverbs_providers::wr::{Payload, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr};

/// The kernel's side: layouts, commands, and the seam at which a test can play the kernel.
pub use uverbs_abi as abi;

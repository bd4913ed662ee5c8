//! Ids of the ioctl interface: objects, methods, and attributes that know what they carry.
//!
//! Ground truth: `rdma/ib_user_ioctl_cmds.h` for the numbers; what an attribute carries is
//! declared in the kernel's `drivers/infiniband/core` (`uverbs_std_types*.c`). An attribute here
//! is an id *and* a type, so a value of the wrong width does not compile. How attributes are
//! put together into a call is not known here. Nothing said about "since" means ≤ 6.1.

use core::fmt;
use core::marker::PhantomData;

pub mod attr;

/// An attribute of a method: its number, and in `K` what it carries.
pub struct Attr<K> {
    id: u16,
    kind: PhantomData<fn() -> K>,
}

impl<K> Attr<K> {
    /// The attribute with number `id`; a driver's own start at
    /// [`UVERBS_ID_DRIVER_NS`](super::ioctl::UVERBS_ID_DRIVER_NS).
    #[must_use]
    pub const fn new(id: u16) -> Self {
        Self {
            id,
            kind: PhantomData,
        }
    }

    /// The number.
    #[must_use]
    pub const fn id(self) -> u16 {
        self.id
    }
}

impl<K> Clone for Attr<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Attr<K> {}

impl<K> fmt::Debug for Attr<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Attr").field(&self.id).finish()
    }
}

/// Kind: the kernel reads a `T`.
#[derive(Debug)]
pub struct In<T>(PhantomData<fn(T)>);

/// Kind: the kernel writes a `T`.
#[derive(Debug)]
pub struct Out<T>(PhantomData<fn() -> T>);

/// Kind: the kernel reads bytes of any length.
#[derive(Debug)]
pub enum InBytes {}

/// Kind: the kernel writes bytes, up to the room given.
#[derive(Debug)]
pub enum OutBytes {}

/// Kind: the handle of an object that exists.
#[derive(Debug)]
pub enum Object {}

/// Kind: the handle of an object that the call makes; written by the kernel.
#[derive(Debug)]
pub enum NewObject {}

/// Kind: a file descriptor of the uverbs interface that exists.
#[derive(Debug)]
pub enum Fd {}

/// Kind: a file descriptor that the call makes; written by the kernel on success.
#[derive(Debug)]
pub enum NewFd {}

/// Kind: a file descriptor from elsewhere, such as a dma-buf. Since 7.3.
#[derive(Debug)]
pub enum RawFd {}

/// Kind: a small number, sent as eight bytes whatever its width.
#[derive(Debug)]
pub enum Const {}

/// Kind: flags, four or eight bytes; an unknown bit is refused.
#[derive(Debug)]
pub enum Flags {}

/// Kind: handles of objects that exist, an array of u32.
#[derive(Debug)]
pub enum ObjectArray {}

/// Object classes.
pub mod object {
    /// The device and the context; has no instances.
    pub const DEVICE: u16 = 0;
    /// Protection domain.
    pub const PD: u16 = 1;
    /// Completion channel.
    pub const COMP_CHANNEL: u16 = 2;
    /// Completion queue.
    pub const CQ: u16 = 3;
    /// Queue pair.
    pub const QP: u16 = 4;
    /// Shared receive queue.
    pub const SRQ: u16 = 5;
    /// Address handle.
    pub const AH: u16 = 6;
    /// Memory region.
    pub const MR: u16 = 7;
    /// Memory window.
    pub const MW: u16 = 8;
    /// Flow rule.
    pub const FLOW: u16 = 9;
    /// XRC domain.
    pub const XRCD: u16 = 10;
    /// Indirection table of receive side scaling.
    pub const RWQ_IND_TBL: u16 = 11;
    /// Work queue.
    pub const WQ: u16 = 12;
    /// Action of a flow rule.
    pub const FLOW_ACTION: u16 = 13;
    /// Device memory.
    pub const DM: u16 = 14;
    /// Counters of flow rules.
    pub const COUNTERS: u16 = 15;
    /// File of asynchronous events.
    pub const ASYNC_EVENT: u16 = 16;
    /// Hints on how the device reaches memory. Since 7.3.
    pub const DMAH: u16 = 17;
    /// Device pages as a dma-buf. Since 7.3.
    pub const DMABUF: u16 = 18;
    /// Completion counter. Since 7.3.
    pub const COMP_CNTR: u16 = 19;
}

/// Methods of each object class.
pub mod method {
    /// Methods of [`object::DEVICE`](super::object::DEVICE).
    pub mod device {
        /// Any write command, by its number.
        pub const INVOKE_WRITE: u16 = 0;
        /// Handles of the objects of one class.
        pub const INFO_HANDLES: u16 = 1;
        /// Attributes of a port.
        pub const QUERY_PORT: u16 = 2;
        /// Makes the context.
        pub const GET_CONTEXT: u16 = 3;
        /// Attributes of the context.
        pub const QUERY_CONTEXT: u16 = 4;
        /// GIDs of all ports.
        pub const QUERY_GID_TABLE: u16 = 5;
        /// One GID.
        pub const QUERY_GID_ENTRY: u16 = 6;
        /// Speed of a port. Since 7.3.
        pub const QUERY_PORT_SPEED: u16 = 7;
        /// Bounds of completion counters. Since 7.3.
        pub const QUERY_COMP_CNTR_CAPS: u16 = 8;
    }

    /// Methods of [`object::PD`](super::object::PD).
    pub mod pd {
        /// Destroys.
        pub const DESTROY: u16 = 0;
    }

    /// Methods of [`object::CQ`](super::object::CQ).
    pub mod cq {
        /// Makes.
        pub const CREATE: u16 = 0;
        /// Destroys.
        pub const DESTROY: u16 = 1;
    }

    /// Methods of [`object::QP`](super::object::QP).
    pub mod qp {
        /// Makes.
        pub const CREATE: u16 = 0;
        /// Destroys.
        pub const DESTROY: u16 = 1;
        /// Attaches a completion counter. Since 7.3.
        pub const ATTACH_COMP_CNTR: u16 = 2;
    }

    /// Methods of [`object::SRQ`](super::object::SRQ).
    pub mod srq {
        /// Makes.
        pub const CREATE: u16 = 0;
        /// Destroys.
        pub const DESTROY: u16 = 1;
    }

    /// Methods of [`object::AH`](super::object::AH).
    pub mod ah {
        /// Destroys.
        pub const DESTROY: u16 = 0;
    }

    /// Methods of [`object::MR`](super::object::MR).
    pub mod mr {
        /// Registers device memory.
        pub const DM_MR_REG: u16 = 0;
        /// Deregisters.
        pub const DESTROY: u16 = 1;
        /// Advises about the use of memory.
        pub const ADVISE_MR: u16 = 2;
        /// Attributes of a region.
        pub const QUERY_MR: u16 = 3;
        /// Registers a dma-buf.
        pub const REG_DMABUF_MR: u16 = 4;
        /// Registers memory of any kind. Since 7.3.
        pub const REG_MR: u16 = 5;
    }

    /// Methods of [`object::MW`](super::object::MW).
    pub mod mw {
        /// Destroys.
        pub const DESTROY: u16 = 0;
    }

    /// Methods of [`object::FLOW`](super::object::FLOW).
    pub mod flow {
        /// Destroys.
        pub const DESTROY: u16 = 0;
    }

    /// Methods of [`object::XRCD`](super::object::XRCD).
    pub mod xrcd {
        /// Destroys.
        pub const DESTROY: u16 = 0;
    }

    /// Methods of [`object::RWQ_IND_TBL`](super::object::RWQ_IND_TBL).
    pub mod rwq_ind_tbl {
        /// Destroys.
        pub const DESTROY: u16 = 0;
    }

    /// Methods of [`object::WQ`](super::object::WQ).
    pub mod wq {
        /// Makes.
        pub const CREATE: u16 = 0;
        /// Destroys.
        pub const DESTROY: u16 = 1;
    }

    /// Methods of [`object::ASYNC_EVENT`](super::object::ASYNC_EVENT).
    pub mod async_event {
        /// Opens a file of asynchronous events.
        pub const ALLOC: u16 = 0;
    }
}

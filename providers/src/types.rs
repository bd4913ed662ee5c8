//! Handles, keys, numbers and flags: the small words of verbs, each a type of its own.
//!
//! Ground truth: `ib_user_verbs.h`, `ib_user_ioctl_verbs.h`.

#![allow(
    missing_debug_implementations,
    reason = "the derives of zerocopy make types of their own beside those here, which all have it"
)]

use std::fmt;

use bitflags::bitflags;
use uverbs_abi::layout::verbs as raw;
use zerocopy::{FromBytes, Immutable, IntoBytes};

macro_rules! number {
    ($($(#[$doc:meta])* $name:ident)+) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, FromBytes, IntoBytes,
            Immutable,
        )]
        #[repr(transparent)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    )+};
}

number! {
    /// The kernel's handle of a protection domain, valid within one open device.
    PdHandle
    /// The kernel's handle of a memory region.
    MrHandle
    /// The kernel's handle of a completion queue.
    CqHandle
    /// The kernel's handle of a shared receive queue.
    SrqHandle
    /// The kernel's handle of a queue pair. Not the queue pair number, which the peer needs.
    QpHandle
    /// A queue pair's number on the wire: 24 bits.
    QpNum
    /// The kernel's handle of a work queue. Not the device's number of it.
    WqHandle
    /// The device's number of a work queue.
    WqNum
    /// The key with which local work requests name a registration.
    Lkey
    /// The key with which a peer names a registration.
    Rkey
}

/// Which object with queues is meant: in errors. Prints as one names it: `queue pair 17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum QueueId {
    /// A queue pair, by its number on the wire.
    QueuePair(QpNum),
    /// A shared receive queue, by the kernel's handle: it is one number within one open device.
    SharedReceiveQueue(SrqHandle),
    /// A completion queue, by the kernel's handle, as above.
    CompletionQueue(CqHandle),
    /// A work queue, by the device's number of it.
    WorkQueue(WqNum),
}

impl QueueId {
    /// Another number for each, that of its kind in the upper half, which is never 0.
    #[doc(hidden)]
    #[must_use]
    pub const fn key(self) -> u64 {
        let (kind, number) = match self {
            Self::QueuePair(number) => (1, number.0),
            Self::SharedReceiveQueue(handle) => (2, handle.0),
            Self::CompletionQueue(handle) => (3, handle.0),
            Self::WorkQueue(number) => (4, number.0),
        };
        kind << 32 | number as u64
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueuePair(number) => write!(f, "queue pair {number}"),
            Self::SharedReceiveQueue(handle) => write!(f, "shared receive queue {handle}"),
            Self::CompletionQueue(handle) => write!(f, "completion queue {handle}"),
            Self::WorkQueue(number) => write!(f, "work queue {number}"),
        }
    }
}

/// What a queue pair's transport is (`enum ib_uverbs_qp_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QpType {
    /// Reliable connected.
    Rc,
    /// Unreliable connected.
    Uc,
    /// Unreliable datagram.
    Ud,
}

impl QpType {
    /// The kernel's number.
    #[must_use]
    pub const fn raw(self) -> u8 {
        match self {
            Self::Rc => raw::IB_UVERBS_QPT_RC,
            Self::Uc => raw::IB_UVERBS_QPT_UC,
            Self::Ud => raw::IB_UVERBS_QPT_UD,
        }
    }
}

impl fmt::Display for QpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        })
    }
}

/// The state of a queue pair (InfiniBand specification, § 10.3; `enum ib_qp_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum QpState {
    /// Created, or brought back: nothing is sent, received or kept.
    Reset = 0,
    /// Receives may be posted; nothing moves yet.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send: the working state.
    Rts = 3,
    /// The send queue is being, or has been, drained.
    Sqd = 4,
    /// The send queue has stopped on an error (not on RC).
    Sqe = 5,
    /// An error: whatever is posted is flushed.
    Err = 6,
}

impl QpState {
    /// The kernel's number.
    #[must_use]
    pub const fn raw(self) -> u8 {
        self as u8
    }

    /// The state with the kernel's number `raw`, if there is one.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Reset,
            1 => Self::Init,
            2 => Self::Rtr,
            3 => Self::Rts,
            4 => Self::Sqd,
            5 => Self::Sqe,
            6 => Self::Err,
            _ => return None,
        })
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
        })
    }
}

/// A path MTU (`enum ib_mtu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1,024 bytes.
    Mtu1024 = 3,
    /// 2,048 bytes.
    Mtu2048 = 4,
    /// 4,096 bytes.
    Mtu4096 = 5,
}

impl Mtu {
    /// The kernel's code.
    #[must_use]
    pub const fn raw(self) -> u8 {
        self as u8
    }

    /// The MTU with the kernel's code `raw`, if there is one.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            1 => Self::Mtu256,
            2 => Self::Mtu512,
            3 => Self::Mtu1024,
            4 => Self::Mtu2048,
            5 => Self::Mtu4096,
            _ => return None,
        })
    }

    /// Payload bytes in a full packet.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        128 << (self as u8)
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.bytes(), f)
    }
}

bitflags! {
    /// What a registration, or a queue pair, lets the device and peers do
    /// (`enum ib_uverbs_access_flags`). Reading by the local device is always allowed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct AccessFlags: u32 {
        /// The local device may write: receives, RDMA READ results, atomic results.
        const LOCAL_WRITE = raw::IB_UVERBS_ACCESS_LOCAL_WRITE;
        /// A peer may write. Needs `LOCAL_WRITE`.
        const REMOTE_WRITE = raw::IB_UVERBS_ACCESS_REMOTE_WRITE;
        /// A peer may read.
        const REMOTE_READ = raw::IB_UVERBS_ACCESS_REMOTE_READ;
        /// A peer may do atomic operations. Needs `LOCAL_WRITE`.
        const REMOTE_ATOMIC = raw::IB_UVERBS_ACCESS_REMOTE_ATOMIC;
        /// Memory windows may be bound to it.
        const MW_BIND = raw::IB_UVERBS_ACCESS_MW_BIND;
    }
}

/// The names, or `none`.
impl fmt::Display for AccessFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        bitflags::parser::to_writer(self, f)
    }
}

impl AccessFlags {
    /// The flags that the kernel grants on writable memory only: those that let somebody other than
    /// the CPU write it, and the binding of windows, which could.
    pub const NEED_WRITABLE: Self = Self::LOCAL_WRITE
        .union(Self::REMOTE_WRITE)
        .union(Self::REMOTE_ATOMIC)
        .union(Self::MW_BIND);
}

/// Sizes of a queue pair's queues, asked for or granted (`struct ib_uverbs_qp_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QpCaps {
    /// Work requests that the send queue holds.
    pub max_send_wr: u32,
    /// Work requests that the receive queue holds; 0 with a shared receive queue.
    pub max_recv_wr: u32,
    /// Scatter/gather elements of one send request.
    pub max_send_sge: u32,
    /// Scatter/gather elements of one receive request; 0 with a shared receive queue.
    pub max_recv_sge: u32,
    /// Bytes of one request's inline data.
    pub max_inline_data: u32,
}

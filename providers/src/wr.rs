//! Work requests as plain data. What a driver makes of them is in its own folder.
//!
//! Ground truth: InfiniBand specification § 10.8, `ibv_post_send(3)`, `ibv_post_recv(3)`.

use std::io::IoSlice;

use bitflags::bitflags;

use crate::sge::Sge;
use crate::types::Rkey;

bitflags! {
    /// How a send request is to be treated (`enum ibv_send_flags`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct SendFlags: u32 {
        /// Wait for all earlier RDMA READ and atomic requests of this queue before starting.
        const FENCE = 1;
        /// Make a completion also on success. Without it only a failure makes one.
        const SIGNALED = 2;
        /// Let the peer's receive completion count as solicited for its completion channel.
        const SOLICITED = 4;
    }
}

/// What a send request carries.
// The same representation for each variant, so that looking at one looks at all; likewise below.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Payload<'a> {
    /// Registered memory, gathered in order. It must stay as it is until the request completes.
    Sges(&'a [Sge]),
    /// Bytes copied into the queue while posting; free for reuse when the call returns.
    Inline(&'a [u8]),
    /// As [`Payload::Inline`], gathered from several places.
    InlineList(&'a [IoSlice<'a>]),
}

/// Where a peer's memory is: an address in the peer's registration, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr {
    /// The peer's virtual address (for a zero-based registration the offset).
    pub addr: u64,
    /// The peer's key.
    pub rkey: Rkey,
}

/// What a send request does.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
#[non_exhaustive]
pub enum SendOp<'a> {
    /// SEND: consumes one receive request at the peer.
    Send {
        /// What is sent.
        data: Payload<'a>,
    },
    /// SEND with immediate data.
    SendImm {
        /// What is sent.
        data: Payload<'a>,
        /// 32 bits that arrive in the peer's completion, in host order at both ends.
        imm: u32,
    },
    /// RDMA WRITE: the peer's program notices nothing.
    Write {
        /// What is written.
        data: Payload<'a>,
        /// Where to.
        remote: RemoteAddr,
    },
    /// RDMA WRITE with immediate data: consumes one receive request at the peer.
    WriteImm {
        /// What is written.
        data: Payload<'a>,
        /// Where to.
        remote: RemoteAddr,
        /// 32 bits that arrive in the peer's completion, in host order at both ends.
        imm: u32,
    },
    /// RDMA READ.
    Read {
        /// Where the bytes go.
        into: &'a [Sge],
        /// Where they come from.
        remote: RemoteAddr,
    },
    /// Compare and swap of 8 bytes at the peer: if they equal `compare` they become `swap`.
    CompareSwap {
        /// Where the 8 bytes as they were before go.
        into: Sge,
        /// Which bytes; 8-aligned.
        remote: RemoteAddr,
        /// Compared with.
        compare: u64,
        /// Replaced by.
        swap: u64,
    },
    /// Fetch and add of 8 bytes at the peer.
    FetchAdd {
        /// Where the 8 bytes as they were before go.
        into: Sge,
        /// Which bytes; 8-aligned.
        remote: RemoteAddr,
        /// Added, wrapping.
        add: u64,
    },
}

impl SendOp<'_> {
    /// Whether it brings something back, and so counts among the RDMA READs and atomics under way.
    #[inline]
    #[must_use]
    pub const fn is_read(&self) -> bool {
        matches!(
            self,
            Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. }
        )
    }

    /// Whether it is a SEND or WRITE of bytes that are copied while posting.
    #[cfg(feature = "rxe")]
    #[inline]
    pub(crate) const fn is_inline(&self) -> bool {
        matches!(
            self,
            Self::Send {
                data: Payload::Inline(_)
            } | Self::Write {
                data: Payload::Inline(_),
                ..
            }
        )
    }

    /// Its name as in the verbs man pages, for errors.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Send { .. } => "SEND",
            Self::SendImm { .. } => "SEND_WITH_IMM",
            Self::Write { .. } => "RDMA_WRITE",
            Self::WriteImm { .. } => "RDMA_WRITE_WITH_IMM",
            Self::Read { .. } => "RDMA_READ",
            Self::CompareSwap { .. } => "ATOMIC_CMP_AND_SWP",
            Self::FetchAdd { .. } => "ATOMIC_FETCH_AND_ADD",
        }
    }
}

/// One send request.
///
/// It borrows its elements: bind their array to a variable of its own where the request is kept in
/// one (`let sges = [region.slice(..)?]; let wr = SendWr::send(1, &sges);`), or the compiler says that a
/// temporary value is dropped while borrowed (E0716).
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_send_wr")]
pub struct SendWr<'a> {
    /// Comes back in the completion; the crate gives it no meaning.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp<'a>,
    /// How.
    pub flags: SendFlags,
}

impl<'a> SendWr<'a> {
    const fn new(wr_id: u64, op: SendOp<'a>) -> Self {
        Self {
            wr_id,
            op,
            flags: SendFlags::empty(),
        }
    }

    /// SEND of registered memory.
    #[must_use]
    pub const fn send(wr_id: u64, sges: &'a [Sge]) -> Self {
        Self::new(
            wr_id,
            SendOp::Send {
                data: Payload::Sges(sges),
            },
        )
    }

    /// SEND of bytes that are copied while posting.
    #[must_use]
    pub const fn send_inline(wr_id: u64, bytes: &'a [u8]) -> Self {
        Self::new(
            wr_id,
            SendOp::Send {
                data: Payload::Inline(bytes),
            },
        )
    }

    /// RDMA WRITE of registered memory.
    #[must_use]
    pub const fn write(wr_id: u64, sges: &'a [Sge], remote: RemoteAddr) -> Self {
        Self::new(
            wr_id,
            SendOp::Write {
                data: Payload::Sges(sges),
                remote,
            },
        )
    }

    /// RDMA WRITE of bytes that are copied while posting.
    #[must_use]
    pub const fn write_inline(wr_id: u64, bytes: &'a [u8], remote: RemoteAddr) -> Self {
        Self::new(
            wr_id,
            SendOp::Write {
                data: Payload::Inline(bytes),
                remote,
            },
        )
    }

    /// RDMA READ.
    #[must_use]
    pub const fn read(wr_id: u64, into: &'a [Sge], remote: RemoteAddr) -> Self {
        Self::new(wr_id, SendOp::Read { into, remote })
    }

    /// Compare and swap of 8 bytes at the peer; the old value goes to `into`.
    #[must_use]
    pub const fn compare_swap(
        wr_id: u64,
        into: Sge,
        remote: RemoteAddr,
        compare: u64,
        swap: u64,
    ) -> Self {
        Self::new(
            wr_id,
            SendOp::CompareSwap {
                into,
                remote,
                compare,
                swap,
            },
        )
    }

    /// Fetch and add of 8 bytes at the peer; the old value goes to `into`.
    #[must_use]
    pub const fn fetch_add(wr_id: u64, into: Sge, remote: RemoteAddr, add: u64) -> Self {
        Self::new(wr_id, SendOp::FetchAdd { into, remote, add })
    }

    /// Adds immediate data to a SEND or an RDMA WRITE; on anything else it changes nothing.
    #[must_use]
    pub const fn with_imm(mut self, imm: u32) -> Self {
        self.op = match self.op {
            SendOp::Send { data } | SendOp::SendImm { data, .. } => SendOp::SendImm { data, imm },
            SendOp::Write { data, remote } | SendOp::WriteImm { data, remote, .. } => {
                SendOp::WriteImm { data, remote, imm }
            }
            other => other,
        };
        self
    }

    /// Asks for a completion also on success.
    #[must_use]
    pub const fn signaled(mut self) -> Self {
        self.flags = self.flags.union(SendFlags::SIGNALED);
        self
    }

    /// Makes the peer's completion a solicited one.
    #[must_use]
    pub const fn solicited(mut self) -> Self {
        self.flags = self.flags.union(SendFlags::SOLICITED);
        self
    }

    /// Waits for earlier RDMA READs and atomics of this queue first.
    #[must_use]
    pub const fn fenced(mut self) -> Self {
        self.flags = self.flags.union(SendFlags::FENCE);
        self
    }
}

/// One receive request: where the next message goes.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_recv_wr")]
pub struct RecvWr<'a> {
    /// Comes back in the completion; the crate gives it no meaning.
    pub wr_id: u64,
    /// Filled in order. A message longer than all of them together fails at both ends.
    pub sges: &'a [Sge],
}

impl<'a> RecvWr<'a> {
    /// A receive into registered memory.
    #[must_use]
    pub const fn new(wr_id: u64, sges: &'a [Sge]) -> Self {
        Self { wr_id, sges }
    }
}

//! Work completions as plain data.
//!
//! Ground truth: `struct ib_uverbs_wc` in `ib_user_verbs.h`, `ibv_poll_cq(3)`.

use std::fmt;

use bitflags::bitflags;
use uverbs_abi::count::Count;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::types::QpNum;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $raw:literal, $text:literal;)+) => {
        /// How a work request ended (`enum ib_wc_status`): the kernel's number, to be compared with
        /// the constants. Numbers that this crate does not know keep their value.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, FromBytes, IntoBytes, Immutable)]
        #[repr(transparent)]
        pub struct WcStatus(u32);

        #[expect(
            non_upper_case_globals,
            reason = "used as the variants of an enumeration, whose representation would be a check \
                      for each completion"
        )]
        impl WcStatus {
            $($(#[$doc])* pub const $name: Self = Self($raw);)+

            /// The status with the kernel's number `raw`.
            #[must_use]
            pub const fn from_raw(raw: u32) -> Self {
                Self(raw)
            }

            /// The kernel's number.
            #[must_use]
            pub const fn raw(self) -> u32 {
                self.0
            }
        }

        impl fmt::Debug for WcStatus {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // A table, which is a good deal smaller than an arm for each.
                let names = &[$((Self::$name, stringify!($name)),)+];
                match names.iter().find(|(status, _)| status == self) {
                    Some((_, name)) => f.write_str(name),
                    None => write!(f, "Unknown({})", self.0),
                }
            }
        }

        impl fmt::Display for WcStatus {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let texts = &[$((Self::$name, $text),)+];
                match texts.iter().find(|(status, _)| status == self) {
                    Some((_, text)) => f.write_str(text),
                    None => write!(f, "unknown status {}", self.0),
                }
            }
        }
    };
}

statuses! {
    /// It was done.
    Success = 0, "success";
    /// The message was longer than the memory given for it.
    LocalLengthError = 1, "local length error";
    /// The request made no sense for this queue pair.
    LocalQpOperationError = 2, "local QP operation error";
    /// An end-to-end context was wrong.
    LocalEecOperationError = 3, "local EE context operation error";
    /// A local key, range or access right was wrong.
    LocalProtectionError = 4, "local protection error";
    /// Not done: the queue pair went to the error state first.
    WrFlushed = 5, "work request flushed error";
    /// A memory window could not be bound.
    MwBindError = 6, "memory bind operation error";
    /// The peer's answer could not be understood.
    BadResponse = 7, "bad response error";
    /// The local registration did not allow the access.
    LocalAccessError = 8, "local access error";
    /// The peer found the request invalid: not allowed on its queue pair, or unaligned. By the
    /// specification also: too long for its receive, which rxe tells as `RemoteOperationError`.
    RemoteInvalidRequest = 9, "remote invalid request error";
    /// The peer's key, range or access right was wrong.
    RemoteAccessError = 10, "remote access error";
    /// The peer could not do it.
    RemoteOperationError = 11, "remote operation error";
    /// The peer did not answer after all retries.
    RetryExceeded = 12, "transport retry counter exceeded";
    /// The peer had no receive posted after all retries.
    RnrRetryExceeded = 13, "RNR retry counter exceeded";
    /// A reliable datagram domain was violated.
    LocalRddViolation = 14, "local RDD violation error";
    /// A reliable datagram request was invalid.
    RemoteInvalidRdRequest = 15, "remote invalid RD request";
    /// The peer gave the operation up.
    RemoteAborted = 16, "remote aborted error";
    /// An end-to-end context's number was wrong.
    InvalidEecn = 17, "invalid EE context number";
    /// An end-to-end context's state was wrong.
    InvalidEecState = 18, "invalid EE context state";
    /// The device failed.
    Fatal = 19, "fatal error";
    /// No answer in time.
    ResponseTimeout = 20, "response timeout error";
    /// Something else.
    General = 21, "general error";
}

/// What a completed request had done. Unknown after a failure, since the kernel does not say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WcOpcode {
    /// SEND, with or without immediate data.
    Send,
    /// RDMA WRITE, with or without immediate data.
    RdmaWrite,
    /// RDMA READ.
    RdmaRead,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// A memory window was bound.
    BindMw,
    /// A key was invalidated.
    LocalInvalidate,
    /// A segmented send.
    Tso,
    /// A flush of remote memory.
    Flush,
    /// An atomic write of 8 bytes.
    AtomicWrite,
    /// A message was received.
    Recv,
    /// A peer's RDMA WRITE with immediate data consumed a receive.
    RecvRdmaWithImm,
    /// A number that this crate does not know.
    Unknown(u32),
}

impl WcOpcode {
    /// The opcode with the kernel's number `raw` (`enum ib_uverbs_wc_opcode`, plus 128 and 129 for
    /// the receive side).
    #[must_use]
    pub const fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::Send,
            1 => Self::RdmaWrite,
            2 => Self::RdmaRead,
            3 => Self::CompareSwap,
            4 => Self::FetchAdd,
            5 => Self::BindMw,
            6 => Self::LocalInvalidate,
            7 => Self::Tso,
            8 => Self::Flush,
            9 => Self::AtomicWrite,
            128 => Self::Recv,
            129 => Self::RecvRdmaWithImm,
            other => Self::Unknown(other),
        }
    }

    /// Whether it belongs to a receive request.
    #[must_use]
    pub const fn is_recv(self) -> bool {
        matches!(self, Self::Recv | Self::RecvRdmaWithImm)
    }
}

impl fmt::Display for WcOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "SEND",
            Self::RdmaWrite => "RDMA WRITE",
            Self::RdmaRead => "RDMA READ",
            Self::CompareSwap => "compare and swap",
            Self::FetchAdd => "fetch and add",
            Self::BindMw => "memory window binding",
            Self::LocalInvalidate => "local invalidation",
            Self::Tso => "segmented send",
            Self::Flush => "FLUSH",
            Self::AtomicWrite => "ATOMIC WRITE",
            Self::Recv => "receive",
            Self::RecvRdmaWithImm => "receive of RDMA WRITE with immediate",
            Self::Unknown(raw) => return write!(f, "operation {raw}"),
        })
    }
}

/// What else a completion says (`enum ib_wc_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct WcFlags(u32);

bitflags! {
    impl WcFlags: u32 {
        /// A global routing header precedes the data (UD).
        const GRH = 1;
        /// Immediate data came with it.
        const WITH_IMM = 2;
        /// A key was invalidated by the peer.
        const WITH_INVALIDATE = 4;
    }
}

/// One work completion.
///
/// Laid out as the kernel's `struct ib_uverbs_wc`, so that it is moved as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
#[doc(alias = "ibv_wc")]
pub struct Wc {
    /// As given in the request.
    pub wr_id: u64,
    /// How it ended. Look at it first: after a failure only `wr_id`, `status`, `vendor_err` and
    /// `qp_num` mean anything.
    pub status: WcStatus,
    /// The kernel's number of the opcode; see [`Wc::opcode`].
    pub raw_opcode: u32,
    /// The driver's own error code; 0 on rxe.
    pub vendor_err: u32,
    /// Bytes received, read, or fetched.
    pub byte_len: u32,
    /// Immediate data as it came from the wire, in network order (see [`Wc::imm`]), or the
    /// invalidated rkey in host order.
    pub raw_ex: [u8; 4],
    /// Which queue pair.
    pub qp_num: QpNum,
    /// The sender's queue pair (UD).
    pub src_qp: QpNum,
    /// Whether `imm` is valid, and more.
    pub flags: WcFlags,
    /// Index of the P_Key (UD).
    pub pkey_index: u16,
    /// Source LID (InfiniBand).
    pub slid: u16,
    /// Service level.
    pub sl: u8,
    /// Path bits of the destination LID (InfiniBand).
    pub dlid_path_bits: u8,
    /// The port (switches).
    pub port_num: u8,
    reserved: u8,
}

impl Wc {
    /// What the request had done, or `None` if it failed: the kernel does not say it then.
    #[must_use]
    pub const fn opcode(&self) -> Option<WcOpcode> {
        match self.status {
            WcStatus::Success => Some(WcOpcode::from_raw(self.raw_opcode)),
            _ => None,
        }
    }

    /// The immediate data that came with it, in host order. Only the receiver's completion has it:
    /// drivers may flag the sender's as well, with nothing behind the flag.
    #[must_use]
    pub fn imm(&self) -> Option<u32> {
        let came = self.opcode().is_some_and(WcOpcode::is_recv);
        (came && self.flags.contains(WcFlags::WITH_IMM)).then(|| u32::from_be_bytes(self.raw_ex))
    }

    /// Itself on success, and the failure as an error otherwise.
    ///
    /// # Errors
    /// [`WcError`] if `status` is anything but success.
    pub const fn ok(&self) -> Result<&Self, WcError> {
        match self.status {
            WcStatus::Success => Ok(self),
            status => Err(WcError {
                wr_id: self.wr_id,
                qp_num: self.qp_num,
                status,
                vendor_err: self.vendor_err,
            }),
        }
    }
}

/// In words, for a log; of a failure what [`WcError`] says.
impl fmt::Display for Wc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Err(error) = self.ok() {
            return fmt::Display::fmt(&error, f);
        }
        let opcode = WcOpcode::from_raw(self.raw_opcode);
        write!(
            f,
            "work request {} on queue pair {}: {opcode} done",
            self.wr_id, self.qp_num
        )?;
        // What the others say of their length means nothing.
        let counts = matches!(
            opcode,
            WcOpcode::Recv | WcOpcode::RecvRdmaWithImm | WcOpcode::RdmaRead
        );
        if counts {
            write!(f, ", {}", Count(self.byte_len.into(), "byte"))?;
        }
        match self.imm() {
            Some(imm) => write!(f, ", immediate data {imm:#x}"),
            None => Ok(()),
        }
    }
}

/// A work request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WcError {
    /// As given in the request.
    pub wr_id: u64,
    /// Which queue pair.
    pub qp_num: QpNum,
    /// How it ended.
    pub status: WcStatus,
    /// The driver's own error code.
    pub vendor_err: u32,
}

impl fmt::Display for WcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "work request {} on queue pair {}: {} (status {}, vendor error {:#x})",
            self.wr_id,
            self.qp_num,
            self.status,
            self.status.raw(),
            self.vendor_err
        )
    }
}

impl std::error::Error for WcError {}

//! The write commands: numbers, headers, and the core half of each request and response.
//!
//! Ground truth: `rdma/ib_user_verbs.h`. The same structures serve `write()` (behind
//! [`ib_uverbs_cmd_hdr`]) and the ioctl method INVOKE_WRITE (without a header). Requests hold the
//! `response` address where the kernel's structure has it; over ioctl the kernel does not look at it.
//! Driver data follows a structure in the same buffer or travels as an attribute of its own; it is
//! no part of these.
//!
//! ```text
//! write:     cmd_hdr (8) | request | driver data           units of 4 bytes, header counted
//! extended:  cmd_hdr (8) | ex_cmd_hdr (16) | request | …   units of 8 bytes, headers not counted
//! ```

mod ah;
mod context;
mod cq;
mod pd_mr_mw;
mod qp;
mod srq;

pub use ah::*;
pub use context::*;
pub use cq::*;
pub use pd_mr_mw::*;
pub use qp::*;
pub use srq::*;

/// ABI version of the uverbs device as sysfs gives it.
pub const IB_USER_VERBS_ABI_VERSION: u32 = 6;

/// Bits of `command` that hold the number.
pub const IB_USER_VERBS_CMD_COMMAND_MASK: u32 = 0xFF;
/// Bit of `command` that announces an [`ib_uverbs_ex_cmd_hdr`].
pub const IB_USER_VERBS_CMD_FLAG_EXTENDED: u32 = 0x8000_0000;

kernel_struct! {
    /// Header of every write command.
    pub struct ib_uverbs_cmd_hdr, size 8, align 4 {
        /// Command number, with [`IB_USER_VERBS_CMD_FLAG_EXTENDED`] for an extended one.
        [0] pub command: u32,
        /// Length of the request: in 4 bytes, this header counted; extended: in 8 bytes, headers
        /// not counted.
        [4] pub in_words: u16,
        /// Room for the response, in the same units.
        [6] pub out_words: u16,
    }
}

kernel_struct! {
    /// Second header of an extended write command.
    pub struct ib_uverbs_ex_cmd_hdr, size 16, align 8 {
        /// Address of the response: the core's part, then the driver's.
        [0] pub response: u64,
        /// Length of the driver's part of the request, in 8 bytes.
        [8] pub provider_in_words: u16,
        /// Room for the driver's part of the response, in 8 bytes.
        [10] pub provider_out_words: u16,
        /// Zero.
        [12] pub cmd_hdr_reserved: u32,
    }
}

/// Makes the context and the asynchronous event file.
pub const IB_USER_VERBS_CMD_GET_CONTEXT: u32 = 0;
/// Attributes of the device.
pub const IB_USER_VERBS_CMD_QUERY_DEVICE: u32 = 1;
/// Attributes of a port.
pub const IB_USER_VERBS_CMD_QUERY_PORT: u32 = 2;
/// Makes a protection domain.
pub const IB_USER_VERBS_CMD_ALLOC_PD: u32 = 3;
/// Destroys a protection domain.
pub const IB_USER_VERBS_CMD_DEALLOC_PD: u32 = 4;
/// Makes an address handle.
pub const IB_USER_VERBS_CMD_CREATE_AH: u32 = 5;
/// Number only: no kernel answers it.
pub const IB_USER_VERBS_CMD_MODIFY_AH: u32 = 6;
/// Number only: no kernel answers it.
pub const IB_USER_VERBS_CMD_QUERY_AH: u32 = 7;
/// Destroys an address handle.
pub const IB_USER_VERBS_CMD_DESTROY_AH: u32 = 8;
/// Registers a memory region.
pub const IB_USER_VERBS_CMD_REG_MR: u32 = 9;
/// Number only: no kernel answers it.
pub const IB_USER_VERBS_CMD_REG_SMR: u32 = 10;
/// Changes a memory region. rxe: since 6.12.
pub const IB_USER_VERBS_CMD_REREG_MR: u32 = 11;
/// Number only: no kernel answers it.
pub const IB_USER_VERBS_CMD_QUERY_MR: u32 = 12;
/// Deregisters a memory region.
pub const IB_USER_VERBS_CMD_DEREG_MR: u32 = 13;
/// Makes a memory window.
pub const IB_USER_VERBS_CMD_ALLOC_MW: u32 = 14;
/// Number only: no kernel answers it.
pub const IB_USER_VERBS_CMD_BIND_MW: u32 = 15;
/// Destroys a memory window.
pub const IB_USER_VERBS_CMD_DEALLOC_MW: u32 = 16;
/// Makes a completion channel.
pub const IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL: u32 = 17;
/// Makes a completion queue.
pub const IB_USER_VERBS_CMD_CREATE_CQ: u32 = 18;
/// Resizes a completion queue.
pub const IB_USER_VERBS_CMD_RESIZE_CQ: u32 = 19;
/// Destroys a completion queue.
pub const IB_USER_VERBS_CMD_DESTROY_CQ: u32 = 20;
/// Polls a completion queue through the kernel; rxe and siw have it masked off.
pub const IB_USER_VERBS_CMD_POLL_CQ: u32 = 21;
/// Number only: no kernel answers it.
pub const IB_USER_VERBS_CMD_PEEK_CQ: u32 = 22;
/// Asks for a completion event.
pub const IB_USER_VERBS_CMD_REQ_NOTIFY_CQ: u32 = 23;
/// Makes a queue pair.
pub const IB_USER_VERBS_CMD_CREATE_QP: u32 = 24;
/// Attributes of a queue pair.
pub const IB_USER_VERBS_CMD_QUERY_QP: u32 = 25;
/// Changes a queue pair.
pub const IB_USER_VERBS_CMD_MODIFY_QP: u32 = 26;
/// Destroys a queue pair.
pub const IB_USER_VERBS_CMD_DESTROY_QP: u32 = 27;
/// Posts sends through the kernel; the doorbell of rxe and siw.
pub const IB_USER_VERBS_CMD_POST_SEND: u32 = 28;
/// Posts receives through the kernel; rxe and siw have it masked off.
pub const IB_USER_VERBS_CMD_POST_RECV: u32 = 29;
/// Attaches a queue pair to a multicast group.
pub const IB_USER_VERBS_CMD_ATTACH_MCAST: u32 = 30;
/// Detaches a queue pair from a multicast group.
pub const IB_USER_VERBS_CMD_DETACH_MCAST: u32 = 31;
/// Makes a shared receive queue.
pub const IB_USER_VERBS_CMD_CREATE_SRQ: u32 = 32;
/// Changes a shared receive queue.
pub const IB_USER_VERBS_CMD_MODIFY_SRQ: u32 = 33;
/// Attributes of a shared receive queue.
pub const IB_USER_VERBS_CMD_QUERY_SRQ: u32 = 34;
/// Destroys a shared receive queue.
pub const IB_USER_VERBS_CMD_DESTROY_SRQ: u32 = 35;
/// Posts receives to a shared queue through the kernel; rxe and siw have it masked off.
pub const IB_USER_VERBS_CMD_POST_SRQ_RECV: u32 = 36;
/// Opens an XRC domain.
pub const IB_USER_VERBS_CMD_OPEN_XRCD: u32 = 37;
/// Closes an XRC domain.
pub const IB_USER_VERBS_CMD_CLOSE_XRCD: u32 = 38;
/// Makes a shared receive queue of any type.
pub const IB_USER_VERBS_CMD_CREATE_XSRQ: u32 = 39;
/// Opens an XRC target queue pair.
pub const IB_USER_VERBS_CMD_OPEN_QP: u32 = 40;

/// Extended: attributes of the device.
pub const IB_USER_VERBS_EX_CMD_QUERY_DEVICE: u32 = 1;
/// Extended: makes a completion queue.
pub const IB_USER_VERBS_EX_CMD_CREATE_CQ: u32 = 18;
/// Extended: makes a queue pair.
pub const IB_USER_VERBS_EX_CMD_CREATE_QP: u32 = 24;
/// Extended: changes a queue pair.
pub const IB_USER_VERBS_EX_CMD_MODIFY_QP: u32 = 26;
/// Extended: makes a flow rule.
pub const IB_USER_VERBS_EX_CMD_CREATE_FLOW: u32 = 50;
/// Extended: destroys a flow rule.
pub const IB_USER_VERBS_EX_CMD_DESTROY_FLOW: u32 = 51;
/// Extended: makes a work queue.
pub const IB_USER_VERBS_EX_CMD_CREATE_WQ: u32 = 52;
/// Extended: changes a work queue.
pub const IB_USER_VERBS_EX_CMD_MODIFY_WQ: u32 = 53;
/// Extended: destroys a work queue.
pub const IB_USER_VERBS_EX_CMD_DESTROY_WQ: u32 = 54;
/// Extended: makes an indirection table.
pub const IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL: u32 = 55;
/// Extended: destroys an indirection table.
pub const IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL: u32 = 56;
/// Extended: changes the moderation of a completion queue.
pub const IB_USER_VERBS_EX_CMD_MODIFY_CQ: u32 = 57;

//! Structures and numbers that both interfaces share, the ioctl's and the write commands'.
//!
//! Ground truth: `rdma/ib_user_ioctl_verbs.h` for the structures and the `IB_UVERBS_…` numbers;
//! `ib_verbs.h` for the numbers that have no uapi name (`IB_QPS_…`, `IB_QP_…`, `IB_WC_…`).
//! Plain numbers: what they mean to a program is said by the crates above.

mod device;
mod mr;
mod port;
mod qp;
mod wr;

pub use device::*;
pub use mr::*;
pub use port::*;
pub use qp::*;
pub use wr::*;

use super::cmd::ib_uverbs_query_port_resp;

kernel_struct! {
    /// One entry of a GID table.
    pub struct ib_uverbs_gid_entry, size 32, align 8 {
        /// The GID, network order.
        [0] pub gid: [u8; 16],
        /// Index in the table of the port.
        [16] pub gid_index: u32,
        /// Port.
        [20] pub port_num: u32,
        /// `IB_UVERBS_GID_TYPE_…`.
        [24] pub gid_type: u32,
        /// Network interface behind the GID, or zero.
        [28] pub netdev_ifindex: u32,
    }
}

kernel_struct! {
    /// Response of the ioctl method QUERY_PORT.
    pub struct ib_uverbs_query_port_resp_ex, size 48, align 4 {
        /// As of the write command.
        [0] pub legacy_resp: ib_uverbs_query_port_resp,
        /// Second word of capabilities.
        [40] pub port_cap_flags2: u16,
        /// Zero.
        [42] pub reserved: [u8; 2],
        /// Link speed, `IB_SPEED_…`, all bits. Zero before 6.12.
        [44] pub active_speed_ex: u32,
    }
}

kernel_struct! {
    /// Capacities of a queue pair: asked for, and got.
    pub struct ib_uverbs_qp_cap, size 20, align 4 {
        /// Sends.
        [0] pub max_send_wr: u32,
        /// Receives.
        [4] pub max_recv_wr: u32,
        /// Scatter/gather entries of a send.
        [8] pub max_send_sge: u32,
        /// Scatter/gather entries of a receive.
        [12] pub max_recv_sge: u32,
        /// Inline bytes.
        [16] pub max_inline_data: u32,
    }
}

kernel_struct! {
    /// Response of the extended DESTROY_WQ.
    pub struct ib_uverbs_ex_destroy_wq_resp, size 16, align 4 {
        /// Zero.
        [0] pub comp_mask: u32,
        /// Bytes that the kernel filled.
        [4] pub response_length: u32,
        /// Asynchronous events that were read for this work queue.
        [8] pub events_reported: u32,
        /// Zero.
        [12] pub reserved: u32,
    }
}

kernel_struct! {
    /// One range of the ioctl method ADVISE_MR.
    pub struct ib_uverbs_sge, size 16, align 8 {
        /// Address in the region.
        [0] pub addr: u64,
        /// Bytes.
        [8] pub length: u32,
        /// Local key of the region.
        [12] pub lkey: u32,
    }
}

kernel_struct! {
    /// Memory that a queue shall live in: given by address, or as part of a dma-buf. Since 7.3.
    pub struct ib_uverbs_buffer_desc, size 32, align 8 {
        /// `IB_UVERBS_BUFFER_TYPE_…`.
        [0] pub r#type: u32,
        /// The dma-buf, where the type says so.
        [4] pub fd: i32,
        /// Flags that the kernel must know; none so far.
        [8] pub flags: u32,
        /// Flags that the kernel may ignore; none so far.
        [12] pub optional_flags: u32,
        /// Address, or offset in the dma-buf.
        [16] pub addr: u64,
        /// Bytes.
        [24] pub length: u64,
    }
}

/// Memory of a queue: a dma-buf. Since 7.3.
pub const IB_UVERBS_BUFFER_TYPE_DMABUF: u32 = 0;
/// Memory of a queue: an address. Since 7.3.
pub const IB_UVERBS_BUFFER_TYPE_VA: u32 = 1;

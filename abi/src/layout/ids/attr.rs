//! Attributes of each method, as `Attr<kind>` constants.
//!
//! Ground truth: `rdma/ib_user_ioctl_cmds.h`. Each line says whether the kernel requires the
//! attribute (mandatory) or not (optional). Methods with a driver's part take [`uhw`] as well.

use super::{Attr, Const, Fd, Flags, In, InBytes, NewFd, NewObject, Object, Out, OutBytes, RawFd};
use crate::layout::cmd::{
    ib_uverbs_destroy_cq_resp, ib_uverbs_destroy_qp_resp, ib_uverbs_destroy_srq_resp,
};
use crate::layout::verbs::{
    ib_uverbs_buffer_desc, ib_uverbs_gid_entry, ib_uverbs_qp_cap, ib_uverbs_query_port_resp_ex,
};

/// The driver's own part, in every method that has one.
pub mod uhw {
    use super::*;

    /// The driver's part of the request. Optional.
    pub const IN: Attr<InBytes> = Attr::new(0x1000);
    /// The driver's part of the response. Optional.
    pub const OUT: Attr<OutBytes> = Attr::new(0x1001);
}

/// DEVICE, INVOKE_WRITE: a write command, its buffers as attributes.
pub mod invoke_write {
    use super::*;

    /// The request, without a header. Optional.
    pub const CORE_IN: Attr<InBytes> = Attr::new(0);
    /// Room for the response. Optional.
    pub const CORE_OUT: Attr<OutBytes> = Attr::new(1);
    /// Number of the command; `IB_USER_VERBS_CMD_FLAG_EXTENDED` for an extended one. Mandatory.
    pub const WRITE_CMD: Attr<Const> = Attr::new(2);
}

/// DEVICE, INFO_HANDLES.
pub mod info_handles {
    use super::*;

    /// Object class. Mandatory.
    pub const OBJECT_ID: Attr<Const> = Attr::new(0);
    /// How many handles there are. Optional.
    pub const TOTAL_HANDLES: Attr<Out<u32>> = Attr::new(1);
    /// The handles, u32 each; in practice required. Optional.
    pub const HANDLES_LIST: Attr<OutBytes> = Attr::new(2);
}

/// DEVICE, QUERY_PORT.
pub mod query_port {
    use super::*;

    /// Port. Mandatory.
    pub const PORT_NUM: Attr<Const> = Attr::new(0);
    /// The port's attributes. Mandatory.
    pub const RESP: Attr<Out<ib_uverbs_query_port_resp_ex>> = Attr::new(1);
}

/// DEVICE, GET_CONTEXT. siw requires [`uhw::OUT`] of 8 bytes.
pub mod get_context {
    use super::*;

    /// Number of completion vectors. Optional.
    pub const NUM_COMP_VECTORS: Attr<Out<u32>> = Attr::new(0);
    /// `IB_UVERBS_CORE_SUPPORT_…`. Optional.
    pub const CORE_SUPPORT: Attr<Out<u64>> = Attr::new(1);
    /// Files that grant more rights (mlx5), i32 each. Since 7.3. Optional.
    pub const FD_ARR: Attr<InBytes> = Attr::new(2);
}

/// DEVICE, QUERY_CONTEXT.
pub mod query_context {
    use super::*;

    /// Number of completion vectors. Optional.
    pub const NUM_COMP_VECTORS: Attr<Out<u32>> = Attr::new(0);
    /// `IB_UVERBS_CORE_SUPPORT_…`. Optional.
    pub const CORE_SUPPORT: Attr<Out<u64>> = Attr::new(1);
}

/// DEVICE, QUERY_GID_TABLE.
pub mod query_gid_table {
    use super::*;

    /// Bytes of an entry. Mandatory.
    pub const ENTRY_SIZE: Attr<Const> = Attr::new(0);
    /// None known. Optional.
    pub const FLAGS: Attr<Flags> = Attr::new(1);
    /// The entries, `ib_uverbs_gid_entry` each. Mandatory.
    pub const RESP_ENTRIES: Attr<OutBytes> = Attr::new(2);
    /// How many entries were written. Mandatory.
    pub const RESP_NUM_ENTRIES: Attr<Out<u64>> = Attr::new(3);
}

/// DEVICE, QUERY_GID_ENTRY.
pub mod query_gid_entry {
    use super::*;

    /// Port. Mandatory.
    pub const PORT: Attr<Const> = Attr::new(0);
    /// Index in the port's table. Mandatory.
    pub const GID_INDEX: Attr<Const> = Attr::new(1);
    /// None known. Mandatory.
    pub const FLAGS: Attr<Flags> = Attr::new(2);
    /// The entry. Mandatory.
    pub const RESP_ENTRY: Attr<Out<ib_uverbs_gid_entry>> = Attr::new(3);
}

/// DEVICE, QUERY_PORT_SPEED. Since 7.3.
pub mod query_port_speed {
    use super::*;

    /// Port. Mandatory.
    pub const PORT_NUM: Attr<Const> = Attr::new(0);
    /// The speed. Mandatory.
    pub const RESP: Attr<Out<u64>> = Attr::new(1);
}

/// DEVICE, QUERY_COMP_CNTR_CAPS. Since 7.3.
pub mod query_comp_cntr_caps {
    use super::*;

    /// Most counters. Optional.
    pub const MAX_COUNTERS: Attr<Out<u32>> = Attr::new(0);
    /// Largest value. Optional.
    pub const MAX_VALUE: Attr<Out<u64>> = Attr::new(1);
    /// Operations that can be counted. Optional.
    pub const SUPPORTED_QP_ATTACH_OPS: Attr<Out<u32>> = Attr::new(2);
}

/// PD, DESTROY.
pub mod pd_destroy {
    use super::*;

    /// The protection domain. Mandatory.
    pub const HANDLE: Attr<Object> = Attr::new(0);
}

/// AH, DESTROY.
pub mod ah_destroy {
    use super::*;

    /// The address handle. Mandatory.
    pub const HANDLE: Attr<Object> = Attr::new(0);
}

/// MW, DESTROY.
pub mod mw_destroy {
    use super::*;

    /// The memory window. Mandatory.
    pub const HANDLE: Attr<Object> = Attr::new(0);
}

/// MR, DESTROY.
pub mod mr_destroy {
    use super::*;

    /// The memory region. Mandatory.
    pub const HANDLE: Attr<Object> = Attr::new(0);
}

/// CQ, CREATE.
pub mod cq_create {
    use super::*;

    /// The new completion queue. Mandatory.
    pub const HANDLE: Attr<NewObject> = Attr::new(0);
    /// Entries asked for. Mandatory.
    pub const CQE: Attr<In<u32>> = Attr::new(1);
    /// Given back with events. Mandatory.
    pub const USER_HANDLE: Attr<In<u64>> = Attr::new(2);
    /// Completion channel. Optional.
    pub const COMP_CHANNEL: Attr<Fd> = Attr::new(3);
    /// Completion vector. Mandatory.
    pub const COMP_VECTOR: Attr<In<u32>> = Attr::new(4);
    /// `IB_UVERBS_CQ_FLAGS_…`. Optional.
    pub const FLAGS: Attr<Flags> = Attr::new(5);
    /// Entries got. Mandatory.
    pub const RESP_CQE: Attr<Out<u32>> = Attr::new(6);
    /// File for the queue's asynchronous events. Optional.
    pub const EVENT_FD: Attr<Fd> = Attr::new(7);
    /// Address of memory for the queue. Since 7.3. Optional.
    pub const BUFFER_VA: Attr<In<u64>> = Attr::new(8);
    /// Bytes of it. Since 7.3. Optional.
    pub const BUFFER_LENGTH: Attr<In<u64>> = Attr::new(9);
    /// dma-buf for the queue. Since 7.3. Optional.
    pub const BUFFER_FD: Attr<RawFd> = Attr::new(10);
    /// Offset in it. Since 7.3. Optional.
    pub const BUFFER_OFFSET: Attr<In<u64>> = Attr::new(11);
    /// Memory for the queue. Since 7.3. Optional.
    pub const BUF_UMEM: Attr<In<ib_uverbs_buffer_desc>> = Attr::new(12);
}

/// CQ, DESTROY.
pub mod cq_destroy {
    use super::*;

    /// The completion queue. Mandatory.
    pub const HANDLE: Attr<Object> = Attr::new(0);
    /// Events that were read for it. Mandatory.
    pub const RESP: Attr<Out<ib_uverbs_destroy_cq_resp>> = Attr::new(1);
}

/// QP, CREATE.
pub mod qp_create {
    use super::*;

    /// The new queue pair. Mandatory.
    pub const HANDLE: Attr<NewObject> = Attr::new(0);
    /// XRC domain. Optional.
    pub const XRCD_HANDLE: Attr<Object> = Attr::new(1);
    /// Protection domain. Optional.
    pub const PD_HANDLE: Attr<Object> = Attr::new(2);
    /// Shared receive queue. Optional.
    pub const SRQ_HANDLE: Attr<Object> = Attr::new(3);
    /// Completion queue of the sends. Optional.
    pub const SEND_CQ_HANDLE: Attr<Object> = Attr::new(4);
    /// Completion queue of the receives. Optional.
    pub const RECV_CQ_HANDLE: Attr<Object> = Attr::new(5);
    /// Indirection table. Optional.
    pub const IND_TABLE_HANDLE: Attr<Object> = Attr::new(6);
    /// Given back with events. Mandatory.
    pub const USER_HANDLE: Attr<In<u64>> = Attr::new(7);
    /// Capacities asked for. Mandatory.
    pub const CAP: Attr<In<ib_uverbs_qp_cap>> = Attr::new(8);
    /// `IB_UVERBS_QPT_…`. Mandatory.
    pub const TYPE: Attr<Const> = Attr::new(9);
    /// `IB_UVERBS_QP_CREATE_…`. Optional.
    pub const FLAGS: Attr<Flags> = Attr::new(10);
    /// QP number to send from. Optional.
    pub const SOURCE_QPN: Attr<In<u32>> = Attr::new(11);
    /// File for the queue pair's asynchronous events. Optional.
    pub const EVENT_FD: Attr<Fd> = Attr::new(12);
    /// Capacities got. Mandatory.
    pub const RESP_CAP: Attr<Out<ib_uverbs_qp_cap>> = Attr::new(13);
    /// Number of the queue pair. Mandatory.
    pub const RESP_QP_NUM: Attr<Out<u32>> = Attr::new(14);
    /// Memory for both queues. Since 7.3. Optional.
    pub const BUF_UMEM: Attr<In<ib_uverbs_buffer_desc>> = Attr::new(15);
    /// Memory for the receive queue. Since 7.3. Optional.
    pub const RQ_BUF_UMEM: Attr<In<ib_uverbs_buffer_desc>> = Attr::new(16);
    /// Memory for the send queue. Since 7.3. Optional.
    pub const SQ_BUF_UMEM: Attr<In<ib_uverbs_buffer_desc>> = Attr::new(17);
}

/// QP, DESTROY.
pub mod qp_destroy {
    use super::*;

    /// The queue pair. Mandatory.
    pub const HANDLE: Attr<Object> = Attr::new(0);
    /// Events that were read for it. Mandatory.
    pub const RESP: Attr<Out<ib_uverbs_destroy_qp_resp>> = Attr::new(1);
}

/// SRQ, CREATE.
pub mod srq_create {
    use super::*;

    /// The new shared receive queue. Mandatory.
    pub const HANDLE: Attr<NewObject> = Attr::new(0);
    /// Protection domain. Mandatory.
    pub const PD_HANDLE: Attr<Object> = Attr::new(1);
    /// XRC domain. Optional.
    pub const XRCD_HANDLE: Attr<Object> = Attr::new(2);
    /// Completion queue (XRC, tag matching). Optional.
    pub const CQ_HANDLE: Attr<Object> = Attr::new(3);
    /// Given back with events. Mandatory.
    pub const USER_HANDLE: Attr<In<u64>> = Attr::new(4);
    /// Entries asked for. Mandatory.
    pub const MAX_WR: Attr<In<u32>> = Attr::new(5);
    /// Scatter/gather entries of each asked for. Mandatory.
    pub const MAX_SGE: Attr<In<u32>> = Attr::new(6);
    /// Limit to arm, or zero. Mandatory.
    pub const LIMIT: Attr<In<u32>> = Attr::new(7);
    /// Tags (tag matching). Optional.
    pub const MAX_NUM_TAGS: Attr<In<u32>> = Attr::new(8);
    /// `IB_UVERBS_SRQT_…`. Mandatory.
    pub const TYPE: Attr<Const> = Attr::new(9);
    /// File for the queue's asynchronous events. Optional.
    pub const EVENT_FD: Attr<Fd> = Attr::new(10);
    /// Entries got. Mandatory.
    pub const RESP_MAX_WR: Attr<Out<u32>> = Attr::new(11);
    /// Scatter/gather entries of each got. Mandatory.
    pub const RESP_MAX_SGE: Attr<Out<u32>> = Attr::new(12);
    /// Number of the queue (XRC). Optional.
    pub const RESP_SRQ_NUM: Attr<Out<u32>> = Attr::new(13);
    /// Memory for the queue. Since 7.3. Optional.
    pub const BUF_UMEM: Attr<In<ib_uverbs_buffer_desc>> = Attr::new(14);
}

/// SRQ, DESTROY.
pub mod srq_destroy {
    use super::*;

    /// The shared receive queue. Mandatory.
    pub const HANDLE: Attr<Object> = Attr::new(0);
    /// Events that were read for it. Mandatory.
    pub const RESP: Attr<Out<ib_uverbs_destroy_srq_resp>> = Attr::new(1);
}

/// MR, ADVISE_MR.
pub mod advise_mr {
    use super::*;

    /// Protection domain. Mandatory.
    pub const PD_HANDLE: Attr<Object> = Attr::new(0);
    /// `IB_UVERBS_ADVISE_MR_ADVICE_…`. Mandatory.
    pub const ADVICE: Attr<Const> = Attr::new(1);
    /// `IB_UVERBS_ADVISE_MR_FLAG_…`. Mandatory.
    pub const FLAGS: Attr<Flags> = Attr::new(2);
    /// The ranges, `ib_uverbs_sge` each. Mandatory.
    pub const SGE_LIST: Attr<InBytes> = Attr::new(3);
}

/// MR, QUERY_MR.
pub mod query_mr {
    use super::*;

    /// The region. Mandatory.
    pub const HANDLE: Attr<Object> = Attr::new(0);
    /// Local key. Mandatory.
    pub const RESP_LKEY: Attr<Out<u32>> = Attr::new(1);
    /// Remote key. Mandatory.
    pub const RESP_RKEY: Attr<Out<u32>> = Attr::new(2);
    /// Bytes. Mandatory.
    pub const RESP_LENGTH: Attr<Out<u64>> = Attr::new(3);
    /// Address by which the device knows it. Optional.
    pub const RESP_IOVA: Attr<Out<u64>> = Attr::new(4);
}

/// MR, REG_DMABUF_MR.
pub mod reg_dmabuf_mr {
    use super::*;

    /// The new region. Mandatory.
    pub const HANDLE: Attr<NewObject> = Attr::new(0);
    /// Protection domain. Mandatory.
    pub const PD_HANDLE: Attr<Object> = Attr::new(1);
    /// Offset in the dma-buf. Mandatory.
    pub const OFFSET: Attr<In<u64>> = Attr::new(2);
    /// Bytes. Mandatory.
    pub const LENGTH: Attr<In<u64>> = Attr::new(3);
    /// Address by which the device shall know it. Mandatory.
    pub const IOVA: Attr<In<u64>> = Attr::new(4);
    /// The dma-buf, its descriptor as a plain number. Mandatory.
    pub const FD: Attr<In<u32>> = Attr::new(5);
    /// `IB_UVERBS_ACCESS_…`. Optional.
    pub const ACCESS_FLAGS: Attr<Flags> = Attr::new(6);
    /// Local key. Mandatory.
    pub const RESP_LKEY: Attr<Out<u32>> = Attr::new(7);
    /// Remote key. Mandatory.
    pub const RESP_RKEY: Attr<Out<u32>> = Attr::new(8);
}

/// MR, REG_MR. Since 7.3.
pub mod reg_mr {
    use super::*;

    /// The new region. Mandatory.
    pub const HANDLE: Attr<NewObject> = Attr::new(0);
    /// Protection domain. Mandatory.
    pub const PD_HANDLE: Attr<Object> = Attr::new(1);
    /// Hints on how the device reaches memory. Optional.
    pub const DMA_HANDLE: Attr<Object> = Attr::new(2);
    /// Address by which the device shall know it. Mandatory.
    pub const IOVA: Attr<In<u64>> = Attr::new(3);
    /// Address of the memory in this process. Optional.
    pub const ADDR: Attr<In<u64>> = Attr::new(4);
    /// Bytes. Mandatory.
    pub const LENGTH: Attr<In<u64>> = Attr::new(5);
    /// `IB_UVERBS_ACCESS_…`. Mandatory.
    pub const ACCESS_FLAGS: Attr<Flags> = Attr::new(6);
    /// dma-buf. Optional.
    pub const FD: Attr<RawFd> = Attr::new(7);
    /// Offset in it. Optional.
    pub const FD_OFFSET: Attr<In<u64>> = Attr::new(8);
    /// Local key. Mandatory.
    pub const RESP_LKEY: Attr<Out<u32>> = Attr::new(9);
    /// Remote key. Mandatory.
    pub const RESP_RKEY: Attr<Out<u32>> = Attr::new(10);
}

/// WQ, CREATE.
pub mod wq_create {
    use super::*;

    /// The new work queue. Mandatory.
    pub const HANDLE: Attr<NewObject> = Attr::new(0);
    /// Protection domain. Mandatory.
    pub const PD_HANDLE: Attr<Object> = Attr::new(1);
    /// Completion queue. Optional.
    pub const CQ_HANDLE: Attr<Object> = Attr::new(2);
    /// Given back with events. Mandatory.
    pub const USER_HANDLE: Attr<In<u64>> = Attr::new(3);
    /// `IB_UVERBS_WQT_…`. Mandatory.
    pub const TYPE: Attr<Const> = Attr::new(4);
    /// File for the queue's asynchronous events. Optional.
    pub const EVENT_FD: Attr<Fd> = Attr::new(5);
    /// Entries asked for. Mandatory.
    pub const MAX_WR: Attr<In<u32>> = Attr::new(6);
    /// Scatter/gather entries of each asked for. Mandatory.
    pub const MAX_SGE: Attr<In<u32>> = Attr::new(7);
    /// `IB_UVERBS_WQ_FLAGS_…`. Mandatory.
    pub const FLAGS: Attr<Flags> = Attr::new(8);
    /// Entries got. Mandatory.
    pub const RESP_MAX_WR: Attr<Out<u32>> = Attr::new(9);
    /// Scatter/gather entries of each got. Mandatory.
    pub const RESP_MAX_SGE: Attr<Out<u32>> = Attr::new(10);
    /// Number of the queue. Optional.
    pub const RESP_WQ_NUM: Attr<Out<u32>> = Attr::new(11);
}

/// WQ, DESTROY.
pub mod wq_destroy {
    use super::*;

    /// The work queue. Mandatory.
    pub const HANDLE: Attr<Object> = Attr::new(0);
    /// Events that were read for it. Mandatory.
    pub const RESP: Attr<Out<u32>> = Attr::new(1);
}

/// ASYNC_EVENT, ALLOC.
pub mod async_event_alloc {
    use super::*;

    /// The new file. Mandatory.
    pub const FD_HANDLE: Attr<NewFd> = Attr::new(0);
}

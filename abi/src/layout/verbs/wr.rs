//! Numbers about work requests and work completions.

/// RDMA write.
pub const IB_UVERBS_WR_RDMA_WRITE: u32 = 0;
/// RDMA write with immediate data; takes a receive.
pub const IB_UVERBS_WR_RDMA_WRITE_WITH_IMM: u32 = 1;
/// Send.
pub const IB_UVERBS_WR_SEND: u32 = 2;
/// Send with immediate data.
pub const IB_UVERBS_WR_SEND_WITH_IMM: u32 = 3;
/// RDMA read.
pub const IB_UVERBS_WR_RDMA_READ: u32 = 4;
/// Compare and swap of 8 bytes.
pub const IB_UVERBS_WR_ATOMIC_CMP_AND_SWP: u32 = 5;
/// Fetch and add of 8 bytes.
pub const IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD: u32 = 6;
/// Invalidates a local key.
pub const IB_UVERBS_WR_LOCAL_INV: u32 = 7;
/// Binds a memory window.
pub const IB_UVERBS_WR_BIND_MW: u32 = 8;
/// Send that invalidates a remote key.
pub const IB_UVERBS_WR_SEND_WITH_INV: u32 = 9;
/// Send cut into segments by the device.
pub const IB_UVERBS_WR_TSO: u32 = 10;
/// RDMA read that invalidates the local key.
pub const IB_UVERBS_WR_RDMA_READ_WITH_INV: u32 = 11;
/// Compare and swap under a mask.
pub const IB_UVERBS_WR_MASKED_ATOMIC_CMP_AND_SWP: u32 = 12;
/// Fetch and add under a mask.
pub const IB_UVERBS_WR_MASKED_ATOMIC_FETCH_AND_ADD: u32 = 13;
/// Flush. Since 6.12.
pub const IB_UVERBS_WR_FLUSH: u32 = 14;
/// Write of 8 bytes that is seen whole. Since 6.12.
pub const IB_UVERBS_WR_ATOMIC_WRITE: u32 = 15;

/// Flush: visible to everyone. Since 6.12.
pub const IB_FLUSH_GLOBAL: u8 = 1 << 0;
/// Flush: persistent. Since 6.12.
pub const IB_FLUSH_PERSISTENT: u8 = 1 << 1;
/// Flush: the range given. Since 6.12.
pub const IB_FLUSH_RANGE: u8 = 0;
/// Flush: the whole region. Since 6.12.
pub const IB_FLUSH_MR: u8 = 1;

/// Starts only after the reads and atomics before it.
pub const IB_SEND_FENCE: u32 = 1 << 0;
/// Completes even where sends need not.
pub const IB_SEND_SIGNALED: u32 = 1 << 1;
/// Raises the peer's event if it waits for solicited ones.
pub const IB_SEND_SOLICITED: u32 = 1 << 2;
/// The data lies in the entry itself.
pub const IB_SEND_INLINE: u32 = 1 << 3;
/// The device makes the checksums.
pub const IB_SEND_IP_CSUM: u32 = 1 << 4;

/// Done.
pub const IB_WC_SUCCESS: u32 = 0;
/// Too long for the receive, or for the device.
pub const IB_WC_LOC_LEN_ERR: u32 = 1;
/// The queue pair could not do it.
pub const IB_WC_LOC_QP_OP_ERR: u32 = 2;
/// The EE context could not do it (unused).
pub const IB_WC_LOC_EEC_OP_ERR: u32 = 3;
/// A local key does not cover the memory.
pub const IB_WC_LOC_PROT_ERR: u32 = 4;
/// Dropped because the queue pair is in error.
pub const IB_WC_WR_FLUSH_ERR: u32 = 5;
/// A memory window could not be bound.
pub const IB_WC_MW_BIND_ERR: u32 = 6;
/// An answer made no sense.
pub const IB_WC_BAD_RESP_ERR: u32 = 7;
/// A receive's memory could not be accessed.
pub const IB_WC_LOC_ACCESS_ERR: u32 = 8;
/// The peer refused the request as invalid.
pub const IB_WC_REM_INV_REQ_ERR: u32 = 9;
/// The peer refused the access.
pub const IB_WC_REM_ACCESS_ERR: u32 = 10;
/// The peer could not do it.
pub const IB_WC_REM_OP_ERR: u32 = 11;
/// No answer after all tries.
pub const IB_WC_RETRY_EXC_ERR: u32 = 12;
/// No receive at the peer after all tries.
pub const IB_WC_RNR_RETRY_EXC_ERR: u32 = 13;
/// Reliable datagram domains differ (unused).
pub const IB_WC_LOC_RDD_VIOL_ERR: u32 = 14;
/// Invalid reliable datagram request (unused).
pub const IB_WC_REM_INV_RD_REQ_ERR: u32 = 15;
/// The peer aborted.
pub const IB_WC_REM_ABORT_ERR: u32 = 16;
/// Invalid EE context number (unused).
pub const IB_WC_INV_EECN_ERR: u32 = 17;
/// Invalid EE context state (unused).
pub const IB_WC_INV_EEC_STATE_ERR: u32 = 18;
/// The queue pair broke.
pub const IB_WC_FATAL_ERR: u32 = 19;
/// No response in time.
pub const IB_WC_RESP_TIMEOUT_ERR: u32 = 20;
/// Something else.
pub const IB_WC_GENERAL_ERR: u32 = 21;

/// Completed: send.
pub const IB_UVERBS_WC_SEND: u32 = 0;
/// Completed: RDMA write.
pub const IB_UVERBS_WC_RDMA_WRITE: u32 = 1;
/// Completed: RDMA read.
pub const IB_UVERBS_WC_RDMA_READ: u32 = 2;
/// Completed: compare and swap.
pub const IB_UVERBS_WC_COMP_SWAP: u32 = 3;
/// Completed: fetch and add.
pub const IB_UVERBS_WC_FETCH_ADD: u32 = 4;
/// Completed: bind of a memory window.
pub const IB_UVERBS_WC_BIND_MW: u32 = 5;
/// Completed: local invalidation.
pub const IB_UVERBS_WC_LOCAL_INV: u32 = 6;
/// Completed: segmented send.
pub const IB_UVERBS_WC_TSO: u32 = 7;
/// Completed: flush. Since 6.12.
pub const IB_UVERBS_WC_FLUSH: u32 = 8;
/// Completed: atomic write. Since 6.12.
pub const IB_UVERBS_WC_ATOMIC_WRITE: u32 = 9;
/// Completed: receive. The bit is set in every receive's opcode.
pub const IB_WC_RECV: u32 = 1 << 7;
/// Completed: receive taken by an RDMA write with immediate data.
pub const IB_WC_RECV_RDMA_WITH_IMM: u32 = 129;

/// A global route header lies before the data.
pub const IB_WC_GRH: u32 = 1 << 0;
/// Immediate data came with it.
pub const IB_WC_WITH_IMM: u32 = 1 << 1;
/// A key was invalidated.
pub const IB_WC_WITH_INVALIDATE: u32 = 1 << 2;
/// Checksums are right.
pub const IB_WC_IP_CSUM_OK: u32 = 1 << 3;
/// The source MAC address is known.
pub const IB_WC_WITH_SMAC: u32 = 1 << 4;
/// A VLAN tag came with it.
pub const IB_WC_WITH_VLAN: u32 = 1 << 5;
/// The kind of network header is known.
pub const IB_WC_WITH_NETWORK_HDR_TYPE: u32 = 1 << 6;

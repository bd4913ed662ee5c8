//! Numbers about queue pairs, shared receive queues, work queues and completion queues.

/// Reliable connection.
pub const IB_UVERBS_QPT_RC: u8 = 2;
/// Unreliable connection.
pub const IB_UVERBS_QPT_UC: u8 = 3;
/// Unreliable datagrams.
pub const IB_UVERBS_QPT_UD: u8 = 4;
/// Raw packets.
pub const IB_UVERBS_QPT_RAW_PACKET: u8 = 8;
/// Extended reliable connection, sending side.
pub const IB_UVERBS_QPT_XRC_INI: u8 = 9;
/// Extended reliable connection, receiving side.
pub const IB_UVERBS_QPT_XRC_TGT: u8 = 10;
/// A type of the driver's own.
pub const IB_UVERBS_QPT_DRIVER: u8 = 0xFF;

/// State: just made.
pub const IB_QPS_RESET: u8 = 0;
/// State: receives may be posted.
pub const IB_QPS_INIT: u8 = 1;
/// State: ready to receive.
pub const IB_QPS_RTR: u8 = 2;
/// State: ready to send.
pub const IB_QPS_RTS: u8 = 3;
/// State: the send queue drains or has drained.
pub const IB_QPS_SQD: u8 = 4;
/// State: the send queue is in error.
pub const IB_QPS_SQE: u8 = 5;
/// State: in error.
pub const IB_QPS_ERR: u8 = 6;

/// Path migration: migrated.
pub const IB_MIG_MIGRATED: u8 = 0;
/// Path migration: being armed.
pub const IB_MIG_REARM: u8 = 1;
/// Path migration: armed.
pub const IB_MIG_ARMED: u8 = 2;

/// The QP does not get its own multicasts back.
pub const IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK: u32 = 1 << 1;
/// Delivers the frame check sequence.
pub const IB_UVERBS_QP_CREATE_SCATTER_FCS: u32 = 1 << 8;
/// Strips the customer's VLAN tag.
pub const IB_UVERBS_QP_CREATE_CVLAN_STRIPPING: u32 = 1 << 9;
/// Pads incoming writes to a cache line.
pub const IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING: u32 = 1 << 11;
/// Every send completes.
pub const IB_UVERBS_QP_CREATE_SQ_SIG_ALL: u32 = 1 << 12;
/// Extended CREATE_QP: the indirection table counts.
pub const IB_UVERBS_CREATE_QP_MASK_IND_TABLE: u32 = 1 << 0;

/// Attribute: state.
pub const IB_QP_STATE: u32 = 1 << 0;
/// Attribute: current state.
pub const IB_QP_CUR_STATE: u32 = 1 << 1;
/// Attribute: event when drained.
pub const IB_QP_EN_SQD_ASYNC_NOTIFY: u32 = 1 << 2;
/// Attribute: access flags.
pub const IB_QP_ACCESS_FLAGS: u32 = 1 << 3;
/// Attribute: index of the partition key.
pub const IB_QP_PKEY_INDEX: u32 = 1 << 4;
/// Attribute: port.
pub const IB_QP_PORT: u32 = 1 << 5;
/// Attribute: Q-key.
pub const IB_QP_QKEY: u32 = 1 << 6;
/// Attribute: path.
pub const IB_QP_AV: u32 = 1 << 7;
/// Attribute: MTU of the path.
pub const IB_QP_PATH_MTU: u32 = 1 << 8;
/// Attribute: time-out.
pub const IB_QP_TIMEOUT: u32 = 1 << 9;
/// Attribute: tries.
pub const IB_QP_RETRY_CNT: u32 = 1 << 10;
/// Attribute: tries after "no receive".
pub const IB_QP_RNR_RETRY: u32 = 1 << 11;
/// Attribute: first packet number to expect.
pub const IB_QP_RQ_PSN: u32 = 1 << 12;
/// Attribute: most RDMA reads and atomics in flight from here.
pub const IB_QP_MAX_QP_RD_ATOMIC: u32 = 1 << 13;
/// Attribute: alternate path.
pub const IB_QP_ALT_PATH: u32 = 1 << 14;
/// Attribute: delay asked of a sender that finds no receive.
pub const IB_QP_MIN_RNR_TIMER: u32 = 1 << 15;
/// Attribute: first packet number to send.
pub const IB_QP_SQ_PSN: u32 = 1 << 16;
/// Attribute: most RDMA reads and atomics in flight from the other side.
pub const IB_QP_MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
/// Attribute: path migration.
pub const IB_QP_PATH_MIG_STATE: u32 = 1 << 18;
/// Attribute: capacities.
pub const IB_QP_CAP: u32 = 1 << 19;
/// Attribute: number of the remote queue pair.
pub const IB_QP_DEST_QPN: u32 = 1 << 20;
/// Attribute: rate limit; only by the extended MODIFY_QP.
pub const IB_QP_RATE_LIMIT: u32 = 1 << 25;
/// The attributes that MODIFY_QP takes.
pub const IB_QP_ATTR_STANDARD_BITS: u32 = 0x001F_FFFF;

/// Number that addresses all QPs of a multicast group.
pub const IB_MULTICAST_QPN: u32 = 0xFF_FFFF;

/// Shared receive queue: basic.
pub const IB_UVERBS_SRQT_BASIC: u32 = 0;
/// Shared receive queue: of an XRC domain.
pub const IB_UVERBS_SRQT_XRC: u32 = 1;
/// Shared receive queue: tag matching.
pub const IB_UVERBS_SRQT_TM: u32 = 2;
/// MODIFY_SRQ changes the number of entries.
pub const IB_SRQ_MAX_WR: u32 = 1 << 0;
/// MODIFY_SRQ arms the limit.
pub const IB_SRQ_LIMIT: u32 = 1 << 1;

/// Work queue: receive.
pub const IB_UVERBS_WQT_RQ: u32 = 0;
/// Work queue: strips the customer's VLAN tag.
pub const IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING: u32 = 1 << 0;
/// Work queue: delivers the frame check sequence.
pub const IB_UVERBS_WQ_FLAGS_SCATTER_FCS: u32 = 1 << 1;
/// Work queue: waits for a receive instead of dropping.
pub const IB_UVERBS_WQ_FLAGS_DELAY_DROP: u32 = 1 << 2;
/// Work queue: pads incoming writes to a cache line.
pub const IB_UVERBS_WQ_FLAGS_PCI_WRITE_END_PADDING: u32 = 1 << 3;

/// Completions carry a time stamp.
pub const IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION: u32 = 1 << 0;
/// An overrun is the user's own affair.
pub const IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN: u32 = 1 << 1;

//! Numbers about the device.

/// Context: the kernel knows the optional access flags of a region.
pub const IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS: u64 = 1 << 0;
/// Context: the driver keeps the rules of robust driver data. Since 7.3.
pub const IB_UVERBS_CORE_SUPPORT_ROBUST_UDATA: u64 = 1 << 1;

/// No atomics.
pub const IB_ATOMIC_NONE: u32 = 0;
/// Atomic among the QPs of this device.
pub const IB_ATOMIC_HCA: u32 = 1;
/// Atomic towards everyone, the processor too.
pub const IB_ATOMIC_GLOB: u32 = 2;

/// A queue pair's capacities can be changed.
pub const IB_UVERBS_DEVICE_RESIZE_MAX_WR: u64 = 1 << 0;
/// Counts bad partition keys.
pub const IB_UVERBS_DEVICE_BAD_PKEY_CNTR: u64 = 1 << 1;
/// Counts bad Q-keys.
pub const IB_UVERBS_DEVICE_BAD_QKEY_CNTR: u64 = 1 << 2;
/// Raw multicast.
pub const IB_UVERBS_DEVICE_RAW_MULTI: u64 = 1 << 3;
/// Automatic path migration.
pub const IB_UVERBS_DEVICE_AUTO_PATH_MIG: u64 = 1 << 4;
/// The port of a queue pair can be changed.
pub const IB_UVERBS_DEVICE_CHANGE_PHY_PORT: u64 = 1 << 5;
/// An address handle's port must match the QP's.
pub const IB_UVERBS_DEVICE_UD_AV_PORT_ENFORCE: u64 = 1 << 6;
/// The current state may be given when a QP is changed.
pub const IB_UVERBS_DEVICE_CURR_QP_STATE_MOD: u64 = 1 << 7;
/// Ports can be shut down.
pub const IB_UVERBS_DEVICE_SHUTDOWN_PORT: u64 = 1 << 8;
/// Raises an event when a port becomes active.
pub const IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT: u64 = 1 << 10;
/// Has a system image GUID.
pub const IB_UVERBS_DEVICE_SYS_IMAGE_GUID: u64 = 1 << 11;
/// Answers "receiver not ready" on reliable connections.
pub const IB_UVERBS_DEVICE_RC_RNR_NAK_GEN: u64 = 1 << 12;
/// Shared receive queues can be resized.
pub const IB_UVERBS_DEVICE_SRQ_RESIZE: u64 = 1 << 13;
/// Completion events after N completions.
pub const IB_UVERBS_DEVICE_N_NOTIFY_CQ: u64 = 1 << 14;
/// Memory windows.
pub const IB_UVERBS_DEVICE_MEM_WINDOW: u64 = 1 << 17;
/// Checksums of datagrams.
pub const IB_UVERBS_DEVICE_UD_IP_CSUM: u64 = 1 << 18;
/// Extended reliable connections.
pub const IB_UVERBS_DEVICE_XRC: u64 = 1 << 20;
/// Memory management extensions: invalidation, sends that invalidate.
pub const IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS: u64 = 1 << 21;
/// Memory windows of type 2A.
pub const IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2A: u64 = 1 << 23;
/// Memory windows of type 2B.
pub const IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B: u64 = 1 << 24;
/// Checksums on reliable connections.
pub const IB_UVERBS_DEVICE_RC_IP_CSUM: u64 = 1 << 25;
/// Checksums of raw packets.
pub const IB_UVERBS_DEVICE_RAW_IP_CSUM: u64 = 1 << 26;
/// Flow steering.
pub const IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING: u64 = 1 << 29;
/// Delivers the frame check sequence of raw packets.
pub const IB_UVERBS_DEVICE_RAW_SCATTER_FCS: u64 = 1 << 34;
/// Pads incoming writes to a cache line.
pub const IB_UVERBS_DEVICE_PCI_WRITE_END_PADDING: u64 = 1 << 36;
/// Flush to global visibility. Since 6.12.
pub const IB_UVERBS_DEVICE_FLUSH_GLOBAL: u64 = 1 << 38;
/// Flush to persistence. Since 6.12.
pub const IB_UVERBS_DEVICE_FLUSH_PERSISTENT: u64 = 1 << 39;
/// Atomic write. Since 6.12.
pub const IB_UVERBS_DEVICE_ATOMIC_WRITE: u64 = 1 << 40;
/// A confidential guest whose transfers go through bounce buffers. Since 7.3.
pub const IB_UVERBS_DEVICE_CC_DMA_BOUNCE: u64 = 1 << 41;

/// On-demand paging, general: supported.
pub const IB_UVERBS_ODP_SUPPORT: u64 = 1 << 0;
/// On-demand paging, general: regions over the whole address space.
pub const IB_UVERBS_ODP_SUPPORT_IMPLICIT: u64 = 1 << 1;
/// On-demand paging of a transport: sends.
pub const IB_UVERBS_ODP_SUPPORT_SEND: u32 = 1 << 0;
/// On-demand paging of a transport: receives.
pub const IB_UVERBS_ODP_SUPPORT_RECV: u32 = 1 << 1;
/// On-demand paging of a transport: RDMA writes.
pub const IB_UVERBS_ODP_SUPPORT_WRITE: u32 = 1 << 2;
/// On-demand paging of a transport: RDMA reads.
pub const IB_UVERBS_ODP_SUPPORT_READ: u32 = 1 << 3;
/// On-demand paging of a transport: atomics.
pub const IB_UVERBS_ODP_SUPPORT_ATOMIC: u32 = 1 << 4;
/// On-demand paging of a transport: shared receives.
pub const IB_UVERBS_ODP_SUPPORT_SRQ_RECV: u32 = 1 << 5;
/// On-demand paging of a transport: flushes.
pub const IB_UVERBS_ODP_SUPPORT_FLUSH: u32 = 1 << 6;
/// On-demand paging of a transport: atomic writes.
pub const IB_UVERBS_ODP_SUPPORT_ATOMIC_WRITE: u32 = 1 << 7;

/// Raw packets: strips the customer's VLAN tag.
pub const IB_UVERBS_RAW_PACKET_CAP_CVLAN_STRIPPING: u32 = 1 << 0;
/// Raw packets: delivers the frame check sequence.
pub const IB_UVERBS_RAW_PACKET_CAP_SCATTER_FCS: u32 = 1 << 1;
/// Raw packets: checksums.
pub const IB_UVERBS_RAW_PACKET_CAP_IP_CSUM: u32 = 1 << 2;
/// Raw packets: waits for a receive instead of dropping.
pub const IB_UVERBS_RAW_PACKET_CAP_DELAY_DROP: u32 = 1 << 3;

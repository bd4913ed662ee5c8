//! Numbers about ports and GIDs.

/// Port state: none reported.
pub const IB_PORT_NOP: u8 = 0;
/// Port state: down.
pub const IB_PORT_DOWN: u8 = 1;
/// Port state: up, not configured.
pub const IB_PORT_INIT: u8 = 2;
/// Port state: configured, not active.
pub const IB_PORT_ARMED: u8 = 3;
/// Port state: active.
pub const IB_PORT_ACTIVE: u8 = 4;
/// Port state: active, link in trouble.
pub const IB_PORT_ACTIVE_DEFER: u8 = 5;

/// Physical state: asleep.
pub const IB_PORT_PHYS_STATE_SLEEP: u8 = 1;
/// Physical state: looking for a partner.
pub const IB_PORT_PHYS_STATE_POLLING: u8 = 2;
/// Physical state: disabled.
pub const IB_PORT_PHYS_STATE_DISABLED: u8 = 3;
/// Physical state: training.
pub const IB_PORT_PHYS_STATE_PORT_CONFIGURATION_TRAINING: u8 = 4;
/// Physical state: link up.
pub const IB_PORT_PHYS_STATE_LINK_UP: u8 = 5;
/// Physical state: recovering from errors.
pub const IB_PORT_PHYS_STATE_LINK_ERROR_RECOVERY: u8 = 6;
/// Physical state: test.
pub const IB_PORT_PHYS_STATE_PHY_TEST: u8 = 7;

/// Link layer: not told (old drivers mean InfiniBand).
pub const IB_LINK_LAYER_UNSPECIFIED: u8 = 0;
/// Link layer: InfiniBand.
pub const IB_LINK_LAYER_INFINIBAND: u8 = 1;
/// Link layer: Ethernet.
pub const IB_LINK_LAYER_ETHERNET: u8 = 2;

/// MTU of 256 bytes.
pub const IB_MTU_256: u8 = 1;
/// MTU of 512 bytes.
pub const IB_MTU_512: u8 = 2;
/// MTU of 1024 bytes.
pub const IB_MTU_1024: u8 = 3;
/// MTU of 2048 bytes.
pub const IB_MTU_2048: u8 = 4;
/// MTU of 4096 bytes.
pub const IB_MTU_4096: u8 = 5;

/// Link of one lane.
pub const IB_WIDTH_1X: u8 = 1;
/// Link of four lanes.
pub const IB_WIDTH_4X: u8 = 2;
/// Link of eight lanes.
pub const IB_WIDTH_8X: u8 = 4;
/// Link of twelve lanes.
pub const IB_WIDTH_12X: u8 = 8;
/// Link of two lanes.
pub const IB_WIDTH_2X: u8 = 16;

/// Lane of 2.5 Gbit/s.
pub const IB_SPEED_SDR: u32 = 1;
/// Lane of 5 Gbit/s.
pub const IB_SPEED_DDR: u32 = 2;
/// Lane of 10 Gbit/s.
pub const IB_SPEED_QDR: u32 = 4;
/// Lane of 10.3125 Gbit/s.
pub const IB_SPEED_FDR10: u32 = 8;
/// Lane of 14.0625 Gbit/s.
pub const IB_SPEED_FDR: u32 = 16;
/// Lane of 25 Gbit/s.
pub const IB_SPEED_EDR: u32 = 32;
/// Lane of 50 Gbit/s.
pub const IB_SPEED_HDR: u32 = 64;
/// Lane of 100 Gbit/s.
pub const IB_SPEED_NDR: u32 = 128;
/// Lane of 200 Gbit/s; only in `active_speed_ex`.
pub const IB_SPEED_XDR: u32 = 256;

/// GID of InfiniBand.
pub const IB_UVERBS_GID_TYPE_IB: u32 = 0;
/// GID of RoCE version 1: Ethernet frames.
pub const IB_UVERBS_GID_TYPE_ROCE_V1: u32 = 1;
/// GID of RoCE version 2: UDP.
pub const IB_UVERBS_GID_TYPE_ROCE_V2: u32 = 2;

/// Paths from this port need a global route.
pub const IB_UVERBS_QPF_GRH_REQUIRED: u8 = 1 << 0;

/// A subnet manager runs on the port.
pub const IB_UVERBS_PCF_SM: u32 = 1 << 1;
/// Notices.
pub const IB_UVERBS_PCF_NOTICE_SUP: u32 = 1 << 2;
/// Traps.
pub const IB_UVERBS_PCF_TRAP_SUP: u32 = 1 << 3;
/// Optional inter-packet delays.
pub const IB_UVERBS_PCF_OPT_IPD_SUP: u32 = 1 << 4;
/// Automatic path migration.
pub const IB_UVERBS_PCF_AUTO_MIGR_SUP: u32 = 1 << 5;
/// Service level mapping.
pub const IB_UVERBS_PCF_SL_MAP_SUP: u32 = 1 << 6;
/// Management keys survive power-off.
pub const IB_UVERBS_PCF_MKEY_NVRAM: u32 = 1 << 7;
/// Partition keys survive power-off.
pub const IB_UVERBS_PCF_PKEY_NVRAM: u32 = 1 << 8;
/// Lights.
pub const IB_UVERBS_PCF_LED_INFO_SUP: u32 = 1 << 9;
/// The subnet manager is disabled.
pub const IB_UVERBS_PCF_SM_DISABLED: u32 = 1 << 10;
/// System image GUID.
pub const IB_UVERBS_PCF_SYS_IMAGE_GUID_SUP: u32 = 1 << 11;
/// Partition key traps of external switch ports.
pub const IB_UVERBS_PCF_PKEY_SW_EXT_PORT_TRAP_SUP: u32 = 1 << 12;
/// Extended speeds.
pub const IB_UVERBS_PCF_EXTENDED_SPEEDS_SUP: u32 = 1 << 14;
/// Communication management.
pub const IB_UVERBS_PCF_CM_SUP: u32 = 1 << 16;
/// SNMP tunnelling.
pub const IB_UVERBS_PCF_SNMP_TUNNEL_SUP: u32 = 1 << 17;
/// Initialization anew.
pub const IB_UVERBS_PCF_REINIT_SUP: u32 = 1 << 18;
/// Device management.
pub const IB_UVERBS_PCF_DEVICE_MGMT_SUP: u32 = 1 << 19;
/// Vendor class.
pub const IB_UVERBS_PCF_VENDOR_CLASS_SUP: u32 = 1 << 20;
/// Notices by directed route.
pub const IB_UVERBS_PCF_DR_NOTICE_SUP: u32 = 1 << 21;
/// Notices of changed capabilities.
pub const IB_UVERBS_PCF_CAP_MASK_NOTICE_SUP: u32 = 1 << 22;
/// Boot management.
pub const IB_UVERBS_PCF_BOOT_MGMT_SUP: u32 = 1 << 23;
/// Round-trip latency of the link.
pub const IB_UVERBS_PCF_LINK_LATENCY_SUP: u32 = 1 << 24;
/// Clients can be asked to register anew.
pub const IB_UVERBS_PCF_CLIENT_REG_SUP: u32 = 1 << 25;
/// GIDs are made from IP addresses (the kernel's own bit).
pub const IB_UVERBS_PCF_IP_BASED_GIDS: u32 = 1 << 26;
/// Table of link speeds and widths.
pub const IB_UVERBS_PCF_LINK_SPEED_WIDTH_TABLE_SUP: u32 = 1 << 27;
/// Table of the vendor's management datagrams.
pub const IB_UVERBS_PCF_VENDOR_SPECIFIC_MADS_TABLE_SUP: u32 = 1 << 28;
/// Multicast partition key traps can be suppressed.
pub const IB_UVERBS_PCF_MCAST_PKEY_TRAP_SUPPRESSION_SUP: u32 = 1 << 29;
/// Top of the multicast forwarding table.
pub const IB_UVERBS_PCF_MCAST_FDB_TOP_SUP: u32 = 1 << 30;
/// Hierarchy information.
pub const IB_UVERBS_PCF_HIERARCHY_INFO_SUP: u32 = 1 << 31;

//! Commands on the context, the device and its ports.

kernel_struct! {
    /// Request of GET_CONTEXT.
    pub struct ib_uverbs_get_context, size 8, align 8 {
        /// Address of the response.
        [0] pub response: u64,
    }
}

kernel_struct! {
    /// Response of GET_CONTEXT.
    pub struct ib_uverbs_get_context_resp, size 8, align 8 {
        /// The asynchronous event file.
        [0] pub async_fd: u32,
        /// Number of completion vectors.
        [4] pub num_comp_vectors: u32,
    }
}

kernel_struct! {
    /// Request of QUERY_DEVICE.
    pub struct ib_uverbs_query_device, size 8, align 8 {
        /// Address of the response.
        [0] pub response: u64,
    }
}

kernel_struct! {
    /// Response of QUERY_DEVICE.
    pub struct ib_uverbs_query_device_resp, size 176, align 8 {
        /// Firmware version.
        [0] pub fw_ver: u64,
        /// GUID of the node, network order.
        [8] pub node_guid: [u8; 8],
        /// GUID of the system, network order.
        [16] pub sys_image_guid: [u8; 8],
        /// Longest memory region.
        [24] pub max_mr_size: u64,
        /// Page sizes supported, as a bit mask.
        [32] pub page_size_cap: u64,
        /// Vendor.
        [40] pub vendor_id: u32,
        /// Vendor's part number.
        [44] pub vendor_part_id: u32,
        /// Hardware version.
        [48] pub hw_ver: u32,
        /// Most queue pairs.
        [52] pub max_qp: u32,
        /// Most work requests of a queue.
        [56] pub max_qp_wr: u32,
        /// `IB_UVERBS_DEVICE_…`, low half.
        [60] pub device_cap_flags: u32,
        /// Most scatter/gather entries of a work request.
        [64] pub max_sge: u32,
        /// Most scatter/gather entries of an RDMA read.
        [68] pub max_sge_rd: u32,
        /// Most completion queues.
        [72] pub max_cq: u32,
        /// Most entries of a completion queue.
        [76] pub max_cqe: u32,
        /// Most memory regions.
        [80] pub max_mr: u32,
        /// Most protection domains.
        [84] pub max_pd: u32,
        /// Most RDMA reads and atomics in flight towards a QP.
        [88] pub max_qp_rd_atom: u32,
        /// The same per EE context (reliable datagrams; unused).
        [92] pub max_ee_rd_atom: u32,
        /// The same for the whole device.
        [96] pub max_res_rd_atom: u32,
        /// Most RDMA reads and atomics in flight from a QP.
        [100] pub max_qp_init_rd_atom: u32,
        /// The same per EE context (unused).
        [104] pub max_ee_init_rd_atom: u32,
        /// `IB_ATOMIC_…`.
        [108] pub atomic_cap: u32,
        /// Most EE contexts (unused).
        [112] pub max_ee: u32,
        /// Most reliable datagram domains (unused).
        [116] pub max_rdd: u32,
        /// Most memory windows.
        [120] pub max_mw: u32,
        /// Most raw IPv6 QPs (unused).
        [124] pub max_raw_ipv6_qp: u32,
        /// Most raw Ethertype QPs (unused).
        [128] pub max_raw_ethy_qp: u32,
        /// Most multicast groups.
        [132] pub max_mcast_grp: u32,
        /// Most QPs of a multicast group.
        [136] pub max_mcast_qp_attach: u32,
        /// Most attachments in all.
        [140] pub max_total_mcast_qp_attach: u32,
        /// Most address handles.
        [144] pub max_ah: u32,
        /// Fast memory regions (left the kernel).
        [148] pub max_fmr: u32,
        /// The same.
        [152] pub max_map_per_fmr: u32,
        /// Most shared receive queues.
        [156] pub max_srq: u32,
        /// Most entries of a shared receive queue.
        [160] pub max_srq_wr: u32,
        /// Most scatter/gather entries of a shared receive.
        [164] pub max_srq_sge: u32,
        /// Most partition keys.
        [168] pub max_pkeys: u16,
        /// Delay of acknowledgements, as the usual exponent.
        [170] pub local_ca_ack_delay: u8,
        /// Number of ports.
        [171] pub phys_port_cnt: u8,
        /// Zero.
        [172] pub reserved: [u8; 4],
    }
}

kernel_struct! {
    /// Request of the extended QUERY_DEVICE.
    pub struct ib_uverbs_ex_query_device, size 8, align 4 {
        /// Zero.
        [0] pub comp_mask: u32,
        /// Zero.
        [4] pub reserved: u32,
    }
}

kernel_struct! {
    /// What each transport can do with on-demand paging.
    pub struct ib_uverbs_odp_per_transport_caps, size 12, align 4 {
        /// Reliable connections.
        [0] pub rc_odp_caps: u32,
        /// Unreliable connections.
        [4] pub uc_odp_caps: u32,
        /// Datagrams.
        [8] pub ud_odp_caps: u32,
    }
}

kernel_struct! {
    /// What the device can do with on-demand paging.
    pub struct ib_uverbs_odp_caps, size 24, align 8 {
        /// Bit 0: supported; bit 1: implicit regions.
        [0] pub general_caps: u64,
        /// Per transport.
        [8] pub per_transport_caps: ib_uverbs_odp_per_transport_caps,
        /// Zero.
        [20] pub reserved: u32,
    }
}

kernel_struct! {
    /// What the device can do with receive side scaling.
    pub struct ib_uverbs_rss_caps, size 16, align 4 {
        /// Bit mask of QP types.
        [0] pub supported_qpts: u32,
        /// Most indirection tables.
        [4] pub max_rwq_indirection_tables: u32,
        /// Most entries of an indirection table.
        [8] pub max_rwq_indirection_table_size: u32,
        /// Zero.
        [12] pub reserved: u32,
    }
}

kernel_struct! {
    /// What the device can do with tag matching.
    pub struct ib_uverbs_tm_caps, size 24, align 4 {
        /// Longest rendezvous header.
        [0] pub max_rndv_hdr_size: u32,
        /// Most tags of a list.
        [4] pub max_num_tags: u32,
        /// Flags.
        [8] pub flags: u32,
        /// Most list operations in flight.
        [12] pub max_ops: u32,
        /// Most scatter/gather entries of a tag.
        [16] pub max_sge: u32,
        /// Zero.
        [20] pub reserved: u32,
    }
}

kernel_struct! {
    /// Bounds of completion queue moderation.
    pub struct ib_uverbs_cq_moderation_caps, size 8, align 4 {
        /// Most completions per event.
        [0] pub max_cq_moderation_count: u16,
        /// Longest wait, in microseconds.
        [2] pub max_cq_moderation_period: u16,
        /// Zero.
        [4] pub reserved: u32,
    }
}

kernel_struct! {
    /// Response of the extended QUERY_DEVICE. A kernel may fill less: see `response_length`.
    pub struct ib_uverbs_ex_query_device_resp, size 304, align 8 {
        /// As of QUERY_DEVICE.
        [0] pub base: ib_uverbs_query_device_resp,
        /// Zero.
        [176] pub comp_mask: u32,
        /// Bytes that the kernel filled.
        [180] pub response_length: u32,
        /// On-demand paging.
        [184] pub odp_caps: ib_uverbs_odp_caps,
        /// Valid bits of a completion time stamp.
        [208] pub timestamp_mask: u64,
        /// Clock behind the time stamps, in kHz.
        [216] pub hca_core_clock: u64,
        /// `IB_UVERBS_DEVICE_…`, all of them.
        [224] pub device_cap_flags_ex: u64,
        /// Receive side scaling.
        [232] pub rss_caps: ib_uverbs_rss_caps,
        /// Most work queues of type receive.
        [248] pub max_wq_type_rq: u32,
        /// `IB_UVERBS_RAW_PACKET_CAP_…`.
        [252] pub raw_packet_caps: u32,
        /// Tag matching.
        [256] pub tm_caps: ib_uverbs_tm_caps,
        /// Completion queue moderation.
        [280] pub cq_moderation_caps: ib_uverbs_cq_moderation_caps,
        /// Bytes of device memory.
        [288] pub max_dm_size: u64,
        /// On-demand paging for XRC.
        [296] pub xrc_odp_caps: u32,
        /// Zero.
        [300] pub reserved: u32,
    }
}

kernel_struct! {
    /// Request of QUERY_PORT.
    pub struct ib_uverbs_query_port, size 16, align 8 {
        /// Address of the response.
        [0] pub response: u64,
        /// Port, from 1.
        [8] pub port_num: u8,
        /// Zero.
        [9] pub reserved: [u8; 7],
    }
}

kernel_struct! {
    /// Response of QUERY_PORT, and the first part of the ioctl's.
    pub struct ib_uverbs_query_port_resp, size 40, align 4 {
        /// `IB_UVERBS_PCF_…`.
        [0] pub port_cap_flags: u32,
        /// Longest message.
        [4] pub max_msg_sz: u32,
        /// Packets with a bad partition key.
        [8] pub bad_pkey_cntr: u32,
        /// Packets with a bad Q-key.
        [12] pub qkey_viol_cntr: u32,
        /// Entries of the GID table.
        [16] pub gid_tbl_len: u32,
        /// Entries of the partition key table.
        [20] pub pkey_tbl_len: u16,
        /// Local id.
        [22] pub lid: u16,
        /// Local id of the subnet manager.
        [24] pub sm_lid: u16,
        /// `IB_PORT_…`.
        [26] pub state: u8,
        /// Largest MTU, `IB_MTU_…`.
        [27] pub max_mtu: u8,
        /// MTU in use, `IB_MTU_…`.
        [28] pub active_mtu: u8,
        /// Local id mask.
        [29] pub lmc: u8,
        /// Virtual lanes, as a code.
        [30] pub max_vl_num: u8,
        /// Service level of the subnet manager.
        [31] pub sm_sl: u8,
        /// Subnet time-out, as an exponent.
        [32] pub subnet_timeout: u8,
        /// Kind of initialization done.
        [33] pub init_type_reply: u8,
        /// Link width, `IB_WIDTH_…`.
        [34] pub active_width: u8,
        /// Link speed, `IB_SPEED_…` as far as it fits.
        [35] pub active_speed: u8,
        /// `IB_PORT_PHYS_STATE_…`.
        [36] pub phys_state: u8,
        /// `IB_LINK_LAYER_…`.
        [37] pub link_layer: u8,
        /// `IB_UVERBS_QPF_…`.
        [38] pub flags: u8,
        /// Zero.
        [39] pub reserved: u8,
    }
}

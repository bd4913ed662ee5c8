//! Commands on address handles and multicast groups.

kernel_struct! {
    /// Global route of an address.
    pub struct ib_uverbs_global_route, size 24, align 4 {
        /// GID of the destination.
        [0] pub dgid: [u8; 16],
        /// Flow label.
        [16] pub flow_label: u32,
        /// Index of the source GID.
        [20] pub sgid_index: u8,
        /// Hop limit.
        [21] pub hop_limit: u8,
        /// Traffic class.
        [22] pub traffic_class: u8,
        /// Zero.
        [23] pub reserved: u8,
    }
}

kernel_struct! {
    /// An address.
    pub struct ib_uverbs_ah_attr, size 32, align 4 {
        /// Global route, used where `is_global` is set.
        [0] pub grh: ib_uverbs_global_route,
        /// Local id of the destination.
        [24] pub dlid: u16,
        /// Service level.
        [26] pub sl: u8,
        /// Source path bits.
        [27] pub src_path_bits: u8,
        /// Rate limit, as a code.
        [28] pub static_rate: u8,
        /// Whether `grh` counts.
        [29] pub is_global: u8,
        /// Local port.
        [30] pub port_num: u8,
        /// Zero.
        [31] pub reserved: u8,
    }
}

kernel_struct! {
    /// Request of CREATE_AH.
    pub struct ib_uverbs_create_ah, size 56, align 8 {
        /// Address of the response.
        [0] pub response: u64,
        /// Kept by the kernel, not used.
        [8] pub user_handle: u64,
        /// Protection domain.
        [16] pub pd_handle: u32,
        /// Zero.
        [20] pub reserved: u32,
        /// The address.
        [24] pub attr: ib_uverbs_ah_attr,
    }
}

kernel_struct! {
    /// Response of CREATE_AH.
    pub struct ib_uverbs_create_ah_resp, size 4, align 4 {
        /// The new address handle.
        [0] pub ah_handle: u32,
    }
}

kernel_struct! {
    /// Request of DESTROY_AH; there is no response.
    pub struct ib_uverbs_destroy_ah, size 4, align 4 {
        /// The address handle.
        [0] pub ah_handle: u32,
    }
}

kernel_struct! {
    /// Request of ATTACH_MCAST; there is no response.
    pub struct ib_uverbs_attach_mcast, size 24, align 8 {
        /// GID of the group.
        [0] pub gid: [u8; 16],
        /// The queue pair.
        [16] pub qp_handle: u32,
        /// Local id of the group.
        [20] pub mlid: u16,
        /// Zero.
        [22] pub reserved: u16,
    }
}

kernel_struct! {
    /// Request of DETACH_MCAST; there is no response.
    pub struct ib_uverbs_detach_mcast, size 24, align 8 {
        /// GID of the group.
        [0] pub gid: [u8; 16],
        /// The queue pair.
        [16] pub qp_handle: u32,
        /// Local id of the group.
        [20] pub mlid: u16,
        /// Zero.
        [22] pub reserved: u16,
    }
}

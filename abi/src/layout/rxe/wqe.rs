//! Entries of the rxe send and receive queues, and the members of the send entry's union.
//!
//! Ground truth: `rdma/rdma_user_rxe.h`.

/// `rxe_av.network_type` of a path over IPv4.
pub const RXE_NETWORK_TYPE_IPV4: u8 = 1;
/// `rxe_av.network_type` of a path over IPv6.
pub const RXE_NETWORK_TYPE_IPV6: u8 = 2;

/// `rxe_send_wqe.state` of an entry that the user has posted.
pub const WQE_STATE_POSTED: u32 = 0;

/// Bytes of the union `rxe_send_wr.wr`.
pub const RXE_WR_UNION_LEN: usize = 120;
/// Offset of the union `rxe_send_wr.wr` in a send entry.
pub const RXE_WR_UNION_OFFSET: usize = 24;

kernel_struct! {
    /// One scatter/gather entry of a slot.
    pub struct rxe_sge, size 16, align 8 {
        /// Address in the region.
        [0] pub addr: u64,
        /// Bytes.
        [8] pub length: u32,
        /// Local key of the region.
        [12] pub lkey: u32,
    }
}

kernel_struct! {
    /// Progress through the data of a slot; scatter/gather entries or inline bytes follow it.
    pub struct rxe_dma_info, size 24, align 8 {
        /// Bytes in all.
        [0] pub length: u32,
        /// Bytes left; starts as `length`.
        [4] pub resid: u32,
        /// Current entry; starts at zero.
        [8] pub cur_sge: u32,
        /// Number of entries.
        [12] pub num_sge: u32,
        /// Offset in the current entry; starts at zero.
        [16] pub sge_offset: u32,
        /// Zero.
        [20] pub reserved: u32,
    }
}

kernel_struct! {
    /// Global route of an address vector.
    pub struct rxe_global_route, size 24, align 8 {
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
        [23] pub pad: u8,
    }
}

kernel_struct! {
    /// IPv4 socket address, as it lies in the first bytes of [`rxe_av::sgid_addr`].
    pub struct sockaddr_in, size 16, align 4 {
        /// `AF_INET` (2).
        [0] pub sin_family: u16,
        /// Port, network order.
        [2] pub sin_port: [u8; 2],
        /// Address, network order.
        [4] pub sin_addr: [u8; 4],
        /// Zero.
        [8] pub pad: [u8; 8],
    }
}

kernel_struct! {
    /// IPv6 socket address, as it lies in [`rxe_av::sgid_addr`].
    pub struct sockaddr_in6, size 28, align 4 {
        /// `AF_INET6` (10).
        [0] pub sin6_family: u16,
        /// Port, network order.
        [2] pub sin6_port: [u8; 2],
        /// Flow information, network order.
        [4] pub sin6_flowinfo: [u8; 4],
        /// Address, network order.
        [8] pub sin6_addr: [u8; 16],
        /// Interface index of a link-local address.
        [24] pub sin6_scope_id: u32,
    }
}

kernel_struct! {
    /// Address vector: the path of a datagram whose address handle the kernel does not keep.
    pub struct rxe_av, size 88, align 8 {
        /// Local port.
        [0] pub port_num: u8,
        /// `RXE_NETWORK_TYPE_…`.
        [1] pub network_type: u8,
        /// MAC address of the next hop.
        [2] pub dmac: [u8; 6],
        /// Global route.
        [8] pub grh: rxe_global_route,
        /// Source: a [`sockaddr_in`] or [`sockaddr_in6`].
        [32] pub sgid_addr: [u8; 28],
        /// Destination: a [`sockaddr_in`] or [`sockaddr_in6`].
        [60] pub dgid_addr: [u8; 28],
    }
}

kernel_struct! {
    /// What to send: the first part of a send entry.
    pub struct rxe_send_wr, size 144, align 8 {
        /// User's id, given back by the completion.
        [0] pub wr_id: u64,
        /// Zero.
        [8] pub reserved: u32,
        /// `IB_UVERBS_WR_…`.
        [12] pub opcode: u32,
        /// `IB_SEND_…`.
        [16] pub send_flags: u32,
        /// Union: immediate data in network order, or a remote key to invalidate in host order.
        [20] pub ex: [u8; 4],
        /// Union: one of [`rxe_wr_rdma`], [`rxe_wr_atomic`], [`rxe_wr_ud`], [`rxe_wr_mw`],
        /// [`rxe_wr_flush`].
        [24] pub wr: [u8; 120],
    }
}

kernel_struct! {
    /// Send entry; scatter/gather entries or inline bytes follow it in the slot.
    pub struct rxe_send_wqe, size 208, align 8 {
        /// What to send.
        [0] pub wr: rxe_send_wr,
        /// Written by the kernel; starts as zero.
        [144] pub status: u32,
        /// Written by the kernel; starts as [`WQE_STATE_POSTED`].
        [148] pub state: u32,
        /// Remote address of RDMA and atomics.
        [152] pub iova: u64,
        /// Used by the kernel; starts as zero.
        [160] pub mask: u32,
        /// Used by the kernel; starts as zero.
        [164] pub first_psn: u32,
        /// Used by the kernel; starts as zero.
        [168] pub last_psn: u32,
        /// Used by the kernel; starts as zero.
        [172] pub ack_length: u32,
        /// Send sequence number, counted by the user.
        [176] pub ssn: u32,
        /// Used by the kernel; starts as zero.
        [180] pub has_rd_atomic: u32,
        /// The data.
        [184] pub dma: rxe_dma_info,
    }
}

kernel_struct! {
    /// Receive entry; scatter/gather entries follow it in the slot.
    pub struct rxe_recv_wqe, size 40, align 8 {
        /// User's id, given back by the completion.
        [0] pub wr_id: u64,
        /// Zero.
        [8] pub reserved: u32,
        /// Zero.
        [12] pub padding: u32,
        /// Where the data goes.
        [16] pub dma: rxe_dma_info,
    }
}

kernel_struct! {
    /// Member of [`rxe_send_wr::wr`] for RDMA reads, writes and atomic writes.
    pub struct rxe_wr_rdma, size 16, align 8 {
        /// Address in the remote region.
        [0] pub remote_addr: u64,
        /// Remote key.
        [8] pub rkey: u32,
        /// Zero.
        [12] pub reserved: u32,
    }
}

kernel_struct! {
    /// Member of [`rxe_send_wr::wr`] for atomics.
    pub struct rxe_wr_atomic, size 32, align 8 {
        /// Address in the remote region.
        [0] pub remote_addr: u64,
        /// Value to compare with, or to add.
        [8] pub compare_add: u64,
        /// Value to put in place.
        [16] pub swap: u64,
        /// Remote key.
        [24] pub rkey: u32,
        /// Zero.
        [28] pub reserved: u32,
    }
}

kernel_struct! {
    /// Member of [`rxe_send_wr::wr`] for datagrams.
    pub struct rxe_wr_ud, size 120, align 8 {
        /// Number of the remote queue pair.
        [0] pub remote_qpn: u32,
        /// Q-key of the remote queue pair.
        [4] pub remote_qkey: u32,
        /// Index of the partition key.
        [8] pub pkey_index: u16,
        /// Zero.
        [10] pub reserved: u16,
        /// Address handle that the kernel keeps ([its number](super::rxe_create_ah_resp)), or zero
        /// for `av`.
        [12] pub ah_num: u32,
        /// Zero.
        [16] pub pad: [u32; 4],
        /// The path, used where `ah_num` is zero.
        [32] pub av: rxe_av,
    }
}

kernel_struct! {
    /// Member of [`rxe_send_wr::wr`] for binding a memory window.
    pub struct rxe_wr_mw, size 32, align 8 {
        /// First address of the window.
        [0] pub addr: u64,
        /// Bytes of the window.
        [8] pub length: u64,
        /// Local key of the region under it.
        [16] pub mr_lkey: u32,
        /// Key the window has now.
        [20] pub mw_rkey: u32,
        /// Key the window shall have.
        [24] pub rkey: u32,
        /// `IB_UVERBS_ACCESS_…`.
        [28] pub access: u32,
    }
}

kernel_struct! {
    /// Member of [`rxe_send_wr::wr`] for flushes. Since 6.12.
    pub struct rxe_wr_flush, size 24, align 8 {
        /// Address in the remote region.
        [0] pub remote_addr: u64,
        /// Bytes to flush.
        [8] pub length: u32,
        /// Remote key.
        [12] pub rkey: u32,
        /// Placement: `IB_FLUSH_GLOBAL`, `IB_FLUSH_PERSISTENT`.
        [16] pub r#type: u8,
        /// Selectivity: `IB_FLUSH_RANGE`, `IB_FLUSH_MR`.
        [17] pub level: u8,
        /// Zero.
        [18] pub pad: [u8; 6],
    }
}

macro_rules! union_member {
    ($($name:ident)+) => { $(
        impl $name {
            /// The union [`rxe_send_wr::wr`] with this member in it and zeroes behind.
            #[must_use]
            pub fn to_union(self) -> [u8; RXE_WR_UNION_LEN] {
                #[derive(::zerocopy::IntoBytes)]
                #[repr(C)]
                struct Padded {
                    member: $name,
                    rest: [u8; RXE_WR_UNION_LEN - ::core::mem::size_of::<$name>()],
                }
                const REST: usize = RXE_WR_UNION_LEN - ::core::mem::size_of::<$name>();
                ::zerocopy::transmute!(Padded { member: self, rest: [0; REST] })
            }

            /// This member as it lies in the union [`rxe_send_wr::wr`].
            #[must_use]
            pub fn from_union(union: [u8; RXE_WR_UNION_LEN]) -> Self {
                #[derive(::zerocopy::FromBytes)]
                #[repr(C)]
                struct Padded {
                    member: $name,
                    _rest: [u8; RXE_WR_UNION_LEN - ::core::mem::size_of::<$name>()],
                }
                let padded: Padded = ::zerocopy::transmute!(union);
                padded.member
            }
        }
    )+ };
}

union_member! { rxe_wr_rdma rxe_wr_atomic rxe_wr_ud rxe_wr_mw rxe_wr_flush }

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(offset_of!(rxe_send_wr, wr) == RXE_WR_UNION_OFFSET);
    assert!(size_of::<rxe_wr_ud>() == RXE_WR_UNION_LEN);
    // Where the members' fields lie, counted from the start of the entry.
    assert!(RXE_WR_UNION_OFFSET + offset_of!(rxe_wr_rdma, rkey) == 32);
    assert!(RXE_WR_UNION_OFFSET + offset_of!(rxe_wr_atomic, compare_add) == 32);
    assert!(RXE_WR_UNION_OFFSET + offset_of!(rxe_wr_atomic, swap) == 40);
    assert!(RXE_WR_UNION_OFFSET + offset_of!(rxe_wr_atomic, rkey) == 48);
    assert!(RXE_WR_UNION_OFFSET + offset_of!(rxe_wr_ud, remote_qkey) == 28);
    assert!(RXE_WR_UNION_OFFSET + offset_of!(rxe_wr_ud, pkey_index) == 32);
    assert!(RXE_WR_UNION_OFFSET + offset_of!(rxe_wr_ud, ah_num) == 36);
    assert!(RXE_WR_UNION_OFFSET + offset_of!(rxe_wr_ud, av) == 56);
    assert!(RXE_WR_UNION_OFFSET + offset_of!(rxe_wr_mw, length) == 32);
    assert!(RXE_WR_UNION_OFFSET + offset_of!(rxe_wr_mw, mr_lkey) == 40);
    assert!(RXE_WR_UNION_OFFSET + offset_of!(rxe_wr_mw, mw_rkey) == 44);
    assert!(RXE_WR_UNION_OFFSET + offset_of!(rxe_wr_mw, rkey) == 48);
    assert!(RXE_WR_UNION_OFFSET + offset_of!(rxe_wr_mw, access) == 52);
    assert!(RXE_WR_UNION_OFFSET + offset_of!(rxe_wr_flush, length) == 32);
    assert!(RXE_WR_UNION_OFFSET + offset_of!(rxe_wr_flush, rkey) == 36);
    assert!(RXE_WR_UNION_OFFSET + offset_of!(rxe_wr_flush, r#type) == 40);
    assert!(RXE_WR_UNION_OFFSET + offset_of!(rxe_wr_flush, level) == 41);
};

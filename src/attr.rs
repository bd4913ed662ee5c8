//! What a device and its ports say of themselves.
//!
//! Ground truth: `struct ib_uverbs_ex_query_device_resp` and `struct ib_uverbs_query_port_resp_ex`;
//! `ibv_query_device_ex(3)`, `ibv_query_port(3)`. Fields that a kernel does not know are zero.

use std::fmt;

use uverbs_abi::layout::cmd::ib_uverbs_ex_query_device_resp;
use uverbs_abi::layout::verbs::{self as raw, ib_uverbs_query_port_resp_ex};
use uverbs_providers::types::Mtu;

use crate::caps::{CqModerationCaps, OdpCaps, RssCaps, TagMatchingCaps};

/// A device's limits and capabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "ibv_device_attr")]
pub struct DeviceAttr {
    /// Firmware version: three 16-bit parts, highest first; 0 on devices without firmware.
    pub fw_ver: u64,
    /// The node's globally unique id, in network order.
    pub node_guid: [u8; 8],
    /// The system image's globally unique id, in network order.
    pub sys_image_guid: [u8; 8],
    /// Bytes of the largest registration.
    pub max_mr_size: u64,
    /// Page sizes that registrations may use, as bits.
    pub page_size_cap: u64,
    /// Vendor id (IEEE OUI).
    pub vendor_id: u32,
    /// Vendor part id.
    pub vendor_part_id: u32,
    /// Hardware version.
    pub hw_ver: u32,
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests of one queue.
    pub max_qp_wr: u32,
    /// Capabilities (`IB_UVERBS_DEVICE_*`), 64 bits where the kernel gives them.
    pub device_cap_flags: u64,
    /// Scatter/gather elements of one work request.
    pub max_sge: u32,
    /// Scatter/gather elements of one RDMA READ.
    pub max_sge_rd: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Completions of one queue.
    pub max_cqe: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// RDMA READs and atomics under way towards one queue pair.
    pub max_qp_rd_atom: u32,
    /// RDMA READs and atomics under way from one queue pair.
    pub max_qp_init_rd_atom: u32,
    /// RDMA READs and atomics under way towards the device.
    pub max_res_rd_atom: u32,
    /// How atomic operations are against others.
    pub atomic_cap: AtomicCap,
    /// Memory windows.
    pub max_mw: u32,
    /// Multicast groups.
    pub max_mcast_grp: u32,
    /// Queue pairs in one multicast group.
    pub max_mcast_qp_attach: u32,
    /// Attachments to all multicast groups.
    pub max_total_mcast_qp_attach: u32,
    /// Address handles.
    pub max_ah: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Requests of one shared receive queue.
    pub max_srq_wr: u32,
    /// Scatter/gather elements of one request of a shared receive queue.
    pub max_srq_sge: u32,
    /// P_Keys.
    pub max_pkeys: u16,
    /// How long the device may take to acknowledge: 4.096 µs × 2 to this power.
    pub local_ca_ack_delay: u8,
    /// Ports, counted from 1.
    pub phys_port_cnt: u8,
    /// On-demand paging.
    pub odp: OdpCaps,
    /// Bits of a completion's time stamp that count; 0 where completions have none.
    pub completion_timestamp_mask: u64,
    /// Clock behind the time stamps, in kHz; 0 where there is none.
    pub hca_core_clock_khz: u64,
    /// Receive side scaling.
    pub rss: RssCaps,
    /// Work queues of type receive.
    pub max_wq_type_rq: u32,
    /// Raw packets (`IB_UVERBS_RAW_PACKET_CAP_*`).
    pub raw_packet_caps: u32,
    /// Tag matching.
    pub tag_matching: TagMatchingCaps,
    /// Moderation of completion events.
    pub cq_moderation: CqModerationCaps,
    /// Bytes of device memory.
    pub max_dm_size: u64,
    /// What devices do not have, or no longer.
    pub obsolete: ObsoleteAttr,
}

/// Limits of what the specification has and devices do not, or no longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObsoleteAttr {
    /// RDMA READs and atomics under way towards one end-to-end context.
    pub max_ee_rd_atom: u32,
    /// And from one.
    pub max_ee_init_rd_atom: u32,
    /// End-to-end contexts.
    pub max_ee: u32,
    /// Reliable datagram domains.
    pub max_rdd: u32,
    /// Raw IPv6 queue pairs.
    pub max_raw_ipv6_qp: u32,
    /// Raw Ethertype queue pairs.
    pub max_raw_ethy_qp: u32,
    /// Fast memory regions.
    pub max_fmr: u32,
    /// Times that one can be mapped.
    pub max_map_per_fmr: u32,
}

/// How atomic operations on one piece of memory are with respect to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtomicCap {
    /// There are none.
    None,
    /// Atomic among queue pairs of this device.
    Hca,
    /// Atomic also against the CPU.
    Global,
    /// A number that this crate does not know.
    Unknown(u32),
}

impl From<ib_uverbs_ex_query_device_resp> for DeviceAttr {
    fn from(response: ib_uverbs_ex_query_device_resp) -> Self {
        let base = response.base;
        let flags = match response.device_cap_flags_ex {
            0 => u64::from(base.device_cap_flags),
            flags => flags,
        };
        Self {
            fw_ver: base.fw_ver,
            node_guid: base.node_guid,
            sys_image_guid: base.sys_image_guid,
            max_mr_size: base.max_mr_size,
            page_size_cap: base.page_size_cap,
            vendor_id: base.vendor_id,
            vendor_part_id: base.vendor_part_id,
            hw_ver: base.hw_ver,
            max_qp: base.max_qp,
            max_qp_wr: base.max_qp_wr,
            device_cap_flags: flags,
            max_sge: base.max_sge,
            max_sge_rd: base.max_sge_rd,
            max_cq: base.max_cq,
            max_cqe: base.max_cqe,
            max_mr: base.max_mr,
            max_pd: base.max_pd,
            max_qp_rd_atom: base.max_qp_rd_atom,
            max_qp_init_rd_atom: base.max_qp_init_rd_atom,
            max_res_rd_atom: base.max_res_rd_atom,
            atomic_cap: match base.atomic_cap {
                raw::IB_ATOMIC_NONE => AtomicCap::None,
                raw::IB_ATOMIC_HCA => AtomicCap::Hca,
                raw::IB_ATOMIC_GLOB => AtomicCap::Global,
                other => AtomicCap::Unknown(other),
            },
            max_mw: base.max_mw,
            max_mcast_grp: base.max_mcast_grp,
            max_mcast_qp_attach: base.max_mcast_qp_attach,
            max_total_mcast_qp_attach: base.max_total_mcast_qp_attach,
            max_ah: base.max_ah,
            max_srq: base.max_srq,
            max_srq_wr: base.max_srq_wr,
            max_srq_sge: base.max_srq_sge,
            max_pkeys: base.max_pkeys,
            local_ca_ack_delay: base.local_ca_ack_delay,
            phys_port_cnt: base.phys_port_cnt,
            odp: OdpCaps::from(&response),
            completion_timestamp_mask: response.timestamp_mask,
            hca_core_clock_khz: response.hca_core_clock,
            rss: RssCaps::from(&response.rss_caps),
            max_wq_type_rq: response.max_wq_type_rq,
            raw_packet_caps: response.raw_packet_caps,
            tag_matching: TagMatchingCaps::from(&response.tm_caps),
            cq_moderation: CqModerationCaps::from(&response.cq_moderation_caps),
            max_dm_size: response.max_dm_size,
            obsolete: ObsoleteAttr {
                max_ee_rd_atom: base.max_ee_rd_atom,
                max_ee_init_rd_atom: base.max_ee_init_rd_atom,
                max_ee: base.max_ee,
                max_rdd: base.max_rdd,
                max_raw_ipv6_qp: base.max_raw_ipv6_qp,
                max_raw_ethy_qp: base.max_raw_ethy_qp,
                max_fmr: base.max_fmr,
                max_map_per_fmr: base.max_map_per_fmr,
            },
        }
    }
}

/// A port's logical state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "ibv_port_state")]
pub enum PortState {
    /// No state change.
    Nop,
    /// The link is down.
    Down,
    /// The link is up, the subnet manager has not been here.
    Init,
    /// Configured, not yet carrying data.
    Armed,
    /// Carrying data.
    Active,
    /// Active, with the link down for a moment.
    ActiveDefer,
    /// A number that this crate does not know.
    Unknown(u8),
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nop => f.write_str("NOP"),
            Self::Down => f.write_str("DOWN"),
            Self::Init => f.write_str("INIT"),
            Self::Armed => f.write_str("ARMED"),
            Self::Active => f.write_str("ACTIVE"),
            Self::ActiveDefer => f.write_str("ACTIVE_DEFER"),
            Self::Unknown(raw) => write!(f, "state {raw}"),
        }
    }
}

/// What carries a port's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkLayer {
    /// Not said; means InfiniBand.
    Unspecified,
    /// InfiniBand.
    InfiniBand,
    /// Ethernet: RoCE or iWARP.
    Ethernet,
    /// A number that this crate does not know.
    Unknown(u8),
}

/// A port's state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "ibv_port_attr")]
pub struct PortAttr {
    /// Logical state.
    pub state: PortState,
    /// Largest MTU that the port can do; `None` for a code that this crate does not know.
    pub max_mtu: Option<Mtu>,
    /// Largest MTU that it does now.
    pub active_mtu: Option<Mtu>,
    /// Entries of the GID table, empty ones included.
    pub gid_tbl_len: u32,
    /// Capabilities (`IB_UVERBS_PCF_*`).
    pub port_cap_flags: u32,
    /// More capabilities.
    pub port_cap_flags2: u16,
    /// Bytes of the longest message.
    pub max_msg_sz: u32,
    /// Packets with a wrong P_Key.
    pub bad_pkey_cntr: u32,
    /// Packets with a wrong Q_Key.
    pub qkey_viol_cntr: u32,
    /// Entries of the P_Key table.
    pub pkey_tbl_len: u16,
    /// The port's local id (InfiniBand).
    pub lid: u16,
    /// The subnet manager's local id.
    pub sm_lid: u16,
    /// Bits of the local id that do not count.
    pub lmc: u8,
    /// Virtual lanes, as a code.
    pub max_vl_num: u8,
    /// The subnet manager's service level.
    pub sm_sl: u8,
    /// Subnet propagation delay: 4.096 µs × 2 to this power.
    pub subnet_timeout: u8,
    /// What the subnet manager answered to the initialisation type.
    pub init_type_reply: u8,
    /// Width of the link, as a code.
    pub active_width: u8,
    /// Speed of a lane, as a code; 16 bits on kernels that have them (6.12).
    pub active_speed: u32,
    /// Physical state, as a code.
    pub phys_state: u8,
    /// What carries the packets.
    pub link_layer: LinkLayer,
    /// Whether every packet needs a global routing header.
    pub grh_required: bool,
}

impl From<ib_uverbs_query_port_resp_ex> for PortAttr {
    fn from(response: ib_uverbs_query_port_resp_ex) -> Self {
        let base = response.legacy_resp;
        Self {
            state: match base.state {
                raw::IB_PORT_NOP => PortState::Nop,
                raw::IB_PORT_DOWN => PortState::Down,
                raw::IB_PORT_INIT => PortState::Init,
                raw::IB_PORT_ARMED => PortState::Armed,
                raw::IB_PORT_ACTIVE => PortState::Active,
                raw::IB_PORT_ACTIVE_DEFER => PortState::ActiveDefer,
                other => PortState::Unknown(other),
            },
            max_mtu: Mtu::from_raw(base.max_mtu),
            active_mtu: Mtu::from_raw(base.active_mtu),
            gid_tbl_len: base.gid_tbl_len,
            port_cap_flags: base.port_cap_flags,
            port_cap_flags2: response.port_cap_flags2,
            max_msg_sz: base.max_msg_sz,
            bad_pkey_cntr: base.bad_pkey_cntr,
            qkey_viol_cntr: base.qkey_viol_cntr,
            pkey_tbl_len: base.pkey_tbl_len,
            lid: base.lid,
            sm_lid: base.sm_lid,
            lmc: base.lmc,
            max_vl_num: base.max_vl_num,
            sm_sl: base.sm_sl,
            subnet_timeout: base.subnet_timeout,
            init_type_reply: base.init_type_reply,
            active_width: base.active_width,
            active_speed: match response.active_speed_ex {
                0 => u32::from(base.active_speed),
                speed => speed,
            },
            phys_state: base.phys_state,
            link_layer: match base.link_layer {
                raw::IB_LINK_LAYER_UNSPECIFIED => LinkLayer::Unspecified,
                raw::IB_LINK_LAYER_INFINIBAND => LinkLayer::InfiniBand,
                raw::IB_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
                other => LinkLayer::Unknown(other),
            },
            grh_required: base.flags & raw::IB_UVERBS_QPF_GRH_REQUIRED != 0,
        }
    }
}

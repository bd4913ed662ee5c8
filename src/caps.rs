//! Capabilities of a device that come in groups.
//!
//! Ground truth: the tail of `struct ib_uverbs_ex_query_device_resp`; `ibv_query_device_ex(3)`.
//! Fields that a kernel does not know are zero.

use uverbs_abi::layout::cmd::{
    ib_uverbs_cq_moderation_caps, ib_uverbs_ex_query_device_resp, ib_uverbs_rss_caps,
    ib_uverbs_tm_caps,
};

/// What a device can do on memory that is not pinned (on-demand paging).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "ibv_odp_caps")]
pub struct OdpCaps {
    /// `IB_UVERBS_ODP_SUPPORT*`.
    pub general: u64,
    /// Operations over RC: `IB_UVERBS_ODP_SUPPORT_*`.
    pub rc: u32,
    /// Over UC.
    pub uc: u32,
    /// Over UD.
    pub ud: u32,
    /// Over XRC.
    pub xrc: u32,
}

/// Spreading received packets over queues (RSS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "ibv_rss_caps")]
pub struct RssCaps {
    /// Types of queue pair that can use it, as bits.
    pub supported_qpts: u32,
    /// Indirection tables.
    pub max_rwq_indirection_tables: u32,
    /// Entries of one table.
    pub max_rwq_indirection_table_size: u32,
}

/// Matching of messages by tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "ibv_tm_caps")]
pub struct TagMatchingCaps {
    /// Bytes of a rendezvous request's header.
    pub max_rndv_hdr_size: u32,
    /// Tags that a list holds; 0 where the device matches none.
    pub max_num_tags: u32,
    /// `IB_UVERBS_TM_CAP_*`.
    pub flags: u32,
    /// List operations under way.
    pub max_ops: u32,
    /// Scatter/gather elements of a tagged buffer.
    pub max_sge: u32,
}

/// Holding completion events back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "ibv_cq_moderation_caps")]
pub struct CqModerationCaps {
    /// Completions that an event may wait for; 0 where it waits for none.
    pub max_count: u16,
    /// Microseconds that it may wait.
    pub max_period_us: u16,
}

impl From<&ib_uverbs_ex_query_device_resp> for OdpCaps {
    fn from(response: &ib_uverbs_ex_query_device_resp) -> Self {
        let caps = &response.odp_caps;
        Self {
            general: caps.general_caps,
            rc: caps.per_transport_caps.rc_odp_caps,
            uc: caps.per_transport_caps.uc_odp_caps,
            ud: caps.per_transport_caps.ud_odp_caps,
            xrc: response.xrc_odp_caps,
        }
    }
}

impl From<&ib_uverbs_rss_caps> for RssCaps {
    fn from(caps: &ib_uverbs_rss_caps) -> Self {
        Self {
            supported_qpts: caps.supported_qpts,
            max_rwq_indirection_tables: caps.max_rwq_indirection_tables,
            max_rwq_indirection_table_size: caps.max_rwq_indirection_table_size,
        }
    }
}

impl From<&ib_uverbs_tm_caps> for TagMatchingCaps {
    fn from(caps: &ib_uverbs_tm_caps) -> Self {
        Self {
            max_rndv_hdr_size: caps.max_rndv_hdr_size,
            max_num_tags: caps.max_num_tags,
            flags: caps.flags,
            max_ops: caps.max_ops,
            max_sge: caps.max_sge,
        }
    }
}

impl From<&ib_uverbs_cq_moderation_caps> for CqModerationCaps {
    fn from(caps: &ib_uverbs_cq_moderation_caps) -> Self {
        Self {
            max_count: caps.max_cq_moderation_count,
            max_period_us: caps.max_cq_moderation_period,
        }
    }
}

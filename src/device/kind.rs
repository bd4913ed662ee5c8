//! Two small vocabularies of discovery: kinds of nodes, and of network namespaces.
//!
//! Ground truth: `rdma/rdma_netlink.h`; `Documentation/ABI/stable/sysfs-class-infiniband`.

use std::fmt;

use uverbs_abi::layout::netlink as raw;

/// What kind of adapter a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "ibv_node_type")]
pub enum NodeType {
    /// An InfiniBand or RoCE channel adapter; rxe is one.
    #[doc(alias = "IBV_NODE_CA")]
    Ca,
    /// An InfiniBand switch.
    #[doc(alias = "IBV_NODE_SWITCH")]
    Switch,
    /// An InfiniBand router.
    #[doc(alias = "IBV_NODE_ROUTER")]
    Router,
    /// An iWARP adapter; siw is one.
    #[doc(alias = "IBV_NODE_RNIC")]
    Rnic,
    /// Cisco usNIC.
    #[doc(alias = "IBV_NODE_USNIC")]
    Usnic,
    /// Cisco usNIC over UDP.
    #[doc(alias = "IBV_NODE_USNIC_UDP")]
    UsnicUdp,
    /// None of the others, as the driver says; EFA is one.
    #[doc(alias = "IBV_NODE_UNSPECIFIED")]
    Unspecified,
    /// A number this crate has no name for.
    Unknown(u8),
}

impl NodeType {
    /// The kind with the kernel's number `raw`.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Self {
        match raw {
            raw::RDMA_NODE_IB_CA => Self::Ca,
            raw::RDMA_NODE_IB_SWITCH => Self::Switch,
            raw::RDMA_NODE_IB_ROUTER => Self::Router,
            raw::RDMA_NODE_RNIC => Self::Rnic,
            raw::RDMA_NODE_USNIC => Self::Usnic,
            raw::RDMA_NODE_USNIC_UDP => Self::UsnicUdp,
            raw::RDMA_NODE_UNSPECIFIED => Self::Unspecified,
            other => Self::Unknown(other),
        }
    }

    /// The kernel's number.
    #[must_use]
    pub const fn to_raw(self) -> u8 {
        match self {
            Self::Ca => raw::RDMA_NODE_IB_CA,
            Self::Switch => raw::RDMA_NODE_IB_SWITCH,
            Self::Router => raw::RDMA_NODE_IB_ROUTER,
            Self::Rnic => raw::RDMA_NODE_RNIC,
            Self::Usnic => raw::RDMA_NODE_USNIC,
            Self::UsnicUdp => raw::RDMA_NODE_USNIC_UDP,
            Self::Unspecified => raw::RDMA_NODE_UNSPECIFIED,
            Self::Unknown(other) => other,
        }
    }
}

/// As sysfs has it, without the number.
impl fmt::Display for NodeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ca => f.write_str("CA"),
            Self::Switch => f.write_str("switch"),
            Self::Router => f.write_str("router"),
            Self::Rnic => f.write_str("RNIC"),
            Self::Usnic => f.write_str("usNIC"),
            Self::UsnicUdp => f.write_str("usNIC UDP"),
            Self::Unspecified => f.write_str("unspecified"),
            Self::Unknown(number) => write!(f, "node type {number}"),
        }
    }
}

/// Whether network namespaces share RDMA devices: `rdma system show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NetnsMode {
    /// Each namespace sees every device.
    Shared,
    /// A device belongs to one namespace; elsewhere it is not listed and cannot be opened.
    Exclusive,
}

impl NetnsMode {
    pub(super) const fn from_shared(is_shared: bool) -> Self {
        if is_shared {
            Self::Shared
        } else {
            Self::Exclusive
        }
    }
}

#[cfg(test)]
mod tests {
    use super::NodeType;

    #[test]
    fn every_number_comes_back() {
        for raw in 0..=u8::MAX {
            let kind = NodeType::from_raw(raw);
            assert_eq!(kind.to_raw(), raw);
            let is_named = !matches!(kind, NodeType::Unknown(_));
            assert_eq!(is_named, (1..=7).contains(&raw));
        }
        assert_eq!(NodeType::Ca.to_string(), "CA");
        assert_eq!(NodeType::Unknown(9).to_string(), "node type 9");
    }
}

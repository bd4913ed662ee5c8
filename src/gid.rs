//! Global identifiers: addresses of ports.
//!
//! Ground truth: InfiniBand specification § 4.1.1; annex A17 for RoCE v2, where a GID is an IPv6
//! address or an IPv4 address in its mapped form.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use uverbs_abi::layout::verbs as raw;

/// A global identifier: 16 bytes, in network order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[doc(alias = "ibv_gid")]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The address that it is on a RoCE v2 port; a mapped IPv4 address comes out as IPv4.
    #[must_use]
    pub fn to_ip(self) -> IpAddr {
        let address = Ipv6Addr::from(self.0);
        match address.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(address),
        }
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }

    /// Whether it is an `fe80::` address, which no router passes on.
    #[must_use]
    pub fn is_link_local(self) -> bool {
        matches!(self.0, [0xfe, second, ..] if second & 0xc0 == 0x80)
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(address: Ipv4Addr) -> Self {
        Self(address.to_ipv6_mapped().octets())
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

/// What kind of address a GID is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GidType {
    /// InfiniBand.
    Ib,
    /// RoCE v1: Ethernet frames of their own, not routed.
    RoceV1,
    /// RoCE v2: UDP over IP.
    RoceV2,
    /// A number that this crate does not know.
    Unknown(u32),
}

impl GidType {
    pub(crate) const fn from_raw(value: u32) -> Self {
        match value {
            raw::IB_UVERBS_GID_TYPE_IB => Self::Ib,
            raw::IB_UVERBS_GID_TYPE_ROCE_V1 => Self::RoceV1,
            raw::IB_UVERBS_GID_TYPE_ROCE_V2 => Self::RoceV2,
            other => Self::Unknown(other),
        }
    }
}

impl fmt::Display for GidType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ib => f.write_str("IB"),
            Self::RoceV1 => f.write_str("RoCE v1"),
            Self::RoceV2 => f.write_str("RoCE v2"),
            Self::Unknown(raw) => write!(f, "type {raw}"),
        }
    }
}

/// One entry of a port's GID table. Entries move when addresses come and go: keep the GID, and look
/// its index up when connecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_gid_entry")]
pub struct GidEntry {
    /// The address.
    pub gid: Gid,
    /// Its place in the table.
    pub index: u32,
    /// The port, counted from 1.
    pub port: u32,
    /// Its kind.
    pub gid_type: GidType,
    /// The network interface behind it (`if_nametoindex(3)`), 0 where there is none.
    pub netdev_ifindex: u32,
}

impl GidEntry {
    /// How well it suits for reaching a peer: higher is better. RoCE v1 beside v2 comes last, since
    /// it connects and then carries nothing between networks; link-local comes after global.
    pub(crate) fn rank(&self) -> u8 {
        let kind = match self.gid_type {
            GidType::RoceV2 | GidType::Ib => 2,
            GidType::RoceV1 | GidType::Unknown(_) => 0,
        };
        kind + u8::from(!self.gid.is_link_local())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_ipv4_goes_both_ways() {
        let gid = Gid::from(Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(gid.to_string(), "::ffff:10.0.0.1");
        assert_eq!(gid.to_ip(), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
        assert!(!gid.is_link_local() && !gid.is_zero());
    }

    #[test]
    fn a_global_v2_entry_beats_a_v1_twin_and_a_link_local_one() {
        let entry = |gid: Ipv6Addr, gid_type| GidEntry {
            gid: gid.into(),
            index: 0,
            port: 1,
            gid_type,
            netdev_ifindex: 0,
        };
        let local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
        let global = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
        let best = entry(global, GidType::RoceV2).rank();
        assert!(best > entry(local, GidType::RoceV2).rank());
        assert!(entry(local, GidType::RoceV2).rank() > entry(global, GidType::RoceV1).rank());
    }
}

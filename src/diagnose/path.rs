//! What stands between a queue pair and its peer: port, own address, route, neighbour, MTU, and the
//! values that were asked for.
//!
//! Ground truth: the device's own answers; `net` for the rest. The kernel tells the cases apart by
//! number only (`ENETUNREACH`, `EHOSTUNREACH`, `ETIMEDOUT`, `ENODEV`, `ENODATA`, `EINVAL`), and
//! `EINVAL` is one number for all that can be wrong with a value.

use std::fmt;
use std::net::IpAddr;

use uverbs_abi::Errno;
use uverbs_providers::types::Mtu;

use super::net::{self, Way};
use crate::attr::{LinkLayer, PortState};
use crate::context::Context;
use crate::gid::{Gid, GidEntry, GidType};
use crate::qp::{GlobalRoute, QpAttr, QpInfo};

/// Something that stands in the way of a queue pair's path, or may: looked up after a failure.
/// Prints as a clause.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathFinding {
    /// Where the path goes; no trouble in itself.
    Between {
        /// The own entry.
        own: GidEntry,
        /// The peer's address.
        peer: Gid,
    },
    /// The device has no such port.
    NoPort {
        /// The port asked for.
        port: u8,
        /// How many there are.
        ports: u8,
    },
    /// The path is to leave by another port than the queue pair's.
    OtherPort {
        /// The path's port.
        path: u8,
        /// The queue pair's.
        own: u8,
    },
    /// The port does not carry data.
    PortState {
        /// The port.
        port: u8,
        /// Its state.
        state: PortState,
    },
    /// The port wants a global part, and the path has none.
    NeedsGlobal {
        /// The port.
        port: u8,
    },
    /// The port's GID table is shorter.
    NoGidIndex {
        /// The port.
        port: u8,
        /// The index asked for.
        index: u8,
        /// Entries of the table.
        entries: u32,
    },
    /// The entry of the GID table is empty.
    EmptyGid {
        /// The port.
        port: u8,
        /// The index asked for.
        index: u8,
        /// Those entries that are filled.
        filled: Vec<GidEntry>,
    },
    /// An IPv4 address at one end and an IPv6 address at the other.
    Family {
        /// The own entry.
        own: GidEntry,
        /// The peer's address.
        peer: Gid,
    },
    /// A link-local address at one end only.
    Scope {
        /// The own entry.
        own: GidEntry,
        /// The peer's address.
        peer: Gid,
    },
    /// RoCE v1, which no router passes on and a peer on RoCE v2 does not hear.
    RoceV1 {
        /// The own entry.
        own: GidEntry,
    },
    /// The network interface behind the own address is not in this network namespace.
    NoInterface {
        /// The own entry.
        own: GidEntry,
    },
    /// The network interface behind the own address is not set up, or nothing is plugged in.
    InterfaceDown {
        /// Its name.
        name: String,
        /// Whether it is set up at all.
        is_up: bool,
    },
    /// The own address is on no interface of this network namespace.
    OwnAddressGone {
        /// The address.
        own: IpAddr,
    },
    /// The kernel has no route.
    NoRoute {
        /// From the own address.
        own: IpAddr,
        /// To the peer's.
        peer: IpAddr,
        /// What a socket is told that is to go there.
        errno: Errno,
    },
    /// The route to the peer's address ends in this machine, and none of its interfaces has the address.
    EndsHere {
        /// The peer's address.
        peer: IpAddr,
    },
    /// The peer's address was asked for on the network, and nobody answered.
    NoNeighbour {
        /// The peer's address.
        peer: IpAddr,
        /// Where it was asked for.
        interface: String,
    },
    /// The path MTU is above what the port does now.
    Mtu {
        /// Asked for.
        asked: Mtu,
        /// The port's.
        active: Mtu,
        /// The port.
        port: u8,
    },
    /// A value above what the device, or the field, has room for.
    Above {
        /// Which attribute.
        name: &'static str,
        /// Asked for.
        asked: u32,
        /// The most there is.
        most: u32,
    },
}

impl fmt::Display for PathFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Between { own, peer } => write!(
                f,
                "the path goes from GID index {}, {} ({}), to {peer}",
                own.index, own.gid, own.gid_type
            ),
            Self::NoPort { port, ports } => {
                write!(f, "there is no port {port}: the device has ")?;
                match ports {
                    1 => f.write_str("port 1 only"),
                    _ => write!(f, "ports 1 to {ports}"),
                }
            }
            Self::OtherPort { path, own } => {
                write!(
                    f,
                    "the path names port {path}, the queue pair is on port {own}"
                )
            }
            Self::PortState { port, state } => write!(f, "port {port} is {state}, not ACTIVE"),
            Self::NeedsGlobal { port } => {
                write!(
                    f,
                    "port {port} needs a global part in the path: GID and index"
                )
            }
            Self::NoGidIndex {
                port,
                index,
                entries,
            } => write!(
                f,
                "there is no GID index {index}: the table of port {port} has {entries} entries"
            ),
            Self::EmptyGid {
                port,
                index,
                filled,
            } => {
                write!(f, "GID index {index} of port {port} is empty")?;
                let mut lead = "; filled are ";
                for entry in filled {
                    write!(
                        f,
                        "{lead}{}: {} ({})",
                        entry.index, entry.gid, entry.gid_type
                    )?;
                    lead = ", ";
                }
                Ok(())
            }
            Self::Family { own, peer } => write!(
                f,
                "the own GID, index {}, is {} ({}) and the peer's is {peer} ({}): both must be IPv4 \
                 or both IPv6",
                own.index,
                own.gid,
                family(own.gid),
                family(*peer),
            ),
            Self::Scope { own, peer } => write!(
                f,
                "of the own GID {} (index {}) and the peer's {peer} one is link-local and the \
                 other is not",
                own.gid, own.index
            ),
            Self::RoceV1 { own } => write!(
                f,
                "the own GID {} (index {}) is of type RoCE v1: no router passes it on",
                own.gid, own.index
            ),
            Self::NoInterface { own } => write!(
                f,
                "the own GID {} (index {}) belongs to interface number {}, which is not in this \
                 network namespace",
                own.gid, own.index, own.netdev_ifindex
            ),
            Self::InterfaceDown { name, is_up: false } => {
                write!(f, "the network interface {name} is down")
            }
            Self::InterfaceDown { name, is_up: true } => {
                write!(f, "the network interface {name} has no carrier")
            }
            Self::OwnAddressGone { own } => {
                write!(f, "the own address {own} is on no interface here")
            }
            Self::NoRoute { own, peer, errno } => {
                write!(f, "no route leads from {own} to {peer} ({errno})")
            }
            Self::EndsHere { peer } => write!(
                f,
                "the route to {peer} ends in this machine, and no interface here has that address"
            ),
            Self::NoNeighbour { peer, interface } => {
                write!(f, "nobody on {interface} answers for {peer}")
            }
            Self::Mtu {
                asked,
                active,
                port,
            } => write!(
                f,
                "the path MTU {asked} is above the {active} that port {port} does now"
            ),
            Self::Above { name, asked, most } => {
                write!(f, "{name} {asked} is above {most}, the most there is")
            }
        }
    }
}

impl PathFinding {
    /// Whether it stands in the way, rather than telling where the way goes.
    #[must_use]
    pub const fn is_trouble(&self) -> bool {
        !matches!(self, Self::Between { .. })
    }

    /// What to do about it, where that can be said.
    pub(crate) fn next(&self) -> Option<String> {
        match self {
            Self::NoPort { ports: 1, .. } => Some("ports count from 1: name port 1".into()),
            Self::NoPort { ports, .. } => {
                Some(format!("ports count from 1: name one of 1 to {ports}"))
            }
            Self::OtherPort { own, .. } => Some(format!("name port {own} in the path as well")),
            Self::PortState { port, .. } => Some(format!(
                "bring port {port} up: the interface behind it, cable and switch, or on InfiniBand \
                 the subnet manager"
            )),
            Self::InterfaceDown { name, is_up: false } => Some(format!("`ip link set {name} up`")),
            Self::InterfaceDown { .. } => Some("look at cable and switch".into()),
            Self::NeedsGlobal { .. } => Some("set `AddressVector::global`".into()),
            Self::NoGidIndex { .. } | Self::EmptyGid { .. } => {
                Some("look the index up when connecting: `Context::find_gid`".into())
            }
            Self::Family { .. } | Self::Scope { .. } => Some(
                "take the own GID that is of the peer's kind: `Context::gids` lists them".into(),
            ),
            Self::Mtu { active, .. } => Some(format!(
                "ask for a path_mtu of {active} or less: both ports must do it"
            )),
            Self::Above {
                name: "pkey_index", ..
            } => {
                Some("`Context::pkeys` lists the port's P_Keys; their indices count from 0".into())
            }
            Self::Above { name, most, .. } => Some(format!("ask for a {name} of {most} or less")),
            Self::Between { .. }
            | Self::RoceV1 { .. }
            | Self::NoInterface { .. }
            | Self::OwnAddressGone { .. }
            | Self::NoRoute { .. }
            | Self::EndsHere { .. }
            | Self::NoNeighbour { .. } => None,
        }
    }
}

const fn family(gid: Gid) -> &'static str {
    match gid.0 {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..] => "IPv4",
        _ => "IPv6",
    }
}

/// Looks at everything that the attributes name, from the nearest to the farthest. `info` is the
/// queue pair as it is.
pub(crate) fn look(context: &Context, attr: &QpAttr, info: Option<&QpInfo>) -> Vec<PathFinding> {
    let mut found = Vec::new();
    // Of the queue pair 0 is no port yet; of who asked for it, it is one that is not there.
    let known = info.map(|info| info.port).filter(|port| *port != 0);
    let own_port = attr.port.or(known);
    let Some(port) = attr.path.map(|path| path.port).or(own_port) else {
        return found;
    };
    let device = context.query_device().ok();
    let attr_of_port = match context.query_port(port) {
        Ok(state) => Some(state),
        Err(_) => {
            if let Some(ports) = device.as_ref().map(|device| device.phys_port_cnt)
                && (port == 0 || port > ports)
            {
                found.push(PathFinding::NoPort { port, ports });
                return found;
            }
            None
        }
    };
    if let (Some(path), Some(own)) = (attr.path.map(|path| path.port), own_port)
        && path != own
    {
        found.push(PathFinding::OtherPort { path, own });
    }
    if let Some(state) = &attr_of_port {
        if state.state != PortState::Active {
            let state = state.state;
            found.push(PathFinding::PortState { port, state });
        }
        if let Some(path) = attr.path {
            match path.global {
                Some(global) => address(context, port, state.gid_tbl_len, &global, &mut found),
                None if state.link_layer == LinkLayer::Ethernet || state.grh_required => {
                    found.push(PathFinding::NeedsGlobal { port });
                }
                None => {}
            }
        }
        if let (Some(asked), Some(active)) = (attr.path_mtu, state.active_mtu)
            && asked > active
        {
            found.push(PathFinding::Mtu {
                asked,
                active,
                port,
            });
        }
        if let Some(asked) = attr.pkey_index
            && asked >= state.pkey_tbl_len
        {
            found.push(PathFinding::Above {
                name: "pkey_index",
                asked: u32::from(asked),
                most: u32::from(state.pkey_tbl_len.saturating_sub(1)),
            });
        }
    }
    let reads = device.map(|device| (device.max_qp_init_rd_atom, device.max_qp_rd_atom));
    let values = [
        (
            "max_rd_atomic",
            attr.max_rd_atomic,
            reads.map(|(most, _)| most),
        ),
        (
            "max_dest_rd_atomic",
            attr.max_dest_rd_atomic,
            reads.map(|(_, most)| most),
        ),
        ("retry_count", attr.retry_count, Some(7)),
        ("rnr_retry", attr.rnr_retry, Some(7)),
    ];
    for (name, asked, most) in values {
        if let (Some(asked), Some(most)) = (asked.map(u32::from), most)
            && asked > most
        {
            found.push(PathFinding::Above { name, asked, most });
        }
    }
    found
}

/// The own address, and the way from it to the peer's.
fn address(
    context: &Context,
    port: u8,
    entries: u32,
    global: &GlobalRoute,
    found: &mut Vec<PathFinding>,
) {
    let index = global.sgid_index;
    if u32::from(index) >= entries {
        found.push(PathFinding::NoGidIndex {
            port,
            index,
            entries,
        });
        return;
    }
    let own = match context.query_gid(port, u32::from(index)) {
        Ok(Some(own)) => own,
        Ok(None) => {
            if let Ok(filled) = context.gids(port) {
                found.push(PathFinding::EmptyGid {
                    port,
                    index,
                    filled,
                });
            }
            return;
        }
        Err(_) => return,
    };
    let peer = global.dgid;
    found.push(PathFinding::Between { own, peer });
    let (from, to) = (own.gid.to_ip(), peer.to_ip());
    if own.gid_type == GidType::Ib {
        return;
    }
    if context.is_from_node() && own.netdev_ifindex != 0 {
        interface(&own, found);
    }
    if own.gid_type == GidType::RoceV1 {
        found.push(PathFinding::RoceV1 { own });
        return;
    }
    if from.is_ipv4() != to.is_ipv4() {
        found.push(PathFinding::Family { own, peer });
        return;
    }
    if own.gid.is_link_local() != peer.is_link_local() {
        found.push(PathFinding::Scope { own, peer });
    }
    if !context.is_from_node() {
        return;
    }
    match net::way(from, to, own.netdev_ifindex) {
        Some(Way::NotHere) => found.push(PathFinding::OwnAddressGone { own: from }),
        Some(Way::Refused(errno)) => found.push(PathFinding::NoRoute {
            own: from,
            peer: to,
            errno,
        }),
        Some(Way::Open) | None => {}
    }
    if let IpAddr::V6(v6) = to
        && net::ends_here(v6) == Some(true)
    {
        found.push(PathFinding::EndsHere { peer: to });
    }
    if let IpAddr::V4(v4) = to
        && let Some(interface) = net::unanswered(v4)
    {
        found.push(PathFinding::NoNeighbour {
            peer: to,
            interface,
        });
    }
}

fn interface(own: &GidEntry, found: &mut Vec<PathFinding>) {
    match net::interface(own.netdev_ifindex) {
        Ok(None) => found.push(PathFinding::NoInterface { own: *own }),
        Ok(Some(interface)) if !interface.is_up || interface.carrier == Some(false) => {
            found.push(PathFinding::InterfaceDown {
                name: interface.name,
                is_up: interface.is_up,
            });
        }
        Ok(Some(_)) | Err(_) => {}
    }
}

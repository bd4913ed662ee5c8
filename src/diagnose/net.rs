//! The machine's network, as far as it can be asked without rights: interfaces in sysfs, routes by
//! connecting a datagram socket (which sends nothing), neighbours and what ends here in
//! `/proc/thread-self/net`.
//!
//! Ground truth: `Documentation/ABI/testing/sysfs-class-net`, `connect(2)`, `udp(7)`, `arp(7)`,
//! `proc_pid_net(5)`; the kernel's `net/ipv6/route.c` for the columns of its table.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use uverbs_abi::Errno;

/// The UDP port of RoCE v2. Nothing is sent to it.
const ROCE_V2: u16 = 4791;

/// A network interface.
pub(super) struct Interface {
    pub(super) name: String,
    /// Whether it is set up.
    pub(super) is_up: bool,
    /// Whether something is at the other end; `None` if it does not say.
    pub(super) carrier: Option<bool>,
}

/// The interface with this number; `Ok(None)` if there surely is none in this namespace.
pub(super) fn interface(ifindex: u32) -> io::Result<Option<Interface>> {
    for entry in fs::read_dir("/sys/class/net")? {
        let dir = entry?.path();
        let read = |file: &str| fs::read_to_string(dir.join(file)).ok();
        let number = read("ifindex").and_then(|text| text.trim().parse().ok());
        if number != Some(ifindex) {
            continue;
        }
        let flags = read("flags")
            .and_then(|text| u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok())
            .ok_or(io::ErrorKind::InvalidData)?;
        const IFF_UP: u32 = 1;
        return Ok(Some(Interface {
            name: dir
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default()
                .to_owned(),
            is_up: flags & IFF_UP != 0,
            carrier: read("carrier").map(|text| text.trim() == "1"),
        }));
    }
    Ok(None)
}

/// What the kernel says to going from one address to another.
pub(super) enum Way {
    /// There is a route.
    Open,
    /// The own address is none of this network namespace.
    NotHere,
    /// The kernel refuses, with this number.
    Refused(Errno),
}

/// Asks for the route; `None` if it could not be asked.
pub(super) fn way(own: IpAddr, peer: IpAddr, ifindex: u32) -> Option<Way> {
    let at = |address: IpAddr, port| match address {
        // A link-local address means nothing without its interface.
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddr::V6(SocketAddrV6::new(v6, port, 0, ifindex))
        }
        other => SocketAddr::new(other, port),
    };
    let socket = match UdpSocket::bind(at(own, 0)) {
        Ok(socket) => socket,
        Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => {
            return Some(Way::NotHere);
        }
        Err(_) => return None,
    };
    match socket.connect(at(peer, ROCE_V2)) {
        Ok(()) => Some(Way::Open),
        Err(error) => error
            .raw_os_error()
            .map(|errno| Way::Refused(Errno::from_raw(errno))),
    }
}

/// The interface on which the kernel has asked for a neighbour and got no answer.
pub(super) fn unanswered(peer: Ipv4Addr) -> Option<String> {
    // `/proc/net` is the namespace of the process's first thread.
    unanswered_in(&fs::read_to_string("/proc/thread-self/net/arp").ok()?, peer)
}

/// Columns: address, hardware type, flags, hardware address, mask, device. Flags of 0 are an entry
/// without a hardware address.
fn unanswered_in(table: &str, peer: Ipv4Addr) -> Option<String> {
    let mut found = None;
    for line in table.lines().skip(1) {
        let mut words = line.split_whitespace();
        let address = words.next().and_then(|word| word.parse().ok());
        if address != Some(peer) {
            continue;
        }
        match (words.nth(1), words.nth(2)) {
            (Some("0x0"), Some(device)) => found = Some(device.to_owned()),
            // Somebody answered, on this interface or another.
            _ => return None,
        }
    }
    found
}

/// Whether the kernel takes what is sent to an address for its own although no interface has it;
/// `None` if the tables cannot be read.
pub(super) fn ends_here(peer: Ipv6Addr) -> Option<bool> {
    let routes = fs::read_to_string("/proc/thread-self/net/ipv6_route").ok()?;
    let addresses = fs::read_to_string("/proc/thread-self/net/if_inet6").ok()?;
    Some(is_taken(&routes, peer) && !has_address(&addresses, peer))
}

/// Columns, numbers in hexadecimal: destination, its prefix, source, its prefix, gateway, metric,
/// references, uses, flags, device. The longest prefix counts.
fn is_taken(routes: &str, peer: Ipv6Addr) -> bool {
    const RTF_LOCAL: u32 = 0x8000_0000;
    let peer = u128::from(peer);
    let hit = |line: &str| {
        let mut words = line.split_whitespace();
        let to = u128::from_str_radix(words.next()?, 16).ok()?;
        let prefix = u32::from_str_radix(words.next()?, 16).ok()?;
        let flags = u32::from_str_radix(words.nth(6)?, 16).ok()?;
        let differs = (to ^ peer).leading_zeros() < prefix;
        (!differs).then_some((prefix, flags & RTF_LOCAL != 0))
    };
    let longest = routes
        .lines()
        .filter_map(hit)
        .max_by_key(|(prefix, _)| *prefix);
    longest.is_some_and(|(_, is_local)| is_local)
}

/// The first column is the address.
fn has_address(table: &str, address: Ipv6Addr) -> bool {
    let wanted = u128::from(address);
    table.lines().any(|line| {
        let first = line.split_whitespace().next().unwrap_or_default();
        u128::from_str_radix(first, 16) == Ok(wanted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_without_an_address_has_not_answered() {
        let table = "IP address HW type Flags HW address Mask Device\n\
                     10.0.0.9 0x1 0x0 00:00:00:00:00:00 * veth0\n\
                     10.0.0.2 0x1 0x2 02:00:00:00:00:02 * veth0\n\
                     nonsense\n\
                     10.0.0.8 0x1\n";
        let of = |last| unanswered_in(table, Ipv4Addr::new(10, 0, 0, last));
        assert_eq!(of(9).as_deref(), Some("veth0"));
        assert_eq!((of(2), of(8), of(7)), (None, None, None));
        assert_eq!(unanswered_in("", Ipv4Addr::LOCALHOST), None);
    }

    #[test]
    fn a_route_that_ends_here_is_told_from_an_address() {
        let none = "0".repeat(32);
        let line = |to: &str, prefix: &str, flags: &str, device: &str| {
            format!("{to} {prefix} {none} 00 {none} 00000400 00000001 00000000 {flags} {device}\n")
        };
        let net = "fd550000000000000000000000000000";
        let one = "fd550000000000000000000000000007";
        let routes = line(&none, "00", "00000001", "eth0")
            + &line(net, "20", "80000001", "lo")
            + &line(one, "80", "00000001", "eth0")
            + "nonsense\n";
        let peer = |text: &str| text.parse::<Ipv6Addr>().unwrap();
        assert!(is_taken(&routes, peer("fd55::5")));
        // The longer prefix, another network, no table.
        assert!(!is_taken(&routes, peer("fd55::7")));
        assert!(!is_taken(&routes, peer("fd56::5")));
        assert!(!is_taken("", peer("fd55::5")));
        let table = "fd550000000000000000000000000005 02 40 00 80    veth0\n";
        assert!(has_address(table, peer("fd55::5")) && !has_address(table, peer("fd55::6")));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the machine's network")]
    fn an_address_of_nobody_here_is_not_here() {
        // TEST-NET-3: no machine has it.
        let own = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 200));
        let way = way(own, IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        assert!(matches!(way, Some(Way::NotHere)));
    }
}

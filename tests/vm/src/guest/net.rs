//! The wire: one veth pair, its addresses, and the rules that keep traffic off the loopback.
//!
//! Both ends live in one namespace, since rxe on 6.1 and 6.12 lives only in the first. Left alone,
//! the kernel would deliver what `10.0.0.1` sends to `10.0.0.2` by itself. So the table of local
//! addresses is asked last, and before it a rule per direction sends the packets out by the veth.
//! Ground truth: `linux/rtnetlink.h`, `linux/fib_rules.h`, `linux/if_link.h`.
//!
//! Must never leave the wire half made: [`ensure_wire`] may be called again at any time.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use super::netlink::{ACK, CREATE, DUMP, EXCL, Message, REPLACE, Socket, attributes};

/// The two ends of the wire: name, MAC, IPv4 address, IPv6 address.
pub const ENDS: [End; 2] = [
    End {
        netdev: "veth0",
        mac: [2, 0, 0, 0, 0, 1],
        v4: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        v6: IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
    },
    End {
        netdev: "veth1",
        mac: [2, 0, 0, 0, 0, 2],
        v4: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
        v6: IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)),
    },
];

/// One end of the wire.
#[derive(Debug, Clone, Copy)]
pub struct End {
    /// Name of the network device.
    pub netdev: &'static str,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its IPv4 address, of a /24.
    pub v4: IpAddr,
    /// Its IPv6 address, of a /64.
    pub v6: IpAddr,
}

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;

const IFLA_MTU: u16 = 4;
const IFF_UP: u32 = 1;
const IFA_F_NODAD: u8 = 2;
const TABLE_LOCAL: u32 = 255;

fn with_context(what: &str) -> impl FnOnce(io::Error) -> io::Error + '_ {
    move |e| io::Error::new(e.kind(), format!("{what}: {e}"))
}

fn route_socket() -> io::Result<Socket> {
    Socket::open(SockProtocol::NetlinkRoute)
}

fn ask(message: Message, what: &str) -> io::Result<()> {
    route_socket()?
        .ask(message)
        .map(drop)
        .map_err(with_context(what))
}

/// Like [`ask`], but what is there already is no error.
fn ask_or_there(message: Message, what: &str) -> io::Result<()> {
    match route_socket()?.ask(message) {
        Ok(_) => Ok(()),
        Err(e) if e.raw_os_error() == Some(Errno::EEXIST as i32) => Ok(()),
        Err(e) => Err(with_context(what)(e)),
    }
}

/// The interface's number.
pub fn index(netdev: &str) -> io::Result<u32> {
    let text = fs::read_to_string(format!("/sys/class/net/{netdev}/ifindex"))
        .map_err(with_context(netdev))?;
    text.trim()
        .parse()
        .map_err(|_| io::ErrorKind::InvalidData.into())
}

fn ifinfo(index: u32, flags: u32, change: u32) -> Vec<u8> {
    // family, pad, type (u16), index, flags, change
    let mut b = vec![0; 4];
    for n in [index, flags, change] {
        b.extend_from_slice(&n.to_ne_bytes());
    }
    b
}

fn set_link(netdev: &str, flags: u32) -> io::Result<()> {
    let m = Message::new(RTM_NEWLINK, ACK).body(&ifinfo(index(netdev)?, flags, IFF_UP));
    ask(m, &format!("switching {netdev}"))
}

/// Brings an interface up; for an end of the wire the routes that went with the link come back too.
pub fn link_up(netdev: &str) -> io::Result<()> {
    set_link(netdev, IFF_UP)?;
    // The IPv6 routes of an end that is down are refused; they come with its own link_up.
    if ENDS.iter().any(|e| e.netdev == netdev) {
        wire_routes(netdev)
    } else {
        Ok(())
    }
}

/// Takes an interface down: the rxe port on it goes to DOWN, and so does that on the other end.
pub fn link_down(netdev: &str) -> io::Result<()> {
    set_link(netdev, 0)
}

/// Sets how many bytes of payload the interface's packets may carry.
pub fn set_mtu(netdev: &str, mtu: u32) -> io::Result<()> {
    let m = Message::new(RTM_NEWLINK, ACK)
        .body(&ifinfo(index(netdev)?, 0, 0))
        .number(IFLA_MTU, mtu);
    ask(m, &format!("setting the MTU of {netdev}"))
}

/// Whether the interface is set up (not whether it has a carrier).
pub fn is_up(netdev: &str) -> io::Result<bool> {
    let text = fs::read_to_string(format!("/sys/class/net/{netdev}/flags"))?;
    let flags = u32::from_str_radix(text.trim().trim_start_matches("0x"), 16)
        .map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(flags & IFF_UP != 0)
}

/// Packets received and sent by a network device so far.
///
/// Traffic between `rxe0` and `rxe1` moves them; traffic of one device with itself does not.
pub fn veth_counters(netdev: &str) -> io::Result<(u64, u64)> {
    let read = |name: &str| -> io::Result<u64> {
        let text = fs::read_to_string(format!("/sys/class/net/{netdev}/statistics/{name}"))
            .map_err(with_context(netdev))?;
        text.trim()
            .parse()
            .map_err(|_| io::ErrorKind::InvalidData.into())
    };
    Ok((read("rx_packets")?, read("tx_packets")?))
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

fn family(ip: IpAddr) -> u8 {
    // AF_INET, AF_INET6
    if ip.is_ipv4() { 2 } else { 10 }
}

fn host_prefix(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn addr_message(
    kind: u16,
    flags: u16,
    netdev: &str,
    ip: IpAddr,
    prefix: u8,
) -> io::Result<Message> {
    // No duplicate-address detection: an address is to be usable, and so a GID, at once.
    let nodad = if ip.is_ipv6() { IFA_F_NODAD } else { 0 };
    let mut body = vec![family(ip), prefix, nodad, 0];
    body.extend_from_slice(&index(netdev)?.to_ne_bytes());
    Ok(Message::new(kind, ACK | flags)
        .body(&body)
        .attr(2, &octets(ip))
        .attr(1, &octets(ip)))
}

/// Gives an interface an address; each becomes a GID of the rxe device on it. No error if it has it.
pub fn add_addr(netdev: &str, ip: IpAddr, prefix: u8) -> io::Result<()> {
    let m = addr_message(RTM_NEWADDR, CREATE | EXCL, netdev, ip, prefix)?;
    ask_or_there(m, &format!("adding {ip}/{prefix} to {netdev}"))
}

/// Takes an address away from an interface, and with it the GID.
pub fn del_addr(netdev: &str, ip: IpAddr, prefix: u8) -> io::Result<()> {
    let m = addr_message(RTM_DELADDR, 0, netdev, ip, prefix)?;
    ask(m, &format!("removing {ip}/{prefix} from {netdev}"))
}

/// All addresses of an interface, with their prefixes.
pub fn addrs(netdev: &str) -> io::Result<Vec<(IpAddr, u8)>> {
    let index = index(netdev)?.to_ne_bytes();
    let all = route_socket()?.ask(Message::new(RTM_GETADDR, DUMP).body(&[0; 8]))?;
    let mut found = Vec::new();
    for answer in &all {
        // family, prefix, flags, scope, index, then attributes
        let (Some(prefix), Some(rest)) = (answer.get(1), answer.get(8..)) else {
            continue;
        };
        if answer.get(4..8) != Some(&index) {
            continue;
        }
        // Of a local IPv4 address both are there and alike; IPv6 has only the first.
        let value = attributes(rest)
            .find(|(kind, _)| *kind == 1)
            .map(|(_, v)| v);
        let ip = value.and_then(|v| {
            let v4 = <[u8; 4]>::try_from(v).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(v).map(IpAddr::from))
                .ok()
        });
        found.extend(ip.map(|ip| (ip, *prefix)));
    }
    Ok(found)
}

/// Takes away what a job before this one left on an end of the wire.
fn drop_strangers(end: &End) -> io::Result<()> {
    for (ip, prefix) in addrs(end.netdev)? {
        let link_local = matches!(ip, IpAddr::V6(a) if a.is_unicast_link_local());
        if ip != end.v4 && ip != end.v6 && !link_local {
            del_addr(end.netdev, ip, prefix)?;
        }
    }
    Ok(())
}

/// Makes a pair of network devices that are two ends of a wire; no error if it is there.
pub fn add_pair(a: &str, a_mac: [u8; 6], b: &str, b_mac: [u8; 6]) -> io::Result<()> {
    let m = Message::new(RTM_NEWLINK, ACK | CREATE | EXCL)
        .body(&ifinfo(0, 0, 0))
        .text(3, a)
        .attr(1, &a_mac)
        .nest(18, |m| {
            m.text(1, "veth").nest(2, |m| {
                m.nest(1, |m| m.body(&ifinfo(0, 0, 0)).text(3, b).attr(1, &b_mac))
            })
        });
    ask_or_there(m, "making the veth pair (is the module veth loaded?)")
}

/// Deletes an interface; the other end of a wire goes with it.
pub fn delete(netdev: &str) -> io::Result<()> {
    let m = Message::new(RTM_DELLINK, ACK).body(&ifinfo(index(netdev)?, 0, 0));
    ask(m, &format!("deleting {netdev}"))
}

fn rule_message(kind: u16, flags: u16, family: u8, priority: u32, table: u32) -> Message {
    RuleLens::default().message(kind, flags, family, priority, table)
}

#[derive(Default)]
struct RuleLens {
    dst: u8,
    src: u8,
}

impl RuleLens {
    fn message(self, kind: u16, flags: u16, family: u8, priority: u32, table: u32) -> Message {
        // family, dst_len, src_len, tos, table, two reserved, action "to table", flags (u32).
        // A table above 255 would not fit the header; the attribute holds it whole.
        let low = u8::try_from(table).unwrap_or(0);
        let body = [family, self.dst, self.src, 0, low, 0, 0, 1, 0, 0, 0, 0];
        Message::new(kind, ACK | flags)
            .body(&body)
            .number(6, priority)
            .number(15, table)
    }
}

/// Asks the table of local addresses last, so that the rules of the wire come first.
fn local_table_last(family: u8) -> io::Result<()> {
    let late = rule_message(RTM_NEWRULE, CREATE | EXCL, family, 100, TABLE_LOCAL);
    ask_or_there(late, "moving the rule for local addresses")?;
    match route_socket()?.ask(rule_message(RTM_DELRULE, 0, family, 0, TABLE_LOCAL)) {
        Ok(_) => Ok(()),
        Err(e) if e.raw_os_error() == Some(Errno::ENOENT as i32) => Ok(()),
        Err(e) => Err(with_context("removing the first rule for local addresses")(
            e,
        )),
    }
}

/// What is sent here from `from` to `to` looks its route up in `table`.
fn wire_rule(from: IpAddr, to: IpAddr, priority: u32, table: u32) -> io::Result<()> {
    let bits = host_prefix(from);
    let m = RuleLens {
        dst: bits,
        src: bits,
    }
    .message(RTM_NEWRULE, CREATE | EXCL, family(from), priority, table)
    .text(3, "lo")
    .attr(1, &octets(to))
    .attr(2, &octets(from));
    ask_or_there(m, &format!("adding the rule from {from} to {to}"))
}

fn wire_route(to: IpAddr, netdev: &str, table: u32) -> io::Result<()> {
    // family, dst_len, src_len, tos, table, protocol "boot", scope, type unicast, flags (u32).
    let scope = if to.is_ipv4() { 253 } else { 0 };
    let low = u8::try_from(table).unwrap_or(0);
    let body = [
        family(to),
        host_prefix(to),
        0,
        0,
        low,
        3,
        scope,
        1,
        0,
        0,
        0,
        0,
    ];
    let m = Message::new(RTM_NEWROUTE, ACK | CREATE | REPLACE)
        .body(&body)
        .attr(1, &octets(to))
        .number(4, index(netdev)?)
        .number(15, table);
    ask_or_there(m, &format!("adding the route to {to} by {netdev}"))
}

/// What a route may say instead of leading somewhere (`RTN_*`).
#[derive(Debug, Clone, Copy)]
pub enum Refusal {
    /// Dropped without a word.
    Blackhole = 6,
    /// The host is unreachable.
    Unreachable = 7,
    /// An administrator forbids it.
    Prohibit = 8,
}

/// Lays a route to one address that refuses, in the main table.
pub fn refuse(to: IpAddr, how: Refusal) -> io::Result<()> {
    ask(
        refusing_route(RTM_NEWROUTE, CREATE | REPLACE, to, how),
        &format!("a route to {to} that refuses"),
    )
}

/// Takes it away again.
pub fn unrefuse(to: IpAddr, how: Refusal) -> io::Result<()> {
    ask(
        refusing_route(RTM_DELROUTE, 0, to, how),
        &format!("removing the route to {to}"),
    )
}

/// Lays a route to one IPv6 address that ends in this machine, in the main table, or takes it away.
pub fn end_here(to: Ipv6Addr, there: bool) -> io::Result<()> {
    const MAIN: u8 = 254;
    const RTN_LOCAL: u8 = 2;
    let (kind, flags) = match there {
        true => (RTM_NEWROUTE, CREATE | REPLACE),
        false => (RTM_DELROUTE, 0),
    };
    let body = [10, 128, 0, 0, MAIN, 3, 0, RTN_LOCAL, 0, 0, 0, 0];
    let m = Message::new(kind, ACK | flags)
        .body(&body)
        .attr(1, &to.octets())
        .number(4, index("lo")?);
    ask(m, &format!("a route to {to} that ends here"))
}

fn refusing_route(kind: u16, flags: u16, to: IpAddr, how: Refusal) -> Message {
    const MAIN: u8 = 254;
    let (bits, how) = (host_prefix(to), how as u8);
    let body = [family(to), bits, 0, 0, MAIN, 3, 0, how, 0, 0, 0, 0];
    Message::new(kind, ACK | flags)
        .body(&body)
        .attr(1, &octets(to))
}

/// Puts the routes of this end back; a link that goes down takes them with it.
fn wire_routes(netdev: &str) -> io::Result<()> {
    for (table, [here, there]) in directions() {
        if here.netdev == netdev {
            wire_route(there.v4, netdev, table)?;
            wire_route(there.v6, netdev, table)?;
        }
    }
    Ok(())
}

fn directions() -> [(u32, [End; 2]); 2] {
    let [a, b] = ENDS;
    [(101, [a, b]), (102, [b, a])]
}

fn sysctl(path: &str, value: &str) -> io::Result<()> {
    let path = format!("/proc/sys/net/{path}");
    fs::write(&path, value).map_err(with_context(&path))
}

/// Makes the wire, or whatever is missing of it.
pub fn ensure_wire() -> io::Result<()> {
    // No duplicate-address detection, and addresses outlive a link that goes down.
    for conf in ["all", "default"] {
        sysctl(&format!("ipv6/conf/{conf}/accept_dad"), "0")?;
        sysctl(&format!("ipv6/conf/{conf}/keep_addr_on_down"), "1")?;
    }
    let [a, b] = ENDS;
    set_link("lo", IFF_UP)?;
    add_pair(a.netdev, a.mac, b.netdev, b.mac)?;
    for conf in ["all", "default", a.netdev, b.netdev] {
        sysctl(&format!("ipv4/conf/{conf}/rp_filter"), "0")?;
        sysctl(&format!("ipv4/conf/{conf}/accept_local"), "1")?;
    }
    for family in [2, 10] {
        local_table_last(family)?;
    }
    for (table, [here, there]) in directions() {
        wire_rule(here.v4, there.v4, table - 91, table)?;
        wire_rule(here.v6, there.v6, table - 91, table)?;
    }
    for end in ENDS {
        drop_strangers(&end)?;
        add_addr(end.netdev, end.v4, 24)?;
        add_addr(end.netdev, end.v6, 64)?;
        set_link(end.netdev, IFF_UP)?;
    }
    for end in ENDS {
        wire_routes(end.netdev)?;
    }
    Ok(())
}

//! RDMA devices: adds and deletes rxe links over RDMA netlink, and reads their state in sysfs.
//!
//! Ground truth: `rdma/rdma_netlink.h`. Must never call a device ready before its port is ACTIVE
//! and the GIDs of its addresses are there.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;
use uverbs::abi::layout::netlink::{
    RDMA_NLDEV_ATTR_DEV_INDEX as DEV_INDEX, RDMA_NLDEV_ATTR_DEV_NAME as DEV_NAME,
    RDMA_NLDEV_ATTR_LINK_TYPE as LINK_TYPE, RDMA_NLDEV_ATTR_NDEV_NAME as NDEV_NAME,
    RDMA_NLDEV_CMD_DELLINK as DELLINK, RDMA_NLDEV_CMD_NEWLINK as NEWLINK,
    RDMA_NLDEV_CMD_SET as SET, RDMA_NLDEV_CMD_SYS_SET as SYS_SET,
    RDMA_NLDEV_SYS_ATTR_NETNS_MODE as NETNS_MODE,
};
use uverbs::abi::netlink::nldev::{self, request};
use uverbs::abi::netlink::{Client, Protocol};

use super::net::{ENDS, End};
use super::netlink::{ACK, Message, Socket};

/// The devices, in the order of [`ENDS`].
pub const DEVICES: [&str; 2] = ["rxe0", "rxe1"];

/// Makes an rxe device on a network device, as `rdma link add NAME type rxe netdev NETDEV` does.
pub fn link_add_on(name: &str, netdev: &str) -> io::Result<()> {
    let m = Message::new(request(NEWLINK), ACK)
        .text(DEV_NAME, name)
        .text(LINK_TYPE, "rxe")
        .text(NDEV_NAME, netdev);
    Socket::open(SockProtocol::NetlinkRDMA)?
        .ask(m)
        .map(drop)
        .map_err(|e| {
            let hint = if e.raw_os_error() == Some(Errno::ENOENT as i32) {
                " (6.1 and 6.12 want the module crc32_generic)"
            } else {
                ""
            };
            io::Error::new(e.kind(), format!("adding {name} on {netdev}: {e}{hint}"))
        })
}

/// Makes `rxe0` or `rxe1` again, on the network device it belongs to, and waits until it is ready.
pub fn link_add(name: &str) -> io::Result<()> {
    let end = end_of(name)?;
    link_add_on(name, end.netdev)?;
    wait_ready(name, &end)
}

/// Deletes an RDMA device: whoever has it open gets the fatal event.
pub fn link_delete(name: &str) -> io::Result<()> {
    let index = device_index(name)?
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no device {name}")))?;
    let m = Message::new(request(DELLINK), ACK).number(DEV_INDEX, index);
    Socket::open(SockProtocol::NetlinkRDMA)?
        .ask(m)
        .map(drop)
        .map_err(|e| io::Error::new(e.kind(), format!("deleting {name}: {e}")))
}

/// Gives an RDMA device another name, as `rdma dev set NAME name OTHER` does.
pub fn rename(name: &str, other: &str) -> io::Result<()> {
    let index = device_index(name)?
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no device {name}")))?;
    let m = Message::new(request(SET), ACK)
        .number(DEV_INDEX, index)
        .text(DEV_NAME, other);
    Socket::open(SockProtocol::NetlinkRDMA)?
        .ask(m)
        .map(drop)
        .map_err(|e| io::Error::new(e.kind(), format!("renaming {name} to {other}: {e}")))
}

/// Gives each RDMA device to one network namespace, as `rdma system set netns exclusive` does. Only
/// before there is a second one.
pub fn set_exclusive() -> io::Result<()> {
    let m = Message::new(request(SYS_SET), ACK).attr(NETNS_MODE, &[0]);
    Socket::open(SockProtocol::NetlinkRDMA)?
        .ask(m)
        .map(drop)
        .map_err(|e| io::Error::new(e.kind(), format!("setting netns exclusive: {e}")))
}

/// The kernel's number of an RDMA device; `None` if there is none of that name.
pub fn device_index(name: &str) -> io::Result<Option<u32>> {
    let all = nldev::devices(&mut Client::open(Protocol::Rdma)?)?;
    let named = all.iter().find(|device| device.name == name);
    Ok(named.map(|device| device.index))
}

fn end_of(name: &str) -> io::Result<End> {
    DEVICES
        .iter()
        .zip(ENDS)
        .find(|(d, _)| **d == name)
        .map(|(_, e)| e)
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("{name} is neither rxe0 nor rxe1"),
            )
        })
}

/// Makes the two devices, or the one that is missing, and waits until both are ready.
pub fn ensure_devices() -> io::Result<()> {
    for (name, end) in DEVICES.iter().zip(ENDS) {
        if !Path::new(&format!("/sys/class/infiniband/{name}")).exists() {
            link_add_on(name, end.netdev)?;
        }
    }
    for (name, end) in DEVICES.iter().zip(ENDS) {
        wait_ready(name, &end)?;
    }
    Ok(())
}

/// State of the device's port as sysfs says it, such as `4: ACTIVE`.
pub fn port_state(name: &str) -> io::Result<String> {
    let path = format!("/sys/class/infiniband/{name}/ports/1/state");
    Ok(fs::read_to_string(path)?.trim().to_owned())
}

/// All GIDs of the device's port that are not zero, with their places in the table.
pub fn gids(name: &str) -> io::Result<Vec<(u32, [u8; 16])>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/sys/class/infiniband/{name}/ports/1/gids"))? {
        let entry = entry?;
        let place = entry.file_name().to_str().and_then(|n| n.parse().ok());
        // A place that was emptied meanwhile answers with an error.
        let (Some(place), Ok(text)) = (place, fs::read_to_string(entry.path())) else {
            continue;
        };
        let gid = text
            .trim()
            .parse::<std::net::Ipv6Addr>()
            .map(|a| a.octets());
        match gid {
            Ok(gid) if gid != [0; 16] => found.push((place, gid)),
            _ => {}
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The GID that stands for an address.
pub fn gid_of(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

/// The name of the device's node, such as `uverbs0`.
pub fn uverbs_node(name: &str) -> io::Result<Option<String>> {
    for entry in fs::read_dir("/sys/class/infiniband_verbs")? {
        let entry = entry?;
        if let Ok(ibdev) = fs::read_to_string(entry.path().join("ibdev"))
            && ibdev.trim() == name
        {
            return Ok(entry.file_name().into_string().ok());
        }
    }
    Ok(None)
}

fn missing(name: &str, end: &End) -> io::Result<Option<String>> {
    let Some(node) = uverbs_node(name)? else {
        return Ok(Some("no uverbs node (is ib_uverbs loaded?)".into()));
    };
    if !Path::new(&format!("/dev/infiniband/{node}")).exists() {
        return Ok(Some(format!("no /dev/infiniband/{node}")));
    }
    let state = port_state(name)?;
    if !state.ends_with("ACTIVE") {
        return Ok(Some(format!("its port is {state}")));
    }
    let gids = gids(name)?;
    for ip in [end.v4, end.v6] {
        if !gids.iter().any(|(_, gid)| *gid == gid_of(ip)) {
            return Ok(Some(format!("no GID for {ip}")));
        }
    }
    Ok(None)
}

fn wait_ready(name: &str, end: &End) -> io::Result<()> {
    let start = Instant::now();
    loop {
        let Some(why) = missing(name, end)? else {
            return Ok(());
        };
        if start.elapsed() > Duration::from_secs(20) {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("{name} is not ready after 20 s: {why}"),
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

//! What is there: the kernel's own count of RDMA objects, and this process's descriptors and
//! mappings. For cases that must show that nothing is left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use nix::sys::socket::SockProtocol;

use super::netlink::{DUMP, Message, Socket, attributes};
use super::rdma::device_index;

/// `RDMA_NL_NLDEV << 10 | RDMA_NLDEV_CMD_RES_GET`.
const RES_GET: u16 = (5 << 10) | 9;
const DEV_INDEX: u16 = 1;
/// The thread that made an object, which need not be a process's first; objects of the kernel's own
/// have none.
const RES_PID: u16 = 28;
const SUMMARY: u16 = 15;
const ENTRY: u16 = 16;
const ENTRY_NAME: u16 = 17;
const ENTRY_CURR: u16 = 18;

/// How many objects of each kind a device has, kernel-owned ones included: `pd`, `cq`, `qp`, …
pub fn kernel_objects(device: &str) -> io::Result<BTreeMap<String, u64>> {
    let index = device_index(device)?.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("no device is called {device}"),
        )
    })?;
    let request = Message::new(RES_GET, 0).number(DEV_INDEX, index);
    let answers = Socket::open(SockProtocol::NetlinkRDMA)?.ask(request)?;
    let mut counts = BTreeMap::new();
    for answer in &answers {
        for summary in nested(answer, SUMMARY) {
            for entry in nested(summary, ENTRY) {
                let name = nested(entry, ENTRY_NAME).next().unwrap_or_default();
                let count = nested(entry, ENTRY_CURR).next().unwrap_or_default();
                let name = String::from_utf8_lossy(name.strip_suffix(b"\0").unwrap_or(name));
                let count = count.try_into().map(u64::from_ne_bytes).map_err(|_| {
                    io::Error::new(io::ErrorKind::InvalidData, "a count is not 8 bytes long")
                })?;
                counts.insert(name.into_owned(), count);
            }
        }
    }
    if counts.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the kernel gave no counts for {device}"),
        ));
    }
    Ok(counts)
}

/// What the kernel's resource tracking has numbers for, and no program is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracked {
    /// Completion queues.
    Cq,
    /// Shared receive queues.
    Srq,
}

/// The numbers under which the kernel tracks the programs' objects of a kind on a device.
pub fn tracked(device: &str, kind: Tracked) -> io::Result<BTreeSet<u32>> {
    // The command that lists them, the table, its entries, and the number in an entry.
    let (command, table, entry, number) = match kind {
        Tracked::Cq => (12, 35, 36, 61),
        Tracked::Srq => (23, 88, 89, 90),
    };
    let index = device_index(device)?.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("no device is called {device}"),
        )
    })?;
    let request = Message::new((5 << 10) | command, DUMP).number(DEV_INDEX, index);
    let mut numbers = BTreeSet::new();
    for answer in Socket::open(SockProtocol::NetlinkRDMA)?.ask(request)? {
        for entry in nested(&answer, table).flat_map(|table| nested(table, entry)) {
            let word = |kind| {
                nested(entry, kind)
                    .next()?
                    .try_into()
                    .ok()
                    .map(u32::from_ne_bytes)
            };
            if word(RES_PID).is_some() {
                numbers.extend(word(number));
            }
        }
    }
    Ok(numbers)
}

fn nested(payload: &[u8], wanted: u16) -> impl Iterator<Item = &[u8]> {
    attributes(payload)
        .filter(move |(kind, _)| *kind == wanted)
        .map(|(_, value)| value)
}

/// Everything that a case can leave behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    objects: Vec<BTreeMap<String, u64>>,
    descriptors: usize,
    mappings: usize,
}

/// Counts the objects of both devices, and this process's descriptors and uverbs mappings.
pub fn snapshot() -> io::Result<Snapshot> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    Ok(Snapshot {
        objects: vec![kernel_objects("rxe0")?, kernel_objects("rxe1")?],
        descriptors: fs::read_dir("/proc/self/fd")?.count(),
        mappings: maps.lines().filter(|line| line.contains("uverbs")).count(),
    })
}

//! Opens the device that was listed, and no other.
//!
//! The order matters: first the node is opened, then the kernel is asked whether the device is still
//! there, under the same device number. A number belongs to one device for as long as that device
//! is there; so if it is there afterwards, it was the one behind the node.

use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use uverbs_abi::netlink::Client;
use uverbs_abi::sys::UverbsFd;

use super::discovery::Wire;
use super::kind::NetnsMode;
use super::node::{self, Node};
use super::{Device, Mark, UVERBS_ABI, netlink, sysfs};
use crate::error::OpenError;
use crate::open;

/// How often a missing node is looked for, and how long between.
const NODE_TRIES: u32 = 5;
const NODE_PAUSE: Duration = Duration::from_millis(5);

/// A device's file, just opened.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) kernel: UverbsFd,
    pub(crate) node: PathBuf,
    /// The name by then.
    pub(crate) name: String,
}

impl OpenFile {
    /// `told_by` is the socket that has just told of the device, by its name.
    pub(crate) fn open(device: &Device, told_by: Option<Client<Wire>>) -> Result<Self, OpenError> {
        // Most often it is there. What is opened in its place, if it is not, is closed again with
        // nothing done to it.
        let usual = device.discovery.node(&device.uverbs);
        let (kernel, node) = match open::node(&usual, device.number()) {
            Ok(kernel) => (kernel, usual),
            Err(_) => search(device)?,
        };
        let name = match (told_by, device.mark) {
            (Some(mut client), Mark::Index(index)) => {
                match netlink::has_number(&mut client, index, device.number) {
                    Ok(is_same) => is_same.then(|| device.name.clone()),
                    Err(_) => name_if_same(device),
                }
            }
            _ => name_if_same(device),
        };
        match name {
            Some(name) => Ok(Self { kernel, node, name }),
            None => Err(replaced(device)),
        }
    }
}

/// Opens the node wherever it is.
fn search(device: &Device) -> Result<(UverbsFd, PathBuf), OpenError> {
    let path = match find_node(device) {
        Node::Here(path) => path,
        other => return Err(no_node(device, other)),
    };
    match open::node(&path, device.number()) {
        Ok(kernel) => Ok((kernel, path)),
        Err(source) => Err(refused(device, path, source)),
    }
}

/// Whether the first command may have been refused since the kernel speaks another uverbs ABI. The
/// kernel refuses what it does not know, and so it is asked only then.
pub(crate) fn other_abi(device: &Device) -> Option<OpenError> {
    match device.discovery.kernel_abi() {
        Ok(found) => found
            .filter(|abi| *abi != UVERBS_ABI)
            .map(|found| OpenError::KernelAbi {
                found,
                wanted: UVERBS_ABI,
            }),
        Err(odd) => Some(odd),
    }
}

/// The node, perhaps after a moment: the kernel shows a new device in sysfs before it makes its node.
fn find_node(device: &Device) -> Node {
    let mut tries = 0;
    loop {
        tries += 1;
        match node::find(&device.discovery, &device.uverbs, device.number) {
            Node::Missing(_) if tries < NODE_TRIES => thread::sleep(NODE_PAUSE),
            other => return other,
        }
    }
}

/// The device's present name, if it is still the one that was listed.
fn name_if_same(device: &Device) -> Option<String> {
    match device.mark {
        Mark::Index(index) => {
            match netlink::confirm(&device.discovery, index, device.number) {
                Ok(name) => name,
                // Netlink was closed since: the folder of the number says whose it is, and the
                // number has been checked.
                Err(_) => sysfs::name_of(&device.discovery, &device.uverbs)
                    .filter(|name| *name == device.name),
            }
        }
        Mark::Folder(folder) => sysfs::present_name(&device.discovery, &device.uverbs, folder),
    }
}

fn replaced(device: &Device) -> OpenError {
    OpenError::Replaced {
        device: device.name.clone(),
        uverbs: device.uverbs.clone(),
        now: sysfs::name_of(&device.discovery, &device.uverbs),
    }
}

/// No node: since the device is gone, or since nobody made one?
fn no_node(device: &Device, node: Node) -> OpenError {
    if name_if_same(device).is_none() {
        return replaced(device);
    }
    let (path, found) = match node {
        Node::Stale { path, found } => (path, found),
        Node::Here(path) | Node::Missing(path) => {
            return OpenError::Node {
                path,
                source: io::Error::from_raw_os_error(libc::ENOENT),
            };
        }
    };
    OpenError::StaleNode {
        path,
        found,
        wanted: device.device_number(),
    }
}

fn refused(device: &Device, path: PathBuf, source: io::Error) -> OpenError {
    let errno = source.raw_os_error();
    // `UverbsFd::open` found another node there than was found before: no number.
    let may_be_gone = matches!(
        errno,
        None | Some(libc::ENXIO | libc::ENODEV | libc::EIO | libc::ENOENT)
    );
    if may_be_gone && name_if_same(device).is_none() {
        return replaced(device);
    }
    // Only a device of another network namespace is refused so while the kernel lists it in none
    // of its answers here.
    let is_elsewhere = errno == Some(libc::EPERM)
        && device.discovery.netns_mode() == Some(NetnsMode::Exclusive)
        && match device.mark {
            Mark::Index(index) => {
                matches!(netlink::present_name(&device.discovery, index), Ok(None))
            }
            Mark::Folder(_) => true,
        };
    if is_elsewhere {
        return OpenError::OtherNamespace {
            device: device.name.clone(),
            path,
            source,
        };
    }
    OpenError::Node { path, source }
}

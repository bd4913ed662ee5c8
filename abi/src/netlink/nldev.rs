//! The RDMA subsystem's requests: which devices there are, where their nodes are, and whether
//! network namespaces share them.
//!
//! Ground truth: `rdma/rdma_netlink.h`, `drivers/infiniband/core/nldev.c`. What a kernel leaves out
//! is `None`; what it must say and does not is an error. Nothing is inferred here.

use super::client::{Answer, Client, NetlinkError, Transport};
use super::message::{Message, attributes, number, text};
use crate::layout::netlink::*;

/// How often a long list is read until two readings agree.
const READINGS: u32 = 8;

/// A device as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its number, which no other device gets for a very long time: the kernel counts on.
    pub index: u32,
    /// Its present name.
    pub name: String,
    /// `RDMA_NODE_…`.
    pub node_type: Option<u8>,
    /// Its node GUID as a number.
    pub node_guid: Option<u64>,
    /// Firmware version; empty for software devices.
    pub fw_version: Option<String>,
    /// What it speaks: `roce`, `ib`, `iw`, …
    pub protocol: Option<String>,
}

/// The uverbs character device of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chardev {
    /// The kernel's name for the node: `uverbs0`.
    pub name: String,
    /// Its major number.
    pub major: u32,
    /// Its minor number.
    pub minor: u32,
    /// Version of the driver's own part of the ABI.
    pub abi: u32,
    /// `enum rdma_driver_id`; absent for drivers that are told apart otherwise.
    pub driver_id: Option<u32>,
}

/// Lists the devices that this network namespace may see, in the order of their numbers.
///
/// # Errors
/// [`NetlinkError`].
pub fn devices<T: Transport>(client: &mut Client<T>) -> Result<Vec<Device>, NetlinkError> {
    let mut before: Option<Vec<Device>> = None;
    for _ in 0..READINGS {
        let (devices, datagrams) = reading(client)?;
        // The kernel goes on by counting devices: if one goes between two datagrams, the next one
        // is left out. It does not say so (no NLM_F_DUMP_INTR here).
        if datagrams <= 1 || before.as_ref() == Some(&devices) {
            return Ok(devices);
        }
        before = Some(devices);
    }
    Err(NetlinkError::Interrupted)
}

/// The device that has this name; `None` if it was not seen, which says little: a list may leave out
/// a device that is there all the while. Those that are in it were there.
///
/// # Errors
/// [`NetlinkError`].
pub fn seen<T: Transport>(
    client: &mut Client<T>,
    name: &str,
) -> Result<Option<Device>, NetlinkError> {
    let answer = client.ask(&list())?;
    let mut found = None;
    for payload in answer.payloads() {
        let device = device_in(payload)?;
        if device.name == name {
            found.get_or_insert(device);
        }
    }
    Ok(found)
}

/// The question for all devices.
fn list() -> Message {
    Message::new(request(RDMA_NLDEV_CMD_GET), NLM_F_DUMP)
}

/// The list, read once, and in how many datagrams it came.
fn reading<T: Transport>(client: &mut Client<T>) -> Result<(Vec<Device>, usize), NetlinkError> {
    let answer = client.ask(&list())?;
    let mut devices: Vec<Device> = Vec::new();
    for payload in answer.payloads() {
        let device = device_in(payload)?;
        // They come in order, so that most often it is the end.
        match devices.binary_search_by_key(&device.index, |other| other.index) {
            Ok(_) => {}
            Err(place) => devices.insert(place, device),
        }
    }
    Ok((devices, answer.datagrams))
}

/// One device by its number; `None` if there is none of that number here.
///
/// # Errors
/// [`NetlinkError`].
pub fn device<T: Transport>(
    client: &mut Client<T>,
    index: u32,
) -> Result<Option<Device>, NetlinkError> {
    let request = Message::new(request(RDMA_NLDEV_CMD_GET), 0);
    match client.ask(&request.number(RDMA_NLDEV_ATTR_DEV_INDEX, index)) {
        Ok(answer) => {
            let found = device_in(first(answer)?)?;
            if found.index == index {
                Ok(Some(found))
            } else {
                Err(NetlinkError::Malformed("another device"))
            }
        }
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What became of the question for a device's uverbs node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It has one.
    Chardev(Chardev),
    /// It has none: `ib_uverbs` is not loaded.
    NoUverbs,
    /// There is no device of that number (any more).
    NoDevice,
}

/// Asks for the uverbs node of the device with this number. Loads `ib_uverbs` if it can be.
///
/// # Errors
/// [`NetlinkError`].
pub fn chardev<T: Transport>(client: &mut Client<T>, index: u32) -> Result<Found, NetlinkError> {
    let request = Message::new(request(RDMA_NLDEV_CMD_GET_CHARDEV), 0)
        .number(RDMA_NLDEV_ATTR_DEV_INDEX, index)
        .text(RDMA_NLDEV_ATTR_CHARDEV_TYPE, "uverbs");
    match client.ask(&request) {
        Ok(answer) => Ok(Found::Chardev(chardev_in(first(answer)?)?)),
        Err(error) if is_absent(&error) => Ok(Found::NoDevice),
        Err(error) if matches!(error.errno(), Some(crate::Errno::EOPNOTSUPP)) => {
            Ok(Found::NoUverbs)
        }
        Err(error) => Err(error),
    }
}

/// Whether network namespaces share all devices; `None` if the kernel does not say.
///
/// # Errors
/// [`NetlinkError`].
pub fn shares_devices<T: Transport>(client: &mut Client<T>) -> Result<Option<bool>, NetlinkError> {
    let answer = client.ask(&Message::new(request(RDMA_NLDEV_CMD_SYS_GET), 0))?;
    let mode = attributes(first(answer)?)
        .find(|(kind, _)| *kind == RDMA_NLDEV_SYS_ATTR_NETNS_MODE)
        .and_then(|(_, value)| number(value));
    Ok(mode.map(|mode| mode != 0))
}

/// The message type of an operation on devices.
#[must_use]
pub const fn request(op: u16) -> u16 {
    rdma_nl_get_type(RDMA_NL_NLDEV, op)
}

fn first(answer: Answer<'_>) -> Result<&[u8], NetlinkError> {
    let payload = answer.payloads().next();
    payload.ok_or(NetlinkError::Malformed("nothing"))
}

/// With a number that no device has the kernel says `EINVAL`; `ENODEV` while it is going.
fn is_absent(error: &NetlinkError) -> bool {
    let NetlinkError::Refused { errno, .. } = error else {
        return false;
    };
    [crate::Errno::EINVAL, crate::Errno::ENODEV].contains(errno)
}

fn device_in(payload: &[u8]) -> Result<Device, NetlinkError> {
    let (mut index, mut name) = (None, None);
    let (mut node_type, mut node_guid) = (None, None);
    let (mut fw_version, mut protocol) = (None, None);
    let mut all = attributes(payload);
    for (kind, value) in &mut all {
        match kind {
            RDMA_NLDEV_ATTR_DEV_INDEX => index = narrow(value),
            RDMA_NLDEV_ATTR_DEV_NAME => name = Some(text(value)),
            RDMA_NLDEV_ATTR_DEV_NODE_TYPE => node_type = narrow(value),
            RDMA_NLDEV_ATTR_NODE_GUID => node_guid = number(value),
            RDMA_NLDEV_ATTR_FW_VERSION => fw_version = Some(text(value)),
            RDMA_NLDEV_ATTR_DEV_PROTOCOL => protocol = Some(text(value)),
            _ => {}
        }
    }
    match (index, name) {
        (Some(index), Some(name)) if all.rest().is_empty() && !name.is_empty() => Ok(Device {
            index,
            name,
            node_type,
            node_guid,
            fw_version,
            protocol,
        }),
        _ => Err(NetlinkError::Malformed("a device without name or number")),
    }
}

fn chardev_in(payload: &[u8]) -> Result<Chardev, NetlinkError> {
    let (mut name, mut packed, mut abi, mut driver_id) = (None, None, None, None);
    let mut all = attributes(payload);
    for (kind, value) in &mut all {
        match kind {
            RDMA_NLDEV_ATTR_CHARDEV_NAME => name = Some(text(value)),
            RDMA_NLDEV_ATTR_CHARDEV => packed = number(value),
            RDMA_NLDEV_ATTR_CHARDEV_ABI => abi = narrow(value),
            RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID => driver_id = narrow(value),
            _ => {}
        }
    }
    let is_file_name = |name: &String| {
        !name.is_empty() && !name.contains('/') && ![".", ".."].contains(&name.as_str())
    };
    match (name.filter(is_file_name), packed.and_then(split), abi) {
        (Some(name), Some((major, minor)), Some(abi)) if all.rest().is_empty() => Ok(Chardev {
            name,
            major,
            minor,
            abi,
            driver_id,
        }),
        _ => Err(NetlinkError::Malformed(
            "a node without name, number or ABI",
        )),
    }
}

fn narrow<N: TryFrom<u64>>(value: &[u8]) -> Option<N> {
    number(value)?.try_into().ok()
}

/// Major and minor number, as the kernel packs them for user space (`new_encode_dev`).
fn split(packed: u64) -> Option<(u32, u32)> {
    let packed = u32::try_from(packed).ok()?;
    Some((
        (packed >> 8) & 0xFFF,
        (packed & 0xFF) | ((packed >> 12) & 0xF_FF00),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_unpacked() {
        assert_eq!(split(0xE7C0), Some((231, 192)));
        // Minor numbers above 255 go around the major one.
        assert_eq!(
            split((0x123 << 20) | (0xABC << 8) | 0x45),
            Some((0xABC, 0x1_2345))
        );
        assert_eq!(split(1 << 32), None);
    }
}

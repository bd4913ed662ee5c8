//! Discovery over netlink: one list, then one question for each device's node.
//!
//! Ground truth: `uverbs_abi::netlink::nldev`. Must never make one device of two: everything asked
//! after the list is asked by the device's number, which no other device gets.

use std::sync::OnceLock;

use uverbs_abi::layout::driver::DriverId;
use uverbs_abi::netlink::nldev::{self, Chardev, Found};
use uverbs_abi::netlink::{Client, NetlinkError};

use super::discovery::Wire;
use super::kind::{NetnsMode, NodeType};
use super::listing::Listing;
use super::{Device, Discovery, Mark};

/// Fills the listing, or says why it cannot.
pub(super) fn list(discovery: &Discovery, listing: &mut Listing) -> Result<(), NetlinkError> {
    let mut client = discovery.netlink()?;
    for found in nldev::devices(&mut client)? {
        match nldev::chardev(&mut client, found.index)? {
            Found::Chardev(chardev) => listing.devices.push(device(discovery, found, chardev)),
            Found::NoUverbs => listing.without_uverbs.push(found.name),
            // It went away meanwhile.
            Found::NoDevice => {}
        }
    }
    Ok(())
}

/// The device that has this name now, and the socket that told of it. `None` if it was not seen:
/// a look at the whole list may find it yet.
pub(super) fn named(
    discovery: &Discovery,
    name: &str,
) -> Result<Option<(Device, Client<Wire>)>, NetlinkError> {
    let mut client = discovery.netlink()?;
    let Some(found) = nldev::seen(&mut client, name)? else {
        return Ok(None);
    };
    Ok(match nldev::chardev(&mut client, found.index)? {
        Found::Chardev(chardev) => Some((device(discovery, found, chardev), client)),
        Found::NoUverbs | Found::NoDevice => None,
    })
}

fn device(discovery: &Discovery, found: nldev::Device, chardev: Chardev) -> Device {
    let number = libc::makedev(chardev.major, chardev.minor);
    Device {
        name: found.name,
        node: OnceLock::new(),
        uverbs: chardev.name,
        number,
        driver_abi: chardev.abi,
        driver: chardev.driver_id.map(DriverId::from_raw),
        node_type: found.node_type.map(NodeType::from_raw),
        node_guid: found.node_guid.map(u64::to_be_bytes),
        fw_version: found.fw_version.filter(|version| !version.is_empty()),
        mark: Mark::Index(found.index),
        discovery: discovery.clone(),
    }
}

pub(super) fn netns_mode(discovery: &Discovery) -> Option<NetnsMode> {
    let mut client = discovery.netlink().ok()?;
    let is_shared = nldev::shares_devices(&mut client).ok().flatten()?;
    Some(NetnsMode::from_shared(is_shared))
}

/// The device's present name; `None` if there is no such device here.
pub(super) fn present_name(
    discovery: &Discovery,
    index: u32,
) -> Result<Option<String>, NetlinkError> {
    let mut client = discovery.netlink()?;
    Ok(nldev::device(&mut client, index)?.map(|device| device.name))
}

/// The device's present name, if its node still has this number.
pub(super) fn confirm(
    discovery: &Discovery,
    index: u32,
    number: u64,
) -> Result<Option<String>, NetlinkError> {
    let mut client = discovery.netlink()?;
    let Some(device) = nldev::device(&mut client, index)? else {
        return Ok(None);
    };
    Ok(has_number(&mut client, index, number)?.then_some(device.name))
}

/// Whether the device is still there, and its node has this number.
pub(super) fn has_number(
    client: &mut Client<Wire>,
    index: u32,
    number: u64,
) -> Result<bool, NetlinkError> {
    Ok(match nldev::chardev(client, index)? {
        Found::Chardev(now) => libc::makedev(now.major, now.minor) == number,
        Found::NoUverbs | Found::NoDevice => false,
    })
}

//! Discovery over netlink: one list, then one question for each device's node.
//!
//! Ground truth: `uverbs_abi::netlink::nldev`. Must never make one device of two: everything asked
//! after the list is asked by the device's number, which no other device gets.

use uverbs_abi::layout::driver::DriverId;
use uverbs_abi::netlink::NetlinkError;
use uverbs_abi::netlink::nldev::{self, Chardev, Found};

use super::kind::{NetnsMode, NodeType};
use super::listing::Listing;
use super::{Device, Discovery, Mark, node};

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

fn device(discovery: &Discovery, found: nldev::Device, chardev: Chardev) -> Device {
    let number = libc::makedev(chardev.major, chardev.minor);
    Device {
        name: found.name,
        node: node::find(discovery, &chardev.name, number).path(),
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
    Ok(match nldev::chardev(&mut client, index)? {
        Found::Chardev(now) if libc::makedev(now.major, now.minor) == number => Some(device.name),
        _ => None,
    })
}

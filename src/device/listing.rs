//! One listing: over netlink, or else from sysfs, and what may explain what is not in it.

use super::kind::NetnsMode;
use super::{Device, Discovery, mistaken, netlink, sysfs};
use crate::error::ListError;

/// The devices, and what was seen beside them.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) devices: Vec<Device>,
    /// Devices that have no uverbs node, by name.
    pub(super) without_uverbs: Vec<String>,
    /// What sysfs has that cannot be understood, in words.
    pub(super) odd: Vec<String>,
    is_from_netlink: bool,
}

impl Listing {
    pub(super) fn read(discovery: &Discovery) -> Result<Self, ListError> {
        let mut listing = Self::default();
        match netlink::list(discovery, &mut listing) {
            Ok(()) => listing.is_from_netlink = true,
            Err(closed) => {
                listing = Self::default();
                sysfs::list(discovery, &mut listing).map_err(|(path, source)| ListError {
                    path,
                    source,
                    netlink: closed,
                })?;
            }
        }
        listing.devices = in_order(listing.devices);
        Ok(listing)
    }

    /// Why a name may be missing, in words.
    pub(super) fn hints_for(&self, name: &str, discovery: &Discovery) -> Vec<String> {
        let mut hints = self.odd.clone();
        hints.extend(mistaken::hint(name, &self.devices, discovery));
        if self.without_uverbs.iter().any(|device| device == name) {
            hints.push("the kernel has it, and no uverbs node for it: load ib_uverbs".to_owned());
        }
        if self.devices.is_empty() {
            hints.extend(sysfs::missing_modules(discovery).map(str::to_owned));
        }
        // The class of the nodes is the same in all network namespaces.
        let is_elsewhere = self.is_from_netlink && sysfs::has_name(discovery, name);
        match discovery.netns_mode() {
            Some(NetnsMode::Exclusive) if is_elsewhere => hints.push(
                "it belongs to another network namespace (`rdma system show`: netns exclusive)"
                    .to_owned(),
            ),
            Some(NetnsMode::Exclusive) => hints.push(
                "each RDMA device belongs to one network namespace here (`rdma system show`: netns \
                 exclusive): is this the right one?"
                    .to_owned(),
            ),
            _ => {}
        }
        hints
    }
}

/// One by one into its place: there are few, and a sort is kilobytes of code.
fn in_order(devices: Vec<Device>) -> Vec<Device> {
    let mut sorted = Vec::with_capacity(devices.len());
    for device in devices {
        let place = sorted.partition_point(|other| order(other) <= order(&device));
        sorted.insert(place, device);
    }
    sorted
}

/// The order of the nodes: by the number in the kernel's name for them, if it is such a name.
fn order(device: &Device) -> (u64, u64, &str) {
    let digits = device.uverbs.strip_prefix("uverbs");
    let place = digits.and_then(|digits| digits.parse().ok());
    (place.unwrap_or(u64::MAX), device.number, &device.uverbs)
}

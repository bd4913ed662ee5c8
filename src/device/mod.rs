//! The devices of this machine, as the kernel has them at the moment of asking.
//!
//! The kernel is asked over netlink, and where that is closed, sysfs is read. Nothing is cached and
//! nothing is inferred from names: a device's name can be changed at any time, `uverbsN` has nothing
//! to do with the N in it, and which driver it is the kernel says. A virtual device (rxe, siw) has
//! no PCI parent, and needs none.

mod discovery;
mod kind;
mod listing;
mod mistaken;
mod netlink;
mod node;
mod opening;
mod sysfs;

pub use discovery::Discovery;
pub(crate) use discovery::Wire;
pub use kind::{NetnsMode, NodeType};
pub(crate) use opening::{OpenFile, other_abi};

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use uverbs_abi::layout::driver::DriverId;

use crate::context::Context;
use crate::error::{ListError, OpenError};
use crate::options::OpenOptions;

/// The uverbs ABI that this crate speaks; the kernel has had no other since 2005.
pub(crate) const UVERBS_ABI: u32 = 6;

/// A device that can be opened.
///
/// It stands for the device that was listed, not for its name: opening it opens that device, under
/// whatever name it has then, or fails. Two are equal if all that was listed of them is.
#[derive(Clone)]
#[doc(alias = "ibv_device")]
pub struct Device {
    name: String,
    uverbs: String,
    number: u64,
    /// Where its node was found, once somebody has asked.
    node: OnceLock<PathBuf>,
    driver_abi: u32,
    driver: Option<DriverId>,
    node_type: Option<NodeType>,
    node_guid: Option<[u8; 8]>,
    fw_version: Option<String>,
    mark: Mark,
    discovery: Discovery,
}

/// By what the device is known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// The kernel's number of the device, from netlink: it counts on, and gives none out twice.
    Index(u32),
    /// The inode of its folder in sysfs, which is made anew with the device.
    Folder(u64),
}

/// Lists the devices. A machine without any gives an empty list: that is no error.
///
/// The kernel is asked over netlink; where that is closed (a sandbox, a kernel without the module
/// `ib_core`), sysfs is read. A device without a uverbs node, or one that goes away meanwhile, is
/// left out. The order is that of the nodes.
///
/// # Errors
/// [`ListError`] if netlink is closed and sysfs is not there or cannot be read.
///
/// # Examples
/// ```
/// for device in uverbs::devices()? {
///     println!("{} at {}", device.name(), device.node().display());
/// }
/// # Ok::<(), uverbs::ListError>(())
/// ```
#[doc(alias = "ibv_get_device_list")]
pub fn devices() -> Result<Vec<Device>, ListError> {
    Discovery::system().devices()
}

/// Whether network namespaces share all RDMA devices; `None` if the kernel does not say (`ib_core`
/// is not loaded).
///
/// Source: netlink, or `/sys/module/ib_core/parameters/netns_mode`.
#[must_use]
pub fn netns_mode() -> Option<NetnsMode> {
    Discovery::system().netns_mode()
}

impl Device {
    /// Its name when it was listed: `rxe0`, `mlx5_0`, … Names may be changed while a program runs.
    #[must_use]
    #[doc(alias = "ibv_get_device_name")]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its present name; `None` if the device is gone, or the kernel cannot be asked.
    #[must_use]
    pub fn present_name(&self) -> Option<String> {
        self.discovery.present_name(self)
    }

    /// The kernel's name of its node: `uverbs0`, … The number has nothing to do with the name's.
    #[must_use]
    #[doc(alias = "dev_name")]
    pub fn uverbs_name(&self) -> &str {
        &self.uverbs
    }

    /// Its device node: under the kernel's name in `/dev/infiniband`, or else the one that is found to
    /// have its device number; if there is none, where it should be. It is looked for when this is
    /// first called.
    #[must_use]
    pub fn node(&self) -> &Path {
        let find = || node::find(&self.discovery, &self.uverbs, self.number).path();
        self.node.get_or_init(find)
    }

    /// The version of the driver's own part of the ABI.
    #[must_use]
    pub const fn driver_abi(&self) -> u32 {
        self.driver_abi
    }

    /// The kernel driver behind it; `None` if it was listed from sysfs, which does not say, or if
    /// the kernel keeps it to itself. [`Context::driver`] always knows.
    #[must_use]
    pub const fn driver(&self) -> Option<DriverId> {
        self.driver
    }

    /// The kernel's number of the device, which stays when it is renamed and is not given to
    /// another; `None` if it was listed from sysfs, which does not have it.
    #[must_use]
    #[doc(alias = "ibv_get_device_index")]
    pub const fn index(&self) -> Option<u32> {
        match self.mark {
            Mark::Index(index) => Some(index),
            Mark::Folder(_) => None,
        }
    }

    /// What kind of adapter it is; `None` if neither netlink nor sysfs said.
    #[must_use]
    #[doc(alias = "ibv_node_type")]
    pub const fn node_type(&self) -> Option<NodeType> {
        self.node_type
    }

    /// Its node GUID, as [`DeviceAttr::node_guid`](crate::DeviceAttr::node_guid) has it; `None` if
    /// neither netlink nor sysfs said.
    #[must_use]
    #[doc(alias = "ibv_get_device_guid")]
    pub const fn node_guid(&self) -> Option<[u8; 8]> {
        self.node_guid
    }

    /// Version of its firmware; `None` for software devices.
    #[must_use]
    #[doc(alias = "fw_ver")]
    pub fn fw_version(&self) -> Option<&str> {
        self.fw_version.as_deref()
    }

    /// Major and minor number of its node.
    #[must_use]
    pub const fn device_number(&self) -> (u32, u32) {
        (libc::major(self.number), libc::minor(self.number))
    }

    /// A port's P_Keys, under whatever name the device has now.
    pub(crate) fn pkeys(&self, port: u8) -> io::Result<Vec<u16>> {
        let name = self.present_name().ok_or(io::ErrorKind::NotFound)?;
        self.discovery.pkeys(&name, port)
    }

    /// The device number of the node, as `stat(2)` gives it in `st_rdev`.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Opens it.
    ///
    /// # Errors
    /// [`OpenError`], with what to do about it; [`OpenError::Replaced`] if this device is gone, also
    /// if another has its name or its node by now.
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self) -> Result<Context, OpenError> {
        Context::open_device(self, None, &OpenOptions::new())
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        let all = |device: &Self| {
            (
                (device.mark, device.number, device.driver_abi, device.driver),
                (device.node_type, device.node_guid),
            )
        };
        all(self) == all(other)
            && self.name == other.name
            && self.uverbs == other.uverbs
            && self.fw_version == other.fw_version
    }
}

impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.device_number();
        f.debug_struct("Device")
            .field("name", &self.name)
            .field("uverbs", &self.uverbs)
            .field("device_number", &format_args!("{major}:{minor}"))
            .field("node", &self.node())
            .field("driver", &self.driver)
            .field("driver_abi", &self.driver_abi)
            .field("mark", &self.mark)
            .finish_non_exhaustive()
    }
}

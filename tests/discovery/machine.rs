//! A machine: devices, from which both a played netlink and a tree of sysfs are made.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use uverbs::{Device, Discovery, OpenError};

use crate::kernel::Netlink;

/// `/dev/null`, `/dev/zero`, `/dev/full`: what stands behind nodes that can be opened.
pub(crate) const NULL: (u32, u32) = (1, 3);
pub(crate) const ZERO: (u32, u32) = (1, 5);

/// A device of the machine.
#[derive(Clone, Debug)]
pub(crate) struct Dev {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) uverbs: String,
    pub(crate) number: (u32, u32),
    pub(crate) abi: u32,
    pub(crate) has_uverbs: bool,
}

impl Dev {
    /// `name` with the node `uverbsN` of this number.
    pub(crate) fn new(index: u32, name: &str, uverbs: &str, number: (u32, u32)) -> Self {
        Self {
            index,
            name: name.to_owned(),
            uverbs: uverbs.to_owned(),
            number,
            abi: 2,
            has_uverbs: true,
        }
    }

    pub(crate) fn guid(&self) -> [u8; 8] {
        (0x0200_00FF_FE00_0000 | u64::from(self.index)).to_be_bytes()
    }
}

/// A folder that is gone with the value.
#[derive(Debug)]
pub(crate) struct Machine {
    root: PathBuf,
    pub(crate) devices: Arc<Mutex<Vec<Dev>>>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Machine {
    /// A machine with these devices, in sysfs as well, and no nodes.
    pub(crate) fn new(devices: &[Dev]) -> Self {
        let machine = Self::bare();
        machine.write("sys/class/infiniband_verbs/abi_version", "6\n");
        for device in devices {
            machine.add_to_sysfs(device);
        }
        *machine.devices.lock().unwrap() = devices.to_vec();
        machine
    }

    /// An empty folder.
    pub(crate) fn bare() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: it need only differ.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("uverbs-discovery-{}-{count}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        let devices = Arc::default();
        Self { root, devices }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A link, such as a node to `/dev/null`.
    pub(crate) fn link(&self, path: &str, to: impl AsRef<Path>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(to, path).unwrap();
    }

    pub(crate) fn add_to_sysfs(&self, device: &Dev) {
        let Dev { name, uverbs, .. } = device;
        let (major, minor) = device.number;
        if device.has_uverbs {
            let file = |file: &str| format!("sys/class/infiniband_verbs/{uverbs}/{file}");
            self.write(&file("ibdev"), &format!("{name}\n"));
            self.write(&file("dev"), &format!("{major}:{minor}\n"));
            self.write(&file("abi_version"), &format!("{}\n", device.abi));
        }
        let file = |file: &str| format!("sys/class/infiniband/{name}/{file}");
        self.write(&file("node_type"), "1: CA\n");
        let words: Vec<_> = device
            .guid()
            .chunks(2)
            .map(|w| format!("{:02x}{:02x}", w[0], w[1]))
            .collect();
        self.write(&file("node_guid"), &format!("{}\n", words.join(":")));
        self.write(&file("fw_ver"), "\n");
    }

    /// Netlink closed.
    pub(crate) fn by_sysfs(&self) -> Discovery {
        Discovery::at(&self.root)
    }

    /// Netlink open.
    pub(crate) fn by_netlink(&self) -> Discovery {
        self.by(Netlink::default())
    }

    /// Netlink with a habit.
    pub(crate) fn by(&self, netlink: Netlink) -> Discovery {
        let devices = Arc::clone(&self.devices);
        Discovery::with_netlink(&self.root, move || match netlink.closed {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(Box::new(netlink.socket(Arc::clone(&devices)))),
        })
    }

    /// Both ways of looking.
    pub(crate) fn both(&self) -> [Discovery; 2] {
        [self.by_netlink(), self.by_sysfs()]
    }
}

/// The only device.
pub(crate) fn only(discovery: &Discovery) -> Device {
    let mut devices = discovery.devices().unwrap();
    assert_eq!(devices.len(), 1, "{devices:?}");
    devices.remove(0)
}

/// The error of an opening. If the node was opened, it is the first command that fails: the node is
/// no uverbs device.
pub(crate) fn error_of<T: std::fmt::Debug>(opened: Result<T, OpenError>) -> OpenError {
    opened.unwrap_err()
}

/// Whether a node was found and opened, under this name.
pub(crate) fn was_opened(error: &OpenError, name: &str) -> bool {
    matches!(error, OpenError::Command { device, .. } if device == name)
}

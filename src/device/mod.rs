//! The devices of this machine, as sysfs has them at the moment of asking.
//!
//! Ground truth: `Documentation/ABI/stable/sysfs-class-infiniband` and
//! `/sys/class/infiniband_verbs`. Nothing is cached and nothing is inferred from names: a device's
//! name can be changed at any time, `uverbsN` has nothing to do with the N in it, and which driver
//! it is the kernel is asked when it is opened. A virtual device (rxe, siw) has no PCI parent, and
//! needs none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::context::Context;
use crate::error::{ListError, OpenError};

/// The uverbs ABI that this crate speaks; the kernel has had no other since 2005.
pub(crate) const UVERBS_ABI: u32 = 6;

const CLASS: &str = "/sys/class/infiniband_verbs";
const NODES: &str = "/dev/infiniband";

/// A device that can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_device")]
pub struct Device {
    name: String,
    uverbs: String,
    number: u64,
    node: PathBuf,
    driver_abi: u32,
}

/// Lists the devices. A machine without any gives an empty list: that is no error.
///
/// # Errors
/// [`ListError`] if sysfs is there but cannot be read.
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
    scan(Path::new(CLASS), Path::new(NODES))
}

impl Device {
    /// Its name: `rxe0`, `mlx5_0`, … Names may be changed while a program runs.
    #[must_use]
    #[doc(alias = "ibv_get_device_name")]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its device node.
    #[must_use]
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// The version of the driver's own part of the ABI.
    #[must_use]
    pub const fn driver_abi(&self) -> u32 {
        self.driver_abi
    }

    /// The device number of the node, as `stat(2)` gives it in `st_rdev`.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Opens it.
    ///
    /// # Errors
    /// [`OpenError`], with what to do about it.
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self) -> Result<Context, OpenError> {
        Context::open_device(self)
    }
}

fn scan(class: &Path, nodes: &Path) -> Result<Vec<Device>, ListError> {
    let entries = match fs::read_dir(class) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            return Err(ListError {
                path: class.to_owned(),
                source,
            });
        }
    };
    let mut devices = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| ListError {
            path: class.to_owned(),
            source,
        })?;
        let file_name = entry.file_name();
        let Some(uverbs) = file_name.to_str().filter(|name| name.starts_with("uverbs")) else {
            continue;
        };
        // A device that is taken away meanwhile loses its files one after the other: it is gone.
        if let Some(device) = read_device(&entry.path(), uverbs, nodes) {
            devices.push(device);
        }
    }
    devices.sort_by_key(|device| device.number);
    Ok(devices)
}

fn read_device(dir: &Path, uverbs: &str, nodes: &Path) -> Option<Device> {
    Some(Device {
        name: read_word(&dir.join("ibdev"))?,
        uverbs: uverbs.to_owned(),
        number: parse_dev(&read_word(&dir.join("dev"))?)?,
        node: nodes.join(uverbs),
        driver_abi: read_word(&dir.join("abi_version"))?.parse().ok()?,
    })
}

fn read_word(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let word = text.trim();
    (!word.is_empty()).then(|| word.to_owned())
}

/// `major:minor` as `st_rdev`.
fn parse_dev(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// The uverbs ABI of the running kernel, or `None` if `ib_uverbs` is not loaded.
pub(crate) fn kernel_abi() -> Option<u32> {
    read_word(&Path::new(CLASS).join("abi_version"))?
        .parse()
        .ok()
}

/// A port's P_Keys, by index, as sysfs has them: the uverbs interface has no query for them.
pub(crate) fn pkeys(device: &str, port: u8) -> io::Result<Vec<u16>> {
    let dir = PathBuf::from(format!("/sys/class/infiniband/{device}/ports/{port}/pkeys"));
    let mut keys = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let index: Option<u32> = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.parse().ok());
        let text = fs::read_to_string(&path)?;
        let key = text
            .trim()
            .strip_prefix("0x")
            .and_then(|hex| u16::from_str_radix(hex, 16).ok());
        match (index, key) {
            (Some(index), Some(key)) => keys.push((index, key)),
            // Left out, it would shift those behind it.
            _ => {
                let what = format!("{} is no P_Key", path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
    }
    keys.sort_unstable();
    Ok(keys.into_iter().map(|(_, key)| key).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sysfs(devices: &[(&str, &str, &str, &str)]) -> PathBuf {
        let unique = format!("uverbs-scan-{}-{:p}", std::process::id(), devices);
        let root = std::env::temp_dir().join(unique);
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("abi_version"), "6\n").unwrap();
        for (uverbs, ibdev, dev, abi) in devices {
            let dir = root.join(uverbs);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("ibdev"), ibdev).unwrap();
            fs::write(dir.join("dev"), dev).unwrap();
            fs::write(dir.join("abi_version"), abi).unwrap();
        }
        root
    }

    #[test]
    fn no_class_directory_is_an_empty_list() {
        let devices = scan(Path::new("/nonexistent/class"), Path::new("/dev")).unwrap();
        assert!(devices.is_empty());
    }

    #[test]
    fn devices_come_in_node_order_whatever_their_names() {
        let root = sysfs(&[
            ("uverbs10", "a\n", "231:202\n", "2\n"),
            ("uverbs2", "mlx5_0\n", "231:194\n", "1\n"),
            ("uverbs0", "zz\n", "231:192\n", "2\n"),
        ]);
        let devices = scan(&root, Path::new("/dev/infiniband")).unwrap();
        let names: Vec<_> = devices.iter().map(Device::name).collect();
        assert_eq!(names, ["zz", "mlx5_0", "a"]);
        assert_eq!(devices[1].node(), Path::new("/dev/infiniband/uverbs2"));
        assert_eq!(devices[1].number(), libc::makedev(231, 194));
        assert_eq!(devices[1].driver_abi(), 1);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_device_that_is_half_gone_is_left_out() {
        let root = sysfs(&[
            ("uverbs0", "rxe0\n", "231:192\n", "2\n"),
            ("uverbs1", "rxe1\n", "nonsense\n", "2\n"),
            ("uverbs2", "", "231:194\n", "2\n"),
        ]);
        let devices = scan(&root, Path::new("/dev/infiniband")).unwrap();
        assert_eq!(
            devices.iter().map(Device::name).collect::<Vec<_>>(),
            ["rxe0"]
        );
        fs::remove_dir_all(root).unwrap();
    }

    proptest::proptest! {
        #[test]
        fn a_device_number_is_read_from_nothing_but_two_numbers(text in "[0-9]{0,11}:?[0-9]{0,11}.?") {
            let plain = text.split_once(':').and_then(|(major, minor)| {
                Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
            });
            let wanted = plain.map(|(major, minor)| libc::makedev(major, minor));
            proptest::prop_assert_eq!(parse_dev(&text), wanted);
        }

        #[test]
        fn no_text_is_too_odd_to_be_looked_at(text in ".*") {
            let _ = parse_dev(&text);
        }
    }
}

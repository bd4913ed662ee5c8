//! Discovery by reading sysfs, where netlink is closed; and what only sysfs has.
//!
//! Ground truth: `Documentation/ABI/stable/sysfs-class-infiniband`, `/sys/class/infiniband_verbs`
//! (`drivers/infiniband/core/uverbs_main.c`). Must never make one device of two: what was read from
//! a folder counts only if it was the same folder before and after.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::kind::{NetnsMode, NodeType};
use super::listing::Listing;
use super::{Device, Discovery, Mark};
use crate::error::OpenError;

const CLASS: &str = "class/infiniband_verbs";
/// How often a device is read that comes and goes meanwhile.
const TRIES: u32 = 5;

/// Fills the listing; the error names what could not be read.
pub(super) fn list(
    discovery: &Discovery,
    listing: &mut Listing,
) -> Result<(), (PathBuf, io::Error)> {
    let class = discovery.sys(CLASS);
    let entries = match fs::read_dir(&class) {
        Ok(entries) => entries,
        // Without the module there is no such class. Without any class there is no sysfs.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let classes = discovery.sys("class");
            return match fs::metadata(&classes) {
                Ok(_) => Ok(()),
                Err(error) => Err((classes, error)),
            };
        }
        Err(error) => return Err((class, error)),
    };
    for entry in entries {
        let entry = entry.map_err(|error| (class.clone(), error))?;
        let file_name = entry.file_name();
        let Some(uverbs) = file_name.to_str().filter(|name| name.starts_with("uverbs")) else {
            continue;
        };
        match read_device(discovery, uverbs) {
            Ok(Some(device)) => listing.devices.push(device),
            Ok(None) => {}
            Err(odd) => listing.odd.push(odd),
        }
    }
    Ok(())
}

/// Which modules are not loaded, in words. A module's class is there for as long as the module is;
/// without classes nothing is said.
pub(super) fn missing_modules(discovery: &Discovery) -> Option<&'static str> {
    let has = |class| fs::exists(discovery.sys(class)).ok();
    match (has("class")?, has(CLASS)?, has("class/infiniband")?) {
        (true, false, true) => Some("ib_uverbs is not loaded: `modprobe ib_uverbs`"),
        (true, false, false) => {
            Some("neither ib_core nor ib_uverbs is loaded: `modprobe ib_uverbs`")
        }
        _ => None,
    }
}

/// What a look at a device's files gave.
enum Look {
    Whole(Box<Device>),
    /// A file is gone or empty: so is the device.
    Going,
    Odd(String),
}

/// `None` if the device is gone.
fn read_device(discovery: &Discovery, uverbs: &str) -> Result<Option<Device>, String> {
    let mut last = Look::Going;
    for _ in 0..TRIES {
        let Some(folder) = folder_of(discovery, uverbs) else {
            return Ok(None);
        };
        last = look(discovery, uverbs, folder);
        // Files of a device that went, and of one that came to its place, are not mixed.
        if folder_of(discovery, uverbs) == Some(folder) {
            break;
        }
        last = match last {
            Look::Whole(_) => Look::Going,
            other => other,
        };
    }
    match last {
        Look::Whole(device) => Ok(Some(*device)),
        Look::Going => Ok(None),
        Look::Odd(what) => Err(what),
    }
}

fn look(discovery: &Discovery, uverbs: &str, folder: u64) -> Look {
    let dir = class_folder(discovery, uverbs);
    let (name, dev, abi) = match (
        word(&dir, "ibdev"),
        word(&dir, "dev"),
        word(&dir, "abi_version"),
    ) {
        (Some(name), Some(dev), Some(abi)) => (name, dev, abi),
        _ => return Look::Going,
    };
    let odd =
        |file: &str, text: &str| Look::Odd(format!("{} says {text:?}", dir.join(file).display()));
    let Some(number) = parse_dev(&dev) else {
        return odd("dev", &dev);
    };
    let Ok(driver_abi) = abi.parse() else {
        return odd("abi_version", &abi);
    };
    if name.contains('/') {
        return odd("ibdev", &name);
    }
    let more = discovery.sys("class/infiniband").join(&name);
    let (node_type, node_guid, fw_version) = (
        word(&more, "node_type").and_then(|text| parse_node_type(&text)),
        word(&more, "node_guid").and_then(|text| parse_guid(&text)),
        word(&more, "fw_ver"),
    );
    // Renamed meanwhile, the name may have led to another device.
    if word(&dir, "ibdev").as_ref() != Some(&name) {
        return Look::Going;
    }
    Look::Whole(Box::new(Device {
        node: OnceLock::new(),
        name,
        uverbs: uverbs.to_owned(),
        number,
        driver_abi,
        driver: None,
        node_type,
        node_guid,
        fw_version,
        mark: Mark::Folder(folder),
        discovery: discovery.clone(),
    }))
}

fn class_folder(discovery: &Discovery, uverbs: &str) -> PathBuf {
    discovery.sys(CLASS).join(uverbs)
}

/// The inode of a device's folder. The kernel numbers these folders on, and makes one anew with each
/// device.
fn folder_of(discovery: &Discovery, uverbs: &str) -> Option<u64> {
    let found = fs::metadata(class_folder(discovery, uverbs)).ok()?;
    Some(found.ino())
}

/// The present name of the device with this folder; `None` if it is gone.
pub(super) fn present_name(discovery: &Discovery, uverbs: &str, folder: u64) -> Option<String> {
    let name = name_of(discovery, uverbs)?;
    (folder_of(discovery, uverbs)? == folder).then_some(name)
}

/// The name of the device behind a node's name.
pub(super) fn name_of(discovery: &Discovery, uverbs: &str) -> Option<String> {
    word(&class_folder(discovery, uverbs), "ibdev")
}

/// Whether a device of that name is there at all, in whatever network namespace.
pub(super) fn has_name(discovery: &Discovery, name: &str) -> bool {
    let Ok(entries) = fs::read_dir(discovery.sys(CLASS)) else {
        return false;
    };
    entries
        .flatten()
        .any(|entry| word(&entry.path(), "ibdev").is_some_and(|found| found == name))
}

pub(super) fn netns_mode(discovery: &Discovery) -> Option<NetnsMode> {
    match &*word(&discovery.sys("module/ib_core/parameters"), "netns_mode")? {
        "Y" | "1" => Some(NetnsMode::Shared),
        "N" | "0" => Some(NetnsMode::Exclusive),
        _ => None,
    }
}

pub(super) fn kernel_abi(discovery: &Discovery) -> Result<Option<u32>, OpenError> {
    let class = discovery.sys(CLASS);
    let Some(text) = word(&class, "abi_version") else {
        return Ok(None);
    };
    match text.parse() {
        Ok(abi) => Ok(Some(abi)),
        Err(_) => Err(OpenError::OddKernelAbi {
            path: class.join("abi_version"),
            text,
        }),
    }
}

/// The text of a file without its line end; `None` if it is gone or empty.
fn word(folder: &Path, file: &str) -> Option<String> {
    let bytes = fs::read(folder.join(file)).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_end_matches(['\n', '\0']);
    (!text.is_empty()).then(|| text.to_owned())
}

/// `major:minor` as `st_rdev`.
fn parse_dev(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// `1: CA`
fn parse_node_type(text: &str) -> Option<NodeType> {
    let (number, _) = text.split_once(':')?;
    number.parse().ok().map(NodeType::from_raw)
}

/// `0011:22ff:fe33:4455`
fn parse_guid(text: &str) -> Option<[u8; 8]> {
    let mut guid = [0; 8];
    let mut words = text.split(':');
    for pair in guid.chunks_exact_mut(2) {
        let word = words.next().filter(|word| word.len() == 4)?;
        if !word.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        pair.copy_from_slice(&u16::from_str_radix(word, 16).ok()?.to_be_bytes());
    }
    words.next().is_none().then_some(guid)
}

/// All P_Keys in a folder, by index.
pub(super) fn pkeys(dir: &Path) -> io::Result<Vec<u16>> {
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn guids_have_four_words_of_four_digits() {
        let guid = [0x00, 0x11, 0x22, 0xFF, 0xFE, 0x33, 0x44, 0x55];
        assert_eq!(parse_guid("0011:22ff:fe33:4455"), Some(guid));
        for odd in [
            "",
            "0011:22ff:fe33",
            "0011:22ff:fe33:4455:6",
            "11:22ff:fe33:4455",
            "+011:22ff:fe33:4455",
        ] {
            assert_eq!(parse_guid(odd), None, "{odd}");
        }
        assert_eq!(parse_node_type("1: CA"), Some(NodeType::Ca));
        assert_eq!(parse_node_type("CA"), None);
    }

    proptest! {
        #[test]
        fn a_device_number_is_read_from_nothing_but_two_numbers(text in "[0-9]{0,11}:?[0-9]{0,11}.?") {
            let plain = text.split_once(':').and_then(|(major, minor)| {
                Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
            });
            let wanted = plain.map(|(major, minor)| libc::makedev(major, minor));
            prop_assert_eq!(parse_dev(&text), wanted);
        }

        #[test]
        fn a_guid_comes_back(guid: [u8; 8]) {
            let words: Vec<_> = guid.chunks(2).map(|w| format!("{:02x}{:02x}", w[0], w[1])).collect();
            prop_assert_eq!(parse_guid(&words.join(":")), Some(guid));
        }

        #[test]
        fn no_text_is_too_odd_to_be_looked_at(text in ".*") {
            let _ = (parse_dev(&text), parse_node_type(&text), parse_guid(&text));
        }
    }
}

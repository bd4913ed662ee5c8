//! Finds the node of a device by its device number, whatever it is called.
//!
//! Ground truth: `drivers/infiniband/core/uverbs_main.c` for the kernel's name, and the kernel's
//! `Documentation/admin-guide/devices.txt` for `/dev/char`. Must never take a node for the device's
//! because of its name alone.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::Discovery;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    /// A node with the device's number.
    Here(PathBuf),
    /// None; but what has the kernel's name for it is another's, with this number, or no node.
    Stale {
        path: PathBuf,
        found: Option<(u32, u32)>,
    },
    /// None; this is where it should be.
    Missing(PathBuf),
}

impl Node {
    /// Where it is, or should be.
    pub(super) fn path(self) -> PathBuf {
        match self {
            Self::Here(path) | Self::Stale { path, .. } | Self::Missing(path) => path,
        }
    }
}

/// Looks under the kernel's name, then under the number, then at all of `/dev/infiniband`.
pub(super) fn find(discovery: &Discovery, uverbs: &str, number: u64) -> Node {
    let usual = discovery.node(uverbs);
    let there = fs::metadata(&usual).ok();
    if has_number(&usual, number) {
        return Node::Here(usual);
    }
    let by_number = format!("char/{}:{}", libc::major(number), libc::minor(number));
    let by_number = discovery.dev().join(by_number);
    if has_number(&by_number, number) {
        // A link: the name behind it says more.
        return Node::Here(fs::canonicalize(&by_number).unwrap_or(by_number));
    }
    if let Some(path) = search(&discovery.dev().join("infiniband"), number, 1) {
        return Node::Here(path);
    }
    match there {
        Some(there) => Node::Stale {
            path: usual,
            found: there
                .file_type()
                .is_char_device()
                .then(|| (libc::major(there.rdev()), libc::minor(there.rdev()))),
        },
        None => Node::Missing(usual),
    }
}

fn has_number(path: &Path, number: u64) -> bool {
    fs::metadata(path)
        .is_ok_and(|found| found.file_type().is_char_device() && found.rdev() == number)
}

/// The first node with this number in a folder, by name, or in the folders in it.
fn search(folder: &Path, number: u64, depth: u32) -> Option<PathBuf> {
    let paths = || {
        let entries = fs::read_dir(folder).ok().into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path()))
    };
    if let Some(path) = paths().filter(|path| has_number(path, number)).min() {
        return Some(path);
    }
    let depth = depth.checked_sub(1)?;
    let folders = paths().filter(|path| path.is_dir());
    folders
        .filter_map(|folder| search(&folder, number, depth))
        .min()
}

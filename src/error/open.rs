//! Why a device could not be listed or opened.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use uverbs_abi::netlink::NetlinkError;
use uverbs_abi::{CommandError, Errno, Explain, Report};

use super::into_io;
use crate::diagnose;

/// The device list could not be read: netlink was closed, and sysfs could not be read.
#[derive(Debug, Error)]
#[error(
    "cannot list RDMA devices: {path}: {source}; and over netlink: {netlink} (in a container: is \
     /sys there, or may it use netlink?)",
    path = path.display()
)]
#[non_exhaustive]
pub struct ListError {
    /// What was being read in sysfs.
    pub path: PathBuf,
    /// What the kernel said to that.
    pub source: io::Error,
    /// Why netlink did not answer.
    pub netlink: NetlinkError,
}

/// A device could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no device of that name.
    #[error(
        "no RDMA device is called {name:?}; {}{}",
        present_devices(present, hints),
        also(hints)
    )]
    NoSuchDevice {
        /// The name asked for.
        name: String,
        /// The names there are.
        present: Vec<String>,
        /// What may explain it, in words.
        hints: Vec<String>,
    },
    /// The list could not be read.
    #[error(transparent)]
    List(#[from] ListError),
    /// The device node could not be opened.
    #[error("cannot open {path}: {source}{}", node_hint(source), path = path.display())]
    Node {
        /// The node.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// What has the device's name in `/dev/infiniband` is another device's node, or no node, and no
    /// node there has the device's number.
    #[error(
        "cannot open {path}: it is stale: it is {}, the device has number {}:{}; run udev, or make \
         the node anew (in a container: pass /dev/infiniband in again)",
        what_is_there(*found), wanted.0, wanted.1, path = path.display()
    )]
    StaleNode {
        /// The stale node.
        path: PathBuf,
        /// Its major and minor number; `None` if it is no character device.
        found: Option<(u32, u32)>,
        /// The device's.
        wanted: (u32, u32),
    },
    /// The device that was listed is gone, and perhaps another has come to its place.
    #[error(
        "the device that was listed as {device} is gone ({}); list the devices again",
        whose(uverbs, now.as_deref())
    )]
    Replaced {
        /// Its name when it was listed.
        device: String,
        /// The kernel's name of its node.
        uverbs: String,
        /// Whose that node is by now.
        now: Option<String>,
    },
    /// The device belongs to another network namespace.
    #[error(
        "cannot open {path}: {source}; RDMA devices belong to one network namespace each here \
         (`rdma system show`: netns exclusive), and {device} not to this one: `rdma dev set {device} \
         netns …` moves it",
        path = path.display()
    )]
    OtherNamespace {
        /// The device.
        device: String,
        /// Its node.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The running kernel speaks another uverbs ABI.
    #[error("the kernel speaks uverbs ABI {found}, this crate speaks {wanted}{}", which_is_old(*found, *wanted))]
    KernelAbi {
        /// The kernel's.
        found: u32,
        /// Ours.
        wanted: u32,
    },
    /// What sysfs says of the kernel's uverbs ABI is no number.
    #[error("{path} says {text:?}, which is no version of the uverbs ABI", path = path.display())]
    OddKernelAbi {
        /// The file.
        path: PathBuf,
        /// What it says.
        text: String,
    },
    /// The kernel refused a command that opening needs.
    #[error("cannot open {device}: {source}{}", old_kernel_hint(source))]
    Command {
        /// The device.
        device: String,
        /// The refusal.
        source: CommandError,
    },
    /// The descriptors for waiting on events could not be prepared.
    #[error("cannot open {device}: no descriptor for waiting on events: {source}")]
    Events {
        /// The device.
        device: String,
        /// The refusal.
        source: io::Error,
    },
}

fn present_devices(present: &[String], hints: &[String]) -> String {
    if present.is_empty() {
        // What a hint says of it is known, and not asked.
        let says = |what: &str| hints.iter().any(|hint| hint.contains(what));
        if says("the kernel has it") {
            return "there is none at all".to_owned();
        }
        let asked = if says("ib_uverbs") {
            ""
        } else {
            ", and ib_uverbs"
        };
        format!("there is none at all (is a driver such as rdma_rxe loaded{asked}?)")
    } else {
        format!("there are: {}", present.join(", "))
    }
}

fn also(hints: &[String]) -> String {
    hints.iter().map(|hint| format!("; {hint}")).collect()
}

fn what_is_there(found: Option<(u32, u32)>) -> String {
    match found {
        Some((major, minor)) => format!("the node of {major}:{minor}"),
        None => "no character device".to_owned(),
    }
}

fn whose(uverbs: &str, now: Option<&str>) -> String {
    match now {
        Some(name) => format!("{uverbs} is {name}'s now"),
        None => format!("there is no {uverbs} any more"),
    }
}

fn which_is_old(found: u32, wanted: u32) -> &'static str {
    if found > wanted {
        "; a newer version of this crate is needed"
    } else {
        "; a newer kernel is needed"
    }
}

impl OpenError {
    /// Whether the device went away, so that a new listing may find another of its name.
    pub(crate) fn is_replaced(&self) -> bool {
        match self {
            Self::Replaced { .. } => true,
            // Gone after it had been opened.
            Self::Command { source, .. } => source.errno() == Some(Errno::EIO),
            _ => false,
        }
    }
}

fn node_hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "; this process may not: look at the node's mode and group, and in a container at its \
             device rules"
        }
        Some(libc::ENOENT) => {
            "; the kernel has the device, /dev has no node for it: run udev, or make the node (in a \
             container: pass /dev/infiniband in)"
        }
        Some(libc::ENXIO | libc::ENODEV) => "; the device has been removed",
        _ => "",
    }
}

fn old_kernel_hint(source: &CommandError) -> &'static str {
    if source.is_unsupported() {
        "; the oldest kernel that this crate was tried on is Linux 6.1"
    } else {
        ""
    }
}

impl Explain for ListError {
    fn errno(&self) -> Option<Errno> {
        self.source.raw_os_error().map(Errno::from_raw)
    }

    fn explain(&self, report: &mut Report) {
        report.cause("in a container: /sys is not mounted, or its rules forbid netlink sockets");
        report.next("mount /sys, or let the process have netlink sockets (NETLINK_RDMA)");
    }
}

impl Explain for OpenError {
    fn errno(&self) -> Option<Errno> {
        match self {
            Self::List(error) => error.errno(),
            Self::Node { source, .. }
            | Self::OtherNamespace { source, .. }
            | Self::Events { source, .. } => source.raw_os_error().map(Errno::from_raw),
            Self::Command { source, .. } => source.errno(),
            _ => None,
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::NoSuchDevice { .. } | Self::StaleNode { .. } | Self::Replaced { .. } => {
                io::ErrorKind::NotFound
            }
            Self::KernelAbi { .. } => io::ErrorKind::Unsupported,
            Self::OddKernelAbi { .. } => io::ErrorKind::InvalidData,
            Self::Command { source, .. } => source.kind(),
            Self::List(ListError { source, .. })
            | Self::Node { source, .. }
            | Self::OtherNamespace { source, .. }
            | Self::Events { source, .. } => source.kind(),
        }
    }

    fn explain(&self, report: &mut Report) {
        match self {
            Self::List(error) => error.explain(report),
            Self::Command { source, .. } => source.explain(report),
            Self::NoSuchDevice { present, .. } if present.is_empty() => {
                report.cause("no driver has made a device: software RDMA needs a command for each");
                report.cause("the module of the driver is not loaded, or ib_uverbs is not");
                report.next(
                    "`modprobe ib_uverbs` and the driver; for soft RoCE `modprobe rdma_rxe` and \
                     `rdma link add NAME type rxe netdev INTERFACE`",
                );
                report.next("`rdma link` shows what the kernel has");
            }
            Self::NoSuchDevice { .. } => {
                report.cause("it is misspelt");
                report.cause("it is the name of a node or of a network interface, not of a device");
                report.cause("a rule of udev gave the device another name");
                report.next(
                    "take one of the names there are; `devices` gives each with its node, and opens it",
                );
            }
            Self::Node { path, source } => node(path, source, report),
            Self::StaleNode { path, .. } => {
                report
                    .meaning("nothing under /dev/infiniband or /dev/char has the device's number");
                report.cause("the device was removed and made anew, and the node is the old one's");
                report.cause("a container was given its nodes when it was started");
                report.next(format!(
                    "compare `ls -l {}` with the `dev` file in /sys/class/infiniband_verbs",
                    path.display()
                ));
            }
            Self::Replaced { .. } => {
                report.meaning("what was listed is never mistaken for what has its place now");
                report.cause("the device was removed, or its driver reloaded, after the listing");
                report.next("list again, and open what is listed then");
            }
            Self::OtherNamespace { .. } => {
                report.next("run the program in the device's network namespace: `ip netns exec`");
                report.next(
                    "or let all share them, before there are namespaces: `rdma system set netns shared`",
                );
            }
            Self::KernelAbi { .. } => {
                report
                    .meaning("it is the version of the whole interface, not of one driver's part");
            }
            Self::OddKernelAbi { path, .. } => {
                report.cause("something else than sysfs is mounted there");
                report.next(format!("`findmnt -T {}` shows what it is", path.display()));
            }
            Self::Events { source, .. } => too_many_files(source, report),
        }
    }
}

fn node(path: &Path, source: &io::Error, report: &mut Report) {
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            if let Some(rights) = diagnose::rights(path) {
                report.found(rights);
            }
            report.cause("the process is in no group that may open the node");
            report.cause("the rules of its container do not let it have the device");
            report.next("let a udev rule give the node a group, and join it");
        }
        Some(libc::ENOENT) => {
            report.cause("a container was given no nodes, or was started before the device came");
            report.cause("udev is not running");
        }
        Some(libc::ENXIO | libc::ENODEV) => {
            report.cause("the device was removed, or its driver unloaded");
            report.next("list the devices again");
        }
        _ => too_many_files(source, report),
    }
}

fn too_many_files(source: &io::Error, report: &mut Report) {
    if let Some(errno) = source.raw_os_error() {
        uverbs_abi::error::too_many_files(Errno::from_raw(errno), report);
    }
}

into_io!(ListError, OpenError);

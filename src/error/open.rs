//! Why a device could not be listed or opened.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use uverbs_abi::{CommandError, Errno, Explain, Report};

use super::into_io;

/// The device list could not be read.
#[derive(Debug, Error)]
#[error("cannot list RDMA devices: {path}: {source}", path = path.display())]
pub struct ListError {
    /// What was being read.
    pub path: PathBuf,
    /// What the kernel said.
    pub source: io::Error,
}

/// A device could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no device of that name.
    #[error("no RDMA device is called {name:?}; {}", present_devices(present))]
    NoSuchDevice {
        /// The name asked for.
        name: String,
        /// The names there are.
        present: Vec<String>,
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
    /// The running kernel speaks another uverbs ABI.
    #[error("the kernel speaks uverbs ABI {found}, this crate speaks {wanted}")]
    KernelAbi {
        /// The kernel's.
        found: u32,
        /// Ours.
        wanted: u32,
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

fn present_devices(present: &[String]) -> String {
    if present.is_empty() {
        "there is none at all (is a driver such as rdma_rxe loaded, and ib_uverbs?)".to_owned()
    } else {
        format!("there are: {}", present.join(", "))
    }
}

fn node_hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "; this process may not: look at the node's mode and group, and in a container at its \
             device rules"
        }
        Some(libc::ENOENT) => {
            "; sysfs has the device, /dev has no node for it: run udev, or make the node (in a \
             container: pass /dev/infiniband in)"
        }
        Some(libc::ENXIO | libc::ENODEV) => "; the device has been removed",
        _ => "",
    }
}

fn old_kernel_hint(source: &CommandError) -> &'static str {
    if source.is_unsupported() {
        "; this crate needs Linux 5.10 or newer"
    } else {
        ""
    }
}

impl Explain for ListError {
    fn errno(&self) -> Option<Errno> {
        self.source.raw_os_error().map(Errno::from_raw)
    }
}

impl Explain for OpenError {
    fn errno(&self) -> Option<Errno> {
        match self {
            Self::List(error) => error.errno(),
            Self::Node { source, .. } | Self::Events { source, .. } => {
                source.raw_os_error().map(Errno::from_raw)
            }
            Self::Command { source, .. } => source.errno(),
            _ => None,
        }
    }

    fn explain(&self, report: &mut Report) {
        match self {
            Self::List(error) => error.explain(report),
            Self::Command { source, .. } => source.explain(report),
            _ => {}
        }
    }
}

into_io!(ListError, OpenError);

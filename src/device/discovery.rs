//! Where discovery looks: the kernel's netlink, `/sys` and `/dev`, or what a test puts there.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uverbs_abi::netlink::{Client, NetlinkError, Protocol, Socket, Transport};

use super::kind::NetnsMode;
use super::listing::Listing;
use super::{Device, Mark, netlink, sysfs};
use crate::context::Context;
use crate::error::{ListError, OpenError};
use crate::options::OpenOptions;

/// How often a device that goes away while it is opened is looked for again by its name.
const TRIES: u32 = 5;

type Connect = dyn Fn() -> io::Result<Box<dyn Transport>> + Send + Sync;

/// The system's netlink, or a test's.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives on the stack while a device is looked for, which saves an allocation"
)]
pub(crate) enum Wire {
    System(Socket),
    Other(Box<dyn Transport>),
}

impl Transport for Wire {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::System(socket) => socket.send(message),
            Self::Other(other) => other.send(message),
        }
    }

    fn receive(&mut self, datagram: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::System(socket) => socket.receive(datagram),
            Self::Other(other) => other.receive(datagram),
        }
    }
}

/// Where devices are looked for. A seam for tests: programs call [`devices`](super::devices) and
/// [`Context::open`].
#[derive(Clone)]
pub struct Discovery {
    inner: Arc<Inner>,
}

struct Inner {
    root: PathBuf,
    /// `None`: the system's.
    connect: Option<Box<Connect>>,
}

impl Discovery {
    /// The running system's.
    #[must_use]
    pub fn system() -> Self {
        Self::new("/".into(), None)
    }

    /// `sys` and `dev` under a folder, and netlink closed.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self::with_netlink(root, || {
            Err(io::Error::from_raw_os_error(libc::EPROTONOSUPPORT))
        })
    }

    /// `sys` and `dev` under a folder, and another netlink.
    #[must_use]
    pub fn with_netlink(
        root: impl Into<PathBuf>,
        connect: impl Fn() -> io::Result<Box<dyn Transport>> + Send + Sync + 'static,
    ) -> Self {
        Self::new(root.into(), Some(Box::new(connect)))
    }

    fn new(root: PathBuf, connect: Option<Box<Connect>>) -> Self {
        Self {
            inner: Arc::new(Inner { root, connect }),
        }
    }

    /// Lists the devices.
    ///
    /// # Errors
    /// [`ListError`].
    pub fn devices(&self) -> Result<Vec<Device>, ListError> {
        Ok(Listing::read(self)?.devices)
    }

    /// Opens the device with this name.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(&self, name: &str) -> Result<Context, OpenError> {
        self.open_with(name, &OpenOptions::new())
    }

    pub(crate) fn open_with(
        &self,
        name: &str,
        options: &OpenOptions,
    ) -> Result<Context, OpenError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let (device, told_by) = match netlink::named(self, name) {
                Ok(Some((device, client))) => (device, Some(client)),
                // Not seen, or netlink is closed: the whole list says what there is.
                _ => (self.listed(name)?, None),
            };
            match Context::open_device(&device, told_by, options) {
                // It may have been removed and added again: by its name it is looked for again.
                Err(error) if error.is_replaced() && tries < TRIES => {}
                result => return result,
            }
        }
    }

    fn listed(&self, name: &str) -> Result<Device, OpenError> {
        let mut listing = Listing::read(self)?;
        match listing
            .devices
            .iter()
            .position(|device| device.name == name)
        {
            Some(place) => Ok(listing.devices.swap_remove(place)),
            None => Err(OpenError::NoSuchDevice {
                name: name.to_owned(),
                hints: listing.hints_for(name, self),
                present: listing
                    .devices
                    .into_iter()
                    .map(|device| device.name)
                    .collect(),
            }),
        }
    }

    /// Whether network namespaces share devices.
    #[must_use]
    pub fn netns_mode(&self) -> Option<NetnsMode> {
        netlink::netns_mode(self).or_else(|| sysfs::netns_mode(self))
    }

    /// The uverbs ABI of the running kernel: `None` if sysfs has none, an error if it is no number.
    pub(super) fn kernel_abi(&self) -> Result<Option<u32>, OpenError> {
        sysfs::kernel_abi(self)
    }

    pub(super) fn present_name(&self, device: &Device) -> Option<String> {
        match device.mark {
            Mark::Index(index) => netlink::present_name(self, index).ok().flatten(),
            Mark::Folder(folder) => sysfs::present_name(self, &device.uverbs, folder),
        }
    }

    pub(super) fn netlink(&self) -> Result<Client<Wire>, NetlinkError> {
        Ok(Client::new(match &self.inner.connect {
            None => Wire::System(Socket::open(Protocol::Rdma)?),
            Some(connect) => Wire::Other(connect()?),
        }))
    }

    pub(super) fn sys(&self, path: &str) -> PathBuf {
        self.inner.root.join("sys").join(path)
    }

    pub(super) fn dev(&self) -> PathBuf {
        self.inner.root.join("dev")
    }

    /// Where the kernel's own name for a node would have it.
    pub(super) fn node(&self, uverbs: &str) -> PathBuf {
        self.dev().join("infiniband").join(uverbs)
    }

    /// A port's P_Keys, by index, as sysfs has them: the uverbs interface has no query for them.
    pub(crate) fn pkeys(&self, device: &str, port: u8) -> io::Result<Vec<u16>> {
        sysfs::pkeys(&self.sys(&format!("class/infiniband/{device}/ports/{port}/pkeys")))
    }
}

impl Default for Discovery {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root: &Path = &self.inner.root;
        f.debug_struct("Discovery")
            .field("root", &root)
            .finish_non_exhaustive()
    }
}

//! An open device.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use uverbs_abi::layout::driver::DriverId;
use uverbs_abi::layout::ids::{attr, method, object};
use uverbs_abi::layout::verbs as raw;
use uverbs_abi::netlink::Client;
use uverbs_abi::{Cause, Command, CommandError, Errno, IoctlOnly, Kernel, Session};
use uverbs_providers::contract::Provider;
use uverbs_providers::error::CloseError;
use uverbs_providers::types::QueueId;
use uverbs_providers::verbs;
use zerocopy::{FromBytes, IntoBytes};

use crate::attr::{DeviceAttr, PortAttr};
use crate::channel::CompletionChannel;
use crate::cq::CompletionQueueBuilder;
use crate::device::{Device, Discovery, OpenFile, Wire, other_abi};
use crate::error::{AllocPdError, CreateError, OpenError, QueryError, QueryTarget};
use crate::event::{AsyncEvents, EventQueueError, EventSource};
use crate::gid::{Gid, GidEntry, GidType};
use crate::living::Living;
use crate::options::OpenOptions;
use crate::pd::ProtectionDomain;

/// An open device: the root of everything made on it.
///
/// A cheap handle. The device is closed when the last handle, and the last object made through it,
/// is gone.
///
/// A device whose driver has no provider in this crate opens all the same, for control only: it
/// answers queries, has protection domains and delivers events; making queues on it fails with
/// [`NoProvider`](crate::CreateErrorCause::NoProvider).
#[derive(Clone)]
#[doc(alias = "ibv_context")]
pub struct Context {
    inner: Arc<ContextInner>,
}

struct ContextInner {
    events: Arc<EventSource>,
    session: Arc<Session>,
    provider: Option<&'static dyn Provider>,
    driver: DriverId,
    driver_abi: u32,
    name: String,
    node: PathBuf,
    /// What it was opened from; a played kernel has none.
    device: Option<Device>,
    /// A fake device's; every other's are asked of sysfs.
    fake_pkeys: OnceLock<Vec<u16>>,
    num_comp_vectors: u32,
    leaked: AtomicU64,
    /// For errors only.
    living: Living,
}

/// The most entries of a GID table that one query can carry (an attribute holds 65,535 bytes).
const MAX_GIDS: usize = 2047;
/// What most tables have at most.
const USUAL_GIDS: usize = 64;

impl Context {
    /// Opens the device with this name.
    ///
    /// # Errors
    /// [`OpenError`], with what to do about it.
    pub fn open(name: &str) -> Result<Self, OpenError> {
        Discovery::system().open(name)
    }

    /// `told_by` is the socket that has just told of the device, by its name.
    pub(crate) fn open_device(
        device: &Device,
        told_by: Option<Client<Wire>>,
        options: &OpenOptions,
    ) -> Result<Self, OpenError> {
        let file = OpenFile::open(device, told_by)?;
        let kernel: Arc<dyn Kernel> = if options.wants_ioctl_only() {
            Arc::new(IoctlOnly(file.kernel))
        } else {
            Arc::new(file.kernel)
        };
        let (name, node) = (&file.name, &file.node);
        let provider = uverbs_providers::for_driver;
        let from = Some(device.clone());
        Self::start((kernel, from), name, node, device.driver_abi(), provider)
    }

    /// A context on any implementation of the kernel's side: the seam for tests without a device.
    ///
    /// # Errors
    /// [`OpenError`] if that kernel refuses.
    pub fn on_kernel(
        kernel: Arc<dyn Kernel>,
        name: &str,
        node: &Path,
        driver_abi: u32,
    ) -> Result<Self, OpenError> {
        Self::start(
            (kernel, None),
            name,
            node,
            driver_abi,
            uverbs_providers::for_driver,
        )
    }

    /// As [`on_kernel`](Self::on_kernel), with a provider of the caller's for the queues, or with
    /// `None` for control only, whatever the driver. It is used if it speaks the driver's ABI.
    ///
    /// For tests of providers, and for drivers that no provider of this crate is for. What a context
    /// runs is as sound as its kernel and its provider are: who opens a device node by
    /// [`UverbsFd::open`](uverbs_abi::sys::UverbsFd::open) has vouched for that there.
    ///
    /// # Errors
    /// [`OpenError`] if that kernel refuses.
    pub fn on_kernel_with(
        kernel: Arc<dyn Kernel>,
        name: &str,
        node: &Path,
        driver_abi: u32,
        provider: Option<&'static dyn Provider>,
    ) -> Result<Self, OpenError> {
        Self::start((kernel, None), name, node, driver_abi, |_| provider)
    }

    fn start(
        (kernel, device): (Arc<dyn Kernel>, Option<Device>),
        name: &str,
        node: &Path,
        driver_abi: u32,
        provider: impl Fn(DriverId) -> Option<&'static dyn Provider>,
    ) -> Result<Self, OpenError> {
        let command = |source| OpenError::Command {
            device: name.to_owned(),
            source,
        };
        let first = |source| match device.as_ref().and_then(other_abi) {
            Some(explained) => explained,
            None => command(source),
        };
        let probe =
            || verbs::context::probe_driver(&*kernel, uverbs_providers::built_in()).map_err(first);
        let provider = |driver| {
            provider(driver).filter(|provider| provider.driver_abis().contains(&driver_abi))
        };
        let start = |driver: DriverId| {
            let session = Arc::new(Session::new(Arc::clone(&kernel), driver.to_raw()));
            // A driver without a provider here may insist on saying something of itself (siw does):
            // it gets room for that, and nobody reads it.
            let mut unread = [0; 128];
            let room = match provider(driver) {
                Some(_) => &mut [][..],
                None => &mut unread[..],
            };
            let context = verbs::context::get_context(&session, room)?;
            Ok::<_, CommandError>((session, context))
        };
        let told = device.as_ref().and_then(Device::driver);
        let (driver, started) = match told.map(|driver| (driver, start(driver))) {
            // Not the driver's number, perhaps. The file itself knows.
            Some((_, Err(error))) if error.errno() == Some(Errno::EINVAL) => {
                let driver = probe()?;
                (driver, start(driver))
            }
            Some(started) => started,
            None => {
                let driver = probe()?;
                (driver, start(driver))
            }
        };
        let (session, context) = started.map_err(first)?;
        let provider = provider(driver);
        let events = verbs::context::alloc_async_events(&session).map_err(command)?;
        let events = EventSource::new(events, Arc::clone(session.status()))
            .map(Arc::new)
            .map_err(|source| OpenError::Events {
                device: name.to_owned(),
                source,
            })?;
        Ok(Self {
            inner: Arc::new(ContextInner {
                events,
                session,
                provider,
                driver,
                driver_abi,
                name: name.to_owned(),
                node: node.to_owned(),
                device,
                fake_pkeys: OnceLock::new(),
                num_comp_vectors: context.num_comp_vectors,
                leaked: AtomicU64::new(0),
                living: Living::default(),
            }),
        })
    }

    /// The device's name when it was opened.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The device node that is open.
    #[must_use]
    pub fn node(&self) -> &Path {
        &self.inner.node
    }

    /// The kernel driver behind it, as the kernel says.
    #[must_use]
    pub fn driver(&self) -> DriverId {
        self.inner.driver
    }

    /// Whether this crate has a provider for the device, so that queues can be made on it.
    #[must_use]
    pub fn has_provider(&self) -> bool {
        self.inner.provider.is_some()
    }

    /// Completion vectors: completion queues may name one below this number.
    #[must_use]
    pub fn num_comp_vectors(&self) -> u32 {
        self.inner.num_comp_vectors
    }

    /// Whether the device is known to have been removed. Once true it stays so.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.inner.session.is_gone()
    }

    /// Asks for the device's limits and capabilities.
    ///
    /// # Errors
    /// [`QueryError`].
    #[doc(alias = "ibv_query_device")]
    #[doc(alias = "ibv_query_device_ex")]
    pub fn query_device(&self) -> Result<DeviceAttr, QueryError> {
        Ok(DeviceAttr::from(verbs::context::query_device(
            self.session(),
        )?))
    }

    /// Asks for a port's state; ports count from 1.
    ///
    /// # Errors
    /// [`QueryError`].
    #[doc(alias = "ibv_query_port")]
    pub fn query_port(&self, port: u8) -> Result<PortAttr, QueryError> {
        let asked = verbs::context::query_port(self.session(), port);
        asked.map(PortAttr::from).map_err(|source| {
            let ports = self.ports_if_refused(&source);
            QueryError::about(source, QueryTarget::Port { port, ports })
        })
    }

    /// Looks one entry of a port's GID table up; `None` if it is empty.
    ///
    /// # Errors
    /// [`QueryError`]; `EINVAL` for a port or an index that the device lacks.
    #[doc(alias = "ibv_query_gid")]
    #[doc(alias = "ibv_query_gid_ex")]
    pub fn query_gid(&self, port: u8, index: u32) -> Result<Option<GidEntry>, QueryError> {
        match verbs::context::query_gid_entry(self.session(), u32::from(port), index) {
            Ok(entry) => Ok(Some(gid_entry(&entry)).filter(|entry| !entry.gid.is_zero())),
            Err(CommandError {
                cause: Cause::Errno(errno),
                ..
            }) if errno == Errno::from_raw(libc::ENODATA) => Ok(None),
            Err(source) => {
                let ports = self.ports_if_refused(&source);
                let there = ports.is_some_and(|ports| port != 0 && port <= ports);
                let attr = there.then(|| self.query_port(port)).and_then(Result::ok);
                let target = QueryTarget::Gid {
                    port,
                    index,
                    ports,
                    entries: attr.map(|attr| attr.gid_tbl_len),
                };
                Err(QueryError::about(source, target))
            }
        }
    }

    /// How many ports there are, for a refusal that may be about a port that is not there.
    fn ports_if_refused(&self, refusal: &CommandError) -> Option<u8> {
        if refusal.errno() != Some(Errno::EINVAL) {
            return None;
        }
        let device = self.query_device().ok()?;
        Some(device.phys_port_cnt)
    }

    /// Lists the filled entries of a port's GID table.
    ///
    /// # Errors
    /// [`QueryError`].
    #[doc(alias = "ibv_query_gid_table")]
    pub fn gids(&self, port: u8) -> Result<Vec<GidEntry>, QueryError> {
        let found: Vec<_> = self.with_gid_table(|entries| {
            let here = |entry: &GidEntry| entry.port == u32::from(port);
            entries.iter().map(gid_entry).filter(here).collect()
        })?;
        if found.is_empty() {
            // No entry, or no such port? Here the kernel says which.
            self.query_port(port)?;
        }
        Ok(found)
    }

    /// Hands the filled entries of all ports' GID tables to `look`. Most tables fit on the stack.
    fn with_gid_table<T>(
        &self,
        look: impl FnOnce(&[raw::ib_uverbs_gid_entry]) -> T,
    ) -> Result<T, CommandError> {
        let mut room = [raw::ib_uverbs_gid_entry::default(); USUAL_GIDS];
        let mut more = Vec::new();
        let mut entries = &mut room[..];
        loop {
            match self.gid_table(entries) {
                // The table has more entries than there was room for.
                Err(CommandError {
                    cause: Cause::Errno(Errno::EINVAL),
                    ..
                }) if entries.len() < MAX_GIDS => {
                    let len = (entries.len() * 4).min(MAX_GIDS);
                    more.resize(len, raw::ib_uverbs_gid_entry::default());
                    entries = &mut more[..];
                }
                Err(error) => return Err(error),
                Ok(count) => return Ok(look(entries.get(..count).unwrap_or(entries))),
            }
        }
    }

    fn gid_table(&self, entries: &mut [raw::ib_uverbs_gid_entry]) -> Result<usize, CommandError> {
        let mut count = 0u64;
        let mut command = Command::new(
            "QUERY_GID_TABLE",
            object::DEVICE,
            method::device::QUERY_GID_TABLE,
        );
        command
            .constant(
                attr::query_gid_table::ENTRY_SIZE,
                size_of::<raw::ib_uverbs_gid_entry>() as u64,
            )
            .flags(attr::query_gid_table::FLAGS, 0)
            .output_bytes(attr::query_gid_table::RESP_ENTRIES, entries.as_mut_bytes())
            .output(attr::query_gid_table::RESP_NUM_ENTRIES, &mut count);
        self.session().run(&mut command)?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// The entry of a port's GID table with which a peer is best reached: global before link-local,
    /// RoCE v2 before v1; `None` if the port has no address.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn routable_gid(&self, port: u8) -> Result<Option<GidEntry>, QueryError> {
        let entries = self.gids(port)?;
        // Of equals the first: `max_by_key` would take the last.
        Ok(entries.into_iter().rev().max_by_key(GidEntry::rank))
    }

    /// Where an address stands in a port's GID table now; `None` if it is not there.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn find_gid(&self, port: u8, gid: Gid) -> Result<Option<GidEntry>, QueryError> {
        let entries = self.gids(port)?;
        Ok(entries
            .into_iter()
            .filter(|entry| entry.gid == gid)
            .max_by_key(GidEntry::rank))
    }

    /// A port's P_Keys by index, as sysfs has them: uverbs has no query for them. The device may
    /// have been renamed since it was opened. A fake device has the default P_Key, 0xFFFF.
    ///
    /// # Errors
    /// What sysfs said; [`io::ErrorKind::NotFound`] if the device is gone or sysfs is not there; a
    /// [`QueryError`] for a port that the device lacks.
    #[doc(alias = "ibv_query_pkey")]
    pub fn pkeys(&self, port: u8) -> io::Result<Vec<u16>> {
        if let Some(keys) = self.inner.fake_pkeys.get() {
            self.query_port(port)?;
            return Ok(keys.clone());
        }
        let found = match &self.inner.device {
            Some(device) => device.pkeys(port),
            None => Discovery::system().pkeys(self.name(), port),
        };
        found.map_err(|error| match self.query_port(port) {
            Err(no_port) if no_port.errno() == Some(Errno::EINVAL) => no_port.into(),
            _ => error,
        })
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`AllocPdError`].
    #[doc(alias = "ibv_alloc_pd")]
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, AllocPdError> {
        ProtectionDomain::alloc(self)
    }

    /// Starts a completion queue that holds at least `depth` completions.
    ///
    /// It has to hold what all queue pairs that report to it can have outstanding:
    /// `max_send_wr` of each of its send queues and `max_recv_wr` of each receive queue. What finds it
    /// full is lost, and the only sign of that is the event
    /// [`CqErr`](crate::AsyncEventKind::CqErr).
    #[doc(alias = "ibv_create_cq")]
    #[doc(alias = "cqe")]
    pub fn create_cq(&self, depth: u32) -> CompletionQueueBuilder<'_> {
        CompletionQueueBuilder::new(self, depth)
    }

    /// Makes a completion channel, to wait for completions instead of polling for them.
    ///
    /// # Errors
    /// [`CreateError`].
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn create_completion_channel(&self) -> Result<CompletionChannel, CreateError> {
        CompletionChannel::create(self)
    }

    /// A reader of the context's own queue of asynchronous events, to which all objects send theirs
    /// that name no other. All its readers share the queue: each event goes to exactly one of them.
    #[must_use]
    pub fn events(&self) -> AsyncEvents {
        AsyncEvents::new(Arc::clone(&self.inner.events))
    }

    /// Makes one more queue of asynchronous events, for the objects that are told to send theirs
    /// there ([`CompletionQueueBuilder::events`] and its like): so that a part of a program can have
    /// the events of its own objects and no others. The context's own queue does not see those.
    ///
    /// Events about ports and the device come to every queue, a copy to each. When the last reader
    /// of the queue is dropped, the queue goes with it; its objects are used and destroyed as before,
    /// and their events are lost from then on. The kernel throws away what was unread.
    ///
    /// # Errors
    /// [`EventQueueError`].
    pub fn event_queue(&self) -> Result<AsyncEvents, EventQueueError> {
        let file = verbs::context::alloc_async_events(self.session())?;
        let source = self
            .event_source()
            .another(file)
            .map_err(EventQueueError::Wait)?;
        Ok(AsyncEvents::new(Arc::new(source)))
    }

    /// Bytes of registered buffers that had to be leaked, since the kernel refused to end the
    /// device's access when the last handle to the region went. 0 unless something is badly wrong;
    /// [`MemoryRegion::into_inner`](crate::MemoryRegion::into_inner) gives the refusal itself.
    #[must_use]
    pub fn leaked_bytes(&self) -> u64 {
        self.inner.leaked.load(Ordering::Relaxed)
    }

    pub(crate) fn note_leak(&self, bytes: usize) {
        self.inner.leaked.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.inner.session
    }

    /// Destroys a queue, which then rests on nothing. Not for a forked child.
    pub(crate) fn closing<R>(
        &self,
        holder: QueueId,
        destroy: impl FnOnce() -> Result<R, CloseError>,
    ) -> Result<R, CloseError> {
        let rests = self.living().leave(holder);
        let outcome = destroy();
        if let (Err(error), Some(rests)) = (&outcome, rests)
            && !error.is_settled()
        {
            self.living().enter(holder, rests);
        }
        outcome
    }

    pub(crate) fn living(&self) -> &Living {
        &self.inner.living
    }

    pub(crate) fn event_source(&self) -> &Arc<EventSource> {
        &self.inner.events
    }

    pub(crate) fn provider(&self) -> Option<&'static dyn Provider> {
        self.inner.provider
    }

    /// Whether the machine's network and the device belong together.
    /// Says which P_Keys it has, of which no query tells.
    #[cfg(feature = "fake")]
    pub(crate) fn with_pkeys(self, keys: &[u16]) -> Self {
        let _ = self.inner.fake_pkeys.set(keys.to_vec());
        self
    }

    pub(crate) fn is_from_node(&self) -> bool {
        self.inner.device.is_some()
    }

    pub(crate) fn driver_abi(&self) -> u32 {
        self.inner.driver_abi
    }
}

impl Drop for ContextInner {
    fn drop(&mut self) {
        // The kernel tells readers nothing when the device is closed: a blocked one would stay so.
        self.events.close();
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("name", &self.inner.name)
            .field("driver", &self.inner.driver)
            .finish_non_exhaustive()
    }
}

fn gid_entry(entry: &raw::ib_uverbs_gid_entry) -> GidEntry {
    let mut gid = Gid::default();
    let _ = <[u8; 16]>::read_from_bytes(entry.gid.as_bytes()).map(|bytes| gid = Gid(bytes));
    GidEntry {
        gid,
        index: entry.gid_index,
        port: entry.port_num,
        gid_type: GidType::from_raw(entry.gid_type),
        netdev_ifindex: entry.netdev_ifindex,
    }
}

//! A fake device in the hands of a test: opening it, watching it, and making it misbehave.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use uverbs_abi::layout::event::{IB_EVENT_GID_CHANGE, IB_EVENT_PORT_ACTIVE, IB_EVENT_PORT_ERR};
use uverbs_abi::layout::verbs::IB_MTU_1024;
use uverbs_abi::{Errno, Kernel};

use super::Shared;
use super::faults::{Faults, Spoil};
use super::kernel::OpenFile;
use super::world::{Device, Entry, Id, Kind, Owner, World};

/// One device of a [`Fabric`](super::Fabric). A cheap handle.
#[derive(Clone)]
pub struct FakeDevice {
    world: Shared,
    index: usize,
}

/// What a device has alive: for tests that see to it that nothing leaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Live {
    /// Open files.
    pub files: usize,
    /// Protection domains.
    pub pds: usize,
    /// Memory regions.
    pub mrs: usize,
    /// Completion queues.
    pub cqs: usize,
    /// Queue pairs.
    pub qps: usize,
    /// Shared receive queues.
    pub srqs: usize,
    /// Work queues.
    pub wqs: usize,
    /// Queues that the program has mapped, those of objects that are gone included.
    pub maps: usize,
    /// Event files of open files.
    pub event_files: usize,
    /// Completion channels that the program has not closed, or that a completion queue has.
    pub channels: usize,
}

impl Live {
    /// Objects of all kinds.
    #[must_use]
    pub const fn objects(&self) -> usize {
        self.pds + self.mrs + self.cqs + self.qps + self.srqs + self.wqs
    }

    /// Whether nothing at all is left.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// A GID from an address.
fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

impl FakeDevice {
    pub(super) fn new(world: &Shared, name: &str, is_bare: bool) -> Self {
        let mut locked = world.lock();
        let index = locked.devices.len();
        let number = u8::try_from(index + 1).unwrap_or(u8::MAX);
        let last = u16::from(number);
        let addresses = [
            IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, last)),
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)),
            IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)),
        ];
        locked.devices.push(Device {
            name: name.to_owned(),
            is_bare,
            gids: addresses.map(|address| Some(gid(address))).to_vec(),
            is_up: true,
            mtu: IB_MTU_1024,
            is_removed: false,
            write_refused: false,
            memlock: None,
            offers: BTreeMap::new(),
            next_offset: 0x1000,
            next_qpn: 17,
            next_key: 0,
            faults: Faults::default(),
        });
        drop(locked);
        Self {
            world: world.clone(),
            index,
        }
    }

    fn with<T: Default>(&self, work: impl FnOnce(&mut Device) -> T) -> T {
        let mut world = self.world.lock();
        world.device(self.index).map(work).unwrap_or_default()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.with(|device| device.name.clone())
    }

    /// Whether its queues have no part in user space; see
    /// [`add_bare_device`](super::Fabric::add_bare_device).
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.with(|device| device.is_bare)
    }

    /// Opens it: one file, and so at most one context.
    #[must_use]
    pub fn kernel(&self) -> Arc<dyn Kernel> {
        Arc::new(OpenFile::new(&self.world, self.index))
    }

    /// What is alive on it.
    #[must_use]
    pub fn live(&self) -> Live {
        let mut world = self.world.lock();
        let at = self.index;
        let of = |owner: &Owner| owner.device == at;
        let files = world.files.iter().filter(|(_, file)| file.device == at);
        let files: Vec<Id> = files.map(|(id, _)| *id).collect();
        Live {
            pds: world
                .pds
                .values()
                .filter(|file| files.contains(file))
                .count(),
            mrs: world.mrs.values().filter(|mr| mr.device == at).count(),
            cqs: world.cqs.values().filter(|cq| of(&cq.owner)).count(),
            qps: world.qps.values().filter(|qp| of(&qp.owner)).count(),
            srqs: world.srqs.values().filter(|srq| of(&srq.owner)).count(),
            wqs: world.wqs.values().filter(|wq| of(&wq.owner)).count(),
            maps: world.live_maps(at),
            event_files: world.event_files(at),
            channels: world.live_channels(&files),
            files: files.len(),
        }
    }

    /// The names of the calls since the start, or since [`forget_calls`](Self::forget_calls), in
    /// order: those of commands, `POST_SEND` for a doorbell, `MMAP`.
    #[must_use]
    pub fn calls(&self) -> Vec<&'static str> {
        self.with(|device| device.faults.calls())
    }

    /// Starts counting anew.
    pub fn forget_calls(&self) {
        self.with(|device| device.faults.forget_calls());
    }

    /// Refuses the next call of this name.
    pub fn fail_next(&self, command: &'static str, errno: Errno) {
        self.fail_nth(command, 1, errno);
    }

    /// Refuses the `n`-th call of this name from now; 1 is the next.
    pub fn fail_nth(&self, command: &'static str, n: usize, errno: Errno) {
        self.with(|device| device.faults.refuse_nth(command, n, errno));
    }

    /// Refuses every call of this name.
    pub fn fail_always(&self, command: &'static str, errno: Errno) {
        self.with(|device| device.faults.refuse_always(command, errno));
    }

    /// Refuses the call that will stand at this position of [`calls`](Self::calls); 0 is the first.
    pub fn fail_at(&self, position: usize, errno: Errno) {
        self.with(|device| device.faults.refuse_at(position, errno));
    }

    /// Carries the next call of this name out and leaves its outputs unanswered.
    pub fn leave_unanswered(&self, command: &'static str) {
        self.with(|device| device.faults.leave_unanswered(command));
    }

    /// Spoils the next queue that is made. For a queue pair the send queue comes first.
    pub fn spoil_next_queue(&self, spoil: Spoil) {
        self.spoil_queue_after(0, spoil);
    }

    /// Spoils a queue that is made after `skip` others.
    pub fn spoil_queue_after(&self, skip: usize, spoil: Spoil) {
        self.with(|device| device.faults.spoil_next.push_back((skip, spoil)));
    }

    /// Loses the next `count` completions of the device.
    pub fn lose_completions(&self, count: u32) {
        self.with(|device| device.faults.lose = count);
    }

    /// Holds completions back from now on, in order, or lets them go.
    pub fn hold_completions(&self, hold: bool) {
        let mut world = self.world.lock();
        if let Ok(device) = world.device(self.index) {
            device.faults.hold = hold;
        }
        if !hold {
            world.release_completions(self.index);
        }
    }

    /// Ends all faults: refusals, spoilt queues to come, lost and held completions.
    pub fn clear_faults(&self) {
        self.hold_completions(false);
        self.with(|device| device.faults.clear());
    }

    /// Whether `write()` is refused with `EACCES`, as to a process that has changed its credentials
    /// since it opened the device. The ioctl goes on working.
    pub fn set_write_refused(&self, refused: bool) {
        self.with(|device| device.write_refused = refused);
    }

    /// How many bytes can be registered in all before `ENOMEM`; `None` for any number.
    pub fn set_memlock(&self, limit: Option<u64>) {
        self.with(|device| device.memlock = limit);
    }

    /// Takes the port down, or up: PORT_ERR, PORT_ACTIVE. Nothing gets through a port that is down.
    pub fn set_port_up(&self, up: bool) {
        let mut world = self.world.lock();
        let Ok(device) = world.device(self.index) else {
            return;
        };
        if device.is_up != up {
            device.is_up = up;
            let event = if up {
                IB_EVENT_PORT_ACTIVE
            } else {
                IB_EVENT_PORT_ERR
            };
            world.raise_everywhere(self.index, 1, event);
        }
    }

    /// The largest path MTU that the port does, as the kernel's code (1 to 5 for 256 to 4096).
    pub fn set_mtu_code(&self, code: u8) {
        self.with(|device| device.mtu = code);
    }

    /// Adds an address, at the first free place of the GID table: GID_CHANGE.
    pub fn add_address(&self, address: IpAddr) {
        let mut world = self.world.lock();
        let Ok(device) = world.device(self.index) else {
            return;
        };
        match device.gids.iter_mut().find(|place| place.is_none()) {
            Some(free) => *free = Some(gid(address)),
            None => device.gids.push(Some(gid(address))),
        }
        world.raise_everywhere(self.index, 1, IB_EVENT_GID_CHANGE);
    }

    /// Takes an address away: GID_CHANGE. False if it was not there.
    pub fn remove_address(&self, address: IpAddr) -> bool {
        let mut world = self.world.lock();
        let Ok(device) = world.device(self.index) else {
            return false;
        };
        let wanted = Some(gid(address));
        let Some(place) = device.gids.iter_mut().find(|place| **place == wanted) else {
            return false;
        };
        *place = None;
        world.raise_everywhere(self.index, 1, IB_EVENT_GID_CHANGE);
        true
    }

    /// Raises an event with this element in every event file of the device, whatever they say: port
    /// events, DEVICE_FATAL, numbers that no kernel has.
    pub fn raise_raw(&self, element: u64, event_type: u32) {
        let mut world = self.world.lock();
        world.raise_everywhere(self.index, element, event_type);
    }

    /// Raises an event about the queue pair with this number. False if there is none.
    pub fn raise_qp_raw(&self, qp_num: u32, event_type: u32) -> bool {
        let mut world = self.world.lock();
        let found = world
            .qps
            .iter()
            .find(|(_, qp)| self.is_at(&qp.owner) && qp.number == qp_num);
        let found = found.map(|(id, _)| *id);
        found
            .map(|id| world.raise(Kind::Qp, id, event_type))
            .is_some()
    }

    /// Raises an event about the completion queue with this handle. False if there is none.
    pub fn raise_cq_raw(&self, handle: u32, event_type: u32) -> bool {
        self.raise_handle(Kind::Cq, handle, event_type)
    }

    /// Raises an event about the shared receive queue with this handle. False if there is none.
    pub fn raise_srq_raw(&self, handle: u32, event_type: u32) -> bool {
        self.raise_handle(Kind::Srq, handle, event_type)
    }

    /// Raises an event about the work queue with this handle. False if there is none.
    pub fn raise_wq_raw(&self, handle: u32, event_type: u32) -> bool {
        self.raise_handle(Kind::Wq, handle, event_type)
    }

    fn raise_handle(&self, kind: Kind, handle: u32, event_type: u32) -> bool {
        let mut world = self.world.lock();
        let found = self.find(&world, kind, handle);
        found.map(|id| world.raise(kind, id, event_type)).is_some()
    }

    fn is_at(&self, owner: &Owner) -> bool {
        owner.device == self.index
    }

    /// The object with this handle, in the first context of the device that has one.
    fn find(&self, world: &World, kind: Kind, handle: u32) -> Option<Id> {
        let mut files = world
            .files
            .values()
            .filter(|file| file.device == self.index);
        files.find_map(|file| match file.handles.get(&handle) {
            Some(Entry::Live(found, id)) if *found == kind => Some(*id),
            _ => None,
        })
    }

    /// Scribbles over the header of a completion queue that is in use. False if there is none with
    /// this handle.
    pub fn spoil_cq(&self, handle: u32, spoil: Spoil) -> bool {
        let world = self.world.lock();
        let id = self.find(&world, Kind::Cq, handle);
        let queue = id.and_then(|id| world.cqs.get(&id));
        queue.map(|queue| queue.ring.spoil(spoil)).is_some()
    }

    /// Scribbles over the header of a shared receive queue that is in use.
    pub fn spoil_srq(&self, handle: u32, spoil: Spoil) -> bool {
        let world = self.world.lock();
        let id = self.find(&world, Kind::Srq, handle);
        let queue = id.and_then(|id| world.srqs.get(&id));
        queue.map(|queue| queue.ring.spoil(spoil)).is_some()
    }

    /// Scribbles over the header of a queue pair's send queue that is in use.
    pub fn spoil_send(&self, qp_num: u32, spoil: Spoil) -> bool {
        let world = self.world.lock();
        let mut qps = world.qps.values();
        let qp = qps.find(|qp| self.is_at(&qp.owner) && qp.number == qp_num);
        qp.map(|qp| qp.send.spoil(spoil)).is_some()
    }

    /// Scribbles over the header of a queue pair's receive queue that is in use.
    pub fn spoil_recv(&self, qp_num: u32, spoil: Spoil) -> bool {
        let world = self.world.lock();
        let mut qps = world.qps.values();
        let qp = qps.find(|qp| self.is_at(&qp.owner) && qp.number == qp_num);
        let recv = qp.and_then(|qp| qp.recv.as_ref());
        recv.map(|recv| recv.spoil(spoil)).is_some()
    }

    /// Pulls the device out under its users, as a kernel with disassociation does (7.3): unread
    /// events of objects are dropped, DEVICE_FATAL comes, every call fails with `EIO`; destroying
    /// what is left succeeds once and tells the true number of events. Mapped queues keep their last
    /// contents.
    pub fn remove(&self) {
        self.world.lock().remove(self.index);
    }

    /// [Removes](Self::remove) the device just before the call that will stand at this position of
    /// [`calls`](Self::calls).
    pub fn remove_at(&self, position: usize) {
        self.with(|device| device.faults.remove_at = Some(position));
    }

    /// Puts an event about the completion queue with this number, real or not, into every completion
    /// channel of the device, and counts it for nobody.
    pub fn forge_completion_event(&self, element: u64) {
        self.scribble_channels(&element.to_ne_bytes());
    }

    /// Puts bytes that need not be a record into every completion channel of the device.
    pub fn scribble_channels(&self, bytes: &[u8]) {
        let world = self.world.lock();
        let files = world
            .files
            .values()
            .filter(|file| file.device == self.index);
        for channel in files.flat_map(|file| file.channels.values()) {
            channel.scribble(bytes);
        }
    }

    /// Puts bytes that need not be a record into every event file of the device.
    pub fn raise_bytes(&self, bytes: &[u8]) {
        let world = self.world.lock();
        let files = world
            .files
            .values()
            .filter(|file| file.device == self.index);
        for events in files.flat_map(|file| &file.asyncs) {
            events.scribble(bytes);
        }
    }
}

impl fmt::Debug for FakeDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FakeDevice({})", self.name())
    }
}

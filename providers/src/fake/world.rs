//! Everything that the fake kernel has in mind: devices, open files, objects.
//!
//! One lock is held over all of it (by [`Fabric`](super::Fabric)), since a work request reaches from
//! one device into another. Objects go by ids of their own, which are never used twice; what the
//! user has are handles, per open file and lowest free first, as the kernel gives them.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use uverbs_abi::Errno;
use uverbs_abi::layout::cmd::{ib_uverbs_modify_qp, ib_uverbs_wc};
use uverbs_abi::layout::event::IB_EVENT_DEVICE_FATAL;
use uverbs_abi::layout::verbs::ib_uverbs_qp_cap;

use super::events::{AsyncFile, ChannelFile, has_reader};
use super::faults::Faults;
use super::memory::Region;
use super::ring::Ring;

/// Names an object for as long as the world stands.
pub(super) type Id = u64;

/// The kinds of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Pd,
    Mr,
    Cq,
    Qp,
    Srq,
    Wq,
}

/// What a handle leads to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    Live(Kind, Id),
    /// The object went with its device; a destroy tells the number of events once.
    Ghost(Kind, Reported),
}

/// How many events of an object were read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reported {
    pub(super) asynchronous: u32,
    pub(super) completion: u32,
}

/// Whose an object is, and where its events go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) device: usize,
    pub(super) file: Id,
    /// Which of the file's event files; none before there is one.
    pub(super) sink: Option<usize>,
    pub(super) token: u64,
    pub(super) raised: u32,
}

#[derive(Debug)]
pub(super) struct Mr {
    pub(super) device: usize,
    pub(super) pd: Id,
    pub(super) region: Region,
    pub(super) iova: u64,
    pub(super) length: u64,
    pub(super) access: u32,
    pub(super) key: u32,
    /// 0 without any right for peers.
    pub(super) rkey: u32,
}

#[derive(Debug)]
pub(super) struct Cq {
    pub(super) owner: Owner,
    pub(super) ring: Ring,
    /// The channel that it tells of completions.
    pub(super) channel: Option<Id>,
    /// Whether the next completion is to be told, and whether the next solicited one is.
    pub(super) armed: (bool, bool),
    /// Completion events so far.
    pub(super) told: u32,
    /// Completions that are held back, and whether they are solicited.
    pub(super) held: Vec<(ib_uverbs_wc, bool)>,
}

#[derive(Debug)]
pub(super) struct Srq {
    pub(super) owner: Owner,
    pub(super) pd: Id,
    pub(super) ring: Ring,
    pub(super) max_sge: u32,
    pub(super) limit: u32,
}

/// A work queue; nothing is ever in it.
#[derive(Debug)]
pub(super) struct Wq {
    pub(super) owner: Owner,
    pub(super) pd: Id,
    pub(super) cq: Id,
}

#[derive(Debug)]
pub(super) struct Qp {
    pub(super) owner: Owner,
    pub(super) number: u32,
    pub(super) pd: Id,
    pub(super) send_cq: Id,
    pub(super) recv_cq: Id,
    pub(super) srq: Option<Id>,
    pub(super) caps: ib_uverbs_qp_cap,
    pub(super) signal_all: bool,
    /// `IB_QPS_…`.
    pub(super) state: u8,
    /// As set by MODIFY_QP; the packet numbers move on.
    pub(super) attr: ib_uverbs_modify_qp,
    pub(super) send: Ring,
    pub(super) recv: Option<Ring>,
    /// Whether the oldest send has been tried.
    pub(super) started: bool,
    /// Whether the oldest send is with its peer right now, which may be this queue pair itself.
    pub(super) is_underway: bool,
    /// How often it has been tried again.
    pub(super) tries: u32,
    /// Whether SQ_DRAINED has been raised since the move to SQD.
    pub(super) drained: bool,
}

/// A queue that is offered for mapping.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) file: Id,
    pub(super) words: Arc<[AtomicU64]>,
}

/// One open file.
#[derive(Debug)]
pub(super) struct File {
    pub(super) device: usize,
    pub(super) has_context: bool,
    pub(super) asyncs: Vec<AsyncFile>,
    pub(super) channels: BTreeMap<Id, ChannelFile>,
    pub(super) handles: BTreeMap<u32, Entry>,
}

/// One device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) name: String,
    /// Whether its queues have no part in user space; else it is rxe's.
    pub(super) is_bare: bool,
    pub(super) gids: Vec<Option<[u8; 16]>>,
    pub(super) is_up: bool,
    /// `IB_MTU_…`.
    pub(super) mtu: u8,
    pub(super) is_removed: bool,
    /// Whether `write()` is refused, as after a change of credentials.
    pub(super) write_refused: bool,
    pub(super) memlock: Option<u64>,
    pub(super) offers: BTreeMap<u64, Offer>,
    pub(super) next_offset: u64,
    pub(super) next_qpn: u32,
    pub(super) next_key: u32,
    pub(super) faults: Faults,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) devices: Vec<Device>,
    pub(super) files: BTreeMap<Id, File>,
    /// Protection domains, with the file that each belongs to.
    pub(super) pds: BTreeMap<Id, Id>,
    pub(super) mrs: BTreeMap<Id, Mr>,
    pub(super) cqs: BTreeMap<Id, Cq>,
    pub(super) srqs: BTreeMap<Id, Srq>,
    pub(super) qps: BTreeMap<Id, Qp>,
    pub(super) wqs: BTreeMap<Id, Wq>,
    /// Queue pairs whose oldest send waits for something at the peer.
    pub(super) waiting: BTreeSet<Id>,
    /// Whether a send that finds no receive fails at once, whatever its retry count.
    pub(super) rnr_fails_at_once: bool,
    /// Every queue that was ever mapped and is not gone, and of which device.
    pub(super) mapped: Vec<(usize, Weak<[AtomicU64]>)>,
    orphans: Vec<OwnedFd>,
    next: Id,
}

impl World {
    pub(super) const fn new_id(&mut self) -> Id {
        self.next += 1;
        self.next
    }

    pub(super) fn device(&mut self, index: usize) -> Result<&mut Device, Errno> {
        self.devices.get_mut(index).ok_or(Errno::ENODEV)
    }

    pub(super) fn file(&mut self, file: Id) -> Result<&mut File, Errno> {
        self.files.get_mut(&file).ok_or(Errno::EBADF)
    }

    /// The object behind a handle: absent and of another kind are two different errors.
    pub(super) fn lookup(&self, file: Id, kind: Kind, handle: u32) -> Result<Id, Errno> {
        let file = self.files.get(&file).ok_or(Errno::EBADF)?;
        match file.handles.get(&handle) {
            None => Err(Errno::ENOENT),
            Some(Entry::Live(found, id)) if *found == kind => Ok(*id),
            Some(Entry::Ghost(found, _)) if *found == kind => Err(Errno::EIO),
            Some(_) => Err(Errno::EINVAL),
        }
    }

    /// As [`lookup`](Self::lookup) for the write commands, which make one error of both.
    pub(super) fn lookup_write(&self, file: Id, kind: Kind, handle: u32) -> Result<Id, Errno> {
        self.lookup(file, kind, handle).map_err(|_| Errno::EINVAL)
    }

    /// Gives an object the lowest handle that is free.
    pub(super) fn new_handle(&mut self, file: Id, kind: Kind, id: Id) -> Result<u32, Errno> {
        let handles = &mut self.file(file)?.handles;
        let free = (0..u32::MAX).find(|handle| !handles.contains_key(handle));
        let handle = free.ok_or(Errno::ENOMEM)?;
        handles.insert(handle, Entry::Live(kind, id));
        Ok(handle)
    }

    /// Whose an object that is being made is to be.
    pub(super) fn new_owner(
        &self,
        device: usize,
        file: Id,
        event_fd: Option<i32>,
        token: u64,
    ) -> Result<Owner, Errno> {
        let asyncs = &self.files.get(&file).ok_or(Errno::EBADF)?.asyncs;
        let sink = match event_fd {
            Some(fd) => {
                // The newest: an older one of that number has been closed.
                let at = asyncs.iter().rposition(|events| events.number() == fd);
                Some(at.ok_or(Errno::EBADF)?)
            }
            None => (!asyncs.is_empty()).then_some(0),
        };
        Ok(Owner {
            device,
            file,
            sink,
            token,
            raised: 0,
        })
    }

    fn owner(&mut self, kind: Kind, id: Id) -> Option<&mut Owner> {
        match kind {
            Kind::Cq => self.cqs.get_mut(&id).map(|cq| &mut cq.owner),
            Kind::Qp => self.qps.get_mut(&id).map(|qp| &mut qp.owner),
            Kind::Srq => self.srqs.get_mut(&id).map(|srq| &mut srq.owner),
            Kind::Wq => self.wqs.get_mut(&id).map(|wq| &mut wq.owner),
            Kind::Pd | Kind::Mr => None,
        }
    }

    /// Raises an event about an object. Before there is an event file it is lost.
    pub(super) fn raise(&mut self, kind: Kind, id: Id, event_type: u32) {
        let Some(owner) = self.owner(kind, id) else {
            return;
        };
        let (file, token, Some(sink)) = (owner.file, owner.token, owner.sink) else {
            return;
        };
        owner.raised = owner.raised.wrapping_add(1);
        let asyncs = self.files.get_mut(&file).map(|file| &mut file.asyncs);
        if let Some(events) = asyncs.and_then(|asyncs| asyncs.get_mut(sink)) {
            events.raise(token, event_type);
        }
    }

    /// Raises an event in every event file of every context of a device.
    pub(super) fn raise_everywhere(&mut self, device: usize, element: u64, event_type: u32) {
        let files = self.files.values_mut();
        for file in files.filter(|file| file.device == device && file.has_context) {
            for events in &mut file.asyncs {
                events.raise(element, event_type);
            }
        }
    }

    /// Takes an object out of the world, and gives the events about it that were read.
    pub(super) fn take_away(&mut self, kind: Kind, id: Id) -> Reported {
        // While it is still there to be asked for its channel.
        let completion = self.forget_completions(kind, id);
        Reported {
            asynchronous: self.take_away_events(kind, id),
            completion,
        }
    }

    fn take_away_events(&mut self, kind: Kind, id: Id) -> u32 {
        let owner = self.owner(kind, id).copied();
        match kind {
            Kind::Pd => drop(self.pds.remove(&id)),
            Kind::Mr => drop(self.mrs.remove(&id)),
            Kind::Cq => drop(self.cqs.remove(&id)),
            Kind::Srq => drop(self.srqs.remove(&id)),
            Kind::Wq => drop(self.wqs.remove(&id)),
            Kind::Qp => {
                self.waiting.remove(&id);
                drop(self.qps.remove(&id));
            }
        }
        let Some(Owner {
            file,
            sink: Some(sink),
            token,
            raised,
            ..
        }) = owner
        else {
            return 0;
        };
        let asyncs = self.files.get_mut(&file).map(|file| &mut file.asyncs);
        let events = asyncs.and_then(|asyncs| asyncs.get_mut(sink));
        let unread = events.map_or(0, |events| events.forget(token));
        raised.saturating_sub(unread)
    }

    /// Whether something rests on an object.
    pub(super) fn is_busy(&self, kind: Kind, id: Id) -> bool {
        match kind {
            Kind::Pd => {
                self.mrs.values().any(|mr| mr.pd == id)
                    || self.srqs.values().any(|srq| srq.pd == id)
                    || self.qps.values().any(|qp| qp.pd == id)
                    || self.wqs.values().any(|wq| wq.pd == id)
            }
            Kind::Cq => {
                let mut qps = self.qps.values();
                qps.any(|qp| qp.send_cq == id || qp.recv_cq == id)
                    || self.wqs.values().any(|wq| wq.cq == id)
            }
            Kind::Srq => self.qps.values().any(|qp| qp.srq == Some(id)),
            Kind::Mr | Kind::Qp | Kind::Wq => false,
        }
    }

    /// Destroys what a file has, those first that rest on others; leaves ghosts if the device went.
    pub(super) fn clear_file(&mut self, file: Id, leave_ghosts: bool) {
        let entries: Vec<(u32, Entry)> = match self.files.get(&file) {
            Some(open) => open.handles.iter().map(|(at, it)| (*at, *it)).collect(),
            None => return,
        };
        for kind in [Kind::Qp, Kind::Wq, Kind::Srq, Kind::Cq, Kind::Mr, Kind::Pd] {
            for (handle, entry) in &entries {
                let Entry::Live(found, id) = entry else {
                    continue;
                };
                if *found == kind {
                    let reported = self.take_away(kind, *id);
                    if let (true, Some(open)) = (leave_ghosts, self.files.get_mut(&file)) {
                        open.handles.insert(*handle, Entry::Ghost(kind, reported));
                    }
                }
            }
        }
    }

    /// The last handle of an open file is closed.
    pub(super) fn close(&mut self, file: Id) {
        self.clear_file(file, false);
        if let Some(open) = self.files.remove(&file) {
            for channel in open.channels.into_values() {
                channel.close();
            }
            if let Some(device) = self.devices.get_mut(open.device) {
                device.offers.retain(|_, offer| offer.file != file);
            }
            self.orphans
                .extend(open.asyncs.into_iter().map(AsyncFile::close));
        }
        self.orphans.retain(has_reader);
    }

    /// A device is pulled out under its users.
    pub(super) fn remove(&mut self, device: usize) {
        match self.devices.get_mut(device) {
            Some(device) if !device.is_removed => {
                device.is_removed = true;
                device.offers.clear();
            }
            _ => return,
        }
        let files = self.files.iter().filter(|(_, file)| file.device == device);
        for file in files.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.clear_file(file, true);
            self.close_channels(file);
        }
        self.raise_everywhere(device, 0, IB_EVENT_DEVICE_FATAL);
        self.settle();
    }

    /// Event files of the device's open files.
    pub(super) fn event_files(&mut self, device: usize) -> usize {
        let files = self.files.values().filter(|file| file.device == device);
        files.map(|file| file.asyncs.len()).sum()
    }

    /// Remembers a queue that a user maps, for as long as it is mapped.
    pub(super) fn note_mapped(&mut self, device: usize, words: &Arc<[AtomicU64]>) {
        // What is remembered keeps the memory of a queue that is gone. It is forgotten each time
        // the list is full, and half of the list is then free, so that this is rare.
        if self.mapped.len() == self.mapped.capacity() {
            self.mapped.retain(|(_, words)| words.strong_count() != 0);
            self.mapped.reserve(self.mapped.len().max(16));
        }
        self.mapped.push((device, Arc::downgrade(words)));
    }

    /// How many queues of a device the users have mapped.
    pub(super) fn live_maps(&mut self, device: usize) -> usize {
        self.mapped.retain(|(_, words)| words.strong_count() != 0);
        let is_held = |words: &Weak<[AtomicU64]>| {
            let mut rings = self.rings();
            let ours = rings.any(|ring| std::ptr::addr_eq(ring.words().as_ptr(), words.as_ptr()));
            // The kernel's ring holds it twice.
            words.strong_count() > if ours { 2 } else { 0 }
        };
        let here = self.mapped.iter().filter(|(at, _)| *at == device);
        here.filter(|(_, words)| is_held(words)).count()
    }

    fn rings(&self) -> impl Iterator<Item = &Ring> {
        let cqs = self.cqs.values().map(|cq| &cq.ring);
        let srqs = self.srqs.values().map(|srq| &srq.ring);
        let sends = self.qps.values().map(|qp| &qp.send);
        let recvs = self.qps.values().filter_map(|qp| qp.recv.as_ref());
        cqs.chain(srqs).chain(sends).chain(recvs)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A reader of a device must not see the end of a file, even where the kernel is gone.
        self.orphans.retain(has_reader);
        for orphan in self.orphans.drain(..) {
            std::mem::forget(orphan);
        }
    }
}

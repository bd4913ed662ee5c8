//! One open file of a fake device, as the crate sees a kernel.

use std::fmt;

use uverbs_abi::sys::process::Mark;
use uverbs_abi::{Command, Errno, Kernel, Mapping};

use super::Shared;
use super::world::{File, Id, World};

/// An open file. Dropping it closes it, but for a forked child: what that has is a copy, and the
/// pipes of events in it are the parent's.
pub(super) struct OpenFile {
    home: Mark,
    world: Shared,
    at: (usize, Id),
}

impl OpenFile {
    pub(super) fn new(world: &Shared, device: usize) -> Self {
        let mut locked = world.lock();
        let id = locked.new_id();
        let file = File {
            device,
            has_context: false,
            asyncs: Vec::new(),
            channels: std::collections::BTreeMap::new(),
            handles: std::collections::BTreeMap::new(),
        };
        locked.files.insert(id, file);
        drop(locked);
        Self {
            home: Mark::here(),
            world: world.clone(),
            at: (device, id),
        }
    }

    /// Counts the call, refuses it if it is to be refused, and else carries it out.
    fn call<T>(
        &self,
        name: &'static str,
        work: impl FnOnce(&mut World) -> Result<T, Errno>,
    ) -> Result<(T, bool), Errno> {
        if !self.home.is_ours() {
            return Err(Errno::EACCES);
        }
        let mut world = self.world.lock();
        if world.device(self.at.0)?.faults.is_time_to_go() {
            world.remove(self.at.0);
        }
        if let Some(errno) = world.device(self.at.0)?.faults.call(name) {
            return Err(errno);
        }
        let done = work(&mut world)?;
        world.settle();
        let is_unanswered = world.device(self.at.0)?.faults.is_unanswered(name);
        Ok((done, is_unanswered))
    }
}

impl Kernel for OpenFile {
    fn ioctl(&self, driver: u32, command: &mut Command<'_>) -> Result<(), Errno> {
        let name = command.name();
        let ((), is_unanswered) =
            self.call(name, |world| world.ioctl(self.at, driver, &mut *command))?;
        if is_unanswered {
            command.unanswer();
        }
        Ok(())
    }

    fn write(&self, frame: &mut [u8], response: &mut [u8]) -> Result<(), Errno> {
        self.call("POST_SEND", |world| world.write(self.at, frame, response))?;
        Ok(())
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        let (mapping, _) = self.call("MMAP", |world| world.map(self.at, offset, len))?;
        Ok(mapping)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if !self.home.is_ours() {
            return;
        }
        let mut world = self.world.lock();
        world.close(self.at.1);
        world.settle();
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenFile({} of device {})", self.at.1, self.at.0)
    }
}

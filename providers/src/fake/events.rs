//! Files of events, asynchronous ones and those of completion channels, and how the kernel counts what
//! is read from them.
//!
//! Ground truth: the kernel's `ib_uverbs_event_read` and `uverbs_main.c`. A file is a pipe of records
//! of one length. Nobody tells the writer of a pipe that something was read; so the fake has a second
//! handle of the reading end, and when an object goes it takes back what is unread, drops the records
//! of the object, and puts the rest in again. What was raised and is not among the unread has been
//! reported.
//!
//! As with the kernel, a reader of asynchronous events is never told that the other side has been
//! closed: the writing end outlives the open file for as long as there is a reader. A reader of a
//! channel is told, by the kernel with `EIO`, here with the end of the file.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::fcntl::OFlag;
use nix::unistd::{pipe2, read, write};
use uverbs_abi::Errno;
use uverbs_abi::layout::event::{ib_uverbs_async_event_desc, ib_uverbs_comp_event_desc};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What a file consists of.
pub(super) trait Record: FromBytes + IntoBytes + Immutable + Copy {
    /// What it is about.
    fn element(&self) -> u64;
}

impl Record for ib_uverbs_async_event_desc {
    fn element(&self) -> u64 {
        self.element
    }
}

impl Record for ib_uverbs_comp_event_desc {
    fn element(&self) -> u64 {
        self.cq_handle
    }
}

/// One file of asynchronous events.
pub(super) type AsyncFile = RecordFile<ib_uverbs_async_event_desc>;

/// One completion channel.
pub(super) type ChannelFile = RecordFile<ib_uverbs_comp_event_desc>;

/// One file of records.
#[derive(Debug)]
pub(super) struct RecordFile<R> {
    /// The number under which the user knows it.
    number: RawFd,
    read: OwnedFd,
    write: OwnedFd,
    /// What the pipe had no room for.
    backlog: VecDeque<R>,
}

impl AsyncFile {
    /// Queues an event.
    pub(super) fn raise(&mut self, element: u64, event_type: u32) {
        self.queue(ib_uverbs_async_event_desc {
            element,
            event_type,
            reserved: 0,
        });
    }

    /// The open file is closed: what is left is the end that keeps readers from seeing it.
    pub(super) fn close(self) -> OwnedFd {
        self.write
    }
}

impl ChannelFile {
    /// Queues an event.
    pub(super) fn raise(&mut self, cq_handle: u64) {
        self.queue(ib_uverbs_comp_event_desc { cq_handle });
    }

    /// The channel is gone, and what is unread with it; the readers see the end.
    pub(super) fn close(self) {
        let _ = self.take_unread();
    }

    /// Whether the user has not closed it. Only for looking: a duplicate of the descriptor is not
    /// seen.
    pub(super) fn is_open(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        if cfg!(miri) {
            // Its descriptors are not those of `/proc`, which are the interpreter's own.
            return true;
        }
        let of = |number: RawFd| std::fs::metadata(format!("/proc/self/fd/{number}")).ok();
        match (of(self.number), of(self.read.as_raw_fd())) {
            (Some(theirs), Some(ours)) => (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino()),
            _ => false,
        }
    }
}

impl<R: Record> RecordFile<R> {
    /// A file, and the user's handle of it.
    pub(super) fn new() -> Result<(Self, OwnedFd), Errno> {
        let (user, writing) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let reading = user.try_clone().map_err(|error| Errno::from(&error))?;
        let file = Self {
            number: user.as_raw_fd(),
            read: reading,
            write: writing,
            backlog: VecDeque::new(),
        };
        Ok((file, user))
    }

    pub(super) const fn number(&self) -> RawFd {
        self.number
    }

    fn queue(&mut self, record: R) {
        self.backlog.push_back(record);
        self.pump();
    }

    /// Puts bytes in that need not be a record.
    pub(super) fn scribble(&self, bytes: &[u8]) {
        // What a full pipe does not take is not worth keeping.
        let _ = write(&self.write, bytes);
    }

    /// Moves what the pipe has room for.
    pub(super) fn pump(&mut self) {
        while let Some(record) = self.backlog.front() {
            if write(&self.write, record.as_bytes()) != Ok(size_of::<R>()) {
                break;
            }
            self.backlog.pop_front();
        }
    }

    fn take_unread(&self) -> VecDeque<R> {
        let mut unread = VecDeque::new();
        let mut record = R::new_zeroed();
        while read(&self.read, record.as_mut_bytes()) == Ok(size_of::<R>()) {
            unread.push_back(record);
        }
        unread
    }

    /// Drops the unread events about an object, and says how many they were.
    pub(super) fn forget(&mut self, element: u64) -> u32 {
        let mut unread = self.take_unread();
        unread.append(&mut self.backlog);
        let all = unread.len();
        unread.retain(|record| record.element() != element);
        let dropped = all - unread.len();
        self.backlog = unread;
        self.pump();
        u32::try_from(dropped).unwrap_or(u32::MAX)
    }
}

/// Whether anybody can still read from the other end of this one.
pub(super) fn has_reader(writing: &OwnedFd) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    // Miri knows no poll(2); there the end is kept.
    if cfg!(miri) {
        return true;
    }
    let mut fds = [PollFd::new(writing.as_fd(), PollFlags::empty())];
    match poll(&mut fds, PollTimeout::ZERO) {
        Ok(0) => true,
        Ok(_) => fds
            .iter()
            .all(|fd| fd.revents() != Some(PollFlags::POLLERR)),
        Err(_) => true,
    }
}

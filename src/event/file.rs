//! One file of the kernel's records, with what its readers share: the state that ends them, and the
//! means to wake them. Event files and completion channels are read alike.
//!
//! Ground truth: `ib_uverbs_event_read` and `ib_uverbs_event_poll`. The kernel does not end the
//! reader of an event file, neither when the device is removed nor when the command file is closed;
//! that of a completion channel it ends with `EIO`. An eventfd of ours ends both. It must never be
//! read: once written it wakes every reader, present and future, and each finds the reason in a flag
//! that is never taken back. It must never keep the command file open.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use nix::errno::Errno as Nix;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use uverbs_abi::session::{Status, WhenGone};
use uverbs_abi::sys::process::Life;

use super::EventError;

/// Of so many calls that may wait one reads first, even if none has found anything like that.
const TRIED_AGAIN_AFTER: u8 = 8;

/// A file of records, as its readers share it.
#[derive(Debug)]
pub(crate) struct EventFile {
    file: OwnedFd,
    wake: EventFd,
    status: Arc<Status>,
    /// That of the status, at hand.
    life: Life,
    /// What ends its readers: bits that are never taken back.
    ends: AtomicU8,
    /// How many blocking calls have found nothing at once, one after the other.
    misses: AtomicU8,
    /// Files that end when this one does.
    followers: Mutex<Vec<Weak<Self>>>,
}

/// The readers were told to stop.
const STOPPED: u8 = 1;
/// The context is closed.
const CLOSED: u8 = 1 << 1;
/// The device is gone.
const GONE: u8 = 1 << 2;

/// Ends the readers of a context's files when the device is found to be gone, by whatever call.
#[derive(Debug)]
struct EndsWithDevice(Weak<EventFile>);

impl WhenGone for EndsWithDevice {
    fn device_gone(&self) {
        if let Some(leader) = self.0.upgrade() {
            leader.end_all(GONE);
        }
    }
}

impl EventFile {
    /// Takes over a file of records, which is non-blocking from here on.
    ///
    /// # Errors
    /// If there is no file descriptor left for waking the readers.
    fn new(file: OwnedFd, status: Arc<Status>) -> io::Result<Self> {
        // The kernel makes these files with no other flag that can be set or taken away.
        fcntl(&file, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self {
            file,
            wake,
            life: status.life(),
            status,
            ends: AtomicU8::new(0),
            misses: AtomicU8::new(0),
            followers: Mutex::default(),
        })
    }

    /// Takes over the file that all others of its context follow: its readers, and theirs, are ended
    /// by whoever finds the device gone.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn leader(file: OwnedFd, status: Arc<Status>) -> io::Result<Arc<Self>> {
        let leader = Arc::new(Self::new(file, status)?);
        let ends = EndsWithDevice(Arc::downgrade(&leader));
        leader.status.tell_when_gone(Arc::new(ends));
        Ok(leader)
    }

    /// Takes over another file of the same context, which ends when this one does.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn follower(self: &Arc<Self>, file: OwnedFd) -> io::Result<Arc<Self>> {
        let follower = Arc::new(Self::new(file, Arc::clone(&self.status))?);
        if self.status.is_ours() {
            let mut followers = self.followers();
            followers.retain(|weak| weak.strong_count() != 0);
            followers.push(Arc::downgrade(&follower));
        }
        // Marked before the followers are told, under their lock: who came too late for that sees it.
        if self.status.is_gone() {
            follower.end(GONE);
        }
        Ok(follower)
    }

    fn followers(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Self>>> {
        // Nothing panics while it is held.
        self.followers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Readable when there may be a record.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Readable, for good, once the readers are to end.
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Whether both are files of the same open device.
    pub(crate) fn is_of(&self, status: &Arc<Status>) -> bool {
        Arc::ptr_eq(&self.status, status)
    }

    /// Ends all readers at once.
    pub(crate) fn stop(&self) {
        self.end(STOPPED);
    }

    /// The context is going away: ends all readers, here and of what follows, once they have read
    /// what is queued.
    pub(crate) fn close(&self) {
        self.end_all(CLOSED);
    }

    /// The device is gone: for the readers of all files of the context, and for every call on it.
    pub(crate) fn device_gone(&self) {
        // Ends all readers, if it is news. If the context is closed they have ended, but for this
        // file's own, who hear of it here.
        self.status.mark_gone();
        if self.ends.load(Ordering::Relaxed) & GONE == 0 {
            self.end(GONE);
        }
    }

    fn end_all(&self, why: u8) {
        self.end(why);
        if self.status.is_ours() {
            // Let go of before anybody is dropped: a follower's last handle may go with it.
            let followers: Vec<_> = self.followers().iter().filter_map(Weak::upgrade).collect();
            for follower in followers {
                follower.end(why);
            }
        }
    }

    /// Says so to everyone who asks, and wakes everyone who waits.
    fn end(&self, why: u8) {
        // The eventfd is the parent's, too: waking its readers is not for a child to do.
        if !self.status.is_ours() {
            return;
        }
        // Release, before the wake: pairs with the Acquire loads in `check` and `ending`, so that
        // whoever is woken finds the reason.
        self.ends.fetch_or(why, Ordering::Release);
        // The counter cannot be full, which is the one way for this to fail: it takes 2^64 ends.
        let _: Result<usize, Nix> = self.wake.write(1);
    }

    /// Whether nothing forbids to read, and nothing awaits a reader that finds nothing more: a yes is
    /// true, and a no has to be looked into.
    #[inline(always)]
    pub(crate) fn is_undisturbed(&self) -> bool {
        // Acquire: pairs with the Release in `end`.
        self.life.is_on() && self.ends.load(Ordering::Acquire) == 0
    }

    /// What forbids to read at all.
    pub(crate) fn check(&self) -> Result<(), EventError> {
        if !self.status.is_ours() {
            return Err(EventError::ForeignProcess);
        }
        // Acquire: pairs with the Release in `end`.
        if self.ends.load(Ordering::Acquire) & STOPPED != 0 {
            return Err(EventError::Stopped);
        }
        Ok(())
    }

    /// Whether something awaits a reader that finds nothing more to read. Once so, for good.
    #[inline]
    pub(crate) fn is_ending(&self) -> bool {
        // Acquire: pairs with the Release in `end`.
        self.ends.load(Ordering::Acquire) & (GONE | CLOSED) != 0
    }

    /// What awaits a reader that finds nothing more to read.
    pub(crate) fn ending(&self) -> Option<EventError> {
        // Acquire: pairs with the Release in `end`.
        let ends = self.ends.load(Ordering::Acquire);
        if ends & GONE != 0 {
            Some(EventError::DeviceGone)
        } else if ends & CLOSED != 0 {
            Some(EventError::ContextClosed)
        } else {
            None
        }
    }

    /// Somebody may want to know that a queue pair's state may have changed.
    pub(super) fn note_error(&self) {
        self.status.note_error();
    }

    /// Whether a call that may wait should read before it waits: a record is likely to be there, since
    /// one was when it was last tried. Where none is, the read is a system call for nothing.
    pub(crate) fn is_read_likely(&self) -> bool {
        // Relaxed: a guess.
        let misses = self.misses.load(Ordering::Relaxed) % TRIED_AGAIN_AFTER;
        self.misses.store(misses.wrapping_add(1), Ordering::Relaxed);
        misses == 0
    }

    /// A read without a wait before it has found a record.
    pub(crate) fn note_hit(&self) {
        // Relaxed: as above.
        self.misses.store(0, Ordering::Relaxed);
    }

    /// Reads one record; gives how many bytes there were, `None` if there is nothing to read.
    ///
    /// # Errors
    /// What the kernel said. A signal is none.
    #[inline(always)]
    pub(crate) fn read(&self, bytes: &mut [u8]) -> Result<Option<usize>, Nix> {
        match nix::unistd::read(&self.file, bytes) {
            Ok(len) => Ok(Some(len)),
            Err(errno) => self.read_again(bytes, errno),
        }
    }

    /// The rest of [`read`](Self::read), after an error.
    #[cold]
    fn read_again(&self, bytes: &mut [u8], mut errno: Nix) -> Result<Option<usize>, Nix> {
        while errno == Nix::EINTR {
            match nix::unistd::read(&self.file, bytes) {
                Ok(len) => return Ok(Some(len)),
                Err(next) => errno = next,
            }
        }
        match errno {
            Nix::EAGAIN => Ok(None),
            errno => Err(errno),
        }
    }

    /// Waits until there may be something to read, or the readers are being ended, or the time is
    /// up, or a signal came; or until `also` is readable.
    pub(crate) fn poll(
        &self,
        timeout: PollTimeout,
        also: Option<BorrowedFd<'_>>,
    ) -> Result<(), EventError> {
        let own = [self.fd(), self.wake_fd()];
        let watch = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let ready = match also {
            None => poll(&mut own.map(watch), timeout),
            Some(also) => poll(&mut [own[0], own[1], also].map(watch), timeout),
        };
        match ready {
            Ok(_) | Err(Nix::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// How long to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    Now,
    At(Instant),
    Forever,
}

impl Until {
    /// After `timeout`; never, if that is too far to be reckoned.
    pub(crate) fn after(timeout: Duration) -> Self {
        Instant::now()
            .checked_add(timeout)
            .map_or(Self::Forever, Self::At)
    }

    /// Whether to read before waiting: always, where there is no waiting.
    pub(crate) fn reads_first(self, file: &EventFile) -> bool {
        matches!(self, Self::Now) || file.is_read_likely()
    }

    /// For `poll()`: whole milliseconds, rounded up, so as not to be early. `None`: time is up.
    pub(crate) fn left(self) -> Option<PollTimeout> {
        let left = match self {
            Self::Now => return None,
            Self::At(at) => at.saturating_duration_since(Instant::now()),
            Self::Forever => return Some(PollTimeout::NONE),
        };
        if left == Duration::ZERO {
            return None;
        }
        let millis = left.as_nanos().div_ceil(1_000_000);
        Some(PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX))
    }
}

//! One open device as all layers above share it: the kernel, the driver's number, whose process it
//! is, and whether the device is still there.
//!
//! Must never hold a lock over a system call.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::command::{Command, Reply};
use crate::layout::cmd::IB_USER_VERBS_CMD_POST_SEND;
use crate::layout::ids::{attr, method, object};
use crate::legacy::Doorbell;
use crate::sys::bell::{Bell, Unrung};
use crate::sys::process::{Life, Mark};
use crate::{Cause, CommandError, Errno, Kernel, Mapping, legacy};

/// Somebody who is to be told when the device is found to be gone.
pub trait WhenGone: fmt::Debug + Send + Sync {
    /// The device is gone. Called by the thread that found out, which may be in the middle of any call
    /// and hold its locks: it must neither wait nor call the device. Never in a forked child; as a
    /// rule once, and twice if the finding and the naming of the listener meet.
    fn device_gone(&self);
}

/// What is known of an open device beside the file itself. Whoever reads its events shares this,
/// and so does not keep the file open.
#[derive(Debug)]
pub struct Status {
    process: Mark,
    /// Ends with the device, or with this value.
    life: Life,
    gone: AtomicBool,
    when_gone: Mutex<Option<Arc<dyn WhenGone>>>,
    errors: AtomicU32,
}

impl Status {
    /// The status of a device that the calling process has just opened.
    #[must_use]
    pub fn new() -> Self {
        Self {
            process: Mark::here(),
            life: Life::begin(),
            gone: AtomicBool::new(false),
            when_gone: Mutex::new(None),
            errors: AtomicU32::new(0),
        }
    }

    /// Whether the calling process is the one that opened the device.
    #[inline]
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.process.is_ours()
    }

    /// Whether the device is known to have been removed. Never turns back.
    #[inline]
    #[must_use]
    pub fn is_gone(&self) -> bool {
        // Relaxed: a hint that only ever goes one way; no other memory hangs on it.
        self.gone.load(Ordering::Relaxed)
    }

    /// Records that the device has been removed. Whoever does so first tells the one who is to be
    /// [told](Self::tell_when_gone).
    pub fn mark_gone(&self) {
        // Relaxed: as above; the one who is told has the lock.
        if self.gone.swap(true, Ordering::Relaxed) {
            return;
        }
        self.life.end();
        self.tell();
    }

    /// Names the one who is told when the device is found to be gone, at once if it has been. There is
    /// one; what comes after it is ignored.
    pub fn tell_when_gone(&self, listener: Arc<dyn WhenGone>) {
        {
            let mut named = self.when_gone();
            if named.is_some() {
                return;
            }
            *named = Some(listener);
        }
        // Who marked the device before it looked for a listener, and found none, had the lock before:
        // then the mark is seen here.
        if self.is_gone() {
            self.tell();
        }
    }

    fn tell(&self) {
        if !self.is_ours() {
            return;
        }
        // Told without the lock.
        let listener = self.when_gone().clone();
        if let Some(listener) = listener {
            listener.device_gone();
        }
    }

    fn when_gone(&self) -> MutexGuard<'_, Option<Arc<dyn WhenGone>>> {
        // Whole after a panic as before it: it is only ever set.
        self.when_gone
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What says in one comparison that the calling process is the one that opened the device, and
    /// that the device is not known to be gone. When it says no, the two questions are asked.
    #[inline]
    #[must_use]
    pub const fn life(&self) -> Life {
        self.life
    }

    /// Notes that something went wrong that can have moved a queue pair to the error state: a
    /// completion with an error status, or an event about a queue pair.
    pub fn note_error(&self) {
        // Relaxed: only the fact that the number changed matters.
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Changes whenever [`note_error`](Self::note_error) is called.
    #[inline]
    #[must_use]
    pub fn error_epoch(&self) -> u32 {
        self.errors.load(Ordering::Relaxed)
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        self.life.end();
    }
}

impl Default for Status {
    fn default() -> Self {
        Self::new()
    }
}

/// A doorbell that was not taken the cheap way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(Unrung);

/// The command that a doorbell is.
const DOORBELL: &str = "POST_SEND";

/// An open uverbs file with what must be known on every call.
#[derive(Debug)]
pub struct Session {
    kernel: Arc<dyn Kernel>,
    driver: u32,
    bell: Bell,
    doorbell_by_ioctl: AtomicBool,
    status: Arc<Status>,
    provider_state: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Session {
    /// Wraps an open file whose driver has the given number (`enum rdma_driver_id`).
    #[must_use]
    pub fn new(kernel: Arc<dyn Kernel>, driver: u32) -> Self {
        Self {
            bell: Bell::new(kernel.doorbell_file()),
            kernel,
            driver,
            doorbell_by_ioctl: AtomicBool::new(false),
            status: Arc::new(Status::new()),
            provider_state: OnceLock::new(),
        }
    }

    /// The driver's number (`enum rdma_driver_id`).
    #[must_use]
    pub const fn driver(&self) -> u32 {
        self.driver
    }

    /// What is known beside the file itself.
    #[must_use]
    pub const fn status(&self) -> &Arc<Status> {
        &self.status
    }

    /// What the device's provider keeps for the whole session, made when it is first asked for.
    ///
    /// A session has one provider, and that asks for one type; for another there is `None`.
    pub fn provider_state<T: Any + Send + Sync + Default>(&self) -> Option<Arc<T>> {
        let state = self.provider_state.get_or_init(|| Arc::new(T::default()));
        Arc::clone(state).downcast().ok()
    }

    /// [`Status::is_ours`].
    #[inline]
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.status.is_ours()
    }

    /// [`Status::is_gone`].
    #[inline]
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.status.is_gone()
    }

    /// [`Status::mark_gone`].
    pub fn mark_gone(&self) {
        self.status.mark_gone();
    }

    /// [`Status::note_error`].
    pub fn note_error(&self) {
        self.status.note_error();
    }

    /// [`Status::error_epoch`].
    #[inline]
    #[must_use]
    pub fn error_epoch(&self) -> u32 {
        self.status.error_epoch()
    }

    /// Whether this process may use the device and the device is still there.
    ///
    /// # Errors
    /// [`Cause::ForeignProcess`], [`Cause::DeviceGone`].
    #[inline]
    pub fn check(&self, command: &'static str) -> Result<(), CommandError> {
        let cause = if !self.is_ours() {
            Cause::ForeignProcess
        } else if self.is_gone() {
            Cause::DeviceGone
        } else {
            return Ok(());
        };
        Err(CommandError { command, cause })
    }

    /// Runs a command.
    ///
    /// # Errors
    /// Whatever stood in the way. `EIO` is asked about once more with a harmless query; if that too
    /// says `EIO`, the device counts as removed from then on.
    #[inline]
    pub fn run(&self, command: &mut Command<'_>) -> Result<Reply, CommandError> {
        self.check(command.name())?;
        self.run_unchecked(command)
    }

    /// Runs a command that the kernel also answers after the device is gone: a destroy.
    ///
    /// # Errors
    /// As [`run`](Self::run), but for a removed device the kernel itself is asked.
    #[inline]
    pub fn run_destroy(&self, command: &mut Command<'_>) -> Result<Reply, CommandError> {
        if !self.is_ours() {
            return Err(CommandError {
                command: command.name(),
                cause: Cause::ForeignProcess,
            });
        }
        self.run_unchecked(command)
    }

    fn run_unchecked(&self, command: &mut Command<'_>) -> Result<Reply, CommandError> {
        let name = command.name();
        command.check()?;
        match self.kernel.ioctl(self.driver, command) {
            Ok(()) => command.take_reply(),
            Err(Errno::EIO) if self.confirm_gone() => Err(CommandError {
                command: name,
                cause: Cause::DeviceGone,
            }),
            Err(errno) => Err(CommandError::refused(name, errno)),
        }
    }

    /// Tells a removed device from a command that failed with `EIO` for a reason of its own.
    fn confirm_gone(&self) -> bool {
        if self.is_gone() {
            return true;
        }
        let mut vectors = 0u32;
        let mut query = Command::new(
            "QUERY_CONTEXT",
            object::DEVICE,
            method::device::QUERY_CONTEXT,
        );
        query.output(attr::query_context::NUM_COMP_VECTORS, &mut vectors);
        let gone = self.kernel.ioctl(self.driver, &mut query) == Err(Errno::EIO);
        if gone {
            self.mark_gone();
        }
        gone
    }

    /// Tells the kernel to look at a queue pair's send queue (drivers whose work the kernel does).
    ///
    /// A `write()`, which is the cheapest way in. Where the kernel refuses it because the process
    /// has changed its credentials since the device was opened, the ioctl takes over for good.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn doorbell(&self, qp_handle: u32) -> Result<(), CommandError> {
        self.check(DOORBELL)?;
        let doorbell = Doorbell::new(qp_handle);
        self.ring(&doorbell)
            .or_else(|refusal| self.ring_otherwise(&doorbell, refusal))
    }

    /// The first half of [`doorbell`](Self::doorbell), right after somebody has found that this process
    /// may use the device and that it is there.
    ///
    /// # Errors
    /// What [`ring_otherwise`](Self::ring_otherwise) goes on with.
    #[inline]
    pub fn ring(&self, doorbell: &Doorbell) -> Result<(), Refusal> {
        self.bell.ring(doorbell).map_err(Refusal)
    }

    /// [`ring`](Self::ring) where there is no file to write to.
    fn ring_by_call(&self, doorbell: &Doorbell) -> Result<(), Errno> {
        // Relaxed: whoever misses the switch learns it from the kernel, as the first one did.
        if self.doorbell_by_ioctl.load(Ordering::Relaxed) {
            return Err(Errno::EACCES);
        }
        self.kernel.doorbell(doorbell)
    }

    /// The second half: what is to be done about a refusal.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn ring_otherwise(
        &self,
        doorbell: &Doorbell,
        Refusal(unrung): Refusal,
    ) -> Result<(), CommandError> {
        let errno = match unrung.errno() {
            Some(errno) => errno,
            None => match self.ring_by_call(doorbell) {
                Ok(()) => return Ok(()),
                Err(errno) => errno,
            },
        };
        match errno {
            Errno::EACCES => {
                self.doorbell_by_ioctl.store(true, Ordering::Relaxed);
                self.bell.give_up();
                self.doorbell_ioctl(doorbell.qp_handle())
            }
            Errno::EIO if self.confirm_gone() => Err(CommandError {
                command: DOORBELL,
                cause: Cause::DeviceGone,
            }),
            errno => Err(CommandError::refused(DOORBELL, errno)),
        }
    }

    fn doorbell_ioctl(&self, qp_handle: u32) -> Result<(), CommandError> {
        let request = legacy::doorbell_request(qp_handle);
        let mut response = [0u8; legacy::DOORBELL_RESPONSE_LEN];
        let mut command = Command::invoke_write(DOORBELL, IB_USER_VERBS_CMD_POST_SEND);
        command.core(&request, &mut response);
        self.run(&mut command).map(drop)
    }

    /// Maps a queue that a create command described.
    ///
    /// # Errors
    /// As [`run`](Self::run), under the name `MMAP`.
    pub fn map(&self, offset: u64, len: usize) -> Result<Mapping, CommandError> {
        const NAME: &str = "MMAP";
        self.check(NAME)?;
        match self.kernel.map(offset, len) {
            Ok(mapping) => Ok(mapping),
            Err(Errno::EIO) if self.confirm_gone() => Err(CommandError {
                command: NAME,
                cause: Cause::DeviceGone,
            }),
            Err(errno) => Err(CommandError::refused(NAME, errno)),
        }
    }
}

//! Completion channels: being told that a completion queue has something to be polled, instead of
//! polling it.
//!
//! Ground truth: `ibv_get_cq_event(3)`, `ibv_req_notify_cq(3)`, and `ib_uverbs_comp_handler`,
//! `ib_uverbs_event_read` of the kernel. What the kernel does, and how not to sleep through a
//! completion, is told in `docs/completion-events.md`.
//!
//! It must never block in `read()`, never credit an ack to another queue than the event's, and never
//! lose an event that was read.

mod bell;
mod event;
#[cfg(all(test, uverbs_loom))]
mod model;
mod source;
mod wait;
mod waiter;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use uverbs_providers::verbs;

#[cfg(feature = "tokio")]
pub(crate) use self::bell::Rope;
pub use self::event::{CompletionAcks, CompletionEvent};
pub(crate) use self::source::ChannelSource;
pub use self::wait::WaitError;
pub(crate) use self::waiter::Crowd;
#[cfg(feature = "tokio")]
pub(crate) use self::waiter::{Step, Waiter};

use crate::context::Context;
use crate::error::{CreateError, CreateErrorCause};
use crate::event::{EventError, Until};

const NAME: &str = "completion channel";

/// Where completion queues say that they have something to be polled.
///
/// A cheap handle. Clones share one queue of events: each reaches exactly one of those who wait, in
/// no particular turn. Many completion queues can share a channel; each keeps it alive. It does not
/// keep the context open: when that is closed, or the device is gone, everyone who waits is told.
///
/// A queue says nothing by itself: it must be [armed](crate::CompletionQueue::arm), and then tells of
/// one completion that comes *after* the arming. So arm, poll until there is nothing left, and only
/// then wait; [`CompletionQueue::wait`](crate::CompletionQueue::wait) does it for one queue:
///
/// ```
/// use uverbs::Wc;
/// # use uverbs::{AccessFlags, ConnectOptions, PathOptions, Rc, RecvWr, SendWr};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let context = uverbs::fake::Fabric::new().add_device("rxe0").open()?;
/// let channel = context.create_completion_channel()?;
/// let cq = context.create_cq(16).channel(&channel, 0).build()?;
/// # let pd = context.alloc_pd()?;
/// # let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
/// # let here = qp.prepare(&PathOptions::default())?;
/// # qp.connect(&here, &here, &ConnectOptions::default())?;
/// # let room = pd.allocate(64, AccessFlags::LOCAL_WRITE)?;
/// # qp.post_recv(&[RecvWr::new(2, &[room.slice(..)?])])?;
/// # qp.post_send(&[SendWr::send(1, &[room.slice(..8)?]).signaled()])?;
/// let mut room = [Wc::default(); 16];
/// for completion in cq.wait(&mut room)? {
///     println!("{} is done", completion.ok()?.wr_id);
/// }
/// # Ok(())
/// # }
/// ```
/// With many queues on one channel each event names its own. Arm it again *before* it is emptied:
/// what comes in between has raised another event by then.
///
/// ```
/// use uverbs::{Arm, Wc};
/// # use uverbs::{AccessFlags, ConnectOptions, PathOptions, Rc, RecvWr, SendWr};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let context = uverbs::fake::Fabric::new().add_device("rxe0").open()?;
/// let channel = context.create_completion_channel()?;
/// let (sends, receives) = (
///     context.create_cq(16).channel(&channel, 0).build()?,
///     context.create_cq(16).channel(&channel, 0).build()?,
/// );
/// sends.arm(Arm::Next)?;
/// receives.arm(Arm::Next)?;
/// # let pd = context.alloc_pd()?;
/// # let qp = pd.create_qp::<Rc>(&sends, &receives).build()?;
/// # let here = qp.prepare(&PathOptions::default())?;
/// # qp.connect(&here, &here, &ConnectOptions::default())?;
/// # let room = pd.allocate(64, AccessFlags::LOCAL_WRITE)?;
/// # qp.post_recv(&[RecvWr::new(2, &[room.slice(..)?])])?;
/// # qp.post_send(&[SendWr::send(1, &[room.slice(..8)?]).signaled()])?;
/// # let mut rounds = 0;
/// loop {
///     let event = channel.next()?;
///     event.cq().arm(Arm::Next)?;
///     let mut room = [Wc::default(); 16];
///     while let [first, ..] = event.cq().poll(&mut room)? {
///         println!("{} is done", first.ok()?.wr_id);
///     }
///     // Dropping the event acks it.
/// #   rounds += 1;
/// #   if rounds == 2 { return Ok(()); }
/// }
/// # }
/// ```
#[doc(alias = "ibv_comp_channel")]
#[doc(alias = "ibv_create_comp_channel")]
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    source: Arc<ChannelSource>,
}

impl CompletionChannel {
    pub(crate) fn create(context: &Context) -> Result<Self, CreateError> {
        let error = |cause| CreateError {
            object: NAME,
            cause,
            limits: Vec::new(),
        };
        let file = verbs::cq::create_channel(context.session())
            .map_err(|refusal| error(CreateErrorCause::Refused(refusal.into())))?;
        let events = context.event_source();
        // If it cannot be waited on it is closed again here.
        let file = events.file().follower(file).map_err(|cause| {
            let errno = uverbs_abi::Errno::from(&cause);
            error(CreateErrorCause::NoWakeFd(errno))
        })?;
        let source = Arc::new(ChannelSource::new(file, events.ledger().clone()));
        Ok(Self { source })
    }

    pub(crate) const fn source(&self) -> &Arc<ChannelSource> {
        &self.source
    }

    pub(crate) const fn of(source: Arc<ChannelSource>) -> Self {
        Self { source }
    }

    /// Waits for the next event.
    ///
    /// An event of a queue that is gone or going is acked on its behalf and passed over. It goes on
    /// waiting when the last of the channel's queues has been destroyed, and even when all other
    /// handles of the channel are gone: [`stop`](Self::stop) it before, or close the context.
    ///
    /// # Errors
    /// [`EventError::Stopped`] after [`stop`](Self::stop); [`EventError::ContextClosed`] and
    /// [`EventError::DeviceGone`] when nothing is left to read and nothing will come, for good;
    /// [`EventError::ForeignProcess`] in a forked child; [`EventError::BadRecord`] and
    /// [`EventError::Os`] if the kernel does what it never should.
    #[doc(alias = "ibv_get_cq_event")]
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator cannot say why it ends, and clones share the events"
    )]
    pub fn next(&self) -> Result<CompletionEvent, EventError> {
        loop {
            if let Some(event) = self.source.next_until(Until::Forever, None)? {
                return Ok(event);
            }
        }
    }

    /// Waits for the next event, at most for `timeout`, which is rounded up to whole milliseconds.
    /// `None` when the time is up.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn next_timeout(&self, timeout: Duration) -> Result<Option<CompletionEvent>, EventError> {
        self.source.next_until(Until::after(timeout), None)
    }

    /// The next event, if there is one. For use with `poll(2)` or `epoll(7)`: call it until it gives
    /// `None`.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn try_next(&self) -> Result<Option<CompletionEvent>, EventError> {
        self.source.read()
    }

    /// Ends this handle, its clones, and everyone who waits through one of them or for a completion
    /// of one of the channel's queues, with [`EventError::Stopped`]. For good; what is queued stays
    /// unread. Polling the queues goes on working.
    ///
    /// In a forked child it does nothing.
    pub fn stop(&self) {
        self.source.file().stop();
    }

    /// A file descriptor that becomes readable, for good, when those who wait are to end: they were
    /// stopped, the context is closed, or the device is gone. An event loop should watch it beside
    /// the one of [`as_fd`](AsFd::as_fd). Do not read from it.
    #[must_use]
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.source.file().wake_fd()
    }

    /// How many events were read that led to no queue: it was gone, or being destroyed. For
    /// diagnosis.
    #[must_use]
    pub fn passed_over(&self) -> u64 {
        self.source.passed_over()
    }
}

/// Readable when an event may be there to be read. It shows *events*, not completions: a queue whose
/// completions are polled elsewhere may leave an event behind, and one that is not armed says nothing
/// however full it is.
impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.file().fd()
    }
}

impl PartialEq for CompletionChannel {
    /// Whether both are handles of the same channel.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.source, &other.source)
    }
}

impl Eq for CompletionChannel {}

//! Completion queues.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use uverbs_abi::Session;
use uverbs_providers::contract::{Arm, CqOps, CqSpec, ExclusiveCq};
use uverbs_providers::error::{PollError, TakeError};
use uverbs_providers::types::QueueId;
use uverbs_providers::wc::Wc;

use crate::attr::DeviceAttr;
use crate::channel::{ChannelSource, CompletionChannel, Crowd};
use crate::context::Context;
use crate::error::{
    CreateError, CreateErrorCause, DestroyError, Limit, ObjectError, ObjectErrorCause,
};
use crate::event::{AsyncEvents, Counts, Registration, Reported, Sort, WeakObject};
use crate::gate::Gate;
use crate::lent::{Home, Lent};
use crate::teardown::{self, Teardown};
use crate::user_data::UserData;

const NAME: &str = "completion queue";

/// A completion queue: where work requests that are done are told.
///
/// A cheap handle; queue pairs keep the queues that they report to. When the last handle goes, the
/// kernel's object is destroyed without waiting for anything; [`destroy`](Self::destroy) is the verb
/// that waits.
#[derive(Clone)]
#[doc(alias = "ibv_cq")]
pub struct CompletionQueue {
    pub(crate) inner: Arc<CqInner>,
}

// Field order is destroy order, after `Drop` has destroyed the kernel object: the mapping (in
// `ops`), the token, the channel, then the device.
pub(crate) struct CqInner {
    pub(crate) ops: Box<dyn CqOps>,
    pub(crate) gate: Gate,
    registration: Registration,
    user_data: UserData,
    pub(crate) channel: Option<Arc<ChannelSource>>,
    /// Those who wait for a completion; they are woken when it is destroyed.
    pub(crate) crowd: Crowd,
    context: Context,
}

/// Settings of a completion queue that is to be made.
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `build`"]
pub struct CompletionQueueBuilder<'c> {
    context: &'c Context,
    depth: u32,
    vector: u32,
    channel: Option<&'c CompletionChannel>,
    events: Option<&'c AsyncEvents>,
    user_data: UserData,
}

impl<'c> CompletionQueueBuilder<'c> {
    pub(crate) const fn new(context: &'c Context, depth: u32) -> Self {
        Self {
            context,
            depth,
            vector: 0,
            channel: None,
            events: None,
            user_data: UserData::NONE,
        }
    }

    /// Which completion vector (interrupt) serves it; below
    /// [`num_comp_vectors`](Context::num_comp_vectors). 0 unless said.
    pub const fn comp_vector(mut self, vector: u32) -> Self {
        self.vector = vector;
        self
    }

    /// Where it says that it has something to be polled, when it is [armed](CompletionQueue::arm),
    /// and which completion vector serves it (0 is always there). The queue keeps the channel.
    #[doc(alias = "ibv_comp_channel")]
    pub const fn channel(mut self, channel: &'c CompletionChannel, vector: u32) -> Self {
        self.channel = Some(channel);
        self.vector = vector;
        self
    }

    /// Sends its asynchronous events to this queue instead of the context's own; see
    /// [`Context::event_queue`](crate::Context::event_queue).
    pub const fn events(mut self, queue: &'c AsyncEvents) -> Self {
        self.events = Some(queue);
        self
    }

    /// Attaches a value to it, of any type, which every handle gives back, those in its events
    /// included: what the `context` pointer of a verbs object is in C.
    ///
    /// To share the value, attach an `Arc`. A value that keeps a handle of this very object keeps it
    /// for ever; let it hold what it needs to find one.
    #[doc(alias = "cq_context")]
    pub fn user_data<D: Any + Send + Sync>(mut self, data: D) -> Self {
        self.user_data = UserData::new(data);
        self
    }

    /// Makes it.
    ///
    /// # Errors
    /// [`CreateError`]; it names the device's limit if the depth is above it.
    pub fn build(self) -> Result<CompletionQueue, CreateError> {
        let error = |cause| CreateError {
            object: NAME,
            cause,
            limits: Vec::new(),
        };
        if self.depth == 0 {
            return Err(error(CreateErrorCause::Zero { what: "the depth" }));
        }
        let provider = teardown::provider(self.context).map_err(error)?;
        // Before the ledger's lock: in a forked child its holder may not exist.
        let session = self.context.session();
        session
            .check("CQ_CREATE")
            .map_err(|refusal| error(CreateErrorCause::Refused(refusal.into())))?;
        let channel = self.channel.map(CompletionChannel::source);
        if channel.is_some_and(|channel| !channel.file().is_of(session.status())) {
            return Err(error(CreateErrorCause::OtherContext {
                what: "completion channel",
            }));
        }
        let source = teardown::event_source(self.context, self.events).map_err(error)?;
        let reservation = source.ledger().reserve();
        let spec = CqSpec {
            depth: self.depth,
            token: reservation.token().as_raw(),
            channel: channel.map(|channel| channel.file().fd()),
            vector: self.vector,
            events: Some(source.event_fd()),
        };
        let ops = provider.create_cq(session, &spec).map_err(|cause| {
            let asked = |device: &DeviceAttr| vec![("depth", self.depth, device.max_cqe)];
            let in_all: (_, fn(&DeviceAttr) -> u32) = ("max_cq", |device| device.max_cq);
            let mut limits = teardown::limits(self.context, &cause, asked, in_all);
            let vectors = self.context.num_comp_vectors();
            if self.vector >= vectors.max(1) {
                limits.push(Limit::NoSuch {
                    name: "comp_vector",
                    asked: self.vector.into(),
                    count: vectors.into(),
                });
            }
            CreateError {
                object: NAME,
                cause: cause.into(),
                limits,
            }
        })?;
        let inner = reservation.commit_with(|registration| {
            let inner = Arc::new(CqInner {
                ops,
                gate: Gate::default(),
                registration,
                user_data: self.user_data,
                channel: channel.cloned(),
                crowd: Crowd::default(),
                context: self.context.clone(),
            });
            let object = WeakObject::Cq(WeakCompletionQueue(Arc::downgrade(&inner)));
            (inner, object)
        });
        Ok(CompletionQueue { inner })
    }
}

impl CompletionQueue {
    /// Completions that it holds, as granted: at least as many as were asked for.
    #[must_use]
    #[doc(alias = "cqe")]
    pub fn depth(&self) -> u32 {
        self.inner.ops.depth()
    }

    /// A number that tells completion queues of one open device apart, for logs.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.inner.ops.handle().0
    }

    /// The device it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Moves completions out, oldest first: fills `out` from its start and gives the part that was
    /// filled, empty if there was none. Never waits.
    ///
    /// A work request that failed is a completion with a [status](Wc::status), not an error of the
    /// queue.
    ///
    /// # Errors
    /// [`PollError`]. After the device has been removed, completions still queued come first.
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    pub fn poll<'b>(&self, out: &'b mut [Wc]) -> Result<&'b mut [Wc], PollError> {
        let taken = self.inner.ops.try_poll(out);
        if taken > out.len() {
            return self.inner.ops.poll(out);
        }
        Ok(out.get_mut(..taken).unwrap_or_default())
    }

    /// Takes the queue for use by one owner, without locks. Meanwhile polling through a shared
    /// handle says [`PollError::InExclusiveUse`].
    ///
    /// # Errors
    /// [`TakeError`] if somebody else has it.
    pub fn exclusive(&self) -> Result<ExclusiveCompletionQueue, TakeError> {
        let queue = self.inner.ops.take()?;
        Ok(ExclusiveCompletionQueue {
            lent: Lent::new(queue, self.clone()),
        })
    }

    /// Asks for one completion event on the queue's [channel](CompletionQueueBuilder::channel): at
    /// the next completion, or only at the next solicited one.
    ///
    /// *Next* means: after this. What is in the queue already raises nothing, so poll once more after
    /// arming and before waiting, until there is nothing left. Arming again before the event has come
    /// changes nothing, but that [`Arm::Next`] takes in what [`Arm::Solicited`] leaves out. The event
    /// disarms the queue. A queue without a channel is armed to no effect.
    ///
    /// # Errors
    /// [`ObjectError`].
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&self, kind: Arm) -> Result<(), ObjectError> {
        let arm = || {
            let _pass = teardown::enter(&self.inner.gate, self.session(), "REQ_NOTIFY_CQ")?;
            Ok::<_, ObjectErrorCause>(self.inner.ops.arm(kind)?)
        };
        arm().map_err(|cause| ObjectError::about(Teardown::id(self), cause))
    }

    /// The channel that it was made with.
    #[must_use]
    pub fn channel(&self) -> Option<CompletionChannel> {
        self.inner.channel.clone().map(CompletionChannel::of)
    }

    /// How many completion events of it have been handed out, and how many acked.
    #[must_use]
    pub fn completion_event_counts(&self) -> Counts {
        self.inner.registration.counts_of(Sort::Completion)
    }

    /// The value that was attached when it was made, if there is one and it is of type `D`.
    #[must_use]
    pub fn user_data<D: Any>(&self) -> Option<&D> {
        self.inner.user_data.get()
    }

    /// How many asynchronous events about it have been handed out, and how many acked.
    #[must_use]
    pub fn event_counts(&self) -> Counts {
        self.inner.registration.counts()
    }

    /// Destroys it, then waits until every event about it that was read has been acked, completion
    /// events and asynchronous ones.
    ///
    /// Other handles become inert; who waits for completions through one is told
    /// ([`WaitError::Destroyed`](crate::WaitError::Destroyed)). Waits **for ever** if this very thread holds such an event, as
    /// `ibv_destroy_cq(3)` does: [`try_destroy`](Self::try_destroy) and
    /// [`destroy_timeout`](Self::destroy_timeout) do not.
    ///
    /// # Errors
    /// [`DestroyError`]; `EBUSY` while a queue pair reports to it. The object comes back.
    #[doc(alias = "ibv_destroy_cq")]
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        teardown::destroy(self, None)
    }

    /// As [`destroy`](Self::destroy), and refuses before anything happens if events about it are
    /// out.
    ///
    /// # Errors
    /// [`DestroyError`]; the object comes back.
    pub fn try_destroy(self) -> Result<(), DestroyError<Self>> {
        teardown::try_destroy(self)
    }

    /// As [`destroy`](Self::destroy), waiting no longer than `limit`; then it says how many events
    /// are still held. The object is destroyed in any case.
    ///
    /// # Errors
    /// [`DestroyError`].
    pub fn destroy_timeout(self, limit: Duration) -> Result<(), DestroyError<Self>> {
        teardown::destroy(self, Some(limit))
    }
}

impl Teardown for CompletionQueue {
    const USERS: &'static str = "queue pairs still report to it";

    fn id(&self) -> QueueId {
        QueueId::CompletionQueue(self.inner.ops.handle())
    }

    fn gate(&self) -> &Gate {
        &self.inner.gate
    }

    #[inline(always)]
    fn registration(&self) -> &Registration {
        &self.inner.registration
    }

    fn session(&self) -> &Session {
        self.inner.context.session()
    }

    fn holders(&self) -> Vec<QueueId> {
        let handle = self.inner.ops.handle();
        let living = self.inner.context.living();
        living.holders(|on| on.cqs.contains(&handle))
    }

    fn close(&self) -> Result<Reported, uverbs_providers::error::CloseError> {
        self.inner.ops.destroy().map(Reported::from)
    }

    fn tell_waiters(&self) {
        self.inner.crowd.bell.ring();
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        if teardown::is_left(&mut self.gate, self.context.session()) {
            let _ = self.ops.destroy();
        }
    }
}

impl PartialEq for CompletionQueue {
    /// Whether both are handles of the same queue.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for CompletionQueue {}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("handle", &self.inner.ops.handle().0)
            .field("depth", &self.depth())
            .finish()
    }
}

/// Leads to a completion queue as long as it is there.
#[derive(Clone, Debug)]
pub(crate) struct WeakCompletionQueue(Weak<CqInner>);

impl WeakCompletionQueue {
    #[inline]
    pub(crate) fn upgrade(&self) -> Option<CompletionQueue> {
        self.0.upgrade().map(|inner| CompletionQueue { inner })
    }
}

/// A completion queue in the hands of one owner. Dropping it gives the queue back.
#[derive(Debug)]
pub struct ExclusiveCompletionQueue {
    lent: Lent<ExclusiveCq, CompletionQueue>,
}

impl Home<ExclusiveCq> for CompletionQueue {
    fn put_back(&self, queue: ExclusiveCq) {
        self.inner.ops.put_back(queue);
    }
}

impl ExclusiveCompletionQueue {
    /// As [`CompletionQueue::poll`].
    ///
    /// # Errors
    /// [`PollError`].
    #[inline]
    pub fn poll<'b>(&mut self, out: &'b mut [Wc]) -> Result<&'b mut [Wc], PollError> {
        self.lent.queue().poll(out)
    }

    /// The shared handle.
    #[must_use]
    pub const fn shared(&self) -> &CompletionQueue {
        self.lent.home()
    }
}

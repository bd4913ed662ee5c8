//! Shared receive queues.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use uverbs_abi::{Errno, Session};
use uverbs_providers::contract::{SrqOps, SrqSpec};
use uverbs_providers::error::PostError;
use uverbs_providers::types::QueueId;
use uverbs_providers::verbs;
use uverbs_providers::wr::RecvWr;

use crate::attr::DeviceAttr;
use crate::error::{CreateError, CreateErrorCause, DestroyError, ObjectError, ObjectErrorCause};
use crate::event::{AsyncEvents, Counts, Registration, Reported, WeakObject};
use crate::gate::Gate;
use crate::pd::ProtectionDomain;
use crate::teardown::{self, Teardown};
use crate::user_data::UserData;

const NAME: &str = "shared receive queue";

/// A queue of receives that many queue pairs draw from.
///
/// A cheap handle; queue pairs keep the queue that they draw from. When the last handle goes, the
/// kernel's object is destroyed without waiting for anything.
#[derive(Clone)]
#[doc(alias = "ibv_srq")]
pub struct SharedReceiveQueue {
    pub(crate) inner: Arc<SrqInner>,
}

// Field order is destroy order, after `Drop` has destroyed the kernel object.
pub(crate) struct SrqInner {
    pub(crate) ops: Box<dyn SrqOps>,
    pub(crate) gate: Gate,
    registration: Registration,
    user_data: UserData,
    pub(crate) pd: ProtectionDomain,
}

/// What the kernel says of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "ibv_srq_attr")]
pub struct SrqAttr {
    /// Requests that it holds.
    pub max_wr: u32,
    /// Scatter/gather elements of one request.
    pub max_sge: u32,
    /// The limit that is armed, 0 for none. It falls back to 0 when its event is raised.
    pub limit: u32,
}

/// Settings of a shared receive queue that is to be made.
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `build`"]
pub struct SharedReceiveQueueBuilder<'p> {
    pd: &'p ProtectionDomain,
    max_wr: u32,
    max_sge: u32,
    events: Option<&'p AsyncEvents>,
    user_data: UserData,
}

impl ProtectionDomain {
    /// Starts a shared receive queue that holds at least `max_wr` requests, of one element each
    /// unless said otherwise.
    #[doc(alias = "ibv_create_srq")]
    pub const fn create_srq(&self, max_wr: u32) -> SharedReceiveQueueBuilder<'_> {
        SharedReceiveQueueBuilder {
            pd: self,
            max_wr,
            max_sge: 1,
            events: None,
            user_data: UserData::NONE,
        }
    }
}

impl<'p> SharedReceiveQueueBuilder<'p> {
    /// Scatter/gather elements of one request.
    pub const fn max_sge(mut self, max_sge: u32) -> Self {
        self.max_sge = max_sge;
        self
    }

    /// Sends its asynchronous events to this queue instead of the context's own; see
    /// [`Context::event_queue`](crate::Context::event_queue).
    pub const fn events(mut self, queue: &'p AsyncEvents) -> Self {
        self.events = Some(queue);
        self
    }

    /// Attaches a value to it, of any type, which every handle gives back, those in its events
    /// included: what the `context` pointer of a verbs object is in C.
    ///
    /// To share the value, attach an `Arc`. A value that keeps a handle of this very object keeps it
    /// for ever; let it hold what it needs to find one.
    #[doc(alias = "srq_context")]
    pub fn user_data<D: Any + Send + Sync>(mut self, data: D) -> Self {
        self.user_data = UserData::new(data);
        self
    }

    /// Makes it.
    ///
    /// # Errors
    /// [`CreateError`]; it names the device's limits that are exceeded.
    pub fn build(self) -> Result<SharedReceiveQueue, CreateError> {
        let error = |cause| CreateError {
            object: NAME,
            cause,
            limits: Vec::new(),
        };
        if self.max_wr == 0 {
            return Err(error(CreateErrorCause::Zero { what: "max_wr" }));
        }
        let context = self.pd.context();
        let provider = teardown::provider(context).map_err(error)?;
        // Before the ledger's lock: in a forked child its holder may not exist.
        context
            .session()
            .check("SRQ_CREATE")
            .map_err(|refusal| error(CreateErrorCause::Refused(refusal.into())))?;
        let source = teardown::event_source(context, self.events).map_err(error)?;
        let reservation = source.ledger().reserve();
        let spec = SrqSpec {
            pd: self.pd.inner.handle,
            max_wr: self.max_wr,
            max_sge: self.max_sge,
            token: reservation.token().as_raw(),
            events: Some(source.event_fd()),
        };
        let ops = provider
            .create_srq(context.session(), &spec)
            .map_err(|cause| {
                let asked = |device: &DeviceAttr| {
                    vec![
                        ("max_wr", self.max_wr, device.max_srq_wr),
                        ("max_sge", self.max_sge, device.max_srq_sge),
                    ]
                };
                let in_all: (_, fn(&DeviceAttr) -> u32) = ("max_srq", |device| device.max_srq);
                let limits = teardown::limits(context, &cause, asked, in_all);
                CreateError {
                    object: NAME,
                    cause: cause.into(),
                    limits,
                }
            })?;
        let inner = reservation.commit_with(|registration| {
            let inner = Arc::new(SrqInner {
                ops,
                gate: Gate::default(),
                registration,
                user_data: self.user_data,
                pd: self.pd.clone(),
            });
            let object = WeakObject::Srq(WeakSharedReceiveQueue(Arc::downgrade(&inner)));
            (inner, object)
        });
        Ok(SharedReceiveQueue { inner })
    }
}

impl SharedReceiveQueue {
    /// A number that tells shared receive queues of one open device apart, for logs.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.inner.ops.handle().0
    }

    /// Requests that it holds, as granted.
    #[must_use]
    pub fn max_wr(&self) -> u32 {
        self.inner.ops.max_wr()
    }

    /// Scatter/gather elements of one request, as granted.
    #[must_use]
    pub fn max_sge(&self) -> u32 {
        self.inner.ops.max_sge()
    }

    /// Posts receives, in order.
    ///
    /// # Errors
    /// [`PostError`]; `accepted` counts those that are in the queue.
    #[doc(alias = "ibv_post_srq_recv")]
    pub fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.inner.ops.post_recv(wrs)
    }

    /// Arms the limit event: SRQ_LIMIT_REACHED comes once, when a message takes the queue below
    /// `limit` requests. 0 disarms.
    ///
    /// # Errors
    /// [`ObjectError`]; `EINVAL` for a limit above the queue's size, which it names.
    #[doc(alias = "ibv_modify_srq")]
    pub fn set_limit(&self, limit: u32) -> Result<(), ObjectError> {
        let set = || {
            let _pass = teardown::enter(&self.inner.gate, self.session(), "MODIFY_SRQ")?;
            self.set_limit_inside(limit)
        };
        set().map_err(|cause| ObjectError::about(Teardown::id(self), cause))
    }

    fn set_limit_inside(&self, limit: u32) -> Result<(), ObjectErrorCause> {
        self.inner.ops.set_limit(limit).map_err(|source| {
            let has = self.max_wr();
            if source.errno() == Some(Errno::EINVAL) && limit > has {
                ObjectErrorCause::Exceeded {
                    object: NAME,
                    name: "limit",
                    asked: limit,
                    has,
                    source,
                }
            } else {
                source.into()
            }
        })
    }

    /// Asks the kernel for its size and limit.
    ///
    /// # Errors
    /// [`ObjectError`].
    #[doc(alias = "ibv_query_srq")]
    pub fn query(&self) -> Result<SrqAttr, ObjectError> {
        let ask = || {
            let _pass = teardown::enter(&self.inner.gate, self.session(), "QUERY_SRQ")?;
            let attr = verbs::srq::query(self.session(), self.inner.ops.handle());
            attr.map_err(ObjectErrorCause::from)
        };
        let attr = ask().map_err(|cause| ObjectError::about(Teardown::id(self), cause))?;
        Ok(SrqAttr {
            max_wr: attr.max_wr,
            max_sge: attr.max_sge,
            limit: attr.srq_limit,
        })
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

    /// Destroys it, then waits until every event about it that was read has been acked; see
    /// [`CompletionQueue::destroy`](crate::CompletionQueue::destroy).
    ///
    /// # Errors
    /// [`DestroyError`]; `EBUSY` while a queue pair draws from it. The object comes back.
    #[doc(alias = "ibv_destroy_srq")]
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        teardown::destroy(self, None)
    }

    /// As [`destroy`](Self::destroy), and refuses before anything happens if events are out.
    ///
    /// # Errors
    /// [`DestroyError`]; the object comes back.
    pub fn try_destroy(self) -> Result<(), DestroyError<Self>> {
        teardown::try_destroy(self)
    }

    /// As [`destroy`](Self::destroy), waiting no longer than `limit`.
    ///
    /// # Errors
    /// [`DestroyError`]; it says how many events are still held.
    pub fn destroy_timeout(self, limit: Duration) -> Result<(), DestroyError<Self>> {
        teardown::destroy(self, Some(limit))
    }
}

impl Teardown for SharedReceiveQueue {
    const USERS: &'static str = "queue pairs still draw from it";

    fn id(&self) -> QueueId {
        QueueId::SharedReceiveQueue(self.inner.ops.handle())
    }

    fn gate(&self) -> &Gate {
        &self.inner.gate
    }

    #[inline(always)]
    fn registration(&self) -> &Registration {
        &self.inner.registration
    }

    fn session(&self) -> &Session {
        self.inner.pd.context().session()
    }

    fn holders(&self) -> Vec<QueueId> {
        let handle = self.inner.ops.handle();
        let living = self.inner.pd.context().living();
        living.holders(|on| on.srq == Some(handle))
    }

    fn close(&self) -> Result<Reported, uverbs_providers::error::CloseError> {
        self.inner.ops.destroy().map(Reported::from)
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        if teardown::is_left(&mut self.gate, self.pd.context().session()) {
            let _ = self.ops.destroy();
        }
    }
}

impl PartialEq for SharedReceiveQueue {
    /// Whether both are handles of the same queue.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for SharedReceiveQueue {}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("handle", &self.inner.ops.handle().0)
            .field("max_wr", &self.max_wr())
            .finish()
    }
}

/// Leads to a shared receive queue as long as it is there.
#[derive(Clone, Debug)]
pub(crate) struct WeakSharedReceiveQueue(Weak<SrqInner>);

impl WeakSharedReceiveQueue {
    #[inline]
    pub(crate) fn upgrade(&self) -> Option<SharedReceiveQueue> {
        self.0.upgrade().map(|inner| SharedReceiveQueue { inner })
    }
}

//! Work queues.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use uverbs_abi::Session;
use uverbs_providers::contract::{WqOps, WqSpec};
use uverbs_providers::error::CloseError;
use uverbs_providers::types::{QueueId, WqNum};

use crate::attr::DeviceAttr;
use crate::cq::CompletionQueue;
use crate::error::{CreateError, CreateErrorCause, DestroyError};
use crate::event::{AsyncEvents, Counts, Registration, Reported, WeakObject};
use crate::gate::Gate;
use crate::living::Rests;
use crate::pd::ProtectionDomain;
use crate::teardown::{self, Teardown};
use crate::user_data::UserData;

const NAME: &str = "work queue";

/// A queue of receives that stands by itself: over several of them a device can spread what arrives
/// (receive-side scaling), each to a completion queue of its own.
///
/// It can be made and destroyed, and has events. Posting to it, and tables that spread over several,
/// are not there yet. Few devices have work queues: of the kernel's drivers mlx4's and mlx5's; rxe
/// and siw have none.
///
/// A cheap handle. It keeps its protection domain and its completion queue. When the last handle
/// goes, the kernel's object is destroyed without waiting for anything.
#[derive(Clone)]
#[doc(alias = "ibv_wq")]
pub struct WorkQueue {
    inner: Arc<WqInner>,
}

// Field order is destroy order, after `Drop` has destroyed the kernel object.
struct WqInner {
    ops: Box<dyn WqOps>,
    gate: Gate,
    registration: Registration,
    user_data: UserData,
    cq: CompletionQueue,
    pd: ProtectionDomain,
}

/// Settings of a work queue that is to be made.
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `build`"]
pub struct WorkQueueBuilder<'p> {
    pd: &'p ProtectionDomain,
    cq: &'p CompletionQueue,
    max_wr: u32,
    max_sge: u32,
    events: Option<&'p AsyncEvents>,
    user_data: UserData,
}

impl ProtectionDomain {
    /// Starts a work queue that holds at least `max_wr` receives, of one element each unless said
    /// otherwise, whose completions go to `cq`.
    #[doc(alias = "ibv_create_wq")]
    pub const fn create_wq<'p>(
        &'p self,
        cq: &'p CompletionQueue,
        max_wr: u32,
    ) -> WorkQueueBuilder<'p> {
        WorkQueueBuilder {
            pd: self,
            cq,
            max_wr,
            max_sge: 1,
            events: None,
            user_data: UserData::NONE,
        }
    }
}

impl<'p> WorkQueueBuilder<'p> {
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
    #[doc(alias = "wq_context")]
    pub fn user_data<D: Any + Send + Sync>(mut self, data: D) -> Self {
        self.user_data = UserData::new(data);
        self
    }

    /// Makes it.
    ///
    /// # Errors
    /// [`CreateError`]; unsupported where the device, or this crate's provider for it, has no work
    /// queues.
    pub fn build(self) -> Result<WorkQueue, CreateError> {
        let error = |cause| CreateError {
            object: NAME,
            cause,
            limits: Vec::new(),
        };
        if self.max_wr == 0 {
            return Err(error(CreateErrorCause::Zero { what: "max_wr" }));
        }
        let context = self.pd.context();
        let session = context.session();
        let what = "completion queue";
        if !Arc::ptr_eq(self.cq.context().session(), session) {
            return Err(error(CreateErrorCause::OtherContext { what }));
        }
        let provider = teardown::provider(context).map_err(error)?;
        // Before the ledger's lock: in a forked child its holder may not exist.
        session
            .check("WQ_CREATE")
            .map_err(|refusal| error(CreateErrorCause::Refused(refusal.into())))?;
        // Passed shared while the command runs, so that the handle named in it cannot come to mean
        // another object.
        let gate = &self.cq.inner.gate;
        let _cq = gate
            .enter()
            .ok_or_else(|| error(CreateErrorCause::Destroyed { what }))?;
        let source = teardown::event_source(context, self.events).map_err(error)?;
        let reservation = source.ledger().reserve();
        let spec = WqSpec {
            pd: self.pd.inner.handle,
            cq: self.cq.inner.ops.handle(),
            max_wr: self.max_wr,
            max_sge: self.max_sge,
            token: reservation.token().as_raw(),
            events: Some(source.event_fd()),
        };
        let ops = provider.create_wq(session, &spec).map_err(|cause| {
            let asked = |device: &DeviceAttr| {
                vec![
                    ("max_wr", self.max_wr, device.max_qp_wr),
                    ("max_sge", self.max_sge, device.max_sge),
                ]
            };
            let in_all: (_, fn(&DeviceAttr) -> u32) =
                ("max_wq_type_rq", |device| device.max_wq_type_rq);
            CreateError {
                limits: teardown::limits(context, &cause, asked, in_all),
                ..error(cause.into())
            }
        })?;
        let rests = Rests {
            cqs: [spec.cq; 2],
            srq: None,
        };
        let holder = QueueId::WorkQueue(ops.wq_num());
        context.living().enter(holder, rests);
        let inner = reservation.commit_with(|registration| {
            let inner = Arc::new(WqInner {
                ops,
                gate: Gate::default(),
                registration,
                user_data: self.user_data,
                cq: self.cq.clone(),
                pd: self.pd.clone(),
            });
            let object = WeakObject::Wq(WeakWorkQueue(Arc::downgrade(&inner)));
            (inner, object)
        });
        Ok(WorkQueue { inner })
    }
}

impl WorkQueue {
    /// A number that tells work queues of one open device apart, for logs.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.inner.ops.handle().0
    }

    /// The device's number of it.
    #[must_use]
    pub fn wq_num(&self) -> WqNum {
        self.inner.ops.wq_num()
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

    /// The queue that its completions go to.
    #[must_use]
    pub fn cq(&self) -> &CompletionQueue {
        &self.inner.cq
    }

    /// The protection domain it belongs to.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.inner.pd
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
    /// [`DestroyError`]; unless it is gone, the object comes back.
    #[doc(alias = "ibv_destroy_wq")]
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

impl Teardown for WorkQueue {
    const USERS: &'static str = "indirection tables still name it";

    fn id(&self) -> QueueId {
        QueueId::WorkQueue(self.wq_num())
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

    fn close(&self) -> Result<Reported, CloseError> {
        self.inner.close().map(Reported::from)
    }
}

impl WqInner {
    /// Destroys the kernel object. Not called in a forked child.
    fn close(&self) -> Result<u32, CloseError> {
        let holder = QueueId::WorkQueue(self.ops.wq_num());
        self.pd.context().closing(holder, || self.ops.destroy())
    }
}

impl Drop for WqInner {
    fn drop(&mut self) {
        if teardown::is_left(&mut self.gate, self.pd.context().session()) {
            let _ = self.close();
        }
    }
}

impl PartialEq for WorkQueue {
    /// Whether both are handles of the same queue.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for WorkQueue {}

impl fmt::Debug for WorkQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue")
            .field("handle", &self.inner.ops.handle().0)
            .field("wq_num", &self.wq_num().0)
            .finish()
    }
}

/// Leads to a work queue as long as it is there.
#[derive(Clone, Debug)]
pub(crate) struct WeakWorkQueue(Weak<WqInner>);

impl WeakWorkQueue {
    #[inline]
    pub(crate) fn upgrade(&self) -> Option<WorkQueue> {
        self.0.upgrade().map(|inner| WorkQueue { inner })
    }
}

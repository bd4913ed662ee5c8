//! Queue pairs, with the transport in the type.

mod attr;
mod builder;
mod connect;
mod endpoint;
mod mask;
mod modify_error;
mod post;
mod state;
mod timer;
mod transition;

pub use attr::{AddressVector, GlobalRoute, QpAttr, QpInfo};
pub use builder::QueuePairBuilder;
pub use connect::{ConnectError, ConnectOptions, PathOptions};
pub use endpoint::{Endpoint, EndpointError};
pub use mask::QpAttrMask;
pub use modify_error::{ModifyError, ModifyErrorCause};
pub use post::{ExclusiveReceiveQueue, ExclusiveSendQueue, HeldDoorbell};
pub use timer::{AckTimeout, RnrTimer};

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use uverbs_abi::{CommandError, Session};
use uverbs_providers::contract::QpOps;
use uverbs_providers::error::CloseError;
use uverbs_providers::types::{QpCaps, QpNum, QpState, QpType, QueueId};
use uverbs_providers::verbs;

use crate::cq::CompletionQueue;
use crate::error::DestroyError;
use crate::event::{Counts, Registration, Reported};
use crate::gate::Gate;
use crate::pd::ProtectionDomain;
use crate::srq::SharedReceiveQueue;
use crate::teardown::{self, Teardown};
use crate::user_data::UserData;

const NAME: &str = "queue pair";

mod sealed {
    pub trait Sealed {}
}

/// A transport: what a queue pair can do is decided by its type.
///
/// Sealed: the kinds of transport are the specification's, not a program's.
pub trait Transport: sealed::Sealed + Send + Sync + fmt::Debug + 'static {
    /// The transport as a value.
    const TYPE: QpType;
}

/// Reliable connected: messages arrive once, in order, or the queue pair fails.
#[derive(Clone, Copy, Debug)]
pub enum Rc {}

impl sealed::Sealed for Rc {}

impl Transport for Rc {
    const TYPE: QpType = QpType::Rc;
}

/// A queue pair of transport `T`.
///
/// A cheap handle. It keeps its protection domain and its queues. When the last handle goes, the
/// kernel's object is destroyed without waiting for anything; [`destroy`](Self::destroy) is the verb
/// that waits.
#[doc(alias = "ibv_qp")]
pub struct QueuePair<T: Transport> {
    pub(crate) inner: Arc<QpInner>,
    transport: PhantomData<T>,
}

/// A queue pair of any transport, as an event names it. [`as_rc`](Self::as_rc) leads back.
#[derive(Clone)]
pub struct AnyQueuePair {
    pub(crate) inner: Arc<QpInner>,
}

// Field order is destroy order, after `Drop` has destroyed the kernel object: the mappings (in
// `ops`), the token, then what the kernel object rested on.
pub(crate) struct QpInner {
    pub(crate) ops: Box<dyn QpOps>,
    pub(crate) gate: Gate,
    registration: Registration,
    user_data: UserData,
    qp_type: QpType,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    /// The port that it was given last; 0 before.
    port: AtomicU8,
    pub(crate) pd: ProtectionDomain,
}

impl<T: Transport> QueuePair<T> {
    pub(crate) const fn new(inner: Arc<QpInner>) -> Self {
        Self {
            inner,
            transport: PhantomData,
        }
    }

    /// Its number on the wire, which the peer needs.
    #[must_use]
    pub fn qp_num(&self) -> QpNum {
        self.inner.ops.qp_num()
    }

    /// Sizes as granted: at least what was asked for.
    #[must_use]
    pub fn caps(&self) -> QpCaps {
        self.inner.ops.caps()
    }

    /// The queue that send completions go to.
    #[must_use]
    pub fn send_cq(&self) -> &CompletionQueue {
        &self.inner.send_cq
    }

    /// The queue that receive completions go to.
    #[must_use]
    pub fn recv_cq(&self) -> &CompletionQueue {
        &self.inner.recv_cq
    }

    /// The shared queue that receives come from, if not from one of its own.
    #[must_use]
    pub fn srq(&self) -> Option<&SharedReceiveQueue> {
        self.inner.srq.as_ref()
    }

    /// The protection domain it belongs to.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// Itself without the transport in the type.
    #[must_use]
    pub fn to_any(&self) -> AnyQueuePair {
        AnyQueuePair {
            inner: Arc::clone(&self.inner),
        }
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

    /// Destroys it, then waits until every event about it that was read has been acked.
    ///
    /// Legal in any state. Requests still queued make no completions any more. Waits **for ever** if
    /// this very thread holds such an event, as `ibv_destroy_qp(3)` does:
    /// [`try_destroy`](Self::try_destroy) and [`destroy_timeout`](Self::destroy_timeout) do not.
    ///
    /// # Errors
    /// [`DestroyError`]; unless it is gone, the object comes back.
    #[doc(alias = "ibv_destroy_qp")]
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

impl<T: Transport> Teardown for QueuePair<T> {
    const USERS: &'static str = "multicast groups are attached to it, or a command is under way";

    fn id(&self) -> QueueId {
        QueueId::QueuePair(self.qp_num())
    }

    fn gate(&self) -> &Gate {
        &self.inner.gate
    }

    fn registration(&self) -> &Registration {
        &self.inner.registration
    }

    fn session(&self) -> &Session {
        self.inner.session()
    }

    fn close(&self) -> Result<Reported, CloseError> {
        self.inner.close().map(Reported::from)
    }
}

impl QpInner {
    fn session(&self) -> &Session {
        self.pd.context().session()
    }

    /// Destroys the kernel object. Not called in a forked child.
    fn close(&self) -> Result<u32, CloseError> {
        let holder = QueueId::QueuePair(self.ops.qp_num());
        self.pd.context().closing(holder, || self.ops.destroy())
    }

    /// Held over a command that asks for the state or changes it, and over storing what it said.
    fn in_turn(&self) -> MutexGuard<'_, ()> {
        self.ops
            .commands()
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the kernel for the state and stores it; [`in_turn`](Self::in_turn) must be held.
    fn ask_state(&self) -> Result<QpState, CommandError> {
        let state = verbs::qp::query_state(self.session(), self.ops.handle())?;
        self.ops.state_changed(state)?;
        Ok(state)
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        if teardown::is_left(&mut self.gate, self.pd.context().session()) {
            let _ = self.close();
        }
    }
}

impl AnyQueuePair {
    /// Its transport.
    #[must_use]
    pub fn qp_type(&self) -> QpType {
        self.inner.qp_type
    }

    /// Its number on the wire.
    #[must_use]
    pub fn qp_num(&self) -> QpNum {
        self.inner.ops.qp_num()
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

    #[inline(always)]
    pub(crate) fn registration(&self) -> &Registration {
        &self.inner.registration
    }

    /// Itself with the transport in the type, if it is reliable connected.
    #[must_use]
    pub fn as_rc(&self) -> Option<QueuePair<Rc>> {
        (self.inner.qp_type == QpType::Rc).then(|| QueuePair::new(Arc::clone(&self.inner)))
    }
}

impl<T: Transport> Clone for QueuePair<T> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.inner))
    }
}

impl<T: Transport> PartialEq for QueuePair<T> {
    /// Whether both are handles of the same queue pair.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl<T: Transport> Eq for QueuePair<T> {}

impl PartialEq for AnyQueuePair {
    /// Whether both are handles of the same queue pair.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for AnyQueuePair {}

impl fmt::Debug for QpInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("type", &self.qp_type)
            .field("qp_num", &self.ops.qp_num().0)
            .field("state", &self.ops.known_state())
            .finish()
    }
}

impl<T: Transport> fmt::Debug for QueuePair<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for AnyQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Leads to a queue pair as long as it is there.
#[derive(Clone, Debug)]
pub(crate) struct WeakQueuePair(Weak<QpInner>);

impl WeakQueuePair {
    #[inline]
    pub(crate) fn upgrade(&self) -> Option<AnyQueuePair> {
        self.0.upgrade().map(|inner| AnyQueuePair { inner })
    }
}

//! Making a queue pair.

use std::any::Any;
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use uverbs_providers::contract::QpSpec;
use uverbs_providers::types::{QpCaps, QueueId};

use super::{NAME, QpInner, QueuePair, Transport, WeakQueuePair};
use crate::attr::DeviceAttr;
use crate::cq::{CompletionQueue, CqInner};
use crate::error::{CreateError, CreateErrorCause};
use crate::event::{AsyncEvents, WeakObject};
use crate::gate::{Gate, Pass};
use crate::living::Rests;
use crate::pd::ProtectionDomain;
use crate::srq::SharedReceiveQueue;
use crate::teardown;
use crate::user_data::UserData;

/// Settings of a queue pair that is to be made.
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `build`"]
pub struct QueuePairBuilder<'p, T: Transport> {
    pd: &'p ProtectionDomain,
    send_cq: &'p CompletionQueue,
    recv_cq: &'p CompletionQueue,
    srq: Option<&'p SharedReceiveQueue>,
    caps: QpCaps,
    signal_all: bool,
    events: Option<&'p AsyncEvents>,
    user_data: UserData,
    transport: PhantomData<T>,
}

impl ProtectionDomain {
    /// Starts a queue pair whose completions go to `send_cq` and `recv_cq`, which may be the same.
    ///
    /// Unless said otherwise its queues hold 64 requests of one element each, with no inline data,
    /// and only signalled requests make completions.
    #[doc(alias = "ibv_create_qp")]
    pub const fn create_qp<'p, T: Transport>(
        &'p self,
        send_cq: &'p CompletionQueue,
        recv_cq: &'p CompletionQueue,
    ) -> QueuePairBuilder<'p, T> {
        QueuePairBuilder {
            pd: self,
            send_cq,
            recv_cq,
            srq: None,
            caps: QpCaps {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            signal_all: false,
            events: None,
            user_data: UserData::NONE,
            transport: PhantomData,
        }
    }
}

impl<'p, T: Transport> QueuePairBuilder<'p, T> {
    /// Requests that the send queue holds. 0 is legal, for a queue pair that only receives; what was
    /// granted, which may be more, [`caps`](QueuePair::caps) tells.
    pub const fn max_send_wr(mut self, requests: u32) -> Self {
        self.caps.max_send_wr = requests;
        self
    }

    /// Requests that the receive queue holds; without meaning beside a shared receive queue.
    pub const fn max_recv_wr(mut self, requests: u32) -> Self {
        self.caps.max_recv_wr = requests;
        self
    }

    /// Scatter/gather elements of one send request.
    pub const fn max_send_sge(mut self, elements: u32) -> Self {
        self.caps.max_send_sge = elements;
        self
    }

    /// Scatter/gather elements of one receive request; without meaning beside a shared receive
    /// queue.
    pub const fn max_recv_sge(mut self, elements: u32) -> Self {
        self.caps.max_recv_sge = elements;
        self
    }

    /// Bytes of inline data in one send request, at least. Default: 0.
    ///
    /// Drivers round up, and what was granted is what counts: [`QueuePair::caps`](crate::QueuePair::caps).
    /// rxe keeps inline data where the elements are otherwise, so that a queue pair made with 0 takes
    /// 16 bytes for each element of [`max_send_sge`](Self::max_send_sge).
    pub const fn max_inline_data(mut self, bytes: u32) -> Self {
        self.caps.max_inline_data = bytes;
        self
    }

    /// Draws receives from a shared queue instead of one of its own.
    pub const fn srq(mut self, srq: &'p SharedReceiveQueue) -> Self {
        self.srq = Some(srq);
        self
    }

    /// Makes every send request make a completion, signalled or not.
    #[doc(alias = "sq_sig_all")]
    pub const fn signal_all(mut self, signal_all: bool) -> Self {
        self.signal_all = signal_all;
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
    #[doc(alias = "qp_context")]
    pub fn user_data<D: Any + Send + Sync>(mut self, data: D) -> Self {
        self.user_data = UserData::new(data);
        self
    }

    /// Makes it, in state RESET.
    ///
    /// # Errors
    /// [`CreateError`]; it names the device's limits that are exceeded.
    pub fn build(self) -> Result<QueuePair<T>, CreateError> {
        let error = |cause| CreateError {
            object: NAME,
            cause,
            limits: Vec::new(),
        };
        let context = self.pd.context();
        let session = context.session();
        let same = |other: &crate::Context| Arc::ptr_eq(other.session(), session);
        for (what, other) in [
            ("send completion queue", Some(self.send_cq.context())),
            ("receive completion queue", Some(self.recv_cq.context())),
            (
                "shared receive queue",
                self.srq.map(|srq| srq.inner.pd.context()),
            ),
        ] {
            if other.is_some_and(|other| !same(other)) {
                return Err(error(CreateErrorCause::OtherContext { what }));
            }
        }
        let provider = teardown::provider(context).map_err(error)?;
        // A lock that a fork left held would never be free again.
        session
            .check("QP_CREATE")
            .map_err(|refusal| error(CreateErrorCause::Refused(refusal.into())))?;
        // Passed shared while the command runs, so that none of the handles named in it can come
        // to mean another object.
        let gone = |what| error(CreateErrorCause::Destroyed { what });
        let (send, recv) = (&self.send_cq.inner, &self.recv_cq.inner);
        // In one order whoever builds: two that enter crosswise, with a destroy waiting at each
        // gate, would wait for each other.
        let _cqs = match Arc::as_ptr(send).cmp(&Arc::as_ptr(recv)) {
            Ordering::Equal => (enter(send, gone, "send completion queue")?, None),
            Ordering::Less => {
                let first = enter(send, gone, "send completion queue")?;
                (first, Some(enter(recv, gone, "receive completion queue")?))
            }
            Ordering::Greater => {
                let first = enter(recv, gone, "receive completion queue")?;
                (first, Some(enter(send, gone, "send completion queue")?))
            }
        };
        let _srq = match self.srq {
            None => None,
            Some(srq) => Some(
                srq.inner
                    .gate
                    .enter()
                    .ok_or_else(|| gone("shared receive queue"))?,
            ),
        };
        let mut caps = self.caps;
        if self.srq.is_some() {
            (caps.max_recv_wr, caps.max_recv_sge) = (0, 0);
        }
        let source = teardown::event_source(context, self.events).map_err(error)?;
        let reservation = source.ledger().reserve();
        let spec = QpSpec {
            pd: self.pd.inner.handle,
            qp_type: T::TYPE,
            send_cq: self.send_cq.inner.ops.handle(),
            recv_cq: self.recv_cq.inner.ops.handle(),
            srq: self.srq.map(|srq| srq.inner.ops.handle()),
            caps,
            signal_all: self.signal_all,
            token: reservation.token().as_raw(),
            events: Some(source.event_fd()),
        };
        let ops = provider.create_qp(session, &spec).map_err(|cause| {
            // The device has no attribute for inline data: the provider knows.
            let inline = provider.max_inline_data().unwrap_or(u32::MAX);
            let asked = |device: &DeviceAttr| {
                vec![
                    ("max_send_wr", caps.max_send_wr, device.max_qp_wr),
                    ("max_recv_wr", caps.max_recv_wr, device.max_qp_wr),
                    ("max_send_sge", caps.max_send_sge, device.max_sge),
                    ("max_recv_sge", caps.max_recv_sge, device.max_sge),
                    ("max_inline_data", caps.max_inline_data, inline),
                ]
            };
            let in_all: (_, fn(&DeviceAttr) -> u32) = ("max_qp", |device| device.max_qp);
            let limits = teardown::limits(context, &cause, asked, in_all);
            CreateError {
                object: NAME,
                cause: cause.into(),
                limits,
            }
        })?;
        let holder = QueueId::QueuePair(ops.qp_num());
        let rests = Rests {
            cqs: [spec.send_cq, spec.recv_cq],
            srq: spec.srq,
        };
        context.living().enter(holder, rests);
        let inner = reservation.commit_with(|registration| {
            let inner = Arc::new(QpInner {
                ops,
                gate: Gate::default(),
                registration,
                user_data: self.user_data,
                qp_type: T::TYPE,
                send_cq: self.send_cq.clone(),
                recv_cq: self.recv_cq.clone(),
                srq: self.srq.cloned(),
                port: AtomicU8::new(0),
                pd: self.pd.clone(),
            });
            let object = WeakObject::Qp(WeakQueuePair(Arc::downgrade(&inner)));
            (inner, object)
        });
        Ok(QueuePair::new(inner))
    }
}

/// Passes a completion queue's gate for as long as the create runs.
fn enter<'q>(
    cq: &'q CqInner,
    gone: impl FnOnce(&'static str) -> CreateError,
    what: &'static str,
) -> Result<Pass<'q>, CreateError> {
    cq.gate.enter().ok_or_else(|| gone(what))
}

//! A provider for devices whose queues have no part in user space: it makes and destroys objects,
//! and their events are all there is to them.
//!
//! For tests. It asks for nothing beyond the kernel's own half of each verb and gives nothing, so
//! it fits any driver that is content with that: a device of a [`Fabric`](super::Fabric) made by
//! `add_bare_device`, or a kernel module that plays a device. It must never claim to have posted.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use uverbs_abi::{Cause, CommandError, Session};

use crate::contract::*;
use crate::error::{
    CloseError, CreateError, PollError, PostCause, PostError, TakeCause, TakeError,
};
use crate::types::{
    CqHandle, QpCaps, QpHandle, QpNum, QpState, QueueId, SrqHandle, WqHandle, WqNum,
};
use crate::verbs;
use crate::wc::Wc;
use crate::wr::{RecvWr, SendWr};

/// The provider.
#[derive(Clone, Copy, Debug)]
pub struct Bare;

/// What all its objects have.
#[derive(Debug)]
struct Object<H> {
    session: Arc<Session>,
    handle: H,
    /// Relaxed: it tells of no other memory, and of two destroyers one swap comes first.
    destroyed: AtomicBool,
}

impl<H: Copy> Object<H> {
    fn new(session: &Arc<Session>, handle: H) -> Self {
        Self {
            session: Arc::clone(session),
            handle,
            destroyed: AtomicBool::new(false),
        }
    }

    /// Why there is nothing to post to.
    fn no_post(&self, queue: QueueId) -> Result<(), PostError> {
        let cause = if !self.session.is_ours() {
            PostCause::ForeignProcess
        } else if self.destroyed.load(Ordering::Relaxed) {
            PostCause::Destroyed
        } else {
            PostCause::NoDataPath
        };
        Err(PostError::new(queue, 0, cause))
    }

    fn destroy<T>(
        &self,
        command: &'static str,
        destroy: impl FnOnce(&Session, H) -> Result<T, CommandError>,
    ) -> Result<T, CloseError> {
        if !self.session.is_ours() {
            let cause = Cause::ForeignProcess;
            return Err(CommandError { command, cause }.into());
        }
        if self.destroyed.swap(true, Ordering::Relaxed) {
            return Err(CloseError::Destroyed);
        }
        destroy(&self.session, self.handle).map_err(|error| {
            self.destroyed.store(false, Ordering::Relaxed);
            error.into()
        })
    }
}

#[derive(Debug)]
struct Cq {
    object: Object<CqHandle>,
    depth: u32,
}

#[derive(Debug)]
struct Srq {
    object: Object<SrqHandle>,
    max_wr: u32,
    max_sge: u32,
}

#[derive(Debug)]
struct Wq {
    object: Object<WqHandle>,
    wq_num: WqNum,
    max_wr: u32,
    max_sge: u32,
}

#[derive(Debug)]
struct Qp {
    object: Object<QpHandle>,
    qp_num: QpNum,
    caps: QpCaps,
    commands: Mutex<()>,
    /// Relaxed: written with `commands` held, and a hint to whoever reads it.
    state: AtomicU8,
}

impl Provider for Bare {
    fn name(&self) -> &'static str {
        "bare"
    }

    fn driver_abis(&self) -> RangeInclusive<u32> {
        0..=u32::MAX
    }

    fn dereg_fences(&self) -> bool {
        false
    }

    fn create_cq(
        &self,
        session: &Arc<Session>,
        spec: &CqSpec<'_>,
    ) -> Result<Box<dyn CqOps>, CreateError> {
        let created = verbs::cq::create(session, spec, &mut [])?;
        Ok(Box::new(Cq {
            object: Object::new(session, created.handle),
            depth: created.depth,
        }))
    }

    fn create_srq(
        &self,
        session: &Arc<Session>,
        spec: &SrqSpec<'_>,
    ) -> Result<Box<dyn SrqOps>, CreateError> {
        let created = verbs::srq::create(session, spec, &mut [])?;
        Ok(Box::new(Srq {
            object: Object::new(session, created.handle),
            max_wr: created.max_wr,
            max_sge: created.max_sge,
        }))
    }

    fn create_qp(
        &self,
        session: &Arc<Session>,
        spec: &QpSpec<'_>,
    ) -> Result<Box<dyn QpOps>, CreateError> {
        let created = verbs::qp::create(session, spec, &mut [])?;
        Ok(Box::new(Qp {
            object: Object::new(session, created.handle),
            qp_num: created.qp_num,
            caps: created.caps,
            commands: Mutex::default(),
            state: AtomicU8::new(QpState::Reset.raw()),
        }))
    }

    fn create_wq(
        &self,
        session: &Arc<Session>,
        spec: &WqSpec<'_>,
    ) -> Result<Box<dyn WqOps>, CreateError> {
        let created = verbs::wq::create(session, spec, &[], &mut [])?;
        Ok(Box::new(Wq {
            object: Object::new(session, created.handle),
            wq_num: created.wq_num,
            max_wr: created.max_wr,
            max_sge: created.max_sge,
        }))
    }
}

impl CqOps for Cq {
    fn handle(&self) -> CqHandle {
        self.object.handle
    }

    fn depth(&self) -> u32 {
        self.depth
    }

    fn poll<'b>(&self, out: &'b mut [Wc]) -> Result<&'b mut [Wc], PollError> {
        if !self.object.session.is_ours() {
            Err(PollError::ForeignProcess)
        } else if self.object.destroyed.load(Ordering::Relaxed) {
            Err(PollError::Destroyed)
        } else if self.object.session.is_gone() {
            Err(PollError::DeviceGone)
        } else {
            Ok(out.get_mut(..0).unwrap_or_default())
        }
    }

    fn arm(&self, kind: Arm) -> Result<(), CommandError> {
        verbs::cq::arm(&self.object.session, self.object.handle, kind)
    }

    fn take(&self) -> Result<ExclusiveCq, TakeError> {
        let id = QueueId::CompletionQueue(self.object.handle);
        Err(TakeError::new(id, TakeCause::NoDataPath))
    }

    fn put_back(&self, queue: ExclusiveCq) {
        drop(queue);
    }

    fn destroy(&self) -> Result<CqReported, CloseError> {
        self.object.destroy("CQ_DESTROY", verbs::cq::destroy)
    }
}

impl SrqOps for Srq {
    fn handle(&self) -> SrqHandle {
        self.object.handle
    }

    fn max_wr(&self) -> u32 {
        self.max_wr
    }

    fn max_sge(&self) -> u32 {
        self.max_sge
    }

    fn post_recv(&self, _: &[RecvWr<'_>]) -> Result<(), PostError> {
        let id = QueueId::SharedReceiveQueue(self.object.handle);
        self.object.no_post(id)
    }

    fn set_limit(&self, limit: u32) -> Result<(), CommandError> {
        verbs::srq::set_limit(&self.object.session, self.object.handle, limit, &[])
    }

    fn destroy(&self) -> Result<u32, CloseError> {
        self.object.destroy("SRQ_DESTROY", verbs::srq::destroy)
    }
}

impl WqOps for Wq {
    fn handle(&self) -> WqHandle {
        self.object.handle
    }

    fn wq_num(&self) -> WqNum {
        self.wq_num
    }

    fn max_wr(&self) -> u32 {
        self.max_wr
    }

    fn max_sge(&self) -> u32 {
        self.max_sge
    }

    fn destroy(&self) -> Result<u32, CloseError> {
        self.object.destroy("WQ_DESTROY", verbs::wq::destroy)
    }
}

impl Qp {
    const fn id(&self) -> QueueId {
        QueueId::QueuePair(self.qp_num)
    }
}

impl QpOps for Qp {
    fn handle(&self) -> QpHandle {
        self.object.handle
    }

    fn qp_num(&self) -> QpNum {
        self.qp_num
    }

    fn caps(&self) -> QpCaps {
        self.caps
    }

    fn post_send(&self, _: &[SendWr<'_>]) -> Result<(), PostError> {
        self.object.no_post(self.id())
    }

    fn post_recv(&self, _: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.object.no_post(self.id())
    }

    fn known_state(&self) -> QpState {
        QpState::from_raw(self.state.load(Ordering::Relaxed)).unwrap_or(QpState::Err)
    }

    fn commands(&self) -> &Mutex<()> {
        &self.commands
    }

    fn state_changed(&self, state: QpState) -> Result<(), CommandError> {
        self.state.store(state.raw(), Ordering::Relaxed);
        Ok(())
    }

    fn settle(&self) {}

    fn take_send(&self) -> Result<ExclusiveSend, TakeError> {
        Err(TakeError::new(self.id(), TakeCause::NoDataPath))
    }

    fn put_back_send(&self, queue: ExclusiveSend) {
        drop(queue);
    }

    fn take_recv(&self) -> Result<ExclusiveRecv, TakeError> {
        Err(TakeError::new(self.id(), TakeCause::NoDataPath))
    }

    fn put_back_recv(&self, queue: ExclusiveRecv) {
        drop(queue);
    }

    fn destroy(&self) -> Result<u32, CloseError> {
        self.object.destroy("QP_DESTROY", verbs::qp::destroy)
    }
}

//! rxe's queue pair: a ring of sends with a doorbell, and a ring of receives without one.
//!
//! Ground truth: the kernel's `rxe_req.c`, `rxe_resp.c`, `rxe_qp.c`. Each ring has a lock of its
//! own, so that posting receives never waits for a doorbell.
//!
//! A doorbell is rung under the lock: whoever destroys the queue pair waits for it, so it can reach
//! neither a handle that has been given to somebody else nor make the destroy say "busy".
//!
//! Whether every send makes a completion is the kernel's business (it keeps `sq_sig_all`); nothing
//! is set in the requests for it.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use uverbs_abi::{Cause, CommandError, Session};

use super::cq::foreign;
use super::receivers::{Receiver, Receivers};
use super::recv::RecvQueue;
use super::wqe::{SEND_HEAD, SendLimits, encode_send};
use crate::contract::{ExclusiveRecv, ExclusiveSend, QpOps};
use crate::error::{CloseError, PostCause, PostError};
use crate::ring::{Corrupt, Masked, Producer};
use crate::shared::SharedQueue;
use crate::shelf::{Absent, Shelf};
use crate::types::{QpCaps, QpHandle, QpNum, QpState};
use crate::verbs;
use crate::wr::{RecvWr, SendWr};

/// What both rings of a queue pair must know of it.
#[derive(Debug)]
pub(super) struct Core {
    session: Arc<Session>,
    handle: QpHandle,
    /// A [`QpState`] as last known: from a command of ours, or asked for after a failure.
    state: AtomicU8,
    /// Whether RDMA READs and atomics would never start, since none may be under way.
    no_reads: AtomicBool,
    /// Held over commands that ask for the state or change it.
    commands: Mutex<()>,
}

impl Core {
    pub(super) const fn new(session: Arc<Session>, handle: QpHandle) -> Self {
        Self {
            session,
            handle,
            state: AtomicU8::new(QpState::Reset.raw()),
            no_reads: AtomicBool::new(false),
            commands: Mutex::new(()),
        }
    }

    #[inline]
    fn state(&self) -> QpState {
        // Relaxed: whoever posts after a command of another thread has met that thread in between.
        // Only states that have a number are ever stored.
        QpState::from_raw(self.state.load(Ordering::Relaxed)).unwrap_or(QpState::Err)
    }

    #[inline]
    fn may_send(&self) -> Result<(), PostError> {
        usable(&self.session)?;
        let needs = match self.state() {
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err => return Ok(()),
            QpState::Reset => "move it to INIT, RTR and RTS first",
            QpState::Init => "move it to RTR and RTS first",
            QpState::Rtr => "move it to RTS first",
        };
        Err(wrong_state(self.state(), needs))
    }

    #[inline]
    fn may_receive(&self) -> Result<(), PostError> {
        usable(&self.session)?;
        match self.state() {
            QpState::Reset => Err(wrong_state(QpState::Reset, "move it to INIT first")),
            _ => Ok(()),
        }
    }
}

#[cold]
fn wrong_state(state: QpState, needs: &'static str) -> PostError {
    PostError::new(0, PostCause::WrongState { state, needs })
}

/// Whether this process may post, and there is a device to post to.
#[inline]
pub(super) fn usable(session: &Session) -> Result<(), PostError> {
    if !session.is_ours() {
        Err(PostError::new(0, PostCause::ForeignProcess))
    } else if session.is_gone() {
        Err(PostError::new(0, PostCause::DeviceGone))
    } else {
        Ok(())
    }
}

/// What a command that was to start posted requests ran into.
#[cold]
fn not_told(error: CommandError) -> PostCause {
    match error.cause {
        Cause::DeviceGone => PostCause::DeviceGone,
        Cause::ForeignProcess => PostCause::ForeignProcess,
        _ => PostCause::Doorbell(error),
    }
}

impl From<Absent> for PostError {
    fn from(absent: Absent) -> Self {
        Self::new(
            0,
            match absent {
                Absent::InExclusiveUse => PostCause::InExclusiveUse,
                Absent::Destroyed => PostCause::Destroyed,
            },
        )
    }
}

/// The send queue of one queue pair.
#[derive(Debug)]
pub struct SendRing {
    queue: SharedQueue<SEND_HEAD>,
    producer: Producer<Masked>,
    limits: SendLimits,
    core: Arc<Core>,
}

impl SendRing {
    pub(super) fn new(
        queue: SharedQueue<SEND_HEAD>,
        limits: SendLimits,
        core: Arc<Core>,
    ) -> Result<Self, Corrupt> {
        let rule = Masked::new(queue.mask()).ok_or(Corrupt)?;
        let producer = Producer::new(rule, queue.producer(), queue.consumer())?;
        Ok(Self {
            queue,
            producer,
            limits,
            core,
        })
    }

    /// Encodes and publishes requests, in order, then rings the doorbell once.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        self.core.may_send()?;
        self.post(wrs)
    }

    #[inline]
    fn post(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        let wanted = u32::try_from(wrs.len()).unwrap_or(u32::MAX);
        let free = self
            .producer
            .free(self.queue.consumer(), wanted)
            .map_err(|Corrupt| PostError::new(0, PostCause::CorruptRing))?;
        let mut filled = 0u32;
        let mut fault = None;
        // Relaxed: as for the state.
        let no_reads = self.core.no_reads.load(Ordering::Relaxed);
        for wr in wrs {
            if filled == free {
                fault = Some(PostCause::QueueFull);
                break;
            }
            if no_reads && wr.op.is_read() {
                fault = Some(PostCause::NoReads);
                break;
            }
            let slot = self.queue.slot_mut(self.producer.slot(filled));
            if let Err(cause) = encode_send(wr, &self.limits, slot) {
                fault = Some(cause);
                break;
            }
            filled = filled.wrapping_add(1);
        }
        if filled != 0 {
            self.producer.publish(self.queue.producer(), filled);
            // A doorbell that fails outweighs a bad request: it is about those that were accepted.
            if let Err(error) = self.core.session.doorbell(self.core.handle.0) {
                fault = Some(not_told(error));
            }
        }
        // `filled <= wrs.len()`.
        fault.map_or(Ok(()), |cause| Err(PostError::new(filled as usize, cause)))
    }
}

/// The receive queue of one queue pair.
#[derive(Debug)]
pub struct RecvRing {
    queue: RecvQueue,
    core: Arc<Core>,
    /// The session's error epoch when the queue pair's state was last known for sure.
    epoch: u32,
    /// Whether receives were posted since the kernel was last made to flush.
    unflushed: bool,
}

impl RecvRing {
    pub(super) fn new(queue: RecvQueue, core: Arc<Core>) -> Self {
        let epoch = core.session.error_epoch();
        Self {
            queue,
            core,
            epoch,
            unflushed: false,
        }
    }

    /// Posts receives, in order.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.core.may_receive()?;
        self.post(wrs)
    }

    #[inline]
    fn post(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        let posted = self.queue.post(wrs);
        let accepted = posted.map_or_else(|error| error.accepted, |()| wrs.len());
        self.unflushed |= accepted != 0;
        // After publishing: a failure that is noted only later comes with a flush that takes the
        // new receives along, or is seen by the next post.
        if accepted != 0 && !self.is_quiet() {
            self.flush_if_failed()
                .map_err(|error| PostError::new(accepted, not_told(error)))?;
        }
        posted
    }

    /// A receive posted to a queue pair in the error state lies there until the driver's task runs,
    /// and nothing but a command makes it run: the move to the error state once more (any kernel),
    /// or a doorbell (not on 6.1). So it is asked, once for each time that something failed,
    /// whether this queue pair is the one that failed.
    #[cold]
    fn flush_if_failed(&mut self) -> Result<(), CommandError> {
        let core = &*self.core;
        // One after the other with whoever moves it: a queue pair that has been brought back must
        // not be sent to the error state for what it was before. Not waited for, since a move can
        // take seconds and a poll may be what has led here: whoever moves it settles afterwards.
        let _turn = match core.commands.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        // Before the question: what fails after this is a new reason to ask.
        let epoch = core.session.error_epoch();
        if core.state() != QpState::Err
            && verbs::qp::query_state(&core.session, core.handle)? == QpState::Err
        {
            core.state.store(QpState::Err.raw(), Ordering::Relaxed);
        }
        if core.state() == QpState::Err {
            verbs::qp::modify_to_error(&core.session, core.handle)?;
            self.unflushed = false;
        }
        self.epoch = epoch;
        Ok(())
    }

    /// Whether nothing says that the queue pair may have failed since it was last asked about.
    #[inline]
    fn is_quiet(&self) -> bool {
        self.core.state() != QpState::Err && self.core.session.error_epoch() == self.epoch
    }

    /// After a time in which nobody looked: a command was under way, or the queue was lent out.
    fn settle(&mut self) -> Result<(), CommandError> {
        if self.core.state() == QpState::Reset {
            // What had been posted is gone.
            self.unflushed = false;
        }
        if self.is_quiet() {
            Ok(())
        } else {
            self.flush_late()
        }
    }

    /// A work request of this queue pair was seen to fail.
    pub(super) fn flush_late(&mut self) -> Result<(), CommandError> {
        if self.unflushed {
            self.flush_if_failed()
        } else {
            Ok(())
        }
    }
}

/// rxe's queue pair.
#[derive(Debug)]
pub struct RxeQp {
    core: Arc<Core>,
    qp_num: QpNum,
    caps: QpCaps,
    send: Shelf<Box<SendRing>>,
    /// None with a shared receive queue.
    recv: Option<Arc<Receiver>>,
}

impl RxeQp {
    pub(super) fn new(
        core: Arc<Core>,
        qp_num: QpNum,
        granted: QpCaps,
        send: SendRing,
        recv: Option<RecvRing>,
    ) -> Self {
        // What the rings really hold: 6.1 reports what was asked for instead.
        let caps = QpCaps {
            max_send_wr: send.queue.mask(),
            max_recv_wr: recv.as_ref().map_or(0, |recv| recv.queue.capacity()),
            max_recv_sge: if recv.is_some() {
                granted.max_recv_sge
            } else {
                0
            },
            ..granted
        };
        let recv = recv.map(|recv| Arc::new(Shelf::new(Box::new(recv))));
        if let (Some(recv), Some(receivers)) = (&recv, Receivers::of(&core.session)) {
            receivers.insert(qp_num, recv);
        }
        Self {
            core,
            qp_num,
            caps,
            send: Shelf::new(Box::new(send)),
            recv,
        }
    }

    fn recv(&self) -> Result<&Receiver, PostError> {
        self.recv
            .as_deref()
            .ok_or(PostError::new(0, PostCause::UsesSharedReceiveQueue))
    }

    fn ours(&self) -> Result<(), PostError> {
        if self.core.session.is_ours() {
            Ok(())
        } else {
            Err(PostError::new(0, PostCause::ForeignProcess))
        }
    }

    /// Whether a ring is one of ours, and there is a lock that may be taken.
    fn is_from_here(&self, core: &Arc<Core>) -> bool {
        Arc::ptr_eq(core, &self.core) && self.core.session.is_ours()
    }
}

impl Drop for RxeQp {
    fn drop(&mut self) {
        if let Some(recv) = self.recv.as_ref().filter(|_| self.core.session.is_ours())
            && let Some(receivers) = Receivers::of(&self.core.session)
        {
            receivers.remove(self.qp_num, recv);
        }
    }
}

impl QpOps for RxeQp {
    fn handle(&self) -> QpHandle {
        self.core.handle
    }

    fn qp_num(&self) -> QpNum {
        self.qp_num
    }

    fn caps(&self) -> QpCaps {
        self.caps
    }

    fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        self.core.may_send()?;
        self.send.with(|ring| ring.post(wrs))?
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.ours()?;
        let recv = self.recv()?;
        self.core.may_receive()?;
        recv.with(|ring| ring.post(wrs))?
    }

    fn known_state(&self) -> QpState {
        self.core.state()
    }

    fn commands(&self) -> &Mutex<()> {
        &self.core.commands
    }

    fn state_changed(&self, state: QpState) -> Result<(), CommandError> {
        let before = self.core.state.swap(state.raw(), Ordering::Relaxed);
        if before == QpState::Sqd.raw() && state == QpState::Rts {
            // What was posted in SQD waits for somebody to say so.
            self.core.session.doorbell(self.core.handle.0)?;
        }
        Ok(())
    }

    fn set_max_rd_atomic(&self, max_rd_atomic: u8) {
        self.core
            .no_reads
            .store(max_rd_atomic == 0, Ordering::Relaxed);
    }

    fn settle(&self) {
        if let Some(recv) = self.recv.as_deref().filter(|_| self.core.session.is_ours()) {
            // As in `Receivers::failed`.
            let _ = recv.with(|ring| ring.settle());
        }
    }

    fn take_send(&self) -> Result<ExclusiveSend, PostError> {
        self.ours()?;
        Ok(ExclusiveSend::Rxe(self.send.take()?))
    }

    fn put_back_send(&self, queue: ExclusiveSend) {
        let ExclusiveSend::Rxe(ring) = queue;
        if self.is_from_here(&ring.core) {
            self.send.put_back(ring);
        }
    }

    fn take_recv(&self) -> Result<ExclusiveRecv, PostError> {
        self.ours()?;
        Ok(ExclusiveRecv::Rxe(self.recv()?.take()?))
    }

    fn put_back_recv(&self, queue: ExclusiveRecv) {
        let ExclusiveRecv::Rxe(ring) = queue;
        if let (true, Some(shelf)) = (self.is_from_here(&ring.core), &self.recv) {
            shelf.put_back(ring);
            // A failure that was polled meanwhile found nobody to tell.
            self.settle();
        }
    }

    fn destroy(&self) -> Result<u32, CloseError> {
        if !self.core.session.is_ours() {
            return Err(foreign("QP_DESTROY"));
        }
        let send = self.send.close()?;
        let recv = match self.recv.as_deref().map(Shelf::close).transpose() {
            Ok(recv) => recv,
            Err(absent) => {
                self.send.reopen(send);
                return Err(absent.into());
            }
        };
        match verbs::qp::destroy(&self.core.session, self.core.handle) {
            // The rings are unmapped here, after the kernel object is gone.
            Ok(reported) => Ok(reported),
            Err(error) => {
                self.send.reopen(send);
                if let (Some(shelf), Some(recv)) = (&self.recv, recv) {
                    shelf.reopen(recv);
                }
                Err(error.into())
            }
        }
    }
}

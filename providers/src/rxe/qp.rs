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

use uverbs_abi::legacy::Doorbell;
use uverbs_abi::session::{Refusal, Status};
use uverbs_abi::sys::process::Life;
use uverbs_abi::{Cause, CommandError, Session};

use super::cq::foreign;
use super::receivers::{Receiver, Receivers};
use super::recv::RecvQueue;
use super::work::WorkQueue;
use super::wqe::{SEND_HEAD, SendLimits, encode_inline, encode_rest, encode_send, encode_send_one};
use crate::contract::{ExclusiveRecv, ExclusiveSend, QpOps};
use crate::error::{CloseError, PostCause, PostError};
use crate::ring::Corrupt;
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
    fn has_no_reads(&self) -> bool {
        // Relaxed: as in `state`.
        self.no_reads.load(Ordering::Relaxed)
    }

    /// Whether sends may be posted, if that can be said at once.
    #[inline]
    fn is_sending(&self, life: Life) -> bool {
        // Relaxed: as in `state`. The states from RTS on have the highest numbers.
        life.is_on() && self.state.load(Ordering::Relaxed) >= QpState::Rts.raw()
    }

    /// Whether sends may be posted.
    #[cold]
    #[inline(never)]
    fn may_send(&self) -> Result<(), PostError> {
        usable(&self.session)?;
        let state = self.state();
        let needs = match state {
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err => return Ok(()),
            QpState::Reset => "move it to INIT, RTR and RTS first",
            QpState::Init => "move it to RTR and RTS first",
            QpState::Rtr => "move it to RTS first",
        };
        Err(wrong_state(state, needs))
    }

    /// Whether receives may be posted, if that can be said at once.
    #[inline]
    fn is_receiving(&self, life: Life) -> bool {
        // Relaxed: as in `state`.
        life.is_on() && self.state.load(Ordering::Relaxed) != QpState::Reset.raw()
    }

    /// Whether receives may be posted.
    #[cold]
    #[inline(never)]
    fn may_receive(&self) -> Result<(), PostError> {
        usable(&self.session)?;
        match self.state() {
            QpState::Reset => Err(wrong_state(QpState::Reset, "move it to INIT first")),
            _ => Ok(()),
        }
    }
}

const _: () = {
    let rts = QpState::Rts.raw();
    assert!(QpState::Sqd.raw() > rts && QpState::Sqe.raw() > rts && QpState::Err.raw() > rts);
    assert!(QpState::Reset.raw() < rts && QpState::Init.raw() < rts && QpState::Rtr.raw() < rts);
};

const fn wrong_state(state: QpState, needs: &'static str) -> PostError {
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
    work: WorkQueue<SEND_HEAD>,
    limits: SendLimits,
    life: Life,
    doorbell: Doorbell,
    session: Arc<Session>,
    core: Arc<Core>,
}

impl SendRing {
    pub(super) fn new(
        queue: SharedQueue<SEND_HEAD>,
        limits: SendLimits,
        core: Arc<Core>,
    ) -> Result<Self, Corrupt> {
        Ok(Self {
            work: WorkQueue::new(queue)?,
            limits,
            life: core.session.status().life(),
            doorbell: Doorbell::new(core.handle.0),
            session: Arc::clone(&core.session),
            core,
        })
    }

    /// Encodes and publishes requests, in order, then rings the doorbell once.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        // One ordinary request goes this way, and all that does not is left to a call that takes
        // nothing from here.
        if let [wr] = wrs
            && self.core.is_sending(self.life)
        {
            let limits = &self.limits;
            let posted = self
                .work
                .post_one(wr, |wr, slot| encode_send_one(wr, limits, slot));
            if posted {
                return self.ring(1);
            }
            if wr.op.is_inline() {
                return self.post_inline(wrs, wr);
            }
        }
        self.post_more(wrs)
    }

    /// One request with bytes in it, right after sends were found to be allowed.
    #[inline(never)]
    fn post_inline(&mut self, wrs: &[SendWr<'_>], wr: &SendWr<'_>) -> Result<(), PostError> {
        let limits = &self.limits;
        let posted = self
            .work
            .post_one(wr, |wr, slot| encode_inline(wr, limits, slot));
        if posted {
            return self.ring(1);
        }
        self.post_any(wrs)
    }

    #[inline(never)]
    fn post_more(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        if !self.core.is_sending(self.life) {
            self.core.may_send()?;
        }
        self.post_any(wrs)
    }

    #[inline(never)]
    fn post_any(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        let limits = &self.limits;
        let no_reads = self.core.has_no_reads();
        let all = self.work.post_all(wrs, |wr, mut slot| {
            encode_send_one(wr, limits, slot.reborrow())
                || !(no_reads && wr.op.is_read()) && encode_rest(wr, limits, slot).is_ok()
        });
        if !all {
            return self.post_until_fault(wrs);
        }
        if wrs.is_empty() {
            return Ok(());
        }
        self.ring(wrs.len())
    }

    /// Tells the kernel of requests that have been published.
    #[inline]
    fn ring(&self, accepted: usize) -> Result<(), PostError> {
        match self.session.ring(&self.doorbell) {
            Ok(()) => Ok(()),
            Err(errno) => self.ring_otherwise(accepted, errno),
        }
    }

    #[cold]
    #[inline(never)]
    fn ring_otherwise(&self, accepted: usize, refusal: Refusal) -> Result<(), PostError> {
        self.session
            .ring_otherwise(&self.doorbell, refusal)
            .map_err(|error| PostError::new(accepted, not_told(error)))
    }

    #[cold]
    #[inline(never)]
    fn post_until_fault(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        let limits = &self.limits;
        let no_reads = self.core.has_no_reads();
        let posted = self.work.post_until_fault(wrs, |wr, slot| {
            if no_reads && wr.op.is_read() {
                return Err(PostCause::NoReads);
            }
            encode_send(wr, limits, slot)
        });
        let accepted = posted.map_or_else(|error| error.accepted, |()| wrs.len());
        if accepted != 0 {
            // A doorbell that fails outweighs a bad request: it is about those that were accepted.
            self.ring(accepted)?;
        }
        posted
    }
}

/// The receive queue of one queue pair.
#[derive(Debug)]
pub struct RecvRing {
    queue: RecvQueue,
    life: Life,
    core: Arc<Core>,
    /// Of the session.
    status: Arc<Status>,
    /// The session's error epoch when the queue pair's state was last known for sure.
    epoch: u32,
    /// Whether receives were posted since the kernel was last made to flush.
    unflushed: bool,
}

impl RecvRing {
    pub(super) fn new(queue: RecvQueue, core: Arc<Core>) -> Self {
        let epoch = core.session.error_epoch();
        let status = Arc::clone(core.session.status());
        Self {
            queue,
            life: status.life(),
            core,
            status,
            epoch,
            unflushed: false,
        }
    }

    /// Posts receives, in order.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        match self.post_one(wrs) {
            Some(true) => Ok(()),
            Some(false) => self.posted(Ok(()), 1),
            None => self.post_more(wrs),
        }
    }

    /// Posts one ordinary receive, if that is what there is, and says whether that was all. With no
    /// answer nothing has happened.
    #[inline]
    fn post_one(&mut self, wrs: &[RecvWr<'_>]) -> Option<bool> {
        if let [wr] = wrs
            && self.core.is_receiving(self.life)
            && self.queue.post_one(wr)
        {
            self.unflushed = true;
            // After publishing: a failure that is noted only later comes with a flush that takes the
            // new receive along, or is seen by the next post.
            Some(self.is_quiet())
        } else {
            None
        }
    }

    #[inline(never)]
    fn post_more(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        if !self.core.is_receiving(self.life) {
            self.core.may_receive()?;
        }
        let posted = self.queue.post(wrs);
        self.posted(posted, wrs.len())
    }

    /// After publishing: see [`post_recv`](Self::post_recv).
    #[inline(never)]
    fn posted(&mut self, posted: Result<(), PostError>, given: usize) -> Result<(), PostError> {
        let accepted = posted.map_or_else(|error| error.accepted, |()| given);
        self.unflushed |= accepted != 0;
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
        // Relaxed: as in `Core::state`.
        self.core.state.load(Ordering::Relaxed) != QpState::Err.raw()
            && self.status.error_epoch() == self.epoch
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
    life: Life,
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
            max_send_wr: send.work.capacity(),
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
            life: core.session.status().life(),
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

    /// Whether a lock may be taken.
    #[inline]
    fn ours(&self) -> Result<(), PostError> {
        if self.life.is_on() || self.core.session.is_ours() {
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
        self.ours()?;
        self.send.with_or(|ring| ring.post_send(wrs))
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.ours()?;
        let recv = self.recv()?;
        // No call in this, so that nothing has to be put aside for one.
        match recv.try_with(|ring| ring.post_one(wrs)).flatten() {
            Some(true) => Ok(()),
            // It is in the queue; if somebody has taken that meanwhile, they look after it.
            Some(false) => recv.with(|ring| ring.posted(Ok(()), 1)).unwrap_or(Ok(())),
            None => recv.with_or(|ring| ring.post_recv(wrs)),
        }
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
            Err(error) if error.is_done() => Err(error.into()),
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

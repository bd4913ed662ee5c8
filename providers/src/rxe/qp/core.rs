//! What both rings of a queue pair know of it, and whether something may be posted.
//!
//! Must never say yes in a process that inherited it, or of a device that is known to be gone.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use uverbs_abi::legacy::Response;
use uverbs_abi::sys::process::Life;
use uverbs_abi::{Cause, CommandError, Session};

use crate::error::{PostCause, PostError, TakeCause};
use crate::shelf::Absent;
use crate::types::{QpHandle, QpNum, QpState, QueueId};

/// What both rings of a queue pair must know of it.
#[derive(Debug)]
// In this order, for the sake of the last.
#[repr(C)]
pub(in crate::rxe) struct Core {
    pub(super) session: Arc<Session>,
    pub(super) handle: QpHandle,
    pub(super) qp_num: QpNum,
    /// A [`QpState`] as last known: from a command of ours, or asked for after a failure.
    pub(super) state: AtomicU8,
    /// Whether RDMA READs and atomics would never start, since none may be under way.
    pub(super) no_reads: AtomicBool,
    /// Held over commands that ask for the state or change it.
    pub(super) commands: Mutex<()>,
    /// Where the kernel answers doorbells: away from what those who post receives read.
    response: Response,
}

impl AsRef<Response> for Core {
    fn as_ref(&self) -> &Response {
        &self.response
    }
}

impl Core {
    pub(in crate::rxe) const fn new(
        session: Arc<Session>,
        handle: QpHandle,
        qp_num: QpNum,
    ) -> Self {
        Self {
            session,
            handle,
            qp_num,
            state: AtomicU8::new(QpState::Reset.raw()),
            no_reads: AtomicBool::new(false),
            commands: Mutex::new(()),
            response: Response::new(),
        }
    }

    #[inline]
    pub(super) fn state(&self) -> QpState {
        // Relaxed: whoever posts after a command of another thread has met that thread in between.
        // Only states that have a number are ever stored.
        QpState::from_raw(self.state.load(Ordering::Relaxed)).unwrap_or(QpState::Err)
    }

    #[inline]
    pub(super) fn has_no_reads(&self) -> bool {
        // Relaxed: as in `state`.
        self.no_reads.load(Ordering::Relaxed)
    }

    /// Whether sends may be posted, if that can be said at once.
    #[inline]
    pub(super) fn is_sending(&self, life: Life) -> bool {
        // Relaxed: as in `state`. The states from RTS on have the highest numbers.
        life.is_on() && self.state.load(Ordering::Relaxed) >= QpState::Rts.raw()
    }

    /// Whether sends may be posted.
    #[cold]
    #[inline(never)]
    pub(super) fn may_send(&self) -> Result<(), PostError> {
        usable(&self.session).map_err(|cause| self.refuses(0, cause))?;
        let state = self.state();
        let needs = match state {
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err => return Ok(()),
            QpState::Reset => "move it to INIT, RTR and RTS first",
            QpState::Init => "move it to RTR and RTS first",
            QpState::Rtr => "move it to RTS first",
        };
        Err(self.refuses(0, PostCause::WrongState { state, needs }))
    }

    /// Whether receives may be posted, if that can be said at once.
    #[inline]
    pub(super) fn is_receiving(&self, life: Life) -> bool {
        // Relaxed: as in `state`.
        life.is_on() && self.state.load(Ordering::Relaxed) != QpState::Reset.raw()
    }

    /// Whether receives may be posted.
    #[cold]
    #[inline(never)]
    pub(super) fn may_receive(&self) -> Result<(), PostError> {
        usable(&self.session).map_err(|cause| self.refuses(0, cause))?;
        match self.state() {
            state @ QpState::Reset => {
                let needs = "move it to INIT first";
                Err(self.refuses(0, PostCause::WrongState { state, needs }))
            }
            _ => Ok(()),
        }
    }

    /// The error of a batch of which this many are in the queue.
    #[cold]
    #[inline(never)]
    pub(super) fn refuses(&self, accepted: usize, cause: PostCause) -> PostError {
        PostError::new(self.id(), accepted, cause)
    }

    /// What errors call it.
    pub(in crate::rxe) const fn id(&self) -> QueueId {
        QueueId::QueuePair(self.qp_num)
    }
}

const _: () = {
    let rts = QpState::Rts.raw();
    assert!(QpState::Sqd.raw() > rts && QpState::Sqe.raw() > rts && QpState::Err.raw() > rts);
    assert!(QpState::Reset.raw() < rts && QpState::Init.raw() < rts && QpState::Rtr.raw() < rts);
};

/// Whether this process may post, and there is a device to post to.
#[inline]
pub(in crate::rxe) fn usable(session: &Session) -> Result<(), PostCause> {
    if !session.is_ours() {
        Err(PostCause::ForeignProcess)
    } else if session.is_gone() {
        Err(PostCause::DeviceGone)
    } else {
        Ok(())
    }
}

/// What a command that was to start posted requests ran into.
#[cold]
pub(super) fn not_told(error: CommandError) -> PostCause {
    match error.cause {
        Cause::DeviceGone => PostCause::DeviceGone,
        Cause::ForeignProcess => PostCause::ForeignProcess,
        _ => PostCause::Doorbell(error),
    }
}

impl From<Absent> for PostCause {
    fn from(absent: Absent) -> Self {
        match absent {
            Absent::InExclusiveUse => Self::InExclusiveUse,
            Absent::Destroyed => Self::Destroyed,
        }
    }
}

impl From<Absent> for TakeCause {
    fn from(absent: Absent) -> Self {
        match absent {
            Absent::InExclusiveUse => Self::InExclusiveUse,
            Absent::Destroyed => Self::Destroyed,
        }
    }
}

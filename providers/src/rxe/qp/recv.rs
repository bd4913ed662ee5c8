//! The receive queue of a queue pair, which wants no doorbell, but may have to be flushed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, TryLockError};

use uverbs_abi::CommandError;
use uverbs_abi::session::Status;
use uverbs_abi::sys::process::Life;

use super::core::{Core, not_told};
use crate::error::PostError;
use crate::rxe::recv::RecvQueue;
use crate::shelf::Numbered;
use crate::types::QpState;
use crate::verbs;
use crate::wr::RecvWr;

/// The receive queue of one queue pair.
#[derive(Debug)]
pub struct RecvRing {
    pub(super) queue: RecvQueue,
    life: Life,
    pub(super) core: Arc<Core>,
    /// Of the session.
    status: Arc<Status>,
    /// The session's error epoch when the queue pair's state was last known for sure.
    epoch: u32,
    /// Whether receives were posted since the kernel was last made to flush.
    unflushed: bool,
}

/// What has come of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// All is as it should be.
    All,
    /// All requests are in the queue, and the queue pair may have failed before: then they are to be
    /// flushed.
    AllMaybeFailed,
    /// Nothing has happened.
    Nothing,
}

impl Numbered for RecvRing {}

impl RecvRing {
    #[inline]
    pub(in crate::rxe) fn new(queue: RecvQueue, core: Arc<Core>) -> Self {
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
    #[inline]
    pub fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        match self.post(wrs) {
            Received::All => Ok(()),
            received => self.post_otherwise(wrs, received),
        }
    }

    /// Posts what can be posted without further ado.
    #[inline(never)]
    fn post(&mut self, wrs: &[RecvWr<'_>]) -> Received {
        match self.post_one(wrs) {
            Some(received) => received,
            None => self.post_batch(wrs),
        }
    }

    /// Posts one ordinary receive, if that is what there is.
    #[inline]
    pub(super) fn post_one(&mut self, wrs: &[RecvWr<'_>]) -> Option<Received> {
        if let [wr] = wrs
            && self.core.is_receiving(self.life)
            && self.queue.post_one(wr)
        {
            Some(self.received())
        } else {
            None
        }
    }

    #[inline(never)]
    fn post_batch(&mut self, wrs: &[RecvWr<'_>]) -> Received {
        if wrs.is_empty() || !self.core.is_receiving(self.life) || !self.queue.post_all(wrs) {
            Received::Nothing
        } else {
            self.received()
        }
    }

    /// After publishing: a failure that is noted only later comes with a flush that takes the new
    /// receives along, or is seen by the next post.
    #[inline]
    fn received(&mut self) -> Received {
        self.unflushed = true;
        if self.is_quiet() {
            Received::All
        } else {
            Received::AllMaybeFailed
        }
    }

    /// What is left to be done, or to be said, after [`post`](Self::post).
    #[cold]
    #[inline(never)]
    fn post_otherwise(&mut self, wrs: &[RecvWr<'_>], received: Received) -> Result<(), PostError> {
        match received {
            Received::All => Ok(()),
            Received::AllMaybeFailed => self.posted(Ok(()), wrs.len()),
            Received::Nothing => self.post_until_fault(wrs),
        }
    }

    fn post_until_fault(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.core.may_receive()?;
        let posted = self.queue.post_until_fault(wrs);
        self.posted(posted, wrs.len())
    }

    /// After publishing: see [`received`](Self::received).
    #[cold]
    #[inline(never)]
    pub(super) fn posted(
        &mut self,
        posted: Result<(), PostError>,
        given: usize,
    ) -> Result<(), PostError> {
        let accepted = posted.map_or_else(|error| error.accepted, |()| given);
        self.unflushed |= accepted != 0;
        if accepted != 0 && !self.is_quiet() {
            self.flush_if_failed()
                .map_err(|error| self.core.refuses(accepted, not_told(error)))?;
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
    pub(super) fn settle(&mut self) -> Result<(), CommandError> {
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
    pub(in crate::rxe) fn flush_late(&mut self) -> Result<(), CommandError> {
        if self.unflushed {
            self.flush_if_failed()
        } else {
            Ok(())
        }
    }
}

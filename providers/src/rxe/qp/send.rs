//! The send queue of a queue pair: requests in, then the doorbell.
//!
//! Whether every send makes a completion is the kernel's business (it keeps `sq_sig_all`); nothing
//! is set in the requests for it.

use std::sync::Arc;

use uverbs_abi::Session;
use uverbs_abi::legacy::Doorbell;
use uverbs_abi::session::Refusal;
use uverbs_abi::sys::process::Life;

use super::core::{Core, not_told};
use crate::error::{PostCause, PostError};
use crate::ring::Corrupt;
use crate::rxe::work::WorkQueue;
use crate::rxe::wqe::{
    SEND_HEAD, SendLimits, encode_inline, encode_rest, encode_send, encode_send_one,
};
use crate::shared::SharedQueue;
use crate::wr::SendWr;

/// The send queue of one queue pair.
#[derive(Debug)]
pub struct SendRing {
    pub(super) work: WorkQueue<SEND_HEAD>,
    limits: SendLimits,
    life: Life,
    doorbell: Doorbell,
    session: Arc<Session>,
    pub(super) core: Arc<Core>,
}

impl SendRing {
    pub(in crate::rxe) fn new(
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

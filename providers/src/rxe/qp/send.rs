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
use crate::rxe::wqe::{SEND_HEAD, SendLimits, encode_inline, encode_send, encode_send_one};
use crate::shared::SharedQueue;
use crate::wr::SendWr;

/// The send queue of one queue pair.
#[derive(Debug)]
pub struct SendRing {
    pub(super) work: WorkQueue<SEND_HEAD>,
    limits: SendLimits,
    /// [`SendLimits::one`].
    below: u32,
    life: Life,
    doorbell: Doorbell,
    session: Arc<Session>,
    pub(super) core: Arc<Core>,
}

/// What has come of a post. In a register or two, where the error would be handed over in memory.
#[derive(Clone, Copy, Debug)]
enum Posted {
    /// All is as it should be.
    All,
    /// All requests are in the queue, and the kernel was not told.
    Untold(Refusal),
    /// Nothing has happened.
    Nothing,
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
            below: limits.one(),
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
    #[inline]
    pub fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        match self.post(wrs) {
            Posted::All => Ok(()),
            posted => self.post_otherwise(wrs, posted),
        }
    }

    /// Posts what can be posted without further ado.
    // What each of these calls cannot do it leaves to the next one, and takes nothing from there, so
    // that nothing has to be put aside.
    #[inline(never)]
    fn post(&mut self, wrs: &[SendWr<'_>]) -> Posted {
        if let [wr] = wrs
            && self.core.is_sending(self.life)
            && self.work.is_open()
        {
            // Before a slot is looked for: two instructions of an ordinary request's, ten of these.
            if wr.op.is_inline() {
                return self.post_inline(wr);
            }
            let below = self.below;
            let posted = self
                .work
                .post_one(wr, |wr, slot| encode_send_one(wr, below, slot));
            if posted {
                return self.ring();
            }
        }
        self.post_batch(wrs)
    }

    /// One request with bytes in it, for which there is room.
    #[inline(never)]
    fn post_inline(&mut self, wr: &SendWr<'_>) -> Posted {
        let limits = &self.limits;
        let posted = self
            .work
            .post_one(wr, |wr, slot| encode_inline(wr, limits, slot));
        if posted {
            self.ring()
        } else {
            self.post_batch(std::slice::from_ref(wr))
        }
    }

    #[inline(never)]
    fn post_batch(&mut self, wrs: &[SendWr<'_>]) -> Posted {
        if !self.core.is_sending(self.life) {
            return Posted::Nothing;
        }
        let below = self.below;
        let filled = self
            .work
            .fill_straight(wrs, |wr, slot| encode_send_one(wr, below, slot));
        if filled {
            self.publish(wrs.len())
        } else {
            self.post_any(wrs)
        }
    }

    /// A batch of any requests, wherever they go.
    #[inline(never)]
    fn post_any(&mut self, wrs: &[SendWr<'_>]) -> Posted {
        let limits = &self.limits;
        let no_reads = self.core.has_no_reads();
        let filled = self.work.fill(wrs, |wr, slot| {
            !(no_reads && wr.op.is_read()) && encode_send(wr, limits, slot).is_ok()
        });
        if filled {
            self.publish(wrs.len())
        } else {
            Posted::Nothing
        }
    }

    #[inline]
    fn publish(&mut self, count: usize) -> Posted {
        if count == 0 {
            return Posted::All;
        }
        self.work.publish(count);
        self.ring()
    }

    /// Tells the kernel of requests that have been published.
    #[inline]
    fn ring(&self) -> Posted {
        match self.session.ring(&self.doorbell) {
            Ok(()) => Posted::All,
            Err(refusal) => Posted::Untold(refusal),
        }
    }

    /// What is left to be done, or to be said, after [`post`](Self::post).
    #[cold]
    #[inline(never)]
    fn post_otherwise(&mut self, wrs: &[SendWr<'_>], posted: Posted) -> Result<(), PostError> {
        match posted {
            Posted::All => Ok(()),
            Posted::Untold(refusal) => self.ring_otherwise(wrs.len(), refusal),
            Posted::Nothing => {
                self.core.may_send()?;
                self.post_until_fault(wrs)
            }
        }
    }

    fn ring_otherwise(&self, accepted: usize, refusal: Refusal) -> Result<(), PostError> {
        self.session
            .ring_otherwise(&self.doorbell, refusal)
            .map_err(|error| PostError::new(accepted, not_told(error)))
    }

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
        if accepted != 0
            && let Posted::Untold(refusal) = self.ring()
        {
            // A doorbell that fails outweighs a bad request: it is about those that were accepted.
            self.ring_otherwise(accepted, refusal)?;
        }
        posted
    }
}

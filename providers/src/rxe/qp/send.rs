//! The send queue of a queue pair: requests in, then the doorbell.
//!
//! Whether every send makes a completion is the kernel's business (it keeps `sq_sig_all`); nothing
//! is set in the requests for it.

use std::sync::Arc;

use uverbs_abi::Session;
use uverbs_abi::legacy::Doorbell;
use uverbs_abi::session::Refusal;
use uverbs_abi::sys::process::Life;

use super::core::{Core, not_told, usable};
use crate::error::{PostCause, PostError};
use crate::rxe::work::WorkQueue;
use crate::rxe::wqe::{
    SEND_HEAD, SendLimits, encode_fetch, encode_inline, encode_send, encode_send_one,
};
use crate::shelf::Numbered;
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
    /// Requests that have been published and the kernel has not been told of, on purpose.
    owed: usize,
    /// Up to which slot. If the queue has got further by now, a doorbell has told of them, or has failed
    /// and said so.
    owed_until: u32,
    session: Arc<Session>,
    pub(super) core: Arc<Core>,
}

/// Whether a post tells the kernel at once.
const RING: bool = true;
/// Or leaves it to [`SendRing::ring_owed`].
const OWE: bool = false;

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

impl Numbered for SendRing {}

impl SendRing {
    #[inline]
    pub(in crate::rxe) fn new(
        work: WorkQueue<SEND_HEAD>,
        limits: SendLimits,
        core: Arc<Core>,
    ) -> Self {
        Self {
            work,
            limits,
            below: limits.one(),
            life: core.session.status().life(),
            doorbell: Doorbell::answered_in(Arc::clone(&core), core.handle.0),
            owed: 0,
            owed_until: 0,
            session: Arc::clone(&core.session),
            core,
        }
    }

    /// Encodes and publishes requests, in order, then rings the doorbell once.
    ///
    /// # Errors
    /// [`PostError`].
    #[inline]
    pub fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        match self.post::<RING>(wrs) {
            Posted::All => Ok(()),
            posted => self.post_otherwise::<RING>(wrs, posted),
        }
    }

    /// As [`post_send`](Self::post_send), without the doorbell: [`ring_owed`](Self::ring_owed) is to
    /// follow. Until then the kernel may look at the requests or not.
    ///
    /// # Errors
    /// [`PostError`].
    #[inline]
    pub fn put_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        match self.post::<OWE>(wrs) {
            Posted::All => Ok(()),
            posted => self.post_otherwise::<OWE>(wrs, posted),
        }
    }

    /// Rings for what was [put](Self::put_send) in since, if anything was.
    ///
    /// # Errors
    /// [`PostError`], with all of that as `accepted`: it is in the queue, and a later doorbell tells of
    /// it too. [`PostCause::WrongState`] if a move to RESET has dropped it all.
    #[inline]
    pub fn ring_owed(&mut self) -> Result<(), PostError> {
        match self.owed {
            0 => Ok(()),
            owed if self.owed_until == self.work.first() => self.ring_for(owed),
            _ => {
                self.owed = 0;
                Ok(())
            }
        }
    }

    #[inline(never)]
    fn ring_for(&mut self, owed: usize) -> Result<(), PostError> {
        if !self.core.is_sending(self.life) {
            usable(&self.session).map_err(|cause| self.core.refuses(owed, cause))?;
            let may_send = self.core.may_send();
            if may_send.is_err() {
                // From where they were posted nothing but RESET leads there, which drops them.
                self.owed = 0;
            }
            may_send?;
        }
        if let Posted::Untold(refusal) = self.tell::<RING>(owed) {
            self.ring_otherwise(owed, refusal)?;
        }
        self.owed = 0;
        Ok(())
    }

    /// Posts what can be posted without further ado.
    // What each of these calls cannot do it leaves to the next one, and takes nothing from there, so
    // that nothing has to be put aside.
    #[inline(never)]
    fn post<const RINGS: bool>(&mut self, wrs: &[SendWr<'_>]) -> Posted {
        if let [wr] = wrs
            && self.core.is_sending(self.life)
            && self.work.is_open()
        {
            // Before a slot is looked for: two instructions of an ordinary request's, ten of these.
            if wr.op.is_inline() {
                return self.post_inline::<RINGS>(wr);
            }
            let below = self.below;
            let posted = self
                .work
                .post_one(wr, |wr, slot| encode_send_one(wr, below, slot));
            if posted {
                return self.tell::<RINGS>(1);
            }
            return self.post_fetch::<RINGS>(wr);
        }
        self.post_batch::<RINGS>(wrs)
    }

    /// One request with bytes in it, for which there is room.
    #[inline(never)]
    fn post_inline<const RINGS: bool>(&mut self, wr: &SendWr<'_>) -> Posted {
        let limits = &self.limits;
        let posted = self
            .work
            .post_one(wr, |wr, slot| encode_inline(wr, limits, slot));
        self.tell_or_batch::<RINGS>(wr, posted)
    }

    /// One request that brings something back, for which there is room.
    #[inline(never)]
    fn post_fetch<const RINGS: bool>(&mut self, wr: &SendWr<'_>) -> Posted {
        let below = self.below;
        let posted = !self.core.has_no_reads()
            && self
                .work
                .post_one(wr, |wr, slot| encode_fetch(wr, below, slot));
        self.tell_or_batch::<RINGS>(wr, posted)
    }

    /// Tells of one request that is in the queue, or posts it as the general way does.
    #[inline(always)]
    fn tell_or_batch<const RINGS: bool>(&mut self, wr: &SendWr<'_>, posted: bool) -> Posted {
        if posted {
            self.tell::<RINGS>(1)
        } else {
            self.post_batch::<RINGS>(std::slice::from_ref(wr))
        }
    }

    #[inline(never)]
    fn post_batch<const RINGS: bool>(&mut self, wrs: &[SendWr<'_>]) -> Posted {
        if !self.core.is_sending(self.life) {
            return Posted::Nothing;
        }
        let below = self.below;
        let filled = self
            .work
            .fill_straight(wrs, |wr, slot| encode_send_one(wr, below, slot));
        if filled {
            self.publish::<RINGS>(wrs.len())
        } else {
            self.post_fetches::<RINGS>(wrs)
        }
    }

    /// A batch, if all of them bring something back.
    #[inline(never)]
    fn post_fetches<const RINGS: bool>(&mut self, wrs: &[SendWr<'_>]) -> Posted {
        let below = self.below;
        let filled = !self.core.has_no_reads()
            && self
                .work
                .fill_straight(wrs, |wr, slot| encode_fetch(wr, below, slot));
        if filled {
            self.publish::<RINGS>(wrs.len())
        } else {
            self.post_any::<RINGS>(wrs)
        }
    }

    /// A batch of any requests, wherever they go.
    #[inline(never)]
    fn post_any<const RINGS: bool>(&mut self, wrs: &[SendWr<'_>]) -> Posted {
        let limits = &self.limits;
        let no_reads = self.core.has_no_reads();
        let filled = self.work.fill(wrs, |wr, slot| {
            !(no_reads && wr.op.is_read()) && encode_send(wr, limits, slot).is_ok()
        });
        if filled {
            self.publish::<RINGS>(wrs.len())
        } else {
            Posted::Nothing
        }
    }

    #[inline]
    fn publish<const RINGS: bool>(&mut self, count: usize) -> Posted {
        if count == 0 {
            return Posted::All;
        }
        self.work.publish(count);
        self.tell::<RINGS>(count)
    }

    /// Tells the kernel of requests that have been published, or remembers that it has not been told.
    #[inline]
    fn tell<const RINGS: bool>(&mut self, count: usize) -> Posted {
        if !RINGS {
            if self.owed_until != self.work.first_before(count) {
                self.owed = 0;
            }
            self.owed = self.owed.saturating_add(count);
            self.owed_until = self.work.first();
            return Posted::All;
        }
        match self.session.ring(&self.doorbell) {
            Ok(()) => Posted::All,
            Err(refusal) => Posted::Untold(refusal),
        }
    }

    /// What is left to be done, or to be said, after [`post`](Self::post).
    #[cold]
    #[inline(never)]
    fn post_otherwise<const RINGS: bool>(
        &mut self,
        wrs: &[SendWr<'_>],
        posted: Posted,
    ) -> Result<(), PostError> {
        match posted {
            Posted::All => Ok(()),
            Posted::Untold(refusal) => self.ring_otherwise(wrs.len(), refusal),
            Posted::Nothing => {
                self.core.may_send()?;
                self.post_until_fault::<RINGS>(wrs)
            }
        }
    }

    fn ring_otherwise(&self, accepted: usize, refusal: Refusal) -> Result<(), PostError> {
        self.session
            .ring_otherwise(&self.doorbell, refusal)
            .map_err(|error| self.core.refuses(accepted, not_told(error)))
    }

    fn post_until_fault<const RINGS: bool>(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        let limits = &self.limits;
        let no_reads = self.core.has_no_reads();
        let posted = self.work.post_until_fault(wrs, |wr, slot| {
            if no_reads && wr.op.is_read() {
                return Err(PostCause::NoReads);
            }
            encode_send(wr, limits, slot)
        });
        let accepted = posted.map_or_else(|(accepted, _)| accepted, |()| wrs.len());
        if accepted != 0
            && let Posted::Untold(refusal) = self.tell::<RINGS>(accepted)
        {
            // A doorbell that fails outweighs a bad request: it is about those that were accepted.
            self.ring_otherwise(accepted, refusal)?;
        }
        posted.map_err(|(accepted, cause)| self.core.refuses(accepted, cause))
    }
}

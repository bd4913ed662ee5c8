//! rxe's shared receive queue: one ring of receives for many queue pairs.
//!
//! Ground truth: the kernel's `rxe_srq.c`. It flushes nothing: what is posted stays until a message
//! takes it.

use std::fmt;
use std::sync::Arc;

use uverbs_abi::layout::rxe::rxe_modify_srq_cmd;
use uverbs_abi::{CommandError, Session};
use zerocopy::IntoBytes;

use super::cq::foreign;
use super::qp::usable;
use super::recv::RecvQueue;
use crate::contract::{Posted, SrqOps};
use crate::error::{CloseError, PostCause, PostError};
use crate::shelf::Shelf;
use crate::types::{QueueId, SrqHandle};
use crate::verbs;
use crate::wr::RecvWr;

/// rxe's shared receive queue.
pub struct RxeSrq {
    session: Arc<Session>,
    handle: SrqHandle,
    max_wr: u32,
    max_sge: u32,
    ring: Shelf<RecvQueue>,
}

impl RxeSrq {
    pub(super) fn new(
        session: Arc<Session>,
        handle: SrqHandle,
        ring: RecvQueue,
        max_sge: u32,
    ) -> Self {
        let max_wr = ring.capacity();
        Self {
            session,
            handle,
            max_wr,
            max_sge,
            ring: Shelf::new(ring),
        }
    }

    #[cold]
    #[inline(never)]
    fn refuses(&self, cause: PostCause) -> PostError {
        PostError::new(QueueId::SharedReceiveQueue(self.handle), 0, cause)
    }
}

/// What tells it from others, in place of its locks and addresses.
impl fmt::Debug for RxeSrq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RxeSrq")
            .field("handle", &self.handle.0)
            .field("max_wr", &self.max_wr)
            .finish_non_exhaustive()
    }
}

impl SrqOps for RxeSrq {
    fn handle(&self) -> SrqHandle {
        self.handle
    }

    fn max_wr(&self) -> u32 {
        self.max_wr
    }

    fn max_sge(&self) -> u32 {
        self.max_sge
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        usable(&self.session).map_err(|cause| self.refuses(cause))?;
        self.ring
            .with_or_else(|ring| ring.post(wrs), |absent| self.refuses(absent.into()))
    }

    fn posted(&self, wr_id: u64) -> Vec<Posted> {
        if !self.session.is_ours() {
            return Vec::new();
        }
        let found = self.ring.with(|ring| ring.posted(wr_id));
        found.unwrap_or_default()
    }

    fn set_limit(&self, limit: u32) -> Result<(), CommandError> {
        // The driver reads its part even where only the limit changes, and follows the address in
        // it only where the size does.
        let driver_part = rxe_modify_srq_cmd { mmap_info_addr: 0 };
        verbs::srq::set_limit(&self.session, self.handle, limit, driver_part.as_bytes())
    }

    fn destroy(&self) -> Result<u32, CloseError> {
        if !self.session.is_ours() {
            return Err(foreign("SRQ_DESTROY"));
        }
        let ring = self.ring.close()?;
        match verbs::srq::destroy(&self.session, self.handle) {
            // The ring is unmapped here, after the kernel object is gone.
            Ok(reported) => Ok(reported),
            Err(error) if error.is_done() => Err(error.into()),
            Err(error) => {
                self.ring.reopen(ring);
                Err(error.into())
            }
        }
    }
}

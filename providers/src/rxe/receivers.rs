//! Which queue pairs have receives of their own, so that a failure leads to them.
//!
//! A receive that is posted after the kernel has moved its queue pair to the error state, and before
//! anybody knows, lies there for ever (`flush_if_failed` in `qp.rs` says why). The first failed
//! completion of that queue pair is when somebody knows: whoever polls it looks here.
//!
//! Must never be touched in a process that inherited it by `fork()`.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use uverbs_abi::Session;

use super::qp::RecvRing;
use crate::error::PostError;
use crate::lock::Lock;
use crate::shelf::{Absent, Shelf};
use crate::table::Table;
use crate::types::{QpNum, QueueId};

/// A receive queue as its queue pair has it.
#[derive(Debug)]
pub(super) struct Receiver {
    shelf: Shelf<RecvRing>,
    /// Whose it is, for errors.
    id: QueueId,
}

impl Receiver {
    #[inline]
    pub(super) fn new(ring: RecvRing, id: QueueId) -> Self {
        Self {
            shelf: Shelf::new(ring),
            id,
        }
    }

    /// What is said where it is not there to be posted to.
    #[cold]
    #[inline(never)]
    pub(super) fn absent(&self, absent: Absent) -> PostError {
        PostError::new(self.id, 0, absent.into())
    }
}

impl Deref for Receiver {
    type Target = Shelf<RecvRing>;

    fn deref(&self) -> &Self::Target {
        &self.shelf
    }
}

/// The receive queues of one session.
#[derive(Debug)]
pub(super) struct Receivers {
    by_number: Lock<Table<Weak<Receiver>>>,
}

impl Default for Receivers {
    fn default() -> Self {
        Self {
            by_number: Lock::new(Table::new()),
        }
    }
}

impl Receivers {
    /// Those of this session.
    pub(super) fn of(session: &Session) -> Option<Arc<Self>> {
        session.provider_state()
    }

    pub(super) fn insert(&self, qp_num: QpNum, receiver: &Arc<Receiver>) {
        let entry = Arc::downgrade(receiver);
        let before = self
            .by_number
            .with(|table| table.insert(qp_num.0.into(), entry));
        // Not under the lock: it may be the last of it.
        drop(before);
    }

    /// Forgets a receive queue, unless its number has been given to another one since.
    pub(super) fn remove(&self, qp_num: QpNum, receiver: &Arc<Receiver>) {
        let is_this = |found: &Weak<Receiver>| found.as_ptr() == Arc::as_ptr(receiver);
        let removed = self
            .by_number
            .with(|table| table.remove_if(qp_num.0.into(), is_this));
        drop(removed);
    }

    /// A work request of this queue pair has failed: receives that were posted too late to be
    /// flushed with the others are flushed now.
    #[cold]
    pub(super) fn failed(&self, qp_num: QpNum) {
        // Not under the lock: what follows is a command, and may drop the last handle of a queue.
        let receiver = self
            .by_number
            .with(|table| table.get(qp_num.0.into()).and_then(Weak::upgrade));
        if let Some(receiver) = receiver {
            // A queue in exclusive use is looked after by its owner's next post. A command that
            // fails leaves it to the next failure, or says what is wrong to the next post.
            let _ = receiver.with(|ring| ring.flush_late());
        }
    }
}

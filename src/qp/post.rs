//! Posting work requests.

use std::mem::ManuallyDrop;

use uverbs_providers::contract::{ExclusiveRecv, ExclusiveSend};
use uverbs_providers::error::{PostCause, PostError, TakeError};
use uverbs_providers::types::QueueId;
use uverbs_providers::wr::{RecvWr, SendWr};

use super::{QueuePair, Rc, Transport};

impl QueuePair<Rc> {
    /// Posts send requests, in order, and tells the device once for all of them.
    ///
    /// Requests without a completion of their own ([`signaled`](SendWr::signaled)) need room as well.
    /// Signal one now and then and poll it: on rxe a slot is free again as soon as its request is
    /// done, on other devices only when a later completion has been polled.
    ///
    /// # Errors
    /// [`PostError`]: how many are in the queue, and why not all.
    #[doc(alias = "ibv_post_send")]
    #[doc(alias = "ibv_wr_start")]
    #[doc(alias = "ibv_wr_complete")]
    pub fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        self.inner.ops.post_send(wrs)
    }

    /// Takes the send queue for use by one owner, without locks. Meanwhile posting through a shared
    /// handle says [`PostCause::InExclusiveUse`].
    ///
    /// # Errors
    /// [`TakeError`] if somebody else has it.
    pub fn exclusive_send(&self) -> Result<ExclusiveSendQueue, TakeError> {
        let queue = self.inner.ops.take_send()?;
        Ok(ExclusiveSendQueue {
            queue: Some(queue),
            qp: self.clone(),
        })
    }
}

impl<T: Transport> QueuePair<T> {
    /// Posts receives, in order. Allowed from INIT on; in ERR they come back flushed. If the queue pair
    /// went to ERR by itself and nothing has told of it, they do so once something does: a failed
    /// completion that is polled, an event, [`state`](Self::state) or [`query`](Self::query).
    ///
    /// # Errors
    /// [`PostError`]: how many are in the queue, and why not all.
    #[doc(alias = "ibv_post_recv")]
    pub fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.inner.ops.post_recv(wrs)
    }

    /// Takes the receive queue for use by one owner, without locks. Meanwhile posting through a
    /// shared handle says [`PostCause::InExclusiveUse`].
    ///
    /// # Errors
    /// [`TakeError`] if somebody else has it, or if it is a shared receive queue.
    pub fn exclusive_recv(&self) -> Result<ExclusiveReceiveQueue<T>, TakeError> {
        let queue = self.inner.ops.take_recv()?;
        Ok(ExclusiveReceiveQueue {
            queue: Some(queue),
            qp: self.clone(),
        })
    }
}

/// What is said where there is no queue any more.
#[cold]
fn gone<T: Transport>(qp: &QueuePair<T>) -> PostError {
    PostError::new(QueueId::QueuePair(qp.qp_num()), 0, PostCause::Destroyed)
}

/// A send queue in the hands of one owner. Dropping it gives the queue back.
#[derive(Debug)]
pub struct ExclusiveSendQueue {
    queue: Option<ExclusiveSend>,
    qp: QueuePair<Rc>,
}

impl ExclusiveSendQueue {
    /// As [`QueuePair::post_send`].
    ///
    /// # Errors
    /// [`PostError`].
    #[inline]
    pub fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        match &mut self.queue {
            Some(queue) => queue.post_send(wrs),
            None => Err(gone(&self.qp)),
        }
    }

    /// Holds the doorbell back: several posts, and the device is told once for all of them.
    ///
    /// One call with many requests does the same with less; this is for requests that come from several
    /// places. It holds for one queue: rxe, whose doorbell is a system call, has one for each.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use uverbs::fake::Fabric;
    /// # let device = Fabric::new().add_device("rxe0");
    /// # let context = device.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let cq = context.create_cq(16).build()?;
    /// # let qp = pd.create_qp::<uverbs::Rc>(&cq, &cq).max_inline_data(16).build()?;
    /// # let local = qp.prepare(&uverbs::PathOptions::default())?;
    /// # qp.connect(&local, &local, &uverbs::ConnectOptions::default())?;
    /// use uverbs::SendWr;
    ///
    /// let mut sends = qp.exclusive_send()?;
    /// let mut held = sends.hold_doorbell();
    /// held.post_send(&[SendWr::send_inline(1, b"header")])?;
    /// held.post_send(&[SendWr::send_inline(2, b"body").signaled()])?;
    /// held.ring()?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_wr_start")]
    pub const fn hold_doorbell(&mut self) -> HeldDoorbell<'_> {
        HeldDoorbell { sends: self }
    }

    /// The shared handle.
    #[must_use]
    pub const fn shared(&self) -> &QueuePair<Rc> {
        &self.qp
    }
}

/// A send queue whose doorbell is held back. It is rung by [`ring`](Self::ring), or, with nobody to
/// hear of a failure, when this is dropped.
#[derive(Debug)]
#[must_use = "dropped at once, it holds nothing back"]
pub struct HeldDoorbell<'q> {
    sends: &'q mut ExclusiveSendQueue,
}

impl HeldDoorbell<'_> {
    /// As [`QueuePair::post_send`], but does not tell the device. The requests are in the queue, and a
    /// device that happens to look there begins with them. A queue that is full of such requests may stay
    /// so until the doorbell is rung.
    ///
    /// # Errors
    /// [`PostError`].
    #[inline]
    pub fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        match &mut self.sends.queue {
            Some(queue) => queue.put_send(wrs),
            None => Err(gone(&self.sends.qp)),
        }
    }

    /// Tells the device of all that was posted, if anything was.
    ///
    /// # Errors
    /// [`PostError`]: why it could not be told, with all of it as `accepted`. It is in the queue, and
    /// is told of by the next post that succeeds. [`PostCause::WrongState`] if the queue pair was moved to
    /// RESET meanwhile, which has dropped it all.
    #[doc(alias = "ibv_wr_complete")]
    pub fn ring(self) -> Result<(), PostError> {
        // A drop would try once more, and nobody would hear that it went well.
        let mut held = ManuallyDrop::new(self);
        match &mut held.sends.queue {
            Some(queue) => queue.ring_owed(),
            None => Ok(()),
        }
    }
}

impl Drop for HeldDoorbell<'_> {
    fn drop(&mut self) {
        if let Some(queue) = &mut self.sends.queue {
            // Nobody is there to hear of it; the next post meets the same and tells.
            let _ = queue.ring_owed();
        }
    }
}

impl Drop for ExclusiveSendQueue {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            self.qp.inner.ops.put_back_send(queue);
        }
    }
}

/// A receive queue in the hands of one owner. Dropping it gives the queue back.
#[derive(Debug)]
pub struct ExclusiveReceiveQueue<T: Transport> {
    queue: Option<ExclusiveRecv>,
    qp: QueuePair<T>,
}

impl<T: Transport> ExclusiveReceiveQueue<T> {
    /// As [`QueuePair::post_recv`].
    ///
    /// # Errors
    /// [`PostError`].
    #[inline]
    pub fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        match &mut self.queue {
            Some(queue) => queue.post_recv(wrs),
            None => Err(gone(&self.qp)),
        }
    }

    /// The shared handle.
    #[must_use]
    pub const fn shared(&self) -> &QueuePair<T> {
        &self.qp
    }
}

impl<T: Transport> Drop for ExclusiveReceiveQueue<T> {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            self.qp.inner.ops.put_back_recv(queue);
        }
    }
}

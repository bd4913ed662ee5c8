//! A ring of receives, as a queue pair and a shared receive queue both have one.
//!
//! Ground truth: the kernel's `rxe_queue.h`; it looks at the ring when a packet arrives, and wants
//! no doorbell.

use super::wqe::{RECV_HEAD, encode_recv};
use crate::error::{PostCause, PostError};
use crate::ring::{Corrupt, Masked, Producer};
use crate::shared::SharedQueue;
use crate::wr::RecvWr;

/// The ring itself.
#[derive(Debug)]
pub(super) struct RecvQueue {
    queue: SharedQueue<RECV_HEAD>,
    producer: Producer<Masked>,
    max_sge: u32,
}

impl RecvQueue {
    pub(super) fn new(queue: SharedQueue<RECV_HEAD>, max_sge: u32) -> Result<Self, Corrupt> {
        let rule = Masked::new(queue.mask()).ok_or(Corrupt)?;
        let producer = Producer::new(rule, queue.producer(), queue.consumer())?;
        Ok(Self {
            queue,
            producer,
            max_sge,
        })
    }

    /// How many requests it holds.
    pub(super) const fn capacity(&self) -> u32 {
        self.queue.mask()
    }

    /// Puts requests in, in order, up to the first that does not go, and publishes them at once.
    #[inline]
    pub(super) fn post(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        let wanted = u32::try_from(wrs.len()).unwrap_or(u32::MAX);
        let free = self
            .producer
            .free(self.queue.consumer(), wanted)
            .map_err(|Corrupt| PostError::new(0, PostCause::CorruptRing))?;
        let mut filled = 0u32;
        let mut fault = None;
        for wr in wrs {
            if filled == free {
                fault = Some(PostCause::QueueFull);
                break;
            }
            let slot = self.queue.slot_mut(self.producer.slot(filled));
            if let Err(cause) = encode_recv(wr, self.max_sge, slot) {
                fault = Some(cause);
                break;
            }
            filled = filled.wrapping_add(1);
        }
        self.producer.publish(self.queue.producer(), filled);
        // `filled <= wrs.len()`.
        fault.map_or(Ok(()), |cause| Err(PostError::new(filled as usize, cause)))
    }
}

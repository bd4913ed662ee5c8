//! A completion event as the program holds it, and acks gathered to be given at once.
//!
//! An ack is owed from the moment of reading and is paid by dropping; there is no way to pay one
//! twice, or for another queue.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use crate::cq::CompletionQueue;
use crate::event::{Ack, Debt, Held, Owing, Sort, Token};
use crate::teardown::Teardown as _;

/// A completion queue that was armed has got a completion since.
///
/// It is acked when it is dropped, on whatever thread that happens, or by [`ack`](Self::ack). Until
/// then a `destroy` of its queue waits. The queue is not armed any more, and how many completions it
/// holds the event does not say: perhaps many, perhaps none, if somebody else polled it meanwhile.
///
/// A forgotten event (`std::mem::forget`) is never acked: a `destroy` of its queue then waits for
/// ever. Nothing worse happens.
#[must_use = "dropping an event acks it"]
pub struct CompletionEvent {
    held: Held<Told>,
}

/// The queue that an event is about.
struct Told {
    cq: CompletionQueue,
    /// Whether the ack is still owed for this handle: not if it was taken over.
    owes: bool,
}

impl Owing for Told {
    #[inline(always)]
    fn debt(&self) -> Option<Debt<'_>> {
        let registration = self.cq.registration();
        self.owes.then(|| registration.debt(Sort::Completion))
    }
}

impl CompletionEvent {
    /// Of an event that has been counted for this queue.
    #[inline(always)]
    pub(super) const fn new(cq: CompletionQueue) -> Self {
        let told = Told { cq, owes: true };
        Self {
            held: Held::new(told),
        }
    }

    /// The queue, alive as long as the event is held.
    #[must_use]
    #[inline]
    pub const fn cq(&self) -> &CompletionQueue {
        &self.held.live().cq
    }

    /// Says that the event has been dealt with: what dropping it does, too.
    #[doc(alias = "ibv_ack_cq_events")]
    pub fn ack(self) {}
}

impl fmt::Debug for CompletionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionEvent")
            .field("cq", self.cq())
            .finish()
    }
}

/// Gathers the acks of many events, to give those of each queue at once.
///
/// An ack writes to memory that whoever reads the queue's events writes to as well; this does so once
/// for many. Events put in
/// are acked by [`flush`](Self::flush), or when this is dropped, each for its own queue. Until then
/// `destroy` of their queues waits (for ever, in the thread that has them here), while the handles
/// themselves are let go of.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let context = uverbs::fake::Fabric::new().add_device("rxe0").open()?;
/// # let channel = context.create_completion_channel()?;
/// let mut acks = uverbs::CompletionAcks::new();
/// while let Some(event) = channel.try_next()? {
///     // … poll event.cq() …
///     acks.add(event);
///     if acks.len() == 1000 {
///         acks.flush();
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
#[doc(alias = "ibv_ack_cq_events")]
pub struct CompletionAcks {
    // A token is never given out twice, so it names one queue for good.
    owed: HashMap<Token, Ack>,
    count: u64,
}

impl CompletionAcks {
    /// No acks yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes an event's ack over, and lets go of its queue.
    pub fn add(&mut self, mut event: CompletionEvent) {
        let token = event.cq().registration().token();
        let told = event.held.live_mut();
        let Some(debt) = told.debt() else { return };
        let ack = debt.take_over();
        told.owes = false;
        self.count += u64::from(ack.count());
        match self.owed.entry(token) {
            Entry::Vacant(free) => {
                free.insert(ack);
            }
            Entry::Occupied(mut gathered) => {
                if let Err(ack) = gathered.get_mut().absorb(ack) {
                    // More than can be counted: what was gathered is paid now.
                    self.count -= u64::from(gathered.insert(ack).count());
                }
            }
        }
    }

    /// How many events are in here and not acked.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.count
    }

    /// Whether nothing is owed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Acks all of them: one step for each queue.
    pub fn flush(&mut self) {
        self.owed.clear();
        self.count = 0;
    }
}

impl Extend<CompletionEvent> for CompletionAcks {
    fn extend<I: IntoIterator<Item = CompletionEvent>>(&mut self, events: I) {
        for event in events {
            self.add(event);
        }
    }
}

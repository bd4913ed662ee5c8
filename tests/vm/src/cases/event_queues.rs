//! Queues of events beside the context's own, and what is attached to an object, on a real kernel;
//! and a process that ends while it owes acks.

use std::time::Duration;

use uverbs::event::EventError;
use uverbs::{
    AccessFlags, AsyncEventKind, AsyncEvents, CompletionQueue, ConnectOptions, Context,
    DestroyErrorCause, MemoryRegion, PageBuf, PathOptions, QpAttr, QpState, QueuePair, Rc, SendWr,
    Subject,
};

use super::pair::{Failure, ensure, open, same};
use super::process::in_child;
use super::provoke::next;
use super::{Case, CaseResult, Verdict};
use crate::guest::net::{link_down, link_up};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "event_queues::events_come_to_their_queue_only",
        to_their_queue_only,
    ),
    Case::new(
        "event_queues::port_events_come_to_all",
        port_events_come_to_all,
    ),
    Case::new(
        "event_queues::dropped_before_its_objects",
        dropped_before_its_objects,
    ),
    Case::new("event_queues::end_with_the_context", end_with_the_context),
    Case::new("event_queues::a_hundred_at_once", a_hundred_at_once),
    Case::new(
        "events::a_process_ends_with_acks_owed",
        a_process_ends_with_acks_owed,
    ),
];

/// A queue pair connected to itself, whose completion queue holds one completion, both with their
/// events on this queue.
struct Overrun {
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
    region: MemoryRegion<PageBuf>,
}

impl Overrun {
    fn new(context: &Context, events: &AsyncEvents) -> Result<Self, Failure> {
        let pd = context.alloc_pd()?;
        let cq = context
            .create_cq(1)
            .events(events)
            .user_data("too small")
            .build()?;
        let qp = pd
            .create_qp::<Rc>(&cq, &cq)
            .events(events)
            .user_data(17u64)
            .build()?;
        let local = qp.prepare(&PathOptions::default())?;
        qp.connect(&local, &local, &ConnectOptions::default())?;
        let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let region = pd.allocate(64, rights)?;
        Ok(Self { qp, cq, region })
    }

    /// Makes so many completions more than the queue holds.
    fn lose(&self, lost: u64) -> Result<(), Failure> {
        let remote = self.region.remote(0)?;
        for wr_id in 0..u64::from(self.cq.depth()) + lost {
            self.qp
                .post_send(&[SendWr::write(wr_id, &[], remote).signaled()])?;
        }
        Ok(())
    }
}

fn to_their_queue_only() -> CaseResult {
    let (context, _pd) = open("rxe0")?;
    let (own, queue) = (context.events(), context.event_queue()?);
    let it = Overrun::new(&context, &queue)?;
    it.lose(2)?;
    for _ in 0..2 {
        let event = next(&queue, AsyncEventKind::CqErr)?;
        ensure(
            matches!(event.subject(), Subject::Cq(found) if *found == it.cq),
            &format!("it is about {}", event.subject()),
        )?;
        same("user data", event.user_data(), Some(&"too small"))?;
    }
    it.qp.modify(&QpAttr::to_state(QpState::Sqd))?;
    let event = next(&queue, AsyncEventKind::SqDrained)?;
    same("user data", event.user_data(), Some(&17u64))?;
    ensure(
        own.try_next()?.is_none(),
        "the context's own queue has some",
    )?;

    // The destroy counts what was read from that queue.
    let error = it.qp.try_destroy().err().ok_or("an event is held")?;
    same(
        "cause",
        error.cause,
        DestroyErrorCause::Outstanding { outstanding: 1 },
    )?;
    let qp = error.into_object().ok_or("it does not come back")?;
    event.ack();
    qp.destroy_timeout(Duration::from_secs(20))?;
    let counts = it.cq.event_counts();
    same(
        "counts",
        (counts.delivered, counts.acked, counts.outstanding),
        (2, 2, 0),
    )?;
    it.cq.destroy_timeout(Duration::from_secs(20))?;
    Ok(Verdict::Passed)
}

fn port_events_come_to_all() -> CaseResult {
    let (context, _pd) = open("rxe0")?;
    let queues = [
        context.events(),
        context.event_queue()?,
        context.event_queue()?,
    ];
    link_down("veth0")?;
    link_up("veth0")?;
    for queue in &queues {
        for kind in [AsyncEventKind::PortErr, AsyncEventKind::PortActive] {
            let event = next(queue, kind)?;
            ensure(
                matches!(event.subject(), Subject::Port(1)),
                &format!("it is about {}", event.subject()),
            )?;
        }
    }
    Ok(Verdict::Passed)
}

fn dropped_before_its_objects() -> CaseResult {
    let (context, _pd) = open("rxe0")?;
    let queue = context.event_queue()?;
    let it = Overrun::new(&context, &queue)?;
    it.lose(3)?;
    let held = next(&queue, AsyncEventKind::CqErr)?;
    drop(queue);
    // Raised into a queue that is gone.
    it.lose(2)?;
    it.qp.destroy_timeout(Duration::from_secs(20))?;
    let error = it.cq.try_destroy().err().ok_or("an event is held")?;
    let cq = error.into_object().ok_or("it does not come back")?;
    held.ack();
    cq.destroy_timeout(Duration::from_secs(20))?;
    ensure(
        context.events().try_next()?.is_none(),
        "another queue has some",
    )?;
    Ok(Verdict::Passed)
}

fn end_with_the_context() -> CaseResult {
    let (context, pd) = open("rxe0")?;
    let (one, two) = (context.event_queue()?, context.event_queue()?);
    let blocked = |events: &AsyncEvents| {
        let events = events.clone();
        std::thread::spawn(move || events.next().err())
    };
    let (first, second) = (blocked(&one), blocked(&two));
    one.stop();
    let ended = first.join().map_err(|_| "the reader panicked")?;
    same("stopped", ended, Some(EventError::Stopped))?;
    ensure(!second.is_finished(), "the other queue's reader ended, too")?;
    drop((context, pd));
    let ended = second.join().map_err(|_| "the reader panicked")?;
    same("closed", ended, Some(EventError::ContextClosed))?;
    Ok(Verdict::Passed)
}

/// Each object's events on a queue of its own.
fn a_hundred_at_once() -> CaseResult {
    const QUEUES: usize = 100;
    let (context, _pd) = open("rxe0")?;
    let mut all = Vec::new();
    for _ in 0..QUEUES {
        let queue = context.event_queue()?;
        let it = Overrun::new(&context, &queue)?;
        all.push((queue, it));
    }
    for (_, it) in all.iter().rev() {
        it.lose(1)?;
    }
    for (queue, it) in &all {
        let event = next(queue, AsyncEventKind::CqErr)?;
        ensure(
            matches!(event.subject(), Subject::Cq(found) if *found == it.cq),
            &format!("it is about {}", event.subject()),
        )?;
        drop(event);
        ensure(queue.try_next()?.is_none(), "one event too many")?;
    }
    ensure(
        context.events().try_next()?.is_none(),
        "the own queue has some",
    )?;
    Ok(Verdict::Passed)
}

fn a_process_ends_with_acks_owed() -> CaseResult {
    in_child(|| {
        let (context, _pd) = open("rxe0")?;
        let events = context.events();
        let it = Overrun::new(&context, &events)?;
        it.lose(2)?;
        let first = next(&events, AsyncEventKind::CqErr)?;
        let second = next(&events, AsyncEventKind::CqErr)?;
        // Never acked, never destroyed: the process ends here.
        std::mem::forget((context, events, it, first, second));
        Ok(())
    })?;
    // What it had open is closed: the device works as before.
    let (context, _pd) = open("rxe0")?;
    let queue = context.event_queue()?;
    Overrun::new(&context, &queue)?.lose(1)?;
    drop(next(&queue, AsyncEventKind::CqErr));
    Ok(Verdict::Passed)
}

//! Asynchronous events, each provoked for real, and the destroy that waits for their acks.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use uverbs::event::EventError;
use uverbs::{
    AsyncEvent, AsyncEventKind, DestroyErrorCause, QpAttr, QpState, RecvWr, SendWr, Subject,
};

use super::pair::{End, Failure, SOON, ensure, open, pair, same};
use super::provoke::{next, overrun, with_shared_receive_queue};
use super::{Case, CaseResult, KernelRange, Verdict};
use crate::guest::net::{add_addr, del_addr, link_down, link_up};

pub(super) const CASES: &[Case] = &[
    Case::new("events::port_err_and_active", port_err_and_active).every_kernel(),
    Case::new("events::gid_change", gid_change).every_kernel(),
    Case::new("events::sq_drained", sq_drained),
    Case::new("events::srq_limit_reached", srq_limit_reached),
    Case::new("events::qp_last_wqe_reached", qp_last_wqe_reached).known_bad(
        KernelRange::before(6, 12),
        "rxe raises QP_LAST_WQE_REACHED only from 6.12 on",
    ),
    Case::new(
        "events::cq_err_once_for_each_lost",
        cq_err_once_for_each_lost,
    ),
    Case::new("events::destroy_waits_for_an_ack", destroy_waits_for_an_ack),
    Case::new("events::try_destroy_refuses", try_destroy_refuses),
    Case::new("events::destroy_timeout_counts", destroy_timeout_counts),
    Case::new("events::drop_never_waits", drop_never_waits),
    Case::new(
        "events::unread_events_do_not_count",
        unread_events_do_not_count,
    ),
    Case::new("events::each_event_to_one_reader", each_event_to_one_reader),
    Case::new("events::event_keeps_its_object", event_keeps_its_object),
    Case::new("events::stop_wakes_readers", stop_wakes_readers),
    Case::new("events::close_ends_readers", close_ends_readers),
    Case::new("events::panic_acks", panic_acks),
];

fn is_port_1(event: &AsyncEvent) -> Result<(), Failure> {
    match event.subject() {
        Subject::Port(1) => Ok(()),
        other => Err(format!("{} on {other}, not on port 1", event.kind()).into()),
    }
}

fn port_err_and_active() -> CaseResult {
    let (context, _pd) = open("rxe0")?;
    let events = context.events();
    for _ in 0..3 {
        link_down("veth0")?;
        is_port_1(&next(&events, AsyncEventKind::PortErr)?)?;
        link_up("veth0")?;
        is_port_1(&next(&events, AsyncEventKind::PortActive)?)?;
    }
    Ok(Verdict::Passed)
}

fn gid_change() -> CaseResult {
    let (context, _pd) = open("rxe0")?;
    let events = context.events();
    let address = std::net::IpAddr::from([10, 0, 0, 78]);
    same("before", context.find_gid(1, address.into())?, None)?;
    add_addr("veth0", address, 24)?;
    is_port_1(&next(&events, AsyncEventKind::GidChange)?)?;
    let entry = context.find_gid(1, address.into())?;
    ensure(entry.is_some(), "the new address has no GID")?;
    del_addr("veth0", address, 24)?;
    is_port_1(&next(&events, AsyncEventKind::GidChange)?)?;
    same("after", context.find_gid(1, address.into())?, None)?;
    Ok(Verdict::Passed)
}

fn sq_drained() -> CaseResult {
    let (a, _b) = pair()?;
    let events = a.context.events();
    a.qp.modify(&QpAttr::to_state(QpState::Sqd))?;
    let event = next(&events, AsyncEventKind::SqDrained)?;
    let Subject::Qp(found) = event.subject() else {
        return Err(format!("it is about {}", event.subject()).into());
    };
    same("queue pair", found.clone(), a.qp.to_any())?;
    same("as RC", found.as_rc(), Some(a.qp.clone()))?;
    let counts = a.qp.event_counts();
    same(
        "counts",
        (counts.delivered, counts.acked, counts.outstanding),
        (1, 0, 1),
    )?;
    event.ack();
    let counts = a.qp.event_counts();
    same(
        "counts",
        (counts.delivered, counts.acked, counts.outstanding),
        (1, 1, 0),
    )?;
    a.qp.try_destroy()?;
    Ok(Verdict::Passed)
}

fn srq_limit_reached() -> CaseResult {
    let (a, b, srq) = with_shared_receive_queue()?;
    let events = b.context.events();
    let (out, room) = (a.region(64, 1)?, b.region(64, 2)?);
    for wr_id in 0..4 {
        srq.post_recv(&[RecvWr::new(wr_id, &[room.slice(..)?])])?;
    }
    srq.set_limit(3)?;
    same("limit", srq.query()?.limit, 3)?;
    for wr_id in 0..3 {
        a.qp.post_send(&[SendWr::send(wr_id, &[out.slice(..)?]).signaled()])?;
        a.completion()?.ok()?;
        b.completion()?.ok()?;
    }
    let event = next(&events, AsyncEventKind::SrqLimitReached)?;
    let Subject::Srq(found) = event.subject() else {
        return Err(format!("it is about {}", event.subject()).into());
    };
    same("shared receive queue", found.clone(), srq.clone())?;
    drop(event);
    // One shot: the limit falls back to 0, and no second event comes.
    same("limit", srq.query()?.limit, 0)?;
    ensure(events.try_next()?.is_none(), "a second event came")?;
    Ok(Verdict::Passed)
}

fn qp_last_wqe_reached() -> CaseResult {
    let (_a, b, _srq) = with_shared_receive_queue()?;
    let events = b.context.events();
    b.qp.modify(&QpAttr::to_state(QpState::Err))?;
    let event = next(&events, AsyncEventKind::QpLastWqeReached)?;
    let Subject::Qp(found) = event.subject() else {
        return Err(format!("it is about {}", event.subject()).into());
    };
    same("queue pair", found.clone(), b.qp.to_any())?;
    Ok(Verdict::Passed)
}

fn cq_err_once_for_each_lost() -> CaseResult {
    let (a, _b) = overrun(3)?;
    let events = a.context.events();
    for _ in 0..3 {
        let event = next(&events, AsyncEventKind::CqErr)?;
        let Subject::Cq(found) = event.subject() else {
            return Err(format!("it is about {}", event.subject()).into());
        };
        same("completion queue", found.clone(), a.cq.clone())?;
    }
    let counts = a.cq.event_counts();
    same(
        "counts",
        (counts.delivered, counts.acked, counts.outstanding),
        (3, 3, 0),
    )?;
    // The kernel counts three as well: a destroy that waits for three acks returns.
    let End { cq, qp, .. } = a;
    qp.try_destroy()?;
    cq.destroy()?;
    Ok(Verdict::Passed)
}

/// Runs `work` on a thread and gives a receiver for its result, so that waiting can be bounded.
pub(super) fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> mpsc::Receiver<T> {
    let (say, hear) = mpsc::channel();
    thread::spawn(move || {
        let _ = say.send(work());
    });
    hear
}

fn destroy_waits_for_an_ack() -> CaseResult {
    let (a, _b) = overrun(2)?;
    let events = a.context.events();
    let first = next(&events, AsyncEventKind::CqErr)?;
    let second = next(&events, AsyncEventKind::CqErr)?;
    let End { cq, qp, .. } = a;
    qp.try_destroy()?;
    let inert = cq.clone();
    let done = on_thread(move || cq.destroy().map_err(|error| error.to_string()));
    ensure(
        done.recv_timeout(Duration::from_millis(300)).is_err(),
        "destroy returned with two events held",
    )?;
    first.ack();
    ensure(
        done.recv_timeout(Duration::from_millis(300)).is_err(),
        "destroy returned with one event held",
    )?;
    // The kernel object is gone all the same, and other handles say so.
    let refused = inert.poll(&mut [uverbs::Wc::default()]).err();
    same("poll", refused, Some(uverbs::PollError::Destroyed))?;
    let again = inert.destroy().err().map(|error| error.cause);
    same("destroy", again, Some(DestroyErrorCause::Destroyed))?;
    // The last ack comes from another thread.
    on_thread(move || drop(second));
    done.recv_timeout(SOON)
        .map_err(|_| "destroy did not return after the last ack")??;
    Ok(Verdict::Passed)
}

fn try_destroy_refuses() -> CaseResult {
    let (a, _b) = overrun(1)?;
    let event = next(&a.context.events(), AsyncEventKind::CqErr)?;
    let End { cq, qp, .. } = a;
    qp.try_destroy()?;
    let error = cq.try_destroy().err().ok_or("it went through")?;
    same(
        "cause",
        error.cause,
        DestroyErrorCause::Outstanding { outstanding: 1 },
    )?;
    let cq = error.into_object().ok_or("the object did not come back")?;
    // It is whole: its one completion is there, and with the ack it can be destroyed.
    same(
        "completions",
        cq.poll(&mut [uverbs::Wc::default(); 4])?.len(),
        1,
    )?;
    event.ack();
    cq.try_destroy()?;
    Ok(Verdict::Passed)
}

fn destroy_timeout_counts() -> CaseResult {
    let (a, _b) = overrun(2)?;
    let events = a.context.events();
    let held = [
        next(&events, AsyncEventKind::CqErr)?,
        next(&events, AsyncEventKind::CqErr)?,
    ];
    let End { cq, qp, .. } = a;
    qp.try_destroy()?;
    let start = Instant::now();
    let error = cq
        .destroy_timeout(Duration::from_millis(200))
        .err()
        .ok_or("it did not say that events are held")?;
    ensure(
        start.elapsed() >= Duration::from_millis(200),
        "it did not wait",
    )?;
    same(
        "cause",
        error.cause,
        DestroyErrorCause::StillHeld { outstanding: 2 },
    )?;
    // A late ack has nowhere to go, and does no harm.
    drop(held);
    Ok(Verdict::Passed)
}

fn drop_never_waits() -> CaseResult {
    let (a, b) = overrun(1)?;
    let event = next(&a.context.events(), AsyncEventKind::CqErr)?;
    let done = on_thread(move || drop((a, b)));
    done.recv_timeout(SOON)
        .map_err(|_| "dropping everything else waits for the ack")?;
    let done = on_thread(move || drop(event));
    done.recv_timeout(SOON)
        .map_err(|_| "dropping the event, and with it the queue, waits")?;
    Ok(Verdict::Passed)
}

fn unread_events_do_not_count() -> CaseResult {
    let (a, _b) = overrun(4)?;
    let events = a.context.events();
    drop(next(&events, AsyncEventKind::CqErr)?);
    // The others are queued in the kernel, unread: a destroy drops them, and waits for nothing.
    let End { cq, qp, .. } = a;
    qp.try_destroy()?;
    let done = on_thread(move || cq.destroy().map_err(|error| error.to_string()));
    done.recv_timeout(SOON)
        .map_err(|_| "destroy waits for events that nobody read")??;
    ensure(
        events.try_next()?.is_none(),
        "an event of a destroyed object was read",
    )?;
    Ok(Verdict::Passed)
}

fn each_event_to_one_reader() -> CaseResult {
    const LOST: u64 = 12;
    let (a, _b) = overrun(LOST)?;
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let events = a.context.events();
            thread::spawn(move || {
                let mut count = 0u64;
                while let Ok(Some(event)) = events.next_timeout(Duration::from_secs(2)) {
                    count += u64::from(event.kind() == AsyncEventKind::CqErr);
                }
                count
            })
        })
        .collect();
    let mut total = 0;
    for reader in readers {
        total += reader.join().map_err(|_| "a reader panicked")?;
    }
    same("events that reached the four", total, LOST)?;
    let End { cq, qp, .. } = a;
    qp.try_destroy()?;
    cq.destroy()?;
    Ok(Verdict::Passed)
}

fn event_keeps_its_object() -> CaseResult {
    let (a, _b) = overrun(1)?;
    let event = next(&a.context.events(), AsyncEventKind::CqErr)?;
    drop(a);
    let Subject::Cq(cq) = event.subject() else {
        return Err(format!("it is about {}", event.subject()).into());
    };
    // Every other handle is gone; the one in the event still works.
    same(
        "completions",
        cq.poll(&mut [uverbs::Wc::default(); 4])?.len(),
        1,
    )?;
    Ok(Verdict::Passed)
}

fn stop_wakes_readers() -> CaseResult {
    let (context, _pd) = open("rxe0")?;
    let events = context.events();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let events = events.clone();
            on_thread(move || events.next().err())
        })
        .collect();
    thread::sleep(Duration::from_millis(100));
    events.stop();
    for reader in waiting {
        let error = reader
            .recv_timeout(SOON)
            .map_err(|_| "a reader was not woken")?;
        same("reader", error, Some(EventError::Stopped))?;
    }
    same(
        "later",
        context.events().next().err(),
        Some(EventError::Stopped),
    )?;
    Ok(Verdict::Passed)
}

fn close_ends_readers() -> CaseResult {
    let (context, pd) = open("rxe0")?;
    let events = context.events();
    let waiting = on_thread({
        let events = events.clone();
        move || events.next().err()
    });
    thread::sleep(Duration::from_millis(100));
    drop((context, pd));
    let error = waiting
        .recv_timeout(SOON)
        .map_err(|_| "the reader was not woken")?;
    same("reader", error, Some(EventError::ContextClosed))?;
    same(
        "later",
        events.try_next().err(),
        Some(EventError::ContextClosed),
    )?;
    Ok(Verdict::Passed)
}

fn panic_acks() -> CaseResult {
    let (a, _b) = overrun(1)?;
    let End {
        cq, qp, context, ..
    } = a;
    let panicked = thread::spawn(move || {
        let event = next(&context.events(), AsyncEventKind::CqErr);
        assert!(event.is_err(), "panics with the event in hand");
    })
    .join();
    ensure(panicked.is_err(), "the event did not come")?;
    qp.try_destroy()?;
    cq.try_destroy()?;
    Ok(Verdict::Passed)
}

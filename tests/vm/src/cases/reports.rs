//! What went wrong with events for others, tried here: who may destroy, who may wait, what a signal
//! or a dying process does.

#![allow(unsafe_code, reason = "a signal handler is what is under test")]

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::unistd::Pid;
use uverbs::abi::layout::event as raw;
use uverbs::event::EventError;
use uverbs::{
    AsyncEvent, AsyncEventKind, AsyncEvents, ConnectOptions, PathOptions, QpAttr, QpState, RecvWr,
    RemoteAddr, Rkey, SendWr, Subject, WcStatus,
};

use super::events::on_thread;
use super::pair::{Failure, SOON, Shape, connect, ensure, open, pair, same, wait_for};
use super::process::in_child;
use super::provoke::{next, overrun};
use super::{Case, CaseResult, Verdict};
use crate::guest::injector::{Target, inject};
use crate::guest::net::{add_addr, del_addr};
use crate::guest::resources::kernel_objects;
use crate::guest::{full, kernel_version};

pub(super) const CASES: &[Case] = &[
    // A process of its own first: it forks, and so must have no other threads.
    Case::new("reports::exit_needs_no_ack", exit_needs_no_ack),
    Case::new(
        "reports::an_event_can_be_handled_elsewhere",
        an_event_can_be_handled_elsewhere,
    )
    .with_modules(),
    Case::new(
        "reports::event_and_completions_end_a_queue_pair_once",
        event_and_completions_end_a_queue_pair_once,
    )
    .with_modules()
    .limit_secs(900)
    .limit_in_full_secs(7200),
    Case::new(
        "reports::events_during_teardown_hold_nothing_up",
        events_during_teardown_hold_nothing_up,
    )
    .with_modules(),
    Case::new(
        "reports::a_wrong_rkey_harms_no_teardown",
        a_wrong_rkey_harms_no_teardown,
    ),
    Case::new(
        "reports::a_reader_can_be_stopped_each_time",
        a_reader_can_be_stopped_each_time,
    )
    .limit_secs(300)
    .limit_in_full_secs(3600),
    Case::new(
        "reports::readiness_without_an_event_is_none",
        readiness_without_an_event_is_none,
    )
    .with_modules(),
    Case::new(
        "reports::one_edge_is_drained_whole",
        one_edge_is_drained_whole,
    )
    .with_modules(),
    Case::new(
        "reports::four_readers_see_what_one_sees",
        four_readers_see_what_one_sees,
    )
    .with_modules(),
    Case::new(
        "reports::gid_change_is_a_reason_to_look",
        gid_change_is_a_reason_to_look,
    ),
    Case::new("reports::signals_lose_no_event", signals_lose_no_event)
        .with_modules()
        .limit_secs(300),
];

/// A child ends with an event in its hands; the kernel clears up, and nobody waits.
fn exit_needs_no_ack() -> CaseResult {
    let before = kernel_objects("rxe0")?;
    in_child(|| {
        let (a, _b) = overrun(1)?;
        let event = next(&a.context.events(), AsyncEventKind::CqErr)?;
        std::mem::forget((a, event));
        Ok(())
    })?;
    wait_for("the child's objects going", || {
        Ok((kernel_objects("rxe0")? == before).then_some(()))
    })?;
    Ok(Verdict::Passed)
}

/// One thread reads, one handles later, one destroys meanwhile: the destroy waits for the handling,
/// and nothing of the object comes after it.
fn an_event_can_be_handled_elsewhere() -> CaseResult {
    let end = Shape::default().prepare(&open("rxe0")?.1)?;
    let events = end.context.events();
    let number = end.qp.qp_num();
    inject("rxe0", Target::Qp(number.0), raw::IB_EVENT_QP_FATAL, 2)?;
    let (send, work) = mpsc::channel::<AsyncEvent>();
    let handled = Arc::new(AtomicBool::new(false));
    let worker = on_thread({
        let handled = Arc::clone(&handled);
        move || {
            let event = work.recv().map_err(|error| error.to_string())?;
            thread::sleep(Duration::from_millis(500));
            // The object is still there to be asked, although its kernel half is gone.
            let Subject::Qp(qp) = event.subject() else {
                return Err(format!("it is about {}", event.subject()));
            };
            let found = qp.qp_num();
            handled.store(true, Ordering::SeqCst);
            event.ack();
            Ok(found)
        }
    });
    send.send(next(&events, AsyncEventKind::QpFatal)?)?;
    // The second event is queued, unread.
    end.qp.destroy().map_err(|error| error.cause)?;
    ensure(
        handled.load(Ordering::SeqCst),
        "the destroy returned before the event was handled",
    )?;
    same("queue pair", worker.recv_timeout(SOON)??, number)?;
    while let Some(event) = events.try_next()? {
        ensure(
            event.kind() != AsyncEventKind::QpFatal,
            "an event of the destroyed queue pair came",
        )?;
    }
    Ok(Verdict::Passed)
}

/// A teardown that waits for two signs, on two threads: whichever is last destroys, and once.
fn event_and_completions_end_a_queue_pair_once() -> CaseResult {
    const RECEIVES: usize = 64;
    let rounds = if full() { 5_000 } else { 50 };
    let (context, pd) = open("rxe0")?;
    let events = context.events();
    let before = kernel_objects("rxe0")?;
    for _ in 0..rounds {
        let shape = Shape {
            recv: 64,
            ..Shape::default()
        };
        let end = shape.prepare(&pd)?;
        for wr_id in 0..RECEIVES {
            end.qp.post_recv(&[RecvWr::new(wr_id.try_into()?, &[])])?;
        }
        let number = end.qp.qp_num().0;
        end.qp.modify(&QpAttr::to_state(QpState::Err))?;
        let (cq, seen_by_poller, seen_by_reader) = (end.cq, end.qp.clone(), end.qp);
        let polling = on_thread(move || {
            let deadline = Instant::now() + SOON;
            let mut flushed = 0;
            while flushed < RECEIVES && Instant::now() < deadline {
                let mut room = [uverbs::Wc::default(); 16];
                flushed += cq.poll(&mut room).map_or(0, |found| found.len());
                thread::yield_now();
            }
            drop((seen_by_poller, cq));
            flushed
        });
        let reading = on_thread({
            let events = events.clone();
            move || {
                let event = next(&events, AsyncEventKind::QpLastWqeReached);
                drop(seen_by_reader);
                event.map(drop).map_err(|error| error.to_string())
            }
        });
        // The handles are with the two threads; the kernel is told by number.
        inject(
            "rxe0",
            Target::Qp(number),
            raw::IB_EVENT_QP_LAST_WQE_REACHED,
            1,
        )?;
        reading.recv_timeout(SOON)??;
        same(
            "receives flushed",
            polling.recv_timeout(2 * SOON)?,
            RECEIVES,
        )?;
    }
    wait_for("everything being destroyed", || {
        Ok((kernel_objects("rxe0")? == before).then_some(()))
    })?;
    Ok(Verdict::Passed)
}

/// Events of queue pairs that are being torn down are acked and nothing waits for them.
fn events_during_teardown_hold_nothing_up() -> CaseResult {
    let (context, pd) = open("rxe0")?;
    let cq = context.create_cq(256).build()?;
    let srq = pd.create_srq(16).build()?;
    let mut queue_pairs = Vec::new();
    for _ in 0..32 {
        queue_pairs.push(pd.create_qp::<uverbs::Rc>(&cq, &cq).srq(&srq).build()?);
    }
    let numbers: Vec<u32> = queue_pairs.iter().map(|qp| qp.qp_num().0).collect();
    let events = context.events();
    let stopper = events.clone();
    let reader = on_thread(move || {
        let mut count = 0;
        loop {
            match events.next() {
                Ok(event) => count += u32::from(event.kind() == AsyncEventKind::QpLastWqeReached),
                Err(end) => return (count, end),
            }
        }
    });
    let raised = on_thread(move || {
        let mut raised = 0;
        for number in numbers {
            let kind = raw::IB_EVENT_QP_LAST_WQE_REACHED;
            raised += u32::from(inject("rxe0", Target::Qp(number), kind, 1).is_ok());
        }
        raised
    });
    for qp in queue_pairs {
        drop(qp);
    }
    srq.destroy().map_err(|error| error.cause)?;
    cq.destroy().map_err(|error| error.cause)?;
    let raised = raised.recv_timeout(SOON)?;
    stopper.stop();
    let (count, end) = reader.recv_timeout(SOON)?;
    same("the reader's end", end, EventError::Stopped)?;
    ensure(count <= raised && raised <= 32, "events out of nothing")?;
    Ok(Verdict::Passed)
}

/// A peer writes with a key that is none. Whether the responder is told depends on the kernel; its
/// teardown does not, whether it looks or not.
fn a_wrong_rkey_harms_no_teardown() -> CaseResult {
    let told = kernel_version()? >= (7, 3);
    for looks in [true, false] {
        let (a, b) = pair()?;
        let region = b.region(64, 0)?;
        let good = region.remote(0)?;
        let bad = RemoteAddr {
            rkey: Rkey(good.rkey.0 ^ 1),
            ..good
        };
        a.qp.post_send(&[SendWr::write_inline(1, b"bad", bad).signaled()])?;
        a.expect("the requester", 1, WcStatus::RemoteAccessError)?;
        let mut held = None;
        if looks && told {
            let event = next(&b.context.events(), AsyncEventKind::QpAccessErr)?;
            ensure(
                matches!(event.subject(), Subject::Qp(qp) if *qp == b.qp.to_any()),
                &format!("it is about {}", event.subject()),
            )?;
            same("events held", b.qp.event_counts().outstanding, 1)?;
            held = Some(event);
        } else if looks {
            let event = b
                .context
                .events()
                .next_timeout(Duration::from_millis(200))?;
            ensure(event.is_none(), &format!("there is {event:?}"))?;
        }
        let done = on_thread(move || drop((a, b)));
        done.recv_timeout(SOON)
            .map_err(|_| "the teardown waits for the event")?;
        drop(held);
    }
    Ok(Verdict::Passed)
}

/// Nothing happens on the device, and yet the reader ends when it is told to.
fn a_reader_can_be_stopped_each_time() -> CaseResult {
    let rounds = if full() { 1_000 } else { 50 };
    for _ in 0..rounds {
        let (context, pd) = open("rxe0")?;
        let events = context.events();
        let reader = on_thread({
            let events = events.clone();
            move || loop {
                if let Err(end) = events.next() {
                    return end;
                }
            }
        });
        events.stop();
        drop((context, pd));
        same(
            "the reader's end",
            reader.recv_timeout(SOON)?,
            EventError::Stopped,
        )?;
    }
    Ok(Verdict::Passed)
}

/// Waits until the reader's file is readable, without reading.
fn readable(events: &AsyncEvents) -> Result<(), Failure> {
    let mut fds = [PollFd::new(events.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(SOON.as_millis())?;
    ensure(poll(&mut fds, timeout)? == 1, "nothing came")
}

/// Two threads see the file readable; there is one event. The other is told that there is none, and
/// does not block.
fn readiness_without_an_event_is_none() -> CaseResult {
    let (context, _pd) = open("rxe0")?;
    let both_saw_it = Arc::new(Barrier::new(2));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (events, both_saw_it) = (context.events(), Arc::clone(&both_saw_it));
            on_thread(move || -> Result<bool, Failure> {
                let seen = readable(&events);
                both_saw_it.wait();
                seen?;
                let event = events.try_next()?;
                ensure(
                    event
                        .as_ref()
                        .is_none_or(|event| event.kind() == AsyncEventKind::SmChange),
                    "another event came",
                )?;
                Ok(event.is_some())
            })
        })
        .collect();
    inject("rxe0", Target::Port(1), raw::IB_EVENT_SM_CHANGE, 1)?;
    let mut got = 0;
    for reader in readers {
        got += u32::from(reader.recv_timeout(SOON)??);
    }
    same("readers that were given the event", got, 1)?;
    Ok(Verdict::Passed)
}

/// Edge-triggered: one wake-up, five events, and all of them are there for a loop that ends with
/// `None`. The file's flags stay what they were.
fn one_edge_is_drained_whole() -> CaseResult {
    let (context, _pd) = open("rxe0")?;
    let events = context.events();
    while events.try_next()?.is_some() {}
    let flags = fcntl(events.as_fd(), FcntlArg::F_GETFL)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(
        &events,
        EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0),
    )?;
    let mut room = [EpollEvent::empty(); 4];
    for _ in 0..3 {
        inject("rxe0", Target::Port(1), raw::IB_EVENT_SM_CHANGE, 5)?;
        let mut count = 0;
        let deadline = Instant::now() + SOON;
        // The five go through a work queue of the kernel's: more than one edge may be seen.
        while count < 5 && Instant::now() < deadline {
            epoll.wait(&mut room, EpollTimeout::try_from(1_000_u32)?)?;
            while let Some(event) = events.try_next()? {
                count += u32::from(event.kind() == AsyncEventKind::SmChange);
            }
        }
        same("events after the wake-ups", count, 5)?;
        let none = epoll.wait(&mut room, EpollTimeout::ZERO)?;
        same("wake-ups with nothing left", none, 0)?;
    }
    same("flags", fcntl(events.as_fd(), FcntlArg::F_GETFL)?, flags)?;
    Ok(Verdict::Passed)
}

/// Reads until nothing has come for a while; gives back how many there were of port 1.
fn count_until_quiet(events: &AsyncEvents) -> Result<u32, Failure> {
    let mut count = 0;
    while let Some(event) = events.next_timeout(Duration::from_secs(2))? {
        if event.kind() == AsyncEventKind::LidChange {
            ensure(
                matches!(event.subject(), Subject::Port(1)),
                &format!("an event of {}", event.subject()),
            )?;
            count += 1;
        }
    }
    Ok(count)
}

/// Four readers of one context against one reader of another.
fn four_readers_see_what_one_sees() -> CaseResult {
    let (shared, _pd) = open("rxe0")?;
    let (control, _pd) = open("rxe0")?;
    let read = |events: AsyncEvents| on_thread(move || count_until_quiet(&events));
    let four: Vec<_> = (0..4).map(|_| read(shared.events())).collect();
    let one = read(control.events());
    for _ in 0..50 {
        inject("rxe0", Target::Port(1), raw::IB_EVENT_LID_CHANGE, 2)?;
    }
    let mut sum = 0;
    for reader in four {
        sum += reader.recv_timeout(2 * SOON)??;
    }
    same("the one reader", one.recv_timeout(2 * SOON)??, 100)?;
    same("the four together", sum, 100)?;
    Ok(Verdict::Passed)
}

/// An address more is no reason to give a connection up; the own one less is, and a look tells which.
fn gid_change_is_a_reason_to_look() -> CaseResult {
    let own = std::net::IpAddr::from([10, 0, 0, 1]);
    let shape = Shape {
        path: PathOptions {
            gid: Some(own.into()),
            ..PathOptions::default()
        },
        ..Shape::default()
    };
    let a = shape.prepare(&open("rxe0")?.1)?;
    let b = Shape {
        path: PathOptions {
            gid: Some(std::net::IpAddr::from([10, 0, 0, 2]).into()),
            ..PathOptions::default()
        },
        ..Shape::default()
    }
    .prepare(&open("rxe1")?.1)?;
    connect(&a, &b, &ConnectOptions::default())?;
    let events = a.context.events();
    let before = a.context.find_gid(1, own.into())?.ok_or("no GID")?;
    let more = "fd00::77".parse()?;
    add_addr("veth0", more, 64)?;
    drop(next(&events, AsyncEventKind::GidChange)?);
    let after = a.context.find_gid(1, own.into())?.ok_or("no GID")?;
    same("the entry", after.index, before.index)?;
    let (out, room) = (a.region(64, 1)?, b.region(64, 2)?);
    b.qp.post_recv(&[RecvWr::new(1, &[room.slice(..)?])])?;
    a.qp.post_send(&[SendWr::send(2, &[out.slice(..)?]).signaled()])?;
    a.completion()?.ok()?;
    b.completion()?.ok()?;
    del_addr("veth0", more, 64)?;
    drop(next(&events, AsyncEventKind::GidChange)?);
    del_addr("veth0", own, 24)?;
    drop(next(&events, AsyncEventKind::GidChange)?);
    same("the own entry", a.context.find_gid(1, own.into())?, None)?;
    Ok(Verdict::Passed)
}

extern "C" fn interrupt(_: i32) {}

/// A signal each millisecond, with a handler that restarts nothing.
fn signals_lose_no_event() -> CaseResult {
    const EVENTS: u32 = 5_000;
    let action = SigAction::new(
        SigHandler::Handler(interrupt),
        SaFlags::empty(),
        SigSet::empty(),
    );
    // SAFETY: the handler does nothing, so it calls nothing that a handler may not.
    unsafe { sigaction(Signal::SIGUSR1, &action) }?;
    let end = Shape::default().prepare(&open("rxe0")?.1)?;
    let events = end.context.events();
    let target = Target::Qp(end.qp.qp_num().0);
    inject("rxe0", target, raw::IB_EVENT_COMM_EST, 1)?;
    drop(next(&events, AsyncEventKind::CommEst)?);
    let stop = Arc::new(AtomicBool::new(false));
    let signals = on_thread({
        let stop = Arc::clone(&stop);
        move || {
            let mut sent = 0_u32;
            while !stop.load(Ordering::SeqCst) {
                sent += u32::from(kill(Pid::this(), Signal::SIGUSR1).is_ok());
                thread::sleep(Duration::from_millis(1));
            }
            sent
        }
    });
    let reader = on_thread({
        let events = events.clone();
        move || -> Result<u32, Failure> {
            let mut count = 0;
            while count < EVENTS {
                let event = events
                    .next_timeout(SOON)?
                    .ok_or_else(|| format!("only {count} came"))?;
                count += u32::from(event.kind() == AsyncEventKind::CommEst);
            }
            Ok(count)
        }
    });
    for _ in 0..EVENTS / 10 {
        inject("rxe0", target, raw::IB_EVENT_COMM_EST, 10)?;
    }
    same("events", reader.recv_timeout(5 * SOON)??, EVENTS)?;
    stop.store(true, Ordering::SeqCst);
    ensure(signals.recv_timeout(SOON)? > 0, "no signal was sent")?;
    while let Some(event) = events.try_next()? {
        ensure(event.kind() != AsyncEventKind::CommEst, "one came twice")?;
    }
    let counts = end.qp.event_counts();
    same(
        "counts",
        (counts.delivered, counts.acked),
        (EVENTS + 1, EVENTS + 1),
    )?;
    // The kernel's count is the same, or this would refuse or wait.
    end.qp.try_destroy().map_err(|error| error.cause)?;
    Ok(Verdict::Passed)
}

//! Completion channels: which completion is told, to whom, and what waits for the ack.
//!
//! On 6.1 rxe tells from a tasklet, so an event may come a moment after its completion can be polled.

use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs::event::EventError;
use uverbs::{
    Arm, CompletionAcks, CompletionChannel, CompletionEvent, ConnectOptions, DestroyErrorCause,
    PollError, QpAttr, QpState, RecvWr, SendWr, WaitError, Wc, WcStatus,
};

use super::pair::{End, Failure, SOON, Shape, connect, ensure, open, same};
use super::{Case, CaseResult, KernelRange, Verdict};
use crate::guest::{kernel_version, rdma};

pub(super) const CASES: &[Case] = &[
    Case::new("channel::unarmed_says_nothing", unarmed),
    Case::new("channel::next_is_told_once", next),
    Case::new("channel::arming_twice_is_arming_once", arming_twice),
    Case::new("channel::solicited_is_what_the_sender_marked", solicited),
    Case::new("channel::any_after_solicited_takes_the_rest_in", any_after),
    Case::new("channel::a_flushed_receive_is_solicited", flushed_receive).known_bad(
        KernelRange::since(6, 4),
        "rxe does not count a flushed receive as solicited",
    ),
    Case::new("channel::a_failed_send_is_solicited", failed_send).known_bad(
        KernelRange::ALL,
        "rxe does not count the failure of a send as solicited",
    ),
    Case::new("channel::each_ack_to_its_own_queue", own_queue),
    Case::new("channel::acks_gathered", gathered),
    Case::new("channel::non_blocking_for_two_readers", non_blocking),
    Case::new("channel::destroy_waits_for_acks", destroy_gate),
    Case::new("channel::unread_events_do_not_count", unread),
    Case::new("channel::stop_and_close_end_those_who_wait", stop_and_close),
    Case::new("channel::removal_ends_those_who_wait", removal).fresh_boot(),
    Case::new("channel::traffic_asleep", traffic),
    Case::new("channel::a_burst_larger_than_the_room", burst),
    Case::new("channel::polled_elsewhere", polled_elsewhere),
];

/// Long enough for an event that is not to come.
const A_WHILE: Duration = Duration::from_millis(300);

/// `rxe0` and `rxe1`, connected, each with its completion queue on a channel of its own.
fn pair() -> Result<(End, End), Failure> {
    let a = end(&open("rxe0")?)?;
    let b = end(&open("rxe1")?)?;
    connect(&a, &b, &ConnectOptions::default())?;
    Ok((a, b))
}

fn end((context, pd): &(uverbs::Context, uverbs::ProtectionDomain)) -> Result<End, Failure> {
    let shape = Shape {
        channel: Some(context.create_completion_channel()?),
        ..Shape::default()
    };
    shape.prepare(pd)
}

fn channel(end: &End) -> Result<CompletionChannel, Failure> {
    end.cq.channel().ok_or_else(|| "no channel".into())
}

fn event(end: &End) -> Result<CompletionEvent, Failure> {
    let event = channel(end)?.next_timeout(SOON)?;
    let event = event.ok_or("no event came")?;
    ensure(*event.cq() == end.cq, "an event of another queue")?;
    Ok(event)
}

fn none(end: &End, what: &str) -> Result<(), Failure> {
    match channel(end)?.next_timeout(A_WHILE)? {
        None => Ok(()),
        Some(event) => Err(format!("{what}: {event:?} came").into()),
    }
}

/// `a` sends an empty message; both completions are polled.
fn message(a: &End, b: &End, wr: SendWr<'_>) -> Result<(), Failure> {
    b.qp.post_recv(&[RecvWr::new(2, &[])])?;
    a.qp.post_send(&[wr.signaled()])?;
    a.completion()?.ok()?;
    b.completion()?.ok()?;
    Ok(())
}

fn plain() -> SendWr<'static> {
    SendWr::send_inline(1, &[])
}

fn unarmed() -> CaseResult {
    let (a, b) = pair()?;
    message(&a, &b, plain().solicited())?;
    none(&b, "not armed")?;
    // What is there before the arming raises nothing either.
    b.qp.post_recv(&[RecvWr::new(2, &[])])?;
    a.qp.post_send(&[plain().signaled()])?;
    a.completion()?.ok()?;
    thread::sleep(Duration::from_millis(50));
    b.cq.arm(Arm::Next)?;
    none(&b, "armed after the completion")?;
    b.completion()?.ok()?;
    message(&a, &b, plain())?;
    event(&b)?.ack();
    Ok(Verdict::Passed)
}

fn next() -> CaseResult {
    let (a, b) = pair()?;
    for _ in 0..20 {
        a.cq.arm(Arm::Next)?;
        b.cq.arm(Arm::Next)?;
        message(&a, &b, plain())?;
        message(&a, &b, plain())?;
        event(&a)?.ack();
        event(&b)?.ack();
    }
    none(&a, "told twice")?;
    none(&b, "told twice")?;
    for end in [&a, &b] {
        let counts = end.cq.completion_event_counts();
        same("counts", (counts.delivered, counts.acked), (20, 20))?;
    }
    a.qp.destroy()?;
    a.cq.destroy()?;
    Ok(Verdict::Passed)
}

fn arming_twice() -> CaseResult {
    let (a, b) = pair()?;
    b.qp.post_recv(&[RecvWr::new(2, &[]), RecvWr::new(3, &[])])?;
    a.qp.post_send(&[plain().signaled()])?;
    a.completion()?.ok()?;
    for _ in 0..1000 {
        b.cq.arm(Arm::Next)?;
    }
    // Arming moved no index: what was there is there, once.
    same("receive", b.completion()?.wr_id, 2)?;
    b.expect_none("after the first")?;
    a.qp.post_send(&[plain().signaled()])?;
    event(&b)?.ack();
    none(&b, "armed once")?;
    same("receive", b.completion()?.wr_id, 3)?;
    Ok(Verdict::Passed)
}

fn solicited() -> CaseResult {
    let (a, b) = pair()?;
    a.cq.arm(Arm::Solicited)?;
    b.cq.arm(Arm::Solicited)?;
    message(&a, &b, plain())?;
    none(&b, "an unmarked message")?;
    message(&a, &b, plain().solicited())?;
    event(&b)?.ack();
    none(&b, "disarmed by then")?;
    none(&a, "the sender's own completion")?;
    // A write is marked only if it takes a receive.
    b.cq.arm(Arm::Solicited)?;
    let target = b.region(64, 0)?;
    let remote = target.remote(0)?;
    message(
        &a,
        &b,
        SendWr::write_inline(1, b"x", remote)
            .with_imm(7)
            .solicited(),
    )?;
    event(&b)?.ack();
    Ok(Verdict::Passed)
}

fn any_after() -> CaseResult {
    let (a, b) = pair()?;
    b.cq.arm(Arm::Solicited)?;
    b.cq.arm(Arm::Next)?;
    message(&a, &b, plain())?;
    event(&b)?.ack();
    b.cq.arm(Arm::Next)?;
    b.cq.arm(Arm::Solicited)?;
    message(&a, &b, plain())?;
    event(&b)?.ack();
    none(&b, "disarmed by then")?;
    Ok(Verdict::Passed)
}

fn flushed_receive() -> CaseResult {
    let (_a, b) = pair()?;
    b.qp.post_recv(&[RecvWr::new(2, &[])])?;
    b.cq.arm(Arm::Solicited)?;
    b.qp.modify(&QpAttr::to_state(QpState::Err))?;
    b.expect("flushed", 2, WcStatus::WrFlushed)?;
    event(&b)?.ack();
    Ok(Verdict::Passed)
}

fn failed_send() -> CaseResult {
    let (a, b) = pair()?;
    let target = b.region(64, 0)?;
    let remote = target.remote(0)?;
    drop(target);
    a.cq.arm(Arm::Solicited)?;
    a.qp.post_send(&[SendWr::write_inline(1, b"x", remote).signaled()])?;
    let status = a.completion()?.status;
    ensure(status != WcStatus::Success, "the write was done")?;
    event(&a)?.ack();
    Ok(Verdict::Passed)
}

/// Eight queues on one channel, each with a queue pair of its own.
fn eight() -> Result<(CompletionChannel, Vec<(End, End)>), Failure> {
    let (near, far) = (open("rxe0")?, open("rxe1")?);
    let channel = near.0.create_completion_channel()?;
    let shape = Shape {
        channel: Some(channel.clone()),
        ..Shape::default()
    };
    let mut ends = Vec::new();
    for _ in 0..8 {
        let (a, b) = (shape.prepare(&near.1)?, Shape::default().prepare(&far.1)?);
        connect(&a, &b, &ConnectOptions::default())?;
        a.cq.arm(Arm::Next)?;
        message(&a, &b, plain())?;
        ends.push((a, b));
    }
    Ok((channel, ends))
}

fn events(channel: &CompletionChannel, count: usize) -> Result<Vec<CompletionEvent>, Failure> {
    let mut events = Vec::new();
    while events.len() < count {
        let event = channel.next_timeout(SOON)?;
        events.push(event.ok_or_else(|| format!("only {} events", events.len()))?);
    }
    Ok(events)
}

fn own_queue() -> CaseResult {
    let (channel, ends) = eight()?;
    let mut events = events(&channel, ends.len())?;
    for (a, _) in &ends {
        let of = events.iter().filter(|event| *event.cq() == a.cq).count();
        same("events of one queue", of, 1)?;
    }
    let kept = events.remove(2);
    drop(events);
    let of = kept.cq().clone();
    for (End { cq, qp, .. }, _) in ends {
        qp.destroy()?;
        if cq == of {
            let error = cq.destroy_timeout(A_WHILE).err().ok_or("did not wait")?;
            let held = DestroyErrorCause::StillHeld { outstanding: 1 };
            same("the one that is held", error.cause, held)?;
        } else {
            cq.destroy()?;
        }
    }
    Ok(Verdict::Passed)
}

fn gathered() -> CaseResult {
    let (channel, ends) = eight()?;
    let mut acks = CompletionAcks::new();
    acks.extend(events(&channel, ends.len())?);
    for _ in 0..50 {
        let (a, b) = &ends[0];
        a.cq.arm(Arm::Next)?;
        message(a, b, plain())?;
        acks.extend(events(&channel, 1)?);
    }
    same("gathered", acks.len(), 58)?;
    let counts = ends[0].0.cq.completion_event_counts();
    same("outstanding", counts.outstanding, 51)?;
    acks.flush();
    for (End { cq, qp, .. }, _) in ends {
        qp.destroy()?;
        cq.try_destroy()?;
    }
    Ok(Verdict::Passed)
}

fn is_readable(channel: &CompletionChannel, timeout: Duration) -> Result<bool, Failure> {
    let mut fds = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut fds, PollTimeout::try_from(timeout)?)? == 1)
}

fn non_blocking() -> CaseResult {
    let (a, b) = pair()?;
    let channel = channel(&b)?;
    ensure(channel.try_next()?.is_none(), "an event out of nowhere")?;
    ensure(
        !is_readable(&channel, Duration::ZERO)?,
        "readable without an event",
    )?;
    b.cq.arm(Arm::Next)?;
    message(&a, &b, plain())?;
    ensure(is_readable(&channel, SOON)?, "not readable")?;
    // Both have seen it readable; one gets it, the other is not stuck.
    let got: Vec<_> = thread::scope(|scope| {
        let one = || channel.try_next().map(|event| event.is_some());
        let (first, second) = (scope.spawn(one), scope.spawn(one));
        [first, second]
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect()
    });
    let got: Vec<bool> = got
        .into_iter()
        .map(|outcome| {
            outcome
                .map_err(|_| "a reader panicked")?
                .map_err(Failure::from)
        })
        .collect::<Result<_, Failure>>()?;
    same("events", got.iter().filter(|got| **got).count(), 1)?;
    ensure(
        !is_readable(&channel, Duration::ZERO)?,
        "readable after the event",
    )?;
    Ok(Verdict::Passed)
}

fn destroy_gate() -> CaseResult {
    let (a, b) = pair()?;
    b.cq.arm(Arm::Next)?;
    message(&a, &b, plain())?;
    let held = event(&b)?;
    let End { cq, qp, .. } = b;
    qp.destroy()?;
    let refused = cq.clone().try_destroy().err().ok_or("not refused")?;
    let outstanding = DestroyErrorCause::Outstanding { outstanding: 1 };
    same("try_destroy", refused.cause, outstanding)?;
    thread::scope(|scope| {
        let destroying = scope.spawn(|| cq.destroy().map_err(|error| error.to_string()));
        thread::sleep(A_WHILE);
        ensure(!destroying.is_finished(), "destroyed with an event held")?;
        held.ack();
        Ok(destroying.join().map_err(|_| "it panicked")??)
    })
    .map(|()| Verdict::Passed)
}

fn unread() -> CaseResult {
    let (a, b) = pair()?;
    b.cq.arm(Arm::Next)?;
    message(&a, &b, plain())?;
    let channel = channel(&b)?;
    ensure(is_readable(&channel, SOON)?, "not readable")?;
    let End {
        cq, qp, context, ..
    } = b;
    qp.destroy()?;
    cq.destroy()?;
    ensure(
        !is_readable(&channel, Duration::ZERO)?,
        "readable after the destroy",
    )?;
    ensure(
        channel.try_next()?.is_none(),
        "an event of a queue that is gone",
    )?;
    same("passed over", channel.passed_over(), 0)?;
    drop(context);
    Ok(Verdict::Passed)
}

/// How a wait ended.
fn ended(
    channel: &CompletionChannel,
    end: impl FnOnce() -> Result<(), Failure>,
) -> Result<EventError, Failure> {
    thread::scope(|scope| {
        let waiting = scope.spawn(|| channel.next().map(drop));
        thread::sleep(A_WHILE);
        ensure(!waiting.is_finished(), "it did not wait")?;
        let began = Instant::now();
        end()?;
        let outcome = waiting.join().map_err(|_| "it panicked")?;
        ensure(began.elapsed() < SOON, "it was not woken")?;
        outcome
            .err()
            .ok_or_else(|| "an event out of nowhere".into())
    })
}

fn stop_and_close() -> CaseResult {
    let (a, b) = pair()?;
    let (one, other) = (channel(&a)?, channel(&b)?);
    let stopped = ended(&one, || {
        one.clone().stop();
        Ok(())
    })?;
    same("stopped", stopped, EventError::Stopped)?;
    let closed = ended(&other, || {
        drop((a, b));
        Ok(())
    })?;
    same("closed", closed, EventError::ContextClosed)?;
    // Without our own word for it, the kernel's.
    same(
        "again",
        other.try_next().err(),
        Some(EventError::ContextClosed),
    )?;
    Ok(Verdict::Passed)
}

fn removal() -> CaseResult {
    if kernel_version()? < (7, 0) {
        return Ok(Verdict::Ignored(
            "this kernel does not let rxe go while it is open".to_owned(),
        ));
    }
    let (a, b) = pair()?;
    b.cq.arm(Arm::Next)?;
    message(&a, &b, plain())?;
    let held = event(&b)?;
    // Unread, it goes with the device.
    b.cq.arm(Arm::Next)?;
    b.qp.post_recv(&[RecvWr::new(2, &[])])?;
    let channel = channel(&b)?;
    let gone = ended(&channel, || Ok(rdma::link_delete("rxe1")?))?;
    same("removed", gone, EventError::DeviceGone)?;
    for _ in 0..3 {
        same(
            "sticky",
            channel.try_next().err(),
            Some(EventError::DeviceGone),
        )?;
    }
    ensure(b.context.is_gone(), "the context does not know")?;
    let mut room = [Wc::default()];
    let waited = loop {
        match b.cq.wait(&mut room) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    let is_gone = matches!(waited, WaitError::Poll(PollError::DeviceGone));
    ensure(is_gone, &format!("wait: {waited}"))?;
    let End { cq, qp, .. } = b;
    qp.destroy()?;
    let error = cq
        .clone()
        .destroy_timeout(A_WHILE)
        .err()
        .ok_or("did not wait")?;
    let outstanding = DestroyErrorCause::StillHeld { outstanding: 1 };
    same("the gate", error.cause, outstanding)?;
    drop(held);
    rdma::link_add("rxe1")?;
    Ok(Verdict::Passed)
}

/// Both ends asleep between messages.
fn traffic() -> CaseResult {
    const ROUNDS: u64 = 300;
    let (a, b) = pair()?;
    let side = |end: &End, first: bool| -> Result<(), Failure> {
        let wait = |count: usize| -> Result<(), Failure> {
            let mut seen = 0;
            while seen < count {
                let mut room = [Wc::default(); 4];
                let want = room.len().min(count - seen);
                let found = end.cq.wait_timeout(&mut room[..want], SOON)?;
                ensure(!found.is_empty(), "slept through a completion")?;
                for wc in found.iter() {
                    wc.ok()?;
                }
                seen += found.len();
            }
            Ok(())
        };
        end.qp.post_recv(&[RecvWr::new(0, &[])])?;
        for id in 1..=ROUNDS {
            end.qp.post_recv(&[RecvWr::new(id, &[])])?;
            if first {
                end.qp.post_send(&[plain().signaled()])?;
                wait(2)?;
            } else {
                wait(1)?;
                end.qp.post_send(&[plain().signaled()])?;
                wait(1)?;
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| side(&b, false));
        side(&a, true)?;
        other.join().map_err(|_| "it panicked")?
    })?;
    let counts = a.cq.completion_event_counts();
    same("acked", counts.outstanding, 0)?;
    ensure(counts.delivered > 0, "nobody ever slept")?;
    a.qp.destroy()?;
    a.cq.destroy()?;
    Ok(Verdict::Passed)
}

fn burst() -> CaseResult {
    let (a, b) = pair()?;
    let wrs: Vec<_> = (0..48).map(|id| SendWr::send_inline(id, &[])).collect();
    for id in 0..48 {
        b.qp.post_recv(&[RecvWr::new(id, &[])])?;
    }
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            thread::sleep(A_WHILE);
            a.qp.post_send(&wrs)
        });
        let mut seen = 0;
        while seen < wrs.len() {
            let mut room = [Wc::default(); 16];
            let found = b.cq.wait_timeout(&mut room, SOON)?;
            ensure(!found.is_empty(), &format!("only {seen} came"))?;
            seen += found.len();
        }
        Ok(sender.join().map_err(|_| "it panicked")??)
    })
    .map(|()| Verdict::Passed)
}

/// Somebody else empties the queue: the event stays, and then the queue is silent until it is armed
/// and polled anew.
fn polled_elsewhere() -> CaseResult {
    let (a, b) = pair()?;
    b.cq.arm(Arm::Next)?;
    message(&a, &b, plain())?;
    // Polled by now; the event is there all the same.
    event(&b)?.ack();
    b.expect_none("polled by then")?;
    message(&a, &b, plain())?;
    none(&b, "not armed since")?;
    b.qp.post_recv(&[RecvWr::new(5, &[])])?;
    a.qp.post_send(&[plain().signaled()])?;
    a.completion()?.ok()?;
    let mut room = [Wc::default()];
    let found = b.cq.wait_timeout(&mut room, SOON)?;
    same("recovered", found.first().map(|wc| wc.wr_id), Some(5))?;
    Ok(Verdict::Passed)
}

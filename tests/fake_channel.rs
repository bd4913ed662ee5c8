//! Completion channels on the fake kernel: which completion is told, to whom, who acks it, and what
//! waits for the ack.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use support::{Pair, pair};
use uverbs::event::EventError;
use uverbs::fake::{Fabric, FakeDevice};
use uverbs::{
    Arm, CompletionAcks, CompletionChannel, CompletionEvent, CompletionQueue, ConnectOptions,
    Context, CreateErrorCause, DestroyErrorCause, Errno, PathOptions, PollError, ProtectionDomain,
    QpAttr, QpState, QueuePair, Rc, RecvWr, SendWr, WaitError, Wc, WcStatus,
};

const SHORT: Duration = Duration::from_millis(1);

/// A queue pair that is its own peer. Sends complete in one queue, receives in the other; both are on
/// one channel.
struct Loop {
    device: FakeDevice,
    context: Context,
    channel: CompletionChannel,
    sends: CompletionQueue,
    receives: CompletionQueue,
    pd: ProtectionDomain,
    qp: QueuePair<Rc>,
}

impl Loop {
    fn new() -> Self {
        let device = Fabric::new().add_device("rxe0");
        let context = device.open().unwrap();
        let channel = context.create_completion_channel().unwrap();
        let queue = || context.create_cq(64).channel(&channel, 0).build().unwrap();
        let (sends, receives) = (queue(), queue());
        let pd = context.alloc_pd().unwrap();
        let qp = connected(&pd, &sends, &receives);
        Self {
            device,
            context,
            channel,
            sends,
            receives,
            pd,
            qp,
        }
    }

    /// One send and its receive.
    fn send(&self, wr: SendWr<'_>) {
        self.qp.post_recv(&[RecvWr::new(2, &[])]).unwrap();
        self.qp.post_send(&[wr.signaled()]).unwrap();
    }

    fn event(&self) -> Option<CompletionEvent> {
        self.channel.try_next().unwrap()
    }

    /// The queue that the next event is of.
    fn told(&self) -> Option<CompletionQueue> {
        self.event().map(|event| event.cq().clone())
    }
}

fn connected(
    pd: &ProtectionDomain,
    sends: &CompletionQueue,
    receives: &CompletionQueue,
) -> QueuePair<Rc> {
    let qp = pd.create_qp::<Rc>(sends, receives).build().unwrap();
    let here = qp.prepare(&PathOptions::default()).unwrap();
    qp.connect(&here, &here, &ConnectOptions::default())
        .unwrap();
    qp
}

fn plain() -> SendWr<'static> {
    SendWr::send_inline(1, &[])
}

#[test]
fn a_queue_that_is_not_armed_says_nothing() {
    let it = Loop::new();
    it.send(plain());
    assert_eq!(it.told(), None);
    let none = it.channel.next_timeout(SHORT);
    assert!(cfg!(miri) || none.unwrap().is_none());
}

#[test]
fn an_armed_queue_tells_of_the_next_completion_once() {
    let it = Loop::new();
    it.sends.arm(Arm::Next).unwrap();
    assert_eq!(it.told(), None);
    it.send(plain());
    it.send(plain());
    assert_eq!(it.told(), Some(it.sends.clone()));
    assert_eq!(it.told(), None);
    it.sends.arm(Arm::Next).unwrap();
    it.send(plain());
    assert_eq!(it.told(), Some(it.sends.clone()));
    assert_eq!(it.sends.poll(&mut [Wc::default(); 8]).unwrap().len(), 3);
}

#[test]
fn what_was_there_before_the_arming_is_not_told() {
    let it = Loop::new();
    it.send(plain());
    it.sends.arm(Arm::Next).unwrap();
    assert_eq!(it.told(), None);
    it.send(plain());
    assert_eq!(it.told(), Some(it.sends.clone()));
}

#[test]
fn arming_a_thousand_times_is_arming_once_and_moves_no_index() {
    let it = Loop::new();
    it.send(plain());
    for _ in 0..if cfg!(miri) { 20 } else { 1000 } {
        it.sends.arm(Arm::Next).unwrap();
    }
    assert_eq!(it.sends.poll(&mut [Wc::default(); 8]).unwrap().len(), 1);
    it.send(plain());
    assert_eq!(it.told(), Some(it.sends.clone()));
    assert_eq!(it.told(), None);
    assert_eq!(it.sends.poll(&mut [Wc::default(); 8]).unwrap().len(), 1);
}

#[test]
fn solicited_arming_waits_for_a_message_that_its_sender_marked() {
    let it = Loop::new();
    it.receives.arm(Arm::Solicited).unwrap();
    it.sends.arm(Arm::Solicited).unwrap();
    it.send(plain());
    assert_eq!(it.told(), None);
    it.send(plain().solicited());
    // The receive alone: for the sender nothing is solicited.
    assert_eq!(it.told(), Some(it.receives.clone()));
    assert_eq!(it.told(), None);
}

#[test]
fn arming_for_any_after_arming_for_solicited_takes_the_rest_in() {
    let it = Loop::new();
    it.receives.arm(Arm::Solicited).unwrap();
    it.receives.arm(Arm::Next).unwrap();
    it.receives.arm(Arm::Solicited).unwrap();
    it.send(plain());
    assert_eq!(it.told(), Some(it.receives.clone()));
    it.send(plain().solicited());
    assert_eq!(it.told(), None);
}

#[test]
fn a_failure_is_told_to_those_who_wait_for_any() {
    for (arm, is_told) in [(Arm::Next, true), (Arm::Solicited, false)] {
        let it = Loop::new();
        it.receives.arm(arm).unwrap();
        it.qp.post_recv(&[RecvWr::new(2, &[])]).unwrap();
        it.qp.modify(&QpAttr::to_state(QpState::Err)).unwrap();
        assert_eq!(it.told().is_some(), is_told, "{arm:?}");
        let mut room = [Wc::default()];
        let status = it.receives.poll(&mut room).unwrap()[0].status;
        assert_eq!(status, WcStatus::WrFlushed);
    }
}

#[test]
fn acks_on_a_shared_channel_are_credited_to_the_right_queue() {
    let it = Loop::new();
    let count = 8;
    let queues: Vec<_> = (0..count)
        .map(|_| {
            it.context
                .create_cq(4)
                .channel(&it.channel, 0)
                .build()
                .unwrap()
        })
        .collect();
    for cq in &queues {
        cq.arm(Arm::Next).unwrap();
        let qp = connected(&it.pd, cq, &it.receives);
        qp.post_recv(&[RecvWr::new(2, &[])]).unwrap();
        qp.post_send(&[plain().signaled()]).unwrap();
    }
    let mut events: Vec<_> = std::iter::from_fn(|| it.event()).collect();
    assert_eq!(events.len(), count);
    // All but one are acked, the last one read not being the one that is kept.
    let kept = events.remove(2);
    drop(events);
    for cq in &queues {
        let counts = cq.completion_event_counts();
        let outstanding = u32::from(cq == kept.cq());
        assert_eq!((counts.delivered, counts.outstanding), (1, outstanding));
        assert_eq!(cq.event_counts().delivered, 0);
    }
    let held = kept.cq().clone();
    for cq in queues {
        if cq == held {
            let refused = cq.clone().try_destroy().unwrap_err();
            let outstanding = DestroyErrorCause::Outstanding { outstanding: 1 };
            assert_eq!(refused.cause, outstanding);
            let late = cq.destroy_timeout(SHORT).unwrap_err();
            assert_eq!(late.cause, DestroyErrorCause::StillHeld { outstanding: 1 });
        } else {
            cq.destroy().unwrap();
        }
    }
}

#[test]
fn a_destroy_waits_for_events_of_both_sorts() {
    let it = Loop::new();
    let cq = it
        .context
        .create_cq(4)
        .channel(&it.channel, 0)
        .build()
        .unwrap();
    let qp = connected(&it.pd, &cq, &cq);
    cq.arm(Arm::Next).unwrap();
    qp.post_recv(&[RecvWr::new(2, &[])]).unwrap();
    qp.post_send(&[plain().signaled()]).unwrap();
    it.device.raise_cq(&cq, uverbs::AsyncEventKind::CqErr);
    let completion = it.event().unwrap();
    let asynchronous = it.context.events().try_next().unwrap().unwrap();
    qp.destroy().unwrap();
    let refused = cq.clone().try_destroy().unwrap_err();
    assert_eq!(
        refused.cause,
        DestroyErrorCause::Outstanding { outstanding: 2 }
    );
    if cfg!(miri) {
        drop((completion, asynchronous));
        return cq.destroy().unwrap();
    }
    std::thread::scope(|scope| {
        let destroying = scope.spawn(|| cq.destroy().unwrap());
        drop(asynchronous);
        std::thread::sleep(Duration::from_millis(20));
        assert!(!destroying.is_finished());
        completion.ack();
        destroying.join().unwrap();
    });
}

#[test]
fn what_is_unread_goes_with_its_queue_and_is_not_waited_for() {
    let it = Loop::new();
    it.sends.arm(Arm::Next).unwrap();
    it.receives.arm(Arm::Next).unwrap();
    it.send(plain());
    it.qp.destroy().unwrap();
    it.sends.destroy().unwrap();
    assert_eq!(
        it.channel
            .try_next()
            .unwrap()
            .map(|event| event.cq().clone()),
        Some(it.receives.clone())
    );
    assert!(it.channel.try_next().unwrap().is_none());
}

#[test]
fn gathered_acks_are_given_at_once_each_to_its_own_queue() {
    let it = Loop::new();
    let mut acks = CompletionAcks::new();
    assert!(acks.is_empty());
    for _ in 0..3 {
        it.sends.arm(Arm::Next).unwrap();
        it.receives.arm(Arm::Next).unwrap();
        it.send(plain());
        acks.extend(std::iter::from_fn(|| it.event()));
    }
    assert_eq!(acks.len(), 6);
    let outstanding = |cq: &CompletionQueue| cq.completion_event_counts().outstanding;
    assert_eq!((outstanding(&it.sends), outstanding(&it.receives)), (3, 3));
    acks.flush();
    assert!(acks.is_empty());
    assert_eq!((outstanding(&it.sends), outstanding(&it.receives)), (0, 0));
    it.sends.arm(Arm::Next).unwrap();
    it.send(plain());
    acks.add(it.event().unwrap());
    it.qp.destroy().unwrap();
    // Gathered, an event does not keep its queue, but the verb that waits waits for it.
    let late = it.sends.destroy_timeout(SHORT).unwrap_err();
    assert_eq!(late.cause, DestroyErrorCause::StillHeld { outstanding: 1 });
    drop(acks);
    it.receives.destroy().unwrap();
}

#[test]
fn a_stale_or_forged_event_reaches_no_queue() {
    let it = Loop::new();
    let first = it
        .context
        .create_cq(4)
        .channel(&it.channel, 0)
        .build()
        .unwrap();
    let qp = connected(&it.pd, &first, &it.receives);
    qp.destroy().unwrap();
    first.destroy().unwrap();
    // In its place.
    let second = it
        .context
        .create_cq(4)
        .channel(&it.channel, 0)
        .build()
        .unwrap();
    for forged in [0, 1, 0x1_0000_0002, u64::MAX, 0x1_0000_0009] {
        it.device.forge_completion_event(forged);
    }
    assert_eq!(it.told(), None);
    assert_eq!(it.channel.passed_over(), 5);
    it.device.scribble_channels(b"abc");
    let error = it.channel.try_next().unwrap_err();
    assert_eq!(error, EventError::BadRecord { len: 3 });
    assert_eq!(second.completion_event_counts().delivered, 0);
    second.destroy().unwrap();
}

#[test]
fn an_event_keeps_its_queue_and_a_channel_keeps_nothing() {
    let it = Loop::new();
    it.sends.arm(Arm::Next).unwrap();
    it.send(plain());
    let event = it.event().unwrap();
    let Loop {
        device,
        context,
        channel,
        sends,
        receives,
        pd,
        qp,
    } = it;
    drop((qp, pd, sends, receives, context));
    assert_eq!(device.live().cqs, 1);
    assert!(channel.try_next().unwrap().is_none());
    drop(event);
    let live = device.live();
    assert!(live.is_nothing(), "{live:?}");
    // For good.
    for _ in 0..2 {
        assert_eq!(channel.try_next().unwrap_err(), EventError::ContextClosed);
    }
    if !cfg!(miri) {
        assert_eq!(channel.next().unwrap_err(), EventError::ContextClosed);
    }
}

#[test]
fn a_channel_lives_as_long_as_a_queue_has_it() {
    let device = Fabric::new().add_device("rxe0");
    let context = device.open().unwrap();
    let channel = context.create_completion_channel().unwrap();
    let cq = context.create_cq(1).channel(&channel, 0).build().unwrap();
    assert_eq!(cq.channel().as_ref(), Some(&channel));
    drop(channel);
    assert_eq!(device.live().channels, 1);
    let channel = cq.channel().unwrap();
    drop(cq);
    if !cfg!(miri) {
        drop(channel);
        assert_eq!(device.live().channels, 0);
    }
}

#[test]
fn a_channel_of_another_open_device_is_refused_here_and_a_refusal_of_the_kernel_is_told() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let (one, two) = (device.open().unwrap(), device.open().unwrap());
    let channel = one.create_completion_channel().unwrap();
    let error = two.create_cq(1).channel(&channel, 0).build().unwrap_err();
    let what = "completion channel";
    assert_eq!(error.cause, CreateErrorCause::OtherContext { what });
    device.fail_next("CREATE_COMP_CHANNEL", Errno::ENOSPC);
    let error = one.create_completion_channel().unwrap_err().to_string();
    assert!(
        error.contains("completion channel") && error.contains("ENOSPC"),
        "{error}"
    );
    let error = one.create_cq(1).channel(&channel, 7).build().unwrap_err();
    let limit = uverbs::Limit::Exceeded {
        name: "highest comp_vector",
        asked: 7,
        has: 0,
    };
    assert_eq!(error.limits, [limit]);
    let cq = one.create_cq(1).build().unwrap();
    assert!(cq.channel().is_none());
    let error = cq.wait(&mut [Wc::default()]).unwrap_err();
    assert!(matches!(error, WaitError::NoChannel), "{error}");
}

#[test]
fn stop_is_for_all_handles_and_for_good() {
    let it = Loop::new();
    it.sends.arm(Arm::Next).unwrap();
    it.send(plain());
    it.channel.clone().stop();
    assert_eq!(it.channel.try_next().unwrap_err(), EventError::Stopped);
    let ended = it.sends.wait(&mut [Wc::default()]).unwrap_err();
    assert!(matches!(ended, WaitError::Event(EventError::Stopped)));
    // The queue is as it was.
    assert_eq!(it.sends.poll(&mut [Wc::default()]).unwrap().len(), 1);
    let other = it.context.create_completion_channel().unwrap();
    assert!(other.try_next().unwrap().is_none());
    it.qp.destroy().unwrap();
    it.sends.destroy().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn whoever_waits_is_woken_by_a_completion_a_stop_a_removal_and_a_close() {
    // `end` gives back what is to be kept until all have ended.
    fn ends<K>(end: impl FnOnce(Loop) -> K) -> [Option<EventError>; 2] {
        let it = Loop::new();
        it.sends.arm(Arm::Next).unwrap();
        let waiters = [it.channel.clone(), it.channel.clone()]
            .map(|channel| std::thread::spawn(move || channel.next().map(drop).err()));
        std::thread::sleep(Duration::from_millis(20));
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        let _kept = end(it);
        waiters.map(|waiter| waiter.join().unwrap())
    }
    let both = |error| [Some(error), Some(error)];
    let stopped = ends(|it| {
        it.channel.stop();
        it
    });
    assert_eq!(stopped, both(EventError::Stopped));
    let removed = ends(|it| {
        it.device.remove();
        it
    });
    assert_eq!(removed, both(EventError::DeviceGone));
    assert_eq!(ends(drop), both(EventError::ContextClosed));
    // One gets the event, the other is told that the context is closed.
    let mut outcomes = ends(|it| {
        it.send(plain());
        let began = Instant::now();
        while it.sends.completion_event_counts().acked == 0 {
            assert!(began.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
    });
    outcomes.sort_by_key(Option::is_some);
    assert_eq!(outcomes, [None, Some(EventError::ContextClosed)]);
}

#[test]
fn after_removal_everyone_is_told_and_destroys_go_through_the_gate() {
    let it = Loop::new();
    it.sends.arm(Arm::Next).unwrap();
    it.receives.arm(Arm::Next).unwrap();
    it.send(plain());
    let held = it.event().unwrap();
    let of = held.cq().clone();
    it.device.remove();
    for _ in 0..2 {
        assert_eq!(it.channel.try_next().unwrap_err(), EventError::DeviceGone);
    }
    assert!(it.context.is_gone());
    assert!(it.context.create_completion_channel().is_err());
    // What is in the queue can still be had, then the wait ends with the device.
    let mut room = [Wc::default(); 4];
    assert_eq!(it.sends.wait(&mut room).unwrap().len(), 1);
    let gone = it.sends.wait(&mut room).unwrap_err();
    assert!(
        matches!(gone, WaitError::Poll(PollError::DeviceGone)),
        "{gone}"
    );
    it.qp.destroy().unwrap();
    let late = of.destroy_timeout(SHORT).unwrap_err();
    assert_eq!(late.cause, DestroyErrorCause::StillHeld { outstanding: 1 });
    drop(held);
    let rest = if it.sends.poll(&mut []) == Err(PollError::Destroyed) {
        it.receives
    } else {
        it.sends
    };
    rest.destroy().unwrap();
}

#[test]
fn device_fatal_ends_those_who_wait_on_channels_too() {
    let it = Loop::new();
    it.sends.arm(Arm::Next).unwrap();
    it.send(plain());
    it.device.raise_device(uverbs::AsyncEventKind::DeviceFatal);
    drop(it.context.events().try_next().unwrap());
    assert!(it.context.is_gone());
    // What is queued comes first.
    assert_eq!(it.told(), Some(it.sends.clone()));
    assert_eq!(it.channel.try_next().unwrap_err(), EventError::DeviceGone);
    assert!(is_readable(it.channel.wake_fd()));
}

#[test]
fn device_fatal_in_a_queue_of_its_own_ends_those_who_wait_on_channels_too() {
    let it = Loop::new();
    let queue = it.context.event_queue().unwrap();
    it.device.raise_device(uverbs::AsyncEventKind::DeviceFatal);
    assert!(!it.context.is_gone());
    drop(queue.try_next().unwrap());
    assert!(is_readable(it.channel.wake_fd()));
    assert_eq!(it.channel.try_next().unwrap_err(), EventError::DeviceGone);
    // Its own copy is still read by the context's own reader.
    let own = it.context.events();
    assert!(own.try_next().unwrap().is_some());
    assert_eq!(own.try_next().unwrap_err(), EventError::DeviceGone);
}

/// Whether `poll(2)` finds something to read.
fn is_readable(fd: BorrowedFd<'_>) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    if cfg!(miri) {
        return true;
    }
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
}

#[test]
fn the_file_is_readable_while_there_are_events_and_non_blocking_from_the_start() {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let it = Loop::new();
    let flags = fcntl(&it.channel, FcntlArg::F_GETFL).unwrap();
    assert!(OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK));
    assert!(cfg!(miri) || !is_readable(it.channel.as_fd()));
    it.sends.arm(Arm::Next).unwrap();
    it.receives.arm(Arm::Next).unwrap();
    it.send(plain());
    assert!(is_readable(it.channel.as_fd()));
    assert!(it.event().is_some());
    assert!(is_readable(it.channel.as_fd()));
    assert!(it.event().is_some());
    assert!(cfg!(miri) || !is_readable(it.channel.as_fd()));
    assert!(cfg!(miri) || !is_readable(it.channel.wake_fd()));
}

#[test]
fn wait_polls_first_then_arms_and_polls_once_more() {
    let it = Loop::new();
    it.send(plain());
    it.device.forget_calls();
    let mut room = [Wc::default(); 4];
    assert_eq!(it.sends.wait(&mut room).unwrap().len(), 1);
    assert_eq!(it.device.calls(), [] as [&str; 0]);
    assert!(it.sends.wait(&mut []).unwrap().is_empty());
    if cfg!(miri) {
        return;
    }
    assert!(it.sends.wait_timeout(&mut room, SHORT).unwrap().is_empty());
    assert_eq!(it.device.calls(), ["REQ_NOTIFY_CQ"]);
    // Armed by then.
    it.send(plain());
    assert_eq!(it.told(), Some(it.sends.clone()));
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn an_event_of_another_queue_is_handed_over_by_a_wait() {
    let it = Loop::new();
    it.receives.arm(Arm::Next).unwrap();
    it.send(plain());
    let mut room = [Wc::default(); 4];
    it.sends.poll(&mut room).unwrap();
    let error = it.sends.wait_timeout(&mut room, SHORT).unwrap_err();
    let WaitError::OtherQueue(event) = error else {
        panic!("{error}");
    };
    assert_eq!(*event.cq(), it.receives);
    assert_eq!(it.receives.completion_event_counts().outstanding, 1);
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn a_burst_larger_than_the_room_is_had_whole() {
    let Pair { fabric, a, b } = pair();
    let channel = b.context.create_completion_channel().unwrap();
    let cq = b
        .context
        .create_cq(64)
        .channel(&channel, 0)
        .build()
        .unwrap();
    let qp =
        b.pd.create_qp::<Rc>(&cq, &cq)
            .max_recv_wr(64)
            .build()
            .unwrap();
    let there = qp.prepare(&PathOptions::default()).unwrap();
    let far =
        a.pd.create_qp::<Rc>(&a.cq, &a.cq)
            .max_send_wr(64)
            .build()
            .unwrap();
    let here = far.prepare(&PathOptions::default()).unwrap();
    qp.connect(&there, &here, &ConnectOptions::default())
        .unwrap();
    far.connect(&here, &there, &ConnectOptions::default())
        .unwrap();
    for id in 0..48 {
        qp.post_recv(&[RecvWr::new(id, &[])]).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(10));
            let wrs: Vec<_> = (0..48).map(|id| SendWr::send_inline(id, &[])).collect();
            far.post_send(&wrs).unwrap();
        });
        let (mut seen, began) = (0, Instant::now());
        while seen < 48 {
            let mut room = [Wc::default(); 16];
            seen += cq.wait(&mut room).unwrap().len();
            assert!(began.elapsed() < Duration::from_secs(10), "{seen} of 48");
        }
    });
    drop(fabric);
}

#[test]
fn a_panic_with_an_event_in_hand_acks_it_whichever_was_declared_first() {
    let it = Loop::new();
    let one = |queue_first: bool| {
        let cq = it
            .context
            .create_cq(4)
            .channel(&it.channel, 0)
            .build()
            .unwrap();
        let qp = connected(&it.pd, &cq, &cq);
        cq.arm(Arm::Next).unwrap();
        qp.post_recv(&[RecvWr::new(2, &[])]).unwrap();
        qp.post_send(&[plain().signaled()]).unwrap();
        qp.destroy().unwrap();
        let kept = cq.clone();
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            if queue_first {
                let _cq = cq;
                let _event = it.event().unwrap();
                std::panic::resume_unwind(Box::new(()));
            } else {
                let _event = it.event().unwrap();
                let _cq = cq;
                std::panic::resume_unwind(Box::new(()));
            }
        }));
        assert!(unwound.is_err());
        kept.destroy().unwrap();
    };
    one(true);
    one(false);
}

#[test]
fn each_of_two_armed_queues_is_to_be_polled_again() {
    let it = Loop::new();
    it.receives.arm(Arm::Solicited).unwrap();
    it.sends.arm(Arm::Next).unwrap();
    let mut room = [Wc::default(); 4];
    assert!(it.sends.poll(&mut room).unwrap().is_empty());
    // In the window between the arming and the wait.
    it.send(plain().solicited());
    let mut told = Vec::new();
    while let Some(event) = it.event() {
        event.cq().arm(Arm::Next).unwrap();
        assert_eq!(event.cq().poll(&mut room).unwrap().len(), 1);
        told.push(event.cq().clone());
    }
    assert_eq!(told.len(), 2);
    assert!(told.contains(&it.sends) && told.contains(&it.receives));
}

#[test]
fn completions_taken_elsewhere_leave_their_event_and_arming_anew_recovers() {
    let it = Loop::new();
    it.receives.arm(Arm::Next).unwrap();
    it.send(plain());
    let mut room = [Wc::default(); 4];
    assert_eq!(it.receives.poll(&mut room).unwrap().len(), 1);
    // The event is there, the completion is not; and the queue is silent from now on.
    assert_eq!(it.told(), Some(it.receives.clone()));
    it.send(plain());
    assert_eq!(it.told(), None);
    assert_eq!(it.receives.wait(&mut room).unwrap().len(), 1);
    it.receives.arm(Arm::Next).unwrap();
    it.send(plain());
    assert_eq!(it.told(), Some(it.receives.clone()));
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn each_event_reaches_exactly_one_of_four_who_wait() {
    let it = Loop::new();
    let rounds = 200;
    let seen = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Ok(event) = it.channel.next() {
                    seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    event.ack();
                }
            });
        }
        for round in 0..rounds {
            it.sends.arm(Arm::Next).unwrap();
            it.send(plain());
            it.sends.poll(&mut [Wc::default(); 4]).unwrap();
            it.receives.poll(&mut [Wc::default(); 4]).unwrap();
            let began = Instant::now();
            while seen.load(std::sync::atomic::Ordering::SeqCst) <= round {
                assert!(began.elapsed() < Duration::from_secs(10));
                std::thread::yield_now();
            }
        }
        it.channel.stop();
    });
    assert_eq!(seen.into_inner(), rounds);
    let counts = it.sends.completion_event_counts();
    assert_eq!((counts.delivered, counts.outstanding), (rounds, 0));
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn a_destroy_in_the_midst_of_events_always_returns() {
    let it = Loop::new();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut acks = CompletionAcks::new();
                loop {
                    match it.channel.next_timeout(SHORT) {
                        Ok(Some(event)) => acks.add(event),
                        Ok(None) => acks.flush(),
                        Err(_) => break,
                    }
                }
            });
        }
        for _ in 0..200 {
            let cq = it
                .context
                .create_cq(4)
                .channel(&it.channel, 0)
                .build()
                .unwrap();
            let qp = connected(&it.pd, &cq, &cq);
            for _ in 0..2 {
                cq.arm(Arm::Next).unwrap();
                qp.post_recv(&[RecvWr::new(2, &[])]).unwrap();
                qp.post_send(&[plain().signaled()]).unwrap();
                cq.poll(&mut [Wc::default(); 4]).unwrap();
            }
            qp.destroy().unwrap();
            cq.destroy().unwrap();
        }
        it.channel.stop();
    });
    assert_eq!(it.device.live().cqs, 2);
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn more_events_than_a_pipe_holds_and_none_is_lost() {
    let it = Loop::new();
    let mut acks = CompletionAcks::new();
    let count = 9000;
    let cq = it
        .context
        .create_cq(4)
        .channel(&it.channel, 0)
        .build()
        .unwrap();
    let qp = connected(&it.pd, &cq, &it.receives);
    for _ in 0..count {
        cq.arm(Arm::Next).unwrap();
        qp.post_recv(&[RecvWr::new(2, &[])]).unwrap();
        qp.post_send(&[plain().signaled()]).unwrap();
        cq.poll(&mut [Wc::default(); 4]).unwrap();
        it.receives.poll(&mut [Wc::default(); 4]).unwrap();
    }
    while acks.len() < count {
        match it.event() {
            Some(event) => acks.add(event),
            // What had no room comes with the next call, whatever it is.
            None => drop(it.context.query_port(1).unwrap()),
        }
    }
    assert!(it.event().is_none());
    acks.flush();
    qp.destroy().unwrap();
    cq.destroy().unwrap();
}

//! Completion channels on the fake kernel: which completion is told, when, and to whom.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use support::channel::{Loop, SHORT, connected, is_readable, plain, send};
use support::{Pair, pair};
use uverbs::{
    Arm, CompletionAcks, ConnectOptions, PathOptions, QpAttr, QpState, Rc, RecvWr, SendWr,
    WaitError, Wc, WcStatus,
};

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
fn more_events_than_a_pipe_holds_and_none_is_lost() {
    let it = Loop::new();
    let mut acks = CompletionAcks::new();
    let count = 9000;
    let cq = it.queue();
    let qp = connected(&it.pd, &cq, &it.receives);
    for _ in 0..count {
        cq.arm(Arm::Next).unwrap();
        send(&qp, plain());
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

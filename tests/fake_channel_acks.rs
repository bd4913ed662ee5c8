//! Completion channels on the fake kernel: who acks an event, what waits for the ack, and what keeps
//! what alive.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use support::channel::{A_WHILE, Loop, SHORT, connected, plain, send};
use uverbs::event::EventError;
use uverbs::fake::Fabric;
use uverbs::{
    Arm, CompletionAcks, CompletionQueue, CreateErrorCause, DestroyErrorCause, Errno, Explain,
    WaitError, Wc,
};

#[test]
fn acks_on_a_shared_channel_are_credited_to_the_right_queue() {
    let it = Loop::new();
    let count = 8;
    let queues: Vec<_> = (0..count).map(|_| it.queue()).collect();
    for cq in &queues {
        cq.arm(Arm::Next).unwrap();
        let qp = connected(&it.pd, cq, &it.receives);
        send(&qp, plain());
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
    let cq = it.queue();
    let qp = connected(&it.pd, &cq, &cq);
    cq.arm(Arm::Next).unwrap();
    send(&qp, plain());
    it.device.raise_cq(&cq, uverbs::AsyncEventKind::CqErr);
    let completion = it.event().unwrap();
    let asynchronous = it.context.events().try_next().unwrap().unwrap();
    qp.destroy().unwrap();
    let refused = cq.clone().try_destroy().unwrap_err();
    assert_eq!(
        refused.cause,
        DestroyErrorCause::Outstanding { outstanding: 2 }
    );
    let report = refused.report().to_string();
    for part in [
        "found: held: 1 completion event, as `CompletionEvent` or in `CompletionAcks`\n",
        "found: held: 1 asynchronous event, as `AsyncEvent`\n",
        "cause: an event was forgotten (`mem::forget`)",
        "next: drop or `ack` what is held, and try again",
    ] {
        assert!(report.contains(part), "{part} is not in: {report}");
    }
    if cfg!(miri) {
        drop((completion, asynchronous));
        return cq.destroy().unwrap();
    }
    std::thread::scope(|scope| {
        let destroying = scope.spawn(|| cq.destroy().unwrap());
        drop(asynchronous);
        std::thread::sleep(A_WHILE);
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
    it.qp.clone().destroy().unwrap();
    it.sends.clone().destroy().unwrap();
    assert_eq!(it.told(), Some(it.receives.clone()));
    assert_eq!(it.told(), None);
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
    let report = late.report().to_string();
    for part in [
        "found: held: 1 completion event, as `CompletionEvent` or in `CompletionAcks`\n",
        "the object is gone, and nothing else need be done about it\n",
    ] {
        assert!(report.contains(part), "{part} is not in: {report}");
    }
    assert!(!report.contains("asynchronous"), "{report}");
    drop(acks);
    it.receives.destroy().unwrap();
}

#[test]
fn a_stale_or_forged_event_reaches_no_queue() {
    let it = Loop::new();
    let first = it.queue();
    let qp = connected(&it.pd, &first, &it.receives);
    qp.destroy().unwrap();
    first.destroy().unwrap();
    // In its place.
    let second = it.queue();
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
    let limit = uverbs::Limit::NoSuch {
        name: "comp_vector",
        asked: 7,
        count: 1,
    };
    assert_eq!(error.limits, [limit]);
    let cq = one.create_cq(1).build().unwrap();
    assert!(cq.channel().is_none());
    let error = cq.wait(&mut [Wc::default()]).unwrap_err();
    assert!(matches!(error, WaitError::NoChannel), "{error}");
}

#[test]
fn a_panic_with_an_event_in_hand_acks_it_whichever_was_declared_first() {
    let it = Loop::new();
    let one = |queue_first: bool| {
        let cq = it.queue();
        let qp = connected(&it.pd, &cq, &cq);
        cq.arm(Arm::Next).unwrap();
        send(&qp, plain());
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
            let cq = it.queue();
            let qp = connected(&it.pd, &cq, &cq);
            for _ in 0..2 {
                cq.arm(Arm::Next).unwrap();
                send(&qp, plain());
                cq.poll(&mut [Wc::default(); 4]).unwrap();
            }
            qp.destroy().unwrap();
            cq.destroy().unwrap();
        }
        it.channel.stop();
    });
    assert_eq!(it.device.live().cqs, 2);
}

//! Completion channels on the fake kernel: how those who wait are ended.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use support::channel::{Loop, SHORT, SOON, is_readable, on_thread, plain};
use uverbs::event::EventError;
use uverbs::fake::FakeDevice;
use uverbs::{Arm, DestroyErrorCause, Errno, Explain, PollError, WaitError, Wc};

#[test]
fn stop_is_for_all_handles_and_for_good() {
    let it = Loop::new();
    it.sends.arm(Arm::Next).unwrap();
    it.send(plain());
    it.channel.clone().stop();
    assert_eq!(it.channel.try_next().unwrap_err(), EventError::Stopped);
    let ended = it.sends.wait(&mut [Wc::default()]).unwrap_err();
    assert!(matches!(ended, WaitError::Event(EventError::Stopped)));
    let report = ended.report().to_string();
    assert!(
        report.contains("`CompletionChannel::stop`")
            && report.contains("next: to wait again: `Context::create_completion_channel`")
            && !report.contains("event_queue"),
        "{report}"
    );
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
            assert!(began.elapsed() < SOON);
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

/// From now on every command says `EIO`, and nobody raises anything.
fn falls_silent(device: &FakeDevice) {
    device.fail_always("QUERY_PORT", Errno::EIO);
    device.fail_always("QUERY_CONTEXT", Errno::EIO);
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn a_removal_that_a_call_finds_ends_everyone_who_was_blocked_before() {
    let it = Loop::new();
    let (events, queue) = (it.context.events(), it.context.event_queue().unwrap());
    let fds = [&events, &queue].map(|reader| reader.wake_fd().try_clone_to_owned().unwrap());
    let gone = Some(EventError::DeviceGone);
    let readers = [events.clone(), events, queue.clone(), queue]
        .map(|events| on_thread(move || events.next().err()));
    let timed = it.context.events();
    let timed = on_thread(move || timed.next_timeout(SOON).err());
    let iterated = it.context.events();
    let iterated = on_thread(move || iterated.iter().map(|next| next.err()).collect::<Vec<_>>());
    let channels = [it.channel.clone(), it.channel.clone()]
        .map(|channel| on_thread(move || channel.next().err()));
    let (sends, receives) = (it.sends.clone(), it.receives.clone());
    let queues = [sends.clone(), sends, receives]
        .map(|cq| on_thread(move || cq.wait(&mut [Wc::default()]).unwrap_err().to_string()));
    readers.iter().for_each(|reader| reader.goes_on());
    falls_silent(&it.device);
    channels.iter().for_each(|channel| channel.goes_on());

    assert!(it.context.query_port(1).is_err());
    assert!(it.context.is_gone());
    for reader in readers {
        assert_eq!(reader.ends(), gone);
    }
    assert_eq!(timed.ends(), gone);
    assert_eq!(iterated.ends(), [gone], "once");
    for channel in channels {
        assert_eq!(channel.ends(), gone);
    }
    for queue in queues {
        let why = queue.ends();
        assert!(why.contains("the device is gone"), "{why}");
    }
    assert!(fds.iter().all(|fd| is_readable(fd.as_fd())));
    // Whoever comes later hears the same; so does what is made of a command that had gone through.
    assert_eq!(it.context.events().next().err(), gone);
    assert_eq!(it.channel.next().err(), gone);
    assert_eq!(it.channel.next_timeout(SOON).err(), gone);
}

#[test]
fn a_removal_that_a_call_finds_is_told_after_what_is_queued() {
    let it = Loop::new();
    it.sends.arm(Arm::Next).unwrap();
    it.send(plain());
    it.device.raise_port(uverbs::AsyncEventKind::PortErr, 1);
    falls_silent(&it.device);
    assert!(it.context.query_port(1).is_err());
    assert_eq!(it.told(), Some(it.sends.clone()));
    assert_eq!(it.channel.try_next().unwrap_err(), EventError::DeviceGone);
    let events = it.context.events();
    assert!(events.try_next().unwrap().is_some());
    assert_eq!(events.try_next().unwrap_err(), EventError::DeviceGone);
    // The event that says so comes late: it is there for whoever still asks.
    it.device.raise_device(uverbs::AsyncEventKind::DeviceFatal);
    assert!(events.try_next().unwrap().is_some());
    assert_eq!(events.try_next().unwrap_err(), EventError::DeviceGone);
}

fn is_destroyed(ended: &Result<usize, WaitError>) -> bool {
    matches!(ended, Err(WaitError::Destroyed))
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn a_destroy_of_the_queue_ends_all_who_wait_for_it_and_nobody_else() {
    let it = Loop::new();
    let (cq, other) = (it.queue(), it.queue());
    let waiting = |limit: Option<Duration>| {
        let cq = cq.clone();
        on_thread(move || {
            let mut room = [Wc::default(); 4];
            let done = match limit {
                Some(limit) => cq.wait_timeout(&mut room, limit),
                None => cq.wait(&mut room),
            };
            done.map(|done| done.len())
        })
    };
    let waiters = [None, None, Some(SOON)].map(waiting);
    let channel = it.channel.clone();
    let channel = on_thread(move || channel.next().map(drop));
    let elsewhere = other.clone();
    let elsewhere = on_thread(move || elsewhere.wait(&mut [Wc::default()]).map(|done| done.len()));
    waiters.iter().for_each(|waiter| waiter.goes_on());
    let handle = cq.clone();
    // Nobody who waits holds it up.
    cq.destroy().unwrap();
    for waiter in waiters {
        assert!(is_destroyed(&waiter.ends()));
    }
    let late = handle.wait(&mut [Wc::default()]).map(|done| done.len());
    assert!(is_destroyed(&late));
    let late = handle.wait_timeout(&mut [Wc::default()], SOON).unwrap_err();
    assert_eq!(late.to_string(), "the completion queue has been destroyed");
    channel.goes_on();
    elsewhere.goes_on();
    other.destroy().unwrap();
    assert!(is_destroyed(&elsewhere.ends()));
    channel.goes_on();
    it.channel.stop();
    assert_eq!(channel.ends().unwrap_err(), EventError::Stopped);
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn a_destroy_that_is_refused_ends_no_wait() {
    let it = Loop::new();
    it.receives.arm(Arm::Next).unwrap();
    it.send(plain());
    it.sends.poll(&mut [Wc::default(); 4]).unwrap();
    it.receives.poll(&mut [Wc::default(); 4]).unwrap();
    let held = it.event().unwrap();
    let wait = || {
        let cq = it.receives.clone();
        on_thread(move || cq.wait(&mut [Wc::default()]).map(|done| done.len()))
    };
    let waiter = wait();
    waiter.goes_on();
    // An event of it is held; the queue pair reports to it.
    let refused = it.receives.clone().try_destroy().unwrap_err();
    let outstanding = DestroyErrorCause::Outstanding { outstanding: 1 };
    assert_eq!(refused.cause, outstanding);
    let refused = it.receives.clone().destroy().unwrap_err();
    assert!(matches!(refused.cause, DestroyErrorCause::Busy { .. }));
    waiter.goes_on();
    drop(held);
    it.send(plain());
    assert_eq!(waiter.ends().unwrap(), 1);
    // And the next one waits as the first did.
    let waiter = wait();
    waiter.goes_on();
    it.qp.destroy().unwrap();
    it.receives.destroy().unwrap();
    assert!(is_destroyed(&waiter.ends()));
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn a_destroy_at_any_moment_of_a_wait_ends_it() {
    let it = Loop::new();
    for round in 0..400 {
        let cq = it.queue();
        let waiters = [cq.clone(), cq.clone()]
            .map(|cq| on_thread(move || cq.wait(&mut [Wc::default()]).map(|done| done.len())));
        // From before the first step to where both are asleep.
        for _ in 0..round % 40 {
            std::thread::yield_now();
        }
        if round % 100 == 0 {
            std::thread::sleep(SHORT);
        }
        cq.destroy().unwrap();
        for waiter in waiters {
            assert!(is_destroyed(&waiter.ends()), "round {round}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn a_channel_waits_on_without_queues_and_without_other_handles() {
    let it = Loop::new();
    let channel = it.channel.clone();
    let waiter = on_thread(move || channel.next().map(drop));
    waiter.goes_on();
    let Loop {
        context,
        channel,
        sends,
        receives,
        qp,
        pd,
        ..
    } = it;
    drop((qp, pd, sends, receives));
    waiter.goes_on();
    drop(channel);
    waiter.goes_on();
    drop(context);
    assert_eq!(waiter.ends().unwrap_err(), EventError::ContextClosed);
}

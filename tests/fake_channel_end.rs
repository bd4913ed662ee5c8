//! Completion channels on the fake kernel: how those who wait are ended.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::time::{Duration, Instant};

use support::channel::{Loop, is_readable, plain};
use uverbs::event::EventError;
use uverbs::{Arm, DestroyErrorCause, PollError, WaitError, Wc};

const SHORT: Duration = Duration::from_millis(1);

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

//! A signal neither loses nor doubles an event, nor shortens or lengthens a wait.

#![allow(
    unsafe_code,
    reason = "a handler without SA_RESTART, and signals to one thread"
)]

use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::super::{AsyncEventKind, EventError, Subject};
use super::support::{A_WHILE, Rig, TOO_LONG};

static CAUGHT: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    CAUGHT.fetch_add(1, Ordering::Relaxed);
}

/// Catches SIGUSR2 so that it interrupts system calls.
fn catch_signals() {
    let handler: extern "C" fn(libc::c_int) = count;
    // SAFETY: an all-zero `sigaction` is a valid one: no flags (so no SA_RESTART), an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: `action` is initialised; the handler only adds to an atomic, which is allowed in one.
    let result = unsafe { libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()) };
    assert_eq!(result, 0);
}

/// Sends signals to a thread until it has finished.
fn pester<T>(thread: thread::JoinHandle<T>, every: Duration) -> T {
    let began = Instant::now();
    while !thread.is_finished() {
        assert!(began.elapsed() < TOO_LONG, "it does not end");
        // SAFETY: the thread has not been joined, so its id is valid; SIGUSR2 has a handler.
        unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGUSR2) };
        thread::sleep(every);
    }
    thread.join().unwrap()
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no signals")]
fn every_event_is_read_once_under_a_rain_of_signals() {
    const EVENTS: u32 = 5_000;
    catch_signals();
    let rig = Rig::new();
    let before = CAUGHT.load(Ordering::Relaxed);
    let events = rig.events.clone();
    let reader = thread::spawn(move || {
        let port = |next: Result<_, EventError>| match next {
            Ok(event) => match *super::super::AsyncEvent::subject(&event) {
                Subject::Port(port) => port,
                ref other => panic!("{other:?}"),
            },
            Err(error) => panic!("{error}"),
        };
        events.iter().map(port).collect::<Vec<_>>()
    });
    let raiser = {
        let Rig { kernel, source, .. } = rig;
        thread::spawn(move || {
            for port in 0..EVENTS {
                let bytes = super::support::record(u64::from(port), AsyncEventKind::PortErr.raw());
                nix::unistd::write(&kernel, &bytes).unwrap();
                if port % 64 == 0 {
                    thread::sleep(Duration::from_micros(200));
                }
            }
            source.close();
            kernel
        })
    };
    let ports = pester(reader, Duration::from_micros(50));
    drop(raiser.join().unwrap());
    assert_eq!(ports, (0..EVENTS).collect::<Vec<_>>());
    assert!(
        CAUGHT.load(Ordering::Relaxed) > before,
        "there were signals"
    );
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no signals")]
fn a_wait_with_a_timeout_takes_its_time_in_spite_of_signals() {
    catch_signals();
    let rig = Rig::new();
    let events = rig.events.clone();
    let timeout = 3 * A_WHILE;
    let waiter = thread::spawn(move || {
        let began = Instant::now();
        (
            events.next_timeout(timeout).unwrap().is_none(),
            began.elapsed(),
        )
    });
    let (none, took) = pester(waiter, Duration::from_millis(1));
    assert!(none);
    assert!(took >= timeout && took < TOO_LONG, "{took:?}");
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no signals")]
fn a_wait_goes_on_after_a_signal() {
    catch_signals();
    let rig = Rig::new();
    let events = rig.events.clone();
    let waiter = thread::spawn(move || events.next().map(|event| event.kind()));
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(2));
        // SAFETY: the thread is joined only below, so its id is valid; SIGUSR2 has a handler.
        unsafe { libc::pthread_kill(waiter.as_pthread_t(), libc::SIGUSR2) };
    }
    assert!(!waiter.is_finished());
    rig.raise(1, AsyncEventKind::LidChange);
    assert_eq!(waiter.join().unwrap(), Ok(AsyncEventKind::LidChange));
}

//! A forked child neither reads, nor acks, nor wakes, and drops what it inherited unharmed.

#![allow(unsafe_code, reason = "fork")]

use std::thread;
use std::time::Duration;

use super::super::{AsyncEventKind, Class, ClosePolicy, EventError};
use super::support::{A_WHILE, Rig};

/// Runs `child` in a forked process; its result is the answer.
fn in_child(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `child` and `_exit`, nothing that needs a lock another thread of the
    // parent may hold: the C library makes its allocator usable after a fork.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let right = child();
        // SAFETY: ends the child at once, running nothing of the parent's.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made; `status` is ours.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    status == 0
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot fork")]
fn a_child_may_do_what_it_likes_with_what_it_inherited() {
    let rig = Rig::new();
    let (_object, registration) = rig.object(Class::Cq);
    let element = registration.token().as_raw();
    rig.raise(element, AsyncEventKind::CqErr);
    let mut event = Some(rig.events.next().unwrap());
    rig.raise(1, AsyncEventKind::PortErr);
    let waiter = {
        let events = Rig::new();
        let clone = events.events.clone();
        (
            thread::spawn(move || clone.next_timeout(Duration::from_secs(2)).map(drop)),
            events,
        )
    };
    thread::sleep(A_WHILE);

    let foreign = |result: Result<_, EventError>| matches!(result, Err(EventError::ForeignProcess));
    let right = in_child(|| {
        let refused = foreign(rig.events.try_next())
            && foreign(rig.events.next().map(Some))
            && foreign(rig.events.next_timeout(A_WHILE));
        rig.events.stop();
        rig.source.close();
        waiter.1.events.stop();
        drop(event.take());
        refused
    });
    assert!(right);

    assert_eq!(
        registration.counts().outstanding,
        1,
        "the child has not acked"
    );
    assert_eq!(
        rig.events.next().unwrap().kind(),
        AsyncEventKind::PortErr,
        "nor read, nor stopped"
    );
    assert!(waiter.0.join().unwrap().is_ok(), "nor woken anyone");
    drop(event);
    registration
        .begin_close(ClosePolicy::Always)
        .unwrap()
        .closed(1)
        .wait();
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot fork")]
fn a_child_drops_an_object_though_the_parent_was_in_the_ledger() {
    let rig = Rig::new();
    let (_object, registration) = rig.object(Class::Qp);
    let mut registration = Some(registration);
    // In the child nobody will ever unlock it.
    let right = rig.source.ledger().while_locked(|| {
        in_child(|| {
            drop(registration.take());
            true
        })
    });
    assert!(right);
    assert!(registration.is_some_and(|registration| registration.counts().outstanding == 0));
}

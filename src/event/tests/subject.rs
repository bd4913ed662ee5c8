//! From a record to what it is about.

use super::super::{AsyncEventKind, Class, Subject, Token};
use super::support::Rig;

const A_TOKEN_OF_NOBODY: u64 = 0x77_0000_0001;

#[test]
fn an_event_reaches_its_object_and_is_acked_when_dropped() {
    let rig = Rig::new();
    for kind in AsyncEventKind::ALL {
        if !matches!(kind.class(), Class::Cq | Class::Qp | Class::Srq | Class::Wq) {
            continue;
        }
        let (object, registration) = rig.object(kind.class());
        rig.raise(registration.token().as_raw(), kind);
        let event = rig.next();
        assert_eq!(event.kind(), kind);
        assert!(
            matches!(event.subject(), Subject::Probe(live) if std::sync::Arc::ptr_eq(&live.object, &object))
        );
        assert_eq!(registration.counts().outstanding, 1);
        event.ack();
        assert_eq!(registration.counts().outstanding, 0);
        assert_eq!(registration.counts().acked, 1);
    }
}

#[test]
fn a_port_event_names_its_port_at_full_width() {
    let rig = Rig::new();
    for kind in AsyncEventKind::ALL
        .into_iter()
        .filter(|kind| kind.class() == Class::Port)
    {
        for port in [1, 2, 256, u32::MAX] {
            rig.raise(u64::from(port), kind);
            let event = rig.next();
            assert_eq!(event.kind(), kind);
            assert!(matches!(event.subject(), Subject::Port(found) if *found == port));
        }
        rig.raise(A_TOKEN_OF_NOBODY, kind);
        let event = rig.next();
        assert!(matches!(
            event.subject(),
            Subject::Unknown(A_TOKEN_OF_NOBODY)
        ));
    }
}

#[test]
fn a_device_event_is_about_the_device() {
    let rig = Rig::new();
    rig.raise(0, AsyncEventKind::DeviceSpeedChange);
    let event = rig.next();
    assert!(matches!(event.subject(), Subject::Device));
    assert!(!rig.status.is_gone());
}

#[test]
fn a_type_from_the_future_keeps_its_element_and_is_acked_for_the_object() {
    let rig = Rig::new();
    let (_object, registration) = rig.object(Class::Qp);
    let element = registration.token().as_raw();
    rig.raise(element, AsyncEventKind::Unknown(21));
    rig.raise(3, AsyncEventKind::Unknown(99));
    let event = rig.next();
    assert_eq!(event.kind(), AsyncEventKind::Unknown(21));
    assert!(matches!(event.subject(), Subject::Unknown(found) if *found == element));
    assert_eq!(
        (
            registration.counts().delivered,
            registration.counts().outstanding
        ),
        (1, 0)
    );
    assert!(matches!(rig.next().subject(), Subject::Unknown(3)));
}

#[test]
fn a_type_that_does_not_fit_the_object_does_not_reach_it_and_is_acked() {
    let rig = Rig::new();
    let (_object, registration) = rig.object(Class::Cq);
    let element = registration.token().as_raw();
    let strange = AsyncEventKind::ALL
        .into_iter()
        .filter(|kind| kind.class() != Class::Cq);
    for (count, kind) in (1..).zip(strange) {
        rig.raise(element, kind);
        let event = rig.next();
        assert!(
            matches!(event.subject(), Subject::Unknown(found) if *found == element),
            "{event:?}"
        );
        assert_eq!(
            (
                registration.counts().acked,
                registration.counts().outstanding
            ),
            (count, 0)
        );
    }
    assert!(
        !rig.status.is_gone(),
        "a DEVICE_FATAL about one object is none"
    );
}

#[test]
fn an_object_whose_last_handle_is_going_is_gone_and_its_event_acked() {
    let rig = Rig::new();
    let (object, registration) = rig.object(Class::Srq);
    drop(object);
    rig.raise(
        registration.token().as_raw(),
        AsyncEventKind::SrqLimitReached,
    );
    let event = rig.next();
    let token = registration.token();
    assert!(matches!(event.subject(), Subject::Gone(gone) if *gone == token));
    assert_eq!(
        (
            registration.counts().acked,
            registration.counts().outstanding
        ),
        (1, 0)
    );
}

#[test]
fn an_event_of_an_object_that_is_gone_says_so_and_of_none_of_ours_too() {
    let rig = Rig::new();
    let token = rig.object(Class::Qp).1.token();
    rig.raise(token.as_raw(), AsyncEventKind::QpLastWqeReached);
    rig.raise(A_TOKEN_OF_NOBODY, AsyncEventKind::QpFatal);
    rig.raise(0, AsyncEventKind::CqErr);
    let next = || rig.events.try_next().unwrap().unwrap();
    assert!(matches!(next().subject(), Subject::Gone(gone) if *gone == token));
    assert!(matches!(
        next().subject(),
        Subject::Unknown(A_TOKEN_OF_NOBODY)
    ));
    assert!(matches!(next().subject(), Subject::Unknown(0)));
    assert_eq!(
        Token::from_raw(A_TOKEN_OF_NOBODY).map(Token::as_raw),
        Some(A_TOKEN_OF_NOBODY)
    );
}

#[test]
fn the_object_lives_as_long_as_its_event() {
    let rig = Rig::new();
    let (object, registration) = rig.object(Class::Qp);
    let weak = std::sync::Arc::downgrade(&object);
    rig.raise(registration.token().as_raw(), AsyncEventKind::SqDrained);
    let event = rig.next();
    drop(object);
    assert!(weak.upgrade().is_some());
    std::thread::spawn(move || drop(event)).join().unwrap();
    assert!(weak.upgrade().is_none());
    assert_eq!(registration.counts().outstanding, 0);
}

#[test]
fn an_event_about_a_queue_pair_is_noted_for_those_who_post_to_it() {
    let rig = Rig::new();
    let (_object, registration) = rig.object(Class::Qp);
    let before = rig.status.error_epoch();
    rig.raise(1, AsyncEventKind::PortErr);
    drop(rig.next());
    assert_eq!(rig.status.error_epoch(), before);
    rig.raise(registration.token().as_raw(), AsyncEventKind::QpFatal);
    drop(rig.next());
    assert_ne!(rig.status.error_epoch(), before);
}

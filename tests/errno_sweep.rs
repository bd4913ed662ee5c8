//! A whole life, from opening to closing, in which every call to the kernel is refused once with
//! every error number: the refusal is told and names the command, nothing is left behind, and the
//! next life is as if nothing had been.

mod support;

use support::life::{ERRNOS, life};
use uverbs::Errno;
use uverbs::fake::Fabric;

/// What the crate takes in its stride, as it should.
fn is_expected(command: &str, errno: Errno) -> bool {
    match command {
        // That is how a driver's number is found to be the wrong one, or the right one.
        "DRIVER_PROBE" => [Errno::EINVAL, Errno::EPROTONOSUPPORT].contains(&errno),
        // The process changed its credentials: the ioctl takes over.
        "POST_SEND" => errno == Errno::EACCES,
        // Too little room: asked again with more.
        "QUERY_GID_TABLE" => errno == Errno::EINVAL,
        // Nobody is there to be told; the object goes with the open file.
        "PD_DESTROY" => true,
        _ => false,
    }
}

#[test]
fn every_call_refused_with_every_error_is_told_and_leaves_nothing() {
    let fabric = Fabric::new();
    let (device, other) = (fabric.add_device("rxe0"), fabric.add_device("rxe1"));
    life(&device, &other).unwrap();
    let calls = device.calls();
    assert!(calls.len() > 30, "{calls:?}");
    // A life takes seconds under Miri.
    let (errnos, stride) = if cfg!(miri) {
        (&ERRNOS[11..12], 5)
    } else {
        (&ERRNOS[..], 1)
    };
    for (position, command) in calls.iter().enumerate().step_by(stride) {
        for errno in errnos {
            device.forget_calls();
            device.fail_at(position, *errno);
            let outcome = life(&device, &other);
            let case = format!("{command} (call {position}) refused with {errno:?}");
            assert_eq!(device.calls().get(position), Some(command), "{case}");
            match outcome {
                Ok(()) => assert!(is_expected(command, *errno), "{case} was not told"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(!is_expected(command, *errno), "{case}: {text}");
                    assert!(text.contains(command), "{case} does not name it: {text}");
                    let named = format!("{errno:?}");
                    assert!(text.contains(&named), "{case} does not say why: {text}");
                    // To a program, too, whatever the error is wrapped into.
                    assert_eq!(Errno::of(&*error), Some(*errno), "{case}: {text}");
                }
            }
            let (live, peers) = (device.live(), other.live());
            assert!(
                live.is_nothing() && peers.is_nothing(),
                "{case} left {live:?} {peers:?}"
            );
        }
        device.clear_faults();
        life(&device, &other).unwrap_or_else(|error| panic!("after {command}: {error}"));
    }
}

#[test]
fn every_reply_that_lacks_its_outputs_is_told_and_leaves_nothing() {
    let fabric = Fabric::new();
    let (device, other) = (fabric.add_device("rxe0"), fabric.add_device("rxe1"));
    life(&device, &other).unwrap();
    let mut commands = device.calls();
    commands.sort_unstable();
    commands.dedup();
    for command in commands.into_iter().step_by(if cfg!(miri) { 4 } else { 1 }) {
        if cfg!(miri) && command == "REG_MR" {
            // The kernel may have registered the buffer, so it is leaked, as it must be.
            continue;
        }
        device.leave_unanswered(command);
        let outcome = life(&device, &other);
        device.clear_faults();
        // Commands without an output cannot lack it; the doorbell's says nothing.
        let has_none = [
            "ASYNC_EVENT_ALLOC",
            "DRIVER_PROBE",
            "MMAP",
            "MODIFY_QP",
            "MODIFY_SRQ",
            "MR_DESTROY",
            "PD_DESTROY",
            "POST_SEND",
            "REQ_NOTIFY_CQ",
        ];
        match outcome {
            Ok(()) => assert!(has_none.contains(&command), "{command} was not told"),
            Err(error) => {
                let text = error.to_string();
                let is_told = text.contains(command) && text.contains("reply is incomplete");
                assert!(is_told, "{command}: {text}");
            }
        }
        let live = device.live();
        assert!(
            live.is_nothing() && other.live().is_nothing(),
            "{command} left {live:?}"
        );
    }
    life(&device, &other).unwrap();
}

#[test]
fn a_removal_before_any_call_is_told_and_leaves_nothing() {
    let fabric = Fabric::new();
    let (device, other) = (fabric.add_device("rxe0"), fabric.add_device("rxe1"));
    life(&device, &other).unwrap();
    let count = device.calls().len();
    for position in (1..count).step_by(if cfg!(miri) { 9 } else { 1 }) {
        let fabric = Fabric::new();
        let (device, other) = (fabric.add_device("rxe0"), fabric.add_device("rxe1"));
        device.remove_at(position);
        // The last calls are destroys, which a removed device answers.
        if let Err(error) = life(&device, &other) {
            let text = error.to_string();
            assert!(
                text.contains("the device is gone"),
                "at call {position}: {text}"
            );
        }
        assert!(device.live().is_nothing() && other.live().is_nothing());
    }
}

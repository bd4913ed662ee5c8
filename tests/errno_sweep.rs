//! A whole life, from opening to closing, in which every call to the kernel is refused once with
//! every error number: the refusal is told and names the command, nothing is left behind, and the
//! next life is as if nothing had been.

mod support;

use std::error::Error;

use support::End;
use uverbs::fake::{Fabric, FakeDevice};
use uverbs::{
    AccessFlags, Arm, ConnectOptions, Errno, PathOptions, QpAttr, QpState, Rc, RecvWr, SendWr, Wc,
};

/// Everything that uverbs and rxe answer a refusal with.
const ERRNOS: [Errno; 20] = [
    Errno::EPERM,
    Errno::ENOENT,
    Errno::EINTR,
    Errno::EIO,
    Errno::EBADF,
    Errno::EAGAIN,
    Errno::ENOMEM,
    Errno::EACCES,
    Errno::EFAULT,
    Errno::EBUSY,
    Errno::ENODEV,
    Errno::EINVAL,
    Errno::ENOTTY,
    Errno::ENOSPC,
    Errno::ENOSYS,
    Errno::EPROTONOSUPPORT,
    Errno::EOPNOTSUPP,
    Errno::ENETUNREACH,
    Errno::ETIMEDOUT,
    Errno::EHOSTUNREACH,
];

/// Uses every command that the crate has.
fn life(device: &FakeDevice, other: &FakeDevice) -> Result<(), Box<dyn Error>> {
    let peer = End::new(other);
    let room = peer.pd.allocate(64, AccessFlags::LOCAL_WRITE)?;
    peer.qp.post_recv(&[RecvWr::new(1, &[room.slice(..)?])])?;

    let context = device.open()?;
    context.query_device()?;
    context.query_gid(1, 0)?;
    let pd = context.alloc_pd()?;
    let region = pd.allocate(64, AccessFlags::LOCAL_WRITE)?;
    let cq = context.create_cq(4).build()?;
    let srq = pd.create_srq(4).build()?;
    srq.post_recv(&[RecvWr::new(2, &[region.slice(..)?])])?;
    srq.set_limit(1)?;
    srq.query()?;
    let plain = pd.create_qp::<Rc>(&cq, &cq).build()?;
    plain.modify(&QpAttr {
        port: Some(1),
        pkey_index: Some(0),
        access: Some(AccessFlags::empty()),
        ..QpAttr::to_state(QpState::Init)
    })?;
    let qp = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build()?;
    let here = qp.prepare(&PathOptions::default())?;
    qp.connect(&here, &peer.endpoint, &ConnectOptions::default())?;
    peer.qp
        .connect(&peer.endpoint, &here, &ConnectOptions::default())?;
    cq.arm(Arm::Next)?;
    qp.post_send(&[SendWr::send(3, &[region.slice(..5)?]).signaled()])?;
    let mut completions = [Wc::default(); 2];
    assert_eq!(cq.poll(&mut completions)?.len(), 1);
    assert_eq!(peer.status().0, 1);
    qp.modify(&QpAttr::to_state(QpState::Err))?;
    assert_eq!(qp.state()?, QpState::Err);
    while context.events().try_next()?.is_some() {}

    qp.destroy()?;
    plain.destroy()?;
    srq.destroy()?;
    cq.destroy()?;
    region.into_inner()?;
    assert_eq!(context.leaked_bytes(), 0);
    Ok(())
}

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

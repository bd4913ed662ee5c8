//! Asynchronous events on the fake kernel: raised by the work itself and by hand, counted, dropped
//! with their objects; and the device that goes away.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::time::Duration;

use support::{End, Pair, pair, pattern};
use uverbs::event::EventError;
use uverbs::fake::Fabric;
use uverbs::{
    AccessFlags, AsyncEventKind, Cause, ConnectOptions, DestroyErrorCause, PollError, PostCause,
    QpAttr, QpState, RecvWr, SendWr, Subject, WcStatus,
};

/// The kinds of all events that are there.
fn drain(end: &End) -> Vec<AsyncEventKind> {
    let reader = end.context.events();
    let mut kinds = Vec::new();
    while let Some(event) = reader.try_next().unwrap() {
        kinds.push(event.kind());
    }
    kinds
}

#[test]
fn every_kind_arrives_with_its_subject() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let (end, srq) = End::with_srq(&device, 4);
    let reader = end.context.events();
    for kind in AsyncEventKind::ALL {
        let name = kind.name();
        if name.starts_with("CQ") {
            assert!(device.raise_cq(&end.cq, kind));
        } else if name.starts_with("SRQ") {
            assert!(device.raise_srq(&srq, kind));
        } else if name.starts_with("QP")
            || ["COMM_EST", "SQ_DRAINED", "PATH_MIG", "PATH_MIG_ERR"].contains(&name)
        {
            assert!(device.raise_qp(&end.qp, kind));
        } else if name == "WQ_FATAL" || name == "DEVICE_FATAL" {
            // rxe has no work queue (`fake_bare.rs` has), and the device is needed still.
            continue;
        } else if name.starts_with("DEVICE") {
            device.raise_device(kind);
        } else {
            device.raise_port(kind, 1);
        }
        let event = reader.try_next().unwrap().expect(name);
        assert_eq!(event.kind(), kind);
        let fits = match event.subject() {
            Subject::Cq(cq) => *cq == end.cq,
            Subject::Srq(found) => *found == srq,
            Subject::Qp(qp) => *qp == end.qp.to_any(),
            Subject::Port(port) => *port == 1,
            Subject::Device => name.starts_with("DEVICE"),
            _ => false,
        };
        assert!(fits, "{name}: {:?}", event.subject());
    }
    // What no kernel has, and what does not fit.
    device.raise_raw(5, 4711);
    let event = reader.try_next().unwrap().unwrap();
    assert!(matches!(event.subject(), Subject::Unknown(5)));
    assert!(device.raise_qp(&end.qp, AsyncEventKind::CqErr));
    let event = reader.try_next().unwrap().unwrap();
    assert!(matches!(event.subject(), Subject::Unknown(_)));
    drop(event);
    end.qp.destroy().unwrap();
}

#[test]
fn the_kernel_counts_what_was_read_and_drops_the_rest() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let end = End::new(&device);
    let reader = end.context.events();
    for _ in 0..3 {
        device.raise_qp(&end.qp, AsyncEventKind::CommEst);
        device.raise_cq(&end.cq, AsyncEventKind::CqErr);
        device.raise_port(AsyncEventKind::SmChange, 1);
    }
    let held: Vec<_> = (0..4)
        .map(|_| reader.try_next().unwrap().unwrap())
        .collect();
    let of_qp = end.qp.event_counts();
    assert_eq!((of_qp.delivered, of_qp.outstanding), (2, 2));
    let refused = end.qp.clone().try_destroy().unwrap_err();
    assert_eq!(
        refused.cause,
        DestroyErrorCause::Outstanding { outstanding: 2 }
    );
    let refused = end.qp.clone().destroy_timeout(Duration::from_millis(1));
    let cause = refused.unwrap_err().cause;
    assert_eq!(cause, DestroyErrorCause::StillHeld { outstanding: 2 });
    drop(held);
    // The third event of the queue pair went with it; the others are there, in their order.
    let (cq, port) = (AsyncEventKind::CqErr, AsyncEventKind::SmChange);
    assert_eq!(drain(&end), [cq, port, cq, port]);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of events take long")]
fn more_events_than_a_pipe_holds_are_kept() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let end = End::new(&device);
    const COUNT: usize = 10_000;
    for _ in 0..COUNT {
        device.raise_qp(&end.qp, AsyncEventKind::CommEst);
    }
    let reader = end.context.events();
    let mut seen = 0;
    while seen < COUNT {
        match reader.try_next().unwrap() {
            Some(_) => seen += 1,
            // What had no room comes with the next call, whatever it is.
            None => drop(end.context.query_port(1).unwrap()),
        }
    }
    assert!(reader.try_next().unwrap().is_none());
    end.qp.destroy().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn a_reader_that_waits_is_woken() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let end = End::new(&device);
    let reader = end.context.events();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| reader.next().unwrap().kind());
        std::thread::sleep(Duration::from_millis(20));
        device.set_port_up(false);
        assert_eq!(waiting.join().unwrap(), AsyncEventKind::PortErr);
    });
    let End {
        context,
        pd,
        cq,
        qp,
        ..
    } = end;
    drop((context, pd, cq, qp));
    // The device is closed, and the reader is told, by us: the kernel would never.
    assert!(matches!(reader.next(), Err(EventError::ContextClosed)));
    assert!(device.live().is_nothing());
}

#[test]
fn the_sending_side_drains() {
    let Pair { fabric, a, b } = pair();
    let sqd = QpAttr::to_state(QpState::Sqd);
    a.qp.modify(&sqd).unwrap();
    assert_eq!(drain(&a), [AsyncEventKind::SqDrained]);
    let room = b.pd.allocate(8, AccessFlags::LOCAL_WRITE).unwrap();
    let sge = [room.slice(..).unwrap()];
    a.qp.post_send(&[SendWr::send_inline(1, b"later").signaled()])
        .unwrap();
    b.qp.post_recv(&[RecvWr::new(2, &sge)]).unwrap();
    fabric.step();
    a.nothing();
    a.qp.modify(&QpAttr::to_state(QpState::Rts)).unwrap();
    assert_eq!(a.status(), (1, WcStatus::Success));

    // What has begun is brought to its end first, and nothing behind it begins.
    let wrs = [
        SendWr::send_inline(3, b"begun").signaled(),
        SendWr::send_inline(4, b"not"),
    ];
    a.qp.post_send(&wrs).unwrap();
    a.qp.modify(&sqd).unwrap();
    assert_eq!(drain(&a), []);
    assert!(a.qp.query().unwrap().sq_draining);
    b.qp.post_recv(&[RecvWr::new(5, &sge), RecvWr::new(6, &sge)])
        .unwrap();
    fabric.step();
    assert_eq!(a.completions(), [(3, WcStatus::Success)]);
    assert_eq!(drain(&a), [AsyncEventKind::SqDrained]);
    assert_eq!(b.completions().len(), 2);
}

#[test]
fn a_shared_receive_queue_warns_once_and_a_failed_queue_pair_lets_go_of_it() {
    let fabric = Fabric::new();
    let (a, b) = (fabric.add_device("a"), fabric.add_device("b"));
    let a = End::new(&a);
    let (b, srq) = End::with_srq(&b, 8);
    a.connect(&b, &ConnectOptions::default());
    b.connect(&a, &ConnectOptions::default());
    let room = b.pd.allocate(64, AccessFlags::LOCAL_WRITE).unwrap();
    for id in 0..4usize {
        let sge = [room.slice(id * 16..id * 16 + 16).unwrap()];
        srq.post_recv(&[RecvWr::new(id as u64, &sge)]).unwrap();
    }
    srq.set_limit(3).unwrap();
    assert_eq!(srq.query().unwrap().limit, 3);
    for id in 0..3 {
        let text = pattern(10, id);
        a.qp.post_send(&[SendWr::send_inline(u64::from(id), &text).signaled()])
            .unwrap();
        assert_eq!(a.status().1, WcStatus::Success);
        assert_eq!(b.status(), (u64::from(id), WcStatus::Success));
        let start = usize::from(id) * 16;
        assert_eq!(room.to_vec(start..start + 10).unwrap(), text);
        // 3 are left after the first, which is not fewer than 3.
        let limit = [AsyncEventKind::SrqLimitReached];
        assert_eq!(drain(&b), if id == 1 { &limit[..] } else { &[] });
    }
    assert_eq!(srq.query().unwrap().limit, 0);
    let error = b.qp.post_recv(&[]).unwrap_err();
    assert_eq!(error.cause, PostCause::UsesSharedReceiveQueue);
    b.qp.modify(&QpAttr::to_state(QpState::Err)).unwrap();
    assert_eq!(drain(&b), [AsyncEventKind::QpLastWqeReached]);
    // What is posted stays in the shared queue.
    b.nothing();
    assert!(srq.set_limit(100).is_err());
}

#[test]
fn addresses_and_ports_come_and_go_with_events() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let end = End::new(&device);
    let address = "10.9.9.9".parse().unwrap();
    device.add_address(address);
    let found = end.context.find_gid(1, address.into()).unwrap().unwrap();
    assert_eq!(found.index, 3);
    assert!(device.remove_address(address));
    assert!(!device.remove_address(address));
    assert_eq!(end.context.find_gid(1, address.into()).unwrap(), None);
    assert_eq!(end.context.query_gid(1, 3).unwrap(), None);
    device.set_port_up(false);
    assert_eq!(
        end.context.query_port(1).unwrap().state,
        uverbs::PortState::Down
    );
    device.set_port_up(true);
    device.set_port_up(true);
    assert_eq!(
        drain(&end),
        [
            AsyncEventKind::GidChange,
            AsyncEventKind::GidChange,
            AsyncEventKind::PortErr,
            AsyncEventKind::PortActive,
        ]
    );
}

#[test]
fn a_removed_device_says_so_once_and_lets_everything_be_destroyed() {
    let Pair { a, b, .. } = pair();
    let region = a.pd.allocate(64, AccessFlags::LOCAL_WRITE).unwrap();
    let room = b.pd.allocate(64, AccessFlags::LOCAL_WRITE).unwrap();
    b.qp.post_recv(&[RecvWr::new(2, &[room.slice(..).unwrap()])])
        .unwrap();
    a.qp.post_send(&[SendWr::send_inline(1, b"last words").signaled()])
        .unwrap();
    let reader = a.context.events();
    a.device.raise_qp(&a.qp, AsyncEventKind::CommEst);
    let held = reader.try_next().unwrap().unwrap();
    a.device.raise_qp(&a.qp, AsyncEventKind::CommEst);
    a.device.raise_port(AsyncEventKind::PkeyChange, 1);

    a.device.remove();
    a.device.remove();
    // The queue keeps its last contents.
    assert_eq!(a.status(), (1, WcStatus::Success));
    // The port's event is still there, the object's is not, and then comes the end.
    assert_eq!(
        reader.try_next().unwrap().unwrap().kind(),
        AsyncEventKind::PkeyChange
    );
    assert!(!a.context.is_gone());
    assert_eq!(
        reader.try_next().unwrap().unwrap().kind(),
        AsyncEventKind::DeviceFatal
    );
    assert!(a.context.is_gone());
    assert!(matches!(reader.try_next(), Err(EventError::DeviceGone)));

    let error = a.context.query_port(1).unwrap_err();
    assert_eq!(error.source.cause, Cause::DeviceGone);
    let post = a.qp.post_send(&[SendWr::send_inline(3, b"")]).unwrap_err();
    assert_eq!(post.cause, PostCause::DeviceGone);
    assert_eq!(
        a.cq.poll(&mut [uverbs::Wc::default()]),
        Err(PollError::DeviceGone)
    );

    // The true count comes with the destroy, which succeeds once.
    let late = a.qp.clone().destroy_timeout(Duration::from_millis(1));
    assert_eq!(
        late.unwrap_err().cause,
        DestroyErrorCause::StillHeld { outstanding: 1 }
    );
    drop(held);
    assert_eq!(
        a.qp.clone().destroy().unwrap_err().cause,
        DestroyErrorCause::Destroyed
    );
    a.cq.destroy().unwrap();
    region.into_inner().unwrap();
    let context = a.context.clone();
    drop((a.qp, a.pd, a.context));
    assert_eq!(context.leaked_bytes(), 0);
    drop((context, reader));
    assert!(a.device.live().is_nothing());
    let error = a.device.open().unwrap_err();
    assert!(error.to_string().contains("the device is gone"), "{error}");

    // For the other end, nobody answers.
    b.qp.post_send(&[SendWr::send_inline(4, b"are you there?")])
        .unwrap();
    assert_eq!(b.completions().last(), Some(&(4, WcStatus::RetryExceeded)));
}

#[test]
fn a_call_that_finds_the_device_gone_ends_everything() {
    let Pair { a, .. } = pair();
    a.device.remove();
    let post = a.qp.post_send(&[SendWr::send_inline(3, b"")]).unwrap_err();
    assert_eq!((post.accepted, post.cause), (1, PostCause::DeviceGone));
    assert!(a.context.is_gone());
    let kinds: Vec<_> = std::iter::from_fn(|| a.context.events().try_next().ok().flatten())
        .map(|event| event.kind())
        .collect();
    assert_eq!(kinds, [AsyncEventKind::DeviceFatal]);
}

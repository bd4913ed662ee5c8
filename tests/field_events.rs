//! What went wrong for people who use asynchronous events, tried on the fake kernel. Each test
//! proves one sentence; which report it answers is in `docs/field-reports.md`.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use support::{End, pair};
use uverbs::event::EventError;
use uverbs::fake::Fabric;
use uverbs::{
    AccessFlags, AsyncEventKind, Cause, CreateErrorCause, DestroyErrorCause, ProviderCreateError,
    QpAttr, QpState, Rc, RecvWr, SendWr, Subject, WcStatus,
};

const TOO_LONG: Duration = Duration::from_secs(20);

#[test]
fn an_event_handed_to_another_thread_keeps_its_object_until_that_thread_is_done() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let end = End::new(&device);
    let events = end.context.events();
    assert!(device.raise_qp(&end.qp, AsyncEventKind::QpFatal));
    let (to_worker, received) = mpsc::channel();
    let (started, has_started) = mpsc::channel();
    let is_done = Arc::new(AtomicU32::new(0));
    let worker = {
        let is_done = Arc::clone(&is_done);
        thread::spawn(move || {
            let event: uverbs::AsyncEvent = received.recv().unwrap();
            started.send(()).unwrap();
            thread::sleep(Duration::from_millis(100));
            let Subject::Qp(qp) = event.subject() else {
                panic!("{event:?}");
            };
            // The kernel's object is gone by now; what leads to it is not.
            let num = qp.qp_num();
            is_done.store(num.0, Ordering::SeqCst);
        })
    };
    to_worker.send(events.next().unwrap()).unwrap();
    has_started.recv_timeout(TOO_LONG).unwrap();
    let num = end.qp.qp_num().0;
    end.qp.destroy().unwrap();
    assert_eq!(is_done.load(Ordering::SeqCst), num, "destroyed too early");
    worker.join().unwrap();
    assert!(events.try_next().unwrap().is_none(), "an event came after");
}

#[test]
fn completions_and_events_may_both_finish_a_teardown_and_it_happens_once() {
    let rounds = if cfg!(miri) { 3 } else { 200 };
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    for _ in 0..rounds {
        let (end, srq) = End::with_srq(&device, 64);
        let region = end.pd.allocate(8, AccessFlags::LOCAL_WRITE).unwrap();
        let sge = [region.slice(..).unwrap()];
        for wr_id in 0..4 {
            srq.post_recv(&[RecvWr::new(wr_id, &sge)]).unwrap();
        }
        device.forget_calls();
        end.qp.modify(&QpAttr::to_state(QpState::Err)).unwrap();
        let go = Arc::new(Barrier::new(2));
        let by_completion = {
            let (qp, go) = (end.qp.clone(), Arc::clone(&go));
            thread::spawn(move || {
                go.wait();
                drop(qp);
            })
        };
        let event = end.context.events().next().unwrap();
        assert_eq!(event.kind(), AsyncEventKind::QpLastWqeReached);
        let by_event = {
            let qp = end.qp;
            thread::spawn(move || {
                go.wait();
                drop(qp);
                drop(event);
            })
        };
        by_completion.join().unwrap();
        by_event.join().unwrap();
        let destroys = |name: &&&str| **name == "QP_DESTROY";
        assert_eq!(device.calls().iter().filter(destroys).count(), 1);
    }
    assert_eq!(device.live().qps, 0);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn late_events_of_queue_pairs_in_teardown_are_dropped_quietly_and_hold_nothing_up() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let (first, srq) = End::with_srq(&device, 64);
    let events = first.context.events();
    let count = if cfg!(miri) { 4 } else { 32 };
    let (pd, cq) = (&first.pd, &first.cq);
    let qps: Vec<_> = (0..count)
        .map(|_| pd.create_qp::<Rc>(cq, cq).srq(&srq).build().unwrap())
        .collect();
    for qp in &qps {
        assert!(device.raise_qp(qp, AsyncEventKind::QpLastWqeReached));
    }
    let reader = {
        let events = events.clone();
        thread::spawn(move || {
            let mut seen = 0;
            while let Ok(event) = events.next() {
                assert_eq!(event.kind(), AsyncEventKind::QpLastWqeReached);
                let fits = matches!(event.subject(), Subject::Qp(_) | Subject::Gone(_));
                assert!(fits, "{event:?}");
                seen += 1;
            }
            seen
        })
    };
    let began = Instant::now();
    let (dropped, destroyed): (Vec<_>, Vec<_>) =
        qps.into_iter().enumerate().partition(|(n, _)| n % 2 == 0);
    drop(dropped);
    for (_, qp) in destroyed {
        qp.destroy().unwrap();
    }
    assert!(began.elapsed() < TOO_LONG);
    events.stop();
    assert!(reader.join().unwrap() <= count);
}

#[test]
fn an_event_that_a_newer_kernel_adds_holds_up_no_teardown() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let end = End::new(&device);
    // Ignored: unread, it goes with its object.
    assert!(device.raise_qp(&end.qp, AsyncEventKind::QpAccessErr));
    drop(end);
    assert!(device.live().is_nothing());
    // Read, and never acked before its object goes.
    let end = End::new(&device);
    let events = end.context.events();
    assert!(device.raise_qp(&end.qp, AsyncEventKind::QpAccessErr));
    let event = events.next().unwrap();
    drop(end);
    assert_eq!(device.live().qps, 1, "held by its event");
    drop((event, events));
    assert!(device.live().is_nothing());
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn a_reader_is_stopped_though_no_event_ever_comes_and_the_context_is_dropped() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    for round in 0..200 {
        let context = device.open().unwrap();
        let events = context.events();
        let stop = events.clone();
        let reader = thread::spawn(move || events.next().unwrap_err());
        if round % 2 == 0 {
            stop.stop();
            drop(context);
            assert_eq!(reader.join().unwrap(), EventError::Stopped);
        } else {
            drop((context, stop));
            assert_eq!(reader.join().unwrap(), EventError::ContextClosed);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn a_reader_may_be_stopped_by_the_thread_that_handles_its_event() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let end = End::new(&device);
    let events = end.context.events();
    assert!(device.raise_qp(&end.qp, AsyncEventKind::CommEst));
    let event = events.next().unwrap();
    // From inside of the handling, with the event in hand.
    events.stop();
    assert_eq!(events.next().unwrap_err(), EventError::Stopped);
    drop(event);
    end.qp.try_destroy().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no epoll with pipes")]
fn of_two_who_wait_on_the_same_file_one_gets_the_event_and_the_other_is_told_none() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let context = device.open().unwrap();
    let got = Arc::new(AtomicU32::new(0));
    let go = Arc::new(Barrier::new(2));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (events, got, go) = (context.events(), Arc::clone(&got), Arc::clone(&go));
            thread::spawn(move || {
                let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
                let wanted = EpollEvent::new(EpollFlags::EPOLLIN, 1);
                epoll.add(events.as_fd(), wanted).unwrap();
                let mut ready = [EpollEvent::empty()];
                let timeout = EpollTimeout::from(20_000u16);
                assert_eq!(epoll.wait(&mut ready, timeout).unwrap(), 1);
                // Both have seen that it is readable.
                go.wait();
                // Neither an error nor a wait.
                if events.try_next().unwrap().is_some() {
                    got.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    device.raise_port(AsyncEventKind::PortErr, 1);
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(got.load(Ordering::SeqCst), 1);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no epoll with pipes")]
fn one_edge_is_enough_for_all_events_if_they_are_drained() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let context = device.open().unwrap();
    let events = context.events();
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
    let wanted = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 1);
    epoll.add(events.as_fd(), wanted).unwrap();
    let wait = || {
        let mut ready = [EpollEvent::empty()];
        epoll.wait(&mut ready, EpollTimeout::ZERO).unwrap()
    };
    assert_eq!(wait(), 0);
    for _ in 0..5 {
        device.raise_port(AsyncEventKind::GidChange, 1);
    }
    assert_eq!(wait(), 1);
    let mut drained = 0;
    while events.try_next().unwrap().is_some() {
        drained += 1;
    }
    assert_eq!((drained, wait()), (5, 0));
    device.raise_port(AsyncEventKind::GidChange, 1);
    assert_eq!(wait(), 1, "the next edge is seen");
}

#[test]
fn whoever_reads_a_port_event_is_told_which_port() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let context = device.open().unwrap();
    let readers = [context.events(), context.events()];
    for port in [1, 2, 2, 1] {
        device.raise_port(AsyncEventKind::PortErr, port);
        let reader = &readers[usize::try_from(port).unwrap() % 2];
        let event = reader.try_next().unwrap().unwrap();
        assert!(matches!(event.subject(), Subject::Port(found) if *found == port));
    }
}

#[test]
fn after_a_gid_change_a_query_tells_whether_the_address_in_use_is_still_there() {
    let pair = pair();
    let device = &pair.a.device;
    let events = pair.a.context.events();
    let in_use = pair.a.context.routable_gid(1).unwrap().unwrap();
    // An address that has nothing to do with it: an event, and nothing else.
    let other = IpAddr::from([10, 0, 9, 9]);
    device.add_address(other);
    let event = events.try_next().unwrap().unwrap();
    assert_eq!(event.kind(), AsyncEventKind::GidChange);
    let now = pair.a.context.find_gid(1, in_use.gid).unwrap();
    assert_eq!(now, Some(in_use), "unchanged");
    let region = pair.b.pd.allocate(8, AccessFlags::LOCAL_WRITE).unwrap();
    let sge = [region.slice(..).unwrap()];
    pair.b.qp.post_recv(&[RecvWr::new(2, &sge)]).unwrap();
    let send = SendWr::send_inline(1, b"hello").signaled();
    pair.a.qp.post_send(&[send]).unwrap();
    assert_eq!(pair.a.status(), (1, WcStatus::Success));
    // The address itself.
    let own = pair
        .a
        .context
        .find_gid(1, IpAddr::from([10, 0, 0, 1]).into());
    let own = own.unwrap().unwrap();
    assert!(device.remove_address(IpAddr::from([10, 0, 0, 1])));
    let event = events.try_next().unwrap().unwrap();
    assert_eq!(event.kind(), AsyncEventKind::GidChange);
    assert_eq!(pair.a.context.find_gid(1, own.gid).unwrap(), None, "gone");
}

#[test]
fn whatever_fails_around_a_removal_says_that_the_device_is_gone() {
    let fabric = Fabric::new();
    let rounds = if cfg!(miri) { 2 } else { 30 };
    for round in 0..rounds {
        let device = fabric.add_device("rxe0");
        let context = device.open().unwrap();
        let worker = thread::spawn(move || -> Result<(), String> {
            let gone = |what: &str, cause| match cause {
                CreateErrorCause::Refused(ProviderCreateError::Command(error))
                    if error.cause == Cause::DeviceGone =>
                {
                    Ok(())
                }
                other => Err(format!("{what}: {other}")),
            };
            loop {
                let pd = match context.alloc_pd() {
                    Err(error) if error.source.cause == Cause::DeviceGone => return Ok(()),
                    pd => pd.map_err(|error| error.to_string())?,
                };
                let cq = match context.create_cq(4).build() {
                    Err(error) => return gone("cq", error.cause),
                    Ok(cq) => cq,
                };
                let qp = match pd.create_qp::<Rc>(&cq, &cq).build() {
                    Err(error) => return gone("qp", error.cause),
                    Ok(qp) => qp,
                };
                // A destroy is answered all the same.
                qp.destroy().map_err(|error| error.to_string())?;
                cq.destroy().map_err(|error| error.to_string())?;
            }
        });
        thread::sleep(Duration::from_micros(100 * round));
        device.remove();
        assert_eq!(worker.join().unwrap(), Ok(()));
        assert_eq!(device.live().objects(), 0);
    }
}

#[test]
fn one_thread_that_holds_an_event_and_gives_up_its_object_never_hangs_silently() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let end = End::new(&device);
    let events = end.context.events();
    assert!(device.raise_qp(&end.qp, AsyncEventKind::CommEst));
    let event = events.try_next().unwrap().unwrap();
    // `try_destroy` refuses before the kernel is asked, and says how many are out.
    device.forget_calls();
    let error = end.qp.try_destroy().unwrap_err();
    let one = DestroyErrorCause::Outstanding { outstanding: 1 };
    assert_eq!(error.cause, one);
    assert!(device.calls().is_empty(), "{:?}", device.calls());
    // `destroy_timeout` comes back and says so too.
    let qp = error.into_object().unwrap();
    let error = qp.destroy_timeout(Duration::from_millis(20)).unwrap_err();
    let one = DestroyErrorCause::StillHeld { outstanding: 1 };
    assert_eq!(error.cause, one);
    drop(event);
    // And a drop never waits: here the event is the last that keeps the queue pair.
    let end = End::new(&device);
    let events = end.context.events();
    assert!(device.raise_qp(&end.qp, AsyncEventKind::CommEst));
    let event = events.try_next().unwrap().unwrap();
    drop(end);
    drop(event);
    drop(events);
    assert_eq!(device.live().qps, 0);
}

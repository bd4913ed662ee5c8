//! Requests that fail on the fake kernel: what each end is told, and what becomes of the rest.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use support::{End, Pair, pair, pair_with, rnr_retry};
use uverbs::fake::Fabric;
use uverbs::{
    AccessFlags, AsyncEventKind, ConnectOptions, MemoryRegion, PathOptions, QpAttr, QpState,
    QueuePair, Rc, RecvWr, RemoteAddr, Rkey, SendWr, Subject, Wc, WcStatus,
};

/// What peers may do in most tests.
fn all() -> AccessFlags {
    AccessFlags::LOCAL_WRITE
        | AccessFlags::REMOTE_WRITE
        | AccessFlags::REMOTE_READ
        | AccessFlags::REMOTE_ATOMIC
}

/// Posts one request that fails with `status`, with another behind it, and gives the other end's
/// completions.
fn fails(pair: &Pair, wr: SendWr<'_>, status: WcStatus) -> Vec<(u64, WcStatus)> {
    let Pair { a, b, .. } = pair;
    a.qp.post_send(&[wr, SendWr::send_inline(99, b"behind it")])
        .unwrap();
    assert_eq!(
        a.completions(),
        [(wr.wr_id, status), (99, WcStatus::WrFlushed)]
    );
    assert_eq!(a.qp.state().unwrap(), QpState::Err);
    // What is posted now is flushed as well.
    a.qp.post_send(&[SendWr::send_inline(100, b"late")])
        .unwrap();
    let region = a.pd.allocate(8, AccessFlags::LOCAL_WRITE).unwrap();
    a.qp.post_recv(&[RecvWr::new(101, &[region.slice(..).unwrap()])])
        .unwrap();
    let flushed = [(100, WcStatus::WrFlushed), (101, WcStatus::WrFlushed)];
    assert_eq!(a.completions(), flushed);
    b.completions()
}

#[test]
fn what_is_wrong_here_fails_here() {
    let pair1 = pair();
    let gone = pair1.a.pd.allocate(8, AccessFlags::empty()).unwrap();
    let sge = [gone.slice(..).unwrap()];
    drop(gone);
    let wr = SendWr::send(1, &sge);
    assert_eq!(fails(&pair1, wr, WcStatus::LocalProtectionError), []);

    let pair2 = pair();
    let read_only = pair2.a.pd.allocate(8, AccessFlags::empty()).unwrap();
    let theirs = pair2.b.pd.allocate(8, all()).unwrap();
    let sge = [read_only.slice(..).unwrap()];
    let wr = SendWr::read(1, &sge, theirs.remote(0).unwrap());
    assert_eq!(fails(&pair2, wr, WcStatus::LocalProtectionError), []);

    // A region of another protection domain.
    let pair3 = pair();
    let other = pair3.a.context.alloc_pd().unwrap();
    let region = other.allocate(8, AccessFlags::empty()).unwrap();
    let sge = [region.slice(..).unwrap()];
    assert_eq!(
        fails(
            &pair3,
            SendWr::send(1, &sge),
            WcStatus::LocalProtectionError
        ),
        []
    );
}

#[test]
fn what_the_peer_refuses_fails_at_both_ends() {
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ;
    for (place, wrong) in [(0, 0), (57, 0), (usize::MAX, 0), (0, 0x100)] {
        let pair = pair();
        let theirs = pair.b.pd.allocate(64, access).unwrap();
        let ours = pair.a.pd.allocate(8, AccessFlags::LOCAL_WRITE).unwrap();
        let sge = [ours.slice(..).unwrap()];
        let there = theirs.remote(0).unwrap();
        let remote = RemoteAddr {
            addr: there.addr.wrapping_add(place as u64),
            rkey: Rkey(there.rkey.0 ^ wrong),
        };
        let wr = match (place, wrong) {
            // No right to write.
            (0, 0) => SendWr::write(1, &sge, remote),
            _ => SendWr::read(1, &sge, remote),
        };
        assert_eq!(fails(&pair, wr, WcStatus::RemoteAccessError), []);
        assert_eq!(pair.b.qp.state().unwrap(), QpState::Err);
    }
    let pair1 = pair();
    let theirs = pair1.b.pd.allocate(64, all()).unwrap();
    let ours = pair1.a.pd.allocate(8, AccessFlags::LOCAL_WRITE).unwrap();
    let odd = theirs.remote(4).unwrap();
    let wr = SendWr::fetch_add(1, ours.slice(..).unwrap(), odd, 1);
    assert_eq!(fails(&pair1, wr, WcStatus::RemoteInvalidRequest), []);
}

/// With a queue of completions that would show every one too many.
#[test]
fn of_a_queue_pair_that_is_its_own_peer_each_request_fails_once_and_says_why() {
    let depth = if cfg!(miri) { 24 } else { 512 };
    let fails = |recv_len: usize, post: &dyn Fn(&MemoryRegion, &QueuePair<Rc>)| {
        let context = Fabric::new().add_device("rxe0").open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(depth).build().unwrap();
        let qp: QueuePair<Rc> = pd
            .create_qp(&cq, &cq)
            .max_send_wr(if cfg!(miri) { 5 } else { 64 })
            .build()
            .unwrap();
        let here = qp.prepare(&PathOptions::default()).unwrap();
        qp.connect(&here, &here, &ConnectOptions::default())
            .unwrap();
        let region = pd.allocate(64, all()).unwrap();
        let room = [region.slice(..recv_len).unwrap()];
        let recv = [RecvWr::new(7, &room), RecvWr::new(8, &room)];
        qp.post_recv(&recv).unwrap();
        post(&region, &qp);
        assert_eq!(qp.state().unwrap(), QpState::Err);
        let mut found = vec![Wc::default(); depth as usize];
        let found = cq.poll(&mut found).unwrap();
        found
            .iter()
            .map(|wc| (wc.wr_id, wc.status))
            .collect::<Vec<_>>()
    };
    let flushed = |id| (id, WcStatus::WrFlushed);
    let written = fails(64, &|region, qp| {
        let past = RemoteAddr {
            addr: region.addr() + 60,
            rkey: region.rkey(),
        };
        let sge = [region.slice(..8).unwrap()];
        let behind = SendWr::send_inline(3, b"");
        qp.post_send(&[SendWr::write(2, &sge, past), behind])
            .unwrap();
    });
    let refused = (2, WcStatus::RemoteAccessError);
    assert_eq!(written, [refused, flushed(3), flushed(7), flushed(8)]);
    let sent = fails(4, &|region, qp| {
        let sge = [region.slice(..8).unwrap()];
        let behind = SendWr::send_inline(3, b"");
        qp.post_send(&[SendWr::send(2, &sge), behind]).unwrap();
    });
    let (theirs, ours) = (
        (7, WcStatus::LocalQpOperationError),
        (2, WcStatus::RemoteOperationError),
    );
    assert_eq!(sent, [theirs, ours, flushed(3), flushed(8)]);
}

#[test]
fn a_queue_pair_without_the_right_serves_nobody() {
    let fabric = Fabric::new();
    let (a, b) = (
        End::new(&fabric.add_device("a")),
        End::new(&fabric.add_device("b")),
    );
    let access = QpAttr {
        access: Some(AccessFlags::empty()),
        ..QpAttr::default()
    };
    b.qp.modify(&access).unwrap();
    a.connect(&b, &ConnectOptions::default());
    b.connect(&a, &ConnectOptions::default());
    let theirs = b.pd.allocate(8, all()).unwrap();
    let pair = Pair { fabric, a, b };
    let wr = SendWr::write_inline(1, b"no", theirs.remote(0).unwrap());
    assert_eq!(fails(&pair, wr, WcStatus::RemoteInvalidRequest), []);
}

#[test]
fn a_receive_that_is_too_short_or_not_writable_fails_at_both_ends() {
    for (length, access) in [(4, AccessFlags::LOCAL_WRITE), (64, AccessFlags::empty())] {
        let pair = pair();
        let room = pair.b.pd.allocate(length, access).unwrap();
        let sge = [room.slice(..).unwrap()];
        let recv = [RecvWr::new(7, &sge), RecvWr::new(8, &sge)];
        pair.b.qp.post_recv(&recv).unwrap();
        let wr = SendWr::send_inline(1, b"longer");
        // In rxe's words, as `errors::message_longer_than_its_receive` finds them.
        let seen = fails(&pair, wr, WcStatus::RemoteOperationError);
        let theirs = (7, WcStatus::LocalQpOperationError);
        assert_eq!(seen, [theirs, (8, WcStatus::WrFlushed)]);
    }
}

#[test]
fn a_send_waits_for_a_receive_and_each_step_is_a_try() {
    // Without end.
    let pair1 = pair();
    let (a, b) = (&pair1.a, &pair1.b);
    a.qp.post_send(&[SendWr::send_inline(1, b"early").signaled()])
        .unwrap();
    for _ in 0..20 {
        pair1.fabric.step();
    }
    a.nothing();
    assert_eq!(pair1.fabric.waiting(), 1);
    let room = b.pd.allocate(8, AccessFlags::LOCAL_WRITE).unwrap();
    b.qp.post_recv(&[RecvWr::new(2, &[room.slice(..).unwrap()])])
        .unwrap();
    b.nothing();
    pair1.fabric.step();
    assert_eq!(
        (a.status(), b.status()),
        ((1, WcStatus::Success), (2, WcStatus::Success))
    );
    assert_eq!(pair1.fabric.waiting(), 0);

    // With an end.
    let pair2 = pair_with(&rnr_retry(2));
    let a = &pair2.a;
    a.qp.post_send(&[SendWr::send_inline(1, b"early")]).unwrap();
    pair2.fabric.step();
    pair2.fabric.step();
    a.nothing();
    pair2.fabric.step();
    assert_eq!(a.completions(), [(1, WcStatus::RnrRetryExceeded)]);

    // Without any patience, of the queue pair's or of the fabric's.
    for (tries, at_once) in [(0, false), (7, true)] {
        let pair = pair_with(&rnr_retry(tries));
        pair.fabric.set_rnr_fails_at_once(at_once);
        let wr = SendWr::send_inline(1, b"early");
        assert_eq!(fails(&pair, wr, WcStatus::RnrRetryExceeded), []);
    }
}

#[test]
fn a_peer_that_is_not_ready_is_waited_for_and_one_that_is_gone_is_not() {
    let fabric = Fabric::new();
    let (a, b) = (
        End::new(&fabric.add_device("a")),
        End::new(&fabric.add_device("b")),
    );
    let room = b.pd.allocate(8, AccessFlags::LOCAL_WRITE).unwrap();
    b.qp.post_recv(&[RecvWr::new(2, &[room.slice(..).unwrap()])])
        .unwrap();
    a.connect(&b, &ConnectOptions::default());
    a.qp.post_send(&[SendWr::send_inline(1, b"early").signaled()])
        .unwrap();
    a.nothing();
    // The transition itself moves what waited for it.
    b.connect(&a, &ConnectOptions::default());
    assert_eq!(
        (a.status().1, b.status().1),
        (WcStatus::Success, WcStatus::Success)
    );

    b.qp.clone().destroy().unwrap();
    let pair = Pair { fabric, a, b };
    fails(
        &pair,
        SendWr::send_inline(1, b"alone"),
        WcStatus::RetryExceeded,
    );

    let down = support::pair();
    down.b.device.set_port_up(false);
    fails(
        &down,
        SendWr::send_inline(1, b"unheard"),
        WcStatus::RetryExceeded,
    );
}

#[test]
fn a_stranger_is_not_answered() {
    let fabric = Fabric::new();
    let (a, b) = (fabric.add_device("a"), fabric.add_device("b"));
    let (a, b, c) = (End::new(&a), End::new(&b), End::new(&b));
    a.connect(&b, &ConnectOptions::default());
    b.connect(&c, &ConnectOptions::default());
    let pair = Pair { fabric, a, b };
    fails(
        &pair,
        SendWr::send_inline(1, b"hello?"),
        WcStatus::RetryExceeded,
    );
}

#[test]
fn an_overrun_loses_the_completion_and_says_so() {
    let Pair { a, b, .. } = pair();
    let small = a.context.create_cq(1).build().unwrap();
    let qp =
        a.pd.create_qp::<Rc>(&small, &small)
            .max_inline_data(8)
            .build()
            .unwrap();
    let there = b.pd.create_qp::<Rc>(&b.cq, &b.cq).build().unwrap();
    let here = qp.prepare(&PathOptions::default()).unwrap();
    let other = there.prepare(&PathOptions::default()).unwrap();
    qp.connect(&here, &other, &ConnectOptions::default())
        .unwrap();
    there
        .connect(&other, &here, &ConnectOptions::default())
        .unwrap();
    let theirs = b.pd.allocate(8, all()).unwrap();
    let remote = theirs.remote(0).unwrap();
    let wrs: Vec<_> = (1..=4)
        .map(|id| SendWr::write_inline(id, b"x", remote).signaled())
        .collect();
    qp.post_send(&wrs).unwrap();
    let mut room = [Wc::default(); 8];
    let kept = small.poll(&mut room).unwrap().len();
    assert_eq!(kept, small.depth() as usize);
    let reader = a.context.events();
    for _ in kept..4 {
        let event = reader.try_next().unwrap().unwrap();
        assert_eq!(event.kind(), AsyncEventKind::CqErr);
        assert!(matches!(event.subject(), Subject::Cq(cq) if *cq == small));
    }
    assert!(reader.try_next().unwrap().is_none());
    // For sends it goes on all the same.
    assert_eq!(qp.state().unwrap(), QpState::Rts);
}

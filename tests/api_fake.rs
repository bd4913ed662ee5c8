//! The whole public API once, on the fake kernel: what each call gives when all is well.

mod support;

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use support::{End, Pair, pair};
use uverbs::fake::Fabric;
use uverbs::{
    AccessFlags, AckTimeout, Arm, AtomicCap, DriverId, Endpoint, Gid, GidType, LinkLayer, Mtu,
    PageBuf, PathOptions, PollError, PortState, QpAttr, QpAttrMask, QpState, QpType, Rc, RecvWr,
    SendWr, Wc, WcStatus,
};

#[test]
fn a_context_answers_for_its_device_and_port() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let context = device.open().unwrap();
    assert_eq!((context.name(), context.driver()), ("rxe0", DriverId::Rxe));
    assert!(context.has_provider() && !context.is_gone());
    assert_eq!(context.num_comp_vectors(), 1);
    assert!(context.node().starts_with("/dev/infiniband"));

    let attr = context.query_device().unwrap();
    assert_eq!(
        (attr.max_cqe, attr.max_sge, attr.phys_port_cnt),
        (32_767, 32, 1)
    );
    assert_eq!(attr.atomic_cap, AtomicCap::Hca);
    let port = context.query_port(1).unwrap();
    assert_eq!(
        (port.state, port.link_layer),
        (PortState::Active, LinkLayer::Ethernet)
    );
    assert_eq!(
        (port.active_mtu, port.max_mtu),
        (Some(Mtu::Mtu1024), Some(Mtu::Mtu4096))
    );
    assert!(port.grh_required);

    let gids = context.gids(1).unwrap();
    let text: Vec<_> = gids.iter().map(|entry| entry.gid.to_string()).collect();
    assert_eq!(text, ["fe80::ff:fe00:1", "::ffff:10.0.0.1", "fd00::1"]);
    let second = context.query_gid(1, 1).unwrap().unwrap();
    assert_eq!((second, second.gid_type), (gids[1], GidType::RoceV2));
    assert_eq!(context.query_gid(1, 5).unwrap(), None);
    assert!(context.query_gid(1, 1024).is_err() && context.query_gid(2, 0).is_err());
    assert_eq!(context.routable_gid(1).unwrap(), Some(gids[1]));
    assert_eq!(context.find_gid(1, gids[2].gid).unwrap(), Some(gids[2]));
    assert_eq!(context.find_gid(1, Gid::default()).unwrap(), None);
    for port in [0, 2, 255] {
        let refused = context.gids(port).unwrap_err();
        assert_eq!(refused.errno(), Some(uverbs::Errno::EINVAL), "port {port}");
    }
    // Larger than the room that is tried first.
    for last in 0..80 {
        device.add_address([10, 1, 0, last].into());
    }
    assert_eq!(context.gids(1).unwrap().len(), 83);
    assert!(format!("{context:?}").contains("rxe0"));
}

#[test]
fn regions_own_what_they_are_given_and_give_it_back() {
    let fabric = Fabric::new();
    let pd = fabric
        .add_device("rxe0")
        .open()
        .unwrap()
        .alloc_pd()
        .unwrap();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ;
    let region = pd.allocate(100, access).unwrap();
    assert_eq!((region.len(), region.access()), (100, access));
    assert!(region.addr().is_multiple_of(4096));
    assert_ne!(region.rkey().0, 0);
    region.write_at(3, b"hello").unwrap();
    let mut bytes = [0; 5];
    region.read_at(3, &mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
    region.store_u64(16, 7).unwrap();
    assert_eq!(region.load_u64(16).unwrap(), 7);
    assert_eq!(region.slice(10..=19).unwrap().len(), 10);
    assert_eq!(region.remote(8).unwrap().addr, region.addr() + 8);
    let buffer: PageBuf = region.into_inner().unwrap();
    assert_eq!(&buffer.as_slice()[3..8], b"hello");

    let vector = pd
        .register(vec![1u8, 2, 3], AccessFlags::LOCAL_WRITE)
        .unwrap();
    // Without a right for peers there is no key for them.
    assert_eq!(vector.rkey().0, 0);
    assert_eq!(vector.into_inner().unwrap(), [1, 2, 3]);
    let boxed: Box<[u8]> = Box::new([4, 5]);
    let boxed = pd.register(boxed, AccessFlags::LOCAL_WRITE).unwrap();
    assert_eq!(*boxed.into_inner().unwrap(), [4, 5]);
    let shared: Arc<[u8]> = Arc::new([6, 7]);
    let region = pd
        .register(Arc::clone(&shared), AccessFlags::empty())
        .unwrap();
    assert_eq!(region.to_vec(..).unwrap(), *shared);
    drop(region);
    assert_eq!(Arc::strong_count(&shared), 1);
    assert_eq!(pd.context().leaked_bytes(), 0);
}

#[test]
fn a_queue_pair_tells_what_it_is_and_can_be_changed() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let end = End::new(&device);
    let cq = end.context.create_cq(5).comp_vector(0).build().unwrap();
    assert_eq!(cq.depth(), 7);
    assert_eq!(cq.context().name(), "rxe0");
    cq.arm(Arm::Next).unwrap();
    cq.arm(Arm::Solicited).unwrap();
    let qp = end
        .pd
        .create_qp::<Rc>(&end.cq, &cq)
        .max_send_wr(10)
        .max_recv_wr(3)
        .max_send_sge(3)
        .max_recv_sge(2)
        .max_inline_data(100)
        .signal_all(true)
        .build()
        .unwrap();
    let caps = qp.caps();
    assert_eq!((caps.max_send_wr, caps.max_recv_wr), (15, 3));
    assert_eq!(
        (caps.max_send_sge, caps.max_recv_sge, caps.max_inline_data),
        (6, 2, 100)
    );
    assert!(*qp.send_cq() == end.cq && *qp.recv_cq() == cq && qp.srq().is_none());
    assert_eq!(qp.pd().context().name(), "rxe0");
    let any = qp.to_any();
    assert_eq!((any.qp_type(), any.qp_num()), (QpType::Rc, qp.qp_num()));
    assert_eq!(any.as_rc().as_ref(), Some(&qp));
    assert_ne!(qp, end.qp);

    assert_eq!(qp.state().unwrap(), QpState::Reset);
    let psn = Some(0x0012_3456);
    let gid = Some(end.context.gids(1).unwrap()[2].gid);
    let options = PathOptions {
        psn,
        gid,
        ..PathOptions::default()
    };
    let here = qp.prepare(&options).unwrap();
    assert_eq!(
        (here.psn, Some(here.gid), here.mtu),
        (0x0012_3456, gid, Mtu::Mtu1024)
    );
    assert_eq!(Endpoint::from_bytes(&here.to_bytes()), Ok(here));
    let there = end.endpoint;
    qp.connect(&here, &there, &Default::default()).unwrap();
    let info = qp.query().unwrap();
    assert_eq!(
        (info.state, info.caps, info.port),
        (Some(QpState::Rts), caps, 1)
    );
    assert_eq!((info.sq_psn, info.rq_psn), (here.psn, there.psn));
    assert_eq!(
        (info.dest_qp_num, info.path_mtu),
        (there.qp_num, Some(Mtu::Mtu1024))
    );
    let route = info.path.global.unwrap();
    assert_eq!(
        (route.dgid, route.sgid_index, route.hop_limit),
        (there.gid, 2, 64)
    );
    assert_eq!(
        info.timeout,
        AckTimeout::at_least(Duration::from_millis(67))
    );
    assert!(info.signal_all && !info.sq_draining);
    let only_access = QpAttr {
        access: Some(AccessFlags::REMOTE_READ),
        ..QpAttr::default()
    };
    assert_eq!(only_access.mask(), QpAttrMask::ACCESS_FLAGS);
    qp.modify(&only_access).unwrap();
    assert_eq!(qp.query().unwrap().access, AccessFlags::REMOTE_READ);
    for state in [QpState::Err, QpState::Reset] {
        qp.modify(&QpAttr::to_state(state)).unwrap();
        assert_eq!(qp.state().unwrap(), state);
    }
    assert!(format!("{qp:?} {any:?} {cq:?}").contains("Reset"));
    assert_eq!(qp.event_counts(), any.event_counts());
    qp.destroy().unwrap();
    assert_eq!(cq.event_counts(), Default::default());
    cq.destroy_timeout(Duration::from_secs(1)).unwrap();
    end.qp.try_destroy().unwrap();
    end.cq.try_destroy().unwrap();
}

#[test]
fn a_queue_that_something_rests_on_cannot_be_destroyed_and_goes_on() {
    let Pair { a, .. } = pair();
    let error = a.cq.clone().destroy().unwrap_err();
    assert!(
        error.to_string().contains(": CQ_DESTROY failed (EBUSY"),
        "{error}"
    );
    assert_eq!(error.into_object().as_ref(), Some(&a.cq));
    a.nothing();
    let srq = a.pd.create_srq(3).max_sge(2).build().unwrap();
    assert_eq!((srq.max_wr(), srq.max_sge()), (3, 2));
    let qp =
        a.pd.create_qp::<Rc>(&a.cq, &a.cq)
            .srq(&srq)
            .build()
            .unwrap();
    assert_eq!(qp.srq(), Some(&srq));
    assert_eq!((qp.caps().max_recv_wr, qp.caps().max_recv_sge), (0, 0));
    let error = srq.clone().destroy().unwrap_err();
    assert!(
        error.to_string().contains(": SRQ_DESTROY failed (EBUSY"),
        "{error}"
    );
    srq.set_limit(2).unwrap();
    let attr = srq.query().unwrap();
    assert_eq!((attr.max_wr, attr.max_sge, attr.limit), (3, 2, 2));
    qp.destroy().unwrap();
    assert_eq!(srq.event_counts(), Default::default());
    srq.try_destroy().unwrap();
}

#[test]
fn exclusive_queues_do_what_the_shared_ones_do() {
    let Pair { a, b, .. } = pair();
    let room = b.pd.allocate(8, AccessFlags::LOCAL_WRITE).unwrap();
    let mut send = a.qp.exclusive_send().unwrap();
    let mut recv = b.qp.exclusive_recv().unwrap();
    let mut cq = a.cq.exclusive().unwrap();
    assert!(send.shared() == &a.qp && recv.shared() == &b.qp && cq.shared() == &a.cq);
    recv.post_recv(&[RecvWr::new(1, &[room.slice(..).unwrap()])])
        .unwrap();
    send.post_send(&[SendWr::send_inline(2, b"alone").signaled()])
        .unwrap();
    let mut found = [Wc::default(); 2];
    assert_eq!(a.cq.poll(&mut found), Err(PollError::InExclusiveUse));
    let found = cq.poll(&mut found).unwrap();
    assert_eq!(
        (found.len(), found[0].wr_id, found[0].status),
        (1, 2, WcStatus::Success)
    );
    drop((send, recv, cq));
    assert_eq!(b.status().0, 1);
    a.nothing();
    assert_eq!(room.to_vec(..5).unwrap(), b"alone");
}

#[test]
fn after_a_change_of_credentials_the_doorbell_goes_by_ioctl() {
    let Pair { a, b, .. } = pair();
    let room = b.pd.allocate(8, AccessFlags::LOCAL_WRITE).unwrap();
    let sge = [room.slice(..).unwrap()];
    b.qp.post_recv(&[
        RecvWr::new(1, &sge),
        RecvWr::new(2, &sge),
        RecvWr::new(3, &sge),
    ])
    .unwrap();
    let doorbells = || {
        a.device
            .calls()
            .iter()
            .filter(|name| **name == "POST_SEND")
            .count()
    };
    let send = |id| {
        a.qp.post_send(&[SendWr::send_inline(id, b"x").signaled()])
            .unwrap()
    };
    send(1);
    assert_eq!(doorbells(), 1);
    a.device.set_write_refused(true);
    // Tried, refused, and sent the other way; from then on straight.
    send(2);
    assert_eq!(doorbells(), 3);
    send(3);
    assert_eq!(doorbells(), 4);
    assert_eq!(a.completions().len(), 3);
}

#[test]
fn contexts_are_apart_and_numbers_do_not_repeat() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let (one, two) = (End::new(&device), End::new(&device));
    assert_eq!(device.live().files, 2);
    let numbers: HashSet<_> = [&one, &two].map(|end| end.qp.qp_num()).into();
    assert_eq!(numbers.len(), 2);
    // Each gets its own copy of a port's event.
    device.set_port_up(false);
    for end in [&one, &two] {
        let reader = end.context.events();
        assert!(reader.as_fd().try_clone_to_owned().is_ok());
        assert!(reader.try_next().unwrap().is_some());
        assert!(reader.try_next().unwrap().is_none());
    }
    drop(one);
    assert_eq!(device.live().files, 1);
    two.context.query_port(1).unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "threads that wait for each other take long")]
fn threads_that_wait_for_each_other_are_moved_by_a_ticker() {
    let Pair { fabric, a, b } = pair();
    let _ticker = fabric.ticker(Duration::from_millis(1));
    const ROUNDS: u64 = 200;
    let wait = |end: &End| loop {
        if let Some((id, status)) = end.completions().first() {
            assert_eq!(*status, WcStatus::Success);
            return *id;
        }
        std::thread::yield_now();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..ROUNDS {
                a.qp.post_send(&[SendWr::send_inline(id, &id.to_be_bytes()).signaled()])
                    .unwrap();
                assert_eq!(wait(&a), id);
            }
        });
        scope.spawn(|| {
            let room = b.pd.allocate(8, AccessFlags::LOCAL_WRITE).unwrap();
            let sge = [room.slice(..).unwrap()];
            for id in 0..ROUNDS {
                b.qp.post_recv(&[RecvWr::new(id, &sge)]).unwrap();
                assert_eq!(wait(&b), id);
                assert_eq!(room.to_vec(..).unwrap(), id.to_be_bytes());
            }
        });
    });
}

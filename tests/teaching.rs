//! What a newcomer gets wrong with memory, connections and destroys, and whether the error, or the long
//! form of the failed completion, names it. `bad_input` has what is refused by the calls themselves.

mod support;

use support::{End, Pair, pair};
use uverbs::fake::Fabric;
use uverbs::{
    AccessFlags, CompletionQueue, ConnectError, ConnectOptions, DestroyErrorCause, Errno, Explain,
    MemoryRegion, ObjectErrorCause, PathOptions, QpAttr, QpState, QueueId, QueuePair, Rc, RecvWr,
    Report, SendWr, Wc, WcStatus,
};

fn has(report: &Report, part: &str) {
    let text = report.to_string();
    assert!(text.contains(part), "{part:?} is not in: {text}");
}

fn has_not(report: &Report, part: &str) {
    let text = report.to_string();
    assert!(!text.contains(part), "{part:?} is in: {text}");
}

/// The report of the next completion, which must have failed.
fn failed(end: &End, statuses: &[WcStatus]) -> Report {
    let error = end.completion().ok().expect_err("a failure");
    assert!(statuses.contains(&error.status), "{error}");
    end.qp.diagnose(&error)
}

const WRONG_MEMORY: &[WcStatus] = &[
    WcStatus::LocalProtectionError,
    WcStatus::LocalQpOperationError,
    WcStatus::WrFlushed,
];

#[test]
fn a_receive_into_a_region_without_local_write_is_named() {
    let pair = pair();
    let region = pair.b.pd.allocate(64, AccessFlags::REMOTE_READ).unwrap();
    let fine = pair.b.pd.allocate(64, AccessFlags::LOCAL_WRITE).unwrap();
    let fine = [fine.slice(..).unwrap()];
    let sges = [region.slice(..).unwrap()];
    let recv = RecvWr::new(7, &sges);
    let other = RecvWr::new(8, &fine);
    pair.b.qp.post_recv(&[recv, other]).unwrap();
    pair.a
        .qp
        .post_send(&[SendWr::send_inline(1, b"x")])
        .unwrap();
    let report = failed(&pair.b, WRONG_MEMORY);
    has(
        &report,
        &format!(
            "\n  found: receive 7 names the region with lkey {:#x}, which lacks LOCAL_WRITE (its access \
             flags: REMOTE_READ)\n",
            region.lkey()
        ),
    );
    // Of the one after it, which was flushed, nothing is said.
    let report = failed(&pair.b, &[WcStatus::WrFlushed]);
    has_not(&report, "lkey");
}

#[test]
fn memory_of_another_domain_or_that_is_gone_is_named() {
    let pair = pair();
    let foreign = pair.b.context.alloc_pd().unwrap();
    let region = foreign.allocate(64, AccessFlags::LOCAL_WRITE).unwrap();
    pair.b
        .qp
        .post_recv(&[RecvWr::new(7, &[region.slice(..).unwrap()])])
        .unwrap();
    pair.a
        .qp
        .post_send(&[SendWr::send_inline(1, b"x")])
        .unwrap();
    let lkey = region.lkey();
    has(
        &failed(&pair.b, WRONG_MEMORY),
        &format!(
            "receive 7 names the region with lkey {lkey:#x}, which is of another protection domain than \
             the queue pair"
        ),
    );

    let pair = support::pair();
    let gone = pair.a.pd.allocate(64, AccessFlags::empty()).unwrap();
    let (sge, lkey) = (gone.slice(..).unwrap(), gone.lkey());
    drop(gone);
    let sges = [sge];
    let send = SendWr::send(9, &sges).signaled();
    pair.a.qp.post_send(&[send]).unwrap();
    has(
        &failed(&pair.a, WRONG_MEMORY),
        &format!(
            "send request 9 names lkey {lkey:#x}, which no region of this context has: dropped since, or \
             another's"
        ),
    );
}

#[test]
fn a_read_into_memory_that_may_not_be_written_is_named_and_a_write_from_it_is_not() {
    let pair = pair();
    let target = pair.b.pd.allocate(64, AccessFlags::REMOTE_READ).unwrap();
    let local = pair.a.pd.allocate(64, AccessFlags::empty()).unwrap();
    let sges = [local.slice(..).unwrap()];
    let read = SendWr::read(3, &sges, target.remote(0).unwrap()).signaled();
    pair.a.qp.post_send(&[read]).unwrap();
    has(
        &failed(&pair.a, WRONG_MEMORY),
        "send request 3 names the region with lkey",
    );

    let pair = support::pair();
    let local = pair.a.pd.allocate(64, AccessFlags::empty()).unwrap();
    let target = pair.b.pd.allocate(64, AccessFlags::REMOTE_READ).unwrap();
    let sges = [local.slice(..).unwrap()];
    let write = SendWr::write(4, &sges, target.remote(0).unwrap()).signaled();
    pair.a.qp.post_send(&[write]).unwrap();
    let report = failed(&pair.a, &[WcStatus::RemoteAccessError]);
    has_not(&report, "names the region");
}

#[test]
fn a_shared_queues_receive_is_found_and_one_too_short_is_measured() {
    let fabric = Fabric::new();
    let (a, b) = (fabric.add_device("rxe0"), fabric.add_device("rxe1"));
    let a = End::new(&a);
    let (b, srq) = End::with_srq(&b, 4);
    a.connect(&b, &ConnectOptions::default());
    b.connect(&a, &ConnectOptions::default());
    let region = b.pd.allocate(4, AccessFlags::LOCAL_WRITE).unwrap();
    srq.post_recv(&[RecvWr::new(5, &[region.slice(..).unwrap()])])
        .unwrap();
    a.qp.post_send(&[SendWr::send_inline(1, b"more than four")])
        .unwrap();
    let report = failed(
        &b,
        &[WcStatus::LocalLengthError, WcStatus::LocalQpOperationError],
    );
    has(&report, "\n  found: receive 5 has room for 4 bytes\n");
}

/// What is to be done follows from what was found, and nobody is sent where he comes from.
#[test]
fn the_next_step_is_that_of_what_was_found() {
    let pair = pair();
    let foreign = pair.a.context.alloc_pd().unwrap();
    let region = foreign.allocate(64, AccessFlags::LOCAL_WRITE).unwrap();
    let sges = [region.slice(..).unwrap()];
    let send = SendWr::send(9, &sges).signaled();
    pair.a.qp.post_send(&[send]).unwrap();
    let report = failed(&pair.a, WRONG_MEMORY);
    has(
        &report,
        "\n  next: register the memory in the queue pair's own",
    );
    has_not(&report, "with LOCAL_WRITE");
    has_not(&report, "QueuePair::diagnose");

    // An atomic at an odd address, and the key of a region that no peer may reach.
    let pair = support::pair();
    let local = pair.a.pd.allocate(64, AccessFlags::LOCAL_WRITE).unwrap();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_ATOMIC;
    let target = pair.b.pd.allocate(64, access).unwrap();
    let odd = target.remote(4).unwrap();
    let add = SendWr::fetch_add(5, local.slice(..8).unwrap(), odd, 1).signaled();
    pair.a.qp.post_send(&[add]).unwrap();
    let report = failed(&pair.a, &[WcStatus::RemoteInvalidRequest]);
    has(
        &report,
        &format!(
            "found: send request 5 names the peer's address {:#x}, for an atomic, which is not a multiple \
             of 8\n",
            odd.addr
        ),
    );
    has_not(&report, "cause: ");

    let pair = support::pair();
    let closed = pair.b.pd.allocate(64, AccessFlags::LOCAL_WRITE).unwrap();
    let remote = closed.remote(0).unwrap();
    assert_eq!(remote.rkey.0, 0);
    pair.a
        .qp
        .post_send(&[SendWr::write_inline(6, b"x", remote)])
        .unwrap();
    let report = failed(&pair.a, &[WcStatus::RemoteAccessError]);
    has(
        &report,
        "found: send request 6 names rkey 0: the peer's region was registered without any REMOTE right\n",
    );
    has(&report, "\n  next: let the peer register the region with");

    // A port that is down is why nobody answers.
    let pair = support::pair();
    let target = pair.b.pd.allocate(64, access | AccessFlags::REMOTE_WRITE);
    let remote = target.unwrap().remote(0).unwrap();
    pair.a.device.set_port_up(false);
    pair.a
        .qp
        .post_send(&[SendWr::write_inline(7, b"x", remote)])
        .unwrap();
    let report = failed(&pair.a, &[WcStatus::RetryExceeded]);
    has(&report, "\n  cause: port 1 is DOWN: nothing leaves it");
    has(&report, "\n  next: bring port 1 up");
    has_not(&report, "ping it");
}

/// Nobody can say which of several requests of one number failed, and slots that were never filled
/// are none.
#[test]
fn of_several_requests_of_one_number_none_is_blamed_alone() {
    let pair = pair();
    let Pair { a, b, .. } = &pair;
    let local = AccessFlags::LOCAL_WRITE;
    let room = b.pd.allocate(64, local).unwrap();
    let room = [room.slice(..).unwrap()];
    b.qp.post_recv(&[RecvWr::new(1, &room)]).unwrap();
    let regions = [(); 2].map(|()| a.pd.allocate(64, local).unwrap());
    let lkeys = regions.each_ref().map(MemoryRegion::lkey);
    let sges = regions.each_ref().map(|region| [region.slice(..).unwrap()]);
    let send = |sges| a.qp.post_send(&[SendWr::send(0, sges).signaled()]).unwrap();
    send(&sges[0]);
    assert_eq!(a.status(), (0, WcStatus::Success));
    // The first one is done, and its memory may go.
    drop(regions);
    send(&sges[1]);
    let report = failed(a, WRONG_MEMORY);
    for lkey in lkeys {
        has(
            &report,
            &format!(
                "send request 0, one of 2 of this number that the queues still hold, names lkey {lkey:#x}"
            ),
        );
    }

    let pair = support::pair();
    let gone = pair.a.pd.allocate(64, local).unwrap();
    let (sge, lkey) = ([gone.slice(..).unwrap()], gone.lkey());
    drop(gone);
    pair.a.qp.post_send(&[SendWr::send(0, &sge)]).unwrap();
    has(
        &failed(&pair.a, WRONG_MEMORY),
        &format!("found: send request 0 names lkey {lkey:#x}"),
    );

    // Of the queue of receives, which was never used, nothing is said.
    let pair = support::pair();
    let small = pair.b.pd.allocate(4, local).unwrap();
    let small = [small.slice(..).unwrap()];
    pair.b.qp.post_recv(&[RecvWr::new(9, &small)]).unwrap();
    let long = [SendWr::send_inline(1, b"more than four")];
    pair.a.qp.post_send(&long).unwrap();
    let mut error = pair.b.completion().ok().unwrap_err();
    (error.wr_id, error.status) = (0, WcStatus::LocalQpOperationError);
    has_not(&pair.b.qp.diagnose(&error), "has room for");
}

#[test]
fn exchanged_endpoints_are_told_and_ones_own_peer_is_found() {
    let fabric = Fabric::new();
    let (a, b) = (fabric.add_device("rxe0"), fabric.add_device("rxe1"));
    let (a, b) = (End::new(&a), End::new(&b));
    let (ours, theirs) = (a.qp.qp_num(), b.qp.qp_num());
    let options = ConnectOptions::default();
    // Numbers of two devices may be the same.
    let theirs_here = if ours == theirs {
        let mut other = b.endpoint;
        other.qp_num.0 += 1;
        other
    } else {
        b.endpoint
    };
    // And then the address tells.
    let mut namesake = b.endpoint;
    namesake.qp_num = ours;
    let error = a.qp.connect(&namesake, &a.endpoint, &options).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "the local endpoint is that of another queue pair {ours}, elsewhere; local and remote are \
             exchanged"
        )
    );
    let error = a.qp.connect(&theirs_here, &a.endpoint, &options);
    let error = error.unwrap_err();
    assert!(
        matches!(
            error,
            ConnectError::NotLocal {
                exchanged: true,
                ..
            }
        ),
        "{error}"
    );
    let given = theirs_here.qp_num;
    assert_eq!(
        error.to_string(),
        format!(
            "the local endpoint is that of queue pair {given}, this is queue pair {ours}; local and \
             remote are exchanged"
        )
    );
    has(
        &error.report(),
        "cause: the first two arguments of `connect`",
    );
    assert_eq!(a.qp.state().unwrap(), QpState::Init);

    // Legal, and told when it fails.
    let options = ConnectOptions {
        rnr_retry: 0,
        ..options
    };
    a.qp.connect(&a.endpoint, &a.endpoint, &options).unwrap();
    a.qp.post_send(&[SendWr::send_inline(1, b"x")]).unwrap();
    has(
        &failed(&a, &[WcStatus::RnrRetryExceeded]),
        "found: the peer is this queue pair itself",
    );
}

#[test]
fn who_uses_a_queue_is_told_by_number() {
    let device = Fabric::new().add_device("rxe0");
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let (cq, other) = (
        context.create_cq(4).build().unwrap(),
        context.create_cq(4).build().unwrap(),
    );
    let srq = pd.create_srq(4).build().unwrap();
    let make = |send: &CompletionQueue, recv: &CompletionQueue| -> QueuePair<Rc> {
        pd.create_qp(send, recv).build().unwrap()
    };
    let qps = [make(&cq, &cq), make(&other, &cq), make(&other, &other)];
    let numbers: Vec<_> = qps
        .iter()
        .map(|qp| QueueId::QueuePair(qp.qp_num()))
        .collect();
    let error = cq.clone().destroy().unwrap_err();
    assert!(matches!(error.cause, DestroyErrorCause::Busy { .. }));
    assert_eq!(error.holders, numbers[..2]);
    assert_eq!(
        error.to_string(),
        format!(
            "completion queue {}: CQ_DESTROY failed (EBUSY: device or resource busy); queue pairs still \
             report to it ({}, {}): destroy or drop those first",
            cq.id(),
            numbers[0],
            numbers[1]
        )
    );
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
    has(
        &error.report(),
        "next: destroy or drop what uses it, then destroy this again: its handle is in the error, \
         `into_object`",
    );
    let [first, second, third] = qps;
    // A handle that is left does not count, the kernel's object does.
    let kept = first.clone();
    first.destroy().unwrap();
    drop(second);
    drop((kept, third));
    cq.destroy().unwrap();

    let sharing: QueuePair<Rc> = pd.create_qp(&other, &other).srq(&srq).build().unwrap();
    let error = srq.clone().destroy().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "shared receive queue {}: SRQ_DESTROY failed (EBUSY: device or resource busy); queue pairs \
             still draw from it (queue pair {}): destroy or drop those first",
            srq.id(),
            sharing.qp_num()
        )
    );
    // A destroy that the kernel refuses leaves it among those that are there.
    device.fail_next("QP_DESTROY", Errno::EBUSY);
    let sharing = sharing.destroy().unwrap_err().into_object().unwrap();
    let text = srq.clone().destroy().unwrap_err().to_string();
    assert!(
        text.contains(&format!("(queue pair {})", sharing.qp_num())),
        "{text}"
    );
    let many: Vec<_> = (0..9).map(|_| make(&other, &other)).collect();
    let text = other.clone().destroy().unwrap_err().to_string();
    assert!(
        text.ends_with(" and 2 more): destroy or drop those first"),
        "{text}"
    );
    drop((many, sharing));
    srq.destroy().unwrap();
    other.destroy().unwrap();
}

#[test]
fn a_limit_of_a_shared_queue_above_its_size_is_named() {
    let context = Fabric::new().add_device("rxe0").open().unwrap();
    let srq = context.alloc_pd().unwrap().create_srq(4).build().unwrap();
    let has = srq.max_wr();
    let error = srq.set_limit(has + 1).unwrap_err();
    assert!(
        matches!(error.cause, ObjectErrorCause::Exceeded { .. }),
        "{error:?}"
    );
    assert_eq!(
        error.to_string(),
        format!(
            "shared receive queue {}: MODIFY_SRQ failed (EINVAL: invalid argument); limit {} was \
             asked for, the shared receive queue has {has}",
            srq.id(),
            has + 1
        )
    );
    assert_eq!(Errno::of(&error), Some(Errno::EINVAL));
    srq.set_limit(has).unwrap();
}

/// Nothing to do is nothing wrong: the kernel takes it wherever a state leads to itself.
#[test]
fn a_change_of_nothing_is_taken_where_the_state_leads_to_itself() {
    let pair = pair();
    let nothing = QpAttr::default();
    pair.a.qp.modify(&nothing).unwrap();
    assert_eq!(pair.a.qp.state().unwrap(), QpState::Rts);
    let device = Fabric::new().add_device("rxe0");
    let end = End::new(&device);
    end.qp.modify(&nothing).unwrap();
    let attr = QpAttr::to_state(QpState::Err);
    end.qp.modify(&attr).unwrap();
    let named = format!(
        "{attr}, {}",
        QpAttr {
            access: Some(AccessFlags::empty()),
            ..nothing
        }
    );
    assert_eq!(named, "state ERR, access none");
}

/// A queue of no requests: what it was granted, it says.
#[test]
fn a_queue_of_no_requests_tells_what_it_was_granted() {
    let context = Fabric::new().add_device("rxe0").open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(1).build().unwrap();
    let qp: QueuePair<Rc> = pd.create_qp(&cq, &cq).max_send_wr(0).build().unwrap();
    let endpoint = qp.prepare(&PathOptions::default()).unwrap();
    qp.connect(&endpoint, &endpoint, &ConnectOptions::default())
        .unwrap();
    let granted = qp.caps().max_send_wr as usize;
    let wrs = vec![SendWr::send_inline(1, b""); granted + 1];
    let error = qp.post_send(&wrs).unwrap_err();
    assert_eq!(error.accepted, granted);
}

#[test]
fn completions_print_as_words() {
    let pair = pair();
    let region = pair.b.pd.allocate(64, AccessFlags::LOCAL_WRITE).unwrap();
    pair.b
        .qp
        .post_recv(&[RecvWr::new(7, &[region.slice(..).unwrap()])])
        .unwrap();
    let send = SendWr::send_inline(1, b"hello").with_imm(0x2A).signaled();
    pair.a.qp.post_send(&[send]).unwrap();
    let number = pair.b.qp.qp_num();
    assert_eq!(
        pair.b.completion().to_string(),
        format!(
            "work request 7 on queue pair {number}: receive done, 5 bytes, immediate data 0x2a"
        )
    );
    let number = pair.a.qp.qp_num();
    assert_eq!(
        pair.a.completion().to_string(),
        format!("work request 1 on queue pair {number}: SEND done")
    );
    let mut failure = Wc::default();
    (failure.wr_id, failure.status) = (3, WcStatus::WrFlushed);
    assert_eq!(failure.to_string(), failure.ok().unwrap_err().to_string());
}

/// Memory of no file, on a device without registration: neither a file nor the machine's kernel is blamed.
#[test]
fn a_registration_that_is_not_supported_blames_no_file_where_there_is_none() {
    let context = Fabric::new().add_bare_device("fake0").open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let error = pd.allocate(64, AccessFlags::empty()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    let report = error.report();
    has_not(&report, "file systems");
    has_not(&report, "the running kernel");
    has(
        &report,
        "cause: the device's driver does not have the command",
    );
}

//! What a program can get wrong with what it has opened, each with the message that tells it.

mod support;

use std::error::Error;
use std::io;

use support::End;
use uverbs::fake::{Fabric, FakeDevice};
use uverbs::{
    AccessFlags, ConnectError, ConnectOptions, Errno, Explain, PathOptions, PostCause, QpAttr,
    QpState, Rc, RecvWr, SendWr,
};

fn device() -> FakeDevice {
    Fabric::new().add_device("rxe0")
}

/// The message of an error.
fn told<T: std::fmt::Debug, E: Error>(result: Result<T, E>) -> String {
    result.expect_err("is refused").to_string()
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no resource limits")]
fn too_low_a_limit_of_locked_memory_is_named_with_the_need() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap();
    let limit = hard.min(64 << 10);
    setrlimit(Resource::RLIMIT_MEMLOCK, limit, hard).unwrap();
    let device = device();
    device.set_memlock(Some(limit));
    let pd = device.open().unwrap().alloc_pd().unwrap();
    let error = pd.allocate(1 << 20, AccessFlags::LOCAL_WRITE).unwrap_err();
    assert_eq!(error.buffer.as_ref().unwrap().as_slice().len(), 1 << 20);
    let wanted = format!(
        "cannot register 1048576 bytes: the locked-memory limit is too low: 1048576 bytes are \
         needed, the limit is {limit} bytes for all of the process; raise it with `ulimit -l`, in \
         limits.conf or in the service's unit (REG_MR failed (ENOMEM: "
    );
    assert!(error.to_string().starts_with(&wanted), "{error}");
    // Of a limit that is not in the way nothing is claimed; the fake's own one is unknown here.
    setrlimit(Resource::RLIMIT_MEMLOCK, hard.min(8 << 20), hard).unwrap();
    if hard >= 8 << 20 {
        device.fail_next("REG_MR", Errno::ENOMEM);
        let error = pd.allocate(64, AccessFlags::LOCAL_WRITE).unwrap_err();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let capabilities = status.split("CapEff:\t").nth(1).unwrap().split('\n');
        let capabilities = u64::from_str_radix(capabilities.clone().next().unwrap(), 16).unwrap();
        let text = error.to_string();
        assert!(
            !text.contains(": the locked-memory limit is too low"),
            "{text}"
        );
        assert!(text.contains("REG_MR failed (ENOMEM"), "{text}");
        if capabilities & 1 << 14 == 0 {
            let perhaps =
                "; no room in memory or in the device's table, or the locked-memory limit";
            assert!(
                text.contains(perhaps) && text.contains("8388608 bytes for"),
                "{text}"
            );
        }
    }
    setrlimit(Resource::RLIMIT_MEMLOCK, limit, hard).unwrap();
    // What fits still goes, and its memory counts until it is given back.
    if limit != 0 {
        let size = usize::try_from(limit).unwrap();
        let fits = pd.allocate(size, AccessFlags::empty()).unwrap();
        pd.allocate(1, AccessFlags::empty()).unwrap_err();
        fits.into_inner().unwrap();
        pd.allocate(1, AccessFlags::empty()).unwrap();
    }
}

#[test]
fn sizes_of_zero_or_above_the_limit_are_named() {
    let context = device().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(32_767).build().unwrap();
    assert_eq!(cq.depth(), 32_767);
    assert_eq!(
        told(context.create_cq(0).build()),
        "cannot make a completion queue: the depth must be at least 1"
    );
    let ends = |text: String, end: &str| assert!(text.ends_with(end), "{text}");
    ends(
        told(context.create_cq(32_768).build()),
        "; depth 32768 was asked for, the device has 32767",
    );
    ends(
        told(context.create_cq(u32::MAX).build()),
        "; depth 4294967295 was asked for, the device has 32767",
    );
    assert_eq!(
        told(context.create_cq(1).comp_vector(7).build()),
        "cannot make a completion queue: CQ_CREATE failed (EINVAL: invalid argument); comp_vector 7 was \
         asked for, the device has 0 only"
    );
    assert_eq!(
        told(pd.create_srq(0).build()),
        "cannot make a shared receive queue: max_wr must be at least 1"
    );
    ends(
        told(pd.create_srq(1).max_sge(28).build()),
        "; max_sge 28 was asked for, the device has 27",
    );
    let qp = || pd.create_qp::<Rc>(&cq, &cq);
    ends(
        told(qp().max_send_wr(2_000_000).max_recv_sge(33).build()),
        "; max_send_wr 2000000 was asked for, the device has 1048576, max_recv_sge 33 was asked \
         for, the device has 32",
    );
    ends(
        told(qp().max_inline_data(513).build()),
        "QP_CREATE failed (EINVAL: invalid argument); max_inline_data 513 was asked for, the device \
         has 512",
    );
    qp().max_inline_data(512).max_send_sge(32).build().unwrap();
    let other = Fabric::new().add_device("other").open().unwrap();
    let theirs = other.create_cq(1).build().unwrap();
    assert_eq!(
        told(pd.create_qp::<Rc>(&cq, &theirs).build()),
        "cannot make a queue pair: the receive completion queue belongs to another open device"
    );
    theirs.clone().destroy().unwrap();
    let pd = other.alloc_pd().unwrap();
    assert_eq!(
        told(pd.create_qp::<Rc>(&theirs, &theirs).build()),
        "cannot make a queue pair: the send completion queue has been destroyed"
    );
}

#[test]
fn regions_and_stretches_of_them() {
    let pd = device().open().unwrap().alloc_pd().unwrap();
    assert_eq!(
        told(pd.register(Vec::new(), AccessFlags::empty())),
        "cannot register 0 bytes: a region needs at least 1 byte"
    );
    assert_eq!(
        told(pd.register(vec![0], AccessFlags::REMOTE_WRITE)),
        "cannot register 1 byte: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE as well"
    );
    static BYTES: &[u8] = b"static";
    assert_eq!(
        told(pd.register(BYTES, AccessFlags::LOCAL_WRITE)),
        "cannot register 6 bytes: the buffer is read-only: leave LOCAL_WRITE, REMOTE_WRITE, \
         REMOTE_ATOMIC and MW_BIND out"
    );
    let fixed = pd.register(BYTES, AccessFlags::REMOTE_READ).unwrap();
    assert_eq!(told(fixed.write_at(0, b"x")), "the buffer is read-only");
    let region = pd.allocate(64, AccessFlags::empty()).unwrap();
    assert_eq!(
        told(region.slice(60..65)),
        "bytes 60..65 are not inside a region of 64 bytes"
    );
    assert_eq!(
        told(region.slice(65..)),
        "byte 65 is past the end of a region of 64 bytes"
    );
    assert_eq!(
        told(region.remote(65)),
        "byte 65 is past the end of a region of 64 bytes"
    );
    #[allow(
        clippy::reversed_empty_ranges,
        reason = "what a newcomer writes is what is tried"
    )]
    let reversed = 10..5;
    assert_eq!(
        told(region.slice(reversed.clone())),
        "the range 10..5 is reversed: it ends before it begins"
    );
    let report = region.slice(reversed).unwrap_err().report().to_string();
    assert!(!report.contains("register more"), "{report}");
    assert_eq!(
        told(region.slices(1.., 0)),
        "a region cannot be cut into elements of at most 0 bytes"
    );
    assert_eq!(
        told(region.slices(60..65, 8)),
        "bytes 60..65 are not inside a region of 64 bytes"
    );
    let cut: Vec<_> = region.slices(1..20, 8).unwrap().collect();
    let places: Vec<_> = cut
        .iter()
        .map(|sge| (sge.addr() - region.addr(), sge.len()))
        .collect();
    assert_eq!(places, [(1, 8), (9, 8), (17, 3)]);
    assert!(cut.iter().all(|sge| sge.lkey() == region.lkey()));
    let endless = |start| {
        format!(
            "what begins at byte {start} and ends past every address is not inside a region of 64 bytes"
        )
    };
    assert_eq!(told(region.write_at(usize::MAX, b"x")), endless(usize::MAX));
    assert_eq!(told(region.slices(..=usize::MAX, 1)), endless(0));
    assert_eq!(told(region.slice(9..=usize::MAX)), endless(9));
    assert_eq!(
        told(region.slice(..usize::MAX)),
        "bytes 0..18446744073709551615 are not inside a region of 64 bytes"
    );
    // The very end is a place, for nothing.
    assert_eq!(region.slice(64..).unwrap().len(), 0);
    assert_eq!(region.remote(64).unwrap().addr, region.addr() + 64);
    assert_eq!(
        told(region.load_u64(4)),
        "byte 4 is not 8-aligned in memory"
    );
    let other = region.clone();
    assert_eq!(
        told(region.into_inner()),
        "cannot deregister the region: another handle to it is alive; drop it first"
    );
    other.into_inner().unwrap();
}

#[test]
fn posting_in_the_wrong_state_or_what_the_queue_cannot_take() {
    let device = device();
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(4).build().unwrap();
    let qp = pd
        .create_qp::<Rc>(&cq, &cq)
        .max_inline_data(16)
        .build()
        .unwrap();
    let name = format!("queue pair {}", qp.qp_num());
    let region = pd.allocate(64, AccessFlags::LOCAL_WRITE).unwrap();
    let sge = region.slice(..).unwrap();
    assert_eq!(
        told(qp.post_recv(&[RecvWr::new(1, &[sge])])),
        format!(
            "{name}: nothing was posted: the queue pair is in state RESET; move it to INIT first"
        )
    );
    let endpoint = qp.prepare(&PathOptions::default()).unwrap();
    assert_eq!(
        told(qp.post_send(&[SendWr::send(1, &[sge])])),
        format!(
            "{name}: nothing was posted: the queue pair is in state INIT; move it to RTR and RTS first"
        )
    );
    let sges = [sge; 3];
    let error = qp
        .post_recv(&[RecvWr::new(1, &[sge]), RecvWr::new(2, &sges)])
        .unwrap_err();
    assert_eq!(
        (error.accepted, error.cause),
        (1, PostCause::TooManySge { given: 3, max: 1 })
    );
    let report = error.report().to_string();
    for part in [
        "means: the first of the batch is queued and will complete; request 1 of the batch, counted from 0, is \
         at fault",
        "next: mend request 1 first (`wrs[1]`",
        "max_recv_sge for receives",
    ] {
        assert!(report.contains(part), "{report}");
    }
    assert!(!report.contains("post the rest again"), "{report}");
    let srq = pd.create_srq(4).max_sge(1).build().unwrap();
    let error = srq.post_recv(&[RecvWr::new(2, &sges)]).unwrap_err();
    let report = error.report().to_string();
    assert!(
        report.contains("request 0 of the batch, counted from 0"),
        "{report}"
    );
    assert!(report.contains("more with max_sge when"), "{report}");
    qp.connect(&endpoint, &endpoint, &Default::default())
        .unwrap();
    let long = [0; 17];
    let wrs = [
        SendWr::send_inline(1, b"fits"),
        SendWr::send_inline(2, &long),
    ];
    assert_eq!(
        told(qp.post_send(&wrs)),
        format!(
            "{name}: 1 work request was posted, then: request 1, counted from 0: bytes of inline data: the request has 17, \
         the queue pair takes 16"
        )
    );
    let mut exclusive = qp.exclusive_send().unwrap();
    assert_eq!(
        qp.post_send(&wrs).unwrap_err().cause,
        PostCause::InExclusiveUse
    );
    assert_eq!(
        told(qp.clone().destroy()),
        format!("{name}: one of its queues is in exclusive use; drop the exclusive handle first")
    );
    exclusive.post_send(&wrs[..1]).unwrap();
    drop(exclusive);
    qp.clone().destroy().unwrap();
    assert_eq!(qp.post_send(&wrs).unwrap_err().cause, PostCause::Destroyed);
    assert_eq!(told(qp.state()), format!("{name}: it has been destroyed"));
    assert_eq!(
        told(qp.destroy()),
        format!("{name}: it has been destroyed already")
    );
}

/// The kernel's `EINVAL` is one number for all of them.
#[test]
fn values_that_are_not_there_are_named_with_those_that_are() {
    let device = device();
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(4).build().unwrap();
    let qp = pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
    let init = QpAttr {
        port: Some(1),
        pkey_index: Some(0),
        access: Some(AccessFlags::empty()),
        ..QpAttr::to_state(QpState::Init)
    };
    for port in [0, 9] {
        let error = qp
            .modify(&QpAttr {
                port: Some(port),
                ..init
            })
            .unwrap_err();
        let there = format!("; there is no port {port}: the device has port 1 only");
        assert!(error.to_string().ends_with(&there), "{error}");
        let report = error.report().to_string();
        assert!(
            report.contains("\n  next: ports count from 1: name port 1"),
            "{report}"
        );
        assert!(!report.contains("the attributes fit"), "{report}");
    }
    let pkey_index = Some(700);
    let error = qp.modify(&QpAttr { pkey_index, ..init }).unwrap_err();
    let report = error.report().to_string();
    assert!(report.contains("pkey_index 700 is above "), "{report}");
    assert!(
        report.contains("\n  next: `Context::pkeys` lists"),
        "{report}"
    );
    qp.modify(&init).unwrap();
}

/// What is asked for shows where it was to lead.
#[test]
fn a_state_that_was_left_out_is_missed() {
    let device = device();
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(4).build().unwrap();
    let qp = pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
    let number = qp.qp_num();
    let attr = QpAttr {
        port: Some(1),
        ..QpAttr::default()
    };
    let error = qp.modify(&attr).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "queue pair {number}, RC, RESET→RESET: it does not take PORT; no state was given; to go to \
             INIT: `state: Some(QpState::Init)`"
        )
    );
    let report = error.report().to_string();
    for part in [
        "\n  found: RC RESET→INIT needs ACCESS_FLAGS, PKEY_INDEX, PORT, and takes nothing beside\n",
        "\n  next: begin with `QpAttr::to_state(QpState::Init)`",
    ] {
        assert!(report.contains(part), "{report}");
    }
    assert!(!report.contains("leave PORT out"), "{report}");
}

/// Before anything is asked of the kernel, and with the queue pair left as it was.
#[test]
fn options_out_of_their_ranges_are_named_and_the_kernel_is_not_asked() {
    let device = device();
    let end = End::new(&device);
    device.forget_calls();
    let path = PathOptions {
        psn: Some(1 << 24),
        ..PathOptions::default()
    };
    let error = end.qp.prepare(&path).unwrap_err();
    assert_eq!(
        error.to_string(),
        "psn 16777216 is out of range: 0 to 16777215"
    );
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let default = ConnectOptions::default;
    let cases = [
        (
            ConnectOptions {
                retry_count: 9,
                ..default()
            },
            "retry_count 9 is out of range: 0 to 7",
        ),
        (
            ConnectOptions {
                rnr_retry: 12,
                ..default()
            },
            "rnr_retry 12 is out of range: 0 to 7",
        ),
        (
            ConnectOptions {
                sl: 200,
                ..default()
            },
            "sl 200 is out of range: 0 to 15",
        ),
        (
            ConnectOptions {
                flow_label: 1 << 20,
                ..default()
            },
            "flow_label 1048576 is out of range: 0 to 1048575",
        ),
    ];
    let connect = |remote, options| end.qp.connect(&end.endpoint, &remote, &options);
    for (options, text) in cases {
        assert_eq!(told(connect(end.endpoint, options)), text);
    }
    let mut remote = end.endpoint;
    remote.psn = u32::MAX;
    assert_eq!(
        told(connect(remote, default())),
        "the remote endpoint's psn 4294967295 is out of range: 0 to 16777215"
    );
    assert!(device.calls().is_empty(), "{:?}", device.calls());
    // The last ones that there are.
    let most = ConnectOptions {
        retry_count: 7,
        rnr_retry: 7,
        sl: 15,
        flow_label: (1 << 20) - 1,
        ..default()
    };
    connect(end.endpoint, most).unwrap();
}

#[test]
fn transitions_that_lack_something_or_cannot_be() {
    let device = device();
    let end = End::new(&device);
    let number = end.qp.qp_num();
    let rtr = QpAttr::to_state(QpState::Rtr);
    assert_eq!(
        told(end.qp.modify(&rtr)),
        format!(
            "queue pair {number}, RC, INIT→RTR: it lacks AV, PATH_MTU, RQ_PSN, MIN_RNR_TIMER, \
             MAX_DEST_RD_ATOMIC, DEST_QPN"
        )
    );
    assert_eq!(
        told(end.qp.modify(&QpAttr::to_state(QpState::Rts))),
        format!("queue pair {number}, RC, INIT→RTS: there is no such transition; go by RTR")
    );
    let superfluous = QpAttr {
        qkey: Some(1),
        ..QpAttr::to_state(QpState::Init)
    };
    let error = end.qp.modify(&superfluous).unwrap_err();
    let report = error.report().to_string();
    assert!(
        error.to_string().ends_with("it does not take QKEY"),
        "{error}"
    );
    assert!(report.contains("\n  next: leave QKEY out"), "{report}");
    let strange = PathOptions {
        gid: Some("10.1.2.3".parse::<std::net::IpAddr>().unwrap().into()),
        ..PathOptions::default()
    };
    assert_eq!(
        told(end.qp.prepare(&strange)),
        "port 1 has no GID ::ffff:10.1.2.3"
    );
    let no_port = PathOptions {
        port: 2,
        ..PathOptions::default()
    };
    let text = told(end.qp.prepare(&no_port));
    assert!(
        text.starts_with("cannot ask for port 2: QUERY_PORT failed (EINVAL"),
        "{text}"
    );
    // A peer that nobody has heard of.
    let mut remote = end.endpoint;
    remote.gid = "10.1.2.3".parse::<std::net::IpAddr>().unwrap().into();
    let error = end
        .qp
        .connect(&end.endpoint, &remote, &Default::default())
        .unwrap_err();
    let ConnectError::Modify(refused) = &error else {
        panic!("{error}")
    };
    assert_eq!(refused.errno(), Some(Errno::ETIMEDOUT));
    let hint = "; the peer's address did not answer; the path goes from GID index 1, \
                ::ffff:10.0.0.1 (RoCE v2), to ::ffff:10.1.2.3";
    assert!(error.to_string().contains(hint), "{error}");
    let refused = end.context.query_port(9).unwrap_err();
    assert_eq!(refused.errno(), Some(Errno::EINVAL));
}

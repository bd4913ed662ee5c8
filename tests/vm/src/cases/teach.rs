//! What a program does wrong, and whether the error says so; failed completions with their long form.

use std::time::Duration;

use uverbs::{
    AccessFlags, AckTimeout, ConnectError, ConnectOptions, Context, Endpoint, Errno, Explain, Mtu,
    PathOptions, PostCause, QpAttr, QpState, Rc, RecvWr, RemoteAddr, Report, Rkey, SendWr, Wc,
    WcStatus,
};

use super::pair::{End, Failure, Shape, connect, ensure, open, pair, same, shaped_pair, wait_for};
use super::{Case, CaseResult, Verdict};
use crate::guest::net;

pub(super) const CASES: &[Case] = &[
    Case::new("teach::ports_and_gids_that_are_not_there", not_there),
    Case::new("teach::connecting_twice_or_too_early", twice),
    Case::new("teach::a_read_that_would_never_start", no_reads),
    Case::new("teach::who_uses_what_is_to_be_destroyed", busy),
    Case::new("teach::endpoints_exchanged_or_ones_own", own_endpoint).every_kernel(),
    Case::new("teach::limits_of_queues_that_are_there", limits).every_kernel(),
    Case::new("teach::a_peer_that_is_gone", peer_gone),
    Case::new("teach::a_link_that_goes_down_under_traffic", link_lost),
    Case::new("teach::a_wrong_first_psn", wrong_psn),
    Case::new("teach::keys_bounds_and_rights_of_the_peer", remote_access),
    Case::new("teach::no_receive_and_its_timer", no_receive),
];

pub(super) fn says(text: &str, parts: &[&str]) -> Result<(), Failure> {
    for part in parts {
        ensure(text.contains(part), &format!("{part:?} is not in: {text}"))?;
    }
    Ok(())
}

fn not_there() -> CaseResult {
    let context = Context::open("rxe0")?;
    for port in [0, 2, 255] {
        let error = context.query_port(port).err().ok_or("a port too many")?;
        same("errno", error.errno(), Some(Errno::EINVAL))?;
        same(
            "text",
            error.to_string(),
            format!(
                "cannot ask for port {port}: QUERY_PORT failed (EINVAL: invalid argument); the \
                 device has port 1 only"
            ),
        )?;
        let error = context.query_gid(port, 0).err().ok_or("a port too many")?;
        says(&error.to_string(), &["the device has port 1 only"])?;
    }
    let entries = context.query_port(1)?.gid_tbl_len;
    let error = context
        .query_gid(1, entries)
        .err()
        .ok_or("a GID too many")?;
    same(
        "text",
        error.to_string(),
        format!(
            "cannot ask for GID {entries} of port 1: QUERY_GID_ENTRY failed (EINVAL: invalid \
             argument); the port's table has indices 0 to {}",
            entries - 1
        ),
    )?;
    Ok(Verdict::Passed)
}

fn twice() -> CaseResult {
    let (a, b) = pair()?;
    let options = ConnectOptions::default();
    let error = a.qp.connect(&a.endpoint, &b.endpoint, &options).err();
    let error = error.ok_or("connected twice")?;
    let named = matches!(&error, ConnectError::NotInInit { state: QpState::Rts, peer: Some((qp, _)), .. }
        if *qp == b.qp.qp_num());
    ensure(named, &error.to_string())?;
    says(
        &error.to_string(),
        &[
            "is in RTS, connected to queue pair",
            "at ::ffff:10.0.0.2",
            "`modify` it to RESET, then `prepare` it again",
        ],
    )?;
    let error =
        a.qp.prepare(&PathOptions::default())
            .err()
            .ok_or("INIT from RTS")?;
    says(
        &error.to_string(),
        &["RC, RTS→INIT: there is no such transition; go by RESET"],
    )?;
    // The next step that is named is right.
    a.qp.modify(&QpAttr::to_state(QpState::Reset))?;
    let error = a.qp.connect(&a.endpoint, &b.endpoint, &options).err();
    let error = error.ok_or("connected from RESET")?;
    says(&error.to_string(), &["is in RESET; call `prepare` first"])?;
    let endpoint = a.qp.prepare(&PathOptions::default())?;
    a.qp.connect(&endpoint, &b.endpoint, &options)?;
    same("state", a.qp.state()?, QpState::Rts)?;
    Ok(Verdict::Passed)
}

/// A peer that serves no READs: rxe would take the request and never start it.
fn no_reads() -> CaseResult {
    let none = Shape {
        path: PathOptions {
            max_dest_rd_atomic: 0,
            ..PathOptions::default()
        },
        ..Shape::default()
    };
    let a = Shape::default().prepare(&open("rxe0")?.1)?;
    let b = none.prepare(&open("rxe1")?.1)?;
    connect(&a, &b, &ConnectOptions::default())?;
    let (local, target) = (a.region(64, 0)?, b.region(64, 1)?);
    let sges = [local.slice(..)?];
    let add = SendWr::fetch_add(3, local.slice(..8)?, target.remote(0)?, 1);
    for wr in [SendWr::read(2, &sges, target.remote(0)?), add] {
        let write = SendWr::write_inline(1, b"x", target.remote(0)?).signaled();
        let error = a.qp.post_send(&[write, wr]).err().ok_or("it was posted")?;
        same(
            "batch",
            (error.accepted, error.cause),
            (1, PostCause::NoReads),
        )?;
        says(
            &error.to_string(),
            &["may have no RDMA READ or atomic under way: its max_rd_atomic is 0"],
        )?;
        a.expect("the write before it", 1, WcStatus::Success)?;
    }
    // The other direction has room for them.
    let sges = [target.slice(..)?];
    b.qp.post_send(&[SendWr::read(4, &sges, local.remote(0)?).signaled()])?;
    b.expect("the other way", 4, WcStatus::Success)?;
    Ok(Verdict::Passed)
}

fn busy() -> CaseResult {
    let (context, pd) = open("rxe0")?;
    let cq = context.create_cq(4).build()?;
    let srq = pd.create_srq(4).build()?;
    let qp = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build()?;
    let error = cq.clone().try_destroy().err().ok_or("destroyed")?;
    same(
        "text",
        error.to_string(),
        format!(
            "completion queue {}: CQ_DESTROY failed (EBUSY: device or resource busy); queue pairs still \
             report to it (queue pair {}): destroy or drop those first",
            cq.id(),
            qp.qp_num()
        ),
    )?;
    same("errno", error.errno(), Some(Errno::EBUSY))?;
    let error = srq.clone().try_destroy().err().ok_or("destroyed")?;
    let named = format!(
        "queue pairs still draw from it (queue pair {})",
        qp.qp_num()
    );
    says(&error.to_string(), &[&named])?;
    drop(qp);
    srq.try_destroy()?;
    cq.try_destroy()?;
    Ok(Verdict::Passed)
}

/// The own endpoint in the peer's place: refused where it is surely wrong. A queue pair that is its own
/// peer is legal, and works.
fn own_endpoint() -> CaseResult {
    let hasty = ConnectOptions {
        rnr_retry: 0,
        ..ConnectOptions::default()
    };
    let pd = open("rxe0")?.1;
    let a = Shape::default().prepare(&pd)?;
    let b = Shape::default().prepare(&pd)?;
    let error = a.qp.connect(&b.endpoint, &a.endpoint, &hasty).err();
    let error = error.ok_or("connected the wrong way round")?;
    says(&error.to_string(), &["; local and remote are exchanged"])?;
    same("state", a.qp.state()?, QpState::Init)?;
    a.qp.connect(&a.endpoint, &a.endpoint, &hasty)?;
    let region = a.region(64, 1)?;
    a.qp.post_recv(&[RecvWr::new(1, &[region.slice(..)?])])?;
    a.qp.post_send(&[SendWr::send_inline(2, b"to myself").signaled()])?;
    let mut done = [a.completion()?, a.completion()?];
    done.sort_unstable_by_key(|wc| wc.wr_id);
    same("done", done.map(|wc| wc.status), [WcStatus::Success; 2])?;
    same("bytes", region.to_vec(..9)?, b"to myself".to_vec())?;
    a.qp.post_send(&[SendWr::send_inline(3, b"no receive").signaled()])?;
    let report = explained(&a, WcStatus::RnrRetryExceeded)?.to_string();
    says(&report, &["found: the peer is this queue pair itself"])?;
    Ok(Verdict::Passed)
}

/// What a queue that is there was made for, and what it is asked for.
fn limits() -> CaseResult {
    let (context, pd) = open("rxe0")?;
    let srq = pd.create_srq(4).build()?;
    let has = srq.max_wr();
    let error = srq.set_limit(has + 1).err().ok_or("too high a limit")?;
    same("errno", error.errno(), Some(Errno::EINVAL))?;
    says(
        &error.to_string(),
        &[&format!(
            "; limit {} was asked for, the shared receive queue has {has}",
            has + 1
        )],
    )?;
    let vectors = context.num_comp_vectors();
    let error = context.create_cq(1).comp_vector(vectors).build().err();
    let error = error.ok_or("a completion vector too many")?;
    let wanted = format!("; comp_vector {vectors} was asked for, the device has 0 ");
    says(&error.to_string(), &[&wanted])?;
    // Nothing to change is nothing wrong.
    let end = Shape::default().prepare(&pd)?;
    end.qp.modify(&QpAttr::default())?;
    same("state", end.qp.state()?, QpState::Init)?;
    let qp = pd
        .create_qp::<Rc>(&end.cq, &end.cq)
        .max_send_wr(0)
        .build()?;
    let granted = qp.query()?.caps.max_send_wr;
    ensure(
        granted <= qp.caps().max_send_wr,
        "less than the kernel says",
    )?;
    Ok(Verdict::Passed)
}

/// The failure of this end's only request, explained.
fn explained(a: &End, status: WcStatus) -> Result<Report, Failure> {
    let wc: Wc = a.completion()?;
    same("status", wc.status, status)?;
    let error = wc.ok().err().ok_or("no failure")?;
    let report = a.qp.diagnose(&error);
    says(
        &report.to_string(),
        &[
            &format!(
                "work request {} on queue pair {}: ",
                wc.wr_id,
                a.qp.qp_num()
            ),
            "means: at this end, ",
            "means: at the other end, ",
            "found: the queue pair is in ERR now",
        ],
    )?;
    same("state", a.qp.state()?, QpState::Err)?;
    Ok(report)
}

fn quick() -> ConnectOptions {
    ConnectOptions {
        timeout: AckTimeout::at_least(Duration::from_millis(8)),
        retry_count: 3,
        ..ConnectOptions::default()
    }
}

fn peer_gone() -> CaseResult {
    let (a, b) = shaped_pair(&Shape::default(), &quick())?;
    let target = b.region(64, 1)?.remote(0)?;
    b.qp.clone().destroy()?;
    a.qp.post_send(&[SendWr::write_inline(1, b"x", target)])?;
    let report = explained(&a, WcStatus::RetryExceeded)?.to_string();
    says(
        &report,
        &[
            "cause: the peer is gone: its queue pair destroyed",
            "found: the acknowledgement timer is 8.388608ms, and retry_count 3",
            &format!(
                "found: the peer is queue pair {} at ::ffff:10.0.0.2",
                b.endpoint.qp_num
            ),
        ],
    )?;
    // The network is well, and nothing else is claimed.
    for part in ["not ACTIVE", "no route leads", "is down", "answers for"] {
        ensure(!report.contains(part), &report)?;
    }
    Ok(Verdict::Passed)
}

fn link_lost() -> CaseResult {
    let (a, b) = shaped_pair(&Shape::default(), &quick())?;
    let target = b.region(64, 1)?.remote(0)?;
    net::link_down("veth1")?;
    wait_for("the port to go down", || {
        let state = a.context.query_port(1)?.state;
        Ok((state == uverbs::PortState::Down).then_some(()))
    })?;
    a.qp.post_send(&[SendWr::write_inline(1, b"x", target)])?;
    let report = explained(&a, WcStatus::RetryExceeded)?.to_string();
    says(&report, &["found: port 1 is DOWN, not ACTIVE"])?;
    net::link_up("veth1")?;
    Ok(Verdict::Passed)
}

/// The peer expects what was sent long before: to it every packet comes too early. (What comes late
/// is a duplicate, and acknowledged.)
fn wrong_psn() -> CaseResult {
    let shape = Shape {
        path: PathOptions {
            psn: Some(0x20_0000),
            ..PathOptions::default()
        },
        ..Shape::default()
    };
    let a = shape.prepare(&open("rxe0")?.1)?;
    let b = Shape::default().prepare(&open("rxe1")?.1)?;
    let misheard = Endpoint {
        psn: 0x10_0000,
        ..a.endpoint
    };
    a.qp.connect(&a.endpoint, &b.endpoint, &quick())?;
    b.qp.connect(&b.endpoint, &misheard, &quick())?;
    let target = b.region(64, 1)?.remote(0)?;
    a.qp.post_send(&[SendWr::write_inline(1, b"x", target)])?;
    let report = explained(&a, WcStatus::RetryExceeded)?.to_string();
    says(
        &report,
        &[
            "cause: wrong queue pair number or first PSN",
            "to be compared with the rq_psn that the peer's `query` gives",
        ],
    )?;
    Ok(Verdict::Passed)
}

fn remote_access() -> CaseResult {
    for what in ["key", "bounds", "rights"] {
        let (a, b) = pair()?;
        let region = match what {
            "rights" => b.pd.allocate(64, AccessFlags::REMOTE_READ)?,
            _ => b.region(64, 1)?,
        };
        let good = region.remote(0)?;
        let wrong = match what {
            "key" => RemoteAddr {
                rkey: Rkey(good.rkey.0 ^ 1),
                ..good
            },
            "bounds" => RemoteAddr {
                addr: good.addr + 60,
                ..good
            },
            _ => good,
        };
        a.qp.post_send(&[SendWr::write_inline(1, b"eight by", wrong)])?;
        let report = explained(&a, WcStatus::RemoteAccessError);
        let report = report.map_err(|e| format!("{what}: {e}"))?.to_string();
        says(
            &report,
            &[
                "cause: the rkey is another region's",
                "cause: the range reaches past the region's end",
                "cause: the region was registered without the right",
                "next: let the peer tell address and rkey anew",
            ],
        )?;
    }
    Ok(Verdict::Passed)
}

fn no_receive() -> CaseResult {
    let hasty = ConnectOptions {
        rnr_retry: 0,
        path_mtu: Mtu::Mtu512,
        ..ConnectOptions::default()
    };
    let (a, _b) = shaped_pair(&Shape::default(), &hasty)?;
    a.qp.post_send(&[SendWr::send_inline(1, b"hello").signaled()])?;
    let report = explained(&a, WcStatus::RnrRetryExceeded)?.to_string();
    says(
        &report,
        &[
            "found: rnr_retry is 0",
            "cause: the peer posts its receives late, or too few",
            "the peer's min_rnr_timer",
        ],
    )?;
    Ok(Verdict::Passed)
}

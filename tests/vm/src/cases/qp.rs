//! Queue pairs as objects: limits, queries, endpoints.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use uverbs::{
    AccessFlags, AckTimeout, AddressVector, ConnectError, ConnectOptions, Context, Endpoint, Errno,
    GlobalRoute, Limit, Mtu, PathOptions, QpAttr, QpNum, QpState, Rc, RnrTimer,
};

use super::pair::{Failure, Shape, ensure, open, same};
use super::{Case, CaseResult, Verdict};

pub(super) const CASES: &[Case] = &[
    Case::new("qp::query_gives_back_what_was_set", query_after_each_step),
    Case::new("qp::limits_are_named", limits),
    Case::new("qp::endpoint_as_bytes", endpoint_as_bytes),
    Case::new("qp::no_way_to_the_peer", no_way_to_the_peer),
];

/// What moves a queue pair from INIT to RTR, connected to `remote`.
pub(super) fn to_rtr(
    context: &Context,
    local: &Endpoint,
    remote: &Endpoint,
) -> Result<QpAttr, Failure> {
    let entry = context.find_gid(1, local.gid)?.ok_or("no GID")?;
    let global = Some(GlobalRoute {
        dgid: remote.gid,
        sgid_index: u8::try_from(entry.index)?,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
    });
    Ok(QpAttr {
        path: Some(AddressVector {
            port: 1,
            global,
            ..AddressVector::default()
        }),
        path_mtu: Some(Mtu::Mtu1024),
        dest_qp_num: Some(remote.qp_num),
        rq_psn: Some(remote.psn),
        max_dest_rd_atomic: Some(4),
        min_rnr_timer: Some(RnrTimer::from_code(12)),
        ..QpAttr::to_state(QpState::Rtr)
    })
}

/// What moves it on to RTS.
pub(super) fn to_rts(local: &Endpoint) -> QpAttr {
    QpAttr {
        timeout: Some(AckTimeout::from_code(14)),
        retry_count: Some(7),
        rnr_retry: Some(7),
        sq_psn: Some(local.psn),
        max_rd_atomic: Some(4),
        ..QpAttr::to_state(QpState::Rts)
    }
}

fn query_after_each_step() -> CaseResult {
    let (context, pd) = open("rxe0")?;
    let peer = Shape::default().prepare(&open("rxe1")?.1)?;
    let cq = context.create_cq(16).build()?;
    let qp = pd
        .create_qp::<Rc>(&cq, &cq)
        .max_send_wr(10)
        .max_inline_data(100)
        .build()?;
    let info = qp.query()?;
    same("state", info.state, Some(QpState::Reset))?;
    let (caps, granted) = (info.caps, qp.caps());
    ensure(
        caps.max_send_wr >= 10 && caps.max_inline_data >= 100,
        &format!("{caps:?}"),
    )?;
    same("inline", caps.max_inline_data, granted.max_inline_data)?;
    let path = PathOptions {
        psn: Some(0x12_3456),
        access: AccessFlags::REMOTE_READ,
        ..PathOptions::default()
    };
    let endpoint = qp.prepare(&path)?;
    same(
        "endpoint",
        (endpoint.psn, endpoint.qp_num),
        (0x12_3456, qp.qp_num()),
    )?;
    let info = qp.query()?;
    same(
        "INIT",
        (info.state, info.port, info.pkey_index),
        (Some(QpState::Init), 1, 0),
    )?;
    same("access", info.access, AccessFlags::REMOTE_READ)?;
    let rtr = QpAttr {
        rq_psn: Some(0xAB_CDEF),
        min_rnr_timer: Some(RnrTimer::from_code(13)),
        path_mtu: Some(Mtu::Mtu512),
        max_dest_rd_atomic: Some(7),
        ..to_rtr(&context, &endpoint, &peer.endpoint)?
    };
    qp.modify(&rtr)?;
    let info = qp.query()?;
    same("RTR", info.state, Some(QpState::Rtr))?;
    same("peer", info.dest_qp_num, peer.qp.qp_num())?;
    same("RQ PSN", info.rq_psn, 0xAB_CDEF)?;
    same("RNR timer", info.min_rnr_timer, RnrTimer::from_code(13))?;
    same("MTU", info.path_mtu, Some(Mtu::Mtu512))?;
    let (Some(set), Some(got)) = (rtr.path.and_then(|p| p.global), info.path.global) else {
        return Err(format!("no global part: {info:?}").into());
    };
    same(
        "address",
        (got.dgid, got.sgid_index),
        (set.dgid, set.sgid_index),
    )?;
    same("hops", got.hop_limit, 64)?;
    qp.modify(&QpAttr {
        timeout: Some(AckTimeout::from_code(15)),
        retry_count: Some(5),
        rnr_retry: Some(6),
        max_rd_atomic: Some(3),
        ..to_rts(&endpoint)
    })?;
    let info = qp.query()?;
    same("RTS", info.state, Some(QpState::Rts))?;
    same("SQ PSN", info.sq_psn, 0x12_3456)?;
    same("timeout", info.timeout, AckTimeout::from_code(15))?;
    same("retries", (info.retry_count, info.rnr_retry), (5, 6))?;
    // rxe rounds both up to powers of two.
    same(
        "READs",
        (info.max_rd_atomic, info.max_dest_rd_atomic),
        (4, 8),
    )?;
    qp.modify(&QpAttr::to_state(QpState::Err))?;
    same("ERR", qp.query()?.state, Some(QpState::Err))?;
    Ok(Verdict::Passed)
}

fn limits() -> CaseResult {
    let (context, pd) = open("rxe0")?;
    let device = context.query_device()?;
    let (wr, sge) = (device.max_qp_wr, device.max_sge);
    let cq = context.create_cq(16).build()?;
    let make = || pd.create_qp::<Rc>(&cq, &cq);
    for (name, builder, asked, limit) in [
        ("max_send_wr", make().max_send_wr(wr + 1), wr + 1, wr),
        ("max_recv_wr", make().max_recv_wr(wr + 1), wr + 1, wr),
        ("max_send_wr", make().max_send_wr(u32::MAX), u32::MAX, wr),
        ("max_send_sge", make().max_send_sge(sge + 1), sge + 1, sge),
        ("max_recv_sge", make().max_recv_sge(sge + 1), sge + 1, sge),
    ] {
        let error = builder
            .build()
            .err()
            .ok_or_else(|| format!("{name} {asked} was made"))?;
        let (asked, has) = (u64::from(asked), u64::from(limit));
        let want = vec![Limit::Exceeded { name, asked, has }];
        same(name, &error.limits, &want)?;
        let text = error.to_string();
        ensure(
            text.contains(name) && text.contains(&limit.to_string()),
            &text,
        )?;
    }
    let most = make().max_send_sge(sge).max_recv_sge(sge).build()?;
    ensure(
        most.caps().max_send_sge >= sge,
        &format!("{:?}", most.caps()),
    )?;
    // The device has no attribute for this one: the provider knows.
    for inline in [0u32, 1, 399, 400, 401, 512, 513, 4096] {
        match make().max_inline_data(inline).build() {
            Ok(qp) => ensure(
                inline <= 512 && qp.caps().max_inline_data >= inline,
                &format!("{inline}: {:?}", qp.caps()),
            )?,
            Err(error) => ensure(
                inline > 512
                    && error.to_string().ends_with(&format!(
                        "; max_inline_data {inline} was asked for, the device has 512"
                    )),
                &format!("{inline}: {error}"),
            )?,
        }
    }
    let other = open("rxe1")?.0.create_cq(4).build()?;
    let error = pd
        .create_qp::<Rc>(&cq, &other)
        .build()
        .err()
        .ok_or("another device's queue")?;
    ensure(
        error.to_string().contains("receive completion queue"),
        &error.to_string(),
    )?;
    Ok(Verdict::Passed)
}

fn endpoint_as_bytes() -> CaseResult {
    let a = Shape::default().prepare(&open("rxe0")?.1)?;
    let b = Shape::default().prepare(&open("rxe1")?.1)?;
    let over = |endpoint: &Endpoint| Endpoint::from_bytes(&endpoint.to_bytes());
    let (to_a, to_b) = (over(&b.endpoint)?, over(&a.endpoint)?);
    same("round trip", (to_a, to_b), (b.endpoint, a.endpoint))?;
    ensure(
        a.endpoint.qp_num != QpNum(0) && a.endpoint.lid == 0,
        "an endpoint of nothing",
    )?;
    let options = ConnectOptions::default();
    a.qp.connect(&a.endpoint, &to_a, &options)?;
    b.qp.connect(&b.endpoint, &to_b, &options)?;
    let target = b.region(64, 0)?;
    let wr = uverbs::SendWr::write_inline(1, b"over", target.remote(0)?).signaled();
    a.qp.post_send(&[wr])?;
    a.completion()?.ok()?;
    same("written", target.to_vec(..4)?, b"over".to_vec())?;
    Ok(Verdict::Passed)
}

/// A peer that is not there is told as such, and nobody else waits meanwhile. (A network without a
/// route cannot be had here: whatever comes from an end of the wire is sent out on it.)
fn no_way_to_the_peer() -> CaseResult {
    let (context, pd) = open("rxe0")?;
    let options = ConnectOptions::default();
    let refused = || -> Result<(), Failure> {
        let end = Shape::default().prepare(&pd)?;
        let mut remote = end.endpoint;
        remote.gid = Ipv4Addr::new(10, 0, 0, 77).into();
        let error = end.qp.connect(&end.endpoint, &remote, &options).err();
        let error = error.ok_or("connected to nobody")?;
        let ConnectError::Modify(modify) = &error else {
            return Err(error.into());
        };
        same("errno", modify.errno(), Some(Errno::ETIMEDOUT))?;
        ensure(
            error.to_string().contains("did not answer"),
            &error.to_string(),
        )?;
        same("state", end.qp.state()?, QpState::Init)?;
        // With the right address it goes on from there.
        end.qp.connect(&end.endpoint, &end.endpoint, &options)?;
        same("state", end.qp.state()?, QpState::Rts)
    };
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let result = refused();
            done.store(true, Ordering::SeqCst);
            result
        });
        let mut rounds = 0u32;
        while !done.load(Ordering::SeqCst) {
            context.query_port(1)?;
            context.create_cq(4).build()?.destroy()?;
            rounds += 1;
            thread::yield_now();
        }
        slow.join().map_err(|_| "a thread that connects dies")??;
        // Counted, not timed: a busy host makes each round long, a held lock makes them one or two.
        ensure(
            rounds >= 5,
            &format!("others got through {rounds} rounds meanwhile"),
        )
    })?;
    Ok(Verdict::Passed)
}

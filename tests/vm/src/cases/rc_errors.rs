//! What goes wrong on a reliable connection, and what the completion says then.

use std::time::{Duration, Instant};

use uverbs::{
    AckTimeout, ConnectOptions, PathOptions, QpState, RecvWr, RemoteAddr, Rkey, SendWr, Wc,
    WcStatus,
};

use super::pair::{
    End, Failure, POISON, Shape, all_access, connect, ensure, open, pair, pattern, same,
    same_bytes, shaped_pair, wait_for,
};
use super::{Case, CaseResult, KernelRange, Verdict};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "errors::local_key_of_another_domain_or_of_the_past",
        bad_lkeys,
    ),
    Case::new("errors::local_key_of_a_send_is_named", bad_lkey_named).known_bad(
        KernelRange::ALL,
        "rxe says LocalQpOperationError (6.1), or WrFlushed: the move to ERR overwrites it (6.12)",
    ),
    Case::new("errors::message_longer_than_its_receive", too_long),
    Case::new(
        "errors::receive_into_a_dropped_region",
        dropped_receive_region,
    ),
    Case::new(
        "errors::region_dropped_while_its_send_waits",
        dropped_send_region,
    ),
    Case::new("errors::no_receive_posted", no_receive_posted),
    Case::new("errors::peer_destroyed", peer_destroyed),
    Case::new(
        "errors::a_peer_that_is_gone_is_told_with_the_defaults",
        gone_with_the_defaults,
    ),
    Case::new(
        "errors::one_bad_request_among_good_ones",
        one_bad_among_good,
    ),
];

/// Wants this end's only request to have failed so, and the queue pair to be in ERR.
pub(super) fn failed(what: &str, end: &End, id: u64, status: WcStatus) -> Result<(), Failure> {
    let wc = end.expect(what, id, status)?;
    same(&format!("{what}: opcode"), wc.opcode(), None)?;
    same(&format!("{what}: state"), end.qp.state()?, QpState::Err)
}

/// A request that names memory it must not: by the key of another domain, or of a region that is
/// gone. It is never sent, the memory never written.
fn bad_lkey(gone: bool, reads: bool) -> Result<Wc, Failure> {
    let (a, b) = pair()?;
    let target = b.region(64, 1)?;
    let other = a.context.alloc_pd()?;
    let pd = if gone { &a.pd } else { &other };
    let region = pd.allocate(64, all_access())?;
    let sges = [region.slice(..)?];
    let kept = (!gone).then_some(region);
    let wr = if reads {
        SendWr::read(1, &sges, target.remote(0)?)
    } else {
        SendWr::write(1, &sges, target.remote(0)?)
    };
    let start = Instant::now();
    // Not signalled: a failure makes a completion all the same.
    a.qp.post_send(&[wr])?;
    let wc = a.completion()?;
    ensure(start.elapsed() < Duration::from_secs(2), "took too long")?;
    same("request", (wc.wr_id, wc.opcode()), (1, None))?;
    same("state", a.qp.state()?, QpState::Err)?;
    same_bytes("target", &target.to_vec(..)?, &pattern(64, 1))?;
    if let Some(region) = kept {
        same_bytes("source", &region.to_vec(..)?, &[0; 64])?;
    }
    Ok(wc)
}

fn bad_lkeys() -> CaseResult {
    for gone in [false, true] {
        let wc = bad_lkey(gone, true)?;
        same("READ", wc.status, WcStatus::LocalProtectionError)?;
        ensure(bad_lkey(gone, false)?.ok().is_err(), "the WRITE was done")?;
    }
    Ok(Verdict::Passed)
}

fn bad_lkey_named() -> CaseResult {
    for gone in [false, true] {
        let wc = bad_lkey(gone, false)?;
        same("WRITE", wc.status, WcStatus::LocalProtectionError)?;
    }
    Ok(Verdict::Passed)
}

fn too_long() -> CaseResult {
    for (receive, message) in [(0usize, 1usize), (99, 100), (1000, 1025), (2000, 70_000)] {
        let what = format!("{message} bytes for {receive}");
        let (a, b) = pair()?;
        let out = a.region(message, 1)?;
        let back = b.pd.allocate(4096, all_access())?;
        back.write_at(0, &[POISON; 4096])?;
        let sge = back.slice(..receive)?;
        b.qp.post_recv(&[RecvWr::new(2, &[sge])])?;
        a.qp.post_send(&[SendWr::send(1, &[out.slice(..)?])])?;
        // The specification has RemoteInvalidRequest and LocalLengthError; rxe means them, and looks
        // at what is left of the receive first.
        failed(&what, &a, 1, WcStatus::RemoteOperationError)?;
        failed(&what, &b, 2, WcStatus::LocalQpOperationError)?;
        let after = back.to_vec(receive..)?;
        same_bytes(
            &format!("{what}: after it"),
            &after,
            &vec![POISON; 4096 - receive],
        )?;
    }
    Ok(Verdict::Passed)
}

/// Nothing may be written to memory that belongs to somebody else by now.
fn dropped_receive_region() -> CaseResult {
    const SIZE: usize = 64 << 10;
    let (a, b) = pair()?;
    let out = a.region(SIZE, 1)?;
    let back = b.pd.allocate(SIZE, all_access())?;
    let addr = back.addr();
    b.qp.post_recv(&[RecvWr::new(2, &[back.slice(..)?])])?;
    drop(back);
    // Likely the very same memory; the case holds either way.
    let again: Vec<_> = (0..4).map(|_| vec![POISON; SIZE]).collect();
    let region = b.pd.allocate(SIZE, all_access())?;
    region.write_at(0, &vec![POISON; SIZE])?;
    a.qp.post_send(&[SendWr::send(1, &[out.slice(..)?])])?;
    let sent = a.completion()?;
    same(
        "sender",
        (sent.wr_id, sent.status),
        (1, WcStatus::RemoteOperationError),
    )?;
    // rxe's word for any receive that it cannot write to.
    failed("receiver", &b, 2, WcStatus::LocalQpOperationError)?;
    for memory in &again {
        same_bytes("memory taken anew", memory, &vec![POISON; SIZE])?;
    }
    let what = format!("region at {:#x}, before {addr:#x}", region.addr());
    same_bytes(&what, &region.to_vec(..)?, &vec![POISON; SIZE])?;
    Ok(Verdict::Passed)
}

/// A send that waits for the peer's receive has its memory taken away.
fn dropped_send_region() -> CaseResult {
    let (a, b) = pair()?;
    let out = a.region(4096, 1)?;
    let back = b.region(4096, 0)?;
    a.qp.post_send(&[SendWr::send(1, &[out.slice(..)?])])?;
    a.expect_none("without a receive")?;
    drop(out);
    let again = vec![POISON; 4096];
    b.qp.post_recv(&[RecvWr::new(2, &[back.slice(..)?])])?;
    let sent = a.completion()?;
    ensure(
        sent.wr_id == 1 && sent.ok().is_err(),
        &format!("sender: {sent:?}"),
    )?;
    same("sender", a.qp.state()?, QpState::Err)?;
    same_bytes("memory taken anew", &again, &[POISON; 4096])?;
    same_bytes("nothing arrived", &back.to_vec(..)?, &pattern(4096, 0))?;
    Ok(Verdict::Passed)
}

fn no_receive_posted() -> CaseResult {
    let hasty = ConnectOptions {
        rnr_retry: 0,
        ..ConnectOptions::default()
    };
    let (a, _b) = shaped_pair(&Shape::default(), &hasty)?;
    a.qp.post_send(&[SendWr::send_inline(1, b"hello").signaled()])?;
    failed("no retry", &a, 1, WcStatus::RnrRetryExceeded)?;

    let few = ConnectOptions {
        rnr_retry: 3,
        ..ConnectOptions::default()
    };
    let (a, _b) = shaped_pair(&Shape::default(), &few)?;
    a.qp.post_send(&[SendWr::send_inline(1, b"hello").signaled()])?;
    failed("3 retries", &a, 1, WcStatus::RnrRetryExceeded)?;

    let (a, b) = pair()?;
    let back = b.region(64, 0)?;
    a.qp.post_send(&[SendWr::send_inline(1, b"hello").signaled()])?;
    let late = Instant::now() + Duration::from_millis(50);
    wait_for("50 ms without a completion", || {
        a.expect_none("before the receive")?;
        Ok((Instant::now() > late).then_some(()))
    })?;
    b.qp.post_recv(&[RecvWr::new(2, &[back.slice(..)?])])?;
    a.completion()?.ok()?;
    b.completion()?.ok()?;
    same_bytes("late", &back.to_vec(..5)?, b"hello")?;
    Ok(Verdict::Passed)
}

fn peer_destroyed() -> CaseResult {
    let options = ConnectOptions {
        timeout: AckTimeout::at_least(Duration::from_millis(8)),
        retry_count: 3,
        ..ConnectOptions::default()
    };
    for op in ["send", "read"] {
        let (a, b) = shaped_pair(&Shape::default(), &options)?;
        let local = a.region(64, 1)?;
        let target = b.region(64, 1)?;
        b.qp.clone().destroy()?;
        let sges = [local.slice(..)?];
        let wr = match op {
            "send" => SendWr::send(1, &sges),
            _ => SendWr::read(1, &sges, target.remote(0)?),
        };
        let start = Instant::now();
        a.qp.post_send(&[wr])?;
        failed(op, &a, 1, WcStatus::RetryExceeded)?;
        // Four times 8.4 ms; the kernel's timers, and a slow guest, make more of it.
        ensure(start.elapsed() < Duration::from_secs(5), "took too long")?;
    }
    Ok(Verdict::Passed)
}

/// On rxe a retry count of 7 is without end: the default must not be that.
fn gone_with_the_defaults() -> CaseResult {
    let (a, b) = pair()?;
    let target = b.region(64, 1)?.remote(0)?;
    b.qp.clone().destroy()?;
    a.qp.post_send(&[SendWr::write_inline(1, b"x", target)])?;
    failed("write", &a, 1, WcStatus::RetryExceeded)?;
    Ok(Verdict::Passed)
}

/// A failed request of one queue pair is no trouble for the other on the same completion queue.
fn one_bad_among_good() -> CaseResult {
    let (_, here) = open("rxe0")?;
    let (_, there) = open("rxe1")?;
    let shape = Shape::default();
    let (good, peer) = (shape.prepare(&here)?, shape.prepare(&there)?);
    connect(&good, &peer, &ConnectOptions::default())?;
    let other = shape.prepare(&there)?;
    let qp = here
        .create_qp::<uverbs::Rc>(&good.cq, &good.cq)
        .max_inline_data(64)
        .build()?;
    let endpoint = qp.prepare(&PathOptions::default())?;
    let bad = End {
        qp,
        endpoint,
        ..good.clone()
    };
    connect(&bad, &other, &ConnectOptions::default())?;
    let target = peer.region(64, 0)?;
    let remote = target.remote(0)?;
    let wrong = RemoteAddr {
        rkey: Rkey(remote.rkey.0 ^ 1),
        ..remote
    };
    for id in 0..10 {
        good.qp
            .post_send(&[SendWr::write_inline(id, b"good", remote).signaled()])?;
    }
    bad.qp
        .post_send(&[SendWr::write_inline(777, b"bad", wrong)])?;
    for id in 10..50 {
        good.qp
            .post_send(&[SendWr::write_inline(id, b"good", remote).signaled()])?;
    }
    let all = good.completions(51)?;
    let (failures, fine): (Vec<_>, Vec<_>) = all.into_iter().partition(|wc| wc.ok().is_err());
    let seen: Vec<_> = failures
        .iter()
        .map(|wc| (wc.wr_id, wc.qp_num, wc.status))
        .collect();
    same(
        "failures",
        seen,
        vec![(777, bad.qp.qp_num(), WcStatus::RemoteAccessError)],
    )?;
    same(
        "in order",
        fine.iter().map(|wc| wc.wr_id).collect(),
        (0..50).collect::<Vec<_>>(),
    )?;
    Ok(Verdict::Passed)
}

//! What a queue pair in ERR does with requests: all come back flushed, sends and receives, whether
//! it went there by a command or by itself.

use uverbs::{ConnectOptions, QpAttr, QpState, RecvWr, RemoteAddr, Rkey, SendWr, WcStatus};

use super::pair::{End, Failure, Shape, ensure, pair, same, shaped_pair, wait_for};
use super::{Case, CaseResult, Verdict};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "errors::a_failed_request_takes_the_others_along",
        others_go_along,
    ),
    Case::new("errors::posted_after_err_by_command", after_err_by_command),
    Case::new("errors::posted_after_err_by_itself", after_err_by_itself),
    Case::new("errors::posted_before_err_is_known", before_err_is_known),
];

/// Those before are done, the bad one fails, those after it are flushed, signalled or not; so are
/// the receives.
fn others_go_along() -> CaseResult {
    let (a, b) = pair()?;
    let local = a.region(64, 1)?;
    let target = b.region(64, 2)?;
    let sges = [local.slice(..)?];
    let good = target.remote(0)?;
    let bad = RemoteAddr {
        rkey: Rkey(0),
        ..good
    };
    for id in 0..3 {
        a.qp.post_recv(&[RecvWr::new(50 + id, &sges)])?;
    }
    a.qp.post_send(&[
        SendWr::write(1, &sges, good).signaled(),
        SendWr::write(2, &sges, good).signaled(),
        SendWr::write(3, &sges, bad),
        SendWr::write(4, &sges, good),
        SendWr::send(5, &sges).signaled(),
        SendWr::read(6, &sges, good),
    ])?;
    let all = a.completions(9)?;
    let (sends, receives): (Vec<_>, Vec<_>) = all.into_iter().partition(|wc| wc.wr_id < 50);
    let seen: Vec<_> = sends.iter().map(|wc| (wc.wr_id, wc.status)).collect();
    let want = vec![
        (1, WcStatus::Success),
        (2, WcStatus::Success),
        (3, WcStatus::RemoteAccessError),
        (4, WcStatus::WrFlushed),
        (5, WcStatus::WrFlushed),
        (6, WcStatus::WrFlushed),
    ];
    same("sends", seen, want)?;
    let seen: Vec<_> = receives.iter().map(|wc| (wc.wr_id, wc.status)).collect();
    let want: Vec<_> = (50..53).map(|id| (id, WcStatus::WrFlushed)).collect();
    same("receives", seen, want)?;
    Ok(Verdict::Passed)
}

/// Posts to a queue pair in ERR, and wants all of it back.
fn all_flushed(end: &End) -> Result<(), Failure> {
    let region = end.region(64, 1)?;
    let sges = [region.slice(..)?];
    for round in 0..3 {
        let id = 1000 + 10 * round;
        end.qp
            .post_recv(&[RecvWr::new(id, &sges), RecvWr::new(id + 1, &sges)])?;
        for wc in end.completions(2)?.iter().zip([id, id + 1]) {
            same(
                "receive",
                (wc.0.wr_id, wc.0.status),
                (wc.1, WcStatus::WrFlushed),
            )?;
        }
        end.qp.post_send(&[
            SendWr::send(id + 2, &sges).signaled(),
            SendWr::send(id + 3, &sges),
        ])?;
        for wc in end.completions(2)?.iter().zip([id + 2, id + 3]) {
            same(
                "send",
                (wc.0.wr_id, wc.0.status),
                (wc.1, WcStatus::WrFlushed),
            )?;
        }
    }
    end.expect_none("after the flush")
}

fn after_err_by_command() -> CaseResult {
    let (a, b) = pair()?;
    let region = b.region(64, 1)?;
    b.qp.post_recv(&[RecvWr::new(1, &[region.slice(..)?])])?;
    for end in [&a, &b] {
        end.qp.modify(&QpAttr::to_state(QpState::Err))?;
    }
    b.expect("receive posted before", 1, WcStatus::WrFlushed)?;
    all_flushed(&a)?;
    all_flushed(&b)?;
    // Straight from INIT as well.
    let c = Shape::default().prepare(&a.pd)?;
    c.qp.modify(&QpAttr::to_state(QpState::Err))?;
    all_flushed(&c)?;
    Ok(Verdict::Passed)
}

fn after_err_by_itself() -> CaseResult {
    let hasty = ConnectOptions {
        rnr_retry: 0,
        ..ConnectOptions::default()
    };
    // The sender learns it from its failed request.
    let (a, _b) = shaped_pair(&Shape::default(), &hasty)?;
    a.qp.post_send(&[SendWr::send_inline(1, b"x")])?;
    a.expect("no receive", 1, WcStatus::RnrRetryExceeded)?;
    all_flushed(&a)?;
    // The responder learns it from a receive that comes back.
    let (a, b) = pair()?;
    let region = b.region(64, 1)?;
    let bad = RemoteAddr {
        rkey: Rkey(0),
        ..region.remote(0)?
    };
    b.qp.post_recv(&[RecvWr::new(5, &[region.slice(..)?])])?;
    a.qp.post_send(&[SendWr::write_inline(1, b"x", bad)])?;
    a.expect("wrong key", 1, WcStatus::RemoteAccessError)?;
    ensure(b.completion()?.ok().is_err(), "the receive succeeded")?;
    all_flushed(&b)?;
    // Or, if it had none posted, from asking.
    let (a, b) = pair()?;
    let bad = RemoteAddr {
        rkey: Rkey(0),
        ..b.region(64, 1)?.remote(0)?
    };
    a.qp.post_send(&[SendWr::write_inline(1, b"x", bad)])?;
    a.expect("wrong key", 1, WcStatus::RemoteAccessError)?;
    same("responder", b.qp.state()?, QpState::Err)?;
    all_flushed(&b)?;
    Ok(Verdict::Passed)
}

/// Receives posted after the queue pair has gone to ERR by itself, and before anybody has polled
/// why: the poll that tells of the failure sees to it that they come back as well.
fn before_err_is_known() -> CaseResult {
    let (a, b) = pair()?;
    let region = a.region(64, 1)?;
    let sges = [region.slice(..)?];
    let bad = RemoteAddr {
        rkey: Rkey(0),
        ..b.region(64, 2)?.remote(0)?
    };
    a.qp.post_recv(&[RecvWr::new(10, &sges)])?;
    a.qp.post_send(&[SendWr::write_inline(1, b"x", bad)])?;
    // The peer knows as soon as it has refused; nobody here has looked yet.
    wait_for("the peer in ERR", || {
        Ok((b.qp.state()? == QpState::Err).then_some(()))
    })?;
    std::thread::sleep(std::time::Duration::from_millis(300));
    a.qp.post_recv(&[RecvWr::new(11, &sges), RecvWr::new(12, &sges)])?;
    let all = a.completions(4)?;
    let mut seen: Vec<_> = all.iter().map(|wc| (wc.wr_id, wc.status)).collect();
    seen.sort_by_key(|(wr_id, _)| *wr_id);
    let mut want = vec![(1, WcStatus::RemoteAccessError)];
    want.extend((10..13).map(|wr_id| (wr_id, WcStatus::WrFlushed)));
    same("completions", seen, want)?;
    a.expect_none("after the flush")?;
    Ok(Verdict::Passed)
}

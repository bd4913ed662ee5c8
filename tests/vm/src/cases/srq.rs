//! Shared receive queues.

use uverbs::{
    ConnectOptions, DestroyErrorCause, Errno, Limit, PostCause, RecvWr, SendWr, SharedReceiveQueue,
    WcStatus,
};

use super::pair::{
    End, Failure, Shape, connect, ensure, open, pattern, same, same_bytes, wait_for,
};
use super::rc_queue::refusal;
use super::{Case, CaseResult, Verdict};

pub(super) const CASES: &[Case] = &[
    Case::new("srq::sizes_and_limits", sizes),
    Case::new("srq::posting", posting),
    Case::new("srq::two_queue_pairs_draw_from_one", two_draw_from_one).every_kernel(),
    Case::new("srq::refuses_receives_on_its_queue_pairs", no_own_receives),
    Case::new("srq::dropped_before_its_queue_pair", dropped_first),
];

fn sizes() -> CaseResult {
    let (context, pd) = open("rxe0")?;
    let device = context.query_device()?;
    let (max_wr, max_sge) = (device.max_srq_wr, device.max_srq_sge);
    for (wr, sge) in [(1, 1), (3, 2), (100, max_sge), (max_wr.min(1 << 14), 1)] {
        let srq = pd.create_srq(wr).max_sge(sge).build()?;
        let what = format!("{wr} of {sge}");
        ensure(
            srq.max_wr() >= wr && srq.max_sge() >= sge,
            &format!("{what}: {srq:?}"),
        )?;
        let attr = srq.query()?;
        ensure(
            attr.max_wr >= wr && attr.max_sge >= sge,
            &format!("{what}: {attr:?}"),
        )?;
        same(&format!("{what}: limit"), attr.limit, 0)?;
        for limit in [1, wr, 0] {
            srq.set_limit(limit)?;
            same(&format!("{what}: limit"), srq.query()?.limit, limit)?;
        }
        let above = srq.set_limit(attr.max_wr + 1).err().and_then(|e| e.errno());
        same(
            &format!("{what}: limit above its size"),
            above,
            Some(Errno::EINVAL),
        )?;
        same("limit as before", srq.query()?.limit, 0)?;
        srq.destroy()?;
    }
    let zero = pd.create_srq(0).build().err().ok_or("made with 0")?;
    ensure(zero.to_string().contains("max_wr"), &zero.to_string())?;
    for (name, wr, sge, limit) in [
        ("max_wr", max_wr + 1, 1, max_wr),
        ("max_wr", u32::MAX, 1, max_wr),
        ("max_sge", 1, max_sge + 1, max_sge),
    ] {
        let error = pd.create_srq(wr).max_sge(sge).build().err();
        let error = error.ok_or("above the limit")?;
        let asked = u64::from(if name == "max_wr" { wr } else { sge });
        let has = u64::from(limit);
        same(
            name,
            &error.limits,
            &vec![Limit::Exceeded { name, asked, has }],
        )?;
        let text = error.to_string();
        ensure(
            text.contains(name) && text.contains(&limit.to_string()),
            &text,
        )?;
    }
    Ok(Verdict::Passed)
}

fn posting() -> CaseResult {
    let (_, pd) = open("rxe0")?;
    let srq = pd.create_srq(5).max_sge(2).build()?;
    let cap = usize::try_from(srq.max_wr())?;
    let max = usize::try_from(srq.max_sge())?;
    let region = pd.allocate(64, super::pair::all_access())?;
    let sges = vec![region.slice(..8)?; max + 1];
    let cause = PostCause::TooManySge {
        given: max + 1,
        max: srq.max_sge(),
    };
    let wrs = [RecvWr::new(1, &sges[..max]), RecvWr::new(2, &sges)];
    same("elements", refusal(srq.post_recv(&wrs)), Some((1, cause)))?;
    let wrs = vec![RecvWr::new(3, &sges[..1]); cap];
    let full = PostCause::QueueFull;
    same("full", refusal(srq.post_recv(&wrs)), Some((cap - 1, full)))?;
    same("full", refusal(srq.post_recv(&wrs[..1])), Some((0, full)))?;
    srq.clone().destroy()?;
    let gone = refusal(srq.post_recv(&wrs[..1]));
    same("destroyed", gone, Some((0, PostCause::Destroyed)))?;
    ensure(
        srq.query().is_err() && srq.set_limit(1).is_err(),
        "a destroyed queue answers",
    )?;
    Ok(Verdict::Passed)
}

/// Two queue pairs of one completion queue and one shared receive queue on `rxe1`, each with a
/// sender on `rxe0`.
fn two(
    srq: &SharedReceiveQueue,
    pd: &uverbs::ProtectionDomain,
) -> Result<[(End, End); 2], Failure> {
    let (_, near) = open("rxe0")?;
    let receivers = Shape {
        srq: Some(srq.clone()),
        ..Shape::default()
    };
    let couple = || -> Result<(End, End), Failure> {
        let (a, b) = (Shape::default().prepare(&near)?, receivers.prepare(pd)?);
        connect(&a, &b, &ConnectOptions::default())?;
        Ok((a, b))
    };
    Ok([couple()?, couple()?])
}

fn two_draw_from_one() -> CaseResult {
    let (_, pd) = open("rxe1")?;
    let srq = pd.create_srq(8).max_sge(2).build()?;
    let couples = two(&srq, &pd)?;
    let slots = srq.max_wr() as usize;
    let back = pd.allocate(slots * 64, super::pair::all_access())?;
    let post = |slot: usize| -> Result<(), Failure> {
        let sges = [
            back.slice(slot * 64..slot * 64 + 20)?,
            back.slice(slot * 64 + 20..slot * 64 + 64)?,
        ];
        srq.post_recv(&[RecvWr::new(slot as u64, &sges)])?;
        Ok(())
    };
    for slot in 0..slots {
        post(slot)?;
    }
    for round in 0..60u8 {
        let (a, b) = &couples[usize::from(round % 3 == 0)];
        let slot = usize::from(round) % slots;
        let message = pattern(60, round);
        a.qp.post_send(&[SendWr::send_inline(7, &message)
            .with_imm(u32::from(round))
            .signaled()])?;
        a.expect("sent", 7, WcStatus::Success)?;
        let wc = b.expect("drawn in order", slot as u64, WcStatus::Success)?;
        same("immediate", wc.imm(), Some(u32::from(round)))?;
        let got = back.to_vec(slot * 64..slot * 64 + 60)?;
        same_bytes("message", &got, &message)?;
        post(slot)?;
    }
    // Used up, then posted late.
    for _ in 0..slots {
        let (a, b) = &couples[0];
        a.qp.post_send(&[SendWr::send_inline(1, b"x").signaled()])?;
        a.completion()?.ok()?;
        b.completion()?.ok()?;
    }
    let (a, b) = &couples[1];
    a.qp.post_send(&[SendWr::send_inline(2, b"x").signaled()])?;
    a.expect_none("nothing posted")?;
    post(0)?;
    a.expect("posted late", 2, WcStatus::Success)?;
    b.expect("posted late", 0, WcStatus::Success)?;
    Ok(Verdict::Passed)
}

fn no_own_receives() -> CaseResult {
    let (_, pd) = open("rxe0")?;
    let srq = pd.create_srq(8).build()?;
    let shape = Shape {
        // Without meaning beside a shared queue, and not in the way.
        recv: 1_000_000_000,
        srq: Some(srq.clone()),
        ..Shape::default()
    };
    let end = shape.prepare(&pd)?;
    same("own receives", end.qp.caps().max_recv_wr, 0)?;
    ensure(end.qp.srq() == Some(&srq), "not the queue it draws from")?;
    let cause = PostCause::UsesSharedReceiveQueue;
    let refused = refusal(end.qp.post_recv(&[RecvWr::new(1, &[])]));
    same("post", refused, Some((0, cause)))?;
    let refused = end.qp.exclusive_recv().err().map(|e| e.cause);
    same(
        "exclusive",
        refused,
        Some(uverbs::TakeCause::UsesSharedReceiveQueue),
    )?;
    Ok(Verdict::Passed)
}

/// The queue pair keeps it; a destroy under a queue pair is refused.
fn dropped_first() -> CaseResult {
    let (context, pd) = open("rxe1")?;
    let srq = pd.create_srq(8).build()?;
    let [(a, b), other] = two(&srq, &pd)?;
    let back = b.region(64, 0)?;
    let error = srq
        .clone()
        .destroy()
        .err()
        .ok_or("destroyed under a queue pair")?;
    let busy = matches!(error.cause, DestroyErrorCause::Busy { source, .. } if source.errno() == Some(Errno::EBUSY));
    ensure(busy, &error.to_string())?;
    ensure(
        error.into_object().as_ref() == Some(&srq),
        "the object was lost",
    )?;
    srq.post_recv(&[RecvWr::new(1, &[back.slice(..)?]); 3])?;
    drop(srq);
    drop(other);
    for round in 0..2 {
        let message = pattern(33, round);
        a.qp.post_send(&[SendWr::send_inline(1, &message).signaled()])?;
        a.expect("sent", 1, WcStatus::Success)?;
        b.expect("received", 1, WcStatus::Success)?;
        same_bytes("message", &back.to_vec(..33)?, &message)?;
    }
    let count = || -> Result<usize, Failure> {
        let all = std::fs::read_dir("/proc/self/fd")?.count();
        Ok(all)
    };
    let before = count()?;
    drop((b, back, pd, context));
    // The last handles were those: the device is closed with the queue pair, the queue after it.
    wait_for(
        "the device closed",
        || Ok((count()? < before).then_some(())),
    )?;
    Ok(Verdict::Passed)
}

//! Completion queues: sizes, order, sharing, and what stays in them.

use uverbs::{
    Arm, ConnectOptions, CreateErrorCause, DestroyErrorCause, Errno, Limit, PathOptions, Rc,
    RecvWr, SendWr, Wc, WcOpcode, WcStatus,
};

use super::pair::{End, Shape, connect, ensure, open, pair, same, shaped_pair, wait_for};
use super::{Case, CaseResult, Verdict};

pub(super) const CASES: &[Case] = &[
    Case::new("cq::depths", depths),
    Case::new("cq::of_depth_1", depth_1),
    Case::new("cq::polling_an_empty_one_changes_nothing", empty_polls),
    Case::new("cq::order_over_many_rounds", order),
    Case::new("cq::completions_survive_their_queue_pair", survive),
    Case::new("cq::shared_by_two_queue_pairs", shared),
    Case::new("cq::destroy_while_used", destroy_while_used),
];

fn depths() -> CaseResult {
    let (context, _pd) = open("rxe0")?;
    let max = context.query_device()?.max_cqe;
    for depth in [1, 2, 3, 100, max - 1, max] {
        let cq = context.create_cq(depth).build()?;
        ensure(cq.depth() >= depth, &format!("{depth} asked for: {cq:?}"))?;
        cq.destroy()?;
    }
    let error = context
        .create_cq(0)
        .build()
        .err()
        .ok_or("depth 0 was made")?;
    let zero = matches!(error.cause, CreateErrorCause::Zero { .. });
    ensure(zero, &format!("depth 0: {error}"))?;
    for depth in [max + 1, i32::MAX.unsigned_abs(), u32::MAX] {
        let error = context
            .create_cq(depth)
            .build()
            .err()
            .ok_or("above the limit")?;
        let limit = Limit::Exceeded {
            name: "depth",
            asked: u64::from(depth),
            has: u64::from(max),
        };
        same("limits", &error.limits, &vec![limit])?;
        let text = error.to_string();
        let named = text.contains(&depth.to_string()) && text.contains(&max.to_string());
        ensure(named, &text)?;
    }
    let error = context
        .create_cq(4)
        .comp_vector(context.num_comp_vectors())
        .build();
    let error = error.err().ok_or("a vector that is not there")?;
    let vectors = u64::from(context.num_comp_vectors());
    let limit = Limit::NoSuch {
        name: "comp_vector",
        asked: vectors,
        count: vectors,
    };
    same("limits", &error.limits, &vec![limit])?;
    Ok(Verdict::Passed)
}

fn depth_1() -> CaseResult {
    let shape = Shape {
        depth: 1,
        ..Shape::default()
    };
    let (a, b) = shaped_pair(&shape, &ConnectOptions::default())?;
    let target = b.region(64, 0)?;
    for id in 0..10 {
        a.qp.post_send(&[SendWr::write_inline(id, b"x", target.remote(0)?).signaled()])?;
        a.expect("one at a time", id, WcStatus::Success)?;
    }
    Ok(Verdict::Passed)
}

/// Neither many polls nor empty slices move the index.
fn empty_polls() -> CaseResult {
    let (a, b) = pair()?;
    let target = b.region(64, 0)?;
    let mut room = [Wc::default(); 8];
    for id in 0..600 {
        for _ in 0..20 {
            ensure(a.cq.poll(&mut room)?.is_empty(), "a phantom completion")?;
        }
        ensure(
            a.cq.poll(&mut [])?.is_empty(),
            "more than there was room for",
        )?;
        a.qp.post_send(&[SendWr::write_inline(id, b"x", target.remote(0)?).signaled()])?;
        a.cq.arm(if id % 2 == 0 {
            Arm::Next
        } else {
            Arm::Solicited
        })?;
        let wc = wait_for("a completion", || {
            ensure(
                a.cq.poll(&mut [])?.is_empty(),
                "more than there was room for",
            )?;
            Ok(a.cq.poll(&mut room)?.first().copied())
        })?;
        same("completion", (wc.wr_id, wc.status), (id, WcStatus::Success))?;
    }
    Ok(Verdict::Passed)
}

/// A ring of 8 slots, passed a hundred times, in pieces of every size.
fn order() -> CaseResult {
    let shape = Shape {
        depth: 7,
        ..Shape::default()
    };
    let (a, b) = shaped_pair(&shape, &ConnectOptions::default())?;
    same("depth", a.cq.depth(), 7)?;
    let target = b.region(64, 0)?;
    let far = target.remote(0)?;
    let (mut posted, mut seen) = (0u64, 0u64);
    for round in 0..200u64 {
        let count = 1 + round % 7;
        let wrs: Vec<_> = (posted..posted + count)
            .map(|id| SendWr::write_inline(id, b"x", far).signaled())
            .collect();
        a.qp.post_send(&wrs)?;
        posted += count;
        while seen < posted {
            let piece = usize::try_from((posted - seen).min(1 + round % 3))?;
            for wc in a.completions(piece)? {
                wc.ok()?;
                same("order", wc.wr_id, seen)?;
                seen += 1;
            }
        }
    }
    Ok(Verdict::Passed)
}

fn survive() -> CaseResult {
    let (a, b) = pair()?;
    let target = b.region(64, 0)?;
    for id in 0..5 {
        b.qp.post_recv(&[RecvWr::new(id, &[target.slice(..)?])])?;
        a.qp.post_send(&[SendWr::send_inline(id, b"hello").with_imm(3).signaled()])?;
    }
    let number = b.qp.qp_num();
    // The sender's last completion says that the receiver's are all there.
    a.completions(5)?;
    b.qp.clone().destroy()?;
    for (id, wc) in (0..).zip(b.completions(5)?) {
        wc.ok()?;
        same(
            "completion",
            (wc.wr_id, wc.qp_num, wc.imm()),
            (id, number, Some(3)),
        )?;
        same("opcode", wc.opcode(), Some(WcOpcode::Recv))?;
    }
    b.expect_none("after the last")?;
    Ok(Verdict::Passed)
}

fn shared() -> CaseResult {
    let (context, pd) = open("rxe0")?;
    let (_, far) = open("rxe1")?;
    let cq = context.create_cq(64).build()?;
    let mut ends = Vec::new();
    for _ in 0..2 {
        let qp = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(16).build()?;
        let endpoint = qp.prepare(&PathOptions::default())?;
        let (context, pd, cq) = (context.clone(), pd.clone(), cq.clone());
        let near = End {
            context,
            pd,
            cq,
            qp,
            endpoint,
        };
        let peer = Shape::default().prepare(&far)?;
        connect(&near, &peer, &ConnectOptions::default())?;
        ends.push((near, peer));
    }
    for id in 0..16u64 {
        let (near, peer) = &ends[usize::from(id % 3 == 0)];
        peer.qp.post_recv(&[RecvWr::new(id, &[])])?;
        near.qp.post_recv(&[RecvWr::new(100 + id, &[])])?;
        near.qp
            .post_send(&[SendWr::send_inline(id, &[]).signaled()])?;
        peer.qp
            .post_send(&[SendWr::send_inline(id, &[]).signaled()])?;
    }
    let (first, _) = &ends[0];
    for wc in first.completions(32)? {
        wc.ok()?;
        let (near, _) = &ends[usize::from((wc.wr_id % 100) % 3 == 0)];
        same("queue pair", wc.qp_num, near.qp.qp_num())?;
        let is_recv = wc.opcode().is_some_and(WcOpcode::is_recv);
        same("side", is_recv, wc.wr_id >= 100)?;
    }
    Ok(Verdict::Passed)
}

fn destroy_while_used() -> CaseResult {
    let (a, _b) = pair()?;
    let error =
        a.cq.clone()
            .destroy()
            .err()
            .ok_or("destroyed under a queue pair")?;
    let busy = matches!(error.cause, DestroyErrorCause::Busy { source, .. } if source.errno() == Some(Errno::EBUSY));
    ensure(busy, &format!("{error}"))?;
    ensure(
        error.into_object().as_ref() == Some(&a.cq),
        "the object was lost",
    )?;
    a.expect_none("still there")?;
    // The queue pair keeps its queue: dropping the handle first does no harm.
    let End { cq, qp, .. } = a;
    drop(cq);
    let cq = qp.send_cq().clone();
    qp.destroy()?;
    cq.destroy()?;
    Ok(Verdict::Passed)
}

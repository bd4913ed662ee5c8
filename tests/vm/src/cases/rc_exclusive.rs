//! Queues in the hands of one owner: nobody else posts, polls or destroys meanwhile.

use uverbs::{
    CompletionQueue, DestroyErrorCause, PollError, PostCause, QueueId, RecvWr, SendWr, TakeCause,
    Wc, WcStatus,
};

use super::pair::{ensure, pair, pattern, same, same_bytes, wait_for};
use super::rc_queue::refusal;
use super::{Case, CaseResult, Verdict};

pub(super) const CASES: &[Case] = &[
    Case::new("queue::exclusive_handles", exclusive_handles),
    Case::new("queue::exclusive_completion_queue", exclusive_cq),
    Case::new("queue::destroy_while_exclusive", destroy_while_exclusive),
];

fn exclusive_handles() -> CaseResult {
    let (a, b) = pair()?;
    let target = b.region(64, 0)?;
    let in_use = Some((0, PostCause::InExclusiveUse));
    for round in 0..4 {
        let mut send = a.qp.exclusive_send()?;
        let mut recv = b.qp.exclusive_recv()?;
        let twice = [
            (&a, a.qp.exclusive_send().err()),
            (&b, b.qp.exclusive_recv().err()),
        ];
        for (end, error) in twice {
            let error = error.ok_or("two exclusive handles of one queue")?;
            let id = QueueId::QueuePair(end.qp.qp_num());
            same("whose", error.queue, id)?;
            same("why", error.cause, TakeCause::InExclusiveUse)?;
        }
        let out = pattern(16, round);
        let wr = [SendWr::send_inline(1, &out).signaled()];
        let sge = [target.slice(..16)?];
        let rr = [RecvWr::new(2, &sge)];
        same("shared send", refusal(a.qp.post_send(&wr)), in_use)?;
        same("shared receive", refusal(b.qp.post_recv(&rr)), in_use)?;
        // The other queue of each is free.
        a.qp.post_recv(&[RecvWr::new(9, &[])])?;
        recv.post_recv(&rr)?;
        send.post_send(&wr)?;
        a.completion()?.ok()?;
        b.completion()?.ok()?;
        same_bytes("message", &target.to_vec(..16)?, &out)?;
        same(
            "shared",
            send.shared() == &a.qp && recv.shared() == &b.qp,
            true,
        )?;
        drop((send, recv));
        b.qp.post_recv(&rr)?;
        a.qp.post_send(&wr)?;
        a.completion()?.ok()?;
        b.completion()?.ok()?;
    }
    Ok(Verdict::Passed)
}

fn exclusive_cq() -> CaseResult {
    let (a, b) = pair()?;
    let target = b.region(64, 0)?;
    let mut room = [Wc::default(); 4];
    let mut cq = a.cq.exclusive()?;
    same(
        "shared",
        a.cq.poll(&mut room).err(),
        Some(PollError::InExclusiveUse),
    )?;
    ensure(
        a.cq.exclusive().is_err(),
        "two exclusive handles of one queue",
    )?;
    for id in 0..20 {
        let wr = SendWr::write_inline(id, b"x", target.remote(0)?).signaled();
        a.qp.post_send(&[wr])?;
        let wc = wait_for("a completion", || Ok(cq.poll(&mut room)?.first().copied()))?;
        wc.ok()?;
        same("order", wc.wr_id, id)?;
    }
    a.qp.post_send(&[SendWr::write_inline(20, b"x", target.remote(0)?).signaled()])?;
    drop(cq);
    a.expect("put back", 20, WcStatus::Success)?;
    Ok(Verdict::Passed)
}

fn destroy_while_exclusive() -> CaseResult {
    let (a, b) = pair()?;
    let in_use = DestroyErrorCause::InExclusiveUse;
    let send = a.qp.exclusive_send()?;
    let error =
        a.qp.clone()
            .destroy()
            .err()
            .ok_or("destroyed under a handle")?;
    same("send queue", error.cause, in_use)?;
    ensure(
        error.into_object().as_ref() == Some(&a.qp),
        "the object was lost",
    )?;
    drop(send);
    let recv = a.qp.exclusive_recv()?;
    let error =
        a.qp.clone()
            .try_destroy()
            .err()
            .ok_or("destroyed under a handle")?;
    same("receive queue", error.cause, in_use)?;
    drop((error, recv));
    let spare: CompletionQueue = a.context.create_cq(4).build()?;
    let exclusive = spare.exclusive()?;
    let error = spare
        .clone()
        .destroy()
        .err()
        .ok_or("destroyed under a handle")?;
    same("completion queue", error.cause, in_use)?;
    drop((error, exclusive));
    spare.destroy()?;
    // All as before.
    let target = b.region(64, 0)?;
    a.qp.post_send(&[SendWr::write_inline(1, b"x", target.remote(0)?).signaled()])?;
    a.expect("after the refusals", 1, WcStatus::Success)?;
    a.qp.clone().destroy()?;
    let refused = refusal(a.qp.post_send(&[SendWr::send_inline(1, b"x")]));
    same("posting", refused, Some((0, PostCause::Destroyed)))?;
    let error = a.qp.clone().destroy().err().map(|e| e.cause);
    same("twice", error, Some(DestroyErrorCause::Destroyed))?;
    Ok(Verdict::Passed)
}

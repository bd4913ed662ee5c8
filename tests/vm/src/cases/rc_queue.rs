//! The queues of a queue pair: how much they hold, what they refuse, and who may post to them.

use uverbs::{
    ConnectOptions, PathOptions, PostCause, PostError, QpAttr, QpState, Rc, RecvWr, SendWr, Wc,
    WcStatus,
};

use super::pair::{
    End, Shape, all_access, connect, ensure, open, pair, pattern, same, same_bytes, shaped_pair,
    wait_for,
};
use super::{Case, CaseResult, Verdict};

pub(super) const CASES: &[Case] = &[
    Case::new("queue::full_send_queue", full_send_queue),
    Case::new("queue::every_size_and_its_wraps", every_size).limit_secs(180),
    Case::new("queue::the_defaults_hold_more_than_one", defaults),
    Case::new("queue::bad_request_in_the_middle", bad_in_the_middle),
    Case::new("queue::message_too_long", message_too_long),
    Case::new("queue::posting_in_each_state", posting_in_each_state),
    Case::new("queue::sends_posted_in_sqd_go_out_later", sqd_holds_sends),
    Case::new("queue::twenty_lives_of_one_queue_pair", twenty_lives).limit_secs(120),
];

pub(super) fn refusal(result: Result<(), PostError>) -> Option<(usize, PostCause)> {
    result.err().map(|error| (error.accepted, error.cause))
}

/// With nobody to receive, nothing leaves the queue.
fn full_send_queue() -> CaseResult {
    let (a, b) = pair()?;
    let cap = usize::try_from(a.qp.caps().max_send_wr)?;
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    let wrs: Vec<_> = (0..cap + 5)
        .map(|i| SendWr::send_inline(i as u64, &bytes[i..=i]).signaled())
        .collect();
    a.qp.post_send(&wrs[..cap - 10])?;
    let refused = refusal(a.qp.post_send(&wrs[cap - 10..]));
    same(
        "15 for 10 places",
        refused,
        Some((10, PostCause::QueueFull)),
    )?;
    let refused = refusal(a.qp.post_send(&wrs[cap..]));
    same("no place", refused, Some((0, PostCause::QueueFull)))?;
    a.expect_none("without receives")?;
    let back = b.region(cap, 0)?;
    for i in 0..cap {
        b.qp.post_recv(&[RecvWr::new(i as u64, &[back.slice(i..=i)?])])?;
    }
    for end in [&a, &b] {
        for (i, wc) in end.completions(cap)?.iter().enumerate() {
            wc.ok()?;
            same("order", wc.wr_id, i as u64)?;
        }
    }
    same_bytes("messages", &back.to_vec(..)?, &bytes[..cap])?;
    b.expect_none("nothing twice")?;
    // There is room for all of it again.
    let target = b.region(256, 0)?;
    let far = target.remote(0)?;
    let wrs: Vec<_> = (0..cap)
        .map(|i| SendWr::write_inline(i as u64, b"x", far).signaled())
        .collect();
    a.qp.post_send(&wrs)?;
    a.completions(cap)?;
    Ok(Verdict::Passed)
}

/// Both queues hold exactly what is granted, at any place of the ring, five rounds over.
fn every_size() -> CaseResult {
    for size in [1u32, 2, 3, 4, 1023, 1024] {
        let shape = Shape {
            depth: 8192,
            send: size,
            recv: size,
            sge: 1,
            inline: 8,
            ..Shape::default()
        };
        let (a, b) = shaped_pair(&shape, &ConnectOptions::default())?;
        let caps = b.qp.caps();
        ensure(
            a.qp.caps().max_send_wr >= size && caps.max_recv_wr >= size,
            &format!("{size} asked for, granted {caps:?}"),
        )?;
        let cap = usize::try_from(a.qp.caps().max_send_wr)?;
        same("both alike", usize::try_from(caps.max_recv_wr)?, cap)?;
        let back = b.region(8 * cap, 0)?;
        let rounds = if cap > 100 { 3 } else { 5 * (cap as u64 + 1) };
        for round in 0..rounds {
            let what = format!("{size} asked, {cap} granted, round {round}");
            // A different number each time, so that each round begins elsewhere.
            let drained = cap - usize::try_from(round)? % cap;
            let ids: Vec<u64> = (0..cap as u64 + 1).map(|i| round * 10_000 + i).collect();
            let bytes: Vec<_> = ids.iter().map(|id| id.to_le_bytes()).collect();
            let sges: Vec<_> = (0..cap)
                .map(|i| back.slice(8 * i..8 * i + 8))
                .collect::<Result<_, _>>()?;
            let recvs: Vec<_> = ids
                .iter()
                .zip(sges.chunks(1).cycle())
                .map(|(id, sge)| RecvWr::new(*id, sge))
                .collect();
            let sends: Vec<_> = ids
                .iter()
                .zip(&bytes)
                .map(|(id, bytes)| SendWr::send_inline(*id, bytes).signaled())
                .collect();
            let full = Some((cap, PostCause::QueueFull));
            same(&what, refusal(b.qp.post_recv(&recvs)), full)?;
            same(
                &what,
                refusal(b.qp.post_recv(&recvs[..1])),
                Some((0, PostCause::QueueFull)),
            )?;
            a.qp.post_send(&sends[..drained])?;
            for end in [&a, &b] {
                for (wc, id) in end.completions(drained)?.iter().zip(&ids) {
                    wc.ok().map_err(|e| format!("{what}: {e}"))?;
                    same(&what, wc.wr_id, *id)?;
                }
            }
            a.qp.post_send(&sends[drained..cap])?;
            for end in [&a, &b] {
                for (wc, id) in end.completions(cap - drained)?.iter().zip(&ids[drained..]) {
                    same(&what, (wc.wr_id, wc.status), (*id, WcStatus::Success))?;
                }
            }
            same_bytes(&what, &back.to_vec(..)?, &bytes[..cap].concat())?;
        }
        // The send queue, filled: the peer has no receive to let anything go.
        let wrs: Vec<_> = (0..cap as u64 + 1)
            .map(|id| SendWr::send_inline(id, &[]))
            .collect();
        let refused = refusal(a.qp.post_send(&wrs));
        same("send queue", refused, Some((cap, PostCause::QueueFull)))?;
    }
    Ok(Verdict::Passed)
}

fn defaults() -> CaseResult {
    let (context, pd) = open("rxe0")?;
    let cq = context.create_cq(128).build()?;
    let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
    let endpoint = qp.prepare(&PathOptions::default())?;
    qp.connect(&endpoint, &endpoint, &ConnectOptions::default())?;
    let region = pd.allocate(64, all_access())?;
    let sges = [region.slice(..)?];
    qp.post_recv(&[RecvWr::new(1, &sges), RecvWr::new(2, &sges)])?;
    qp.post_send(&[
        SendWr::send(3, &sges).signaled(),
        SendWr::send(4, &sges).signaled(),
    ])?;
    let end = End {
        context,
        pd,
        cq,
        qp,
        endpoint,
    };
    for wc in end.completions(4)? {
        wc.ok()?;
    }
    Ok(Verdict::Passed)
}

fn bad_in_the_middle() -> CaseResult {
    let shape = Shape {
        sge: 3,
        inline: 48,
        ..Shape::default()
    };
    let (a, b) = shaped_pair(&shape, &ConnectOptions::default())?;
    let caps = a.qp.caps();
    let max = usize::try_from(caps.max_send_sge)?;
    let local = a.region(64, 1)?;
    let target = b.region(64, 2)?;
    let sges = vec![local.slice(..1)?; max + 1];
    let far = target.remote(0)?;
    let good = |id| SendWr::write(id, &sges[..max], far).signaled();
    let long = vec![0; usize::try_from(caps.max_inline_data)? + 1];
    let given = max + 1;
    let too_many = PostCause::TooManySge {
        given,
        max: caps.max_send_sge,
    };
    let too_long = PostCause::InlineTooLong {
        given: long.len() as u64,
        max: caps.max_inline_data,
    };
    let seven = PostCause::AtomicLength { given: 1 };
    for (bad, cause) in [
        (SendWr::send(9, &sges), too_many),
        (SendWr::read(9, &sges, far), too_many),
        (SendWr::send_inline(9, &long), too_long),
        (SendWr::fetch_add(9, sges[0], far, 1), seven),
    ] {
        let batch = [good(1), good(2), bad.signaled(), good(3)];
        same("sends", refusal(a.qp.post_send(&batch)), Some((2, cause)))?;
        for (wc, id) in a.completions(2)?.iter().zip([1, 2]) {
            wc.ok()?;
            same("accepted", wc.wr_id, id)?;
        }
        a.expect_none("refused, or after it")?;
        a.qp.post_send(&batch[3..])?;
        a.expect("the next", 3, WcStatus::Success)?;
    }
    let max = usize::try_from(b.qp.caps().max_recv_sge)?;
    let sges = vec![target.slice(..1)?; max + 1];
    let recvs = [
        RecvWr::new(1, &sges[..max]),
        RecvWr::new(2, &sges),
        RecvWr::new(3, &[]),
    ];
    let cause = PostCause::TooManySge {
        given: max + 1,
        max: b.qp.caps().max_recv_sge,
    };
    same(
        "receives",
        refusal(b.qp.post_recv(&recvs)),
        Some((1, cause)),
    )?;
    a.qp.post_send(&[SendWr::send_inline(1, b"a")])?;
    b.expect("accepted", 1, WcStatus::Success)?;
    b.expect_none("refused, or after it")?;
    Ok(Verdict::Passed)
}

/// 32 elements of one region add up to more than a message, and to more than 32 bits.
fn message_too_long() -> CaseResult {
    let shape = Shape {
        sge: 32,
        ..Shape::default()
    };
    let (a, b) = shaped_pair(&shape, &ConnectOptions::default())?;
    let size = 136usize << 20;
    let local = a.pd.allocate(size, uverbs::AccessFlags::LOCAL_WRITE)?;
    let target = b.region(64, 0)?;
    let far = target.remote(0)?;
    let each = [local.slice(..)?; 32];
    let most = [local.slice(..(1 << 26) + 1)?; 32];
    for (sges, given) in [(&each, 32 * size as u64), (&most, (1 << 31) + 32)] {
        let cause = PostCause::MessageTooLong {
            given,
            max: i32::MAX.cast_unsigned(),
        };
        for wr in [
            SendWr::send(1, sges),
            SendWr::write(1, sges, far),
            SendWr::read(1, sges, far),
        ] {
            same("send", refusal(a.qp.post_send(&[wr])), Some((0, cause)))?;
        }
        let wr = RecvWr::new(1, sges);
        same("receive", refusal(a.qp.post_recv(&[wr])), Some((0, cause)))?;
    }
    // The most that the kernel can count down from, one byte less than a message may hold.
    let mut most = [local.slice(..1 << 26)?; 32];
    most[31] = local.slice(..(1 << 26) - 1)?;
    a.qp.post_recv(&[RecvWr::new(1, &most)])?;
    b.qp.post_send(&[SendWr::send_inline(1, b"short").signaled()])?;
    b.completion()?.ok()?;
    same("received", a.completion()?.byte_len, 5)?;
    Ok(Verdict::Passed)
}

/// What is posted while the send queue is stopped goes out when it is started again.
fn sqd_holds_sends() -> CaseResult {
    let (a, b) = pair()?;
    let target = b.region(64, 0)?;
    let far = target.remote(0)?;
    for id in 0..5 {
        a.qp.modify(&QpAttr::to_state(QpState::Sqd))?;
        a.qp.post_send(&[SendWr::write_inline(id, b"later", far).signaled()])?;
        a.expect_none("SQD sends nothing")?;
        wait_for("the send queue drained", || {
            Ok((!a.qp.query()?.sq_draining).then_some(()))
        })?;
        a.qp.modify(&QpAttr::to_state(QpState::Rts))?;
        a.expect("posted in SQD", id, WcStatus::Success)?;
    }
    same_bytes("written", &target.to_vec(..5)?, b"later")?;
    Ok(Verdict::Passed)
}

fn posting_in_each_state() -> CaseResult {
    let (context, pd) = open("rxe0")?;
    let cq = context.create_cq(16).build()?;
    let qp = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(16).build()?;
    let send = || refusal(qp.post_send(&[SendWr::send_inline(1, &[])]));
    let recv = || refusal(qp.post_recv(&[RecvWr::new(2, &[])]));
    let wrong = |got: Option<(usize, PostCause)>, want| match got {
        Some((0, PostCause::WrongState { state, .. })) if state == want => Ok(()),
        other => Err(format!("in {want}: {other:?}")),
    };
    wrong(send(), QpState::Reset)?;
    wrong(recv(), QpState::Reset)?;
    let end = End {
        endpoint: qp.prepare(&PathOptions::default())?,
        qp: qp.clone(),
        context,
        pd,
        cq,
    };
    wrong(send(), QpState::Init)?;
    same("receive in INIT", recv(), None)?;
    qp.modify(&super::qp::to_rtr(
        &end.context,
        &end.endpoint,
        &end.endpoint,
    )?)?;
    wrong(send(), QpState::Rtr)?;
    same("receive in RTR", recv(), None)?;
    qp.modify(&super::qp::to_rts(&end.endpoint))?;
    same("receive in RTS", recv(), None)?;
    same("send in RTS", send(), None)?;
    end.expect("the receive posted in INIT", 2, WcStatus::Success)?;
    end.expect_none("before the reset")?;
    qp.modify(&QpAttr::to_state(QpState::Reset))?;
    wrong(send(), QpState::Reset)?;
    wrong(recv(), QpState::Reset)?;
    end.expect_none("RESET drops what was queued")?;
    Ok(Verdict::Passed)
}

/// ERR, RESET, INIT, RTR, RTS, with traffic and leftovers each time: the indices go on.
fn twenty_lives() -> CaseResult {
    let shape = Shape {
        send: 5,
        recv: 5,
        ..Shape::default()
    };
    let (mut a, mut b) = shaped_pair(&shape, &ConnectOptions::default())?;
    let back = b.region(64, 0)?;
    for life in 0..20u8 {
        let what = format!("life {life}");
        for i in 0..10u8 {
            let out = pattern(33, life * 10 + i);
            b.qp.post_recv(&[RecvWr::new(7, &[back.slice(..33)?])])?;
            a.qp.post_send(&[SendWr::send_inline(8, &out).signaled()])?;
            a.expect(&what, 8, WcStatus::Success)?;
            b.expect(&what, 7, WcStatus::Success)?;
            same_bytes(&what, &back.to_vec(..33)?, &out)?;
        }
        // Left behind: a receive, and a send that finds none.
        a.qp.post_recv(&[RecvWr::new(99, &[])])?;
        a.qp.post_send(&[SendWr::send_inline(98, b"x")])?;
        for end in [&mut a, &mut b] {
            if life % 3 != 2 {
                end.qp.modify(&QpAttr::to_state(QpState::Err))?;
            }
            end.qp.modify(&QpAttr::to_state(QpState::Reset))?;
            end.qp.modify(&QpAttr::to_state(QpState::Reset))?;
            let mut room = [Wc::default(); 8];
            // What was flushed before the reset.
            while !end.cq.poll(&mut room)?.is_empty() {}
            end.endpoint = end.qp.prepare(&PathOptions::default())?;
        }
        connect(&a, &b, &ConnectOptions::default())?;
        a.expect_none(&what)?;
    }
    Ok(Verdict::Passed)
}

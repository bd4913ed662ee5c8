//! Reliable connected traffic between the two devices: atomics, signalling, fences, batches.

use uverbs::{ConnectOptions, MemoryRegion, PostCause, RecvWr, SendWr, WcOpcode};

use super::pair::{
    Failure, POISON, Shape, Spy, connect, ensure, open, pair, pattern, same, same_bytes,
    shaped_pair,
};
use super::{Case, CaseResult, Verdict};
use crate::guest::net::veth_counters;

pub(super) const CASES: &[Case] = &[
    Case::new("rc::send_recv_over_the_wire", send_recv_over_the_wire).every_kernel(),
    Case::new("rc::atomics", atomics).every_kernel(),
    Case::new("rc::atomics_in_a_row", atomics_in_a_row),
    Case::new("rc::signalling", signalling),
    Case::new("rc::fence_and_solicited", fence_and_solicited),
    Case::new("rc::a_batch_rings_once", a_batch_rings_once),
    Case::new("rc::a_held_doorbell_rings_once", a_held_doorbell_rings_once),
];

fn send_recv_over_the_wire() -> CaseResult {
    let (a, b) = pair()?;
    let out = a.region(4096, 1)?;
    let back = b.region(4096, 2)?;
    let before = veth_counters("veth0")?;
    for round in 0..20u64 {
        b.qp.post_recv(&[RecvWr::new(round, &[back.slice(..)?])])?;
        a.qp.post_send(&[SendWr::send(100 + round, &[out.slice(..)?]).signaled()])?;
        let sent = a.completion()?;
        sent.ok()?;
        same("send wr_id", sent.wr_id, 100 + round)?;
        same("send opcode", sent.opcode(), Some(WcOpcode::Send))?;
        let received = b.completion()?;
        received.ok()?;
        same("receive wr_id", received.wr_id, round)?;
        same("receive opcode", received.opcode(), Some(WcOpcode::Recv))?;
        same("bytes received", received.byte_len, 4096)?;
    }
    same_bytes("message", &back.to_vec(..)?, &out.to_vec(..)?)?;
    let after = veth_counters("veth0")?;
    moved(before, after)?;
    Ok(Verdict::Passed)
}

fn moved(before: (u64, u64), after: (u64, u64)) -> Result<(), Failure> {
    ensure(
        after.0 - before.0 >= 20 && after.1 - before.1 >= 80,
        &format!("the wire carried too little: {before:?} to {after:?}"),
    )
}

fn atomics() -> CaseResult {
    let (a, b) = pair()?;
    let old = a.region(64, 0)?;
    let word = b.region(64, 0)?;
    for (what, before, wr_of, after) in [
        ("swap", 5u64, (5u64, 9u64, true), 9u64),
        ("failing compare", 5, (6, 9, true), 5),
        (
            "swap of high bits",
            u64::MAX << 8,
            (u64::MAX << 8, 1 << 63, true),
            1 << 63,
        ),
        ("add", 40, (2, 0, false), 42),
        ("wrapping add", u64::MAX - 1, (3, 0, false), 1),
        ("add of nothing", 77, (0, 0, false), 77),
    ] {
        for region in [&old, &word] {
            region.write_at(0, &[POISON; 64])?;
        }
        word.store_u64(24, before)?;
        let (into, remote) = (old.slice(8..16)?, word.remote(24)?);
        let (first, second, swaps) = wr_of;
        let (wr, opcode) = if swaps {
            let wr = SendWr::compare_swap(1, into, remote, first, second);
            (wr, WcOpcode::CompareSwap)
        } else {
            (
                SendWr::fetch_add(1, into, remote, first),
                WcOpcode::FetchAdd,
            )
        };
        a.qp.post_send(&[wr.signaled()])?;
        let done = a.completion()?;
        done.ok()?;
        same(what, (done.opcode(), done.byte_len), (Some(opcode), 8))?;
        same(&format!("{what}: old value"), old.load_u64(8)?, before)?;
        same(&format!("{what}: new value"), word.load_u64(24)?, after)?;
        for (region, at) in [(&old, 8), (&word, 24)] {
            let mut around = region.to_vec(..)?;
            around[at..at + 8].fill(POISON);
            same_bytes(&format!("{what}: around"), &around, &[POISON; 64])?;
        }
    }
    let short =
        a.qp.post_send(&[SendWr::fetch_add(1, old.slice(..7)?, word.remote(0)?, 1)]);
    let cause = PostCause::AtomicLength { given: 7 };
    same("7 bytes", short.err().map(|e| e.cause), Some(cause))?;
    b.expect_none("the peer notices nothing")?;
    Ok(Verdict::Passed)
}

/// More at once than may be under way, mixed with READs: each sees the one before it.
fn atomics_in_a_row() -> CaseResult {
    let (a, b) = pair()?;
    let old = a.region(48 * 8, 0)?;
    let word = b.region(8, 0)?;
    word.store_u64(0, 1000)?;
    let remote = word.remote(0)?;
    let mut wrs = Vec::new();
    let into: Vec<_> = (0..48)
        .map(|i| old.slice(8 * i..8 * i + 8))
        .collect::<Result<_, _>>()?;
    for (i, into) in into.iter().enumerate() {
        let id = i as u64;
        wrs.push(match i % 3 {
            0 => SendWr::fetch_add(id, *into, remote, 1).signaled(),
            1 => SendWr::read(id, std::slice::from_ref(into), remote).signaled(),
            _ => {
                let now = 1000 + id / 3 * 2 + 1;
                SendWr::compare_swap(id, *into, remote, now, now + 1).signaled()
            }
        });
    }
    a.qp.post_send(&wrs)?;
    for (i, done) in a.completions(48)?.iter().enumerate() {
        let id = i as u64;
        done.ok()?;
        same("order", done.wr_id, id)?;
        let base = 1000 + id / 3 * 2;
        let want = if i % 3 == 0 { base } else { base + 1 };
        same(
            &format!("value seen by request {i}"),
            old.load_u64(8 * i)?,
            want,
        )?;
    }
    same("in the end", word.load_u64(0)?, 1000 + 32)?;
    Ok(Verdict::Passed)
}

fn signalling() -> CaseResult {
    for signal_all in [false, true] {
        let shape = Shape {
            signal_all,
            ..Shape::default()
        };
        let (a, b) = shaped_pair(&shape, &ConnectOptions::default())?;
        same("query", a.qp.query()?.signal_all, signal_all)?;
        let out = a.region(64, 1)?;
        let target = b.region(64, 2)?;
        let (sges, remote) = ([out.slice(..)?], target.remote(0)?);
        for id in 0..8 {
            b.qp.post_recv(&[RecvWr::new(id, &[target.slice(..)?])])?;
        }
        let word = out.slice(..8)?;
        let wrs = [
            SendWr::send(1, &sges),
            SendWr::write(2, &sges, remote),
            SendWr::read(3, &sges, remote),
            SendWr::fetch_add(4, word, remote, 1),
            SendWr::send_inline(5, b"inline"),
            SendWr::send(6, &sges).with_imm(1).signaled(),
        ];
        a.qp.post_send(&wrs)?;
        let want: Vec<u64> = if signal_all {
            (1..=6).collect()
        } else {
            vec![6]
        };
        for (done, id) in a.completions(want.len())?.iter().zip(want) {
            done.ok()?;
            same("request", done.wr_id, id)?;
        }
        a.expect_none("unsignalled")?;
        b.completions(3)?;
        // Slots of requests without completions are free again: ten times the queue goes through.
        for round in 0..40u64 {
            let batch: Vec<_> = (0..16)
                .map(|i| SendWr::write(round * 16 + i, &sges, remote))
                .map(|wr| {
                    if wr.wr_id % 16 == 15 {
                        wr.signaled()
                    } else {
                        wr
                    }
                })
                .collect();
            a.qp.post_send(&batch)?;
            let count = if signal_all { 16 } else { 1 };
            let done = a.completions(count)?;
            same(
                "last",
                done.last().map(|wc| wc.wr_id),
                Some(round * 16 + 15),
            )?;
        }
    }
    Ok(Verdict::Passed)
}

fn fence_and_solicited() -> CaseResult {
    let (a, b) = pair()?;
    let through = a.region(4096, 0)?;
    let remote = b.region(4096, 7)?;
    let back = b.region(4096, 0)?;
    for round in 0..20u8 {
        remote.write_at(0, &pattern(4096, round))?;
        through.write_at(0, &[0; 4096])?;
        b.qp.post_recv(&[RecvWr::new(1, &[back.slice(..)?])])?;
        let sges = [through.slice(..)?];
        // Without the fence the message could be sent before what is read has arrived.
        a.qp.post_send(&[
            SendWr::read(1, &sges, remote.remote(0)?),
            SendWr::send(2, &sges).fenced().solicited().signaled(),
        ])?;
        a.completion()?.ok()?;
        let received = b.completion()?;
        received.ok()?;
        same("opcode", received.opcode(), Some(WcOpcode::Recv))?;
        same_bytes(
            "read, then sent back",
            &back.to_vec(..)?,
            &pattern(4096, round),
        )?;
    }
    Ok(Verdict::Passed)
}

/// Sixteen requests, one doorbell; nothing else of the data path asks the kernel for anything.
fn a_batch_rings_once() -> CaseResult {
    let (spy, context, _) = Spy::open("rxe0")?;
    let a = Shape::default().prepare(&context.alloc_pd()?)?;
    let b = Shape::default().prepare(&open("rxe1")?.1)?;
    connect(&a, &b, &ConnectOptions::default())?;
    let out = a.region(16 * 100, 3)?;
    let back = b.region(16 * 100, 0)?;
    let (commands, doorbells) = (spy.commands(), spy.doorbells());
    for round in 1..=5u32 {
        let slices = |region: &MemoryRegion| -> Result<Vec<_>, Failure> {
            (0..16)
                .map(|i| Ok(region.slice(100 * i..100 * i + 100)?))
                .collect()
        };
        let (from, to) = (slices(&out)?, slices(&back)?);
        back.write_at(0, &[0; 1600])?;
        let recvs: Vec<_> = (0..)
            .zip(to.chunks(1))
            .map(|(id, sge)| RecvWr::new(id, sge))
            .collect();
        b.qp.post_recv(&recvs)?;
        a.qp.post_recv(&[RecvWr::new(0, &from[..1])])?;
        let sends: Vec<_> = (0..)
            .zip(from.chunks(1))
            .map(|(id, sge)| SendWr::send(id, sge).signaled())
            .collect();
        a.qp.post_send(&sends)?;
        for end in [&a, &b] {
            for (id, done) in (0..).zip(end.completions(16)?) {
                done.ok()?;
                same("order", done.wr_id, id)?;
            }
        }
        same_bytes("messages", &back.to_vec(..)?, &out.to_vec(..)?)?;
        same("doorbells", spy.doorbells() - doorbells, round)?;
    }
    a.qp.post_send(&[])?;
    a.qp.post_recv(&[])?;
    same(
        "doorbells after an empty batch",
        spy.doorbells() - doorbells,
        5,
    )?;
    same("commands", spy.commands() - commands, 0)?;
    Ok(Verdict::Passed)
}

/// Requests of several calls, one doorbell, whether it is rung by hand or by letting go.
fn a_held_doorbell_rings_once() -> CaseResult {
    let (spy, context, _) = Spy::open("rxe0")?;
    let a = Shape::default().prepare(&context.alloc_pd()?)?;
    let b = Shape::default().prepare(&open("rxe1")?.1)?;
    connect(&a, &b, &ConnectOptions::default())?;
    let out = a.region(8 * 100, 3)?;
    let back = b.region(8 * 100, 0)?;
    let doorbells = spy.doorbells();
    let mut sends = a.qp.exclusive_send()?;
    for round in 1..=2u32 {
        back.write_at(0, &[0; 800])?;
        for id in 0..8 {
            let to = back.slice(100 * id..100 * id + 100)?;
            b.qp.post_recv(&[RecvWr::new(id as u64, &[to])])?;
        }
        let mut held = sends.hold_doorbell();
        for id in 0..8 {
            let from = out.slice(100 * id..100 * id + 100)?;
            held.post_send(&[SendWr::send(id as u64, &[from]).signaled()])?;
        }
        if round == 1 {
            held.ring()?;
        } else {
            drop(held);
        }
        for end in [&a, &b] {
            for (id, done) in (0..).zip(end.completions(8)?) {
                done.ok()?;
                same("order", done.wr_id, id)?;
            }
        }
        same_bytes("messages", &back.to_vec(..)?, &out.to_vec(..)?)?;
        same("doorbells", spy.doorbells() - doorbells, round)?;
    }
    Ok(Verdict::Passed)
}

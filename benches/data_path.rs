//! Posting and polling through the public API. The doorbell is a real `write()`, to `/dev/null`.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "macros of the harness; a bench may fail"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Bencher, Criterion, Throughput, criterion_group, criterion_main};
use uverbs::{RecvWr, SendWr, Wc};
use uverbs_benches::{ROOM, Stage};

/// Calls that are timed together: as many as fit, so that reading the clock does not count.
fn calls(batch: usize) -> u64 {
    (ROOM / 2 / batch) as u64
}

/// Times `call`, which takes `batch` slots, with `around` before each stretch, outside of the time.
fn timed(b: &mut Bencher<'_>, batch: usize, mut around: impl FnMut(u64), mut call: impl FnMut()) {
    b.iter_custom(|mut left| {
        let mut total = Duration::ZERO;
        while left > 0 {
            let stretch = left.min(calls(batch));
            around(stretch);
            let start = Instant::now();
            for _ in 0..stretch {
                call();
            }
            total += start.elapsed();
            left -= stretch;
        }
        total
    });
}

fn post(c: &mut Criterion) {
    let stage = Stage::new().unwrap();
    let sges = [stage.memory.slice(..64).unwrap()];
    let remote = stage.memory.remote(1024).unwrap();
    let bytes = [0x5a; 32];
    let writes = [SendWr::write(1, &sges, remote).signaled(); 16];
    let inline = [SendWr::send_inline(1, &bytes).signaled()];
    let receives = [RecvWr::new(1, &sges); 16];
    let mut group = c.benchmark_group("post");
    let sends = [
        ("write_64", &writes[..1]),
        ("inline_32", &inline[..]),
        ("write_64_by_16", &writes[..]),
    ];
    for (name, wrs) in sends {
        group.throughput(Throughput::Elements(wrs.len() as u64));
        group.bench_function(format!("{name}/shared"), |b| {
            let call = || stage.qp.post_send(black_box(wrs)).unwrap();
            timed(b, wrs.len(), |_| stage.sends.drain(), call);
        });
        let mut queue = stage.qp.exclusive_send().unwrap();
        group.bench_function(format!("{name}/exclusive"), |b| {
            let call = || queue.post_send(black_box(wrs)).unwrap();
            timed(b, wrs.len(), |_| stage.sends.drain(), call);
        });
    }
    // One doorbell for all calls of a stretch, rung outside of the time.
    let mut queue = stage.qp.exclusive_send().unwrap();
    group.throughput(Throughput::Elements(1));
    group.bench_function("write_64/held", |b| {
        let mut held = queue.hold_doorbell();
        let call = || held.post_send(black_box(&writes[..1])).unwrap();
        timed(b, 1, |_| stage.sends.drain(), call);
    });
    drop(queue);
    for (name, wrs) in [("recv", &receives[..1]), ("recv_by_16", &receives[..])] {
        group.throughput(Throughput::Elements(wrs.len() as u64));
        group.bench_function(format!("{name}/shared"), |b| {
            let call = || stage.qp.post_recv(black_box(wrs)).unwrap();
            timed(b, wrs.len(), |_| stage.receives.drain(), call);
        });
        let mut queue = stage.qp.exclusive_recv().unwrap();
        group.bench_function(format!("{name}/exclusive"), |b| {
            let call = || queue.post_recv(black_box(wrs)).unwrap();
            timed(b, wrs.len(), |_| stage.receives.drain(), call);
        });
    }
    group.finish();
}

fn poll(c: &mut Criterion) {
    let stage = Stage::new().unwrap();
    let mut room = [Wc::default(); 16];
    let mut group = c.benchmark_group("poll");
    for batch in [1, 16] {
        group.throughput(Throughput::Elements(batch as u64));
        let fill = |calls| stage.completions.complete(calls * batch as u64);
        let all = |found: &mut [Wc]| assert_eq!(found.len(), batch);
        group.bench_function(format!("{batch}/shared"), |b| {
            let out = &mut room[..batch];
            timed(b, batch, fill, || {
                all(stage.cq.poll(black_box(&mut *out)).unwrap())
            });
        });
        let mut queue = stage.cq.exclusive().unwrap();
        group.bench_function(format!("{batch}/exclusive"), |b| {
            let out = &mut room[..batch];
            timed(b, batch, fill, || {
                all(queue.poll(black_box(&mut *out)).unwrap())
            });
        });
    }
    group.throughput(Throughput::Elements(1));
    group.bench_function("empty/shared", |b| {
        b.iter(|| stage.cq.poll(black_box(&mut room)).unwrap().len());
    });
    let mut queue = stage.cq.exclusive().unwrap();
    group.bench_function("empty/exclusive", |b| {
        b.iter(|| queue.poll(black_box(&mut room)).unwrap().len());
    });
    group.finish();
}

criterion_group!(benches, post, poll);
criterion_main!(benches);

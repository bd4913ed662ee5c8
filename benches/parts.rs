//! The parts of the data path one by one: what a slot says, and whose slot it is.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "macros of the harness; a bench may fail"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use criterion::{Criterion, criterion_group, criterion_main};
use uverbs::abi::Mapping;
use uverbs::{RecvWr, SendWr};
use uverbs_benches::Stage;
use uverbs_providers::ring::{Consumer, Masked, Producer};
use uverbs_providers::rxe::wc::{WC_WORDS, decode};
use uverbs_providers::rxe::wqe::{RECV_HEAD, SEND_HEAD, SendLimits, encode_recv, encode_send};
use uverbs_providers::shared::SharedQueue;

/// A queue of 4 slots of 512 bytes.
fn queue<const HEAD: usize>() -> SharedQueue<HEAD> {
    const SLOT: u32 = 9;
    let words: Arc<[AtomicU64]> = (0..(384 + 4 * 512) / 8)
        .map(|_| AtomicU64::new(0))
        .collect();
    let header = constants(SLOT, 3);
    words.first().unwrap().store(header, Ordering::Relaxed);
    SharedQueue::new(Mapping::Heap(words)).unwrap()
}

/// The two constants of a queue's header, as they follow one another.
fn constants(log2_slot: u32, mask: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (log2_slot.to_ne_bytes(), mask.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

fn encode(c: &mut Criterion) {
    let stage = Stage::new().unwrap();
    let sges = [stage.memory.slice(..64).unwrap()];
    let four = [sges[0]; 4];
    let remote = stage.memory.remote(1024).unwrap();
    let bytes = [0x5a; 32];
    let limits = SendLimits {
        max_sge: 4,
        max_inline: 64,
    };
    let mut group = c.benchmark_group("encode");
    let mut queue = queue::<SEND_HEAD>();
    for (name, wr) in [
        ("write_64", SendWr::write(1, &sges, remote).signaled()),
        ("send_64", SendWr::send(1, &sges).signaled()),
        ("send_of_4", SendWr::send(1, &four).signaled()),
        ("inline_32", SendWr::send_inline(1, &bytes).signaled()),
        ("read_64", SendWr::read(1, &sges, remote).signaled()),
        (
            "fetch_add",
            SendWr::fetch_add(1, stage.memory.slice(..8).unwrap(), remote, 1),
        ),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| encode_send(black_box(&wr), &limits, queue.slot_mut(1)));
        });
    }
    let mut queue = self::queue::<RECV_HEAD>();
    let wr = RecvWr::new(1, &sges);
    group.bench_function("recv_64", |b| {
        b.iter(|| encode_recv(black_box(&wr), 4, queue.slot_mut(1)));
    });
    group.finish();
}

fn decode_one(c: &mut Criterion) {
    let words = [7, 1 << 32, 64 << 32, 17 << 32, 0, 0];
    let _: [u64; WC_WORDS] = words;
    c.bench_function("decode", |b| {
        b.iter(|| decode(black_box(words)).ok().is_ok())
    });
}

fn ring(c: &mut Criterion) {
    let (prod, cons) = (AtomicU32::new(0), AtomicU32::new(0));
    let rule = Masked::new(127).unwrap();
    let mut producer = Producer::new(rule, &prod, &cons).unwrap();
    let mut consumer = Consumer::new(rule, &prod, &cons).unwrap();
    let mut group = c.benchmark_group("ring");
    for count in [1, 16] {
        group.bench_function(format!("through_{count}"), |b| {
            b.iter(|| {
                producer.free(&cons, count).unwrap();
                producer.publish(&prod, count);
                consumer.available(&prod, count).unwrap();
                consumer.release(&cons, count);
            });
        });
    }
    group.bench_function("glance_at_nothing", |b| {
        b.iter(|| consumer.glance(black_box(&prod)))
    });
    group.finish();
}

criterion_group!(benches, encode, decode_one, ring);
criterion_main!(benches);

//! Reading an asynchronous event, looking its object up, and acking it, with few and with many objects
//! alive: it must not take longer for many.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "macros of the harness; a bench may fail"
)]

use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use uverbs::fake::Fabric;
use uverbs::{AsyncEventKind, CompletionQueue, Subject};

/// Events that are timed together.
const STRETCH: u64 = 64;

fn events(c: &mut Criterion) {
    let mut group = c.benchmark_group("event");
    for alive in [1, 1_000] {
        let fabric = Fabric::new();
        let device = fabric.add_device("rxe0");
        let context = device.open().unwrap();
        let queues: Vec<CompletionQueue> = (0..alive)
            .map(|_| context.create_cq(1).build().unwrap())
            .collect();
        let cq = &queues[alive / 2];
        let reader = context.events();
        group.bench_function(format!("read_look_up_ack/{alive}_alive"), |b| {
            b.iter_custom(|mut left| {
                let mut total = Duration::ZERO;
                while left > 0 {
                    let stretch = left.min(STRETCH);
                    for _ in 0..stretch {
                        assert!(device.raise_cq(cq, AsyncEventKind::CqErr));
                    }
                    let start = Instant::now();
                    for _ in 0..stretch {
                        let event = reader.try_next().unwrap().unwrap();
                        assert!(matches!(event.subject(), Subject::Cq(found) if found == cq));
                    }
                    total += start.elapsed();
                    left -= stretch;
                }
                total
            });
        });
    }
    group.finish();
}

criterion_group!(benches, events);
criterion_main!(benches);

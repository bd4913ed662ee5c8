//! One queue pair more costs the same however many there are: counted in commands and in calls of
//! the heap, which do not depend on how busy a machine is.
//!
//! One test in a binary of its own, since the allocator that counts is everybody's.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use uverbs::fake::{Fabric, FakeDevice};
use uverbs::{CompletionQueue, ProtectionDomain, QueuePair, Rc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The fake looks for a free number from the first one on, so many more would take long.
const ALL: usize = 4_000;
const PART: usize = 100;

/// With the shortest queues: their memory is not what is looked at.
fn small(pd: &ProtectionDomain, cq: &CompletionQueue) -> QueuePair<Rc> {
    let builder = pd.create_qp::<Rc>(cq, cq);
    builder.max_send_wr(1).max_recv_wr(1).build().unwrap()
}

/// Commands and calls of the heap for a part of the queue pairs.
fn part(
    device: &FakeDevice,
    pd: &ProtectionDomain,
    cq: &CompletionQueue,
    all: &mut Vec<QueuePair<Rc>>,
) -> (usize, usize) {
    device.forget_calls();
    let before = HEAP.stats();
    for _ in 0..PART {
        all.push(small(pd, cq));
    }
    let after = HEAP.stats();
    let commands = device.calls().len();
    device.forget_calls();
    (commands, after.allocations - before.allocations)
}

#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn the_last_of_many_queue_pairs_costs_what_the_first_did() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).build().unwrap();
    let mut all = Vec::with_capacity(ALL);
    // What happens once happens here.
    part(&device, &pd, &cq, &mut all);
    let (commands, allocations) = part(&device, &pd, &cq, &mut all);
    assert!(
        commands >= PART && allocations >= PART,
        "{commands} {allocations}"
    );
    while all.len() < ALL - PART {
        part(&device, &pd, &cq, &mut all);
    }
    let last = part(&device, &pd, &cq, &mut all);
    assert_eq!(all.len(), ALL);
    assert_eq!(last.0, commands);
    // A table that grows meanwhile is one call more or less; a thousandth of what a search would be.
    assert!(
        last.1.abs_diff(allocations) <= PART / 10,
        "{} calls of the heap for the last {PART}, {allocations} for the second",
        last.1
    );

    // Shown where a test's output is.
    let heap = allocations / PART;
    println!(
        "each: {} commands, {heap} calls of the heap",
        commands / PART
    );
    drop(all);
    assert_eq!(device.live().qps, 0);
}

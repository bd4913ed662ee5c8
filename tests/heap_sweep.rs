//! The memory of the process itself under the errno sweep: whatever call of a life is refused, and
//! with whatever error, no heap memory is lost by it.
//!
//! One test in a binary of its own, since the allocator that counts is everybody's.

mod support;

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use support::life::{ERRNOS, life};
use uverbs::fake::{Fabric, FakeDevice};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes that are allocated now.
fn live_bytes() -> usize {
    // What reallocations added or took away is in both counts.
    let stats = HEAP.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// What is allocated after each of three lives with the fault, when the devices have forgotten what
/// they noted for the test.
fn left_by(device: &FakeDevice, other: &FakeDevice, fault: impl Fn()) -> [usize; 3] {
    std::array::from_fn(|_| {
        device.clear_faults();
        device.forget_calls();
        other.forget_calls();
        fault();
        drop(life(device, other));
        device.clear_faults();
        device.forget_calls();
        other.forget_calls();
        // Asking makes the fake kernel forget the memory of queues that are gone.
        assert!(device.live().is_nothing() && other.live().is_nothing());
        live_bytes()
    })
}

#[test]
#[cfg_attr(miri, ignore = "Miri finds leaks by itself")]
fn no_refused_call_loses_heap_memory() {
    let fabric = Fabric::new();
    let (device, other) = (fabric.add_device("rxe0"), fabric.add_device("rxe1"));
    life(&device, &other).unwrap();
    let calls = device.calls();
    assert!(calls.len() > 30, "{calls:?}");

    // The measure itself: what is kept is seen.
    let before = live_bytes();
    let kept = vec![0u8; 4096];
    assert_eq!(live_bytes() - before, 4096);
    drop(kept);
    assert_eq!(live_bytes(), before);

    for (position, command) in calls.iter().enumerate() {
        for errno in ERRNOS {
            let [first, second, third] =
                left_by(&device, &other, || device.fail_at(position, errno));
            // The first may grow tables that stay; what is lost is lost each time.
            let lost = third
                .saturating_sub(second)
                .min(second.saturating_sub(first));
            assert_eq!(
                lost, 0,
                "{command} (call {position}) refused with {errno:?} loses {lost} bytes each time"
            );
        }
    }
}

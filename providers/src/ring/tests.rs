//! Both ends of a ring, and what an index can be.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{Consumer, Corrupt, Glance, IndexRule, Masked, Producer};

/// A free-running rule, as other hardware counts: every slot is used, indices never wrap early.
#[derive(Clone, Copy)]
struct FreeRunning(u32);

impl IndexRule for FreeRunning {
    fn capacity(self) -> u32 {
        self.0 + 1
    }
    fn is_valid(self, _: u32) -> bool {
        true
    }
    fn step(self, index: u32, by: u32) -> u32 {
        index.wrapping_add(by)
    }
    fn distance(self, from: u32, to: u32) -> u32 {
        to.wrapping_sub(from)
    }
    fn slot(self, index: u32) -> u32 {
        index & self.0
    }
}

#[test]
fn masks_are_powers_of_two_less_one() {
    for good in [0, 1, 3, 7, 0x3fff_ffff, 0x7fff_ffff] {
        assert!(Masked::new(good).is_some(), "{good}");
    }
    for bad in [2, 4, 5, 6, 0x8000_0000, u32::MAX] {
        assert!(Masked::new(bad).is_none(), "{bad}");
    }
}

#[test]
fn the_smallest_ring_holds_one() {
    let (prod, cons) = (AtomicU32::new(0), AtomicU32::new(0));
    let rule = Masked::new(1).unwrap();
    let mut producer = Producer::new(rule, &prod, &cons).unwrap();
    let mut consumer = Consumer::new(rule, &prod, &cons).unwrap();
    for round in 0..10 {
        assert_eq!(producer.free(&cons, 1), Ok(1), "round {round}");
        assert_eq!(consumer.available(&prod, 1), Ok(0));
        let slot = producer.slot(0);
        producer.publish(&prod, 1);
        assert_eq!(producer.free(&cons, 1), Ok(0));
        assert_eq!(consumer.available(&prod, 1), Ok(1));
        assert_eq!(consumer.slot(0), slot);
        consumer.release(&cons, 1);
    }
}

#[test]
fn a_ring_of_one_slot_holds_nothing() {
    let (prod, cons) = (AtomicU32::new(0), AtomicU32::new(0));
    let rule = Masked::new(0).unwrap();
    let mut producer = Producer::new(rule, &prod, &cons).unwrap();
    let mut consumer = Consumer::new(rule, &prod, &cons).unwrap();
    assert_eq!(producer.free(&cons, 1), Ok(0));
    assert_eq!(consumer.available(&prod, 1), Ok(0));
}

#[test]
fn empty_polls_move_nothing() {
    let (prod, cons) = (AtomicU32::new(2), AtomicU32::new(1));
    let mut consumer = Consumer::new(Masked::new(7).unwrap(), &prod, &cons).unwrap();
    assert_eq!(consumer.available(&prod, 4), Ok(1));
    consumer.release(&cons, 1);
    for _ in 0..20 {
        assert_eq!(consumer.available(&prod, 4), Ok(0));
        consumer.release(&cons, 0);
    }
    assert_eq!(cons.load(Ordering::Relaxed), 2);
}

#[test]
fn a_glance_shows_nothing_or_one_and_believes_no_more() {
    let (prod, cons) = (AtomicU32::new(7), AtomicU32::new(7));
    let mut consumer = Consumer::new(Masked::new(7).unwrap(), &prod, &cons).unwrap();
    assert_eq!(consumer.glance(&prod), Glance::Nothing);
    prod.store(0, Ordering::Relaxed);
    assert_eq!(consumer.glance(&prod), Glance::One(0));
    consumer.release_one(&cons, 0);
    assert_eq!(cons.load(Ordering::Relaxed), 0);
    assert_eq!(consumer.glance(&prod), Glance::Nothing);
    for other in [2, 7, 8, u32::MAX] {
        prod.store(other, Ordering::Relaxed);
        assert_eq!(consumer.glance(&prod), Glance::Else(other), "{other}");
    }
    prod.store(4, Ordering::Relaxed);
    assert_eq!(consumer.available(&prod, 1), Ok(4));
    assert_eq!(consumer.idle_at(), None);
    consumer.release(&cons, 1);
    for back in [1, 2, 3] {
        prod.store(back, Ordering::Relaxed);
        assert_eq!(
            consumer.glance(&prod),
            Glance::Else(back),
            "it went backwards"
        );
        assert_eq!(consumer.ready_at(back), Err(Corrupt), "{back}");
    }
    assert_eq!(consumer.available(&prod, 8), Err(Corrupt));
}

#[test]
fn the_other_side_is_looked_at_only_when_needed() {
    let (prod, cons) = (AtomicU32::new(0), AtomicU32::new(0));
    let mut producer = Producer::new(Masked::new(7).unwrap(), &prod, &cons).unwrap();
    producer.publish(&prod, 4);
    cons.store(3, Ordering::Relaxed);
    assert_eq!(producer.free(&cons, 3), Ok(3), "what is known is enough");
    assert_eq!(
        producer.free(&cons, 4),
        Ok(6),
        "more is wanted, so it is looked at"
    );
}

#[test]
fn our_own_index_in_shared_memory_is_never_believed() {
    let (prod, cons) = (AtomicU32::new(0), AtomicU32::new(0));
    let rule = Masked::new(7).unwrap();
    let mut producer = Producer::new(rule, &prod, &cons).unwrap();
    producer.publish(&prod, 2);
    prod.store(0xdead, Ordering::Relaxed);
    producer.publish(&prod, 1);
    assert_eq!(prod.load(Ordering::Relaxed), 3);
}

#[test]
fn impossible_indices_are_refused() {
    let (prod, cons) = (AtomicU32::new(0), AtomicU32::new(0));
    let rule = Masked::new(7).unwrap();
    let mut producer = Producer::new(rule, &prod, &cons).unwrap();
    producer.publish(&prod, 7);
    cons.store(2, Ordering::Relaxed);
    assert_eq!(producer.free(&cons, 1), Ok(2));
    for bad in [8, u32::MAX, 1] {
        cons.store(bad, Ordering::Relaxed);
        assert_eq!(producer.free(&cons, 7), Err(Corrupt), "{bad}");
    }
    prod.store(8, Ordering::Relaxed);
    assert!(Consumer::new(rule, &prod, &cons).is_err());

    let (prod, cons) = (AtomicU32::new(5), AtomicU32::new(2));
    let mut consumer = Consumer::new(rule, &prod, &cons).unwrap();
    for bad in [8, u32::MAX, 4] {
        prod.store(bad, Ordering::Relaxed);
        assert_eq!(consumer.available(&prod, 7), Err(Corrupt), "{bad}");
    }
}

#[test]
fn a_free_running_rule_fits_too() {
    let start = u32::MAX - 2;
    let (prod, cons) = (AtomicU32::new(start), AtomicU32::new(start));
    let mut producer = Producer::new(FreeRunning(3), &prod, &cons).unwrap();
    let mut consumer = Consumer::new(FreeRunning(3), &prod, &cons).unwrap();
    for _ in 0..5 {
        assert_eq!(producer.free(&cons, 4), Ok(4));
        producer.publish(&prod, 4);
        assert_eq!(producer.free(&cons, 1), Ok(0));
        assert_eq!(consumer.available(&prod, 4), Ok(4));
        consumer.release(&cons, 4);
    }
    prod.store(
        cons.load(Ordering::Relaxed).wrapping_add(9),
        Ordering::Relaxed,
    );
    assert_eq!(consumer.available(&prod, 4), Err(Corrupt));
}

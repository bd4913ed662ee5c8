//! A completion queue while everything happens to it at once, against a played kernel.

#![allow(clippy::unwrap_used, reason = "a test may fail")]
// The played kernel reaches indices by words of 8 bytes, meanwhile, which Miri calls a mixed access.
#![cfg(not(miri))]

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use support::kernel::Fake;
use support::objects::cq_spec;
use support::{Cqe, Queue};
use uverbs_providers::contract::{CqOps, Provider};
use uverbs_providers::error::{CloseError, PollError, TakeCause};
use uverbs_providers::rxe::Rxe;
use uverbs_providers::wc::{Wc, WcStatus};

/// Every 7th of them is a failure.
fn give(queue: &Queue, wr_id: u64) {
    let status = if wr_id.is_multiple_of(7) { 5 } else { 0 };
    let cqe = Cqe {
        wr_id,
        status,
        ..Cqe::default()
    };
    let bytes = cqe.to_bytes();
    while !queue.give(&bytes) {
        thread::yield_now();
    }
}

fn note(seen: &[AtomicU64], taken: &AtomicU64, found: &[Wc]) {
    for wc in found {
        let failed = wc.status != WcStatus::Success;
        assert_eq!(failed, wc.wr_id.is_multiple_of(7), "{}", wc.wr_id);
        let place = usize::try_from(wc.wr_id).unwrap();
        seen[place].fetch_add(1, Ordering::Relaxed);
    }
    taken.fetch_add(found.len() as u64, Ordering::Relaxed);
}

/// Polls until the queue is destroyed.
fn poll_to_the_end(cq: &dyn CqOps, room: usize, mut note: impl FnMut(&[Wc])) {
    let mut room = vec![Wc::default(); room];
    loop {
        match cq.poll(&mut room) {
            Ok([]) | Err(PollError::InExclusiveUse) => thread::yield_now(),
            Ok(found) => note(found),
            Err(end) => return assert_eq!(end, PollError::Destroyed),
        }
    }
}

/// Takes the queue out and puts it back until it is destroyed.
fn take_to_the_end(cq: &dyn CqOps, mut note: impl FnMut(&[Wc])) {
    loop {
        match cq.take() {
            Ok(mut taken) => {
                for room in [1, 2, 0] {
                    note(taken.poll(&mut vec![Wc::default(); room]).unwrap());
                    thread::yield_now();
                }
                cq.put_back(taken);
            }
            Err(end) => return assert_eq!(end.cause, TakeCause::Destroyed),
        }
        for _ in 0..5 {
            thread::yield_now();
        }
    }
}

#[test]
fn each_comes_once_while_the_queue_is_taken_put_back_and_destroyed() {
    // Of two slots, so that the index is at one of two places whatever happened; and of four.
    for depth in [1, 3] {
        let (fake, session) = Fake::open();
        let cq = Rxe.create_cq(&session, &cq_spec(depth)).unwrap();
        let queue = fake.cq(cq.handle().0);
        let all = 3000;
        let seen: Vec<_> = (0..all).map(|_| AtomicU64::new(0)).collect();
        let taken = AtomicU64::new(0);
        thread::scope(|scope| {
            let note = |found: &[Wc]| note(&seen, &taken, found);
            let shared = &*cq;
            for room in [1, 1, 2] {
                scope.spawn(move || poll_to_the_end(shared, room, note));
            }
            scope.spawn(move || take_to_the_end(shared, note));
            (0..all).for_each(|wr_id| give(&queue, wr_id));
            while taken.load(Ordering::Relaxed) != all {
                thread::yield_now();
            }
            while let Err(refused) = cq.destroy() {
                assert!(matches!(refused, CloseError::InExclusiveUse), "{refused}");
                thread::yield_now();
            }
        });
        assert!(seen.iter().all(|times| times.load(Ordering::Relaxed) == 1));
        assert_eq!(queue.consumer(), queue.producer());
    }
}

#[test]
fn indices_that_jump_about_meanwhile_break_nothing() {
    for depth in [1, 3] {
        let (fake, session) = Fake::open();
        let cq = Rxe.create_cq(&session, &cq_spec(depth)).unwrap();
        let queue = fake.cq(cq.handle().0);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for room in [0, 1, 3] {
                let (cq, queue, over) = (&*cq, &queue, &over);
                scope.spawn(move || {
                    let mut room = vec![Wc::default(); room];
                    while !over.load(Ordering::Relaxed) {
                        match cq.poll(&mut room) {
                            Ok(_) | Err(PollError::InExclusiveUse) => {}
                            Err(error) => assert_eq!(error, PollError::CorruptRing),
                        }
                        assert!(queue.consumer() <= queue.mask, "ours is one that can be");
                    }
                });
            }
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let mut taken = cq.take().unwrap();
                    let _ = taken.poll(&mut [Wc::default(); 2]);
                    cq.put_back(taken);
                    thread::yield_now();
                }
            });
            let mut random = 1_u64;
            for round in 0..30_000 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let index = (random >> 33) as u32;
                queue.set_producer(match round % 8 {
                    0 => index,
                    1 => u32::MAX - (index & 3),
                    _ => index & (2 * queue.mask + 1),
                });
                if round % 64 == 0 {
                    thread::yield_now();
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        cq.destroy().unwrap();
        assert_eq!(cq.poll(&mut []), Err(PollError::Destroyed));
    }
}

#[test]
fn what_is_queued_when_the_device_goes_comes_before_the_end() {
    for round in 0..200 {
        let (fake, session) = Fake::open();
        let cq = Rxe.create_cq(&session, &cq_spec(3)).unwrap();
        let queue = fake.cq(cq.handle().0);
        if round % 2 == 0 {
            // A number is left.
            assert!(cq.poll(&mut [Wc::default()]).unwrap().is_empty());
        }
        let all = 1 + round % 3;
        (0..all).for_each(|wr_id| give(&queue, wr_id + 1));
        let taken = AtomicU64::new(0);
        thread::scope(|scope| {
            for room in [1, 2] {
                let (cq, taken) = (&cq, &taken);
                scope.spawn(move || {
                    let mut room = vec![Wc::default(); room];
                    loop {
                        match cq.poll(&mut room) {
                            Ok(found) => {
                                let count = found.len() as u64;
                                taken.fetch_add(count, Ordering::Relaxed);
                            }
                            Err(end) => return assert_eq!(end, PollError::DeviceGone),
                        }
                    }
                });
            }
            session.mark_gone();
        });
        assert_eq!(taken.into_inner(), all);
        cq.destroy().unwrap();
    }
}

//! Polling through the rxe provider against a played kernel.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use support::Cqe;
use support::kernel::Fake;
use support::objects::cq_spec;
use uverbs_providers::contract::{Arm, Provider};
use uverbs_providers::error::PollError;
use uverbs_providers::rxe::Rxe;
use uverbs_providers::wc::{Wc, WcOpcode, WcStatus};

#[test]
fn polls_in_order_and_moves_nothing_when_empty() {
    let (fake, session) = Fake::open();
    let cq = Rxe.create_cq(&session, &cq_spec(3)).unwrap();
    assert_eq!(cq.depth(), 3);
    let queue = fake.cq(cq.handle().0);
    let mut wcs = [Wc::default(); 2];
    let mut next = 0;
    for round in 0..20u64 {
        // C01: an empty queue is looked at again and again.
        for _ in 0..3 {
            assert!(cq.poll(&mut wcs).unwrap().is_empty());
            assert!(cq.poll(&mut []).unwrap().is_empty());
        }
        assert_eq!(queue.consumer(), queue.producer());
        for id in 0..3 {
            let wr_id = round * 3 + id;
            assert!(
                queue.give(
                    &Cqe {
                        wr_id,
                        qp_num: 7,
                        ..Cqe::default()
                    }
                    .to_bytes()
                )
            );
        }
        for expected in [2, 1] {
            let got = cq.poll(&mut wcs).unwrap();
            assert_eq!(got.len(), expected);
            for wc in got {
                assert_eq!((wc.wr_id, wc.qp_num.0), (next, 7));
                next += 1;
            }
        }
    }
}

#[test]
fn a_completion_says_what_the_kernel_says() {
    let (fake, session) = Fake::open();
    let cq = Rxe.create_cq(&session, &cq_spec(3)).unwrap();
    let queue = fake.cq(cq.handle().0);
    let ex = [0x11, 0x22, 0x33, 0x44];
    queue.give(
        &Cqe {
            opcode: 128,
            flags: 2,
            ex,
            byte_len: 9,
            ..Cqe::default()
        }
        .to_bytes(),
    );
    queue.give(
        &Cqe {
            opcode: 129,
            flags: 8,
            ex,
            ..Cqe::default()
        }
        .to_bytes(),
    );
    queue.give(
        &Cqe {
            status: 5,
            flags: 2,
            ex,
            ..Cqe::default()
        }
        .to_bytes(),
    );
    let mut wcs = [Wc::default(); 3];
    let before = session.error_epoch();
    let [imm, inv, flushed] = cq.poll(&mut wcs).unwrap() else {
        panic!("three")
    };
    assert_eq!(
        (imm.imm(), imm.opcode(), imm.byte_len),
        (Some(0x1122_3344), Some(WcOpcode::Recv), 9)
    );
    assert_eq!((inv.imm(), inv.raw_ex), (None, ex));
    assert_eq!(inv.opcode(), Some(WcOpcode::RecvRdmaWithImm));
    assert_eq!(
        (flushed.status, flushed.opcode(), flushed.imm()),
        (WcStatus::WrFlushed, None, None)
    );
    assert_ne!(session.error_epoch(), before, "a failure is noted");
}

#[test]
fn arms_for_what_was_asked() {
    let (fake, session) = Fake::open();
    let cq = Rxe.create_cq(&session, &cq_spec(3)).unwrap();
    cq.arm(Arm::Next).unwrap();
    cq.arm(Arm::Solicited).unwrap();
    assert_eq!(fake.state().armed, [0, 1]);
}

#[test]
fn empty_is_never_said_of_what_is_there() {
    let (fake, session) = Fake::open();
    let cq = Rxe.create_cq(&session, &cq_spec(3)).unwrap();
    let queue = fake.cq(cq.handle().0);
    let mut wcs = [Wc::default(); 2];
    let give = |wr_id, status| {
        let cqe = Cqe {
            wr_id,
            status,
            ..Cqe::default()
        };
        assert!(queue.give(&cqe.to_bytes()));
    };
    // Known to be empty; then one, a failure, more than there is room for; each time round the ring.
    for round in 0..9 {
        assert!(cq.poll(&mut wcs).unwrap().is_empty());
        give(round, 0);
        assert!(cq.poll(&mut []).unwrap().is_empty());
        assert_eq!(cq.poll(&mut wcs).unwrap().len(), 1);
        give(round, 5);
        assert_eq!(cq.poll(&mut wcs).unwrap().len(), 1);
        (0..3).for_each(|id| give(id, 0));
        assert_eq!(cq.poll(&mut wcs).unwrap().len(), 2);
        assert_eq!(cq.poll(&mut wcs).unwrap().len(), 1);
        assert!(cq.poll(&mut wcs).unwrap().is_empty());
    }
    // In somebody's hands it is not empty but away, and whatever they leave is found.
    let mut taken = cq.take().unwrap();
    assert_eq!(cq.poll(&mut wcs).unwrap_err(), PollError::InExclusiveUse);
    // As many as it takes for the index to come to where it was known to be.
    for _ in 0..3 {
        give(1, 0);
        assert_eq!(taken.poll(&mut wcs).unwrap().len(), 1);
    }
    give(2, 0);
    assert_eq!(cq.poll(&mut wcs).unwrap_err(), PollError::InExclusiveUse);
    cq.put_back(taken);
    let found = cq.poll(&mut wcs).unwrap();
    assert_eq!(found.first().map(|wc| wc.wr_id), Some(2));
    assert!(cq.poll(&mut wcs).unwrap().is_empty());
    cq.destroy().unwrap();
    assert_eq!(cq.poll(&mut wcs).unwrap_err(), PollError::Destroyed);
}

#[test]
fn no_index_that_cannot_be_passes_for_empty() {
    let (fake, session) = Fake::open();
    let mut wcs = [Wc::default(); 2];
    // Among them what the lock's word has in its lower half where there is no number.
    let bad = [4, 0x7fff_ffff, u32::MAX, u32::MAX - 1, u32::MAX - 2];
    for bad in bad {
        let cq = Rxe.create_cq(&session, &cq_spec(3)).unwrap();
        let queue = fake.cq(cq.handle().0);
        let give = || assert!(queue.give(&Cqe::default().to_bytes()));
        let mut refused = || {
            let right = queue.producer();
            queue.set_producer(bad);
            for _ in 0..2 {
                assert_eq!(cq.poll(&mut []), Err(PollError::CorruptRing), "{bad}");
                let refused = cq.poll(&mut wcs);
                assert_eq!(refused, Err(PollError::CorruptRing), "{bad}");
            }
            queue.set_producer(right);
        };
        // Known to be empty, and not; with something left that is known to be there; and after a refusal.
        refused();
        give();
        refused();
        assert_eq!(cq.poll(&mut [Wc::default()]).unwrap().len(), 1);
        refused();
        (0..3).for_each(|_| give());
        assert_eq!(cq.poll(&mut [Wc::default()]).unwrap().len(), 1);
        refused();
        assert_eq!(cq.poll(&mut [Wc::default(); 3]).unwrap().len(), 2);
        // Back to where some are left that it has told of: neither empty nor one.
        (0..3).for_each(|_| give());
        assert_eq!(cq.poll(&mut [Wc::default()]).unwrap().len(), 1);
        let right = queue.producer();
        for back in [2, 1] {
            queue.set_producer((right + 4 - back) & 3);
            let refused = cq.poll(&mut [Wc::default()]).unwrap_err();
            assert_eq!(refused, PollError::CorruptRing, "{back} back");
        }
        queue.set_producer(right);
        assert_eq!(cq.poll(&mut [Wc::default(); 3]).unwrap().len(), 2);
        let mut taken = cq.take().unwrap();
        for bad in [bad, u32::MAX] {
            queue.set_producer(bad);
            let refused = cq.poll(&mut [Wc::default()]).unwrap_err();
            assert_eq!(refused, PollError::InExclusiveUse);
            let refused = taken.poll(&mut [Wc::default()]).unwrap_err();
            assert_eq!(refused, PollError::CorruptRing, "{bad}");
        }
        cq.destroy().unwrap_err();
        drop(taken);
    }
}

#[test]
#[cfg_attr(
    miri,
    ignore = "the played kernel reaches indices by words of 8 bytes, meanwhile"
)]
fn all_that_many_threads_poll_comes_once() {
    let (fake, session) = Fake::open();
    let cq = Rxe.create_cq(&session, &cq_spec(15)).unwrap();
    let queue = fake.cq(cq.handle().0);
    let all = 20_000;
    let found = Mutex::new(Vec::new());
    let taken = AtomicU64::new(0);
    thread::scope(|scope| {
        for room in [1, 1, 4] {
            let (cq, found, taken) = (&cq, &found, &taken);
            scope.spawn(move || {
                let mut own = Vec::new();
                let mut room = vec![Wc::default(); room];
                while taken.load(Ordering::Relaxed) < all {
                    let got = cq.poll(&mut room).unwrap();
                    own.extend(got.iter().map(|wc| wc.wr_id));
                    let count = got.len();
                    taken.fetch_add(count as u64, Ordering::Relaxed);
                    if count == 0 {
                        thread::yield_now();
                    }
                }
                found.lock().unwrap().extend(own);
            });
        }
        for wr_id in 0..all {
            let cqe = Cqe {
                wr_id,
                ..Cqe::default()
            };
            while !queue.give(&cqe.to_bytes()) {
                thread::yield_now();
            }
        }
    });
    let mut found = found.into_inner().unwrap();
    found.sort_unstable();
    assert!(found.into_iter().eq(0..all));
}

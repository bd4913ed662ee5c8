//! Polling through the rxe provider against a played kernel.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

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

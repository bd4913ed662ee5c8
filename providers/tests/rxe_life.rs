//! Objects of the rxe provider against a played kernel: made, lent out, broken, destroyed.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use support::kernel::Fake;
use support::objects::{cq_spec, qp_spec, ready, recvs, refusal, sends, srq_spec};
use support::{Cqe, read};
use uverbs_providers::abi::{Cause, Errno};
use uverbs_providers::contract::{CqReported, Provider};
use uverbs_providers::error::{
    CloseError, CreateError, PollError, PostCause, PostError, TakeCause,
};
use uverbs_providers::rxe::Rxe;
use uverbs_providers::types::{QpState, QueueId};
use uverbs_providers::wc::Wc;

#[test]
fn a_removed_device_is_told_apart() {
    let (fake, session, qp) = ready(15, 15);
    let cq = Rxe.create_cq(&session, &cq_spec(7)).unwrap();
    fake.cq(cq.handle().0).give(
        &Cqe {
            wr_id: 5,
            ..Cqe::default()
        }
        .to_bytes(),
    );
    fake.state().removed = true;
    assert_eq!(
        qp.post_send(&sends(0..2)),
        Err(refusal(&*qp, 2, PostCause::DeviceGone))
    );
    assert_eq!(
        qp.post_send(&sends(2..3)),
        Err(refusal(&*qp, 0, PostCause::DeviceGone))
    );
    assert_eq!(
        qp.post_recv(&recvs(0..1)),
        Err(refusal(&*qp, 0, PostCause::DeviceGone))
    );
    // What is queued still comes out, and only then is it said that no more will come.
    let mut wcs = [Wc::default(); 4];
    assert_eq!(cq.poll(&mut wcs).unwrap().len(), 1);
    assert_eq!(cq.poll(&mut wcs), Err(PollError::DeviceGone));
    // A destroy is answered all the same.
    assert_eq!(qp.destroy(), Ok(3));
    assert_eq!(
        cq.destroy(),
        Ok(CqReported {
            completion: 2,
            asynchronous: 1
        })
    );
    assert_eq!(fake.objects(), 0);
}

#[test]
fn a_shared_receive_queue_takes_the_place_of_the_receive_queue() {
    let (fake, session) = Fake::open();
    let srq = Rxe.create_srq(&session, &srq_spec(5)).unwrap();
    assert_eq!((srq.max_wr(), srq.max_sge()), (7, 2));
    let qp = Rxe
        .create_qp(&session, &qp_spec(3, 9, Some(srq.handle())))
        .unwrap();
    qp.state_changed(QpState::Init).unwrap();
    let refusal = refusal(&*qp, 0, PostCause::UsesSharedReceiveQueue);
    assert_eq!(qp.post_recv(&recvs(0..1)), Err(refusal));
    let error = qp.take_recv().map(drop).unwrap_err();
    assert_eq!(
        (error.queue, error.cause),
        (refusal.queue, TakeCause::UsesSharedReceiveQueue)
    );
    assert_eq!((qp.caps().max_recv_wr, qp.caps().max_recv_sge), (0, 0));

    srq.post_recv(&recvs(0..7)).unwrap();
    let of_srq = |cause| PostError::new(QueueId::SharedReceiveQueue(srq.handle()), 0, cause);
    let full = of_srq(PostCause::QueueFull);
    assert_eq!(srq.post_recv(&recvs(7..8)), Err(full));
    assert_eq!(
        full.to_string(),
        format!(
            "shared receive queue {}: nothing was posted: {}",
            srq.handle(),
            PostCause::QueueFull
        )
    );
    let queue = fake.state().srqs[&srq.handle().0].clone();
    assert_eq!(read::recv(&queue.take().unwrap()).wr_id, 0);
    srq.post_recv(&recvs(7..8)).unwrap();

    srq.set_limit(3).unwrap();
    assert_eq!(
        fake.state().limits,
        [(3, 8)],
        "the driver's 8 bytes come along"
    );

    fake.state().script.push_back(Some(Errno::EBUSY));
    let busy = srq.destroy().unwrap_err();
    assert!(matches!(busy, CloseError::Command(error) if error.errno() == Some(Errno::EBUSY)));
    queue.take().unwrap();
    srq.post_recv(&recvs(8..9)).unwrap();
    assert_eq!(qp.destroy(), Ok(3));
    assert_eq!(srq.destroy(), Ok(4));
    assert_eq!(srq.destroy(), Err(CloseError::Destroyed));
    assert_eq!(srq.post_recv(&[]), Err(of_srq(PostCause::Destroyed)));
}

#[test]
fn an_exclusive_queue_is_out_until_it_is_back() {
    let (fake, session, qp) = ready(7, 7);
    let cq = Rxe.create_cq(&session, &cq_spec(7)).unwrap();
    let queue = fake.cq(cq.handle().0);
    let mut wcs = [Wc::default(); 2];

    let mut own_cq = cq.take().unwrap();
    assert_eq!(cq.poll(&mut wcs), Err(PollError::InExclusiveUse));
    assert_eq!(cq.destroy(), Err(CloseError::InExclusiveUse));
    queue.give(
        &Cqe {
            wr_id: 1,
            ..Cqe::default()
        }
        .to_bytes(),
    );
    assert_eq!(own_cq.poll(&mut wcs).unwrap().len(), 1);
    cq.put_back(own_cq);
    queue.give(
        &Cqe {
            wr_id: 2,
            ..Cqe::default()
        }
        .to_bytes(),
    );
    assert_eq!(cq.poll(&mut wcs).unwrap()[0].wr_id, 2);

    let lent = refusal(&*qp, 0, PostCause::InExclusiveUse);
    let mut own_send = qp.take_send().unwrap();
    let mut own_recv = qp.take_recv().unwrap();
    assert_eq!(qp.post_send(&sends(0..1)), Err(lent));
    assert_eq!(qp.post_recv(&recvs(0..1)), Err(lent));
    for error in [
        qp.take_send().map(drop).unwrap_err(),
        qp.take_recv().map(drop).unwrap_err(),
    ] {
        assert_eq!(
            error.to_string(),
            format!(
                "queue pair {} cannot be had for exclusive use: it is in exclusive use; drop the \
                 handle that has it first",
                qp.qp_num()
            )
        );
    }
    own_send.post_send(&sends(0..3)).unwrap();
    own_recv.post_recv(&recvs(0..3)).unwrap();
    qp.state_changed(QpState::Rtr).unwrap();
    assert!(matches!(
        own_send.post_send(&sends(3..4)).unwrap_err().cause,
        PostCause::WrongState {
            state: QpState::Rtr,
            ..
        }
    ));
    qp.state_changed(QpState::Rts).unwrap();

    // With one of the two out, a destroy leaves the other where it was.
    qp.put_back_send(own_send);
    assert_eq!(qp.destroy(), Err(CloseError::InExclusiveUse));
    qp.post_send(&sends(3..4)).unwrap();
    qp.put_back_recv(own_recv);
    qp.post_recv(&recvs(3..4)).unwrap();
    assert_eq!(fake.qp(qp.handle().0).send.waiting(), 4);
    assert_eq!(fake.qp(qp.handle().0).recv.unwrap().waiting(), 4);

    // A queue of another queue pair is not taken in.
    let other = Rxe.create_qp(&session, &qp_spec(7, 7, None)).unwrap();
    let own_send = qp.take_send().unwrap();
    qp.put_back_send(other.take_send().unwrap());
    assert_eq!(qp.post_send(&sends(0..1)), Err(lent));
    qp.put_back_send(own_send);
    qp.post_send(&sends(4..5)).unwrap();
}

#[test]
fn a_destroy_that_the_kernel_refuses_changes_nothing() {
    let (fake, session, qp) = ready(7, 7);
    let cq = Rxe.create_cq(&session, &cq_spec(7)).unwrap();
    for busy in [
        {
            fake.state().script.push_back(Some(Errno::EBUSY));
            qp.destroy().map(drop)
        },
        {
            fake.state().script.push_back(Some(Errno::EBUSY));
            cq.destroy().map(drop)
        },
    ] {
        let Err(CloseError::Command(error)) = busy else {
            panic!("{busy:?}")
        };
        assert_eq!(error.cause, Cause::Errno(Errno::EBUSY));
    }
    qp.post_send(&sends(0..1)).unwrap();
    qp.post_recv(&recvs(0..1)).unwrap();
    assert!(cq.poll(&mut [Wc::default()]).unwrap().is_empty());

    assert_eq!(qp.destroy(), Ok(3));
    let gone = refusal(&*qp, 0, PostCause::Destroyed);
    assert_eq!(qp.post_send(&sends(1..2)), Err(gone));
    assert_eq!(qp.post_recv(&recvs(1..2)), Err(gone));
    assert_eq!(qp.destroy(), Err(CloseError::Destroyed));
    assert_eq!(
        cq.destroy(),
        Ok(CqReported {
            completion: 2,
            asynchronous: 1
        })
    );
    assert_eq!(cq.poll(&mut [Wc::default()]), Err(PollError::Destroyed));
    let gone = cq.take().map(drop).unwrap_err();
    assert_eq!(gone.cause, TakeCause::Destroyed);
    assert_eq!(gone.queue, QueueId::CompletionQueue(cq.handle()));
    assert_eq!(fake.objects(), 0);
}

#[test]
fn a_queue_that_cannot_be_is_refused_and_leaves_nothing() {
    let spoils: [fn(&support::Queue); 6] = [
        |queue| queue.set_u32(0, 40),
        |queue| queue.set_u32(0, 5),
        |queue| queue.set_u32(4, 5),
        |queue| queue.set_u32(4, u32::MAX),
        |queue| queue.set_u32(4, 1),
        |queue| queue.set_u32(128, 0xdead_beef),
    ];
    for (i, spoil) in spoils.into_iter().enumerate() {
        let (fake, session) = Fake::open();
        fake.state().spoil = Some(spoil);
        let cq = Rxe.create_cq(&session, &cq_spec(7)).map(drop);
        let srq = Rxe.create_srq(&session, &srq_spec(7)).map(drop);
        let qp = Rxe.create_qp(&session, &qp_spec(7, 7, None)).map(drop);
        for made in [cq, srq, qp] {
            assert!(
                matches!(made, Err(CreateError::BadQueue { .. })),
                "{i}: {made:?}"
            );
        }
        assert_eq!(fake.objects(), 0, "{i}");
    }
}

#[test]
fn a_creation_that_fails_leaves_nothing() {
    let (fake, session) = Fake::open();
    fake.state().map_fails = true;
    let cq = Rxe.create_cq(&session, &cq_spec(7)).map(drop);
    let srq = Rxe.create_srq(&session, &srq_spec(7)).map(drop);
    let qp = Rxe.create_qp(&session, &qp_spec(7, 7, None)).map(drop);
    for made in [cq, srq, qp] {
        let Err(CreateError::Command(error)) = made else {
            panic!("{made:?}")
        };
        assert_eq!(
            (error.command, error.errno()),
            ("MMAP", Some(Errno::EINVAL))
        );
    }
    assert_eq!(fake.objects(), 0);

    fake.state().script.push_back(Some(Errno::ENOMEM));
    let Err(CreateError::Command(error)) = Rxe.create_cq(&session, &cq_spec(7)) else {
        panic!()
    };
    assert_eq!(
        (error.command, error.errno()),
        ("CQ_CREATE", Some(Errno::ENOMEM))
    );
}

#[test]
fn indices_that_cannot_be_are_an_error_and_nothing_else() {
    let (fake, session, qp) = ready(7, 7);
    let cq = Rxe.create_cq(&session, &cq_spec(7)).unwrap();
    let corrupt = refusal(&*qp, 0, PostCause::CorruptRing);
    let queues = fake.qp(qp.handle().0);
    let cq_queue = fake.cq(cq.handle().0);
    qp.post_send(&sends(0..7)).unwrap();
    qp.post_recv(&recvs(0..7)).unwrap();
    for bad in [8, 0x8000_0000, u32::MAX] {
        queues.send.set_consumer(bad);
        assert_eq!(qp.post_send(&sends(0..1)), Err(corrupt));
        queues.recv.as_ref().unwrap().set_consumer(bad);
        assert_eq!(qp.post_recv(&recvs(0..1)), Err(corrupt));
        cq_queue.set_producer(bad);
        assert_eq!(cq.poll(&mut [Wc::default()]), Err(PollError::CorruptRing));
    }
    assert_eq!(qp.destroy(), Ok(3));
    assert!(cq.destroy().is_ok());
}

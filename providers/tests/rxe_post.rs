//! Posting through the rxe provider against a played kernel: what is in the queues, how often it is
//! rung, and what is told.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use support::kernel::{Fake, Via};
use support::objects::{full, qp_spec, ready, recvs, refusal, sends};
use support::{read, sge};
use uverbs_providers::abi::Errno;
use uverbs_providers::contract::Provider;
use uverbs_providers::error::{PostCause, PostError};
use uverbs_providers::rxe::Rxe;
use uverbs_providers::sge::Sge;
use uverbs_providers::types::{QpState, Rkey};
use uverbs_providers::wr::{Payload, RecvWr, RemoteAddr, SendOp, SendWr};

/// D06: exactly what was granted fits, one more does not, and one that is done makes room for one.
#[test]
fn queues_of_every_size_hold_what_they_say_and_wrap() {
    let sizes: &[u32] = if cfg!(miri) {
        &[1, 2, 3, 4]
    } else {
        &[1, 2, 3, 4, 1023, 1024]
    };
    for &asked in sizes {
        for as_asked in [false, true] {
            let (fake, session) = Fake::open();
            fake.state().reports_as_asked = as_asked;
            let qp = Rxe
                .create_qp(&session, &qp_spec(asked, asked, None))
                .unwrap();
            qp.state_changed(QpState::Rts).unwrap();
            let caps = qp.caps();
            assert_eq!(caps.max_send_wr, (asked + 1).next_power_of_two() - 1);
            assert_eq!(caps.max_recv_wr, caps.max_send_wr);
            let queues = fake.qp(qp.handle().0);
            let (send, recv) = (queues.send, queues.recv.unwrap());
            let cap = u64::from(caps.max_send_wr);
            let mut next = 0;
            qp.post_send(&sends(0..cap)).unwrap();
            qp.post_recv(&recvs(0..cap)).unwrap();
            next += cap;
            // Five times around, and a bit.
            let rounds = if cfg!(miri) {
                cap.min(4) * 5
            } else {
                (cap + 1) * 5 + 1
            };
            for expected in 0..rounds {
                assert_eq!(qp.post_send(&sends(next..next + 1)), Err(full(&*qp, 0)));
                assert_eq!(qp.post_recv(&recvs(next..next + 1)), Err(full(&*qp, 0)));
                assert_eq!(read::send(&send.take().unwrap()).wr_id, expected);
                assert_eq!(read::recv(&recv.take().unwrap()).wr_id, expected);
                assert_eq!(qp.post_send(&sends(next..next + 2)), Err(full(&*qp, 1)));
                assert_eq!(qp.post_recv(&recvs(next..next + 2)), Err(full(&*qp, 1)));
                next += 1;
            }
            assert_eq!((send.waiting(), recv.waiting()), (send.mask, recv.mask));
        }
    }
}

#[test]
fn one_batch_one_publication_one_doorbell() {
    let (fake, _session, qp) = ready(15, 15);
    qp.post_send(&sends(0..10)).unwrap();
    assert_eq!(fake.state().doorbells, [(qp.handle().0, Via::Write)]);
    assert_eq!(fake.qp(qp.handle().0).send.producer(), 10);
    qp.post_send(&[]).unwrap();
    assert_eq!(
        fake.state().doorbells.len(),
        1,
        "nothing posted, nothing rung"
    );
    qp.post_recv(&recvs(0..10)).unwrap();
    assert_eq!(fake.state().doorbells.len(), 1, "receives have no doorbell");
    assert_eq!(fake.qp(qp.handle().0).recv.unwrap().producer(), 10);
}

#[test]
fn a_bad_request_in_the_middle_lets_those_before_it_go() {
    let (fake, _session, qp) = ready(15, 15);
    let send = fake.qp(qp.handle().0).send;
    let long = [0; 33];
    let mut wrs = sends(0..5);
    wrs[3] = SendWr::send_inline(3, &long);
    let cause = PostCause::InlineTooLong { given: 33, max: 32 };
    assert_eq!(qp.post_send(&wrs), Err(refusal(&*qp, 3, cause)));
    assert_eq!(send.waiting(), 3);
    assert_eq!(fake.state().doorbells.len(), 1);

    // The first one is bad: nothing goes, nothing is rung.
    assert_eq!(qp.post_send(&wrs[3..]), Err(refusal(&*qp, 0, cause)));
    assert_eq!(send.waiting(), 3);
    assert_eq!(fake.state().doorbells.len(), 1);

    // The slot that the bad one had touched is filled anew.
    qp.post_send(&sends(7..8)).unwrap();
    let ids: Vec<u64> = std::iter::from_fn(|| send.take())
        .map(|s| read::send(&s).wr_id)
        .collect();
    assert_eq!(ids, [0, 1, 2, 7]);

    let three = [sge(0, 1, 1); 3];
    let wrs = [RecvWr::new(0, &three[..2]), RecvWr::new(1, &three)];
    let cause = PostCause::TooManySge { given: 3, max: 2 };
    assert_eq!(qp.post_recv(&wrs), Err(refusal(&*qp, 1, cause)));
}

#[test]
fn states_are_checked_before_anything_is_written() {
    let (fake, session) = Fake::open();
    let qp = Rxe.create_qp(&session, &qp_spec(3, 3, None)).unwrap();
    let state_of = |result: Result<(), PostError>| match result {
        Ok(()) => None,
        Err(PostError {
            accepted: 0,
            cause: PostCause::WrongState { state, .. },
            ..
        }) => Some(state),
        Err(other) => panic!("{other}"),
    };
    let send = || state_of(qp.post_send(&sends(0..1)));
    let recv = || state_of(qp.post_recv(&recvs(0..1)));
    assert_eq!(recv(), Some(QpState::Reset));
    assert_eq!(send(), Some(QpState::Reset));
    qp.state_changed(QpState::Init).unwrap();
    assert_eq!((send(), recv()), (Some(QpState::Init), None));
    qp.state_changed(QpState::Rtr).unwrap();
    assert_eq!((send(), recv()), (Some(QpState::Rtr), None));
    assert!(fake.state().doorbells.is_empty());
    assert_eq!(fake.qp(qp.handle().0).send.producer(), 0);
    for state in [QpState::Rts, QpState::Sqd, QpState::Sqe] {
        qp.state_changed(state).unwrap();
        assert_eq!(send(), None);
    }
    assert_eq!(fake.state().doorbells.len(), 3);
}

#[test]
fn a_doorbell_that_credentials_forbid_goes_by_ioctl() {
    let (fake, _session, qp) = ready(15, 1);
    fake.state().write_fails = Some(Errno::EACCES);
    qp.post_send(&sends(0..1)).unwrap();
    qp.post_send(&sends(1..2)).unwrap();
    assert_eq!(fake.state().doorbells, [(qp.handle().0, Via::Ioctl); 2]);
}

#[test]
fn a_doorbell_that_fails_says_what_is_in_the_queue() {
    let (fake, _session, qp) = ready(15, 1);
    fake.state().write_fails = Some(Errno::EINVAL);
    let mut wrs = sends(0..3);
    wrs.push(SendWr::read(
        9,
        &[],
        RemoteAddr {
            addr: 0,
            rkey: Rkey(0),
        },
    ));
    let Err(PostError {
        accepted: 4,
        cause: PostCause::Doorbell(error),
        ..
    }) = qp.post_send(&wrs)
    else {
        panic!("no doorbell error")
    };
    assert_eq!(
        (error.command, error.errno()),
        ("POST_SEND", Some(Errno::EINVAL))
    );
    assert_eq!(fake.qp(qp.handle().0).send.waiting(), 4);
}

/// One of each kind of request, with `sges` for its elements.
fn kinds(sges: &[Sge; 2]) -> Vec<SendWr<'_>> {
    let remote = RemoteAddr {
        addr: 0x1000,
        rkey: Rkey(7),
    };
    let [first, _] = *sges;
    vec![
        SendWr::read(0, &sges[..1], remote),
        SendWr::read(1, &[], remote),
        SendWr::read(2, sges, remote).signaled(),
        SendWr::fetch_add(3, first, remote, 5),
        SendWr::compare_swap(4, first, remote, 6, 7).signaled(),
        SendWr::write(5, &sges[..1], remote),
        SendWr::write_inline(6, b"inline", remote),
        SendWr::send(7, &sges[..1]),
        SendWr {
            op: SendOp::SendImm {
                data: Payload::Sges(sges),
                imm: 9,
            },
            ..SendWr::send(8, sges)
        },
    ]
}

/// What a slot must say of a request, by hand.
fn says(slot: &[u8], wr: &SendWr<'_>, sges: &[Sge; 2]) {
    let said = read::send(slot);
    let [first, second] = *sges;
    let (opcode, elements) = match wr.wr_id {
        0 => (4, vec![first]),
        1 => (4, vec![]),
        2 => (4, vec![first, second]),
        3 => (6, vec![first]),
        4 => (5, vec![first]),
        5 => (0, vec![first]),
        6 => (0, vec![]),
        7 => (2, vec![first]),
        _ => (3, vec![first, second]),
    };
    assert_eq!((said.wr_id, said.opcode), (wr.wr_id, opcode));
    assert_eq!(said.sges, elements, "{wr:?}");
    assert!(said.progress.iter().all(|word| *word == 0), "{said:?}");
    let is_inline = wr.wr_id == 6;
    let flags = wr.flags.bits() | if is_inline { 8 } else { 0 };
    assert_eq!(said.flags, flags, "{wr:?}");
    let length = if is_inline {
        6
    } else {
        elements.iter().map(Sge::len).sum()
    };
    assert_eq!((said.length, said.resid), (length, length), "{wr:?}");
    match wr.wr_id {
        3 => assert_eq!(said.atomic(), (0x1000, 5, 0, 7)),
        4 => assert_eq!(said.atomic(), (0x1000, 6, 7, 7)),
        7 | 8 => assert_eq!((said.rdma(), said.iova), ((0, 0), 0)),
        _ => assert_eq!((said.rdma(), said.iova), ((0x1000, 7), 0x1000)),
    }
}

/// Whichever way a request takes into its slot, and whatever was in that before.
#[test]
fn what_brings_something_back_goes_alone_and_in_any_company_across_the_rings_end() {
    let sges = [sge(0x40, 8, 1), sge(0x80, 0, 2)];
    let kinds = kinds(&sges);
    let (fake, _session, qp) = ready(3, 1);
    let send = fake.qp(qp.handle().0).send;
    let stride = if cfg!(miri) { 17 } else { 1 };
    for number in (0..kinds.len().pow(3)).step_by(stride) {
        let digits = [number, number / kinds.len(), number / kinds.len().pow(2)];
        let batch = digits.map(|digit| kinds[digit % kinds.len()]);
        let count = 1 + number % 3;
        qp.post_send(&batch[..count]).unwrap();
        for wr in &batch[..count] {
            says(&send.take().unwrap(), wr, &sges);
        }
        assert_eq!(send.waiting(), 0);
    }
}

#[test]
fn a_refusal_of_what_brings_something_back_names_it_wherever_it_stands() {
    let sges = [sge(0x40, 8, 1), sge(0x80, 4, 2)];
    let kinds = kinds(&sges);
    let remote = RemoteAddr {
        addr: 0,
        rkey: Rkey(0),
    };
    let long = [sge(0, 1 << 31, 0)];
    let given = u64::from(1u32 << 31);
    let too_long = PostCause::MessageTooLong {
        given,
        max: (1 << 31) - 1,
    };
    let (fake, session, qp) = ready(7, 1);
    let send = fake.qp(qp.handle().0).send;
    let bad = [
        (SendWr::read(9, &long, remote), too_long),
        (
            SendWr::fetch_add(9, sges[1], remote, 1),
            PostCause::AtomicLength { given: 4 },
        ),
        (
            SendWr::compare_swap(9, sge(0, 0, 0), remote, 1, 2),
            PostCause::AtomicLength { given: 0 },
        ),
    ];
    let refused = |before: &[SendWr<'_>], wr: SendWr<'_>, cause: PostCause| {
        let wrs = [before, &[wr], &kinds[..1]].concat();
        let error = qp.post_send(&wrs).unwrap_err();
        assert_eq!(error, refusal(&*qp, before.len(), cause));
        for wr in before {
            assert_eq!(read::send(&send.take().unwrap()).wr_id, wr.wr_id);
        }
        assert_eq!(send.waiting(), 0);
    };
    for (wr, cause) in bad {
        assert_eq!(qp.post_send(&[wr]), Err(refusal(&*qp, 0, cause)));
        for before in [&kinds[..0], &kinds[..2], &kinds[3..6]] {
            refused(before, wr, cause);
        }
    }
    qp.set_max_rd_atomic(0);
    for wr in &kinds[..5] {
        assert_eq!(
            qp.post_send(&[*wr]),
            Err(refusal(&*qp, 0, PostCause::NoReads))
        );
        refused(&kinds[5..8], *wr, PostCause::NoReads);
    }
    qp.set_max_rd_atomic(1);
    qp.post_send(&kinds[..5]).unwrap();

    // Where there may be no element at all.
    let mut spec = qp_spec(7, 1, None);
    (spec.caps.max_send_sge, spec.caps.max_inline_data) = (0, 0);
    let qp = Rxe.create_qp(&session, &spec).unwrap();
    qp.state_changed(QpState::Rts).unwrap();
    for wr in [kinds[0], kinds[3], kinds[4]] {
        let cause = PostCause::TooManySge { given: 1, max: 0 };
        assert_eq!(qp.post_send(&[wr]), Err(refusal(&*qp, 0, cause)));
        assert_eq!(qp.post_send(&[kinds[1], wr]), Err(refusal(&*qp, 1, cause)));
    }
    qp.post_send(&kinds[1..2]).unwrap();
}

/// Moves to the error state, and queries.
fn asked(fake: &Fake) -> (usize, u32) {
    let state = fake.state();
    (state.moved_to_error.len(), state.queries)
}

#[test]
fn receives_posted_in_the_error_state_are_flushed() {
    // Known from a command of ours.
    let (fake, session, qp) = ready(3, 7);
    let handle = qp.handle().0;
    qp.post_recv(&recvs(0..1)).unwrap();
    assert_eq!(asked(&fake), (0, 0));
    qp.state_changed(QpState::Err).unwrap();
    qp.post_recv(&recvs(1..2)).unwrap();
    assert_eq!(asked(&fake), (1, 0));
    assert_eq!(fake.state().moved_to_error, [handle]);

    // Something failed, but not this one: asked once for each failure.
    qp.state_changed(QpState::Rts).unwrap();
    fake.state().qp_state = QpState::Rts.raw();
    session.note_error();
    qp.post_recv(&recvs(2..3)).unwrap();
    qp.post_recv(&recvs(3..4)).unwrap();
    assert_eq!(asked(&fake), (1, 1));

    // It is this one: asked once, then known.
    fake.state().qp_state = QpState::Err.raw();
    session.note_error();
    qp.post_recv(&recvs(4..5)).unwrap();
    qp.post_recv(&recvs(5..6)).unwrap();
    assert_eq!(asked(&fake), (3, 2));

    // Nothing was accepted: nothing is to be flushed.
    qp.post_recv(&recvs(6..7)).unwrap();
    assert_eq!(qp.post_recv(&recvs(7..8)), Err(full(&*qp, 0)));
    assert_eq!(fake.state().moved_to_error.len(), 4);
}

#[test]
fn queues_of_size_zero_hold_nothing() {
    let (_fake, session) = Fake::open();
    let qp = Rxe.create_qp(&session, &qp_spec(1, 0, None)).unwrap();
    qp.state_changed(QpState::Rts).unwrap();
    assert_eq!(qp.caps().max_recv_wr, 0);
    assert_eq!(qp.post_recv(&recvs(0..1)), Err(full(&*qp, 0)));
    qp.post_send(&sends(0..1)).unwrap();
}

#[test]
fn many_threads_share_one_queue_pair() {
    let (fake, _session, qp) = ready(1023, 1023);
    let each = if cfg!(miri) { 4 } else { 200u64 };
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let qp = &qp;
            scope.spawn(move || {
                for id in 0..each {
                    let id = thread << 32 | id;
                    qp.post_send(&[SendWr::send_inline(id, &id.to_ne_bytes())])
                        .unwrap();
                    qp.post_recv(&[RecvWr::new(id, &[])]).unwrap();
                }
            });
        }
    });
    let queues = fake.qp(qp.handle().0);
    let mut next = [0u64; 4];
    while let Some(slot) = queues.send.take() {
        let wqe = read::send(&slot);
        assert_eq!(wqe.inline, wqe.wr_id.to_ne_bytes());
        let thread = (wqe.wr_id >> 32) as usize;
        assert_eq!(
            wqe.wr_id & 0xffff_ffff,
            next[thread],
            "in order for each thread"
        );
        next[thread] += 1;
    }
    assert_eq!(next, [each; 4]);
    assert_eq!(u64::from(queues.recv.unwrap().waiting()), 4 * each);
    assert_eq!(fake.state().doorbells.len() as u64, 4 * each);
}

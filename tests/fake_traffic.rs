//! Messages on the fake kernel: every operation, from one device to another and to itself.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use support::{End, Pair, pair, pattern};
use uverbs::fake::Fabric;
use uverbs::{
    AccessFlags, ConnectOptions, PostCause, RecvWr, SendWr, Wc, WcFlags, WcOpcode, WcStatus,
};

/// What peers may do in most tests.
fn all() -> AccessFlags {
    AccessFlags::LOCAL_WRITE
        | AccessFlags::REMOTE_WRITE
        | AccessFlags::REMOTE_READ
        | AccessFlags::REMOTE_ATOMIC
}

fn sizes() -> &'static [usize] {
    if cfg!(miri) {
        &[1, 7, 1025]
    } else {
        &[1, 7, 8, 1023, 1024, 1025, 5000, 1 << 20]
    }
}

#[test]
fn sends_arrive_as_they_were_sent_at_every_size_and_alignment() {
    let Pair { a, b, .. } = pair();
    for &size in sizes() {
        for skip in [0, 3] {
            let data = pattern(size + skip, 1);
            let out = a.pd.register(data.clone(), AccessFlags::empty()).unwrap();
            let room = b.pd.allocate(size + 5, AccessFlags::LOCAL_WRITE).unwrap();
            let slice = room.slice(5 - skip..size + 5).unwrap();
            b.qp.post_recv(&[RecvWr::new(2, &[slice])]).unwrap();
            let sge = out.slice(skip..).unwrap();
            a.qp.post_send(&[SendWr::send(1, &[sge]).signaled()])
                .unwrap();
            let (sent, got) = (a.completion(), b.completion());
            assert_eq!(
                (sent.wr_id, sent.ok().unwrap().opcode()),
                (1, Some(WcOpcode::Send))
            );
            assert_eq!(
                (got.wr_id, got.ok().unwrap().opcode()),
                (2, Some(WcOpcode::Recv))
            );
            assert_eq!(got.byte_len as usize, size);
            assert_eq!(got.qp_num, b.qp.qp_num());
            let start = 5 - skip;
            assert_eq!(room.to_vec(start..start + size).unwrap(), data[skip..]);
        }
    }
}

#[test]
fn elements_are_gathered_and_scattered_in_order() {
    let Pair { a, b, .. } = pair();
    let data = pattern(32 * 9, 2);
    let out = a.pd.register(data.clone(), AccessFlags::empty()).unwrap();
    let room = b.pd.allocate(data.len(), AccessFlags::LOCAL_WRITE).unwrap();
    let from: Vec<_> = (0..32)
        .map(|i| out.slice(i * 9..i * 9 + 9).unwrap())
        .collect();
    // The other way round, and in other portions.
    let to: Vec<_> = (0..24)
        .rev()
        .map(|i| room.slice(i * 12..i * 12 + 12).unwrap())
        .collect();
    b.qp.post_recv(&[RecvWr::new(2, &to)]).unwrap();
    a.qp.post_send(&[SendWr::send(1, &from).signaled()])
        .unwrap();
    assert_eq!(a.status(), (1, WcStatus::Success));
    let expected: Vec<u8> = data.chunks(12).rev().flatten().copied().collect();
    assert_eq!(room.to_vec(..).unwrap(), expected);
}

#[test]
fn immediate_data_inline_data_and_an_empty_message_arrive() {
    let Pair { a, b, .. } = pair();
    let room = b.pd.allocate(128, all()).unwrap();
    let slice = [room.slice(..).unwrap()];
    let recv = [
        RecvWr::new(1, &slice),
        RecvWr::new(2, &slice),
        RecvWr::new(3, &slice),
    ];
    b.qp.post_recv(&recv).unwrap();
    let text = b"thirteen byte";
    a.qp.post_send(&[
        SendWr::send_inline(1, text).with_imm(0x0102_0304),
        SendWr::send(2, &[]),
        SendWr::write_inline(3, b"written", room.remote(64).unwrap()).with_imm(9),
    ])
    .unwrap();
    a.nothing();
    let mut found = [Wc::default(); 4];
    let found = b.cq.poll(&mut found).unwrap();
    let [first, second, third] = found else {
        panic!("{found:?}")
    };
    assert_eq!((first.imm(), first.byte_len), (Some(0x0102_0304), 13));
    assert!(first.flags.contains(WcFlags::GRH));
    assert_eq!((second.imm(), second.byte_len), (None, 0));
    assert_eq!((third.imm(), third.byte_len), (Some(9), 7));
    assert_eq!(third.opcode(), Some(WcOpcode::RecvRdmaWithImm));
    assert_eq!(room.to_vec(..13).unwrap(), text);
    assert_eq!(room.to_vec(64..71).unwrap(), b"written");
}

#[test]
fn reads_writes_and_atomics_reach_the_peers_memory() {
    let Pair { a, b, .. } = pair();
    for &size in sizes() {
        let data = pattern(size, 3);
        let theirs = b.pd.allocate(size, all()).unwrap();
        let ours =
            a.pd.register(data.clone(), AccessFlags::LOCAL_WRITE)
                .unwrap();
        let remote = theirs.remote(0).unwrap();
        let sge = [ours.slice(..).unwrap()];
        a.qp.post_send(&[SendWr::write(1, &sge, remote).signaled()])
            .unwrap();
        assert_eq!(a.completion().opcode(), Some(WcOpcode::RdmaWrite));
        assert_eq!(theirs.to_vec(..).unwrap(), data);
        ours.write_at(0, &vec![0; size]).unwrap();
        a.qp.post_send(&[SendWr::read(2, &sge, remote).signaled()])
            .unwrap();
        assert_eq!(a.completion().opcode(), Some(WcOpcode::RdmaRead));
        assert_eq!(ours.to_vec(..).unwrap(), data);
    }
    let word = b.pd.allocate(16, all()).unwrap();
    word.store_u64(8, 5).unwrap();
    let old = a.pd.allocate(8, AccessFlags::LOCAL_WRITE).unwrap();
    let (into, remote) = (old.slice(..).unwrap(), word.remote(8).unwrap());
    for (wr, opcode, before, after) in [
        (
            SendWr::fetch_add(1, into, remote, 37),
            WcOpcode::FetchAdd,
            5,
            42,
        ),
        (
            SendWr::compare_swap(2, into, remote, 41, 1),
            WcOpcode::CompareSwap,
            42,
            42,
        ),
        (
            SendWr::compare_swap(3, into, remote, 42, 1),
            WcOpcode::CompareSwap,
            42,
            1,
        ),
        (
            SendWr::fetch_add(4, into, remote, u64::MAX),
            WcOpcode::FetchAdd,
            1,
            0,
        ),
    ] {
        a.qp.post_send(&[wr.signaled()]).unwrap();
        assert_eq!(a.completion().opcode(), Some(opcode));
        assert_eq!(old.load_u64(0).unwrap(), before);
        assert_eq!(word.load_u64(8).unwrap(), after);
    }
    b.nothing();
}

#[test]
fn two_queue_pairs_of_one_device_reach_each_other_too() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let (a, b) = (End::new(&device), End::new(&device));
    a.connect(&b, &ConnectOptions::default());
    b.connect(&a, &ConnectOptions::default());
    let room = b.pd.allocate(8, AccessFlags::LOCAL_WRITE).unwrap();
    b.qp.post_recv(&[RecvWr::new(2, &[room.slice(..).unwrap()])])
        .unwrap();
    a.qp.post_send(&[SendWr::send_inline(1, b"myself").signaled()])
        .unwrap();
    assert_eq!((a.status().0, b.status().0), (1, 2));
    assert_eq!(room.to_vec(..6).unwrap(), b"myself");
}

#[test]
fn a_queue_is_full_until_its_sends_are_done_with() {
    let Pair { fabric, a, b } = pair();
    let depth = u64::from(a.qp.caps().max_send_wr);
    let wrs: Vec<_> = (0..depth + 3)
        .map(|id| SendWr::send_inline(id, b""))
        .collect();
    // Nobody receives, so they stay.
    let error = a.qp.post_send(&wrs).unwrap_err();
    assert_eq!(
        (error.accepted as u64, error.cause),
        (depth, PostCause::QueueFull)
    );
    let recv: Vec<_> = (0..2).map(|id| RecvWr::new(id, &[])).collect();
    b.qp.post_recv(&recv).unwrap();
    fabric.step();
    let error = a.qp.post_send(&wrs).unwrap_err();
    assert_eq!((error.accepted, error.cause), (2, PostCause::QueueFull));
}

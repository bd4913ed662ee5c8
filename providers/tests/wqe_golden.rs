//! The bytes of one slot for each operation, written by hand from `rdma/rdma_user_rxe.h`.
//!
//! `..` in the comments: the byte keeps what was there before (0xaa), since nobody reads it.

#![cfg(target_endian = "little")]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::io::IoSlice;

use support::{Queue, sge};
use uverbs_providers::rxe::wqe::{SendLimits, encode_recv, encode_send};
use uverbs_providers::shared::SharedQueue;
use uverbs_providers::types::Rkey;
use uverbs_providers::wr::{Payload, RecvWr, RemoteAddr, SendOp, SendWr};

const LIMITS: SendLimits = SendLimits {
    max_sge: 3,
    max_inline: 48,
};
const REMOTE: RemoteAddr = RemoteAddr {
    addr: 0x2122_2324_2526_2728,
    rkey: Rkey(0x3132_3334),
};
const WR_ID: u64 = 0x0102_0304_0506_0708;

/// The 256 bytes of a send slot that was full of 0xaa.
fn encoded(wr: &SendWr<'_>) -> Vec<u8> {
    let memory = Queue::new(2, 8, 0xaa);
    let mut queue = SharedQueue::<208>::new(memory.mapping()).unwrap();
    encode_send(wr, &LIMITS, queue.slot_mut(1)).unwrap();
    assert!(
        memory.slot(0).iter().all(|byte| *byte == 0xaa),
        "the neighbour was touched"
    );
    memory.slot(1)
}

/// A slot put together from its parts: head, the union's 120 bytes, the middle, and the data.
fn slot(head: [u8; 24], union: &[u8], iova: [u8; 8], dma: [u8; 24], data: &[u8]) -> Vec<u8> {
    let mut slot = head.to_vec();
    slot.extend(union);
    slot.resize(144, 0xaa); //      … 144 ..
    slot.extend([0; 8]); //         144 status 0, state 0 (posted)
    slot.extend(iova); //           152 iova
    slot.extend([0; 24]); //        160 mask, first_psn, last_psn, ack_length, ssn, has_rd_atomic
    slot.extend(dma); //            184 dma
    slot.extend(data); //           208 elements, or inline bytes
    slot.resize(256, 0xaa);
    slot
}

#[track_caller]
fn assert_slot(found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len());
    let differ: Vec<usize> = (0..found.len())
        .filter(|i| found[*i] != expected[*i])
        .collect();
    assert!(
        differ.is_empty(),
        "bytes {differ:?}\n found    {found:02x?}\n expected {expected:02x?}"
    );
}

const NO_IOVA: [u8; 8] = [0; 8];
const IOVA: [u8; 8] = [0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21];

#[rustfmt::skip]
const NO_REMOTE: [u8; 16] = [
    0, 0, 0, 0, 0, 0, 0, 0,                         // 24 rdma.remote_addr
    0, 0, 0, 0, 0, 0, 0, 0,                         // 32 rdma.rkey, reserved
];

#[rustfmt::skip]
const RDMA: [u8; 16] = [
    0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // 24 rdma.remote_addr
    0x34, 0x33, 0x32, 0x31, 0, 0, 0, 0,             // 32 rdma.rkey, reserved
];

#[rustfmt::skip]
const ONE_ELEMENT: [u8; 16] = [
    0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41, // 208 addr
    0x00, 0x01, 0, 0,                               // 216 length 256
    0x54, 0x53, 0x52, 0x51,                         // 220 lkey
];

#[rustfmt::skip]
const ONE_ELEMENT_DMA: [u8; 24] = [
    0x00, 0x01, 0, 0, 0x00, 0x01, 0, 0,             // 184 length 256, resid 256
    0, 0, 0, 0, 1, 0, 0, 0,                         // 192 cur_sge 0, num_sge 1
    0, 0, 0, 0, 0, 0, 0, 0,                         // 200 sge_offset 0, reserved
];

fn one_element() -> uverbs_providers::sge::Sge {
    sge(0x4142_4344_4546_4748, 256, 0x5152_5354)
}

#[rustfmt::skip]
fn head(opcode: u8, flags: u8, ex: [u8; 4]) -> [u8; 24] {
    let [a, b, c, d] = ex;
    [
        8, 7, 6, 5, 4, 3, 2, 1,                     // 0 wr_id
        0, 0, 0, 0, opcode, 0, 0, 0,                // 8 reserved, opcode
        flags, 0, 0, 0, a, b, c, d,                 // 16 send_flags, ex
    ]
}

#[test]
fn send_of_two_elements() {
    let sges = [one_element(), sge(7, 1, 9)];
    #[rustfmt::skip]
    let (dma, data) = (
        [
            0x01, 0x01, 0, 0, 0x01, 0x01, 0, 0,     // 184 length 257, resid 257
            0, 0, 0, 0, 2, 0, 0, 0,                 // 192 cur_sge 0, num_sge 2
            0, 0, 0, 0, 0, 0, 0, 0,                 // 200 sge_offset 0, reserved
        ],
        [
            0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41, 0, 1, 0, 0, 0x54, 0x53, 0x52, 0x51,
            7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0,
        ],
    );
    // opcode 2 SEND; flags 1 FENCE | 2 SIGNALED | 4 SOLICITED
    let wr = SendWr::send(WR_ID, &sges).fenced().signaled().solicited();
    let expected = slot(head(2, 7, [0; 4]), &NO_REMOTE, NO_IOVA, dma, &data);
    assert_slot(&encoded(&wr), &expected);
}

#[test]
fn send_of_nothing() {
    let expected = slot(head(2, 0, [0; 4]), &NO_REMOTE, NO_IOVA, [0; 24], &[]);
    assert_slot(&encoded(&SendWr::send(WR_ID, &[])), &expected);
}

#[test]
fn send_with_imm() {
    let sges = [one_element()];
    // opcode 3 SEND_WITH_IMM; the immediate goes out in network order
    let wr = SendWr::send(WR_ID, &sges).with_imm(0x6162_6364).signaled();
    let ex = [0x61, 0x62, 0x63, 0x64];
    let expected = slot(
        head(3, 2, ex),
        &NO_REMOTE,
        NO_IOVA,
        ONE_ELEMENT_DMA,
        &ONE_ELEMENT,
    );
    assert_slot(&encoded(&wr), &expected);
}

#[test]
fn rdma_write() {
    let sges = [one_element()];
    // opcode 0 RDMA_WRITE
    let expected = slot(
        head(0, 2, [0; 4]),
        &RDMA,
        IOVA,
        ONE_ELEMENT_DMA,
        &ONE_ELEMENT,
    );
    assert_slot(
        &encoded(&SendWr::write(WR_ID, &sges, REMOTE).signaled()),
        &expected,
    );
}

#[test]
fn rdma_write_with_imm() {
    let sges = [one_element()];
    // opcode 1 RDMA_WRITE_WITH_IMM
    let wr = SendWr::write(WR_ID, &sges, REMOTE).with_imm(1);
    let expected = slot(
        head(1, 0, [0, 0, 0, 1]),
        &RDMA,
        IOVA,
        ONE_ELEMENT_DMA,
        &ONE_ELEMENT,
    );
    assert_slot(&encoded(&wr), &expected);
}

#[test]
fn rdma_read() {
    let sges = [one_element()];
    // opcode 4 RDMA_READ
    let expected = slot(
        head(4, 2, [0; 4]),
        &RDMA,
        IOVA,
        ONE_ELEMENT_DMA,
        &ONE_ELEMENT,
    );
    assert_slot(
        &encoded(&SendWr::read(WR_ID, &sges, REMOTE).signaled()),
        &expected,
    );
}

#[rustfmt::skip]
const EIGHT_BYTES_DMA: [u8; 24] = [
    8, 0, 0, 0, 8, 0, 0, 0,                         // 184 length 8, resid 8
    0, 0, 0, 0, 1, 0, 0, 0,                         // 192 cur_sge 0, num_sge 1
    0, 0, 0, 0, 0, 0, 0, 0,                         // 200 sge_offset 0, reserved
];

#[rustfmt::skip]
const EIGHT_BYTES: [u8; 16] = [
    0x10, 0, 0, 0, 0, 0, 0, 0,                      // 208 addr
    8, 0, 0, 0, 9, 0, 0, 0,                         // 216 length 8, lkey
];

#[test]
fn compare_and_swap() {
    #[rustfmt::skip]
    let union = [
        0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // 24 atomic.remote_addr
        0x0c, 0, 0, 0, 0, 0, 0, 0xc0,                   // 32 atomic.compare_add
        0x0d, 0, 0, 0, 0, 0, 0, 0xd0,                   // 40 atomic.swap
        0x34, 0x33, 0x32, 0x31, 0, 0, 0, 0,             // 48 atomic.rkey, reserved
    ];
    let (compare, swap) = (0xc000_0000_0000_000c, 0xd000_0000_0000_000d);
    // opcode 5 ATOMIC_CMP_AND_SWP
    let wr = SendWr::compare_swap(WR_ID, sge(16, 8, 9), REMOTE, compare, swap).signaled();
    let expected = slot(
        head(5, 2, [0; 4]),
        &union,
        IOVA,
        EIGHT_BYTES_DMA,
        &EIGHT_BYTES,
    );
    assert_slot(&encoded(&wr), &expected);
}

#[test]
fn fetch_and_add() {
    #[rustfmt::skip]
    let union = [
        0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // 24 atomic.remote_addr
        0x0c, 0, 0, 0, 0, 0, 0, 0xc0,                   // 32 atomic.compare_add
        0, 0, 0, 0, 0, 0, 0, 0,                         // 40 atomic.swap
        0x34, 0x33, 0x32, 0x31, 0, 0, 0, 0,             // 48 atomic.rkey, reserved
    ];
    // opcode 6 ATOMIC_FETCH_AND_ADD
    let wr = SendWr::fetch_add(WR_ID, sge(16, 8, 9), REMOTE, 0xc000_0000_0000_000c).signaled();
    let expected = slot(
        head(6, 2, [0; 4]),
        &union,
        IOVA,
        EIGHT_BYTES_DMA,
        &EIGHT_BYTES,
    );
    assert_slot(&encoded(&wr), &expected);
}

#[rustfmt::skip]
const TEN_BYTES_DMA: [u8; 24] = [
    10, 0, 0, 0, 10, 0, 0, 0,                       // 184 length 10, resid 10 (D03: not 0)
    0, 0, 0, 0, 0, 0, 0, 0,                         // 192 cur_sge 0, num_sge 0
    0, 0, 0, 0, 0, 0, 0, 0,                         // 200 sge_offset 0, reserved
];

#[rustfmt::skip]
const TEN_BYTES: [u8; 16] = [
    b'0', b'1', b'2', b'3', b'4', b'5', b'6', b'7', // 208 inline_data
    b'8', b'9', 0, 0, 0, 0, 0, 0,                   // 216 … and the rest of the last word
];

#[test]
fn inline_send() {
    // flags 8 INLINE
    let wr = SendWr::send_inline(WR_ID, b"0123456789");
    let expected = slot(
        head(2, 8, [0; 4]),
        &NO_REMOTE,
        NO_IOVA,
        TEN_BYTES_DMA,
        &TEN_BYTES,
    );
    assert_slot(&encoded(&wr), &expected);
}

#[test]
fn inline_list_write() {
    let parts = [&b"012"[..], b"", b"34567", b"8", b"9"].map(IoSlice::new);
    // flags 2 SIGNALED | 8 INLINE
    let op = SendOp::Write {
        data: Payload::InlineList(&parts),
        remote: REMOTE,
    };
    let wr = SendWr {
        op,
        ..SendWr::send(WR_ID, &[])
    }
    .signaled();
    let expected = slot(head(0, 10, [0; 4]), &RDMA, IOVA, TEN_BYTES_DMA, &TEN_BYTES);
    assert_slot(&encoded(&wr), &expected);
}

#[test]
fn receive() {
    let memory = Queue::new(2, 7, 0xaa);
    let mut queue = SharedQueue::<40>::new(memory.mapping()).unwrap();
    let sges = [one_element(), sge(7, 1, 9)];
    encode_recv(&RecvWr::new(WR_ID, &sges), 2, queue.slot_mut(1)).unwrap();
    #[rustfmt::skip]
    let mut expected = vec![
        8, 7, 6, 5, 4, 3, 2, 1,                         // 0 wr_id
        0, 0, 0, 0, 0, 0, 0, 0,                         // 8 reserved, padding
        0x01, 0x01, 0, 0, 0x01, 0x01, 0, 0,             // 16 length 257, resid 257
        0, 0, 0, 0, 2, 0, 0, 0,                         // 24 cur_sge 0, num_sge 2
        0, 0, 0, 0, 0, 0, 0, 0,                         // 32 sge_offset 0, reserved
        0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41, // 40 addr
        0, 1, 0, 0, 0x54, 0x53, 0x52, 0x51,             // 48 length, lkey
        7, 0, 0, 0, 0, 0, 0, 0,                         // 56 addr
        1, 0, 0, 0, 9, 0, 0, 0,                         // 64 length, lkey
    ];
    expected.resize(128, 0xaa);
    assert_slot(&memory.slot(1), &expected);
}

//! Any request at all: what is encoded is what a reader who knows only the kernel's header finds,
//! what is refused is refused for the right reason, and the neighbours are never touched.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::io::IoSlice;

use proptest::prelude::*;
use support::{Queue, read, sge};
use uverbs_providers::error::PostCause;
use uverbs_providers::rxe::wc::decode;
use uverbs_providers::rxe::wqe::{SendLimits, encode_recv, encode_send};
use uverbs_providers::sge::Sge;
use uverbs_providers::shared::SharedQueue;
use uverbs_providers::types::Rkey;
use uverbs_providers::wc::WcStatus;
use uverbs_providers::wr::{Payload, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr};

/// Room for 19 elements or 304 bytes after the head.
const LOG2: u32 = 9;
const ROOM: u32 = 512 - 208;

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 1000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

#[derive(Clone, Debug)]
enum Content {
    Sges(Vec<Sge>),
    Inline(Vec<u8>),
    List(Vec<Vec<u8>>),
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => 0..5000u32,
        1 => any::<u32>(),
        1 => Just(1 << 31),
        1 => Just(0x8000_0001),
        1 => Just(8),
    ]
}

fn sges() -> impl Strategy<Value = Vec<Sge>> {
    prop::collection::vec(any_sge(), 0..22)
}

fn any_sge() -> impl Strategy<Value = Sge> {
    (any::<u64>(), length(), any::<u32>()).prop_map(|(addr, len, key)| sge(addr, len, key))
}

fn content() -> impl Strategy<Value = Content> {
    let bytes = |max| prop::collection::vec(any::<u8>(), 0..max);
    prop_oneof![
        sges().prop_map(Content::Sges),
        bytes(400).prop_map(Content::Inline),
        prop::collection::vec(bytes(60), 0..12).prop_map(Content::List),
    ]
}

#[derive(Clone, Debug)]
struct Request {
    wr_id: u64,
    flags: u32,
    /// 0 to 6: the kernel's opcode.
    opcode: u32,
    content: Content,
    atomic: Sge,
    remote: (u64, u32),
    numbers: (u32, u64, u64),
}

fn request() -> impl Strategy<Value = Request> {
    (
        (any::<u64>(), any::<u32>(), 0..7u32),
        (content(), any_sge()),
        any::<(u64, u32)>(),
        any::<(u32, u64, u64)>(),
    )
        .prop_map(
            |((wr_id, flags, opcode), (content, atomic), remote, numbers)| Request {
                wr_id,
                flags,
                opcode,
                content,
                atomic,
                remote,
                numbers,
            },
        )
}

/// What must come of it: a refusal, or length, elements and inline bytes.
fn expect(request: &Request, limits: SendLimits) -> Result<(u32, Vec<Sge>, Vec<u8>), PostCause> {
    let from_sges = |sges: &[Sge]| {
        if sges.len() > limits.max_sge as usize {
            return Err(PostCause::TooManySge {
                given: sges.len(),
                max: limits.max_sge,
            });
        }
        let given: u128 = sges.iter().map(|sge| u128::from(sge.len())).sum();
        if given >= 1 << 31 {
            return Err(PostCause::MessageTooLong {
                given: u64::try_from(given).unwrap(),
                max: i32::MAX.cast_unsigned(),
            });
        }
        Ok((u32::try_from(given).unwrap(), sges.to_vec(), Vec::new()))
    };
    let from_bytes = |bytes: Vec<u8>| {
        if bytes.len() > limits.max_inline as usize {
            let given = bytes.len() as u64;
            return Err(PostCause::InlineTooLong {
                given,
                max: limits.max_inline,
            });
        }
        Ok((u32::try_from(bytes.len()).unwrap(), Vec::new(), bytes))
    };
    match (request.opcode, &request.content) {
        (5 | 6, _) if request.atomic.len() != 8 => Err(PostCause::AtomicLength {
            given: request.atomic.len(),
        }),
        (5 | 6, _) => from_sges(&[request.atomic]),
        (4, Content::Sges(sges)) | (_, Content::Sges(sges)) => from_sges(sges),
        (4, _) => from_sges(&[]),
        (_, Content::Inline(bytes)) => from_bytes(bytes.clone()),
        (_, Content::List(parts)) => from_bytes(parts.concat()),
    }
}

fn check_send(request: &Request, limits: SendLimits) -> Result<(), TestCaseError> {
    let parts: Vec<IoSlice<'_>> = match &request.content {
        Content::List(parts) => parts.iter().map(|part| IoSlice::new(part)).collect(),
        _ => Vec::new(),
    };
    let data = match &request.content {
        Content::Sges(sges) => Payload::Sges(sges),
        Content::Inline(bytes) => Payload::Inline(bytes),
        Content::List(_) => Payload::InlineList(&parts),
    };
    let into: &[Sge] = match &request.content {
        Content::Sges(sges) => sges,
        _ => &[],
    };
    let remote = RemoteAddr {
        addr: request.remote.0,
        rkey: Rkey(request.remote.1),
    };
    let (imm, compare, swap) = request.numbers;
    let op = match request.opcode {
        0 => SendOp::Write { data, remote },
        1 => SendOp::WriteImm { data, remote, imm },
        2 => SendOp::Send { data },
        3 => SendOp::SendImm { data, imm },
        4 => SendOp::Read { into, remote },
        5 => SendOp::CompareSwap {
            into: request.atomic,
            remote,
            compare,
            swap,
        },
        _ => SendOp::FetchAdd {
            into: request.atomic,
            remote,
            add: compare,
        },
    };
    let flags = SendFlags::from_bits_retain(request.flags);
    let wr = SendWr {
        wr_id: request.wr_id,
        op,
        flags,
    };

    let memory = Queue::new(4, LOG2, 0xa5);
    let mut queue = SharedQueue::<208>::new(memory.mapping()).unwrap();
    let done = encode_send(&wr, &limits, queue.slot_mut(2));
    for neighbour in [0, 1, 3] {
        prop_assert!(memory.slot(neighbour).iter().all(|byte| *byte == 0xa5));
    }
    prop_assert_eq!((memory.producer(), memory.consumer()), (0, 0));

    let expected = expect(request, limits);
    prop_assert_eq!(done.err(), expected.as_ref().err().copied());
    let Ok((length, sges, inline)) = expected else {
        return Ok(());
    };
    let found = read::send(&memory.slot(2));
    let is_inline = request.opcode < 4 && !matches!(request.content, Content::Sges(_));
    prop_assert_eq!(found.wr_id, request.wr_id);
    prop_assert_eq!(found.opcode, request.opcode);
    prop_assert_eq!(found.flags, request.flags & 7 | u32::from(is_inline) << 3);
    prop_assert_eq!(&found.progress, &vec![0; 12]);
    prop_assert_eq!((found.length, found.resid), (length, length));
    prop_assert_eq!(found.num_sge as usize, sges.len());
    prop_assert_eq!(&found.sges, &sges);
    prop_assert_eq!(&found.inline, &inline);
    let imm_bytes = if matches!(request.opcode, 1 | 3) {
        imm.to_be_bytes()
    } else {
        [0; 4]
    };
    prop_assert_eq!(found.ex, imm_bytes);
    let (addr, rkey) = request.remote;
    match request.opcode {
        0 | 1 | 4 => prop_assert_eq!((found.iova, found.rdma()), (addr, (addr, rkey))),
        5 => prop_assert_eq!(
            (found.iova, found.atomic()),
            (addr, (addr, compare, swap, rkey))
        ),
        6 => prop_assert_eq!(
            (found.iova, found.atomic()),
            (addr, (addr, compare, 0, rkey))
        ),
        _ => prop_assert_eq!((found.iova, found.rdma()), (0, (0, 0))),
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn sends_are_read_back(
        request in request(),
        max_sge in 0..=ROOM / 16,
        max_inline in 0..=ROOM,
    ) {
        check_send(&request, SendLimits { max_sge, max_inline })?;
    }

    #[test]
    fn receives_are_read_back(wr_id in any::<u64>(), sges in sges(), max_sge in 0..20u32) {
        let memory = Queue::new(4, LOG2, 0xa5);
        let mut queue = SharedQueue::<40>::new(memory.mapping()).unwrap();
        let done = encode_recv(&RecvWr::new(wr_id, &sges), max_sge, queue.slot_mut(1));
        for neighbour in [0, 2, 3] {
            prop_assert!(memory.slot(neighbour).iter().all(|byte| *byte == 0xa5));
        }
        let given: u64 = sges.iter().map(|sge| u64::from(sge.len())).sum();
        if sges.len() > max_sge as usize {
            let refusal = PostCause::TooManySge { given: sges.len(), max: max_sge };
            prop_assert_eq!(done, Err(refusal));
        } else if given >= 1 << 31 {
            prop_assert_eq!(done, Err(PostCause::MessageTooLong { given, max: i32::MAX.cast_unsigned() }));
        } else {
            prop_assert_eq!(done, Ok(()));
            let found = read::recv(&memory.slot(1));
            prop_assert_eq!(found.wr_id, wr_id);
            prop_assert_eq!(&found.progress, &vec![0; 5]);
            prop_assert_eq!((u64::from(found.length), u64::from(found.resid)), (given, given));
            prop_assert_eq!(&found.sges, &sges);
        }
    }

    #[test]
    fn any_bytes_are_a_completion(words in any::<[u64; 6]>(), small in any::<[bool; 3]>()) {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // Now and then a status, an opcode and flags as they really are.
        for (at, small) in [(8, small[0]), (12, small[1]), (36, small[2])] {
            if small {
                let value = u32::from(bytes[at]) % 24;
                bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
            }
        }
        let words: Vec<u64> =
            bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
        let wc = decode(words.try_into().unwrap());
        let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let u16_at = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap());
        prop_assert_eq!(wc.wr_id, u64::from_ne_bytes(bytes[..8].try_into().unwrap()));
        prop_assert_eq!(wc.status.raw(), u32_at(8));
        prop_assert_eq!(wc.status == WcStatus::Success, u32_at(8) == 0);
        prop_assert_eq!((wc.raw_opcode, wc.vendor_err, wc.byte_len), (u32_at(12), u32_at(16), u32_at(20)));
        prop_assert_eq!((wc.qp_num.0, wc.src_qp.0, wc.flags.bits()), (u32_at(28), u32_at(32), u32_at(36)));
        prop_assert_eq!((wc.pkey_index, wc.slid), (u16_at(40), u16_at(42)));
        prop_assert_eq!((wc.sl, wc.dlid_path_bits), (bytes[44], bytes[45]));
        let has_imm = u32_at(36) & 2 != 0;
        let ex: [u8; 4] = bytes[24..28].try_into().unwrap();
        prop_assert_eq!(wc.raw_ex, ex);
        let received = matches!(u32_at(12), 128 | 129);
        let has_it = has_imm && received && u32_at(8) == 0;
        prop_assert_eq!(wc.imm(), has_it.then(|| u32::from_be_bytes(ex)));
        let _ = (wc.opcode(), wc.ok(), format!("{wc:?} {}", wc.status));
    }
}

/// D01: lengths that wrap 32 bits when added up.
#[test]
fn lengths_beyond_32_bits_are_summed_and_refused() {
    let sges = [
        sge(0, 0x8000_0000, 1),
        sge(0, 0x8000_0000, 1),
        sge(0, 16, 1),
    ];
    let memory = Queue::new(2, LOG2, 0xa5);
    let mut queue = SharedQueue::<208>::new(memory.mapping()).unwrap();
    let limits = SendLimits {
        max_sge: 3,
        max_inline: 64,
    };
    let done = encode_send(&SendWr::send(1, &sges), &limits, queue.slot_mut(0));
    assert_eq!(
        done,
        Err(PostCause::MessageTooLong {
            given: 0x1_0000_0010,
            max: i32::MAX.cast_unsigned(),
        })
    );

    // Inline data cannot be given by address, so it takes many large slices of one and the same.
    let large = vec![0u8; if cfg!(miri) { 1 << 12 } else { 1 << 24 }];
    let parts: Vec<IoSlice<'_>> = (0..257).map(|_| IoSlice::new(&large)).collect();
    let op = SendOp::Send {
        data: Payload::InlineList(&parts),
    };
    let wr = SendWr {
        op,
        ..SendWr::send(1, &[])
    };
    let done = encode_send(&wr, &limits, queue.slot_mut(0));
    let given = 257 * large.len() as u64;
    assert_eq!(done, Err(PostCause::InlineTooLong { given, max: 64 }));
    assert!(
        memory.slot(0)[208..]
            .iter()
            .skip(48)
            .all(|byte| *byte == 0xa5),
        "no byte was copied"
    );
    assert!(memory.slot(1).iter().all(|byte| *byte == 0xa5));
}

/// D02: each part alone is short enough, together they are not.
#[test]
fn the_parts_of_an_inline_list_are_summed() {
    let memory = Queue::new(2, LOG2, 0xa5);
    let mut queue = SharedQueue::<208>::new(memory.mapping()).unwrap();
    let limits = SendLimits {
        max_sge: 1,
        max_inline: 64,
    };
    let part = [7; 33];
    let mut post = |lengths: &[usize]| {
        let parts: Vec<IoSlice<'_>> = lengths.iter().map(|n| IoSlice::new(&part[..*n])).collect();
        let op = SendOp::Send {
            data: Payload::InlineList(&parts),
        };
        let wr = SendWr {
            op,
            ..SendWr::send(1, &[])
        };
        encode_send(&wr, &limits, queue.slot_mut(0))
    };
    assert_eq!(
        post(&[32, 33]),
        Err(PostCause::InlineTooLong { given: 65, max: 64 })
    );
    assert_eq!(post(&[32, 32]), Ok(()));
    let found = read::send(&memory.slot(0));
    assert_eq!(
        (found.length, found.resid, found.inline),
        (64, 64, vec![7; 64])
    );
    assert_eq!(post(&[]), Ok(()));
    assert_eq!(read::send(&memory.slot(0)).length, 0);
}

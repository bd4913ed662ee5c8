//! Inline data: bytes that are copied into the queue while posting.

use std::io::IoSlice;

use uverbs::{
    ConnectOptions, MemoryRegion, Payload, PostCause, RecvWr, SendFlags, SendOp, SendWr, WcFlags,
    WcOpcode,
};

use super::pair::{
    End, Failure, POISON, Shape, all_access, pair, pattern, same, same_bytes, shaped_pair,
};
use super::{Case, CaseResult, Verdict};

pub(super) const CASES: &[Case] = &[
    Case::new("rc::inline_at_every_length", inline_at_every_length).limit_secs(120),
    Case::new("rc::inline_list_adds_up", inline_list_adds_up),
    Case::new("rc::inline_is_what_was_granted", inline_as_granted),
    Case::new(
        "rc::inline_of_the_other_opcodes",
        inline_of_the_other_opcodes,
    ),
];

/// The driver rounds what is asked for up to whole elements, and says so: that much goes, and no more.
fn inline_as_granted() -> CaseResult {
    for (sge, inline, granted) in [(1, 0, 16), (3, 0, 48), (1, 17, 17), (2, 20, 32)] {
        let shape = Shape {
            inline,
            sge,
            ..Shape::default()
        };
        let (a, b) = shaped_pair(&shape, &ConnectOptions::default())?;
        let what = format!("{inline} bytes beside {sge} elements");
        let caps = a.qp.caps();
        same(&what, caps.max_inline_data, granted)?;
        let info = a.qp.query()?.caps;
        same("queried", info.max_inline_data, granted)?;
        let len = usize::try_from(granted)?;
        let out = pattern(len + 1, 3);
        let back = b.pd.allocate(len + 1, all_access())?;
        b.qp.post_recv(&[RecvWr::new(1, &[back.slice(..)?])])?;
        let over = a.qp.post_send(&[SendWr::send_inline(2, &out).signaled()]);
        let cause = PostCause::InlineTooLong {
            given: u64::from(granted) + 1,
            max: granted,
        };
        same(&what, over.err().map(|error| error.cause), Some(cause))?;
        a.qp.post_send(&[SendWr::send_inline(3, &out[..len]).signaled()])?;
        a.completion()?.ok()?;
        b.completion()?.ok()?;
        same_bytes(&what, &back.to_vec(..len)?, &out[..len])?;
    }
    Ok(Verdict::Passed)
}

/// Bytes that inline messages are received into, with poison between them.
const STRIDE: usize = 640;

/// A receiver with 16 receives posted into poisoned memory, one for each message of a batch.
fn sixteen_receives(b: &End) -> Result<MemoryRegion, Failure> {
    let back = b.pd.allocate(16 * STRIDE, all_access())?;
    back.write_at(0, &[POISON; 16 * STRIDE])?;
    for slot in 0..16 {
        let at = slot * STRIDE;
        let sge = back.slice(at..at + 512)?;
        b.qp.post_recv(&[RecvWr::new(slot as u64, &[sge])])?;
    }
    Ok(back)
}

/// The bytes are taken while posting, so the buffer is spoilt right afterwards.
fn inline_at_every_length() -> CaseResult {
    let shape = Shape {
        inline: 512,
        sge: 1,
        ..Shape::default()
    };
    let (a, b) = shaped_pair(&shape, &ConnectOptions::default())?;
    let max = usize::try_from(a.qp.caps().max_inline_data)?;
    same("granted", max, 512)?;
    let lengths: Vec<usize> = (0..=max).collect();
    for lengths in lengths.chunks(16) {
        let back = sixteen_receives(&b)?;
        for &len in lengths {
            let mut buffer = pattern(len, 9);
            // In turns from one place and from three.
            if len % 2 == 0 {
                let wr = SendWr::send_inline(len as u64, &buffer).signaled();
                a.qp.post_send(&[wr])?;
            } else {
                let (first, rest) = buffer.split_at(len / 3);
                let (second, third) = rest.split_at(rest.len() / 5);
                let list = [first, second, third].map(IoSlice::new);
                let data = Payload::InlineList(&list);
                let op = SendOp::Send { data };
                a.qp.post_send(&[SendWr {
                    wr_id: len as u64,
                    op,
                    flags: SendFlags::SIGNALED,
                }])?;
            }
            buffer.fill(0);
        }
        for (sent, len) in a.completions(lengths.len())?.iter().zip(lengths) {
            sent.ok()?;
            same("sent", sent.wr_id, *len as u64)?;
        }
        for (slot, received) in b.completions(lengths.len())?.iter().enumerate() {
            received.ok()?;
            let len = lengths[slot];
            same("length", usize::try_from(received.byte_len)?, len)?;
            let mut want = pattern(len, 9);
            want.resize(STRIDE, POISON);
            let at = slot * STRIDE;
            same_bytes(
                &format!("{len} bytes"),
                &back.to_vec(at..at + STRIDE)?,
                &want,
            )?;
        }
        // The rest of the receives goes unused: spend them on empty messages.
        for id in lengths.len()..16 {
            a.qp.post_send(&[SendWr::send_inline(id as u64, &[]).signaled()])?;
            a.completion()?.ok()?;
            same("empty", b.completion()?.byte_len, 0)?;
        }
    }
    let long = pattern(max + 1, 0);
    let error =
        a.qp.post_send(&[SendWr::send_inline(0, &long)])
            .err()
            .ok_or("513 taken")?;
    same("accepted", error.accepted, 0)?;
    same(
        "cause",
        error.cause,
        PostCause::InlineTooLong {
            given: 513,
            max: 512,
        },
    )?;
    Ok(Verdict::Passed)
}

/// The sum of a list counts, in 64 bits.
fn inline_list_adds_up() -> CaseResult {
    let shape = Shape {
        inline: 64,
        sge: 1,
        ..Shape::default()
    };
    let (a, b) = shaped_pair(&shape, &ConnectOptions::default())?;
    same("granted", a.qp.caps().max_inline_data, 64)?;
    let back = sixteen_receives(&b)?;
    let bytes = pattern(64, 4);
    let post = |id, list: &[IoSlice<'_>]| {
        let op = SendOp::Send {
            data: Payload::InlineList(list),
        };
        a.qp.post_send(&[SendWr {
            wr_id: id,
            op,
            flags: SendFlags::SIGNALED,
        }])
    };
    let (half, other) = bytes.split_at(32);
    post(1, &[IoSlice::new(half), IoSlice::new(other)])?;
    let long = [0u8; 33];
    let error = post(2, &[IoSlice::new(half), IoSlice::new(&long)]).err();
    let cause = PostCause::InlineTooLong { given: 65, max: 64 };
    same(
        "32 and 33",
        error.map(|e| (e.accepted, e.cause)),
        Some((0, cause)),
    )?;
    // 256 times 16 MiB and 16 bytes: 16 in 32 bits.
    let big = vec![0u8; 1 << 24];
    let mut list = vec![IoSlice::new(&big); 256];
    list.push(IoSlice::new(&half[..16]));
    let error = post(3, &list).err();
    let given = (1 << 32) + 16;
    let cause = PostCause::InlineTooLong { given, max: 64 };
    same(
        "4 GiB and 16",
        error.map(|e| (e.accepted, e.cause)),
        Some((0, cause)),
    )?;
    post(4, &[])?;
    for (id, len) in [(1, 64), (4, 0)] {
        let sent = a.completion()?;
        sent.ok()?;
        same("sent", sent.wr_id, id)?;
        same("received", b.completion()?.byte_len, len)?;
    }
    same_bytes("message", &back.to_vec(..64)?, &bytes)?;
    same_bytes(
        "after it",
        &back.to_vec(64..16 * STRIDE)?,
        &[POISON; 16 * STRIDE - 64],
    )?;
    a.expect_none("refused requests")?;
    Ok(Verdict::Passed)
}

fn inline_of_the_other_opcodes() -> CaseResult {
    let (a, b) = pair()?;
    let target = b.region(256, 0)?;
    target.write_at(0, &[POISON; 256])?;
    let bytes = pattern(61, 5);
    b.qp.post_recv(&[
        RecvWr::new(1, &[target.slice(100..180)?]),
        RecvWr::new(2, &[]),
    ])?;
    a.qp.post_send(&[
        SendWr::write_inline(10, &bytes, target.remote(3)?).signaled(),
        SendWr::send_inline(11, &bytes)
            .with_imm(0xA1B2_C3D4)
            .signaled(),
        SendWr::write_inline(12, &bytes, target.remote(190)?)
            .with_imm(7)
            .signaled(),
    ])?;
    for (sent, want) in a.completions(3)?.iter().zip([
        (10, WcOpcode::RdmaWrite),
        (11, WcOpcode::Send),
        (12, WcOpcode::RdmaWrite),
    ]) {
        sent.ok()?;
        same("sent", (sent.wr_id, sent.opcode()), (want.0, Some(want.1)))?;
    }
    for (received, want) in b.completions(2)?.iter().zip([
        (1, WcOpcode::Recv, 0xA1B2_C3D4),
        (2, WcOpcode::RecvRdmaWithImm, 7),
    ]) {
        received.ok()?;
        same(
            "received",
            (received.wr_id, received.opcode()),
            (want.0, Some(want.1)),
        )?;
        same("immediate", received.imm(), Some(want.2))?;
        same("bytes", received.byte_len, 61)?;
        same("flags", received.flags - WcFlags::GRH, WcFlags::WITH_IMM)?;
    }
    let mut want = vec![POISON; 256];
    for at in [3, 100, 190] {
        want[at..at + 61].copy_from_slice(&bytes);
    }
    same_bytes("target", &target.to_vec(..)?, &want)?;
    Ok(Verdict::Passed)
}

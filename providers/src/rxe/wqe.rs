//! What a slot of rxe's work queues says: work requests in, 8-byte words out. Pure functions over a
//! slot; which slot, and when the kernel may look, is not known here.
//!
//! Ground truth: `struct rxe_send_wqe`, `struct rxe_recv_wqe` in `rdma/rdma_user_rxe.h`; what must
//! be zero, from the kernel's `rxe_req.c` and `rxe_comp.c`: it keeps its progress in the slot
//! (`state`, `mask`, the packet numbers, `has_rd_atomic`, the cursor in `dma`) and begins with what
//! it finds there. `ssn` it never reads.
//!
//! ```text
//! send   0 wr_id      8 0, opcode     16 flags, imm   24 the operation's own …      144 status, state
//!      152 iova     160 mask, psn    168 psn, length 176 ssn, rd  184 length, resid
//!      192 cur, num_sge              200 offset, 0   208 elements of 16 bytes, or inline bytes
//! recv   0 wr_id      8 0             16 length, resid             24 cur, num_sge
//!       32 offset, 0                  40 elements of 16 bytes
//! ```
//!
//! Must never copy a byte before the sum of all lengths has been checked in 64 bits.

use std::io::IoSlice;
use std::mem::offset_of;

use uverbs_abi::layout::rxe::{
    IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD, IB_UVERBS_WR_RDMA_READ,
    IB_UVERBS_WR_RDMA_WRITE, IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, IB_UVERBS_WR_SEND,
    IB_UVERBS_WR_SEND_WITH_IMM, rxe_recv_wqe, rxe_send_wqe, rxe_sge,
};

use crate::error::PostCause;
use crate::sge::Sge;
use crate::shared::{Slot, Tail};
use crate::types::Rkey;
use crate::wr::{Payload, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr};

/// Bytes of a send slot before the elements or the inline data.
pub const SEND_HEAD: usize = size_of::<rxe_send_wqe>();
/// Bytes of a receive slot before the elements.
pub const RECV_HEAD: usize = size_of::<rxe_recv_wqe>();
/// Bytes of one element.
pub const SGE_LEN: usize = size_of::<rxe_sge>();

/// The kernel counts what is left of a message in a signed 32-bit number (`copy_data` in
/// `rxe_mr.c`), so that the 2³¹ bytes of the specification would be none at all.
pub const MAX_LENGTH: u32 = (1 << 31) - 1;

/// `IB_SEND_INLINE`. Not among [`SendFlags`]: whether data is inline follows from its type.
pub(super) const INLINE: u32 = 8;

/// What one send request may carry, as granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendLimits {
    /// Scatter/gather elements.
    pub max_sge: u32,
    /// Bytes of inline data.
    pub max_inline: u32,
}

impl SendLimits {
    /// What the length of a single element must be below.
    #[inline]
    pub(super) const fn one(&self) -> u32 {
        below(self.max_sge)
    }
}

/// What the length of a single element must be below: nothing is, if there may be none.
#[inline]
pub(super) const fn below(max_sge: u32) -> u32 {
    if max_sge == 0 { 0 } else { MAX_LENGTH + 1 }
}

/// Two 32-bit fields that follow one another, as one word.
#[inline]
const fn pair(first: u32, second: u32) -> u64 {
    if cfg!(target_endian = "little") {
        first as u64 | (second as u64) << 32
    } else {
        (first as u64) << 32 | second as u64
    }
}

/// Fills a slot with a send request. On an error the slot may be half filled; it is not the
/// kernel's before it is published, and is filled anew next time.
///
/// # Errors
/// What is wrong with the request.
#[inline]
pub fn encode_send(
    wr: &SendWr<'_>,
    limits: &SendLimits,
    mut slot: Slot<'_, SEND_HEAD>,
) -> Result<(), PostCause> {
    // What most requests are is done where it is posted; all else takes a call.
    if encode_send_one(wr, limits.one(), slot.reborrow()) {
        Ok(())
    } else {
        encode_rest(wr, limits, slot)
    }
}

/// [`encode_send`] of what [`encode_send_one`] leaves.
#[inline(never)]
fn encode_rest(
    wr: &SendWr<'_>,
    limits: &SendLimits,
    mut slot: Slot<'_, SEND_HEAD>,
) -> Result<(), PostCause> {
    if encode_inline(wr, limits, slot.reborrow()) || encode_fetch(wr, limits.one(), slot.reborrow())
    {
        Ok(())
    } else {
        encode_any(wr, limits, slot)
    }
}

/// Fills a slot with a SEND or WRITE of one element, if that is what the request is, and sound: with a
/// length below what [`below`] gave.
#[inline]
pub(super) fn encode_send_one(wr: &SendWr<'_>, below: u32, mut slot: Slot<'_, SEND_HEAD>) -> bool {
    let sge = match wr.op {
        SendOp::Write {
            data: Payload::Sges([sge]),
            remote,
        } if sge.len() < below => {
            one_sided(IB_UVERBS_WR_RDMA_WRITE, remote, &mut slot);
            sge
        }
        SendOp::Send {
            data: Payload::Sges([sge]),
        } if sge.len() < below => {
            one_sided(IB_UVERBS_WR_SEND, NOWHERE, &mut slot);
            sge
        }
        _ => return false,
    };
    slot.put_pair(sge.words());
    common(wr, 0, 0, (sge.len(), 1), slot);
    true
}

/// Fills a slot with a SEND or WRITE of inline bytes, if that is what the request is, and sound.
#[inline]
pub(super) fn encode_inline(
    wr: &SendWr<'_>,
    limits: &SendLimits,
    mut slot: Slot<'_, SEND_HEAD>,
) -> bool {
    let bytes = match wr.op {
        SendOp::Write {
            data: Payload::Inline(bytes),
            remote,
        } => {
            one_sided(IB_UVERBS_WR_RDMA_WRITE, remote, &mut slot);
            bytes
        }
        SendOp::Send {
            data: Payload::Inline(bytes),
        } => {
            one_sided(IB_UVERBS_WR_SEND, NOWHERE, &mut slot);
            bytes
        }
        _ => return false,
    };
    let length = bytes.len();
    if length > limits.max_inline as usize || !slot.put_bytes(bytes) {
        return false;
    }
    #[expect(clippy::cast_possible_truncation, reason = "no more than a u32 allows")]
    common(wr, INLINE, 0, (length as u32, 0), slot);
    true
}

/// Fills a slot with a READ or an atomic operation of one element, if that is what the request is, and sound: as
/// in [`encode_send_one`].
#[inline]
pub(super) fn encode_fetch(wr: &SendWr<'_>, below: u32, mut slot: Slot<'_, SEND_HEAD>) -> bool {
    let sge = match wr.op {
        SendOp::Read {
            into: [sge],
            remote,
        } if sge.len() < below => {
            one_sided(IB_UVERBS_WR_RDMA_READ, remote, &mut slot);
            *sge
        }
        SendOp::FetchAdd { into, remote, add } if into.len() == 8 && below != 0 => {
            let opcode = IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD;
            atomic(opcode, remote, [add, 0], &mut slot);
            into
        }
        SendOp::CompareSwap {
            into,
            remote,
            compare,
            swap,
        } if into.len() == 8 && below != 0 => {
            let opcode = IB_UVERBS_WR_ATOMIC_CMP_AND_SWP;
            atomic(opcode, remote, [compare, swap], &mut slot);
            into
        }
        _ => return false,
    };
    slot.put_pair(sge.words());
    common(wr, 0, 0, (sge.len(), 1), slot);
    true
}

/// A request that names nothing at the peer: no address of an earlier one stays in its place.
const NOWHERE: RemoteAddr = RemoteAddr {
    addr: 0,
    rkey: Rkey(0),
};

/// [`encode_send`] of any request.
#[inline(never)]
fn encode_any(
    wr: &SendWr<'_>,
    limits: &SendLimits,
    mut slot: Slot<'_, SEND_HEAD>,
) -> Result<(), PostCause> {
    let (opcode, remote, imm, data) = match wr.op {
        SendOp::Send { data } => (IB_UVERBS_WR_SEND, NOWHERE, 0, data),
        SendOp::SendImm { data, imm } => (IB_UVERBS_WR_SEND_WITH_IMM, NOWHERE, imm, data),
        SendOp::Write { data, remote } => (IB_UVERBS_WR_RDMA_WRITE, remote, 0, data),
        SendOp::WriteImm { data, remote, imm } => {
            (IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, remote, imm, data)
        }
        SendOp::Read { into, remote } => (IB_UVERBS_WR_RDMA_READ, remote, 0, Payload::Sges(into)),
        SendOp::CompareSwap { into, .. } | SendOp::FetchAdd { into, .. } => {
            return Err(not_atomic(into, limits));
        }
    };
    let (data, inline) = match data {
        Payload::Sges(sges) => (elements(sges, limits.max_sge, slot.reborrow())?, 0),
        Payload::Inline(bytes) => match u32::try_from(bytes.len()) {
            Ok(length) if length <= limits.max_inline && slot.put_bytes(bytes) => {
                ((length, 0), INLINE)
            }
            _ => return Err(inline_too_long(bytes.len() as u64, limits)),
        },
        Payload::InlineList(list) => ((gather(list, limits, slot.reborrow())?, 0), INLINE),
    };
    one_sided(opcode, remote, &mut slot);
    common(wr, inline, imm, data, slot);
    Ok(())
}

/// Fills a slot with a receive request.
///
/// # Errors
/// What is wrong with the request.
#[inline]
pub fn encode_recv(
    wr: &RecvWr<'_>,
    max_sge: u32,
    mut slot: Slot<'_, RECV_HEAD>,
) -> Result<(), PostCause> {
    if encode_recv_one(wr, below(max_sge), slot.reborrow()) {
        Ok(())
    } else {
        encode_recv_any(wr, max_sge, slot)
    }
}

/// [`encode_recv`] of any request.
#[inline(never)]
fn encode_recv_any(
    wr: &RecvWr<'_>,
    max_sge: u32,
    mut slot: Slot<'_, RECV_HEAD>,
) -> Result<(), PostCause> {
    let (length, num_sge) = elements(wr.sges, max_sge, slot.reborrow())?;
    common_recv(wr, length, num_sge, slot);
    Ok(())
}

/// Fills a slot with a receive of one element, if that is what the request is, and sound: as in
/// [`encode_send_one`].
#[inline]
pub(super) fn encode_recv_one(wr: &RecvWr<'_>, below: u32, mut slot: Slot<'_, RECV_HEAD>) -> bool {
    let [sge] = wr.sges else {
        return false;
    };
    if sge.len() >= below {
        return false;
    }
    slot.put_pair(sge.words());
    common_recv(wr, sge.len(), 1, slot);
    true
}

/// What is filled in alike for all receives.
#[inline]
fn common_recv(wr: &RecvWr<'_>, length: u32, num_sge: u32, mut slot: Slot<'_, RECV_HEAD>) {
    slot.put::<0>(wr.wr_id);
    slot.put::<8>(0);
    slot.put::<16>(pair(length, length));
    slot.put_two::<24>([pair(0, num_sge), 0]);
}

/// What a request does, and with what memory of the peer.
#[inline]
fn one_sided(opcode: u32, remote: RemoteAddr, slot: &mut Slot<'_, SEND_HEAD>) {
    slot.put::<8>(pair(0, opcode));
    slot.put::<24>(remote.addr);
    slot.put::<32>(pair(remote.rkey.0, 0));
    slot.put::<{ offset_of!(rxe_send_wqe, iova) }>(remote.addr);
}

/// What is filled in alike for all send requests.
#[inline]
fn common(
    wr: &SendWr<'_>,
    inline: u32,
    imm: u32,
    (length, num_sge): (u32, u32),
    mut slot: Slot<'_, SEND_HEAD>,
) {
    const DMA: usize = offset_of!(rxe_send_wqe, dma);
    // Only flags that the type has: a raw INLINE bit would turn elements into payload.
    let flags = wr.flags.bits() & SendFlags::all().bits() | inline;
    slot.put::<0>(wr.wr_id);
    slot.put::<16>(pair(flags, imm.to_be()));
    slot.put::<{ offset_of!(rxe_send_wqe, status) }>(0);
    // The words of `mask` and of `last_psn`.
    slot.put_two::<{ offset_of!(rxe_send_wqe, mask) }>([0, 0]);
    slot.put::<{ offset_of!(rxe_send_wqe, ssn) }>(0);
    slot.put::<DMA>(pair(length, length));
    slot.put_two::<{ DMA + 8 }>([pair(0, num_sge), 0]);
}

/// What an operation on 8 bytes does, and with which of the peer's: added or compared, and put there.
#[inline]
fn atomic(opcode: u32, remote: RemoteAddr, values: [u64; 2], slot: &mut Slot<'_, SEND_HEAD>) {
    slot.put::<8>(pair(0, opcode));
    slot.put::<{ offset_of!(rxe_send_wqe, iova) }>(remote.addr);
    slot.put::<24>(remote.addr);
    slot.put_two::<32>(values);
    slot.put::<48>(pair(remote.rkey.0, 0));
}

/// What is wrong with an atomic operation that [`encode_fetch`] did not take.
#[cold]
fn not_atomic(into: Sge, limits: &SendLimits) -> PostCause {
    match into.len() {
        8 => PostCause::TooManySge {
            given: 1,
            max: limits.max_sge,
        },
        given => PostCause::AtomicLength { given },
    }
}

/// Appends elements; gives the sum of their lengths, and their number.
#[inline(never)]
fn elements<const HEAD: usize>(
    sges: &[Sge],
    max: u32,
    slot: Slot<'_, HEAD>,
) -> Result<(u32, u32), PostCause> {
    let num_sge = match u32::try_from(sges.len()) {
        Ok(given) if given <= max => given,
        _ => {
            return Err(PostCause::TooManySge {
                given: sges.len(),
                max,
            });
        }
    };
    let mut tail = slot.tail();
    // At most 2^32 terms of 32 bits: the sum fits 64.
    let mut total = 0u64;
    for sge in sges {
        total = total.wrapping_add(u64::from(sge.len()));
        for word in *sge.words() {
            tail.push(word);
        }
    }
    match u32::try_from(total) {
        Ok(length) if length <= MAX_LENGTH => Ok((length, num_sge)),
        _ => Err(PostCause::MessageTooLong {
            given: total,
            max: MAX_LENGTH,
        }),
    }
}

#[cold]
const fn inline_too_long(given: u64, limits: &SendLimits) -> PostCause {
    PostCause::InlineTooLong {
        given,
        max: limits.max_inline,
    }
}

/// Appends bytes from several places; gives their number.
fn gather(
    list: &[IoSlice<'_>],
    limits: &SendLimits,
    slot: Slot<'_, SEND_HEAD>,
) -> Result<u32, PostCause> {
    let total = list
        .iter()
        .fold(0u64, |sum, part| sum.saturating_add(part.len() as u64));
    let length = match u32::try_from(total) {
        Ok(length) if length <= limits.max_inline => length,
        _ => return Err(inline_too_long(total, limits)),
    };
    let mut packer = Packer {
        tail: slot.tail(),
        pending: 0,
        bits: 0,
    };
    for part in list {
        packer.push(part);
    }
    packer.finish();
    Ok(length)
}

/// Puts bytes one after another into words, wherever one slice ends and the next begins.
struct Packer<'q> {
    tail: Tail<'q, SEND_HEAD>,
    /// Bytes that do not fill a word yet, the first one lowest.
    pending: u64,
    /// How many bits of `pending` count: 0, 8, … 56.
    bits: u32,
}

impl Packer<'_> {
    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            self.add(u64::from_le_bytes(*chunk), 64);
        }
        for byte in rest {
            self.add(u64::from(*byte), 8);
        }
    }

    #[inline]
    fn add(&mut self, word: u64, bits: u32) {
        self.pending |= word << self.bits;
        let filled = self.bits.wrapping_add(bits);
        if filled < 64 {
            self.bits = filled;
            return;
        }
        self.tail.push(self.pending.to_le());
        // What of `word` went into the full one; a shift by all 64 bits leaves nothing.
        self.pending = word.checked_shr(64u32.wrapping_sub(self.bits)).unwrap_or(0);
        self.bits = filled.wrapping_sub(64);
    }

    #[inline]
    fn finish(mut self) {
        if self.bits != 0 {
            self.tail.push(self.pending.to_le());
        }
    }
}

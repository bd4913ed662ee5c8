//! Reading requests back from a ring, for errors: which memory a request that failed had named. The
//! kernel leaves the elements of a slot as they were, and a slot is filled anew only by a later post.
//!
//! Ground truth: as in `wqe`; `copy_data` in the kernel's `rxe_mr.c`, which keeps its place in the slot
//! and changes no element.
//!
//! Nothing here is believed: a slot may be half filled, or stale.

use std::mem::offset_of;

use uverbs_abi::layout::rxe::{
    IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD, IB_UVERBS_WR_RDMA_READ,
    IB_UVERBS_WR_RDMA_WRITE, IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, rxe_dma_info, rxe_recv_wqe,
    rxe_send_wqe, rxe_send_wr, rxe_wr_atomic, rxe_wr_rdma,
};

use super::wqe::{INLINE, RECV_HEAD, SEND_HEAD};
use crate::contract::{Element, Posted, Remote};
use crate::shared::Filled;
use crate::types::{Lkey, Rkey};

/// A 32-bit field of a slot.
fn field<const HEAD: usize>(slot: &Filled<'_, HEAD>, at: usize) -> Option<u32> {
    let bytes = slot.word(at & !7)?.to_ne_bytes();
    let half = if at & 4 == 0 {
        &bytes[..4]
    } else {
        &bytes[4..]
    };
    half.try_into().ok().map(u32::from_ne_bytes)
}

/// The elements, as many as are said to be there and can be.
fn elements<const HEAD: usize>(slot: &Filled<'_, HEAD>, number: u32) -> Vec<Element> {
    let element = |index: usize| {
        let at = HEAD + index * 16;
        Some(Element {
            addr: slot.word(at)?,
            length: field(slot, at + 8)?,
            lkey: Lkey(field(slot, at + 12)?),
        })
    };
    (0..number as usize).map_while(element).collect()
}

/// What the receive in a slot names, if it is the one that is looked for.
pub(super) fn receive(slot: &Filled<'_, RECV_HEAD>, wr_id: u64) -> Option<Posted> {
    if slot.word(offset_of!(rxe_recv_wqe, wr_id))? != wr_id {
        return None;
    }
    let at = offset_of!(rxe_recv_wqe, dma) + offset_of!(rxe_dma_info, num_sge);
    Some(Posted {
        is_receive: true,
        writes: true,
        elements: elements(slot, field(slot, at)?),
        remote: None,
    })
}

/// What the send request in a slot names, if it is the one that is looked for.
pub(super) fn send(slot: &Filled<'_, SEND_HEAD>, wr_id: u64) -> Option<Posted> {
    let wr = offset_of!(rxe_send_wqe, wr);
    if slot.word(wr + offset_of!(rxe_send_wr, wr_id))? != wr_id {
        return None;
    }
    let opcode = field(slot, wr + offset_of!(rxe_send_wr, opcode))?;
    let flags = field(slot, wr + offset_of!(rxe_send_wr, send_flags))?;
    let at = offset_of!(rxe_send_wqe, dma) + offset_of!(rxe_dma_info, num_sge);
    let number = if flags & INLINE == 0 {
        field(slot, at)?
    } else {
        0
    };
    let is_atomic = [
        IB_UVERBS_WR_ATOMIC_CMP_AND_SWP,
        IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD,
    ]
    .contains(&opcode);
    let is_plain = [
        IB_UVERBS_WR_RDMA_READ,
        IB_UVERBS_WR_RDMA_WRITE,
        IB_UVERBS_WR_RDMA_WRITE_WITH_IMM,
    ]
    .contains(&opcode);
    // The union's part is laid out by the operation.
    let of = wr + offset_of!(rxe_send_wr, wr);
    let place = |addr: usize, rkey: usize| {
        Some(Remote {
            addr: slot.word(of + addr)?,
            rkey: Rkey(field(slot, of + rkey)?),
            is_atomic,
        })
    };
    let remote = if is_atomic {
        place(
            offset_of!(rxe_wr_atomic, remote_addr),
            offset_of!(rxe_wr_atomic, rkey),
        )
    } else if is_plain {
        place(
            offset_of!(rxe_wr_rdma, remote_addr),
            offset_of!(rxe_wr_rdma, rkey),
        )
    } else {
        None
    };
    Some(Posted {
        is_receive: false,
        writes: is_atomic || opcode == IB_UVERBS_WR_RDMA_READ,
        elements: elements(slot, number),
        remote,
    })
}

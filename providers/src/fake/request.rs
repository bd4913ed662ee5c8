//! What the slots of the work queues ask for, read as the kernel reads them.
//!
//! Ground truth: `struct rxe_send_wqe`, `struct rxe_recv_wqe` in `rdma/rdma_user_rxe.h`. Any bytes
//! at all make a request; one that makes no sense fails when it is carried out.

use uverbs_abi::layout::rxe::{rxe_recv_wqe, rxe_send_wqe, rxe_sge, rxe_wr_atomic, rxe_wr_rdma};
use uverbs_abi::layout::verbs::*;
use zerocopy::{FromBytes, IntoBytes};

/// A send request.
#[derive(Debug)]
pub(super) struct Request {
    wqe: rxe_send_wqe,
    /// Elements, or inline bytes.
    tail: Vec<u8>,
}

/// The fixed part of a slot, and what follows it. Slots are never shorter than their fixed part.
fn split<T: FromBytes>(slot: &[u64]) -> (T, Vec<u8>) {
    match T::read_from_prefix(slot.as_bytes()) {
        Ok((wqe, tail)) => (wqe, tail.to_vec()),
        Err(_) => (T::new_zeroed(), Vec::new()),
    }
}

fn elements(tail: &[u8], count: u32) -> Option<Vec<rxe_sge>> {
    let count = usize::try_from(count).ok()?;
    let bytes = tail.get(..count.checked_mul(size_of::<rxe_sge>())?)?;
    let elements = bytes.chunks_exact(size_of::<rxe_sge>());
    elements
        .map(|element| rxe_sge::read_from_bytes(element).ok())
        .collect()
}

impl Request {
    pub(super) fn parse(slot: &[u64]) -> Self {
        let (wqe, tail) = split(slot);
        Self { wqe, tail }
    }

    pub(super) const fn wr_id(&self) -> u64 {
        self.wqe.wr.wr_id
    }

    pub(super) const fn opcode(&self) -> u32 {
        self.wqe.wr.opcode
    }

    pub(super) const fn length(&self) -> u32 {
        self.wqe.dma.length
    }

    pub(super) const fn immediate(&self) -> [u8; 4] {
        self.wqe.wr.ex
    }

    pub(super) const fn is_signaled(&self) -> bool {
        self.wqe.wr.send_flags & IB_SEND_SIGNALED != 0
    }

    /// Whether the peer's completion is to count as solicited.
    pub(super) const fn is_solicited(&self) -> bool {
        self.wqe.wr.send_flags & IB_SEND_SOLICITED != 0
    }

    /// Bytes that travel in the request itself.
    pub(super) fn inline(&self) -> Option<&[u8]> {
        if self.wqe.wr.send_flags & IB_SEND_INLINE == 0 {
            return None;
        }
        let length = usize::try_from(self.length()).ok()?;
        Some(self.tail.get(..length).unwrap_or(&self.tail))
    }

    /// The elements; `None` if there are more than the slot holds.
    pub(super) fn elements(&self) -> Option<Vec<rxe_sge>> {
        elements(&self.tail, self.wqe.dma.num_sge)
    }

    pub(super) fn rdma(&self) -> rxe_wr_rdma {
        rxe_wr_rdma::from_union(self.wqe.wr.wr)
    }

    pub(super) fn atomic(&self) -> rxe_wr_atomic {
        rxe_wr_atomic::from_union(self.wqe.wr.wr)
    }

    /// `IB_UVERBS_WC_…` of a success.
    pub(super) const fn completion_opcode(&self) -> u32 {
        match self.opcode() {
            IB_UVERBS_WR_RDMA_WRITE | IB_UVERBS_WR_RDMA_WRITE_WITH_IMM => IB_UVERBS_WC_RDMA_WRITE,
            IB_UVERBS_WR_RDMA_READ => IB_UVERBS_WC_RDMA_READ,
            IB_UVERBS_WR_ATOMIC_CMP_AND_SWP => IB_UVERBS_WC_COMP_SWAP,
            IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD => IB_UVERBS_WC_FETCH_ADD,
            _ => IB_UVERBS_WC_SEND,
        }
    }

    /// `IB_WC_…` flags of a success.
    pub(super) const fn completion_flags(&self) -> u32 {
        match self.opcode() {
            IB_UVERBS_WR_SEND_WITH_IMM | IB_UVERBS_WR_RDMA_WRITE_WITH_IMM => IB_WC_WITH_IMM,
            _ => 0,
        }
    }
}

/// A receive request.
#[derive(Debug)]
pub(super) struct Receive {
    wqe: rxe_recv_wqe,
    tail: Vec<u8>,
}

impl Receive {
    pub(super) fn parse(slot: &[u64]) -> Self {
        let (wqe, tail) = split(slot);
        Self { wqe, tail }
    }

    pub(super) const fn wr_id(&self) -> u64 {
        self.wqe.wr_id
    }

    /// Bytes that it takes.
    pub(super) const fn length(&self) -> u32 {
        self.wqe.dma.length
    }

    pub(super) fn elements(&self) -> Option<Vec<rxe_sge>> {
        elements(&self.tail, self.wqe.dma.num_sge)
    }
}

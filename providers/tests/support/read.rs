//! Reads the slots of work queues by the offsets in `rdma/rdma_user_rxe.h`, and in no other way.

use uverbs_providers::sge::Sge;

use super::sge;

/// What a send slot says (`struct rxe_send_wqe`).
#[derive(Clone, Debug, PartialEq)]
pub struct Send {
    pub wr_id: u64,
    pub opcode: u32,
    pub flags: u32,
    pub ex: [u8; 4],
    pub union: Vec<u8>,
    pub iova: u64,
    /// status, state, mask, first_psn, last_psn, ack_length, ssn, has_rd_atomic, cur_sge,
    /// sge_offset and the two reserved words: all to be zero.
    pub progress: Vec<u32>,
    pub length: u32,
    pub resid: u32,
    pub num_sge: u32,
    pub sges: Vec<Sge>,
    /// The first `length` bytes where elements would be, if INLINE is set.
    pub inline: Vec<u8>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn sges(bytes: &[u8], at: usize, count: u32) -> Vec<Sge> {
    (0..count as usize)
        .map(|i| at + 16 * i)
        .map(|at| {
            sge(
                u64_at(bytes, at),
                u32_at(bytes, at + 8),
                u32_at(bytes, at + 12),
            )
        })
        .collect()
}

pub fn send(slot: &[u8]) -> Send {
    let (length, num_sge) = (u32_at(slot, 184), u32_at(slot, 196));
    let flags = u32_at(slot, 16);
    let inline = flags & 8 != 0;
    Send {
        wr_id: u64_at(slot, 0),
        opcode: u32_at(slot, 12),
        flags,
        ex: slot[20..24].try_into().unwrap(),
        union: slot[24..144].to_vec(),
        iova: u64_at(slot, 152),
        progress: [8, 144, 148, 160, 164, 168, 172, 176, 180, 192, 200, 204]
            .map(|at| u32_at(slot, at))
            .to_vec(),
        length,
        resid: u32_at(slot, 188),
        num_sge,
        sges: sges(slot, 208, num_sge),
        inline: if inline {
            slot[208..208 + length as usize].to_vec()
        } else {
            Vec::new()
        },
    }
}

impl Send {
    pub fn signaled(&self) -> bool {
        self.flags & 2 != 0
    }

    /// `wr.rdma`: remote_addr, rkey.
    pub fn rdma(&self) -> (u64, u32) {
        (u64_at(&self.union, 0), u32_at(&self.union, 8))
    }

    /// `wr.atomic`: remote_addr, compare_add, swap, rkey.
    pub fn atomic(&self) -> (u64, u64, u64, u32) {
        let union = &self.union;
        (
            u64_at(union, 0),
            u64_at(union, 8),
            u64_at(union, 16),
            u32_at(union, 24),
        )
    }
}

/// What a receive slot says (`struct rxe_recv_wqe`).
#[derive(Clone, Debug, PartialEq)]
pub struct Recv {
    pub wr_id: u64,
    /// reserved, padding, cur_sge, sge_offset, reserved: all to be zero.
    pub progress: Vec<u32>,
    pub length: u32,
    pub resid: u32,
    pub sges: Vec<Sge>,
}

pub fn recv(slot: &[u8]) -> Recv {
    Recv {
        wr_id: u64_at(slot, 0),
        progress: [8, 12, 24, 32, 36].map(|at| u32_at(slot, at)).to_vec(),
        length: u32_at(slot, 16),
        resid: u32_at(slot, 20),
        sges: sges(slot, 40, u32_at(slot, 28)),
    }
}

//! The queues of `rdma_rxe` (RoCE in software) and the driver's part of its commands.
//!
//! Ground truth: `rdma/rdma_user_rxe.h`. Driver ABI version 2; the same bytes on 6.1, 6.12 and 7.3
//! (flush and atomic write are newer members of unions that did not grow). How the indices
//! move and how a slot is filled is the provider's business, not known here.
//!
//! ```text
//! queue:  0 log2_elem_size  4 index_mask … 128 producer_index … 256 consumer_index … 384 slots
//! send:   0 wr (144)  144 status  148 state  152 iova  160 …  184 dma (24)  208 sge[] or inline
//! recv:   0 wr_id  8 …  16 dma (24)  40 sge[]
//! ```

mod wqe;

pub use wqe::*;

/// ABI version that `rdma_rxe` gives in sysfs.
pub const RXE_UVERBS_ABI_VERSION: u32 = 2;

pub use super::verbs::{
    IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD, IB_UVERBS_WR_ATOMIC_WRITE,
    IB_UVERBS_WR_BIND_MW, IB_UVERBS_WR_FLUSH, IB_UVERBS_WR_LOCAL_INV, IB_UVERBS_WR_RDMA_READ,
    IB_UVERBS_WR_RDMA_READ_WITH_INV, IB_UVERBS_WR_RDMA_WRITE, IB_UVERBS_WR_RDMA_WRITE_WITH_IMM,
    IB_UVERBS_WR_SEND, IB_UVERBS_WR_SEND_WITH_IMM, IB_UVERBS_WR_SEND_WITH_INV,
};

kernel_struct! {
    /// Where the kernel offers a queue for mapping: an output of the driver.
    pub struct mminfo, size 16, align 8 {
        /// Offset to give to `mmap`, exactly.
        [0] pub offset: u64,
        /// Bytes of the queue, header included.
        [8] pub size: u32,
        /// Zero.
        [12] pub pad: u32,
    }
}

kernel_struct! {
    /// Driver's response to CREATE_AH.
    pub struct rxe_create_ah_resp, size 8, align 4 {
        /// Number to put in [`rxe_wr_ud::ah_num`].
        [0] pub ah_num: u32,
        /// Zero.
        [4] pub reserved: u32,
    }
}

kernel_struct! {
    /// Driver's response to CREATE_CQ.
    pub struct rxe_create_cq_resp, size 16, align 8 {
        /// The completion queue.
        [0] pub mi: mminfo,
    }
}

kernel_struct! {
    /// Driver's response to RESIZE_CQ.
    pub struct rxe_resize_cq_resp, size 16, align 8 {
        /// The new completion queue.
        [0] pub mi: mminfo,
    }
}

kernel_struct! {
    /// Driver's response to CREATE_QP.
    pub struct rxe_create_qp_resp, size 32, align 8 {
        /// The receive queue; left as it was for a QP with a shared receive queue.
        [0] pub rq_mi: mminfo,
        /// The send queue.
        [16] pub sq_mi: mminfo,
    }
}

kernel_struct! {
    /// Driver's response to CREATE_SRQ.
    pub struct rxe_create_srq_resp, size 24, align 8 {
        /// The shared receive queue.
        [0] pub mi: mminfo,
        /// Number of the shared receive queue.
        [16] pub srq_num: u32,
        /// Zero.
        [20] pub reserved: u32,
    }
}

kernel_struct! {
    /// Driver's part of MODIFY_SRQ: always required, even where only the limit changes.
    pub struct rxe_modify_srq_cmd, size 8, align 8 {
        /// Address of a [`mminfo`], written only when the queue is resized.
        [0] pub mmap_info_addr: u64,
    }
}

kernel_struct! {
    /// Header of a mapped queue; the slots follow it.
    pub struct rxe_queue_buf, size 384, align 4 {
        /// Logarithm of the bytes of a slot. Constant.
        [0] pub log2_elem_size: u32,
        /// Number of slots minus one. Constant.
        [4] pub index_mask: u32,
        /// Keeps the producer index on a cache line of its own.
        [8] pub pad_1: [u32; 30],
        /// Next slot to fill, masked. Written by the user, for a CQ by the kernel.
        [128] pub producer_index: u32,
        /// Keeps the consumer index on a cache line of its own.
        [132] pub pad_2: [u32; 31],
        /// Next slot to take, masked. Written by the kernel, for a CQ by the user.
        [256] pub consumer_index: u32,
        /// Keeps the slots on cache lines of their own.
        [260] pub pad_3: [u32; 31],
    }
}

/// Offsets in a mapped queue, for those who reach it word by word.
pub mod queue_buf {
    use core::mem::{offset_of, size_of};

    use super::rxe_queue_buf;

    /// Offset of `log2_elem_size`.
    pub const LOG2_ELEM_SIZE: usize = 0;
    /// Offset of `index_mask`.
    pub const INDEX_MASK: usize = 4;
    /// Offset of `producer_index`.
    pub const PRODUCER_INDEX: usize = 128;
    /// Offset of `consumer_index`.
    pub const CONSUMER_INDEX: usize = 256;
    /// Offset of the first slot.
    pub const DATA: usize = 384;

    const _: () = {
        assert!(LOG2_ELEM_SIZE == offset_of!(rxe_queue_buf, log2_elem_size));
        assert!(INDEX_MASK == offset_of!(rxe_queue_buf, index_mask));
        assert!(PRODUCER_INDEX == offset_of!(rxe_queue_buf, producer_index));
        assert!(CONSUMER_INDEX == offset_of!(rxe_queue_buf, consumer_index));
        assert!(DATA == size_of::<rxe_queue_buf>());
    };
}

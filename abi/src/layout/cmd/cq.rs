//! Commands on completion channels and completion queues, and the work completion.

kernel_struct! {
    /// Request of CREATE_COMP_CHANNEL.
    pub struct ib_uverbs_create_comp_channel, size 8, align 8 {
        /// Address of the response.
        [0] pub response: u64,
    }
}

kernel_struct! {
    /// Response of CREATE_COMP_CHANNEL.
    pub struct ib_uverbs_create_comp_channel_resp, size 4, align 4 {
        /// The new channel, an open file descriptor.
        [0] pub fd: u32,
    }
}

kernel_struct! {
    /// Request of CREATE_CQ.
    pub struct ib_uverbs_create_cq, size 32, align 8 {
        /// Address of the response.
        [0] pub response: u64,
        /// Given back with events.
        [8] pub user_handle: u64,
        /// Entries asked for.
        [16] pub cqe: u32,
        /// Completion vector.
        [20] pub comp_vector: u32,
        /// Channel's file descriptor, or -1.
        [24] pub comp_channel: i32,
        /// Zero.
        [28] pub reserved: u32,
    }
}

kernel_struct! {
    /// Response of CREATE_CQ.
    pub struct ib_uverbs_create_cq_resp, size 8, align 8 {
        /// The new completion queue.
        [0] pub cq_handle: u32,
        /// Entries got.
        [4] pub cqe: u32,
    }
}

kernel_struct! {
    /// Request of the extended CREATE_CQ.
    pub struct ib_uverbs_ex_create_cq, size 32, align 8 {
        /// Given back with events.
        [0] pub user_handle: u64,
        /// Entries asked for.
        [8] pub cqe: u32,
        /// Completion vector.
        [12] pub comp_vector: u32,
        /// Channel's file descriptor, or -1.
        [16] pub comp_channel: i32,
        /// Zero.
        [20] pub comp_mask: u32,
        /// `IB_UVERBS_CQ_FLAGS_…`.
        [24] pub flags: u32,
        /// Zero.
        [28] pub reserved: u32,
    }
}

kernel_struct! {
    /// Response of the extended CREATE_CQ.
    pub struct ib_uverbs_ex_create_cq_resp, size 16, align 8 {
        /// As of CREATE_CQ.
        [0] pub base: ib_uverbs_create_cq_resp,
        /// Zero.
        [8] pub comp_mask: u32,
        /// Bytes that the kernel filled.
        [12] pub response_length: u32,
    }
}

kernel_struct! {
    /// Request of RESIZE_CQ.
    pub struct ib_uverbs_resize_cq, size 16, align 8 {
        /// Address of the response.
        [0] pub response: u64,
        /// The completion queue.
        [8] pub cq_handle: u32,
        /// Entries asked for.
        [12] pub cqe: u32,
    }
}

kernel_struct! {
    /// Response of RESIZE_CQ.
    pub struct ib_uverbs_resize_cq_resp, size 8, align 8 {
        /// Entries got.
        [0] pub cqe: u32,
        /// Zero.
        [4] pub reserved: u32,
    }
}

kernel_struct! {
    /// Request of REQ_NOTIFY_CQ; there is no response.
    pub struct ib_uverbs_req_notify_cq, size 8, align 4 {
        /// The completion queue.
        [0] pub cq_handle: u32,
        /// Not zero: only a solicited completion or an error raises the event.
        [4] pub solicited_only: u32,
    }
}

kernel_struct! {
    /// Request of DESTROY_CQ.
    pub struct ib_uverbs_destroy_cq, size 16, align 8 {
        /// Address of the response.
        [0] pub response: u64,
        /// The completion queue.
        [8] pub cq_handle: u32,
        /// Zero.
        [12] pub reserved: u32,
    }
}

kernel_struct! {
    /// Response of DESTROY_CQ, and of the ioctl method.
    pub struct ib_uverbs_destroy_cq_resp, size 8, align 4 {
        /// Completion events that were read for this queue.
        [0] pub comp_events_reported: u32,
        /// Asynchronous events that were read for this queue.
        [4] pub async_events_reported: u32,
    }
}

kernel_struct! {
    /// A work completion: what POLL_CQ returns and what fills an rxe completion queue's slot.
    pub struct ib_uverbs_wc, size 48, align 8 {
        /// User's id of the work request.
        [0] pub wr_id: u64,
        /// `IB_WC_…` status.
        [8] pub status: u32,
        /// `IB_UVERBS_WC_…` or `IB_WC_RECV…`; meaningless unless `status` is success.
        [12] pub opcode: u32,
        /// Vendor's detail of an error.
        [16] pub vendor_err: u32,
        /// Bytes moved.
        [20] pub byte_len: u32,
        /// Union: immediate data in network order, or the invalidated key in host order.
        [24] pub ex: [u8; 4],
        /// Number of the local queue pair.
        [28] pub qp_num: u32,
        /// Number of the sending queue pair (datagrams).
        [32] pub src_qp: u32,
        /// `IB_WC_…` flags.
        [36] pub wc_flags: u32,
        /// Index of the partition key.
        [40] pub pkey_index: u16,
        /// Source local id.
        [42] pub slid: u16,
        /// Service level.
        [44] pub sl: u8,
        /// Destination path bits.
        [45] pub dlid_path_bits: u8,
        /// Port.
        [46] pub port_num: u8,
        /// Zero.
        [47] pub reserved: u8,
    }
}

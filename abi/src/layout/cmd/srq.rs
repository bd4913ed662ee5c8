//! Commands on shared receive queues.

kernel_struct! {
    /// Request of CREATE_SRQ.
    pub struct ib_uverbs_create_srq, size 32, align 8 {
        /// Address of the response.
        [0] pub response: u64,
        /// Given back with events.
        [8] pub user_handle: u64,
        /// Protection domain.
        [16] pub pd_handle: u32,
        /// Entries asked for.
        [20] pub max_wr: u32,
        /// Scatter/gather entries of each asked for.
        [24] pub max_sge: u32,
        /// Limit to arm, or zero.
        [28] pub srq_limit: u32,
    }
}

kernel_struct! {
    /// Request of CREATE_XSRQ.
    pub struct ib_uverbs_create_xsrq, size 48, align 8 {
        /// Address of the response.
        [0] pub response: u64,
        /// Given back with events.
        [8] pub user_handle: u64,
        /// `IB_UVERBS_SRQT_…`.
        [16] pub srq_type: u32,
        /// Protection domain.
        [20] pub pd_handle: u32,
        /// Entries asked for.
        [24] pub max_wr: u32,
        /// Scatter/gather entries of each asked for.
        [28] pub max_sge: u32,
        /// Limit to arm, or zero.
        [32] pub srq_limit: u32,
        /// Tags (tag matching).
        [36] pub max_num_tags: u32,
        /// XRC domain (XRC).
        [40] pub xrcd_handle: u32,
        /// Completion queue (XRC, tag matching).
        [44] pub cq_handle: u32,
    }
}

kernel_struct! {
    /// Response of CREATE_SRQ and CREATE_XSRQ.
    pub struct ib_uverbs_create_srq_resp, size 16, align 4 {
        /// The new shared receive queue.
        [0] pub srq_handle: u32,
        /// Entries got.
        [4] pub max_wr: u32,
        /// Scatter/gather entries of each got.
        [8] pub max_sge: u32,
        /// Number of the queue (XRC).
        [12] pub srqn: u32,
    }
}

kernel_struct! {
    /// Request of MODIFY_SRQ; there is no response.
    pub struct ib_uverbs_modify_srq, size 16, align 8 {
        /// The shared receive queue.
        [0] pub srq_handle: u32,
        /// `IB_SRQ_…`: which of the following to change.
        [4] pub attr_mask: u32,
        /// Entries asked for.
        [8] pub max_wr: u32,
        /// Limit to arm.
        [12] pub srq_limit: u32,
    }
}

kernel_struct! {
    /// Request of QUERY_SRQ.
    pub struct ib_uverbs_query_srq, size 16, align 8 {
        /// Address of the response.
        [0] pub response: u64,
        /// The shared receive queue.
        [8] pub srq_handle: u32,
        /// Zero.
        [12] pub reserved: u32,
    }
}

kernel_struct! {
    /// Response of QUERY_SRQ.
    pub struct ib_uverbs_query_srq_resp, size 16, align 4 {
        /// Entries.
        [0] pub max_wr: u32,
        /// Scatter/gather entries of each.
        [4] pub max_sge: u32,
        /// Limit armed, or zero.
        [8] pub srq_limit: u32,
        /// Zero.
        [12] pub reserved: u32,
    }
}

kernel_struct! {
    /// Request of DESTROY_SRQ.
    pub struct ib_uverbs_destroy_srq, size 16, align 8 {
        /// Address of the response.
        [0] pub response: u64,
        /// The shared receive queue.
        [8] pub srq_handle: u32,
        /// Zero.
        [12] pub reserved: u32,
    }
}

kernel_struct! {
    /// Response of DESTROY_SRQ, and of the ioctl method.
    pub struct ib_uverbs_destroy_srq_resp, size 4, align 4 {
        /// Asynchronous events that were read for this queue.
        [0] pub events_reported: u32,
    }
}

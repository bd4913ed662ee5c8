//! Commands on queue pairs, the doorbell among them.

kernel_struct! {
    /// Request of CREATE_QP.
    pub struct ib_uverbs_create_qp, size 56, align 8 {
        /// Address of the response.
        [0] pub response: u64,
        /// Given back with events.
        [8] pub user_handle: u64,
        /// Protection domain.
        [16] pub pd_handle: u32,
        /// Completion queue of the sends.
        [20] pub send_cq_handle: u32,
        /// Completion queue of the receives.
        [24] pub recv_cq_handle: u32,
        /// Shared receive queue, where `is_srq` is set.
        [28] pub srq_handle: u32,
        /// Sends asked for.
        [32] pub max_send_wr: u32,
        /// Receives asked for.
        [36] pub max_recv_wr: u32,
        /// Scatter/gather entries of a send asked for.
        [40] pub max_send_sge: u32,
        /// Scatter/gather entries of a receive asked for.
        [44] pub max_recv_sge: u32,
        /// Inline bytes asked for.
        [48] pub max_inline_data: u32,
        /// Not zero: every send completes.
        [52] pub sq_sig_all: u8,
        /// `IB_UVERBS_QPT_…`.
        [53] pub qp_type: u8,
        /// Whether `srq_handle` counts.
        [54] pub is_srq: u8,
        /// Zero.
        [55] pub reserved: u8,
    }
}

kernel_struct! {
    /// Response of CREATE_QP.
    pub struct ib_uverbs_create_qp_resp, size 32, align 4 {
        /// The new queue pair.
        [0] pub qp_handle: u32,
        /// Its number.
        [4] pub qpn: u32,
        /// Sends got.
        [8] pub max_send_wr: u32,
        /// Receives got.
        [12] pub max_recv_wr: u32,
        /// Scatter/gather entries of a send got.
        [16] pub max_send_sge: u32,
        /// Scatter/gather entries of a receive got.
        [20] pub max_recv_sge: u32,
        /// Inline bytes got.
        [24] pub max_inline_data: u32,
        /// Zero.
        [28] pub reserved: u32,
    }
}

kernel_struct! {
    /// Request of the extended CREATE_QP.
    pub struct ib_uverbs_ex_create_qp, size 64, align 8 {
        /// Given back with events.
        [0] pub user_handle: u64,
        /// Protection domain.
        [8] pub pd_handle: u32,
        /// Completion queue of the sends.
        [12] pub send_cq_handle: u32,
        /// Completion queue of the receives.
        [16] pub recv_cq_handle: u32,
        /// Shared receive queue, where `is_srq` is set.
        [20] pub srq_handle: u32,
        /// Sends asked for.
        [24] pub max_send_wr: u32,
        /// Receives asked for.
        [28] pub max_recv_wr: u32,
        /// Scatter/gather entries of a send asked for.
        [32] pub max_send_sge: u32,
        /// Scatter/gather entries of a receive asked for.
        [36] pub max_recv_sge: u32,
        /// Inline bytes asked for.
        [40] pub max_inline_data: u32,
        /// Not zero: every send completes.
        [44] pub sq_sig_all: u8,
        /// `IB_UVERBS_QPT_…`.
        [45] pub qp_type: u8,
        /// Whether `srq_handle` counts.
        [46] pub is_srq: u8,
        /// Zero.
        [47] pub reserved: u8,
        /// Bit 0: `rwq_ind_tbl_handle` counts.
        [48] pub comp_mask: u32,
        /// `IB_QP_CREATE_…`.
        [52] pub create_flags: u32,
        /// Indirection table.
        [56] pub rwq_ind_tbl_handle: u32,
        /// QP number to send from.
        [60] pub source_qpn: u32,
    }
}

kernel_struct! {
    /// Response of the extended CREATE_QP.
    pub struct ib_uverbs_ex_create_qp_resp, size 40, align 4 {
        /// As of CREATE_QP.
        [0] pub base: ib_uverbs_create_qp_resp,
        /// Zero.
        [32] pub comp_mask: u32,
        /// Bytes that the kernel filled.
        [36] pub response_length: u32,
    }
}

kernel_struct! {
    /// Path of a queue pair.
    pub struct ib_uverbs_qp_dest, size 32, align 4 {
        /// GID of the destination.
        [0] pub dgid: [u8; 16],
        /// Flow label.
        [16] pub flow_label: u32,
        /// Local id of the destination.
        [20] pub dlid: u16,
        /// Zero.
        [22] pub reserved: u16,
        /// Index of the source GID.
        [24] pub sgid_index: u8,
        /// Hop limit.
        [25] pub hop_limit: u8,
        /// Traffic class.
        [26] pub traffic_class: u8,
        /// Service level.
        [27] pub sl: u8,
        /// Source path bits.
        [28] pub src_path_bits: u8,
        /// Rate limit, as a code.
        [29] pub static_rate: u8,
        /// Whether the GID route counts.
        [30] pub is_global: u8,
        /// Local port.
        [31] pub port_num: u8,
    }
}

kernel_struct! {
    /// Request of QUERY_QP.
    pub struct ib_uverbs_query_qp, size 16, align 8 {
        /// Address of the response.
        [0] pub response: u64,
        /// The queue pair.
        [8] pub qp_handle: u32,
        /// `IB_QP_…`: what is asked for.
        [12] pub attr_mask: u32,
    }
}

kernel_struct! {
    /// Response of QUERY_QP.
    pub struct ib_uverbs_query_qp_resp, size 128, align 8 {
        /// Path.
        [0] pub dest: ib_uverbs_qp_dest,
        /// Alternate path.
        [32] pub alt_dest: ib_uverbs_qp_dest,
        /// Sends.
        [64] pub max_send_wr: u32,
        /// Receives.
        [68] pub max_recv_wr: u32,
        /// Scatter/gather entries of a send.
        [72] pub max_send_sge: u32,
        /// Scatter/gather entries of a receive.
        [76] pub max_recv_sge: u32,
        /// Inline bytes.
        [80] pub max_inline_data: u32,
        /// Q-key.
        [84] pub qkey: u32,
        /// Next packet number expected.
        [88] pub rq_psn: u32,
        /// Next packet number sent.
        [92] pub sq_psn: u32,
        /// Number of the remote queue pair.
        [96] pub dest_qp_num: u32,
        /// `IB_UVERBS_ACCESS_…`.
        [100] pub qp_access_flags: u32,
        /// Index of the partition key.
        [104] pub pkey_index: u16,
        /// The same of the alternate path.
        [106] pub alt_pkey_index: u16,
        /// `IB_QPS_…`.
        [108] pub qp_state: u8,
        /// `IB_QPS_…`.
        [109] pub cur_qp_state: u8,
        /// `IB_MTU_…`.
        [110] pub path_mtu: u8,
        /// `IB_MIG_…`.
        [111] pub path_mig_state: u8,
        /// Whether the send queue is draining.
        [112] pub sq_draining: u8,
        /// Most RDMA reads and atomics in flight from here.
        [113] pub max_rd_atomic: u8,
        /// Most RDMA reads and atomics in flight from the other side.
        [114] pub max_dest_rd_atomic: u8,
        /// Delay asked of a sender that finds no receive, as a code.
        [115] pub min_rnr_timer: u8,
        /// Local port.
        [116] pub port_num: u8,
        /// Time-out of acknowledgements, as an exponent.
        [117] pub timeout: u8,
        /// Tries after a time-out.
        [118] pub retry_cnt: u8,
        /// Tries after "no receive"; 7 is for ever.
        [119] pub rnr_retry: u8,
        /// Local port of the alternate path.
        [120] pub alt_port_num: u8,
        /// Time-out of the alternate path.
        [121] pub alt_timeout: u8,
        /// Not zero: every send completes.
        [122] pub sq_sig_all: u8,
        /// Zero.
        [123] pub reserved: [u8; 5],
    }
}

kernel_struct! {
    /// Request of MODIFY_QP; there is no response.
    pub struct ib_uverbs_modify_qp, size 112, align 8 {
        /// Path.
        [0] pub dest: ib_uverbs_qp_dest,
        /// Alternate path.
        [32] pub alt_dest: ib_uverbs_qp_dest,
        /// The queue pair.
        [64] pub qp_handle: u32,
        /// `IB_QP_…`: which of the following to change.
        [68] pub attr_mask: u32,
        /// Q-key.
        [72] pub qkey: u32,
        /// First packet number to expect.
        [76] pub rq_psn: u32,
        /// First packet number to send.
        [80] pub sq_psn: u32,
        /// Number of the remote queue pair.
        [84] pub dest_qp_num: u32,
        /// `IB_UVERBS_ACCESS_…`.
        [88] pub qp_access_flags: u32,
        /// Index of the partition key.
        [92] pub pkey_index: u16,
        /// The same of the alternate path.
        [94] pub alt_pkey_index: u16,
        /// State to move to, `IB_QPS_…`.
        [96] pub qp_state: u8,
        /// State believed to be in, `IB_QPS_…`.
        [97] pub cur_qp_state: u8,
        /// `IB_MTU_…`.
        [98] pub path_mtu: u8,
        /// `IB_MIG_…`.
        [99] pub path_mig_state: u8,
        /// Whether draining shall raise an event.
        [100] pub en_sqd_async_notify: u8,
        /// Most RDMA reads and atomics in flight from here.
        [101] pub max_rd_atomic: u8,
        /// Most RDMA reads and atomics in flight from the other side.
        [102] pub max_dest_rd_atomic: u8,
        /// Delay asked of a sender that finds no receive, as a code.
        [103] pub min_rnr_timer: u8,
        /// Local port.
        [104] pub port_num: u8,
        /// Time-out of acknowledgements, as an exponent.
        [105] pub timeout: u8,
        /// Tries after a time-out.
        [106] pub retry_cnt: u8,
        /// Tries after "no receive"; 7 is for ever.
        [107] pub rnr_retry: u8,
        /// Local port of the alternate path.
        [108] pub alt_port_num: u8,
        /// Time-out of the alternate path.
        [109] pub alt_timeout: u8,
        /// Zero.
        [110] pub reserved: [u8; 2],
    }
}

kernel_struct! {
    /// Request of the extended MODIFY_QP. The kernel takes 112 bytes too (without `rate_limit`).
    pub struct ib_uverbs_ex_modify_qp, size 120, align 8 {
        /// As of MODIFY_QP.
        [0] pub base: ib_uverbs_modify_qp,
        /// Rate limit in kbit/s.
        [112] pub rate_limit: u32,
        /// Zero.
        [116] pub reserved: u32,
    }
}

kernel_struct! {
    /// Response of the extended MODIFY_QP.
    pub struct ib_uverbs_ex_modify_qp_resp, size 8, align 4 {
        /// Zero.
        [0] pub comp_mask: u32,
        /// Bytes that the kernel filled.
        [4] pub response_length: u32,
    }
}

kernel_struct! {
    /// Request of DESTROY_QP.
    pub struct ib_uverbs_destroy_qp, size 16, align 8 {
        /// Address of the response.
        [0] pub response: u64,
        /// The queue pair.
        [8] pub qp_handle: u32,
        /// Zero.
        [12] pub reserved: u32,
    }
}

kernel_struct! {
    /// Response of DESTROY_QP, and of the ioctl method.
    pub struct ib_uverbs_destroy_qp_resp, size 4, align 4 {
        /// Asynchronous events that were read for this queue pair.
        [0] pub events_reported: u32,
    }
}

/// Bytes of the kernel's `ib_uverbs_send_wr`: the least `wqe_size` that POST_SEND takes.
pub const IB_UVERBS_SEND_WR_SIZE: u32 = 56;

kernel_struct! {
    /// Request of POST_SEND, without work requests: the doorbell of rxe and siw.
    pub struct ib_uverbs_post_send, size 24, align 8 {
        /// Address of the response.
        [0] pub response: u64,
        /// The queue pair.
        [8] pub qp_handle: u32,
        /// Work requests that follow; zero for a doorbell.
        [12] pub wr_count: u32,
        /// Scatter/gather entries that follow; zero for a doorbell.
        [16] pub sge_count: u32,
        /// Bytes of a work request, at least [`IB_UVERBS_SEND_WR_SIZE`] even for none.
        [20] pub wqe_size: u32,
    }
}

kernel_struct! {
    /// Response of POST_SEND.
    pub struct ib_uverbs_post_send_resp, size 4, align 4 {
        /// Index, from 1, of the first request refused; zero for none.
        [0] pub bad_wr: u32,
    }
}

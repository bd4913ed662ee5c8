//! Golden bytes of the queue pair commands: the way to ready-to-send, and what a query answers.

#![cfg(target_endian = "little")]

mod golden;

use golden::{Field, golden};
use uverbs_abi::layout::cmd::*;
use uverbs_abi::layout::verbs::*;

const NO_PATH: Field = ("path", &[0; 32]);

#[test]
fn modify_qp_to_init() {
    golden(
        ib_uverbs_modify_qp {
            qp_handle: 2,
            attr_mask: IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS,
            qp_access_flags: IB_UVERBS_ACCESS_LOCAL_WRITE
                | IB_UVERBS_ACCESS_REMOTE_WRITE
                | IB_UVERBS_ACCESS_REMOTE_ATOMIC,
            pkey_index: 0x0A0B,
            alt_pkey_index: 0x0C0D,
            qp_state: IB_QPS_INIT,
            port_num: 1,
            ..Default::default()
        },
        &[
            ("dest", NO_PATH.1),
            ("alt_dest", NO_PATH.1),
            ("qp_handle", &[2, 0, 0, 0]),
            ("attr_mask", &[0x39, 0, 0, 0]),
            ("qkey", &[0; 4]),
            ("rq_psn", &[0; 4]),
            ("sq_psn", &[0; 4]),
            ("dest_qp_num", &[0; 4]),
            ("qp_access_flags", &[0x0B, 0, 0, 0]),
            ("pkey_index", &[0x0B, 0x0A]),
            ("alt_pkey_index", &[0x0D, 0x0C]),
            ("qp_state", &[1]),
            ("cur_qp_state", &[0]),
            ("path_mtu", &[0]),
            ("path_mig_state", &[0]),
            ("en_sqd_async_notify", &[0]),
            ("max_rd_atomic", &[0]),
            ("max_dest_rd_atomic", &[0]),
            ("min_rnr_timer", &[0]),
            ("port_num", &[1]),
            ("timeout", &[0]),
            ("retry_cnt", &[0]),
            ("rnr_retry", &[0]),
            ("alt_port_num", &[0]),
            ("alt_timeout", &[0]),
            ("reserved", &[0; 2]),
        ],
    );
}

#[test]
fn modify_qp_to_rtr() {
    let dest = ib_uverbs_qp_dest {
        dgid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 2],
        flow_label: 0x000A_BCDE,
        dlid: 0x1234,
        reserved: 0,
        sgid_index: 1,
        hop_limit: 64,
        traffic_class: 2,
        sl: 3,
        src_path_bits: 4,
        static_rate: 5,
        is_global: 1,
        port_num: 6,
    };
    golden(
        dest,
        &[
            (
                "dgid",
                &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 2],
            ),
            ("flow_label", &[0xDE, 0xBC, 0x0A, 0x00]),
            ("dlid", &[0x34, 0x12]),
            ("reserved", &[0; 2]),
            ("sgid_index", &[1]),
            ("hop_limit", &[64]),
            ("traffic_class", &[2]),
            ("sl", &[3]),
            ("src_path_bits", &[4]),
            ("static_rate", &[5]),
            ("is_global", &[1]),
            ("port_num", &[6]),
        ],
    );
    golden(
        ib_uverbs_modify_qp {
            dest,
            qp_handle: 2,
            attr_mask: IB_QP_STATE
                | IB_QP_AV
                | IB_QP_PATH_MTU
                | IB_QP_DEST_QPN
                | IB_QP_RQ_PSN
                | IB_QP_MAX_DEST_RD_ATOMIC
                | IB_QP_MIN_RNR_TIMER,
            rq_psn: 0x00AB_CDEF,
            dest_qp_num: 0x11,
            qp_state: IB_QPS_RTR,
            path_mtu: IB_MTU_1024,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 12,
            ..Default::default()
        },
        &[
            (
                "dest.dgid",
                &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 2],
            ),
            ("dest.flow_label", &[0xDE, 0xBC, 0x0A, 0x00]),
            ("dest.dlid, reserved", &[0x34, 0x12, 0, 0]),
            ("dest.sgid_index .. port_num", &[1, 64, 2, 3, 4, 5, 1, 6]),
            ("alt_dest", NO_PATH.1),
            ("qp_handle", &[2, 0, 0, 0]),
            ("attr_mask", &[0x81, 0x91, 0x12, 0x00]),
            ("qkey", &[0; 4]),
            ("rq_psn", &[0xEF, 0xCD, 0xAB, 0x00]),
            ("sq_psn", &[0; 4]),
            ("dest_qp_num", &[0x11, 0, 0, 0]),
            ("qp_access_flags, pkey_index, alt_pkey_index", &[0; 8]),
            ("qp_state", &[2]),
            ("cur_qp_state", &[0]),
            ("path_mtu", &[3]),
            ("path_mig_state .. max_rd_atomic", &[0; 3]),
            ("max_dest_rd_atomic", &[16]),
            ("min_rnr_timer", &[12]),
            ("port_num .. reserved", &[0; 8]),
        ],
    );
}

#[test]
fn modify_qp_to_rts() {
    golden(
        ib_uverbs_modify_qp {
            qp_handle: 2,
            attr_mask: IB_QP_STATE
                | IB_QP_SQ_PSN
                | IB_QP_TIMEOUT
                | IB_QP_RETRY_CNT
                | IB_QP_RNR_RETRY
                | IB_QP_MAX_QP_RD_ATOMIC,
            sq_psn: 0x0012_3456,
            qp_state: IB_QPS_RTS,
            max_rd_atomic: 8,
            timeout: 14,
            retry_cnt: 6,
            rnr_retry: 7,
            ..Default::default()
        },
        &[
            ("dest", NO_PATH.1),
            ("alt_dest", NO_PATH.1),
            ("qp_handle", &[2, 0, 0, 0]),
            ("attr_mask", &[0x01, 0x2E, 0x01, 0x00]),
            ("qkey, rq_psn", &[0; 8]),
            ("sq_psn", &[0x56, 0x34, 0x12, 0x00]),
            ("dest_qp_num .. alt_pkey_index", &[0; 12]),
            ("qp_state", &[3]),
            ("cur_qp_state .. en_sqd_async_notify", &[0; 4]),
            ("max_rd_atomic", &[8]),
            ("max_dest_rd_atomic, min_rnr_timer, port_num", &[0; 3]),
            ("timeout", &[14]),
            ("retry_cnt", &[6]),
            ("rnr_retry", &[7]),
            ("alt_port_num, alt_timeout, reserved", &[0; 4]),
        ],
    );
}

#[test]
fn query_qp_resp() {
    golden(
        ib_uverbs_query_qp_resp {
            dest: ib_uverbs_qp_dest {
                dlid: 0x0102,
                ..Default::default()
            },
            alt_dest: ib_uverbs_qp_dest {
                dlid: 0x0304,
                ..Default::default()
            },
            max_send_wr: 1,
            max_recv_wr: 2,
            max_send_sge: 3,
            max_recv_sge: 4,
            max_inline_data: 5,
            qkey: 6,
            rq_psn: 7,
            sq_psn: 8,
            dest_qp_num: 9,
            qp_access_flags: 10,
            pkey_index: 11,
            alt_pkey_index: 12,
            qp_state: 13,
            cur_qp_state: 14,
            path_mtu: 15,
            path_mig_state: 16,
            sq_draining: 17,
            max_rd_atomic: 18,
            max_dest_rd_atomic: 19,
            min_rnr_timer: 20,
            port_num: 21,
            timeout: 22,
            retry_cnt: 23,
            rnr_retry: 24,
            alt_port_num: 25,
            alt_timeout: 26,
            sq_sig_all: 27,
            reserved: [0; 5],
        },
        &[
            ("dest", &[0; 20]),
            ("dest.dlid", &[2, 1]),
            ("dest, rest", &[0; 10]),
            ("alt_dest", &[0; 20]),
            ("alt_dest.dlid", &[4, 3]),
            ("alt_dest, rest", &[0; 10]),
            ("max_send_wr, max_recv_wr", &[1, 0, 0, 0, 2, 0, 0, 0]),
            ("max_send_sge, max_recv_sge", &[3, 0, 0, 0, 4, 0, 0, 0]),
            ("max_inline_data", &[5, 0, 0, 0]),
            ("qkey", &[6, 0, 0, 0]),
            ("rq_psn, sq_psn", &[7, 0, 0, 0, 8, 0, 0, 0]),
            ("dest_qp_num", &[9, 0, 0, 0]),
            ("qp_access_flags", &[10, 0, 0, 0]),
            ("pkey_index, alt_pkey_index", &[11, 0, 12, 0]),
            ("qp_state .. path_mig_state", &[13, 14, 15, 16]),
            ("sq_draining", &[17]),
            ("max_rd_atomic, max_dest_rd_atomic", &[18, 19]),
            ("min_rnr_timer", &[20]),
            ("port_num, timeout, retry_cnt, rnr_retry", &[21, 22, 23, 24]),
            ("alt_port_num, alt_timeout", &[25, 26]),
            ("sq_sig_all", &[27]),
            ("reserved", &[0; 5]),
        ],
    );
}

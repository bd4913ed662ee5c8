//! Golden bytes of rxe: what the driver answers, and what lies in a slot of its queues.

#![cfg(target_endian = "little")]

mod golden;

use golden::golden;
use uverbs_abi::layout::cmd::ib_uverbs_wc;
use uverbs_abi::layout::rxe::*;
use uverbs_abi::layout::verbs::*;
use zerocopy::{FromBytes, Immutable, IntoBytes};

#[test]
fn queue_offers() {
    let mi = |n: u64| mminfo {
        offset: n << 12,
        size: 0x3000,
        pad: 0,
    };
    golden(
        mi(1),
        &[
            ("offset", &[0x00, 0x10, 0, 0, 0, 0, 0, 0]),
            ("size", &[0x00, 0x30, 0, 0]),
            ("pad", &[0; 4]),
        ],
    );
    golden(
        rxe_create_qp_resp {
            rq_mi: mi(1),
            sq_mi: mi(2),
        },
        &[
            ("rq_mi.offset", &[0x00, 0x10, 0, 0, 0, 0, 0, 0]),
            ("rq_mi.size, pad", &[0x00, 0x30, 0, 0, 0, 0, 0, 0]),
            ("sq_mi.offset", &[0x00, 0x20, 0, 0, 0, 0, 0, 0]),
            ("sq_mi.size, pad", &[0x00, 0x30, 0, 0, 0, 0, 0, 0]),
        ],
    );
    golden(
        rxe_create_srq_resp {
            mi: mi(3),
            srq_num: 5,
            reserved: 0,
        },
        &[
            ("mi.offset", &[0x00, 0x30, 0, 0, 0, 0, 0, 0]),
            ("mi.size, pad", &[0x00, 0x30, 0, 0, 0, 0, 0, 0]),
            ("srq_num", &[5, 0, 0, 0]),
            ("reserved", &[0; 4]),
        ],
    );
    golden(
        rxe_create_ah_resp {
            ah_num: 0x0102_0304,
            reserved: 0,
        },
        &[("ah_num", &[4, 3, 2, 1]), ("reserved", &[0; 4])],
    );
}

/// A whole slot: the entry's header and the scatter/gather entry behind it.
#[derive(Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct SendSlot {
    wqe: rxe_send_wqe,
    sge: rxe_sge,
}

#[test]
fn send_of_one_sge() {
    golden(
        SendSlot {
            wqe: rxe_send_wqe {
                wr: rxe_send_wr {
                    wr_id: 0x0807_0605_0403_0201,
                    opcode: IB_UVERBS_WR_SEND_WITH_IMM,
                    send_flags: IB_SEND_SIGNALED | IB_SEND_SOLICITED,
                    ex: 0xCAFE_F00D_u32.to_be_bytes(),
                    ..Default::default()
                },
                ssn: 9,
                dma: rxe_dma_info {
                    length: 0x100,
                    resid: 0x100,
                    num_sge: 1,
                    ..Default::default()
                },
                ..Default::default()
            },
            sge: rxe_sge {
                addr: 0x7F00_0000_2000,
                length: 0x100,
                lkey: 0x0102_0304,
            },
        },
        &[
            ("wr.wr_id", &[1, 2, 3, 4, 5, 6, 7, 8]),
            ("wr.reserved", &[0; 4]),
            ("wr.opcode", &[3, 0, 0, 0]),
            ("wr.send_flags", &[6, 0, 0, 0]),
            ("wr.ex: network order", &[0xCA, 0xFE, 0xF0, 0x0D]),
            ("wr.wr", &[0; 120]),
            ("status", &[0; 4]),
            ("state: posted", &[0; 4]),
            ("iova", &[0; 8]),
            ("mask, first_psn, last_psn, ack_length", &[0; 16]),
            ("ssn", &[9, 0, 0, 0]),
            ("has_rd_atomic", &[0; 4]),
            ("dma.length", &[0x00, 0x01, 0, 0]),
            ("dma.resid", &[0x00, 0x01, 0, 0]),
            ("dma.cur_sge", &[0; 4]),
            ("dma.num_sge", &[1, 0, 0, 0]),
            ("dma.sge_offset", &[0; 4]),
            ("dma.reserved", &[0; 4]),
            ("sge.addr", &[0x00, 0x20, 0x00, 0x00, 0x00, 0x7F, 0, 0]),
            ("sge.length", &[0x00, 0x01, 0, 0]),
            ("sge.lkey", &[4, 3, 2, 1]),
        ],
    );
}

#[test]
fn members_lie_at_the_start_of_the_union() {
    let rdma = rxe_wr_rdma {
        remote_addr: 0x0807_0605_0403_0201,
        rkey: 0x0C0B_0A09,
        reserved: 0,
    };
    let union = rdma.to_union();
    assert_eq!(
        union.first_chunk(),
        Some(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
    );
    assert_eq!(union.last_chunk(), Some(&[0_u8; 108]));
    assert_eq!(rxe_wr_rdma::from_union(union), rdma);

    let atomic = rxe_wr_atomic {
        remote_addr: 1,
        compare_add: 2,
        swap: 3,
        rkey: 4,
        reserved: 0,
    };
    assert_eq!(rxe_wr_atomic::from_union(atomic.to_union()), atomic);
    let mw = rxe_wr_mw {
        addr: 1,
        length: 2,
        mr_lkey: 3,
        mw_rkey: 4,
        rkey: 5,
        access: 6,
    };
    assert_eq!(rxe_wr_mw::from_union(mw.to_union()), mw);
    let flush = rxe_wr_flush {
        remote_addr: 1,
        length: 2,
        rkey: 3,
        r#type: IB_FLUSH_PERSISTENT,
        level: IB_FLUSH_MR,
        pad: [0; 6],
    };
    assert_eq!(rxe_wr_flush::from_union(flush.to_union()), flush);
}

#[test]
fn datagram() {
    golden(
        rxe_wr_ud {
            remote_qpn: 0x11,
            remote_qkey: 0x1111_2222,
            pkey_index: 3,
            ah_num: 4,
            av: rxe_av {
                port_num: 1,
                network_type: RXE_NETWORK_TYPE_IPV6,
                dmac: [2, 3, 4, 5, 6, 7],
                grh: rxe_global_route {
                    dgid: [0xD1; 16],
                    flow_label: 8,
                    sgid_index: 9,
                    hop_limit: 10,
                    traffic_class: 11,
                    pad: 0,
                },
                sgid_addr: [0xA1; 28],
                dgid_addr: [0xA2; 28],
            },
            ..Default::default()
        },
        &[
            ("remote_qpn", &[0x11, 0, 0, 0]),
            ("remote_qkey", &[0x22, 0x22, 0x11, 0x11]),
            ("pkey_index, reserved", &[3, 0, 0, 0]),
            ("ah_num", &[4, 0, 0, 0]),
            ("pad", &[0; 16]),
            ("av.port_num", &[1]),
            ("av.network_type", &[2]),
            ("av.dmac", &[2, 3, 4, 5, 6, 7]),
            ("av.grh.dgid", &[0xD1; 16]),
            ("av.grh.flow_label", &[8, 0, 0, 0]),
            (
                "av.grh.sgid_index, hop_limit, traffic_class, pad",
                &[9, 10, 11, 0],
            ),
            ("av.sgid_addr", &[0xA1; 28]),
            ("av.dgid_addr", &[0xA2; 28]),
        ],
    );
    golden(
        sockaddr_in {
            sin_family: 2,
            sin_addr: [10, 0, 0, 1],
            ..Default::default()
        },
        &[
            ("sin_family", &[2, 0]),
            ("sin_port", &[0; 2]),
            ("sin_addr", &[10, 0, 0, 1]),
            ("pad", &[0; 8]),
        ],
    );
}

#[test]
fn receive() {
    golden(
        rxe_recv_wqe {
            wr_id: 0x0807_0605_0403_0201,
            dma: rxe_dma_info {
                length: 0x40,
                resid: 0x40,
                num_sge: 1,
                ..Default::default()
            },
            ..Default::default()
        },
        &[
            ("wr_id", &[1, 2, 3, 4, 5, 6, 7, 8]),
            ("reserved, padding", &[0; 8]),
            ("dma.length", &[0x40, 0, 0, 0]),
            ("dma.resid", &[0x40, 0, 0, 0]),
            ("dma.cur_sge", &[0; 4]),
            ("dma.num_sge", &[1, 0, 0, 0]),
            ("dma.sge_offset, reserved", &[0; 8]),
        ],
    );
}

#[test]
fn completion() {
    golden(
        ib_uverbs_wc {
            wr_id: 0x0807_0605_0403_0201,
            status: IB_WC_RNR_RETRY_EXC_ERR,
            opcode: IB_WC_RECV_RDMA_WITH_IMM,
            vendor_err: 1,
            byte_len: 2,
            ex: 0xCAFE_F00D_u32.to_be_bytes(),
            qp_num: 3,
            src_qp: 4,
            wc_flags: IB_WC_GRH | IB_WC_WITH_IMM,
            pkey_index: 5,
            slid: 6,
            sl: 7,
            dlid_path_bits: 8,
            port_num: 9,
            reserved: 0,
        },
        &[
            ("wr_id", &[1, 2, 3, 4, 5, 6, 7, 8]),
            ("status", &[13, 0, 0, 0]),
            ("opcode", &[129, 0, 0, 0]),
            ("vendor_err", &[1, 0, 0, 0]),
            ("byte_len", &[2, 0, 0, 0]),
            ("ex: network order", &[0xCA, 0xFE, 0xF0, 0x0D]),
            ("qp_num", &[3, 0, 0, 0]),
            ("src_qp", &[4, 0, 0, 0]),
            ("wc_flags", &[3, 0, 0, 0]),
            ("pkey_index", &[5, 0]),
            ("slid", &[6, 0]),
            ("sl, dlid_path_bits, port_num", &[7, 8, 9]),
            ("reserved", &[0]),
        ],
    );
}

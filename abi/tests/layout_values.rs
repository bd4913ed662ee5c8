//! Golden bytes: each structure is built with values that differ from one another and compared with
//! bytes written by hand from the kernel's headers, field by field.
//!
//! The compile-time tables in the crate prove where each field lies. This file proves it a second
//! time from the other side (the bytes), and pins the frames of whole commands.

#![cfg(target_endian = "little")]

mod golden;

use golden::{POINTER, POINTER_BYTES, golden};
use uverbs_abi::layout::cmd::*;
use uverbs_abi::layout::driver::DriverId;
use uverbs_abi::layout::event::*;
use uverbs_abi::layout::ids::{Attr, attr, method, object};
use uverbs_abi::layout::ioctl::*;
use uverbs_abi::layout::verbs::*;
use uverbs_abi::layout::{netlink, rxe};
use zerocopy::{FromBytes, Immutable, IntoBytes};

#[test]
fn ioctl_frame() {
    // _IOWR(0x1b, 1, 24 bytes): direction 3, size 24, type 0x1b, number 1.
    assert_eq!(RDMA_VERBS_IOCTL, (3 << 30) | (24 << 16) | (0x1B << 8) | 1);
    golden(
        ib_uverbs_ioctl_hdr {
            length: 24 + 16 * 2,
            object_id: object::QP,
            method_id: method::qp::DESTROY,
            num_attrs: 2,
            reserved1: 0,
            driver_id: DriverId::Rxe.to_raw(),
            reserved2: 0,
        },
        &[
            ("length", &[56, 0]),
            ("object_id", &[4, 0]),
            ("method_id", &[1, 0]),
            ("num_attrs", &[2, 0]),
            ("reserved1", &[0; 8]),
            ("driver_id", &[14, 0, 0, 0]),
            ("reserved2", &[0; 4]),
        ],
    );
    golden(
        ib_uverbs_attr {
            attr_id: attr::uhw::OUT.id(),
            len: 16,
            flags: UVERBS_ATTR_F_MANDATORY | UVERBS_ATTR_F_VALID_OUTPUT,
            elem_id: 5,
            reserved: 0,
            data: POINTER,
        },
        &[
            ("attr_id", &[0x01, 0x10]),
            ("len", &[16, 0]),
            ("flags", &[3, 0]),
            ("elem_id", &[5]),
            ("reserved", &[0]),
            ("data", POINTER_BYTES),
        ],
    );
}

#[test]
fn alloc_pd() {
    golden(
        ib_uverbs_alloc_pd { response: POINTER },
        &[("response", POINTER_BYTES)],
    );
    golden(
        ib_uverbs_alloc_pd_resp { pd_handle: 7 },
        &[("pd_handle", &[7, 0, 0, 0])],
    );
}

#[test]
fn reg_mr() {
    golden(
        ib_uverbs_reg_mr {
            response: POINTER,
            start: 0x7F00_0000_1000,
            length: 0x2000,
            hca_va: 0x7F00_0000_1008,
            pd_handle: 3,
            access_flags: IB_UVERBS_ACCESS_LOCAL_WRITE
                | IB_UVERBS_ACCESS_REMOTE_READ
                | IB_UVERBS_ACCESS_RELAXED_ORDERING,
        },
        &[
            ("response", POINTER_BYTES),
            ("start", &[0x00, 0x10, 0x00, 0x00, 0x00, 0x7F, 0, 0]),
            ("length", &[0x00, 0x20, 0, 0, 0, 0, 0, 0]),
            ("hca_va", &[0x08, 0x10, 0x00, 0x00, 0x00, 0x7F, 0, 0]),
            ("pd_handle", &[3, 0, 0, 0]),
            ("access_flags", &[0x05, 0x00, 0x10, 0x00]),
        ],
    );
    golden(
        ib_uverbs_reg_mr_resp {
            mr_handle: 1,
            lkey: 0x0102_0304,
            rkey: 0x0506_0708,
        },
        &[
            ("mr_handle", &[1, 0, 0, 0]),
            ("lkey", &[4, 3, 2, 1]),
            ("rkey", &[8, 7, 6, 5]),
        ],
    );
}

#[test]
fn create_comp_channel() {
    golden(
        ib_uverbs_create_comp_channel { response: POINTER },
        &[("response", POINTER_BYTES)],
    );
    golden(
        ib_uverbs_create_comp_channel_resp { fd: 9 },
        &[("fd", &[9, 0, 0, 0])],
    );
}

#[test]
fn doorbell_is_32_bytes() {
    #[derive(Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
    #[repr(C)]
    struct Doorbell {
        hdr: ib_uverbs_cmd_hdr,
        post_send: ib_uverbs_post_send,
    }
    golden(
        Doorbell {
            hdr: ib_uverbs_cmd_hdr {
                command: IB_USER_VERBS_CMD_POST_SEND,
                in_words: 32 / 4,
                out_words: 4 / 4,
            },
            post_send: ib_uverbs_post_send {
                response: POINTER,
                qp_handle: 0x2A,
                wr_count: 0,
                sge_count: 0,
                wqe_size: IB_UVERBS_SEND_WR_SIZE,
            },
        },
        &[
            ("command", &[28, 0, 0, 0]),
            ("in_words: the whole of it", &[8, 0]),
            ("out_words: bad_wr", &[1, 0]),
            ("response", POINTER_BYTES),
            ("qp_handle", &[0x2A, 0, 0, 0]),
            ("wr_count", &[0; 4]),
            ("sge_count", &[0; 4]),
            ("wqe_size", &[56, 0, 0, 0]),
        ],
    );
    golden(
        ib_uverbs_post_send_resp { bad_wr: 1 },
        &[("bad_wr", &[1, 0, 0, 0])],
    );
}

#[test]
fn extended_header() {
    golden(
        ib_uverbs_ex_cmd_hdr {
            response: POINTER,
            provider_in_words: 1,
            provider_out_words: 2,
            cmd_hdr_reserved: 0,
        },
        &[
            ("response", POINTER_BYTES),
            ("provider_in_words", &[1, 0]),
            ("provider_out_words", &[2, 0]),
            ("cmd_hdr_reserved", &[0; 4]),
        ],
    );
}

#[test]
fn events() {
    golden(
        ib_uverbs_async_event_desc {
            element: 0x0102_0304_0506_0708,
            event_type: IB_EVENT_SRQ_LIMIT_REACHED,
            reserved: 0,
        },
        &[
            ("element", &[8, 7, 6, 5, 4, 3, 2, 1]),
            ("event_type", &[15, 0, 0, 0]),
            ("reserved", &[0; 4]),
        ],
    );
    golden(
        ib_uverbs_comp_event_desc { cq_handle: POINTER },
        &[("cq_handle", POINTER_BYTES)],
    );
}

#[test]
fn numbers() {
    assert_eq!(
        (
            IB_EVENT_CQ_ERR,
            IB_EVENT_DEVICE_FATAL,
            IB_EVENT_DEVICE_SPEED_CHANGE
        ),
        (0, 8, 20)
    );
    assert_eq!((IB_QPS_RESET, IB_QPS_SQD, IB_QPS_ERR), (0, 4, 6));
    assert_eq!(
        (IB_UVERBS_QPT_RC, IB_UVERBS_QPT_UC, IB_UVERBS_QPT_UD),
        (2, 3, 4)
    );
    assert_eq!(
        (
            IB_WC_WR_FLUSH_ERR,
            IB_WC_RNR_RETRY_EXC_ERR,
            IB_WC_GENERAL_ERR
        ),
        (5, 13, 21)
    );
    assert_eq!((IB_WC_RECV, IB_WC_RECV_RDMA_WITH_IMM), (128, 129));
    assert_eq!(IB_UVERBS_ACCESS_OPTIONAL_RANGE.count_ones(), 10);
    assert_eq!(IB_QP_ATTR_STANDARD_BITS & IB_QP_RATE_LIMIT, 0);
    assert_eq!((UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT), (0x1000, 0x1001));
    assert_eq!(
        netlink::rdma_nl_get_type(netlink::RDMA_NL_NLDEV, netlink::RDMA_NLDEV_CMD_GET_CHARDEV),
        0x140F
    );
    assert_eq!(netlink::rdma_nl_get_client(0x140F), 5);
    assert_eq!(netlink::rdma_nl_get_op(0x140F), 15);
    assert_eq!(
        (rxe::queue_buf::PRODUCER_INDEX, rxe::queue_buf::DATA),
        (128, 384)
    );
}

#[test]
fn driver_ids_go_both_ways() {
    for raw in 0..64 {
        let driver = DriverId::from_raw(raw);
        assert_eq!(driver.to_raw(), raw);
        assert_eq!(matches!(driver, DriverId::Other(_)), raw > 21);
    }
    assert_eq!(DriverId::from_raw(14), DriverId::Rxe);
    assert_eq!(DriverId::from_raw(18).name(), "siw");
    assert_eq!(DriverId::from_raw(1000).name(), "other");
}

#[test]
fn attributes_know_their_numbers() {
    let by_copy: Attr<_> = attr::qp_create::CAP;
    assert_eq!((by_copy.id(), attr::qp_create::CAP.id()), (8, 8));
    assert_eq!(format!("{:?}", attr::cq_create::EVENT_FD), "Attr(7)");
    assert_eq!(attr::srq_create::RESP_SRQ_NUM.id(), 13);
    assert_eq!(attr::reg_mr::RESP_RKEY.id(), 10);
    assert_eq!(object::ASYNC_EVENT, 16);
    assert_eq!(method::mr::REG_DMABUF_MR, 4);
}

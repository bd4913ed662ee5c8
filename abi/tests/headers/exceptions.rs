//! Where the Rust names are not those of a uapi header, and why. An entry that nothing needs fails
//! the test.

use crate::source::Version;

/// The kernels that the layouts were read from; "since" names one of them.
pub(crate) const READ: [Version; 3] = [(6, 1), (6, 12), (7, 3)];

/// Structures that have no name in C: where they are declared in place.
pub(crate) const IN_PLACE: [(&str, &str, &str); 6] = [
    (
        "ib_uverbs_odp_per_transport_caps",
        "ib_uverbs_odp_caps",
        "per_transport_caps",
    ),
    ("rxe_wr_rdma", "rxe_send_wr", "wr.rdma"),
    ("rxe_wr_atomic", "rxe_send_wr", "wr.atomic"),
    ("rxe_wr_ud", "rxe_send_wr", "wr.ud"),
    ("rxe_wr_mw", "rxe_send_wr", "wr.mw"),
    ("rxe_wr_flush", "rxe_send_wr", "wr.flush"),
];

/// Fields that have another name in C, or lie deeper.
pub(crate) const FIELDS: [(&str, &str, &str); 3] = [
    ("ib_uverbs_attr", "elem_id", "attr_data.enum_data.elem_id"),
    ("ib_uverbs_attr", "reserved", "attr_data.enum_data.reserved"),
    ("sockaddr_in", "pad", "__pad"),
];

/// Members that C has and Rust has not.
pub(crate) const LEFT_OUT: [(&str, &str, &str); 1] = [(
    "ib_uverbs_attr",
    "data_s64",
    "the same bytes as `data`, as a signed number",
)];

/// Names of bytes that Rust spells out and C may have without a name.
pub(crate) const PADDING: [&str; 4] = ["reserved", "pad", "padding", "cmd_hdr_reserved"];

/// Reserved bytes that were more before a later kernel took some: structure, field, up to which
/// version (exclusive), bytes.
pub(crate) const WIDER_BEFORE: [(&str, &str, Version, u64); 1] =
    [("ib_uverbs_query_port_resp_ex", "reserved", (6, 12), 6)];

/// Beginnings of names whose comments do not say "since" in so many words, for the reason given.
pub(crate) const SINCE: [(&str, Version, &str); 2] = [
    (
        "ib_uverbs_query_port_resp_ex.active_speed_ex",
        (6, 12),
        "bytes that were reserved, and zero, before",
    ),
    (
        "IB_UVERBS_ODP_SUPPORT",
        (7, 3),
        "the names are new; before, the bits were in include/rdma/ib_verbs.h",
    ),
];

/// Numbers that go by another expression in C.
pub(crate) const EXPRESSIONS: [(&str, &str, &str); 10] = [
    (
        "IB_UVERBS_SEND_WR_SIZE",
        "ib_uverbs_send_wr",
        "sizeof(struct ib_uverbs_send_wr)",
    ),
    (
        "UVERBS_ATTR_INLINE_MAX",
        "ib_uverbs_attr",
        "sizeof(((struct ib_uverbs_attr *)0)->data)",
    ),
    (
        "RXE_WR_UNION_LEN",
        "rxe_send_wr",
        "sizeof(((struct rxe_send_wr *)0)->wr)",
    ),
    (
        "RXE_WR_UNION_OFFSET",
        "rxe_send_wqe",
        "__builtin_offsetof(struct rxe_send_wqe, wr.wr)",
    ),
    (
        "queue_buf::LOG2_ELEM_SIZE",
        "rxe_queue_buf",
        "__builtin_offsetof(struct rxe_queue_buf, log2_elem_size)",
    ),
    (
        "queue_buf::INDEX_MASK",
        "rxe_queue_buf",
        "__builtin_offsetof(struct rxe_queue_buf, index_mask)",
    ),
    (
        "queue_buf::PRODUCER_INDEX",
        "rxe_queue_buf",
        "__builtin_offsetof(struct rxe_queue_buf, producer_index)",
    ),
    (
        "queue_buf::CONSUMER_INDEX",
        "rxe_queue_buf",
        "__builtin_offsetof(struct rxe_queue_buf, consumer_index)",
    ),
    (
        "queue_buf::DATA",
        "rxe_queue_buf",
        "__builtin_offsetof(struct rxe_queue_buf, data)",
    ),
    (
        "UVERBS_ID_DRIVER_NS",
        "UVERBS_ID_NS_SHIFT",
        "1UL << UVERBS_ID_NS_SHIFT",
    ),
];

/// Beginnings of names that no uapi header has, and where the kernel has them: what crosses the
/// interface all the same, as a plain number in a field.
pub(crate) const NOT_UAPI: [(&str, &str); 18] = [
    ("IB_ATOMIC_", IB_VERBS),
    ("IB_EVENT_", IB_VERBS),
    ("IB_LINK_LAYER_", IB_VERBS),
    ("IB_MIG_", IB_VERBS),
    ("IB_MR_REREG_", IB_VERBS),
    ("IB_MTU_", IB_VERBS),
    ("IB_MULTICAST_QPN", IB_VERBS),
    ("IB_MW_TYPE_", IB_VERBS),
    ("IB_PORT_", IB_VERBS),
    ("IB_QPS_", IB_VERBS),
    ("IB_QP_", IB_VERBS),
    ("IB_SEND_", IB_VERBS),
    ("IB_SPEED_", IB_VERBS),
    ("IB_SRQ_", IB_VERBS),
    ("IB_WC_", IB_VERBS),
    ("IB_WIDTH_", IB_VERBS),
    ("RXE_UVERBS_ABI_VERSION", RXE),
    ("WQE_STATE_POSTED", RXE),
];

const IB_VERBS: &str = "include/rdma/ib_verbs.h";
const RXE: &str = "drivers/infiniband/sw/rxe";

/// Attributes whose names in C do not follow the rule: module, and what C's begin with.
pub(crate) const ATTRIBUTES: [(&str, &str); 2] = [
    ("invoke_write", "UVERBS_ATTR_"),
    ("info_handles", "UVERBS_ATTR_INFO_"),
];

//! Which methods there are, and what each takes.
//!
//! Ground truth: the declarations in the kernel's `drivers/infiniband/core/uverbs_std_types*.c`, of
//! 6.12, as far as rxe has the object, and of work queues, which it lacks. A method or attribute that is not here is unknown to this
//! kernel.

use uverbs_abi::layout::cmd::{
    ib_uverbs_destroy_cq_resp, ib_uverbs_destroy_qp_resp, ib_uverbs_destroy_srq_resp,
};
use uverbs_abi::layout::ids::{attr, method, object};
use uverbs_abi::layout::verbs::{
    IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN, IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION,
    IB_UVERBS_QP_CREATE_SQ_SIG_ALL, ib_uverbs_gid_entry, ib_uverbs_qp_cap,
    ib_uverbs_query_port_resp_ex,
};

/// What an attribute carries.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// So many bytes in.
    In(usize),
    /// Any number of bytes in.
    InBytes,
    /// A number of a fixed set.
    Const,
    /// Flags, of which these are known.
    Flags(u32),
    /// At least so much room.
    Out(usize),
    Object,
    NewObject,
    Fd,
    NewFd,
}

/// One attribute of a method.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) id: u16,
    pub(super) kind: Kind,
    pub(super) required: bool,
}

const fn must(id: u16, kind: Kind) -> Spec {
    Spec {
        id,
        kind,
        required: true,
    }
}

const fn may(id: u16, kind: Kind) -> Spec {
    Spec {
        id,
        kind,
        required: false,
    }
}

const UHW_IN: Spec = may(attr::uhw::IN.id(), Kind::InBytes);
const UHW_OUT: Spec = may(attr::uhw::OUT.id(), Kind::Out(0));

const INVOKE_WRITE: &[Spec] = &[
    may(attr::invoke_write::CORE_IN.id(), Kind::InBytes),
    may(attr::invoke_write::CORE_OUT.id(), Kind::Out(0)),
    must(attr::invoke_write::WRITE_CMD.id(), Kind::Const),
    UHW_IN,
    UHW_OUT,
];

const QUERY_PORT: &[Spec] = &[
    must(attr::query_port::PORT_NUM.id(), Kind::Const),
    must(
        attr::query_port::RESP.id(),
        Kind::Out(size_of::<ib_uverbs_query_port_resp_ex>()),
    ),
];

const CONTEXT: &[Spec] = &[
    may(attr::get_context::NUM_COMP_VECTORS.id(), Kind::Out(4)),
    may(attr::get_context::CORE_SUPPORT.id(), Kind::Out(8)),
    UHW_IN,
    UHW_OUT,
];

const QUERY_GID_TABLE: &[Spec] = &[
    must(attr::query_gid_table::ENTRY_SIZE.id(), Kind::Const),
    may(attr::query_gid_table::FLAGS.id(), Kind::Flags(0)),
    must(attr::query_gid_table::RESP_ENTRIES.id(), Kind::Out(0)),
    must(attr::query_gid_table::RESP_NUM_ENTRIES.id(), Kind::Out(8)),
];

const QUERY_GID_ENTRY: &[Spec] = &[
    must(attr::query_gid_entry::PORT.id(), Kind::Const),
    must(attr::query_gid_entry::GID_INDEX.id(), Kind::Const),
    must(attr::query_gid_entry::FLAGS.id(), Kind::Flags(0)),
    must(
        attr::query_gid_entry::RESP_ENTRY.id(),
        Kind::Out(size_of::<ib_uverbs_gid_entry>()),
    ),
];

const DESTROY: &[Spec] = &[must(attr::pd_destroy::HANDLE.id(), Kind::Object)];

const CQ_CREATE: &[Spec] = &[
    must(attr::cq_create::HANDLE.id(), Kind::NewObject),
    must(attr::cq_create::CQE.id(), Kind::In(4)),
    must(attr::cq_create::USER_HANDLE.id(), Kind::In(8)),
    may(attr::cq_create::COMP_CHANNEL.id(), Kind::Fd),
    must(attr::cq_create::COMP_VECTOR.id(), Kind::In(4)),
    may(
        attr::cq_create::FLAGS.id(),
        Kind::Flags(IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN),
    ),
    must(attr::cq_create::RESP_CQE.id(), Kind::Out(4)),
    may(attr::cq_create::EVENT_FD.id(), Kind::Fd),
    UHW_IN,
    UHW_OUT,
];

const CQ_DESTROY: &[Spec] = &[
    must(attr::cq_destroy::HANDLE.id(), Kind::Object),
    must(
        attr::cq_destroy::RESP.id(),
        Kind::Out(size_of::<ib_uverbs_destroy_cq_resp>()),
    ),
];

const QP_CREATE: &[Spec] = &[
    must(attr::qp_create::HANDLE.id(), Kind::NewObject),
    may(attr::qp_create::XRCD_HANDLE.id(), Kind::Object),
    may(attr::qp_create::PD_HANDLE.id(), Kind::Object),
    may(attr::qp_create::SRQ_HANDLE.id(), Kind::Object),
    may(attr::qp_create::SEND_CQ_HANDLE.id(), Kind::Object),
    may(attr::qp_create::RECV_CQ_HANDLE.id(), Kind::Object),
    may(attr::qp_create::IND_TABLE_HANDLE.id(), Kind::Object),
    must(attr::qp_create::USER_HANDLE.id(), Kind::In(8)),
    must(
        attr::qp_create::CAP.id(),
        Kind::In(size_of::<ib_uverbs_qp_cap>()),
    ),
    must(attr::qp_create::TYPE.id(), Kind::Const),
    may(
        attr::qp_create::FLAGS.id(),
        Kind::Flags(IB_UVERBS_QP_CREATE_SQ_SIG_ALL),
    ),
    may(attr::qp_create::SOURCE_QPN.id(), Kind::In(4)),
    may(attr::qp_create::EVENT_FD.id(), Kind::Fd),
    must(
        attr::qp_create::RESP_CAP.id(),
        Kind::Out(size_of::<ib_uverbs_qp_cap>()),
    ),
    must(attr::qp_create::RESP_QP_NUM.id(), Kind::Out(4)),
    UHW_IN,
    UHW_OUT,
];

const QP_DESTROY: &[Spec] = &[
    must(attr::qp_destroy::HANDLE.id(), Kind::Object),
    must(
        attr::qp_destroy::RESP.id(),
        Kind::Out(size_of::<ib_uverbs_destroy_qp_resp>()),
    ),
];

const SRQ_CREATE: &[Spec] = &[
    must(attr::srq_create::HANDLE.id(), Kind::NewObject),
    must(attr::srq_create::PD_HANDLE.id(), Kind::Object),
    may(attr::srq_create::XRCD_HANDLE.id(), Kind::Object),
    may(attr::srq_create::CQ_HANDLE.id(), Kind::Object),
    must(attr::srq_create::USER_HANDLE.id(), Kind::In(8)),
    must(attr::srq_create::MAX_WR.id(), Kind::In(4)),
    must(attr::srq_create::MAX_SGE.id(), Kind::In(4)),
    must(attr::srq_create::LIMIT.id(), Kind::In(4)),
    may(attr::srq_create::MAX_NUM_TAGS.id(), Kind::In(4)),
    must(attr::srq_create::TYPE.id(), Kind::Const),
    may(attr::srq_create::EVENT_FD.id(), Kind::Fd),
    must(attr::srq_create::RESP_MAX_WR.id(), Kind::Out(4)),
    must(attr::srq_create::RESP_MAX_SGE.id(), Kind::Out(4)),
    may(attr::srq_create::RESP_SRQ_NUM.id(), Kind::Out(4)),
    UHW_IN,
    UHW_OUT,
];

const SRQ_DESTROY: &[Spec] = &[
    must(attr::srq_destroy::HANDLE.id(), Kind::Object),
    must(
        attr::srq_destroy::RESP.id(),
        Kind::Out(size_of::<ib_uverbs_destroy_srq_resp>()),
    ),
];

const WQ_CREATE: &[Spec] = &[
    must(attr::wq_create::HANDLE.id(), Kind::NewObject),
    must(attr::wq_create::PD_HANDLE.id(), Kind::Object),
    may(attr::wq_create::CQ_HANDLE.id(), Kind::Object),
    must(attr::wq_create::USER_HANDLE.id(), Kind::In(8)),
    must(attr::wq_create::TYPE.id(), Kind::Const),
    may(attr::wq_create::EVENT_FD.id(), Kind::Fd),
    must(attr::wq_create::MAX_WR.id(), Kind::In(4)),
    must(attr::wq_create::MAX_SGE.id(), Kind::In(4)),
    must(attr::wq_create::FLAGS.id(), Kind::Flags(0xF)),
    must(attr::wq_create::RESP_MAX_WR.id(), Kind::Out(4)),
    must(attr::wq_create::RESP_MAX_SGE.id(), Kind::Out(4)),
    may(attr::wq_create::RESP_WQ_NUM.id(), Kind::Out(4)),
    UHW_IN,
    UHW_OUT,
];

const WQ_DESTROY: &[Spec] = &[
    must(attr::wq_destroy::HANDLE.id(), Kind::Object),
    must(attr::wq_destroy::RESP.id(), Kind::Out(4)),
];

const ASYNC_EVENT_ALLOC: &[Spec] = &[must(attr::async_event_alloc::FD_HANDLE.id(), Kind::NewFd)];

/// The methods that this kernel knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    InvokeWrite,
    QueryPort,
    GetContext,
    QueryContext,
    QueryGidTable,
    QueryGidEntry,
    AllocAsyncEvents,
    CreateCq,
    CreateQp,
    CreateSrq,
    CreateWq,
    DestroyPd,
    DestroyMr,
    DestroyCq,
    DestroyQp,
    DestroySrq,
    DestroyWq,
}

impl Method {
    /// Whether a removed device answers it all the same.
    pub(super) const fn is_destroy(self) -> bool {
        matches!(
            self,
            Self::DestroyPd
                | Self::DestroyMr
                | Self::DestroyCq
                | Self::DestroyQp
                | Self::DestroySrq
                | Self::DestroyWq
        )
    }

    /// Whether only a device with work queues has it.
    pub(super) const fn is_about_work_queues(self) -> bool {
        matches!(self, Self::CreateWq | Self::DestroyWq)
    }
}

/// Looks a method up, with what it takes.
pub(super) fn find(object_id: u16, method_id: u16) -> Option<(Method, &'static [Spec])> {
    use method::{async_event, cq, device, mr, pd, qp, srq, wq};
    Some(match (object_id, method_id) {
        (object::DEVICE, device::INVOKE_WRITE) => (Method::InvokeWrite, INVOKE_WRITE),
        (object::DEVICE, device::QUERY_PORT) => (Method::QueryPort, QUERY_PORT),
        (object::DEVICE, device::GET_CONTEXT) => (Method::GetContext, CONTEXT),
        (object::DEVICE, device::QUERY_CONTEXT) => (Method::QueryContext, CONTEXT),
        (object::DEVICE, device::QUERY_GID_TABLE) => (Method::QueryGidTable, QUERY_GID_TABLE),
        (object::DEVICE, device::QUERY_GID_ENTRY) => (Method::QueryGidEntry, QUERY_GID_ENTRY),
        (object::ASYNC_EVENT, async_event::ALLOC) => (Method::AllocAsyncEvents, ASYNC_EVENT_ALLOC),
        (object::CQ, cq::CREATE) => (Method::CreateCq, CQ_CREATE),
        (object::QP, qp::CREATE) => (Method::CreateQp, QP_CREATE),
        (object::SRQ, srq::CREATE) => (Method::CreateSrq, SRQ_CREATE),
        (object::WQ, wq::CREATE) => (Method::CreateWq, WQ_CREATE),
        (object::PD, pd::DESTROY) => (Method::DestroyPd, DESTROY),
        (object::MR, mr::DESTROY) => (Method::DestroyMr, DESTROY),
        (object::CQ, cq::DESTROY) => (Method::DestroyCq, CQ_DESTROY),
        (object::QP, qp::DESTROY) => (Method::DestroyQp, QP_DESTROY),
        (object::SRQ, srq::DESTROY) => (Method::DestroySrq, SRQ_DESTROY),
        (object::WQ, wq::DESTROY) => (Method::DestroyWq, WQ_DESTROY),
        _ => return None,
    })
}

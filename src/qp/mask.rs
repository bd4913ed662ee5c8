//! Attributes of a queue pair as a set.
//!
//! Ground truth: `enum ib_qp_attr_mask` (`include/rdma/ib_verbs.h`); names as there, without `IB_QP_`.

use std::fmt;

use bitflags::bitflags;
use uverbs_abi::layout::verbs as raw;

bitflags! {
    /// Attributes of a queue pair as a set (`enum ib_qp_attr_mask`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
    #[doc(alias = "ibv_qp_attr_mask")]
    pub struct QpAttrMask: u32 {
        /// The state to go to.
        const STATE = raw::IB_QP_STATE;
        /// The state that it is assumed to be in.
        const CUR_STATE = raw::IB_QP_CUR_STATE;
        /// Whether to be told that the send queue has drained.
        const EN_SQD_ASYNC_NOTIFY = raw::IB_QP_EN_SQD_ASYNC_NOTIFY;
        /// What peers may do.
        const ACCESS_FLAGS = raw::IB_QP_ACCESS_FLAGS;
        /// Index of the P_Key.
        const PKEY_INDEX = raw::IB_QP_PKEY_INDEX;
        /// The own port.
        const PORT = raw::IB_QP_PORT;
        /// Q_Key.
        const QKEY = raw::IB_QP_QKEY;
        /// The way to the peer.
        const AV = raw::IB_QP_AV;
        /// Path MTU.
        const PATH_MTU = raw::IB_QP_PATH_MTU;
        /// Local ack timeout.
        const TIMEOUT = raw::IB_QP_TIMEOUT;
        /// Retry counter.
        const RETRY_CNT = raw::IB_QP_RETRY_CNT;
        /// RNR retry counter.
        const RNR_RETRY = raw::IB_QP_RNR_RETRY;
        /// First packet sequence number expected.
        const RQ_PSN = raw::IB_QP_RQ_PSN;
        /// RDMA READs and atomics under way.
        const MAX_QP_RD_ATOMIC = raw::IB_QP_MAX_QP_RD_ATOMIC;
        /// The alternate path.
        const ALT_PATH = raw::IB_QP_ALT_PATH;
        /// RNR NAK timer.
        const MIN_RNR_TIMER = raw::IB_QP_MIN_RNR_TIMER;
        /// First packet sequence number sent.
        const SQ_PSN = raw::IB_QP_SQ_PSN;
        /// RDMA READs and atomics served.
        const MAX_DEST_RD_ATOMIC = raw::IB_QP_MAX_DEST_RD_ATOMIC;
        /// Path migration.
        const PATH_MIG_STATE = raw::IB_QP_PATH_MIG_STATE;
        /// Sizes of the queues.
        const CAP = raw::IB_QP_CAP;
        /// The peer's queue pair.
        const DEST_QPN = raw::IB_QP_DEST_QPN;
    }
}

impl fmt::Display for QpAttrMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lead = "";
        for (name, _) in self.iter_names() {
            write!(f, "{lead}{name}")?;
            lead = ", ";
        }
        Ok(())
    }
}

impl fmt::Debug for QpAttrMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QpAttrMask({self})")
    }
}

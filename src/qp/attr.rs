//! Attributes of a queue pair, to be set or as the kernel gives them.
//!
//! Ground truth: `struct ib_uverbs_modify_qp`, `struct ib_uverbs_query_qp_resp`;
//! `ibv_modify_qp(3)`.

use std::fmt;

use uverbs_abi::layout::cmd::{ib_uverbs_modify_qp, ib_uverbs_qp_dest, ib_uverbs_query_qp_resp};
use uverbs_providers::types::{AccessFlags, Mtu, QpCaps, QpNum, QpState};

use super::QpAttrMask;
use super::timer::{AckTimeout, RnrTimer};
use crate::gid::Gid;

/// The global part of a path: needed on Ethernet, and between subnets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_global_route")]
pub struct GlobalRoute {
    /// The peer's address.
    pub dgid: Gid,
    /// Index of the own address in the port's GID table.
    pub sgid_index: u8,
    /// Routers that a packet may pass; 64 is ordinary, and 1 stops at the first.
    pub hop_limit: u8,
    /// Traffic class: DSCP and ECN bits on RoCE v2.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
}

/// The way to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "ibv_ah_attr")]
pub struct AddressVector {
    /// The own port, counted from 1.
    pub port: u8,
    /// The global part.
    pub global: Option<GlobalRoute>,
    /// The peer's local id (InfiniBand).
    pub dlid: u16,
    /// Service level, 0 to 15.
    pub sl: u8,
    /// Low bits of the own local id.
    pub src_path_bits: u8,
    /// Limit of the rate, as a code; 0 for none.
    pub static_rate: u8,
}

/// The fields by name; those that are 0 nearly always are left out then.
impl fmt::Display for AddressVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            port,
            global,
            dlid,
            sl,
            src_path_bits,
            static_rate,
        } = self;
        write!(f, "(port {port}")?;
        match global {
            Some(GlobalRoute {
                dgid,
                sgid_index,
                hop_limit,
                traffic_class,
                flow_label,
            }) => write!(
                f,
                ", dgid {dgid}, sgid_index {sgid_index}, hop_limit {hop_limit}, traffic_class \
                 {traffic_class}, flow_label {flow_label}"
            )?,
            None => f.write_str(", no global part")?,
        }
        write!(f, ", dlid {dlid}, sl {sl}")?;
        for (name, value) in [
            ("src_path_bits", src_path_bits),
            ("static_rate", static_rate),
        ] {
            if *value != 0 {
                write!(f, ", {name} {value}")?;
            }
        }
        f.write_str(")")
    }
}

impl AddressVector {
    fn to_raw(self) -> ib_uverbs_qp_dest {
        let mut dest = ib_uverbs_qp_dest {
            dlid: self.dlid,
            sl: self.sl,
            src_path_bits: self.src_path_bits,
            static_rate: self.static_rate,
            port_num: self.port,
            ..Default::default()
        };
        if let Some(global) = self.global {
            dest.is_global = 1;
            dest.dgid = global.dgid.0;
            dest.sgid_index = global.sgid_index;
            dest.hop_limit = global.hop_limit;
            dest.traffic_class = global.traffic_class;
            dest.flow_label = global.flow_label;
        }
        dest
    }

    fn from_raw(dest: &ib_uverbs_qp_dest) -> Self {
        let global = (dest.is_global != 0).then_some(GlobalRoute {
            dgid: Gid(dest.dgid),
            sgid_index: dest.sgid_index,
            hop_limit: dest.hop_limit,
            traffic_class: dest.traffic_class,
            flow_label: dest.flow_label,
        });
        Self {
            port: dest.port_num,
            global,
            dlid: dest.dlid,
            sl: dest.sl,
            src_path_bits: dest.src_path_bits,
            static_rate: dest.static_rate,
        }
    }
}

macro_rules! qp_attr {
    ($($(#[$doc:meta])* $field:ident: $type:ty, $bit:ident;)+) => {
        /// Attributes to be set by [`modify`](crate::QueuePair::modify): those that are `Some`.
        ///
        /// Which are needed, and which allowed, depends on the transition and the transport; what is
        /// missing or superfluous is named before the kernel is asked.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        #[doc(alias = "ibv_qp_attr")]
        pub struct QpAttr {
            $($(#[$doc])* pub $field: Option<$type>,)+
        }

        impl QpAttr {
            /// Which are set.
            #[must_use]
            pub fn mask(&self) -> QpAttrMask {
                let mut mask = QpAttrMask::empty();
                $(if self.$field.is_some() {
                    mask |= QpAttrMask::$bit;
                })+
                mask
            }
        }

        /// Those that are set, with their values.
        impl fmt::Display for QpAttr {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut lead = "";
                $(if let Some(value) = &self.$field {
                    write!(f, "{lead}{} {value}", stringify!($field))?;
                    lead = ", ";
                })+
                if lead.is_empty() {
                    f.write_str("none")?;
                }
                Ok(())
            }
        }
    };
}

qp_attr! {
    /// The state to go to.
    state: QpState, STATE;
    /// The state that it is assumed to be in.
    cur_state: QpState, CUR_STATE;
    /// Whether the SQD transition is to raise SQ_DRAINED (rxe raises it in any case).
    en_sqd_async_notify: bool, EN_SQD_ASYNC_NOTIFY;
    /// What peers may do.
    access: AccessFlags, ACCESS_FLAGS;
    /// Index of the P_Key in the port's table.
    pkey_index: u16, PKEY_INDEX;
    /// The own port, counted from 1.
    port: u8, PORT;
    /// Q_Key (datagram transports).
    qkey: u32, QKEY;
    /// The way to the peer.
    path: AddressVector, AV;
    /// Path MTU: at most that of both ports.
    path_mtu: Mtu, PATH_MTU;
    /// How long to wait for an acknowledgement.
    timeout: AckTimeout, TIMEOUT;
    /// How often to send again without any answer, 0 to 7.
    retry_count: u8, RETRY_CNT;
    /// How often to send again to a peer without a receive posted, 0 to 6; 7 is without end.
    rnr_retry: u8, RNR_RETRY;
    /// First packet sequence number to expect, 24 bits.
    rq_psn: u32, RQ_PSN;
    /// RDMA READs and atomics to have under way at once.
    max_rd_atomic: u8, MAX_QP_RD_ATOMIC;
    /// How long a peer is to wait when no receive is posted here.
    min_rnr_timer: RnrTimer, MIN_RNR_TIMER;
    /// First packet sequence number to send, 24 bits.
    sq_psn: u32, SQ_PSN;
    /// RDMA READs and atomics to serve at once.
    max_dest_rd_atomic: u8, MAX_DEST_RD_ATOMIC;
    /// The peer's queue pair.
    dest_qp_num: QpNum, DEST_QPN;
}

impl QpAttr {
    /// Only a change of state.
    #[must_use]
    pub fn to_state(state: QpState) -> Self {
        Self {
            state: Some(state),
            ..Self::default()
        }
    }

    pub(super) fn to_raw(self) -> ib_uverbs_modify_qp {
        ib_uverbs_modify_qp {
            attr_mask: self.mask().bits(),
            dest: self.path.map(AddressVector::to_raw).unwrap_or_default(),
            qkey: self.qkey.unwrap_or_default(),
            rq_psn: self.rq_psn.unwrap_or_default(),
            sq_psn: self.sq_psn.unwrap_or_default(),
            dest_qp_num: self.dest_qp_num.unwrap_or_default().0,
            qp_access_flags: self.access.unwrap_or_default().bits(),
            pkey_index: self.pkey_index.unwrap_or_default(),
            qp_state: self.state.map_or(0, QpState::raw),
            cur_qp_state: self.cur_state.map_or(0, QpState::raw),
            path_mtu: self.path_mtu.map_or(0, Mtu::raw),
            en_sqd_async_notify: u8::from(self.en_sqd_async_notify.unwrap_or_default()),
            max_rd_atomic: self.max_rd_atomic.unwrap_or_default(),
            max_dest_rd_atomic: self.max_dest_rd_atomic.unwrap_or_default(),
            min_rnr_timer: self.min_rnr_timer.map_or(0, RnrTimer::code),
            port_num: self.port.unwrap_or_default(),
            timeout: self.timeout.map_or(0, AckTimeout::code),
            retry_cnt: self.retry_count.unwrap_or_default(),
            rnr_retry: self.rnr_retry.unwrap_or_default(),
            ..Default::default()
        }
    }
}

/// A queue pair as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpInfo {
    /// Its state; `None` for a number that is none of the seven.
    pub state: Option<QpState>,
    /// Sizes of its queues.
    pub caps: QpCaps,
    /// What peers may do.
    pub access: AccessFlags,
    /// Index of the P_Key.
    pub pkey_index: u16,
    /// The own port.
    pub port: u8,
    /// Q_Key.
    pub qkey: u32,
    /// The way to the peer.
    pub path: AddressVector,
    /// Path MTU, once it is set.
    pub path_mtu: Option<Mtu>,
    /// How long it waits for an acknowledgement.
    pub timeout: AckTimeout,
    /// How often it sends again without any answer.
    pub retry_count: u8,
    /// How often it sends again to a peer without a receive posted.
    pub rnr_retry: u8,
    /// First packet sequence number expected.
    pub rq_psn: u32,
    /// First packet sequence number sent.
    pub sq_psn: u32,
    /// RDMA READs and atomics under way at once.
    pub max_rd_atomic: u8,
    /// RDMA READs and atomics served at once.
    pub max_dest_rd_atomic: u8,
    /// How long a peer is to wait when no receive is posted here.
    pub min_rnr_timer: RnrTimer,
    /// The peer's queue pair.
    pub dest_qp_num: QpNum,
    /// Whether the send queue is draining.
    pub sq_draining: bool,
    /// Whether every send request makes a completion.
    pub signal_all: bool,
}

impl From<ib_uverbs_query_qp_resp> for QpInfo {
    fn from(raw: ib_uverbs_query_qp_resp) -> Self {
        Self {
            state: QpState::from_raw(raw.qp_state),
            caps: QpCaps {
                max_send_wr: raw.max_send_wr,
                max_recv_wr: raw.max_recv_wr,
                max_send_sge: raw.max_send_sge,
                max_recv_sge: raw.max_recv_sge,
                max_inline_data: raw.max_inline_data,
            },
            access: AccessFlags::from_bits_retain(raw.qp_access_flags),
            pkey_index: raw.pkey_index,
            port: raw.port_num,
            qkey: raw.qkey,
            path: AddressVector::from_raw(&raw.dest),
            path_mtu: Mtu::from_raw(raw.path_mtu),
            timeout: AckTimeout::from_code(raw.timeout),
            retry_count: raw.retry_cnt,
            rnr_retry: raw.rnr_retry,
            rq_psn: raw.rq_psn,
            sq_psn: raw.sq_psn,
            max_rd_atomic: raw.max_rd_atomic,
            max_dest_rd_atomic: raw.max_dest_rd_atomic,
            min_rnr_timer: RnrTimer::from_code(raw.min_rnr_timer),
            dest_qp_num: QpNum(raw.dest_qp_num),
            sq_draining: raw.sq_draining != 0,
            signal_all: raw.sq_sig_all != 0,
        }
    }
}

//! From RESET to RTS in two calls, with the other end's word between them.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::Duration;

use thiserror::Error;
use uverbs_abi::{Errno, Explain, Report};
use uverbs_providers::types::{AccessFlags, Mtu, QpNum, QpState};

use super::{
    AckTimeout, AddressVector, Endpoint, GlobalRoute, ModifyError, QpAttr, QueuePair, Rc, RnrTimer,
};
use crate::attr::LinkLayer;
use crate::error::{ObjectError, QueryError, into_io};
use crate::gid::Gid;

/// Where a queue pair is to be reached, and what peers may do there.
#[derive(Clone, Copy, Debug)]
pub struct PathOptions {
    /// The port, counted from 1. Default: 1.
    pub port: u8,
    /// The own address. Default: `None`, which takes [`Context::routable_gid`](crate::Context::routable_gid):
    /// global before link-local, RoCE v2 before v1, and of equals the first in the table.
    pub gid: Option<Gid>,
    /// Index of the P_Key in the port's table. Default: 0.
    pub pkey_index: u16,
    /// What peers may do through this queue pair. Default: write, read and do atomics; each region's
    /// own access flags still decide.
    pub access: AccessFlags,
    /// RDMA READs and atomics to serve at once. Default: 16.
    pub max_dest_rd_atomic: u8,
    /// First packet sequence number to send, 24 bits. Default: `None`, one at random.
    pub psn: Option<u32>,
}

impl Default for PathOptions {
    fn default() -> Self {
        Self {
            port: 1,
            gid: None,
            pkey_index: 0,
            access: AccessFlags::REMOTE_WRITE
                | AccessFlags::REMOTE_READ
                | AccessFlags::REMOTE_ATOMIC
                | AccessFlags::LOCAL_WRITE,
            max_dest_rd_atomic: 16,
            psn: None,
        }
    }
}

/// How a connection is to behave.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// How long to wait for an acknowledgement before sending again. Default: 67 ms.
    pub timeout: AckTimeout,
    /// How often to send again without any answer, 0 to 7. Default: 6. On rxe 7 means without end: a
    /// peer that is gone is then never told.
    pub retry_count: u8,
    /// How often to send again to a peer without a receive posted, 0 to 6; 7 is without end.
    /// Default: 7, so that a SEND waits for ever for a receive.
    pub rnr_retry: u8,
    /// How long the peer is to wait when no receive is posted here. Default: 640 µs.
    pub min_rnr_timer: RnrTimer,
    /// RDMA READs and atomics to have under way at once; no more than the peer serves are used.
    /// Default: 16.
    pub max_rd_atomic: u8,
    /// Largest path MTU to use; no more than both ports do is used. Default: 4,096.
    pub path_mtu: Mtu,
    /// Routers that a packet may pass. Default: 64.
    pub hop_limit: u8,
    /// Traffic class. Default: 0.
    pub traffic_class: u8,
    /// Flow label, 20 bits. Default: 0.
    pub flow_label: u32,
    /// Service level, 0 to 15. Default: 0.
    pub sl: u8,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            timeout: AckTimeout::at_least(Duration::from_millis(67)),
            retry_count: 6,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::at_least(Duration::from_micros(640)),
            max_rd_atomic: 16,
            path_mtu: Mtu::Mtu4096,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            sl: 0,
        }
    }
}

/// A queue pair was not brought further.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The port could not be asked.
    #[error("{source}")]
    Port {
        /// The port.
        port: u8,
        /// The refusal.
        source: QueryError,
    },
    /// An option, or an endpoint's number, has no room in its field. Nothing was asked of the kernel.
    #[error("{name} {asked} is out of range: 0 to {most}")]
    OutOfRange {
        /// Which.
        name: &'static str,
        /// What was given.
        asked: u32,
        /// The most there is.
        most: u32,
    },
    /// The port has no such address, or none at all.
    #[error("port {port} has {}", missing_gid(*gid))]
    NoGid {
        /// The port.
        port: u8,
        /// The address asked for.
        gid: Option<Gid>,
    },
    /// The address stands too far back in the port's table for a queue pair to name it.
    #[error("the GID stands at index {index} of the port's table; a queue pair can name up to 255")]
    GidIndex {
        /// Its index.
        index: u32,
    },
    /// The port does an MTU that this crate does not know.
    #[error("port {port} does not say which MTU it does")]
    NoMtu {
        /// The port.
        port: u8,
    },
    /// The queue pair is not in INIT, where connecting begins.
    #[error("queue pair {qp_num} is in {state}{}; {}", to_whom(peer), from_init(*state))]
    NotInInit {
        /// The queue pair.
        qp_num: QpNum,
        /// The state that it is in.
        state: QpState,
        /// The peer that it is connected to, if it has got that far.
        peer: Option<(QpNum, Option<Gid>)>,
    },
    /// What was given as the local endpoint is another queue pair's.
    #[error("{}{}", whose_local(*qp_num, *given), if *exchanged { "; local and remote are exchanged" } else { "" })]
    NotLocal {
        /// The queue pair.
        qp_num: QpNum,
        /// Of the endpoint that was given.
        given: QpNum,
        /// Whether the remote endpoint is the queue pair's own.
        exchanged: bool,
    },
    /// The queue pair could not be asked for its own attributes.
    #[error("cannot ask for the attributes of {0}")]
    Query(#[from] ObjectError),
    /// A transition failed.
    #[error(transparent)]
    Modify(#[from] ModifyError),
}

fn missing_gid(gid: Option<Gid>) -> String {
    match gid {
        Some(gid) => format!("no GID {gid}"),
        None => "no GID: give its network interface an address".to_owned(),
    }
}

fn whose_local(qp_num: QpNum, given: QpNum) -> String {
    if qp_num == given {
        format!("the local endpoint is that of another queue pair {given}, elsewhere")
    } else {
        format!("the local endpoint is that of queue pair {given}, this is queue pair {qp_num}")
    }
}

fn to_whom(peer: &Option<(QpNum, Option<Gid>)>) -> String {
    match peer {
        Some((qp_num, Some(gid))) => format!(", connected to queue pair {qp_num} at {gid}"),
        Some((qp_num, None)) => format!(", connected to queue pair {qp_num}"),
        None => String::new(),
    }
}

const fn from_init(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "call `prepare` first",
        _ => "connecting begins in INIT: `modify` it to RESET, then `prepare` it again",
    }
}

impl Explain for ConnectError {
    fn errno(&self) -> Option<Errno> {
        match self {
            Self::Port { source, .. } => source.errno(),
            Self::Query(error) => error.errno(),
            Self::Modify(error) => error.errno(),
            _ => None,
        }
    }

    fn explain(&self, report: &mut Report) {
        match self {
            Self::Port { source, .. } => source.explain(report),
            Self::Query(error) => error.explain(report),
            Self::Modify(error) => error.explain(report),
            Self::OutOfRange { name, .. } => {
                report.meaning(format!(
                    "by the specification the field for {name} has no more bits"
                ));
                report.next(format!(
                    "correct {name}: `PathOptions`, `ConnectOptions` and `Endpoint` tell the ranges"
                ));
            }
            Self::NoGid { gid: Some(_), .. } => {
                report.cause("it is not an address of this port's interface, and never was");
                report.cause("the address was removed, or the interface went down, meanwhile");
                report
                    .next("`Context::gids` lists what there is; prepare (again) with one of those");
            }
            Self::NoGid { gid: None, .. } => {
                report.cause("the interface is down, or has no address yet: DHCP takes its time");
                report.next("give the interface an address: each becomes a GID");
            }
            Self::GidIndex { .. } => {
                report.meaning("the field for it has 8 bits");
                report.next("take addresses that are not needed off the interface");
            }
            Self::NoMtu { .. } => {
                report.cause("a driver newer than this crate");
                report.next("report it, with the device's driver");
            }
            Self::NotInInit { state, .. } => {
                report.meaning(
                    "`connect` leads from INIT over RTR to RTS, and begins in no other state",
                );
                match state {
                    QpState::Reset => {
                        report.cause("`prepare` was not called, or RESET came after it");
                    }
                    QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => {
                        report.cause("`connect` was called before, here or in another thread");
                        report.cause("it failed half-way, after RTR");
                    }
                    QpState::Init | QpState::Err => {
                        report.cause("a request failed, or something moved it to ERR");
                    }
                }
                if *state == QpState::Reset {
                    report.next("call `prepare`, and give the peer what it returns");
                }
                report.next(
                    "an endpoint from before RESET is void: the peer needs the one that `prepare` \
                     gives then",
                );
            }
            Self::NotLocal { exchanged, .. } => {
                report.meaning(
                    "`local` is what `prepare` of this queue pair gave, `remote` the peer's",
                );
                report.cause(if *exchanged {
                    "the first two arguments of `connect` are in the wrong order"
                } else {
                    "endpoints of several queue pairs were mixed up"
                });
            }
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Port { source, .. } => source.kind(),
            Self::Query(error) => error.kind(),
            Self::Modify(error) => error.kind(),
            Self::NoGid { .. } | Self::GidIndex { .. } => io::ErrorKind::AddrNotAvailable,
            Self::NoMtu { .. } => io::ErrorKind::Unsupported,
            Self::OutOfRange { .. } | Self::NotInInit { .. } | Self::NotLocal { .. } => {
                io::ErrorKind::InvalidInput
            }
        }
    }
}

into_io!(ConnectError);

const BITS_24: u32 = 0xFF_FFFF;
const BITS_20: u32 = 0xF_FFFF;

/// Refuses a value that its field has no room for. Whether a kernel or a device would take it, cut, is
/// not asked: it would not be what was asked for.
fn in_range(values: &[(&'static str, u32, u32)]) -> Result<(), ConnectError> {
    let above = values.iter().find(|(_, asked, most)| asked > most);
    match above.copied() {
        None => Ok(()),
        Some((name, asked, most)) => Err(ConnectError::OutOfRange { name, asked, most }),
    }
}

impl QueuePair<Rc> {
    /// Moves it from RESET (or INIT) to INIT, so that receives can be posted, and gives what the peer
    /// must know; of several the last counts. Hand that to the peer, and the peer's to [`connect`](Self::connect).
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn prepare(&self, options: &PathOptions) -> Result<Endpoint, ConnectError> {
        in_range(&[("psn", options.psn.unwrap_or_default(), BITS_24)])?;
        let context = self.pd().context();
        let port = options.port;
        let query = |source| ConnectError::Port { port, source };
        let attr = context.query_port(port).map_err(query)?;
        let mtu = attr.active_mtu.ok_or(ConnectError::NoMtu { port })?;
        let entry = match options.gid {
            Some(gid) => context.find_gid(port, gid),
            None => context.routable_gid(port),
        };
        let entry = entry.map_err(query)?;
        let entry = entry.ok_or(ConnectError::NoGid {
            port,
            gid: options.gid,
        })?;
        self.modify(&QpAttr {
            port: Some(port),
            pkey_index: Some(options.pkey_index),
            access: Some(options.access),
            ..QpAttr::to_state(QpState::Init)
        })?;
        let psn = options
            .psn
            .unwrap_or_else(|| low_24(RandomState::new().hash_one(self.qp_num())));
        Ok(Endpoint {
            qp_num: self.qp_num(),
            psn,
            gid: entry.gid,
            lid: attr.lid,
            mtu,
            max_dest_rd_atomic: options.max_dest_rd_atomic,
        })
    }

    /// Moves it from INIT over RTR to RTS, connected to `remote`. `local` is what
    /// [`prepare`](Self::prepare) gave. A queue pair may be its own peer.
    ///
    /// The kernel looks the peer's network address up meanwhile, which can take seconds. As the
    /// options are by default, a SEND waits for ever for the peer to post a receive
    /// ([`rnr_retry`](ConnectOptions::rnr_retry)), and a peer that is gone is told within a second
    /// or so. With a peer that serves no RDMA READs and atomics (`max_dest_rd_atomic` 0) they are
    /// refused when posted, with [`NoReads`](crate::PostCause::NoReads).
    ///
    /// # Errors
    /// [`ConnectError`]; the queue pair stays where it got to.
    pub fn connect(
        &self,
        local: &Endpoint,
        remote: &Endpoint,
        options: &ConnectOptions,
    ) -> Result<(), ConnectError> {
        in_range(&[
            ("retry_count", options.retry_count.into(), 7),
            ("rnr_retry", options.rnr_retry.into(), 7),
            ("sl", options.sl.into(), 15),
            ("flow_label", options.flow_label, BITS_20),
            ("the local endpoint's psn", local.psn, BITS_24),
            ("the remote endpoint's psn", remote.psn, BITS_24),
        ])?;
        let context = self.pd().context();
        let qp_num = self.qp_num();
        if local.qp_num != qp_num {
            return Err(ConnectError::NotLocal {
                qp_num,
                given: local.qp_num,
                exchanged: remote.qp_num == qp_num,
            });
        }
        // The kernel need not be asked for what this handle has brought about.
        let port = match self.inner.port_if_in(QpState::Init) {
            Some(port) => port,
            None => self.port_in_init()?,
        };
        let query = |source| ConnectError::Port { port, source };
        // A peer without a LID is reached by its GID, whatever the port is.
        let is_global = remote.lid == 0 || {
            let attr = context.query_port(port).map_err(query)?;
            attr.link_layer == LinkLayer::Ethernet || attr.grh_required
        };
        // The index is looked up now: addresses that come and go move the others.
        let entry = context.find_gid(port, local.gid).map_err(query)?;
        let Some(entry) = entry else {
            // Queue pairs of two hosts may well have one number.
            let exchanged = remote.qp_num == qp_num
                && matches!(context.find_gid(port, remote.gid), Ok(Some(_)));
            return Err(if exchanged {
                let given = local.qp_num;
                ConnectError::NotLocal {
                    qp_num,
                    given,
                    exchanged,
                }
            } else {
                let gid = Some(local.gid);
                ConnectError::NoGid { port, gid }
            });
        };
        let sgid_index =
            u8::try_from(entry.index).map_err(|_| ConnectError::GidIndex { index: entry.index })?;
        let global = is_global.then_some(GlobalRoute {
            dgid: remote.gid,
            sgid_index,
            hop_limit: options.hop_limit,
            traffic_class: options.traffic_class,
            flow_label: options.flow_label,
        });
        let to_rtr = self.modify(&QpAttr {
            path: Some(AddressVector {
                port,
                global,
                dlid: remote.lid,
                sl: options.sl,
                ..AddressVector::default()
            }),
            path_mtu: Some(options.path_mtu.min(local.mtu).min(remote.mtu)),
            dest_qp_num: Some(remote.qp_num),
            rq_psn: Some(remote.psn),
            max_dest_rd_atomic: Some(local.max_dest_rd_atomic),
            min_rnr_timer: Some(options.min_rnr_timer),
            ..QpAttr::to_state(QpState::Rtr)
        });
        if let Err(refusal) = to_rtr {
            // Not in INIT any more says more than what was refused for it.
            return Err(match self.port_in_init() {
                Err(why @ ConnectError::NotInInit { .. }) => why,
                _ => refusal.into(),
            });
        }
        self.modify(&QpAttr {
            timeout: Some(options.timeout),
            retry_count: Some(options.retry_count),
            rnr_retry: Some(options.rnr_retry),
            sq_psn: Some(local.psn),
            max_rd_atomic: Some(options.max_rd_atomic.min(remote.max_dest_rd_atomic)),
            ..QpAttr::to_state(QpState::Rts)
        })?;
        Ok(())
    }

    /// The port, as the kernel has it; fails if the queue pair is not in INIT.
    fn port_in_init(&self) -> Result<u8, ConnectError> {
        let info = self.query()?;
        if let Some(state) = info.state.filter(|state| *state != QpState::Init) {
            let connected = matches!(state, QpState::Rtr | QpState::Rts | QpState::Sqd);
            let peer = (info.dest_qp_num, info.path.global.map(|global| global.dgid));
            return Err(ConnectError::NotInInit {
                qp_num: self.qp_num(),
                state,
                peer: connected.then_some(peer),
            });
        }
        Ok(info.port)
    }
}

/// Any 24 bits of a random number.
fn low_24(random: u64) -> u32 {
    u32::try_from(random & u64::from(BITS_24)).unwrap_or(BITS_24)
}

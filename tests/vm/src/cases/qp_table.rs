//! Which attributes which transition takes: the library's verdict against the kernel's own.

use std::net::{IpAddr, Ipv4Addr};

use uverbs::abi::layout::cmd::{
    IB_USER_VERBS_CMD_MODIFY_QP, ib_uverbs_modify_qp, ib_uverbs_qp_dest,
};
use uverbs::abi::{Command, Session};
use uverbs::{
    AccessFlags, AckTimeout, Errno, Gid, ModifyErrorCause, Mtu, QpAttr, QpAttrMask, QpState,
    QueuePair, Rc, RnrTimer, Transport,
};

use super::pair::{End, Failure, Shape, Spy, ensure, open, same, wait_for};
use super::qp::{to_rtr, to_rts};
use super::{Case, CaseResult, Verdict};

pub(super) const CASES: &[Case] = &[
    Case::new("qp::modify_table_is_the_kernels", modify_table)
        .every_kernel()
        .limit_secs(180),
    sweep("teach::a_no_is_the_kernels_no_rc_from_reset", || {
        every_mask::<Rc>(RC, QpState::Reset)
    }),
    sweep("teach::a_no_is_the_kernels_no_rc_from_init", || {
        every_mask::<Rc>(RC, QpState::Init)
    }),
    sweep("teach::a_no_is_the_kernels_no_rc_from_rtr", || {
        every_mask::<Rc>(RC, QpState::Rtr)
    }),
    sweep("teach::a_no_is_the_kernels_no_rc_from_rts", || {
        every_mask::<Rc>(RC, QpState::Rts)
    }),
    sweep("teach::a_no_is_the_kernels_no_rc_from_sqd", || {
        every_mask::<Rc>(RC, QpState::Sqd)
    }),
    sweep("teach::a_no_is_the_kernels_no_rc_from_err", || {
        every_mask::<Rc>(RC, QpState::Err)
    }),
];

/// A part of the sweep: one state to go from. Nothing but a failed request leads to SQE.
const fn sweep(name: &'static str, run: fn() -> CaseResult) -> Case {
    Case::new(name, run)
        .every_kernel()
        .limit_secs(300)
        .limit_in_full_secs(3600)
}

const STATES: [QpState; 7] = [
    QpState::Reset,
    QpState::Init,
    QpState::Rtr,
    QpState::Rts,
    QpState::Sqd,
    QpState::Sqe,
    QpState::Err,
];

/// What the sweep must know of a transport beside its type: the attributes without which a transition
/// cannot be. A transport joins by such a row, and cases of its own.
type Row = fn(QpState, QpState) -> QpAttrMask;

const RC: Row = required_of_rc;

fn required_of_rc(from: QpState, to: QpState) -> QpAttrMask {
    use QpAttrMask as A;
    match (from, to) {
        (QpState::Reset, QpState::Init) => A::PKEY_INDEX | A::PORT | A::ACCESS_FLAGS,
        (QpState::Init, QpState::Rtr) => {
            A::AV | A::PATH_MTU | A::DEST_QPN | A::RQ_PSN | A::MAX_DEST_RD_ATOMIC | A::MIN_RNR_TIMER
        }
        (QpState::Rtr, QpState::Rts) => {
            A::TIMEOUT | A::RETRY_CNT | A::RNR_RETRY | A::SQ_PSN | A::MAX_QP_RD_ATOMIC
        }
        _ => A::empty(),
    }
}

/// Those attributes of `all` that the mask names.
fn chosen(all: &QpAttr, mask: QpAttrMask) -> QpAttr {
    use QpAttrMask as A;
    fn pick<T>(value: Option<T>, named: bool) -> Option<T> {
        value.filter(|_| named)
    }
    let has = |bit| mask.contains(bit);
    QpAttr {
        state: pick(all.state, has(A::STATE)),
        cur_state: pick(all.cur_state, has(A::CUR_STATE)),
        en_sqd_async_notify: pick(all.en_sqd_async_notify, has(A::EN_SQD_ASYNC_NOTIFY)),
        access: pick(all.access, has(A::ACCESS_FLAGS)),
        pkey_index: pick(all.pkey_index, has(A::PKEY_INDEX)),
        port: pick(all.port, has(A::PORT)),
        qkey: pick(all.qkey, has(A::QKEY)),
        path: pick(all.path, has(A::AV)),
        path_mtu: pick(all.path_mtu, has(A::PATH_MTU)),
        timeout: pick(all.timeout, has(A::TIMEOUT)),
        retry_count: pick(all.retry_count, has(A::RETRY_CNT)),
        rnr_retry: pick(all.rnr_retry, has(A::RNR_RETRY)),
        rq_psn: pick(all.rq_psn, has(A::RQ_PSN)),
        max_rd_atomic: pick(all.max_rd_atomic, has(A::MAX_QP_RD_ATOMIC)),
        min_rnr_timer: pick(all.min_rnr_timer, has(A::MIN_RNR_TIMER)),
        sq_psn: pick(all.sq_psn, has(A::SQ_PSN)),
        max_dest_rd_atomic: pick(all.max_dest_rd_atomic, has(A::MAX_DEST_RD_ATOMIC)),
        dest_qp_num: pick(all.dest_qp_num, has(A::DEST_QPN)),
    }
}

/// MODIFY_QP without the library's opinion.
fn ask_kernel(session: &Session, handle: u32, attr: &QpAttr) -> Result<(), Option<Errno>> {
    let mut dest = ib_uverbs_qp_dest::default();
    if let Some(path) = attr.path {
        dest.port_num = path.port;
        if let Some(global) = path.global {
            dest.is_global = 1;
            dest.dgid = global.dgid.0;
            dest.sgid_index = global.sgid_index;
            dest.hop_limit = global.hop_limit;
        }
    }
    let request = ib_uverbs_modify_qp {
        qp_handle: handle,
        attr_mask: attr.mask().bits(),
        dest,
        qkey: attr.qkey.unwrap_or_default(),
        rq_psn: attr.rq_psn.unwrap_or_default(),
        sq_psn: attr.sq_psn.unwrap_or_default(),
        dest_qp_num: attr.dest_qp_num.unwrap_or_default().0,
        qp_access_flags: attr.access.unwrap_or_default().bits(),
        pkey_index: attr.pkey_index.unwrap_or_default(),
        qp_state: attr.state.map_or(0, QpState::raw),
        cur_qp_state: attr.cur_state.map_or(0, QpState::raw),
        path_mtu: attr.path_mtu.map_or(0, Mtu::raw),
        max_rd_atomic: attr.max_rd_atomic.unwrap_or_default(),
        max_dest_rd_atomic: attr.max_dest_rd_atomic.unwrap_or_default(),
        min_rnr_timer: attr.min_rnr_timer.map_or(0, RnrTimer::code),
        port_num: attr.port.unwrap_or_default(),
        timeout: attr.timeout.map_or(0, AckTimeout::code),
        retry_cnt: attr.retry_count.unwrap_or_default(),
        rnr_retry: attr.rnr_retry.unwrap_or_default(),
        ..Default::default()
    };
    let mut command = Command::invoke_write("MODIFY_QP", IB_USER_VERBS_CMD_MODIFY_QP);
    session
        .run(command.core_in(&request))
        .map(drop)
        .map_err(|error| error.errno())
}

/// Brings a queue pair to a state, from whichever it is in.
fn bring<T: Transport>(
    qp: &QueuePair<T>,
    row: Row,
    all: &QpAttr,
    to: QpState,
) -> Result<(), Failure> {
    // A send queue that is still draining lets the queue pair go nowhere but to ERR.
    if qp.state()? != QpState::Reset {
        qp.modify(&QpAttr::to_state(QpState::Err))?;
        qp.modify(&QpAttr::to_state(QpState::Reset))?;
    }
    let mut at = QpState::Reset;
    let way: &[QpState] = match to {
        // RESET does not lead there.
        QpState::Err => &[QpState::Init, QpState::Err],
        _ => &[QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd],
    };
    for next in way {
        if at == to {
            break;
        }
        let attr = chosen(all, row(at, *next));
        qp.modify(&QpAttr {
            state: Some(*next),
            ..attr
        })?;
        at = *next;
    }
    if to == QpState::Sqd {
        wait_for("the send queue drained", || {
            Ok((!qp.query()?.sq_draining).then_some(()))
        })?;
    }
    same("on the way", qp.state()?, to)
}

/// Every transition with what it needs, with one attribute too few, and with one too many: a "no"
/// of ours is a "no" of the kernel's, and a "yes" a "yes".
fn modify_table() -> CaseResult {
    let (spy, context, session) = Spy::open("rxe0")?;
    let end = Shape::default().prepare(&context.alloc_pd()?)?;
    let peer = Shape::default().prepare(&open("rxe1")?.1)?;
    let handle = spy.last("QP_CREATE")?;
    let all = values(&end, &peer)?;
    let mut wrong = Vec::new();
    let mut tried = [0u32; 2];
    for from in STATES.into_iter().filter(|state| *state != QpState::Sqe) {
        let all = QpAttr {
            cur_state: Some(from),
            ..all
        };
        let mut settled = false;
        for to in STATES.into_iter().map(Some).chain([None]) {
            let all = QpAttr { state: to, ..all };
            let base = RC(from, to.unwrap_or(from))
                | if to.is_some() {
                    QpAttrMask::STATE
                } else {
                    QpAttrMask::empty()
                };
            let bits = all.mask() - QpAttrMask::STATE;
            let others = bits.iter().map(|bit| base ^ bit);
            for mask in [base].into_iter().chain(others) {
                if !settled {
                    bring(&end.qp, RC, &all, from)?;
                }
                let attr = chosen(&all, mask);
                let what = format!("{from} to {to:?} with {mask}");
                let ours = end.qp.modify(&attr);
                settled = false;
                match ours.map_err(|error| error.cause) {
                    Ok(()) => tried[0] += 1,
                    Err(ModifyErrorCause::Refused { refusal }) => {
                        wrong.push(format!("{what}: we say yes, the kernel {refusal}"));
                    }
                    // Without a state rxe looks at no attribute and takes whatever comes; the table,
                    // and drivers of hardware, do not.
                    Err(_) if to.is_none() => {
                        tried[1] += 1;
                        settled = true;
                    }
                    Err(cause) => match ask_kernel(&session, handle, &attr) {
                        Err(Some(Errno::EINVAL)) => {
                            tried[1] += 1;
                            settled = true;
                        }
                        verdict => wrong.push(format!("{what}: {cause}; the kernel {verdict:?}")),
                    },
                }
            }
        }
    }
    ensure(
        wrong.is_empty(),
        &format!("{} wrong: {}", wrong.len(), wrong.join("\n")),
    )?;
    ensure(
        tried[0] > 60 && tried[1] > 500,
        &format!("too few were tried: {tried:?}"),
    )?;
    Ok(Verdict::Passed)
}

/// A value for every attribute that the kernel and rxe look at, but for the states.
fn values(end: &End, peer: &End) -> Result<QpAttr, Failure> {
    let rts = to_rts(&end.endpoint);
    Ok(QpAttr {
        state: None,
        en_sqd_async_notify: Some(false),
        access: Some(AccessFlags::REMOTE_READ),
        pkey_index: Some(0),
        port: Some(1),
        qkey: Some(1),
        timeout: rts.timeout,
        retry_count: rts.retry_count,
        rnr_retry: rts.rnr_retry,
        sq_psn: rts.sq_psn,
        max_rd_atomic: rts.max_rd_atomic,
        ..to_rtr(&end.context, &end.endpoint, &peer.endpoint)?
    })
}

/// Attributes of which the sets are: all that `QpAttr` has but the state to go to, which is always
/// given.
const SETS: usize = 1 << 17;

/// A multicast address, of the family of the own one.
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 255, 0, 1));

/// Every set of attributes for every transition from a state: whatever is refused here the kernel
/// refuses with `EINVAL`, and says no more, while the error names what is missing or superfluous; and
/// whatever is not refused here the kernel takes. All 131,072 sets for each of the seven states to go to
/// with `--full`, otherwise every 509th, which are other sets for every pair of states.
fn every_mask<T: Transport>(row: Row, from: QpState) -> CaseResult {
    let (spy, context, session) = Spy::open("rxe0")?;
    let end = Shape::default().prepare(&context.alloc_pd()?)?;
    let peer = Shape::default().prepare(&open("rxe1")?.1)?;
    let mut values = QpAttr {
        cur_state: Some(from),
        ..values(&end, &peer)?
    };
    // The kernel looks a peer's network address up before it looks at the set, and that takes a hundred
    // times as long as all the rest. A group's it makes by itself; `modify_table` has a peer's.
    let path = values.path.as_mut().ok_or("no path")?;
    path.global.as_mut().ok_or("no global part")?.dgid = Gid::from(GROUP);
    let qp = end.pd.create_qp::<T>(&end.cq, &end.cq).build()?;
    let handle = spy.last("QP_CREATE")?;
    let stride = if crate::guest::full() { 1 } else { 509 };
    let mut wrong = Vec::new();
    let (mut yes, mut no) = (0usize, 0usize);
    let mut pair = STATES.len() * usize::from(from.raw());
    bring(&qp, row, &values, from)?;
    for to in STATES {
        let all = QpAttr {
            state: Some(to),
            ..values
        };
        let bits: Vec<_> = (all.mask() - QpAttrMask::STATE).iter().collect();
        same("sets", 1 << bits.len(), SETS)?;
        pair += 1;
        for number in (7 * pair % stride..SETS).step_by(stride) {
            let chosen_bits = bits.iter().enumerate();
            let mask: QpAttrMask = chosen_bits
                .filter(|(at, _)| number >> at & 1 == 1)
                .map(|(_, bit)| *bit)
                .collect();
            let attr = chosen(&all, mask | QpAttrMask::STATE);
            let what = || format!("{}, {from} to {to} with {mask}", T::TYPE);
            let settled = match qp.modify(&attr).map_err(|error| error.cause) {
                Ok(()) => {
                    yes += 1;
                    false
                }
                Err(ModifyErrorCause::Refused { refusal }) => {
                    wrong.push(format!("{}: we say yes, the kernel {refusal}", what()));
                    false
                }
                Err(cause) => match ask_kernel(&session, handle, &attr) {
                    Err(Some(Errno::EINVAL)) => {
                        no += 1;
                        true
                    }
                    verdict => {
                        wrong.push(format!("{}: {cause}; the kernel {verdict:?}", what()));
                        false
                    }
                },
            };
            if !settled {
                bring(&qp, row, &all, from)?;
            }
            if wrong.len() > 20 {
                return Err(format!("too much is wrong: {}", wrong.join("\n")).into());
            }
        }
    }
    ensure(
        wrong.is_empty(),
        &format!("{} wrong: {}", wrong.len(), wrong.join("\n")),
    )?;
    // That nearly all are refused is in the nature of it; what is taken `modify_table` tries as well.
    let pairs = STATES.len();
    let tried = format!("too few were tried: {yes} yes, {no} no");
    ensure(no > pairs * (SETS / stride) * 9 / 10, &tried)?;
    ensure(stride > 1 || yes + no == pairs * SETS, &tried)?;
    Ok(Verdict::Passed)
}

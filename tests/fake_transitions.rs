//! Two tables of the transitions of a queue pair, the crate's and the fake kernel's, written apart
//! from each other: for every state, every target and many sets of attributes, what the crate lets
//! through the kernel takes, and what the crate refuses the kernel refuses as well.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::path::Path;
use std::sync::Arc;

use uverbs::abi::layout::cmd::{ib_uverbs_modify_qp, ib_uverbs_qp_dest};
use uverbs::abi::{Command, Kernel};
use uverbs::fake::Fabric;
use uverbs::{
    AccessFlags, AckTimeout, AddressVector, Context, Gid, GlobalRoute, ModifyErrorCause, Mtu,
    QpAttr, QpAttrMask, QpNum, QpState, QueuePair, Rc, RnrTimer,
};

const RXE: u32 = 14;
const MODIFY_QP: u32 = 26;
/// Handles are given out lowest first: a domain, a completion queue, and then the queue pair.
const HANDLE: u32 = 2;

/// Every attribute with a value that is right wherever it is allowed.
fn all(gid: Gid) -> QpAttr {
    QpAttr {
        state: None,
        cur_state: None,
        en_sqd_async_notify: Some(true),
        access: Some(AccessFlags::REMOTE_READ),
        pkey_index: Some(0),
        port: Some(1),
        qkey: Some(1),
        path: Some(AddressVector {
            port: 1,
            global: Some(GlobalRoute {
                dgid: gid,
                sgid_index: 1,
                hop_limit: 1,
                traffic_class: 0,
                flow_label: 0,
            }),
            ..AddressVector::default()
        }),
        path_mtu: Some(Mtu::Mtu1024),
        timeout: Some(AckTimeout::from_code(14)),
        retry_count: Some(7),
        rnr_retry: Some(7),
        rq_psn: Some(1),
        max_rd_atomic: Some(1),
        min_rnr_timer: Some(RnrTimer::from_code(12)),
        sq_psn: Some(1),
        max_dest_rd_atomic: Some(1),
        dest_qp_num: Some(QpNum(17)),
    }
}

/// The attributes of a set, and the state to go to.
fn only(mask: QpAttrMask, to: QpState, gid: Gid) -> QpAttr {
    let all = all(gid);
    let mut attr = QpAttr::to_state(to);
    macro_rules! keep {
        ($($bit:ident: $field:ident),+ $(,)?) => {$(
            if mask.contains(QpAttrMask::$bit) {
                attr.$field = all.$field;
            }
        )+};
    }
    keep! {
        EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify,
        ACCESS_FLAGS: access,
        PKEY_INDEX: pkey_index,
        PORT: port,
        QKEY: qkey,
        AV: path,
        PATH_MTU: path_mtu,
        TIMEOUT: timeout,
        RETRY_CNT: retry_count,
        RNR_RETRY: rnr_retry,
        RQ_PSN: rq_psn,
        MAX_QP_RD_ATOMIC: max_rd_atomic,
        MIN_RNR_TIMER: min_rnr_timer,
        SQ_PSN: sq_psn,
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic,
        DEST_QPN: dest_qp_num,
    }
    attr
}

/// The same request without the crate's judgement.
fn ask_the_kernel(kernel: &dyn Kernel, mask: QpAttrMask, to: QpState, gid: Gid) -> bool {
    let request = ib_uverbs_modify_qp {
        qp_handle: HANDLE,
        attr_mask: (mask | QpAttrMask::STATE).bits(),
        qp_state: to.raw(),
        dest: ib_uverbs_qp_dest {
            dgid: gid.0,
            sgid_index: 1,
            is_global: 1,
            port_num: 1,
            ..Default::default()
        },
        port_num: 1,
        path_mtu: 3,
        dest_qp_num: 17,
        ..Default::default()
    };
    let mut command = Command::invoke_write("MODIFY_QP", MODIFY_QP);
    kernel.ioctl(RXE, command.core_in(&request)).is_ok()
}

fn init() -> QpAttrMask {
    QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::ACCESS_FLAGS
}

fn rtr() -> QpAttrMask {
    QpAttrMask::AV
        | QpAttrMask::PATH_MTU
        | QpAttrMask::DEST_QPN
        | QpAttrMask::RQ_PSN
        | QpAttrMask::MAX_DEST_RD_ATOMIC
        | QpAttrMask::MIN_RNR_TIMER
}

fn rts() -> QpAttrMask {
    QpAttrMask::TIMEOUT
        | QpAttrMask::RETRY_CNT
        | QpAttrMask::RNR_RETRY
        | QpAttrMask::SQ_PSN
        | QpAttrMask::MAX_QP_RD_ATOMIC
}

/// Brings the queue pair to a state over RESET.
fn walk(qp: &QueuePair<Rc>, state: QpState, gid: Gid) {
    let none = QpAttrMask::empty();
    let steps = [
        (QpState::Init, init()),
        (QpState::Rtr, rtr()),
        (QpState::Rts, rts()),
        (QpState::Sqd, none),
    ];
    qp.modify(&only(none, QpState::Reset, gid)).unwrap();
    if state == QpState::Reset {
        return;
    }
    for (to, mask) in steps {
        qp.modify(&only(mask, to, gid)).unwrap();
        if to == state {
            return;
        }
    }
    qp.modify(&only(none, state, gid)).unwrap();
}

/// Nothing, what some transition needs, and each of these with one more or one less.
fn sets() -> Vec<QpAttrMask> {
    let taken = all(Gid::default()).mask();
    let mut sets = Vec::new();
    for base in [QpAttrMask::empty(), init(), rtr(), rts()] {
        sets.push(base);
        sets.extend(taken.iter().map(|bit| base ^ bit));
    }
    sets
}

#[test]
#[cfg_attr(miri, ignore = "thousands of transitions take long")]
fn the_crate_and_the_kernel_agree_on_every_transition() {
    let device = Fabric::new().add_device("rxe0");
    let kernel = device.kernel();
    let node = Path::new("/dev/null");
    let context = Context::on_kernel(Arc::clone(&kernel), "rxe0", node, 2).unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(1).build().unwrap();
    let qp = pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
    let gid = context.gids(1).unwrap()[1].gid;
    let starts = [
        QpState::Reset,
        QpState::Init,
        QpState::Rtr,
        QpState::Rts,
        QpState::Sqd,
        QpState::Err,
    ];
    let (mut taken, mut refused) = (0, 0);
    for from in starts {
        for to in (0..7).filter_map(QpState::from_raw) {
            for mask in sets() {
                let case = format!("{from}→{to} with {mask}");
                walk(&qp, from, gid);
                let kernels = ask_the_kernel(&*kernel, mask, to, gid);
                // The crate does not know what went by it; it finds out.
                walk(&qp, from, gid);
                device.forget_calls();
                let ours = qp.modify(&only(mask, to, gid));
                let was_sent = device.calls().contains(&"MODIFY_QP");
                assert_eq!(ours.is_ok(), kernels, "{case}: {ours:?}");
                match ours {
                    Ok(()) => taken += 1,
                    Err(error) => {
                        refused += 1;
                        let is_named = matches!(
                            error.cause,
                            ModifyErrorCause::NoTransition | ModifyErrorCause::Attributes { .. }
                        );
                        assert!(is_named && !was_sent, "{case}: {error}");
                    }
                }
            }
        }
    }
    assert!(
        taken > 50 && refused > 2000,
        "{taken} taken, {refused} refused"
    );
}

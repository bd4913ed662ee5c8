//! Which attributes a transition needs and takes, and the command itself.
//!
//! Ground truth: the kernel's `qp_state_table` (`drivers/infiniband/core/verbs.c`) and InfiniBand
//! specification, § 11.2.5.2. The kernel answers a wrong set of attributes with a bare `EINVAL`;
//! here what is missing or superfluous is named first. A queue pair may have gone to ERR without our
//! knowing, so before "no" is said for good the kernel is asked for the state.

use std::fmt;

use bitflags::bitflags;
use thiserror::Error;
use uverbs_abi::layout::verbs as raw;
use uverbs_abi::{Cause, CommandError, Errno, Explain, Report, Session};
use uverbs_providers::types::{QpState, QpType};
use uverbs_providers::verbs;

use super::{NAME, QpAttr, QpInfo, QpInner, QueuePair, Transport};
use crate::diagnose::{self, PathFinding};
use crate::error::{ObjectError, into_io};
use crate::teardown;

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

/// A change of attributes that was not made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "queue pair {qp_num}, {qp_type}, {from}→{to}: {cause}{}", Beside { error: self }
)]
#[non_exhaustive]
pub struct ModifyError {
    /// The queue pair's number.
    pub qp_num: u32,
    /// Its transport.
    pub qp_type: QpType,
    /// The state that it is in.
    pub from: QpState,
    /// The state that it was to go to.
    pub to: QpState,
    /// What was given.
    pub attr: Box<QpAttr>,
    /// What stood in the way.
    pub cause: ModifyErrorCause,
    /// What was looked up about the path and the values after the kernel had refused, from the
    /// nearest to the farthest.
    pub findings: Vec<PathFinding>,
}

/// The cause of a [`ModifyError`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ModifyErrorCause {
    /// There is no such transition.
    #[error("there is no such transition")]
    NoTransition,
    /// The transition needs other attributes.
    #[error("{}", Attributes(*missing, *superfluous))]
    Attributes {
        /// Needed and not given.
        missing: QpAttrMask,
        /// Given and not allowed.
        superfluous: QpAttrMask,
    },
    /// The queue pair has been destroyed, or the kernel refused.
    #[error(transparent)]
    Refused {
        /// The refusal.
        #[from]
        refusal: ObjectError,
    },
}

impl ModifyError {
    /// The kernel's error number, where it was the kernel that refused.
    #[must_use]
    pub const fn errno(&self) -> Option<Errno> {
        match &self.cause {
            ModifyErrorCause::Refused { refusal } => refusal.errno(),
            ModifyErrorCause::NoTransition | ModifyErrorCause::Attributes { .. } => None,
        }
    }
}

struct Attributes(QpAttrMask, QpAttrMask);

impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(missing, superfluous) = *self;
        if !missing.is_empty() {
            write!(f, "it lacks {missing}")?;
        }
        if !superfluous.is_empty() {
            let lead = if missing.is_empty() { "" } else { "; " };
            write!(f, "{lead}it does not take {superfluous}")?;
        }
        Ok(())
    }
}

/// What the short form says after the cause: the way to go, or what stands in it.
struct Beside<'e> {
    error: &'e ModifyError,
}

impl fmt::Display for Beside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.error;
        match &error.cause {
            ModifyErrorCause::NoTransition => match way(error.qp_type, error.from, error.to) {
                Some(way) => {
                    let mut lead = "; go by ";
                    for state in way {
                        write!(f, "{lead}{state}")?;
                        lead = " and ";
                    }
                    Ok(())
                }
                None => write!(f, "; no modify leads to {}", error.to),
            },
            ModifyErrorCause::Attributes { .. } => Ok(()),
            ModifyErrorCause::Refused { refusal } => {
                f.write_str(meaning(refusal.errno()))?;
                for finding in &error.findings {
                    write!(f, "; {finding}")?;
                }
                Ok(())
            }
        }
    }
}

/// What the number alone says of a path.
fn meaning(errno: Option<Errno>) -> &'static str {
    match errno {
        Some(Errno::ENETUNREACH) => "; no route leads from the own address to the peer's",
        Some(Errno::EHOSTUNREACH) => {
            "; the route to the peer's address says that it is unreachable"
        }
        Some(Errno::ETIMEDOUT) => "; the peer's address did not answer",
        Some(Errno::ENODEV) => "; no network interface stands behind the own GID",
        Some(errno) if errno.raw() == libc::ENODATA => "; the own GID is not in the port's table",
        _ => "",
    }
}

/// The states between two, on the shortest way of transitions; `None` if no way leads there. Empty
/// if one transition does.
fn way(qp_type: QpType, from: QpState, to: QpState) -> Option<Vec<QpState>> {
    let states = || (0..).map_while(QpState::from_raw);
    let mut ways: Vec<Vec<QpState>> = vec![vec![from]];
    // Each state is looked at once, since it is in a way from then on.
    let mut at = 0;
    while let Some(way) = ways.get(at).cloned() {
        at += 1;
        let Some(last) = way.last().copied() else {
            continue;
        };
        for next in states().filter(|next| rule(qp_type, last, *next).is_some()) {
            if next == to {
                return Some(way.into_iter().skip(1).collect());
            }
            if !ways.iter().any(|way| way.last() == Some(&next)) {
                ways.push(way.iter().copied().chain([next]).collect());
            }
        }
    }
    None
}

impl Explain for ModifyError {
    fn errno(&self) -> Option<Errno> {
        Self::errno(self)
    }

    fn explain(&self, report: &mut Report) {
        report.found(format!("attributes given: {}", self.attr));
        match &self.cause {
            ModifyErrorCause::NoTransition => {}
            ModifyErrorCause::Attributes { missing, .. } => {
                if let Some(Rule { required, optional }) = rule(self.qp_type, self.from, self.to) {
                    report.found(format!(
                        "{} {}→{} needs {}, and takes {} beside",
                        self.qp_type,
                        self.from,
                        self.to,
                        OrNothing(required),
                        OrNothing(optional),
                    ));
                }
                if !missing.is_empty() {
                    report.next(
                        "set what is missing in `QpAttr`, or let `prepare` and `connect` do it",
                    );
                }
            }
            ModifyErrorCause::Refused { refusal } => {
                for finding in &self.findings {
                    report.found(finding.to_string());
                }
                refusal.explain(report);
                let errno = refusal.errno();
                if errno == Some(Errno::EINVAL)
                    && !self.findings.iter().any(PathFinding::is_trouble)
                {
                    report.found(
                        "the attributes fit the transition, and no value is above a limit that the \
                         device tells",
                    );
                }
                if errno == Some(Errno::ETIMEDOUT) {
                    report.cause("the peer is down, or not on this network");
                    report.cause("the own GID is one from which the peer cannot be reached");
                    report.next("ping the peer's address from the own one: `ping -I OWN PEER`");
                }
                if matches!(errno, Some(Errno::ENETUNREACH | Errno::EHOSTUNREACH)) {
                    report.next("`ip route get PEER from OWN` shows what the kernel would do");
                }
                if matches!(errno, Some(errno) if errno == Errno::ENODEV || errno.raw() == libc::ENODATA)
                {
                    report
                        .cause("an address came or went, and the GIDs moved: never keep an index");
                    report.next("look the index up when connecting: `Context::find_gid`");
                }
            }
        }
    }
}

into_io!(ModifyError);

struct OrNothing(QpAttrMask);

impl fmt::Display for OrNothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            f.write_str("nothing")
        } else {
            fmt::Display::fmt(&self.0, f)
        }
    }
}

/// What a transition needs, and what it takes beside that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    required: QpAttrMask,
    optional: QpAttrMask,
}

/// The rule of a transition, or `None` if there is no such transition.
pub(super) fn rule(qp_type: QpType, from: QpState, to: QpState) -> Option<Rule> {
    use QpAttrMask as A;
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    let none = A::empty();
    // A row for each transport.
    let by_type = |rc, uc, ud| match qp_type {
        QpType::Rc => Some(rc),
        QpType::Uc => Some(uc),
        QpType::Ud => Some(ud),
        _ => None,
    };
    let (required, optional) = match (from, to) {
        // There is nothing to fail yet.
        (Reset, Err) => return None,
        (_, Reset | Err) => (none, none),
        (Reset, Init) => by_type(
            (A::PKEY_INDEX | A::PORT | A::ACCESS_FLAGS, none),
            (A::PKEY_INDEX | A::PORT | A::ACCESS_FLAGS, none),
            (A::PKEY_INDEX | A::PORT | A::QKEY, none),
        )?,
        (Init, Init) => by_type(
            (none, A::PKEY_INDEX | A::PORT | A::ACCESS_FLAGS),
            (none, A::PKEY_INDEX | A::PORT | A::ACCESS_FLAGS),
            (none, A::PKEY_INDEX | A::PORT | A::QKEY),
        )?,
        (Init, Rtr) => by_type(
            (
                A::AV
                    | A::PATH_MTU
                    | A::DEST_QPN
                    | A::RQ_PSN
                    | A::MAX_DEST_RD_ATOMIC
                    | A::MIN_RNR_TIMER,
                A::ALT_PATH | A::ACCESS_FLAGS | A::PKEY_INDEX,
            ),
            (
                A::AV | A::PATH_MTU | A::DEST_QPN | A::RQ_PSN,
                A::ALT_PATH | A::ACCESS_FLAGS | A::PKEY_INDEX,
            ),
            (none, A::PKEY_INDEX | A::QKEY),
        )?,
        (Rtr, Rts) => by_type(
            (
                A::TIMEOUT | A::RETRY_CNT | A::RNR_RETRY | A::SQ_PSN | A::MAX_QP_RD_ATOMIC,
                A::CUR_STATE | A::ALT_PATH | A::ACCESS_FLAGS | A::MIN_RNR_TIMER | A::PATH_MIG_STATE,
            ),
            (
                A::SQ_PSN,
                A::CUR_STATE | A::ALT_PATH | A::ACCESS_FLAGS | A::PATH_MIG_STATE,
            ),
            (A::SQ_PSN, A::CUR_STATE | A::QKEY),
        )?,
        (Rts | Sqd, Rts) => by_type(
            (
                none,
                A::CUR_STATE | A::ACCESS_FLAGS | A::ALT_PATH | A::PATH_MIG_STATE | A::MIN_RNR_TIMER,
            ),
            (
                none,
                A::CUR_STATE | A::ACCESS_FLAGS | A::ALT_PATH | A::PATH_MIG_STATE,
            ),
            (none, A::CUR_STATE | A::QKEY),
        )?,
        (Rts, Sqd) => (none, A::EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd) => by_type(
            (
                none,
                A::PORT
                    | A::AV
                    | A::TIMEOUT
                    | A::RETRY_CNT
                    | A::RNR_RETRY
                    | A::MAX_QP_RD_ATOMIC
                    | A::MAX_DEST_RD_ATOMIC
                    | A::ALT_PATH
                    | A::ACCESS_FLAGS
                    | A::PKEY_INDEX
                    | A::MIN_RNR_TIMER
                    | A::PATH_MIG_STATE,
            ),
            (
                none,
                A::AV | A::ALT_PATH | A::ACCESS_FLAGS | A::PKEY_INDEX | A::PATH_MIG_STATE,
            ),
            (none, A::PKEY_INDEX | A::QKEY),
        )?,
        (Sqe, Rts) => by_type(
            (none, none),
            (none, A::CUR_STATE | A::ACCESS_FLAGS),
            (none, A::CUR_STATE | A::QKEY),
        )?,
        _ => return None,
    };
    Some(Rule { required, optional })
}

/// Whether a change can be: the kernel's own question, with a telling answer.
fn judge(qp_type: QpType, from: QpState, attr: &QpAttr) -> Result<(), ModifyErrorCause> {
    let from = attr.cur_state.unwrap_or(from);
    let to = attr.state.unwrap_or(from);
    let rule = rule(qp_type, from, to).ok_or(ModifyErrorCause::NoTransition)?;
    let given = attr.mask();
    let missing = rule.required - given;
    let superfluous = given - (rule.required | rule.optional | QpAttrMask::STATE);
    if missing.is_empty() && superfluous.is_empty() {
        Ok(())
    } else {
        Err(ModifyErrorCause::Attributes {
            missing,
            superfluous,
        })
    }
}

impl<T: Transport> QueuePair<T> {
    /// Sets attributes, and moves the queue pair to another state if one is among them.
    ///
    /// # Errors
    /// [`ModifyError`]: which attribute is missing or superfluous for the transition, or the
    /// kernel's refusal with what it may mean.
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&self, attr: &QpAttr) -> Result<(), ModifyError> {
        self.inner.modify(attr)
    }

    /// Asks the kernel for all attributes.
    ///
    /// If it is found in ERR without a command having moved it there, receives that were posted
    /// since, and would otherwise lie there, come back flushed.
    ///
    /// # Errors
    /// [`ObjectError`].
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QpInfo, ObjectError> {
        let (inner, session) = (&*self.inner, self.inner.session());
        let _pass = teardown::enter(&inner.gate, session, NAME, "QUERY_QP")?;
        let info = {
            let _turn = inner.in_turn();
            inner.ask_all(session)
        };
        inner.ops.settle();
        Ok(info?)
    }

    /// Asks the kernel for the state; as [`query`](Self::query).
    ///
    /// # Errors
    /// [`ObjectError`].
    pub fn state(&self) -> Result<QpState, ObjectError> {
        let inner = &*self.inner;
        let _pass = teardown::enter(&inner.gate, inner.session(), NAME, "QUERY_QP")?;
        let state = {
            let _turn = inner.in_turn();
            inner.ask_state()
        };
        inner.ops.settle();
        Ok(state?)
    }
}

impl QpInner {
    fn ask_all(&self, session: &Session) -> Result<QpInfo, CommandError> {
        let mask = raw::IB_QP_ATTR_STANDARD_BITS;
        let info = QpInfo::from(verbs::qp::query(session, self.ops.handle(), mask)?);
        if let Some(state) = info.state {
            self.ops.state_changed(state)?;
        }
        Ok(info)
    }

    pub(super) fn modify(&self, attr: &QpAttr) -> Result<(), ModifyError> {
        let outcome = self.modify_in_turn(attr);
        if self.session().is_ours() {
            self.ops.settle();
        }
        // With nothing held: others need not wait for what is only looked up.
        outcome.map_err(|error| self.looked_up(error))
    }

    /// Adds what stands in the way, if it was the kernel that refused a value or a path.
    fn looked_up(&self, mut error: ModifyError) -> ModifyError {
        let session = self.session();
        let asked = matches!(&error.cause, ModifyErrorCause::Refused {
            refusal: ObjectError::Command(refusal),
        } if matches!(refusal.cause, Cause::Errno(_)));
        if asked && !session.is_gone() {
            let mask = raw::IB_QP_ATTR_STANDARD_BITS;
            let info = verbs::qp::query(session, self.ops.handle(), mask).ok();
            let info = info.map(QpInfo::from);
            error.findings = diagnose::path(self.pd.context(), &error.attr, info.as_ref());
        }
        error
    }

    fn modify_in_turn(&self, attr: &QpAttr) -> Result<(), ModifyError> {
        let session = self.session();
        let error = |from, cause| ModifyError {
            qp_num: self.ops.qp_num().0,
            qp_type: self.qp_type,
            from,
            to: attr.state.unwrap_or(from),
            attr: Box::new(*attr),
            cause,
            findings: Vec::new(),
        };
        let refused = |from, refusal| error(from, ModifyErrorCause::Refused { refusal });
        let _pass = teardown::enter(&self.gate, session, NAME, "MODIFY_QP")
            .map_err(|refusal| refused(self.ops.known_state(), refusal))?;
        let _turn = self.in_turn();
        let known = self.ops.known_state();
        if judge(self.qp_type, known, attr).is_err() {
            // It may have gone to ERR by itself: what counts is the state that it is in now.
            let now = self
                .ask_state()
                .map_err(|refusal| refused(known, refusal.into()))?;
            judge(self.qp_type, now, attr).map_err(|cause| error(now, cause))?;
        }
        match verbs::qp::modify(session, self.ops.handle(), &attr.to_raw()) {
            Ok(()) => {
                if let Some(max_rd_atomic) = attr.max_rd_atomic {
                    self.ops.set_max_rd_atomic(max_rd_atomic);
                }
                match attr.state {
                    Some(state) => self
                        .ops
                        .state_changed(state)
                        .map_err(|refusal| refused(state, refusal.into())),
                    None => Ok(()),
                }
            }
            Err(refusal) => Err(self.explain(refusal, attr, &error)),
        }
    }

    /// Why the kernel may have refused. The errno is kept whatever comes out.
    fn explain(
        &self,
        refusal: CommandError,
        attr: &QpAttr,
        error: &impl Fn(QpState, ModifyErrorCause) -> ModifyError,
    ) -> ModifyError {
        let known = self.ops.known_state();
        let refused = ModifyErrorCause::Refused {
            refusal: refusal.into(),
        };
        if refusal.errno() != Some(Errno::EINVAL) {
            return error(known, refused);
        }
        let now = self.ask_state().unwrap_or(known);
        match judge(self.qp_type, now, attr) {
            Err(cause) if now != known => error(now, cause),
            _ => error(now, refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(from: QpState, attr: &QpAttr) -> String {
        judge(QpType::Rc, from, attr).unwrap_err().to_string()
    }

    #[test]
    fn what_is_missing_or_superfluous_is_named() {
        let attr = QpAttr {
            qkey: Some(1),
            port: Some(1),
            pkey_index: Some(0),
            ..QpAttr::to_state(QpState::Init)
        };
        assert_eq!(
            message(QpState::Reset, &attr),
            "it lacks ACCESS_FLAGS; it does not take QKEY"
        );
        assert_eq!(
            message(QpState::Init, &QpAttr::to_state(QpState::Rtr)),
            "it lacks AV, PATH_MTU, RQ_PSN, MIN_RNR_TIMER, MAX_DEST_RD_ATOMIC, DEST_QPN"
        );
        assert_eq!(
            message(QpState::Reset, &QpAttr::to_state(QpState::Rts)),
            "there is no such transition"
        );
    }

    #[test]
    fn the_way_round_is_named() {
        use QpState::{Err, Init, Reset, Rtr, Rts, Sqe};
        let way = |from, to| way(QpType::Rc, from, to);
        assert_eq!(way(Reset, Rts), Some(vec![Init, Rtr]));
        assert_eq!(way(Rts, Rtr), Some(vec![Reset, Init]));
        assert_eq!(way(Reset, Err), Some(vec![Init]));
        assert_eq!(way(Init, Rtr), Some(vec![]));
        assert_eq!(way(Init, Sqe), None);
    }

    #[test]
    fn reset_and_but_from_reset_err_are_reached_with_nothing_else() {
        let states = (0..7).filter_map(QpState::from_raw);
        for from in states {
            for to in [QpState::Reset, QpState::Err] {
                let verdict = judge(QpType::Rc, from, &QpAttr::to_state(to));
                if (from, to) == (QpState::Reset, QpState::Err) {
                    assert_eq!(verdict, Err(ModifyErrorCause::NoTransition));
                    continue;
                }
                assert_eq!(verdict, Ok(()));
                let more = QpAttr {
                    qkey: Some(1),
                    ..QpAttr::to_state(to)
                };
                assert!(judge(QpType::Rc, from, &more).is_err());
            }
        }
    }

    #[test]
    fn the_assumed_state_is_the_one_that_is_judged() {
        let attr = QpAttr {
            cur_state: Some(QpState::Rts),
            ..QpAttr::to_state(QpState::Rts)
        };
        assert_eq!(
            judge(QpType::Rc, QpState::Err, &attr),
            Ok(()),
            "the kernel has the last word"
        );
    }
}

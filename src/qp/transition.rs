//! Which attributes a transition needs and takes, and which way of transitions leads from one state
//! to another. Pure: nothing is asked here.
//!
//! Ground truth: the kernel's `qp_state_table` (`drivers/infiniband/core/verbs.c`) and InfiniBand
//! specification, § 11.2.5.2.

use uverbs_providers::types::{QpState, QpType};

use super::{ModifyErrorCause, QpAttr, QpAttrMask};

/// What a transition needs, and what it takes beside that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) required: QpAttrMask,
    pub(super) optional: QpAttrMask,
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
pub(super) fn judge(qp_type: QpType, from: QpState, attr: &QpAttr) -> Result<(), ModifyErrorCause> {
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

/// Where a change that names no state was to lead: the state that takes all that is given, and of
/// several the one that lacks the least. `None` if there is none, or if nothing is given.
pub(super) fn meant(qp_type: QpType, from: QpState, given: QpAttrMask) -> Option<QpState> {
    let lacks = |to| {
        let Rule { required, optional } = rule(qp_type, from, to)?;
        let is_taken = (required | optional).contains(given);
        is_taken.then(|| (required - given).iter().count())
    };
    let others = (0..)
        .map_while(QpState::from_raw)
        .filter(|to| *to != from && !given.is_empty());
    let takers = others.filter_map(|to| Some((lacks(to)?, to)));
    takers.min_by_key(|(lacks, _)| *lacks).map(|(_, to)| to)
}

/// The states between two, on the shortest way of transitions; `None` if no way leads there. Empty
/// if one transition does.
pub(super) fn way(qp_type: QpType, from: QpState, to: QpState) -> Option<Vec<QpState>> {
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
    fn where_a_change_without_a_state_was_to_lead_is_guessed_by_what_it_sets() {
        use QpAttrMask as A;
        use QpState::{Err, Init, Reset, Rtr, Rts};
        let meant = |from, given| meant(QpType::Rc, from, given);
        assert_eq!(meant(Reset, A::PORT), Some(Init));
        assert_eq!(meant(Init, A::AV | A::RQ_PSN), Some(Rtr));
        assert_eq!(meant(Rtr, A::TIMEOUT | A::SQ_PSN), Some(Rts));
        // What no state takes, and what says nothing.
        assert_eq!(meant(Reset, A::QKEY), None);
        assert_eq!(meant(Rts, A::PORT), None);
        assert_eq!(meant(Err, A::PORT), None);
        assert_eq!(meant(Reset, A::empty()), None);
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

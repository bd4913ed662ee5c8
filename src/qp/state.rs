//! Changing a queue pair's attributes, and asking for them.
//!
//! Ground truth: `ibv_modify_qp(3)`, `ibv_query_qp(3)`. The kernel answers a wrong set of attributes
//! with a bare `EINVAL`; here what is missing or superfluous is named first. A queue pair may have gone
//! to ERR without our knowing, so before "no" is said for good the kernel is asked for the state.

use std::sync::atomic::Ordering;

use uverbs_abi::layout::verbs as raw;
use uverbs_abi::{Cause, CommandError, Errno};
use uverbs_providers::types::QpState;
use uverbs_providers::verbs;

use super::transition::judge;
use super::{ModifyError, ModifyErrorCause, QpAttr, QpInfo, QpInner, QueuePair, Transport};
use crate::diagnose;
use crate::error::{ObjectError, ObjectErrorCause};
use crate::teardown::{self, Teardown};

impl<T: Transport> QueuePair<T> {
    /// Sets attributes, and moves the queue pair to another state if one is among them.
    ///
    /// With nothing set it changes nothing, and is taken where a state leads to itself, as the kernel
    /// takes it: everywhere but in RTR and SQE.
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
        self.ask(QpInner::ask_all)
    }

    /// Asks the kernel for the state; as [`query`](Self::query).
    ///
    /// # Errors
    /// [`ObjectError`].
    pub fn state(&self) -> Result<QpState, ObjectError> {
        self.ask(QpInner::ask_state)
    }

    fn ask<A>(
        &self,
        ask: impl FnOnce(&QpInner) -> Result<A, CommandError>,
    ) -> Result<A, ObjectError> {
        let inner = &*self.inner;
        let about = |cause| ObjectError::about(Teardown::id(self), cause);
        let _pass = teardown::enter(&inner.gate, inner.session(), "QUERY_QP").map_err(about)?;
        let answer = {
            let _turn = inner.in_turn();
            ask(inner)
        };
        inner.ops.settle();
        answer.map_err(|refusal| about(refusal.into()))
    }
}

impl QpInner {
    fn ask_all(&self) -> Result<QpInfo, CommandError> {
        let mask = raw::IB_QP_ATTR_STANDARD_BITS;
        let info = QpInfo::from(verbs::qp::query(self.session(), self.ops.handle(), mask)?);
        if let Some(state) = info.state {
            self.ops.state_changed(state)?;
        }
        Ok(info)
    }

    /// The port that it was given, if it is in this state as far as is known here: the kernel may have
    /// moved it to ERR since.
    pub(super) fn port_if_in(&self, state: QpState) -> Option<u8> {
        // Relaxed: whoever brought it into the state in another thread has told this one of it by
        // means of its own.
        let port = self.port.load(Ordering::Relaxed);
        (port != 0 && self.ops.known_state() == state).then_some(port)
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
            refusal: ObjectErrorCause::Command(refusal),
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
        let _pass = teardown::enter(&self.gate, session, "MODIFY_QP")
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
                if let Some(port) = attr.port {
                    self.port.store(port, Ordering::Relaxed);
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

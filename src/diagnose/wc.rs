//! What a failed completion has to do with its queue pair, as that is now.
//!
//! Ground truth: QUERY_QP, and what `path` looks up.

use uverbs_abi::{Explain, Note, Report};
use uverbs_providers::wc::{WcError, WcStatus};

use super::{PathFinding, elements};
use crate::diagnose;
use crate::qp::{QpAttr, QpInfo, QueuePair, Transport};

impl<T: Transport> QueuePair<T> {
    /// The long form of a failed completion of this queue pair, with what can be looked up beside
    /// it: the state that the queue pair is in now, whom it is connected to and how often it tried,
    /// what stands in the way to the peer, and what is wrong with the memory that the request named, if
    /// its slot has not been filled anew. Never fails; what cannot be looked up is left out.
    ///
    /// For a log or a person, not for the data path: it asks the kernel several times.
    pub fn diagnose(&self, error: &WcError) -> Report {
        let general = error.report();
        if error.qp_num != self.qp_num() {
            let mut report = general;
            report.found(format!("it is not of this queue pair, {}", self.qp_num()));
            return report;
        }
        let mut report = Report::new(general.head());
        for note in general.notes() {
            if let Note::Meaning(text) = note {
                report.meaning(text.as_str());
            }
        }
        let (mut steps, mut is_sure) = (Vec::new(), false);
        if elements::can_be(error.status) && self.pd().context().session().is_ours() {
            let (of_memory, sure) = self.tell_memory(error, &mut report);
            steps.extend(of_memory.into_iter().map(str::to_owned));
            is_sure = sure;
        }
        let is_unanswered = matches!(
            error.status,
            WcStatus::RetryExceeded | WcStatus::ResponseTimeout
        );
        match self.query() {
            Ok(info) => {
                tell(error.status, &info, &mut report);
                if self.is_own_peer(&info) {
                    report.found(
                        "the peer is this queue pair itself: was its own endpoint given to `connect` \
                         as the remote one?",
                    );
                }
                let attr = QpAttr {
                    path: Some(info.path),
                    path_mtu: info.path_mtu,
                    ..QpAttr::default()
                };
                if info.path.port != 0 {
                    for finding in diagnose::path(self.pd().context(), &attr, Some(&info)) {
                        report.found(finding.to_string());
                        if !is_unanswered {
                            continue;
                        }
                        if let PathFinding::PortState { port, state } = finding {
                            report.cause(format!(
                                "port {port} is {state}: nothing leaves it, and no answer arrives"
                            ));
                            is_sure = true;
                        }
                        steps.extend(finding.next());
                    }
                }
            }
            Err(refusal) => {
                report.found(format!("the queue pair cannot be asked: {refusal}"));
            }
        }
        for step in steps {
            report.next(step);
        }
        // What usually is the cause would only lead away from what was found.
        if !is_sure {
            let explanation = error.status.explain();
            for cause in explanation.causes {
                report.cause(*cause);
            }
            // Which is what has just been done.
            report.next(
                explanation
                    .next
                    .replace(" (`QueuePair::diagnose` does)", ""),
            );
        }
        report
    }
}

impl<T: Transport> QueuePair<T> {
    fn tell_memory(&self, error: &WcError, report: &mut Report) -> (Vec<&'static str>, bool) {
        let mut posted = self.inner.ops.posted(error.wr_id);
        if let Some(srq) = self.srq() {
            posted.extend(srq.inner.ops.posted(error.wr_id));
        }
        let pd = self.pd();
        let living = pd.context().living();
        elements::tell(living, pd.inner.handle, error, &posted, report)
    }

    /// Which is legal, and more often a mistake.
    fn is_own_peer(&self, info: &QpInfo) -> bool {
        let Some(global) = info
            .path
            .global
            .filter(|_| info.dest_qp_num == self.qp_num())
        else {
            return false;
        };
        let own = self.pd().context().find_gid(info.path.port, global.dgid);
        matches!(own, Ok(Some(_)))
    }
}

fn tell(status: WcStatus, info: &QpInfo, report: &mut Report) {
    if let Some(state) = info.state {
        report.found(format!("the queue pair is in {state} now"));
    }
    let peer = info.dest_qp_num;
    match info.path.global {
        Some(global) => report.found(format!("the peer is queue pair {peer} at {}", global.dgid)),
        None => report.found(format!(
            "the peer is queue pair {peer} at LID {}",
            info.path.dlid
        )),
    };
    match status {
        WcStatus::RetryExceeded | WcStatus::ResponseTimeout => {
            let wait = info.timeout.duration();
            report.found(match wait {
                Some(wait) => format!(
                    "the acknowledgement timer is {wait:?}, and retry_count {}",
                    info.retry_count
                ),
                None => "the acknowledgement timer is off".to_owned(),
            });
            if let Some(mtu) = info.path_mtu {
                report.found(format!("the path MTU is {mtu}"));
            }
            report.found(format!(
                "sq_psn is {:#x} now, to be compared with the rq_psn that the peer's `query` gives",
                info.sq_psn
            ));
        }
        WcStatus::RnrRetryExceeded => {
            report.found(format!("rnr_retry is {}", info.rnr_retry));
        }
        WcStatus::RemoteInvalidRequest => {
            report.found(format!(
                "max_rd_atomic is {}; the peer's max_dest_rd_atomic must be no less",
                info.max_rd_atomic
            ));
        }
        WcStatus::LocalAccessError => {
            report.found(format!("the queue pair's access flags are {}", info.access));
        }
        _ => {}
    }
}

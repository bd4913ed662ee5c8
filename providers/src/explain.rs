//! What the status of a work completion means at either end, and what usually causes it.
//!
//! Ground truth: InfiniBand specification, § 10.10.3 and § 11.6.2 (completion statuses), § 9.9
//! (what each end does in error); `ibv_poll_cq(3)`; for what rxe says instead, the cases
//! `errors::…` of the VM tests.

use std::io;

use uverbs_abi::{Errno, Explain, Report};

use crate::wc::{WcError, WcStatus};

/// What a failed work request means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// At this end.
    pub here: &'static str,
    /// At the other end.
    pub there: &'static str,
    /// The usual causes, the likeliest first.
    pub causes: &'static [&'static str],
    /// What to do next.
    pub next: &'static str,
}

const NOTHING_SENT: &str = "it has noticed nothing: the request was not sent, or not to its end";
const OF_EITHER_KIND: &str = "of a send it has noticed nothing; of a receive, its sender is told \
     RemoteOperationError";
const IT_FAILED_TOO: &str =
    "it refused with a NAK; its queue pair has gone to ERR, unless only a key was wrong";
const ASK: &str = "look at the first completion that failed: the others follow from it";

impl WcStatus {
    /// What it means at either end, and what usually causes it.
    #[must_use]
    pub const fn explain(self) -> Explanation {
        let (here, there, causes, next): (_, _, &'static [_], _) = match self {
            Self::Success => (
                "the request was done",
                "what it asked for has happened",
                &[],
                "nothing",
            ),
            Self::LocalLengthError => (
                "the message is longer than the memory given for it, or than the port carries",
                "the sender of a message that was received here is told RemoteInvalidRequest",
                &[
                    "the peer sent more bytes than the receive at the head of the queue has",
                    "receives are posted in another order than messages come",
                    "a READ answered with another length than was asked for",
                    "a datagram longer than the path MTU",
                ],
                "post receives as long as the longest message that the peer may send",
            ),
            Self::LocalQpOperationError => (
                "the request made no sense for this queue pair; on rxe also: a receive that its \
                 message could not be written to, or, up to 6.1, a local key that is wrong",
                OF_EITHER_KIND,
                &[
                    "on rxe: the message is longer than its receive",
                    "on rxe: the receive's region lacks LOCAL_WRITE, is of another protection domain, or \
                     is gone",
                    "on rxe up to 6.1: the local key, range or access right of a send is wrong",
                    "an operation that this transport does not have",
                ],
                "check the request's elements against their regions (`QueuePair::diagnose` does), then its operation",
            ),
            Self::LocalProtectionError => (
                "a local key, its range or its access right did not allow what the request was to do",
                OF_EITHER_KIND,
                &[
                    "the region was deregistered while the request was queued",
                    "the region is of another protection domain than the queue pair",
                    "a receive, READ or atomic into a region without LOCAL_WRITE",
                    "the element reaches past its region's end",
                ],
                "keep the region until the completion, and register what is written to with LOCAL_WRITE",
            ),
            Self::WrFlushed => (
                "the request was not done, or not known to be done: the queue pair was in ERR first",
                "it may have seen a part of it, or nothing",
                &[
                    "an earlier request of the same queue pair failed",
                    "the queue pair was moved to ERR, or the connection closed",
                    "of a send on rxe from 6.12 on: a local key, range or right of its own is wrong",
                ],
                "look at the first completion that failed: the others follow from it; if this is the \
                 first, check its elements against their regions (`QueuePair::diagnose` does), then \
                 who moved the queue pair to ERR",
            ),
            Self::MwBindError => (
                "a memory window was not bound",
                NOTHING_SENT,
                &[
                    "the region was registered without MW_BIND",
                    "the window's range or rights are more than the region's",
                    "window and region are of different protection domains",
                ],
                "register the region with MW_BIND, and with the rights that the window is to give",
            ),
            Self::BadResponse => (
                "an answer came that does not belong to what was asked",
                "it answered something else than this end expects",
                &[
                    "the two ends are at different packet sequence numbers: one was set up anew",
                    "the peer's queue pair number is another connection's by now",
                    "a defect of a device",
                ],
                "bring both ends to RESET, exchange endpoints anew and connect again",
            ),
            Self::LocalAccessError => (
                "a peer's RDMA WRITE with immediate data, or atomic, was not allowed here",
                "it is told RemoteAccessError",
                &[
                    "the queue pair's access flags do not allow remote writes",
                    "the key that the peer uses is not one of this protection domain",
                ],
                "set the access flags in `PathOptions` and at registration",
            ),
            Self::RemoteInvalidRequest => (
                "the peer found the request invalid",
                IT_FAILED_TOO,
                &[
                    "the peer's queue pair does not allow the operation: its access flags",
                    "the message is longer than the receive that the peer has posted (rxe says \
                     RemoteOperationError)",
                    "more RDMA READs and atomics under way than the peer serves",
                    "an atomic at an address that is not 8-aligned",
                ],
                "compare the operation with the peer's access flags and the length of its receives",
            ),
            Self::RemoteAccessError => (
                "the peer's key, range or rights did not allow the access",
                IT_FAILED_TOO,
                &[
                    "the rkey is another region's, or that of one deregistered since",
                    "the range reaches past the region's end, or begins before it",
                    "the region was registered without the right: REMOTE_WRITE, REMOTE_READ or \
                     REMOTE_ATOMIC",
                    "the region is of another protection domain than the peer's queue pair",
                ],
                "let the peer tell address and rkey anew (`MemoryRegion::remote`), and check its \
                 access flags",
            ),
            Self::RemoteOperationError => (
                "the peer could not do it",
                IT_FAILED_TOO,
                &[
                    "on rxe: the message is longer than the receive that the peer has posted",
                    "the peer's receive names memory that it must not, or that is gone",
                    "the peer's device failed",
                ],
                "look at the failed completion of the peer's receive",
            ),
            Self::RetryExceeded => (
                "the peer did not acknowledge, however often the request was sent again",
                "it may have done it all the same; a peer that is there notices nothing of the failure",
                &[
                    "the peer is gone: its queue pair destroyed, in RESET or in ERR, its program ended",
                    "the peer's queue pair was not in RTR yet",
                    "no packet arrives: link down, no route, a firewall (RoCE v2 is UDP port 4791), \
                     the wrong GID of several",
                    "the path MTU is above what a port or a switch on the way carries",
                    "wrong queue pair number or first PSN: it answers nobody it does not know",
                    "congestion, with a timeout or a retry count that is too small",
                ],
                "see that the peer lives and is in RTS, then ping it from the own address",
            ),
            Self::RnrRetryExceeded => (
                "the peer had no receive posted, however often the request was sent again",
                "it answered `receiver not ready` each time; its queue pair is well",
                &[
                    "the peer posts its receives late, or too few",
                    "rnr_retry is small: 0 gives up at once, 7 never",
                    "the peer's min_rnr_timer, the pause between two tries, is short",
                ],
                "post receives before the peer sends, or connect with rnr_retry 7",
            ),
            Self::RemoteAborted => (
                "the peer gave the operation up",
                "its end of the operation was aborted",
                &["the peer's queue pair went to ERR while the operation was under way"],
                ASK,
            ),
            Self::Fatal => (
                "the device failed",
                "unknown",
                &["the device is being reset or removed"],
                "look for DEVICE_FATAL among the events, and open the device again",
            ),
            Self::ResponseTimeout => (
                "no answer came in time",
                "unknown",
                &["the peer is gone"],
                "see that the peer lives",
            ),
            Self::LocalEecOperationError
            | Self::LocalRddViolation
            | Self::RemoteInvalidRdRequest
            | Self::InvalidEecn
            | Self::InvalidEecState => (
                "an error of reliable datagrams, which no device has",
                "unknown",
                &["a defect of the driver, or of this crate"],
                "report it",
            ),
            _ => (
                "the driver does not say what went wrong",
                "unknown",
                &["see the vendor's error code"],
                "look at the kernel's log",
            ),
        };
        Explanation {
            here,
            there,
            causes,
            next,
        }
    }
}

impl Explain for WcError {
    /// None: a completion has a status instead.
    fn errno(&self) -> Option<Errno> {
        None
    }

    fn explain(&self, report: &mut Report) {
        let explanation = self.status.explain();
        report.meaning(format!("at this end, {}", explanation.here));
        report.meaning(format!("at the other end, {}", explanation.there));
        if !matches!(self.status, WcStatus::Success) {
            report.meaning(
                "a reliable queue pair is in ERR after it: what is queued comes back flushed, and only \
                 RESET leads out",
            );
        }
        for cause in explanation.causes {
            report.cause(*cause);
        }
        report.next(explanation.next);
    }

    fn kind(&self) -> io::ErrorKind {
        match self.status {
            WcStatus::RetryExceeded | WcStatus::RnrRetryExceeded | WcStatus::ResponseTimeout => {
                io::ErrorKind::TimedOut
            }
            WcStatus::WrFlushed => io::ErrorKind::ConnectionAborted,
            WcStatus::RemoteAccessError
            | WcStatus::LocalAccessError
            | WcStatus::LocalProtectionError => io::ErrorKind::PermissionDenied,
            _ => io::ErrorKind::Other,
        }
    }
}

impl From<WcError> for io::Error {
    fn from(error: WcError) -> Self {
        Self::new(error.kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_explains_itself_in_one_voice() {
        for raw in (0..=22).chain([4096]) {
            let status = WcStatus::from_raw(raw);
            let explanation = status.explain();
            let texts = [explanation.here, explanation.there, explanation.next];
            for text in texts.into_iter().chain(explanation.causes.iter().copied()) {
                assert!(!text.is_empty() && !text.ends_with('.'), "{status}: {text}");
                assert!(!text.contains("  "), "{status}: {text}");
            }
            assert_eq!(explanation.causes.is_empty(), raw == 0, "{status}");
        }
    }

    #[test]
    fn a_failed_completion_has_a_long_form() {
        let error = WcError {
            wr_id: 7,
            qp_num: crate::types::QpNum(17),
            status: WcStatus::RetryExceeded,
            vendor_err: 0,
        };
        let text = error.report().to_string();
        let wanted = [
            "work request 7 on queue pair 17: transport retry counter exceeded (status 12, vendor \
             error 0x0)\n",
            "  means: at this end, the peer did not acknowledge",
            "  means: at the other end, it may have done it all the same",
            "  means: a reliable queue pair is in ERR after it",
            "  cause: the peer is gone",
            "  next: see that the peer lives",
        ];
        let mut at = 0;
        for part in wanted {
            let found = text[at..].find(part);
            at += found.unwrap_or_else(|| panic!("{part} in {text}"));
        }
        let error = io::Error::from(error);
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}

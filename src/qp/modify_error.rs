//! Why a change of attributes was not made.
//!
//! Ground truth for what a number means here: the address resolution of the kernel
//! (`drivers/infiniband/core/addr.c`), and what the VM cases `teach::…` provoke.

use std::error::Error as StdError;
use std::{fmt, io};

use thiserror::Error;
use uverbs_abi::{Errno, Explain, Report};
use uverbs_providers::types::{QpState, QpType};

use super::transition::{Rule, meant, rule, way};
use super::{QpAttr, QpAttrMask};
use crate::diagnose::PathFinding;
use crate::error::{ObjectErrorCause, into_io};

/// A change of attributes that was not made.
#[derive(Clone, PartialEq, Eq)]
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

/// Without what was given, which is two dozen fields, and what was found: the report tells both.
impl fmt::Debug for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModifyError")
            .field("qp_num", &self.qp_num)
            .field("from", &self.from)
            .field("to", &self.to)
            .field("cause", &self.cause)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            qp_num,
            qp_type,
            from,
            to,
            cause,
            ..
        } = self;
        write!(f, "queue pair {qp_num}, {qp_type}, {from}→{to}: {cause}")?;
        self.beside(f)
    }
}

impl StdError for ModifyError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.source()
    }
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
        refusal: ObjectErrorCause,
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

    /// The state that was to be gone to, where it looks as if it had been left out.
    fn meant(&self) -> Option<QpState> {
        let is_judged = !matches!(self.cause, ModifyErrorCause::Refused { .. });
        (is_judged && self.attr.state.is_none())
            .then(|| meant(self.qp_type, self.from, self.attr.mask()))
            .flatten()
    }

    /// What the short form says after the cause: the way to go, or what stands in it.
    fn beside(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(to) = self.meant() {
            return write!(
                f,
                "; no state was given; to go to {to}: `state: Some(QpState::{to:?})`"
            );
        }
        match &self.cause {
            ModifyErrorCause::NoTransition => match way(self.qp_type, self.from, self.to) {
                Some(way) => {
                    let mut lead = "; go by ";
                    for state in way {
                        write!(f, "{lead}{state}")?;
                        lead = " and ";
                    }
                    Ok(())
                }
                None => write!(f, "; no modify leads to {}", self.to),
            },
            ModifyErrorCause::Attributes { .. } => Ok(()),
            ModifyErrorCause::Refused { refusal } => {
                f.write_str(meaning(refusal.errno()))?;
                for finding in &self.findings {
                    write!(f, "; {finding}")?;
                }
                Ok(())
            }
        }
    }
}

impl ModifyError {
    /// What the transition needs and takes.
    fn tell_rule(&self, to: QpState, report: &mut Report) {
        if let Some(Rule { required, optional }) = rule(self.qp_type, self.from, to) {
            report.found(format!(
                "{} {}→{to} needs {}, and takes {} beside",
                self.qp_type,
                self.from,
                OrNothing(required),
                OrNothing(optional),
            ));
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

/// What the number alone says of a path.
fn meaning(errno: Option<Errno>) -> &'static str {
    match errno {
        Some(Errno::ENETUNREACH) => "; no route leads from the own address to the peer's",
        Some(Errno::EHOSTUNREACH) => {
            "; the route to the peer's address says that it is unreachable"
        }
        Some(Errno::ETIMEDOUT) => "; the peer's address did not answer",
        Some(Errno::ENODEV) => "; no network interface has one of the two addresses of the path",
        Some(errno) if errno.raw() == libc::ENODATA => "; the own GID is not in the port's table",
        _ => "",
    }
}

impl Explain for ModifyError {
    fn errno(&self) -> Option<Errno> {
        Self::errno(self)
    }

    /// `AddrNotAvailable` where the own address is not there any more.
    fn kind(&self) -> io::ErrorKind {
        match &self.cause {
            ModifyErrorCause::Refused { refusal } => match refusal.errno() {
                Some(errno) if errno == Errno::ENODEV || errno.raw() == libc::ENODATA => {
                    io::ErrorKind::AddrNotAvailable
                }
                _ => refusal.kind(),
            },
            ModifyErrorCause::NoTransition | ModifyErrorCause::Attributes { .. } => {
                io::ErrorKind::InvalidInput
            }
        }
    }

    fn explain(&self, report: &mut Report) {
        report.found(format!("attributes given: {}", self.attr));
        if let Some(to) = self.meant() {
            self.tell_rule(to, report);
            report.next(format!(
                "begin with `QpAttr::to_state(QpState::{to:?})`, and set the rest beside it"
            ));
            return;
        }
        match &self.cause {
            ModifyErrorCause::NoTransition => {
                report
                    .cause("it is in another state than was thought: after an error, or connected");
                report.next("`QueuePair::state` tells the state; RESET can be reached from all");
            }
            ModifyErrorCause::Attributes {
                missing,
                superfluous,
            } => {
                self.tell_rule(self.to, report);
                if !missing.is_empty() {
                    report.next(
                        "set what is missing in `QpAttr`, or let `prepare` and `connect` do it",
                    );
                }
                if !superfluous.is_empty() {
                    report.next(format!("leave {superfluous} out: `None` in `QpAttr`"));
                }
            }
            ModifyErrorCause::Refused { refusal } => {
                for finding in &self.findings {
                    report.found(finding.to_string());
                    if let Some(next) = finding.next() {
                        report.next(next);
                    }
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
                if errno == Some(Errno::ENODEV) {
                    report.cause(
                        "the route to the peer ends in this machine (a local route, a loopback \
                         interface), where no interface has the peer's address",
                    );
                    report.cause(
                        "the interface behind the own GID was removed, or moved to another namespace",
                    );
                    report.next("`ip route get PEER from OWN` shows where the route ends");
                }
                if matches!(errno, Some(errno) if errno.raw() == libc::ENODATA) {
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

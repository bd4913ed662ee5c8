//! The test cases that run in the guest, and what a case is made of.
//!
//! The host lists them, the guest runs them; the table exists once. A case must never pass because
//! something was missing: it says [`Verdict::Ignored`] and why, or it fails.

use std::error::Error;
use std::time::Duration;

mod bare;
mod channel;
mod channel_waits;
mod cq;
mod device;
mod discovery;
mod drops;
mod event_queues;
mod events;
mod injected;
mod interop;
mod interop_tools;
mod killed;
mod mr;
pub mod pair;
pub mod parts;
mod peer;
mod process;
#[cfg(test)]
mod proof;
pub mod provoke;
mod qp;
mod qp_table;
mod rc;
mod rc_errors;
mod rc_exclusive;
mod rc_flush;
mod rc_inline;
mod rc_opcodes;
mod rc_queue;
mod rc_remote;
mod reports;
mod sandbox;
mod smoke;
mod srq;
mod stress;
mod tally;
mod teach;
mod teach_memory;
mod teach_path;
mod trace;
mod unplug;

/// All cases, in the order in which they run.
pub fn all() -> Vec<&'static Case> {
    [
        smoke::CASES,
        device::CASES,
        discovery::CASES,
        mr::CASES,
        cq::CASES,
        channel::CASES,
        channel_waits::CASES,
        srq::CASES,
        qp::CASES,
        qp_table::CASES,
        rc::CASES,
        rc_inline::CASES,
        rc_opcodes::CASES,
        rc_queue::CASES,
        rc_exclusive::CASES,
        rc_errors::CASES,
        rc_remote::CASES,
        rc_flush::CASES,
        teach::CASES,
        teach_memory::CASES,
        teach_path::CASES,
        events::CASES,
        event_queues::CASES,
        injected::CASES,
        bare::CASES,
        unplug::CASES,
        reports::CASES,
        killed::CASES,
        stress::CASES,
        process::CASES,
        drops::CASES,
        sandbox::CASES,
        trace::CASES,
        interop::CASES,
        interop_tools::CASES,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// One test case.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Its name, such as `rc::send_recv_roundtrip`.
    pub name: &'static str,
    /// What it does, in a process of its own.
    pub run: fn() -> CaseResult,
    /// How long it may take, by the host's clock; several times that where the guest is always emulated.
    pub limit: Duration,
    /// The same when the long cases run in full, if it is one of those.
    pub limit_in_full: Option<Duration>,
    /// Whether it wants a kernel to itself.
    pub fresh_boot: bool,
    /// Whether it also runs on the newest kernel when no kernel was named.
    pub every_kernel: bool,
    /// Whether it wants the programs of others, and the examples, in the guest.
    pub peers: bool,
    /// Kernels on which it is known to fail for the kernel's own reasons.
    pub known_bad: Option<KnownBad>,
    /// Whether it loads the test modules, which the set-up builds.
    pub modules: bool,
}

impl Case {
    /// A case with a limit of 60 s, sharing its boot with others.
    pub const fn new(name: &'static str, run: fn() -> CaseResult) -> Self {
        Self {
            name,
            run,
            limit: Duration::from_secs(60),
            limit_in_full: None,
            fresh_boot: false,
            every_kernel: false,
            peers: false,
            known_bad: None,
            modules: false,
        }
    }

    /// Gives it another limit.
    pub const fn limit_secs(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Gives it another limit when the long cases run in full.
    pub const fn limit_in_full_secs(mut self, seconds: u64) -> Self {
        self.limit_in_full = Some(Duration::from_secs(seconds));
        self
    }

    /// Gives it a boot of its own.
    pub const fn fresh_boot(mut self) -> Self {
        self.fresh_boot = true;
        self
    }

    /// Says that it loads the test modules (`guest::injector`). Where the set-up could not build
    /// them it is ignored with the reason; where the guest is required it fails.
    pub const fn with_modules(mut self) -> Self {
        self.modules = true;
        self
    }

    /// Says that its outcome hangs on the kernel, or that it stands for its group: when no kernel was
    /// named it runs on the newest one as well. So does what is known to be bad on some.
    pub const fn every_kernel(mut self) -> Self {
        self.every_kernel = true;
        self
    }

    /// Whether it runs on every kernel.
    pub const fn runs_on_every_kernel(&self) -> bool {
        self.every_kernel || self.known_bad.is_some()
    }

    /// Gives it rdma-core's programs, perftest, a tracer, and this workspace's examples.
    pub const fn with_peers(mut self) -> Self {
        self.peers = true;
        self
    }

    /// Says that these kernels are known to fail it. It runs there all the same: failing, it is
    /// ignored with `why`; passing, it fails, since then the note is out of date.
    pub const fn known_bad(mut self, kernels: KernelRange, why: &'static str) -> Self {
        self.known_bad = Some(KnownBad { kernels, why });
        self
    }
}

/// What a case says at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// What it checks holds.
    Passed,
    /// It could not check it here, and why.
    Ignored(String),
}

/// A case's own result; any error fails it, and so does a panic.
pub type CaseResult = Result<Verdict, Box<dyn Error + Send + Sync>>;

/// A failure that is the kernel's.
#[derive(Debug, Clone, Copy)]
pub struct KnownBad {
    /// Which kernels.
    pub kernels: KernelRange,
    /// What is wrong with them.
    pub why: &'static str,
}

/// Kernel releases from one (included) up to another (excluded).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelRange {
    from: Option<(u32, u32)>,
    before: Option<(u32, u32)>,
}

impl KernelRange {
    /// Every kernel.
    pub const ALL: Self = Self {
        from: None,
        before: None,
    };

    /// This kernel and all later ones.
    pub const fn since(major: u32, minor: u32) -> Self {
        Self {
            from: Some((major, minor)),
            before: None,
        }
    }

    /// All kernels before this one.
    pub const fn before(major: u32, minor: u32) -> Self {
        Self {
            from: None,
            before: Some((major, minor)),
        }
    }

    /// From the first (included) to the second (excluded).
    pub const fn between(from: (u32, u32), before: (u32, u32)) -> Self {
        Self {
            from: Some(from),
            before: Some(before),
        }
    }

    /// Whether this release is one of them.
    pub fn contains(&self, kernel: (u32, u32)) -> bool {
        self.from.is_none_or(|f| f <= kernel) && self.before.is_none_or(|b| kernel < b)
    }
}

/// What becomes of a case, as it is handed from the guest to the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// It passed.
    Passed,
    /// It could not check, and why.
    Ignored(String),
    /// It failed, and how.
    Failed(String),
}

impl From<CaseResult> for Report {
    fn from(result: CaseResult) -> Self {
        match result {
            Ok(Verdict::Passed) => Self::Passed,
            Ok(Verdict::Ignored(why)) => Self::Ignored(why),
            Err(e) => {
                let mut text = e.to_string();
                let mut cause = e.source();
                while let Some(c) = cause {
                    text.push_str(": ");
                    text.push_str(&c.to_string());
                    cause = c.source();
                }
                Self::Failed(text)
            }
        }
    }
}

impl Report {
    /// As text: one word, then the reason.
    pub fn to_text(&self) -> String {
        match self {
            Self::Passed => "passed".to_owned(),
            Self::Ignored(why) => format!("ignored {why}"),
            Self::Failed(how) => format!("failed {how}"),
        }
    }

    /// From text; `None` if it is no report.
    pub fn from_text(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "passed" => Some(Self::Passed),
            "ignored" => Some(Self::Ignored(rest.to_owned())),
            "failed" => Some(Self::Failed(rest.to_owned())),
            _ => None,
        }
    }

    /// Judges it by what is known of the kernel it ran on.
    pub fn judged(self, known_bad: Option<&KnownBad>, kernel: Option<(u32, u32)>) -> Self {
        let Some(bad) = known_bad.filter(|b| kernel.is_some_and(|k| b.kernels.contains(k))) else {
            return self;
        };
        match self {
            Self::Passed => Self::Failed(format!(
                "passes after all, although noted as known to be bad here: {}",
                bad.why
            )),
            Self::Failed(how) => Self::Ignored(format!(
                "known to be bad on this kernel: {} ({how})",
                bad.why
            )),
            Self::Ignored(why) => Self::Ignored(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        assert!(KernelRange::ALL.contains((6, 1)));
        assert!(KernelRange::since(6, 8).contains((6, 8)));
        assert!(KernelRange::since(6, 8).contains((7, 0)));
        assert!(!KernelRange::since(6, 8).contains((6, 7)));
        assert!(KernelRange::before(6, 17).contains((6, 16)));
        assert!(!KernelRange::before(6, 17).contains((6, 17)));
        assert!(KernelRange::between((6, 8), (7, 0)).contains((6, 12)));
        assert!(!KernelRange::between((6, 8), (7, 0)).contains((7, 0)));
    }

    #[test]
    fn reports_survive_as_text() {
        for r in [
            Report::Passed,
            Report::Ignored("no x".into()),
            Report::Failed("a\nb".into()),
        ] {
            assert_eq!(Report::from_text(&r.to_text()), Some(r));
        }
        assert_eq!(Report::from_text(""), None);
        assert_eq!(Report::from_text("maybe"), None);
    }

    #[test]
    fn known_bad_turns_both_ways() {
        let bad = KnownBad {
            kernels: KernelRange::since(6, 8),
            why: "atomics",
        };
        let on = |r: Report, k| r.judged(Some(&bad), Some(k));
        assert!(matches!(
            on(Report::Failed("x".into()), (6, 12)),
            Report::Ignored(_)
        ));
        assert!(matches!(on(Report::Passed, (6, 12)), Report::Failed(_)));
        assert_eq!(on(Report::Passed, (6, 1)), Report::Passed);
        assert_eq!(
            on(Report::Failed("x".into()), (6, 1)),
            Report::Failed("x".into())
        );
    }

    #[test]
    fn names_are_unique_and_have_a_group() {
        let mut names: Vec<_> = all().iter().map(|c| c.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|n| n.contains("::")), "{names:?}");
    }
}

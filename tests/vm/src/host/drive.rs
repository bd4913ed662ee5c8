//! Takes test cases through their boots.
//!
//! Must never lose a case: each given one gets exactly one report, whatever happens to the guest.

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::build;
use super::cache::{Cache, RunFolder};
use super::cpio::{Entry, Tree};
use super::initrd;
use super::kernel::Kernel;
use super::peers;
use super::qemu::{self, Machine};
use super::report::{Doing, Problem, say};
use super::session::{Guest, Next};
use crate::bench::Clock;
use crate::cases::{Case, Report};
use crate::guest::kmsg::is_complaint;
use crate::guest::modules::TEST_FOLDER;
use crate::guest::{CASE_ARG, parse_release};
use crate::protocol::{Job, ToGuest, ToHost};

/// How long a guest may run all its cases, however many there are; what has a limit of its own when it
/// runs in full comes on top.
const BOOT_LIMIT: Duration = Duration::from_secs(45 * 60);
/// How long a killed case may take to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// How much of a case's output a failure shows.
const SHOWN_OUTPUT: usize = 8 << 10;

/// What the guest is made of.
#[derive(Debug)]
pub struct Plan {
    /// The cache.
    pub cache: Cache,
    /// The kernel.
    pub kernel: Kernel,
    /// The test modules, or why there are none.
    pub modules: Result<Vec<PathBuf>, Problem>,
}

/// The cases, and where their reports go.
#[derive(Debug, Default)]
pub struct Given {
    /// Each case.
    pub cases: Vec<(&'static Case, Sender<Report>)>,
    /// Who is told whether the kernel's log is clean, if anybody asked.
    pub log_clean: Option<Sender<Report>>,
}

type Work = (&'static Case, Sender<Report>);

/// Runs all cases: one boot for most, one each for those that want it.
pub fn all(plan: &Plan, given: Given) {
    let (fresh, shared): (Vec<Work>, Vec<Work>) =
        given.cases.into_iter().partition(|(c, _)| c.fresh_boot);
    let mut boots: Vec<Vec<Work>> = Vec::new();
    if !shared.is_empty() || fresh.is_empty() {
        boots.push(shared);
    }
    boots.extend(fresh.into_iter().map(|f| vec![f]));

    let peers = boots.iter().flatten().any(|(case, _)| case.peers);
    let prepared = prepare(plan, peers);
    let mut complaints = Vec::new();
    for boot in boots {
        match &prepared {
            Ok((machine, folder)) => {
                let own = given.log_clean.is_none();
                complaints.extend(one_boot(&plan.cache, machine, folder, boot, own));
            }
            Err(e) => fail_all(boot, &e.to_string()),
        }
    }
    if let Some(to) = given.log_clean {
        let report = match (&prepared, complaints.as_slice()) {
            (Err(e), _) => Report::Failed(e.to_string()),
            (_, []) => Report::Passed,
            (_, lines) => Report::Failed(complained(lines)),
        };
        let _ = to.send(report);
    }
}

fn complained(lines: &[String]) -> String {
    format!("the kernel complained:\n  {}", lines.join("\n  "))
}

fn fail_all(work: Vec<Work>, why: &str) {
    for (_, to) in work {
        let _ = to.send(Report::Failed(why.to_owned()));
    }
}

fn prepare(plan: &Plan, peers: bool) -> Result<(Machine, RunFolder), Problem> {
    let guest = build::guest_program(plan.kernel.arch, true)?;
    let mut tree = Tree::default();
    if peers {
        peers::gather(&plan.cache, plan.kernel.arch, &mut tree)?;
    }
    let folder = plan.cache.run_folder()?;
    let initrd = folder.at("initrd");
    for module in plan.modules.iter().flatten() {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        let content = fs::read(module).doing(|| format!("reading {}", module.display()))?;
        let place = format!("{TEST_FOLDER}/{name}");
        tree.put(&place, Entry::File(content, false));
    }
    initrd::write(&initrd, &guest, &plan.kernel, false, tree)?;
    let machine = Machine {
        kernel: plan.kernel.clone(),
        initrd,
        smp: 2,
        clock: Clock::Host,
        mem: 1024,
        share: None,
    };
    Ok((machine, folder))
}

/// One boot. Gives back what the kernel complained of; with `own`, the last case fails for it too.
fn one_boot(
    cache: &Cache,
    machine: &Machine,
    folder: &RunFolder,
    work: Vec<Work>,
    own: bool,
) -> Vec<String> {
    let mut guest = match Guest::boot(cache, machine, folder) {
        Ok(guest) => guest,
        Err(e) => {
            let text = e.to_string();
            fail_all(work, &format!("the guest did not come up: {text}"));
            return vec![format!("the guest did not come up: {text}")];
        }
    };
    say(format_args!(
        "Linux {} is up after {:.1} s, by {}",
        guest.release,
        guest.boot_time.as_secs_f32(),
        guest.accel
    ));
    let kernel = parse_release(&guest.release);
    let patience = machine.kernel.arch.patience();
    let in_full: Duration = work
        .iter()
        .filter_map(|(case, _)| limit_in_full(case))
        .sum();
    let end = Instant::now() + (BOOT_LIMIT + in_full) * patience;
    // The last report waits for the kernel's log.
    let mut held: Option<(Sender<Report>, Report)> = None;
    let mut lost: Option<String> = None;
    for (case, to) in work {
        let report = match &lost {
            Some(why) => Report::Failed(format!("not run: {why}")),
            None => match run_case(&guest, case, patience, end) {
                Ok((report, output)) => match report.judged(case.known_bad.as_ref(), kernel) {
                    Report::Failed(how) => Report::Failed(format!("{how}\n{}", shown(&output))),
                    other => other,
                },
                Err(Lost { short, long }) => {
                    lost = Some(short);
                    Report::Failed(long)
                }
            },
        };
        if let Some((to, report)) = held.replace((to, report)) {
            let _ = to.send(report);
        }
    }
    if lost.is_none() {
        guest.power_off();
    }
    let complaints: Vec<String> = guest
        .console()
        .lines()
        .filter(|l| is_complaint(l))
        .map(str::to_owned)
        .collect();
    if let Some((to, mut report)) = held {
        if own && !complaints.is_empty() && !matches!(report, Report::Failed(_)) {
            report = Report::Failed(complained(&complaints));
        }
        let _ = to.send(report);
    }
    complaints
}

/// The guest is lost: for the cases behind, and for the one it happened in.
struct Lost {
    short: String,
    long: String,
}

/// The limit that a case has only when the long cases run in full, as they do now.
fn limit_in_full(case: &Case) -> Option<Duration> {
    case.limit_in_full.filter(|_| qemu::runs_in_full())
}

/// Runs one case; gives back its report and what it printed.
fn run_case(
    guest: &Guest,
    case: &Case,
    patience: u32,
    boot_end: Instant,
) -> Result<(Report, Vec<u8>), Lost> {
    let allowed = limit_in_full(case).unwrap_or(case.limit) * patience;
    let argv = ["/init", CASE_ARG, case.name]
        .map(|a| a.as_bytes().to_vec())
        .to_vec();
    let env = ["PATH=/bin", "HOME=/root", "RUST_BACKTRACE=1"].map(|v| v.as_bytes().to_vec());
    let died = |output: &[u8]| Lost {
        short: format!("guest died in {}", case.name),
        long: format!(
            "guest died while running {}\n{}{}",
            case.name,
            guest.last_words(),
            shown(output)
        ),
    };
    let _ = guest.tell(&ToGuest::Run(Job {
        argv,
        env: env.to_vec(),
    }));
    let _ = guest.tell(&ToGuest::StdinEnd);
    let limit = (Instant::now() + allowed).min(boot_end);
    let mut output = Vec::new();
    let mut killed = false;
    loop {
        let until = if killed { limit + KILL_LIMIT } else { limit };
        match guest.next(Some(until)) {
            Next::Message(ToHost::Stdout(bytes) | ToHost::Stderr(bytes)) => {
                output.extend(bytes);
                // Only the end is shown; a chatty case must not fill the memory.
                if output.len() > 1 << 20 {
                    output.drain(..output.len() - (1 << 19));
                }
            }
            Next::Message(ToHost::Done(_)) if killed => {
                let text = format!("no end within {} s; it was killed", allowed.as_secs());
                return Ok((Report::Failed(text), output));
            }
            Next::Message(ToHost::Done(done)) => {
                let report = done.verdict.as_deref().and_then(Report::from_text);
                let report = match (done.status, report) {
                    (0, Some(report)) => report,
                    (status, _) => Report::Failed(format!(
                        "ended with status {status}{} and no verdict",
                        signal_words(status)
                    )),
                };
                return Ok((report, output));
            }
            Next::Message(_) => {}
            Next::TimedOut if !killed => {
                killed = true;
                let _ = guest.tell(&ToGuest::Kill);
            }
            Next::TimedOut => {
                return Err(Lost {
                    short: format!("guest hung in {}", case.name),
                    long: format!(
                        "no end within {} s, and it cannot be killed: stuck in the kernel?\n{}{}",
                        allowed.as_secs(),
                        guest.last_words(),
                        shown(&output)
                    ),
                });
            }
            Next::Died => return Err(died(&output)),
        }
    }
}

fn signal_words(status: u8) -> String {
    let signal = nix::sys::signal::Signal::try_from(i32::from(status) - 128);
    signal.map(|s| format!(" ({s})")).unwrap_or_default()
}

fn shown(output: &[u8]) -> String {
    let end = output
        .get(output.len().saturating_sub(SHOWN_OUTPUT)..)
        .unwrap_or_default();
    String::from_utf8_lossy(end)
        .lines()
        .map(|l| format!("  output| {l}\n"))
        .collect()
}

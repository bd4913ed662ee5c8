//! The test target: lists the cases, boots once for all that are selected, deals the verdicts out.
//!
//! Must never download, never boot to list, and never call a case passed that did not run.

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use super::build;
use super::cache::Cache;
use super::drive::{self, Given, Plan};
use super::expected::Expected;
use super::kernel;
use super::modules;
use super::peers;
use super::qemu;
use super::report::{Problem, say};
use crate::cases::{self, Case, Report};
use crate::guest::parse_release;

/// Exit status when the guest is required and cannot be had.
const REQUIRED: u8 = 101;

/// Environment variable: set, only the cases run that are to run on every kernel.
pub const PART: &str = "UVERBS_VM_PART";

/// Name of the test that fails when the kernel complained in any boot.
pub const LOG_CLEAN: &str = "kernel::log_clean";

/// Runs the test target.
pub fn main() -> ExitCode {
    let args = Arguments::from_args();
    let mode = env::var("UVERBS_VM").unwrap_or_default();
    match mode.as_str() {
        "off" => return libtest_mimic::run(&args, Vec::new()).exit_code(),
        "" | "auto" | "require" => {}
        other => {
            say(format_args!(
                "UVERBS_VM is {other}; it may be auto, require or off"
            ));
            return ExitCode::from(REQUIRED);
        }
    }
    let plan = match prerequisites() {
        Ok(plan) => plan,
        Err(why) if mode == "require" && !args.list => {
            say(format_args!(
                "vm tests are required and cannot run here: {why}"
            ));
            return ExitCode::from(REQUIRED);
        }
        Err(why) => {
            if !args.list {
                say(format_args!("vm tests cannot run here: {why}"));
            }
            return libtest_mimic::run(&args, ignored(&why.to_string())).exit_code();
        }
    };
    let expected = match Expected::built_in() {
        Ok(expected) => Arc::new(expected),
        Err(e) => {
            say(e);
            return ExitCode::from(REQUIRED);
        }
    };
    let required = mode == "require";
    let conclusion = libtest_mimic::run(&args, trials(&args, plan, &expected, required));
    let _ = io::stdout().flush();
    conclusion.exit_code()
}

/// What must be there before the first boot; nothing of it is made here.
fn prerequisites() -> Result<Plan, Problem> {
    let cache = Cache::locate()?;
    let kernel = kernel::choose(&cache, None)?;
    qemu::find(kernel.arch)?;
    build::target_for(kernel.arch)?;
    let modules = modules::find(&cache, &kernel);
    Ok(Plan {
        cache,
        kernel,
        modules,
    })
}

fn names() -> impl Iterator<Item = (&'static str, Option<&'static Case>)> {
    cases::all()
        .into_iter()
        .map(|c| (c.name, Some(c)))
        .chain([(LOG_CLEAN, None)])
}

fn ignored(why: &str) -> Vec<Trial> {
    names()
        .map(|(name, _)| {
            let why = why.to_owned();
            trial(name, move || Ok(Completion::ignored_with(why)))
        })
        .collect()
}

fn trial(name: &str, run: impl FnOnce() -> Result<Completion, Failed> + Send + 'static) -> Trial {
    Trial::ignorable_test(name, run).with_kind("vm")
}

/// Starts the guest when the first test wants its result.
#[derive(Debug)]
struct Launch(Mutex<Option<(Plan, Given)>>);

impl Launch {
    fn start(&self) {
        let work = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((plan, given)) = work {
            // One thread lives as long as its guest: QEMU dies with the thread that started it.
            thread::spawn(move || drive::all(&plan, given));
        }
    }
}

/// What a case is that needs what is not there.
fn without(name: &str, why: &str, required: bool) -> Trial {
    let why = why.to_owned();
    trial(name, move || match required {
        true => Err(Failed::from(why)),
        false => Ok(Completion::ignored_with(why)),
    })
}

/// Why a case cannot run, if it cannot.
fn lacking(plan: &Plan, case: &Case) -> Option<String> {
    match &plan.modules {
        Err(why) if case.modules => Some(why.to_string()),
        _ if case.peers => peers::missing(&plan.cache, plan.kernel.arch),
        _ => None,
    }
}

fn trials(args: &Arguments, plan: Plan, expected: &Arc<Expected>, required: bool) -> Vec<Trial> {
    let selected = |name: &str| !args.is_filtered_out(&trial(name, || Ok(Completion::Completed)));
    let mut given = Given::default();
    let mut waiting: Vec<(&'static str, Receiver<Report>)> = Vec::new();
    let mut all: Vec<Trial> = Vec::new();
    let part = env::var_os(PART).is_some_and(|part| !part.is_empty());
    let wanted = |case: Option<&Case>| !part || case.is_none_or(Case::runs_on_every_kernel);
    for (name, case) in names().filter(|(name, case)| selected(name) && wanted(*case)) {
        if let Some(why) = case.and_then(|case| lacking(&plan, case)) {
            all.push(without(name, &why, required));
            continue;
        }
        let (to, from): (Sender<Report>, _) = mpsc::channel();
        waiting.push((name, from));
        match case {
            Some(case) => given.cases.push((case, to)),
            None => given.log_clean = Some(to),
        }
    }
    let kernel = parse_release(&plan.kernel.release);
    let launch = Arc::new(Launch(Mutex::new(Some((plan, given)))));
    all.extend(waiting.into_iter().map(|(name, from)| {
        let (launch, expected) = (Arc::clone(&launch), Arc::clone(expected));
        trial(name, move || {
            launch.start();
            let report = from
                .recv()
                .map(|report| expected.judge(name, kernel, report));
            match report {
                Ok(Report::Passed) => Ok(Completion::Completed),
                Ok(Report::Ignored(why)) => Ok(Completion::ignored_with(why)),
                Ok(Report::Failed(how)) => Err(Failed::from(how)),
                Err(_) => Err(Failed::from(
                    "the harness ended before this test had a result",
                )),
            }
        })
    }));
    all
}

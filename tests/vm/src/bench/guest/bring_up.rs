//! From exec to a queue pair in RTS; objects made and unmade; many queue pairs at a time.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::trace;
use super::twin::{Answer, Side, Twin, numbers, parse};
use super::{Failure, progress, tell};
use crate::bench::stats::precise;
use crate::bench::{Form, Group, Record, Summary};

/// How often each twin is started.
const STARTS: usize = 15;
/// Objects made in one turn, and turns.
const OBJECTS: usize = 40;
const ROUNDS: usize = 3;
/// Queue pairs that live at the same time.
const MANY: u64 = 10_000;

/// Where libibverbs learns of providers.
const PROVIDERS: &str = "/etc/libibverbs.d";
const ONE_PROVIDER: &str = "rxe.driver";

pub(super) fn run() -> Result<(), Failure> {
    starts("exec_to_rts", "devices_to_rts")?;
    with_one_provider(|| starts("exec_to_rts_one_provider", "devices_to_rts_one_provider"))??;
    objects()?;
    many()
}

fn record(row: impl Into<String>, unit: &str) -> Record {
    Record::new(Group::BringUp, row, Form::Shared, unit)
}

/// System calls and time up to RTS, from exec on and from the list of devices on.
fn starts(from_exec: &str, from_devices: &str) -> Result<(), Failure> {
    progress(from_exec);
    let mut row = record(format!("{from_exec}_system_calls"), "calls");
    let calls = |side: Side| trace::system_calls(side.program(), &["bring-up"]);
    row.c = Some(Summary::exact(precise(calls(Side::C)?)));
    row.rust = Some(Summary::exact(precise(calls(Side::Rust)?)));
    tell(&row)?;

    let mut whole = (Vec::new(), Vec::new());
    let mut part = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        for side in Side::BOTH {
            let (exec, devices) = start(side)?;
            let (whole, part) = match side {
                Side::C => (&mut whole.0, &mut part.0),
                Side::Rust => (&mut whole.1, &mut part.1),
            };
            whole.push(exec);
            part.push(devices);
        }
    }
    for (name, (c, rust)) in [(from_exec, whole), (from_devices, part)] {
        let mut row = record(name, "µs");
        row.c = Summary::of_numbers(&c, 1000.0);
        row.rust = Summary::of_numbers(&rust, 1000.0);
        tell(&row)?;
    }
    Ok(())
}

/// Starts a twin once; gives the nanoseconds from before its exec, and from its list of devices.
fn start(side: Side) -> Result<(u64, u64), Failure> {
    let before = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    let output = Command::new(side.program()).arg("bring-up").output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let (name, times) = parse(&said).map_err(|e| format!("{}: {e}", side.program()))?;
    match (name.as_str(), times.as_slice()) {
        ("rts", [end, since_devices]) => {
            let before = u64::try_from(Duration::from(before).as_nanos())?;
            Ok((end.saturating_sub(before), *since_devices))
        }
        _ => Err(format!("{}: {said:?} is no answer", side.program()).into()),
    }
}

/// Hides all providers of libibverbs but rxe's meanwhile.
fn with_one_provider<T>(run: impl FnOnce() -> T) -> io::Result<T> {
    let aside = format!("{PROVIDERS}.aside");
    fs::rename(PROVIDERS, &aside)?;
    fs::create_dir(PROVIDERS)?;
    fs::copy(
        Path::new(&aside).join(ONE_PROVIDER),
        Path::new(PROVIDERS).join(ONE_PROVIDER),
    )?;
    let done = run();
    fs::remove_dir_all(PROVIDERS)?;
    fs::rename(&aside, PROVIDERS)?;
    Ok(done)
}

fn objects() -> Result<(), Failure> {
    let mut twins = [Twin::start(Side::C)?, Twin::start(Side::Rust)?];
    for (name, what, bytes) in [
        ("pd", "pd", 0),
        ("mr_4096", "mr", 4096),
        ("mr_65536", "mr", 64 << 10),
        ("mr_16777216", "mr", 16 << 20),
        ("cq", "cq", 0),
        ("qp", "qp", 0),
    ] {
        progress(format_args!("create and destroy {name}"));
        let mut samples = [Answer::new(), Answer::new()];
        for _ in 0..ROUNDS {
            for (twin, samples) in twins.iter_mut().zip(&mut samples) {
                let answer = twin.ask(&format!("make {what} {OBJECTS} {bytes}"))?;
                for (name, numbers) in answer {
                    samples.entry(name).or_default().extend(numbers);
                }
            }
        }
        let [c, rust] = &samples;
        for verb in ["create", "destroy"] {
            let mut row = record(format!("{verb}_{name}"), "µs");
            row.c = Summary::of_numbers(&numbers(c, verb)?, 1000.0);
            row.rust = Summary::of_numbers(&numbers(rust, verb)?, 1000.0);
            tell(&row)?;
        }
    }
    Ok(())
}

fn many() -> Result<(), Failure> {
    let mut answers = Vec::new();
    for side in Side::BOTH {
        progress(format_args!("{MANY} queue pairs, {}", side.name()));
        answers.push(Twin::start(side)?.ask(&format!("many {MANY}"))?);
    }
    let [c, rust] = answers.as_slice() else {
        return Err("two twins give two answers".into());
    };
    for (row, unit, name, by) in [
        ("qps_10000_all", "ms", "all", 1e6),
        ("qps_10000_first_tenth", "µs", "first", 1e3),
        ("qps_10000_last_tenth", "µs", "last", 1e3),
    ] {
        let mut row = record(row, unit);
        row.c = Summary::of_numbers(&numbers(c, name)?, by);
        row.rust = Summary::of_numbers(&numbers(rust, name)?, by);
        tell(&row)?;
    }
    let mut row = record("qps_10000_resident_each", "bytes");
    row.c = Some(Summary::exact(resident_each(c)?));
    row.rust = Some(Summary::exact(resident_each(rust)?));
    tell(&row)
}

fn resident_each(answer: &Answer) -> Result<f64, Failure> {
    match numbers(answer, "resident")?.as_slice() {
        [before, after] => {
            let grown = after.saturating_sub(*before) * 1024;
            Ok(precise(grown) / precise(MANY))
        }
        other => Err(format!("{other:?} is no pair of sizes").into()),
    }
}

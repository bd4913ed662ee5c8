//! From exec to a queue pair in RTS; objects made and unmade; many queue pairs at a time.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::alone::settle;
use super::groups::put_back;
use super::instructions::{median, on_one_processor, regions};
use super::trace;
use super::turns::{LEAST_ROUNDS, Turns, in_turn};
use super::twin::{Answer, Side, Twin, numbers, parse};
use super::{Budget, Failure, progress, tell};
use crate::bench::record::COUNTED;
use crate::bench::stats::precise;
use crate::bench::{C_LIMIT, Clock, Form, Group, RUST_NO_MAIN, Record, Summary};

/// How often each twin is started, where there is time for it.
const STARTS: usize = 25;
/// Objects made in one turn, and turns.
const OBJECTS: usize = 20;
const ROUNDS: usize = 40;
/// Queue pairs that live at the same time.
const MANY: u64 = 10_000;

/// Where libibverbs learns of providers.
const PROVIDERS: &str = "/etc/libibverbs.d";
/// Where they are meanwhile.
const ASIDE: &str = "/etc/libibverbs.d.aside";
const ONE_PROVIDER: &str = "rxe.driver";

pub(super) fn run(budget: Budget) -> Result<(), Failure> {
    let rust = Side::Rust.program();
    starts(budget, "", rust)?;
    starts(budget, "_no_main", RUST_NO_MAIN)?;
    with_one_provider(|| starts(budget, "_one_provider", rust))??;
    on_one_processor(|| objects(Budget::of(budget.left() / 4)))?;
    on_one_processor(|| {
        ["pd", "mr", "cq", "qp"]
            .into_iter()
            .try_for_each(objects_counted)
    })?;
    many()
}

fn record(row: impl Into<String>, unit: &str) -> Record {
    Record::new(Group::BringUp, row, Form::Shared, unit)
}

/// System calls and time up to RTS, from exec on and from the list of devices on; and the latter once more
/// in the same process, which then has all its code and memory. `rust` is Rust's program.
fn starts(budget: Budget, how: &str, rust: &str) -> Result<(), Failure> {
    progress(format_args!("exec_to_rts{how}"));
    let mut row = record(format!("exec_to_rts{how}_system_calls"), "calls");
    let calls = |program: &str| {
        let calls = trace::system_calls(program, &["bring-up"])?;
        Ok::<_, Failure>(Summary::exact(precise(calls)))
    };
    row.c = Some(calls(Side::C.program())?);
    row.rust = Some(calls(rust)?);
    row.limit = Some(calls(C_LIMIT)?.median);
    tell(&row)?;

    // The queue pairs, last of all, take most of the time.
    let time = Budget::of(budget.left() / 10);
    let mut rows = ["exec_to_rts", "devices_to_rts", "to_rts_again"]
        .map(|name| (name, Turns::default(), Vec::new()));
    for turn in 0..Clock::here().turns(STARTS) {
        if turn >= LEAST_ROUNDS && time.is_spent() {
            break;
        }
        let mut programs = [Side::C.program(), rust];
        let [of_c, of_rust] = in_turn(&mut programs, turn, |program| start(program))?;
        let of_none = start(C_LIMIT)?;
        for (i, (_, turns, limit)) in rows.iter_mut().enumerate() {
            turns.push(&[of_c[i]], &[of_rust[i]]);
            limit.push(of_none[i]);
        }
    }
    for (name, turns, limit) in rows {
        let mut row = record(format!("{name}{how}"), "µs");
        turns.tell(&mut row, 1000.0);
        row.limit = Summary::of_numbers(&limit, 1000.0).map(|limit| limit.median);
        tell(&row)?;
    }
    Ok(())
}

/// Starts a program once; gives the nanoseconds from before its process is made, from where it begins to look for the
/// device, and of the second time.
fn start(program: &str) -> Result<[u64; 3], Failure> {
    let before = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    let output = Command::new(program).arg("bring-up").output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let (name, times) = parse(&said).map_err(|e| format!("{program}: {e}"))?;
    match (name.as_str(), times.as_slice()) {
        ("rts", [end, since_devices, again]) => {
            let before = u64::try_from(Duration::from(before).as_nanos())?;
            Ok([end.saturating_sub(before), *since_devices, *again])
        }
        _ => Err(format!("{program}: {said:?} is no answer").into()),
    }
}

/// Hides all providers of libibverbs but rxe's meanwhile.
fn with_one_provider<T>(run: impl FnOnce() -> T) -> Result<T, Failure> {
    fs::rename(PROVIDERS, ASIDE)?;
    fs::create_dir(PROVIDERS)?;
    fs::copy(
        Path::new(ASIDE).join(ONE_PROVIDER),
        Path::new(PROVIDERS).join(ONE_PROVIDER),
    )?;
    let done = run();
    all_providers_again()?;
    Ok(done)
}

/// Ends what [`with_one_provider`] began, if it did not do so itself.
pub(super) fn all_providers_again() -> Result<(), Failure> {
    put_back(ASIDE, PROVIDERS)
}

fn objects(time: Budget) -> Result<(), Failure> {
    let mut twins = [Twin::start(Side::C)?, Twin::start(Side::Rust)?];
    settle(&twins);
    for (name, what, bytes) in [
        ("pd", "pd", 0),
        ("mr_4096", "mr", 4096),
        ("mr_65536", "mr", 64 << 10),
        ("mr_16777216", "mr", 16 << 20),
        ("cq", "cq", 0),
        ("qp", "qp", 0),
    ] {
        progress(format_args!("create and destroy {name}"));
        let mut verbs = ["create", "destroy"].map(|verb| (verb, Turns::default()));
        for round in 0..Clock::here().turns(ROUNDS) {
            if round >= LEAST_ROUNDS && round % 2 == 0 && time.is_spent() {
                break;
            }
            let [c, rust] = in_turn(&mut twins, round, |twin| {
                twin.ask(&format!("make {what} {OBJECTS} {bytes}"))
            })?;
            for (verb, turns) in &mut verbs {
                turns.push(&numbers(&c, verb)?, &numbers(&rust, verb)?);
            }
        }
        for (verb, turns) in verbs {
            let mut row = record(format!("{verb}_{name}"), "µs");
            turns.tell(&mut row, 1000.0);
            tell(&row)?;
        }
    }
    Ok(())
}

/// User-space instructions of making and unmaking one, the second: in the first a dynamic linker is at
/// work.
fn objects_counted(what: &str) -> Result<(), Failure> {
    progress(format_args!("instructions to create and destroy {what}"));
    let mut medians = Vec::new();
    for side in Side::BOTH {
        let counted = regions(side.program(), &["make", what, "2", "4096"])?;
        for verb in [0, 1] {
            let of_verb = counted.iter().skip(2 + verb).step_by(2);
            let counts: Vec<u64> = of_verb.map(|(count, _)| *count).collect();
            medians.push(median(&counts)?);
        }
    }
    let [c_create, c_destroy, rust_create, rust_destroy] = *medians.as_slice() else {
        return Err("two twins count two verbs each".into());
    };
    for (verb, c, rust) in [
        ("create", c_create, rust_create),
        ("destroy", c_destroy, rust_destroy),
    ] {
        let mut row = record(format!("{verb}_{what}_instructions"), COUNTED);
        row.c = Some(Summary::exact(c));
        row.rust = Some(Summary::exact(rust));
        tell(&row)?;
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

//! User-space instructions of one call, counted by executing them one at a time.

use std::fs::File;
use std::process::Command;
use std::thread::available_parallelism;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use uverbs_tools::count;

use super::twin::{Side, parse};
use super::{Failure, progress, tell};
use crate::bench::stats::precise;
use crate::bench::{C_TWIN, Form, Group, Record, Summary};

/// Calls of each kind; the first is not counted, since a dynamic linker may still be at work in it.
pub(super) const REPEATS: usize = 3;
/// How often a row is tried whose completions were not there in time.
const ATTEMPTS: usize = 5;
const OUTPUT: &str = "/run/uverbs-bench-output";

/// Each row, and the requests that one call carries.
pub(super) const ROWS: [(&str, u32); 8] = [
    ("post_send_write_64", 1),
    ("post_send_inline_32", 1),
    ("post_send_batch16", 16),
    ("post_recv_1", 1),
    ("post_recv_batch16", 16),
    ("poll_1", 1),
    ("poll_16", 16),
    ("poll_empty", 1),
];

pub(super) fn run() -> Result<(), Failure> {
    on_one_processor(rows)
}

/// Counts something: the tracer and what it traces take turns, thousands of times, and on one processor a
/// turn is cheap.
pub(super) fn on_one_processor(count: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let all = available_parallelism()?.get();
    on_processors(1)?;
    let done = count();
    on_processors(all)?;
    done
}

/// Lets this thread, and what it starts, run on the first so many processors only.
pub(super) fn on_processors(count: usize) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    for processor in 0..count {
        set.set(processor)?;
    }
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

fn rows() -> Result<(), Failure> {
    for (row, batch) in ROWS {
        progress(format_args!("{row}, C"));
        let c = counted(Side::C.program(), row, "shared", batch)?;
        progress(format_args!("{row}, with nothing around it"));
        let limit = counted(C_TWIN, row, "bare", batch)?;
        for form in [Form::Exclusive, Form::Shared] {
            progress(format_args!("{row}, Rust, {}", form.name()));
            let mut record = Record::new(Group::Instructions, row, form, "instructions");
            record.c = Some(c);
            record.rust = Some(counted(Side::Rust.program(), row, form.name(), batch)?);
            record.limit = Some(limit.median);
            tell(&record)?;
        }
    }
    // What telling the device costs by itself, of what was counted above.
    for row in ["doorbell_write", "doorbell_ioctl"] {
        let mut record = Record::new(Group::Instructions, row, Form::Shared, "instructions");
        record.limit = Some(counted(C_TWIN, row, "bare", 1)?.median);
        tell(&record)?;
    }
    Ok(())
}

pub(super) fn counted(
    program: &str,
    row: &str,
    form: &str,
    batch: u32,
) -> Result<Summary, Failure> {
    for _ in 0..ATTEMPTS {
        let repeats = REPEATS.to_string();
        let counts = regions(program, &["count", row, &repeats, form])?;
        let samples = usable(row, batch, &counts)?;
        if let Some(summary) = Summary::of_numbers(&samples, f64::from(batch)) {
            return Ok(summary);
        }
    }
    Err(format!("{program}: {row}: completions did not come in time in {ATTEMPTS} attempts").into())
}

/// The instructions of each region of one command, and what the twin said.
pub(super) fn regions(program: &str, args: &[&str]) -> Result<Vec<(u64, Option<u64>)>, Failure> {
    let mut command = Command::new(program);
    command
        .arg("counted")
        .args(args)
        .stdout(File::create(OUTPUT)?);
    let counts = count::calls(&mut command);
    let said = std::fs::read_to_string(OUTPUT)?;
    let mut got = Vec::new();
    for line in said.lines() {
        let (name, numbers) = parse(line).map_err(|why| format!("{program}: {args:?}: {why}"))?;
        if name == "got" {
            got = numbers;
        }
    }
    let counts = counts.map_err(|e| format!("{program}: {args:?}: {e}"))?;
    let said = got.into_iter().map(Some).chain(std::iter::repeat(None));
    Ok(counts.into_iter().zip(said).collect())
}

/// Of all but the first call, those that took as many completions as the row is about.
fn usable(row: &str, batch: u32, counts: &[(u64, Option<u64>)]) -> Result<Vec<u64>, Failure> {
    let want = match row {
        "poll_empty" => Some(0),
        "poll_1" | "poll_16" => Some(u64::from(batch)),
        _ => None,
    };
    if counts.len() != REPEATS {
        return Err(format!("{row}: {} calls were counted, not {REPEATS}", counts.len()).into());
    }
    Ok(counts
        .iter()
        .skip(1)
        .filter(|(_, got)| *got == want)
        .map(|(count, _)| *count)
        .collect())
}

/// The middle of some counts.
pub(super) fn median(counts: &[u64]) -> Result<f64, Failure> {
    let samples: Vec<f64> = counts.iter().map(|n| precise(*n)).collect();
    Ok(Summary::of(&samples).ok_or("nothing was counted")?.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_calls_are_left_out() -> Result<(), Failure> {
        let all = [(900, Some(1)), (66, Some(1)), (48, Some(0))];
        assert_eq!(usable("poll_1", 1, &all)?, [66]);
        assert_eq!(usable("poll_empty", 1, &all)?, [48]);
        let silent = [(900, None), (200, None), (201, None)];
        assert_eq!(usable("post_recv_1", 1, &silent)?, [200, 201]);
        assert!(usable("post_recv_1", 1, &silent[1..]).is_err());
        Ok(())
    }
}

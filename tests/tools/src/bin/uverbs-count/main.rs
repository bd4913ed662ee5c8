//! Counts the instructions of the data path, on this machine and without a device.
//!
//! ```text
//! uverbs-count [--json]
//! ```
//!
//! What is counted is the release build of the public API, on queues that `uverbs::fake` makes as
//! rxe does. The kernel's side of the queues is moved by this program, outside of what is counted;
//! the doorbell is the real one, a `write()` of the real frame, to `/dev/null`: so what user space
//! does for it is counted, and what a kernel does is not.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool"
)]

mod objects;
mod rows;

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::process::{Command, ExitCode};

use uverbs_tools::count;

use rows::{EVENTS, FORMS, ROUNDS, ROWS};

/// Makes this program the one that is counted.
const COUNTED: &str = "--counted";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("uverbs-count: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let argument = env::args().nth(1);
    match argument.as_deref() {
        Some(COUNTED) => return rows::run(),
        None | Some("--json") => {}
        Some(other) => return Err(format!("unknown argument {other}").into()),
    }
    let counts = count::calls(Command::new(env::current_exe()?).arg(COUNTED))?;
    let before_objects = (FORMS.len() * ROWS.len() + EVENTS.len()) * ROUNDS;
    let wanted = before_objects + objects::regions();
    if counts.len() != wanted {
        return Err(format!("{} regions came, {wanted} were expected", counts.len()).into());
    }
    let (counts, of_objects) = counts.split_at(before_objects);
    let mut rounds = counts.chunks(ROUNDS);
    let mut table = BTreeMap::new();
    let mut all: Vec<_> = FORMS
        .iter()
        .flat_map(|form| ROWS.map(|(row, batch)| (*form, row, batch)))
        .collect();
    all.extend(EVENTS.map(|row| ("shared", row, 1)));
    for (form, row, batch) in all {
        let mut counts = rounds.next().unwrap_or_default().to_vec();
        counts.sort_unstable();
        let median = counts.get(counts.len() / 2).copied().unwrap_or_default();
        // Tenths of an instruction for each work request.
        table.insert((form, row), median * 10 / batch);
    }
    for (row, mut sums) in objects::sums(of_objects) {
        sums.sort_unstable();
        let median = sums.get(sums.len() / 2).copied().unwrap_or_default();
        table.insert(("shared", row), median * 10);
    }
    let tenths = |n: u64| format!("{}.{}", n / 10, n % 10);
    if argument.is_some() {
        let lines: Vec<String> = table
            .iter()
            .map(|((form, row), n)| {
                let n = tenths(*n);
                format!(r#"  {{"row": "{row}", "form": "{form}", "instructions": {n}}}"#)
            })
            .collect();
        println!("[\n{}\n]", lines.join(",\n"));
        return Ok(());
    }
    println!("| instructions for each work request, event or object | exclusive | shared |");
    println!("|---|--:|--:|");
    let of_objects = objects::OBJECTS.iter().flat_map(|(rows, _)| *rows);
    let rows = ROWS.map(|(row, _)| row).into_iter().chain(EVENTS);
    for row in rows.chain(of_objects) {
        let of = |form| match table.get(&(form, row)) {
            Some(count) => tenths(*count),
            None => String::new(),
        };
        let (exclusive, shared) = (of("exclusive"), of("shared"));
        println!("| `{row}` | {exclusive} | {shared} |");
    }
    Ok(())
}

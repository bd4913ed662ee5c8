//! Other Rust crates for verbs, beside C and this project's: instructions of a call, and what a program
//! that holds one connection has of memory and files.
//!
//! A row's name is what was done and by whom. `C` is the C library called by itself, with the request made
//! before; of the crates the making of it is counted too, since not all let it be made before.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::instructions::{REPEATS, ROWS, counted, on_processors, regions};
use super::size::{Waiting, held};
use super::{Failure, progress, tell};
use crate::bench::stats::precise;
use crate::bench::{C_TWIN, CRATES, Form, Group, RUST_PEERS, Record, Summary};

/// The row that only these programs have, beside those of [`ROWS`], as there.
const SEND: (&str, u32) = ("post_send_send_64", 1);

/// Who is counted: the crate, its form as the program calls it, and the form of the record.
const WHO: [(&str, &str, &str, Form); 5] = [
    ("ibverbs", "ibverbs", "only", Form::Shared),
    ("sideway-extended", "sideway", "extended", Form::Shared),
    ("sideway-basic", "sideway", "basic", Form::Shared),
    ("uverbs", "uverbs", "exclusive", Form::Exclusive),
    ("uverbs", "uverbs", "shared", Form::Shared),
];

fn program(name: &str) -> String {
    format!("{RUST_PEERS}/{name}")
}

pub(super) fn run() -> Result<(), Failure> {
    for name in CRATES {
        progress(format_args!("a program that holds a connection, {name}"));
        let seen = holding(&program(name))?;
        for (what, unit, number) in [
            ("resident", "KiB", seen.resident_kib),
            ("mapped_bytes", "bytes", seen.bytes),
            ("mapped_files", "files", seen.files),
        ] {
            let mut row = record(what, name, Form::Shared, unit);
            row.rust = Some(Summary::exact(precise(number)));
            tell(&row)?;
        }
    }
    on_processors(1)?;
    for (row, batch) in [SEND].into_iter().chain(ROWS) {
        progress(format_args!("{row}, C"));
        let c = counted(C_TWIN, row, "shared", batch)?;
        for (who, name, form, shown) in WHO {
            progress(format_args!("{row}, {name}, {form}"));
            let mut record = record(row, who, shown, "instructions");
            record.c = Some(c);
            if can(&program(name), row, form)? {
                record.rust = Some(counted(&program(name), row, form, batch)?);
            }
            tell(&record)?;
        }
    }
    Ok(())
}

fn record(what: &str, who: &str, form: Form, unit: &str) -> Record {
    Record::new(Group::RustPeers, format!("{what}/{who}"), form, unit)
}

/// Whether the crate's API has what the row is about: else the program has one empty region.
fn can(program: &str, row: &str, form: &str) -> Result<bool, Failure> {
    let repeats = REPEATS.to_string();
    Ok(regions(program, &["count", row, &repeats, form])?.len() == REPEATS)
}

/// Starts a program and looks at it once it has sent and received one message.
fn holding(program: &str) -> Result<Waiting, Failure> {
    let mut child = Command::new(program)
        .arg("hold")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{program}: {e}"))?;
    let seen = ready(&mut child).map_err(|e| format!("{program}: {e}"));
    let _ = child.kill();
    let _ = child.wait();
    Ok(seen?)
}

fn ready(child: &mut Child) -> Result<Waiting, Failure> {
    let out = child.stdout.take().ok_or("it has no output")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    match line.trim() {
        "ready" => held(child.id()),
        other => Err(format!("it said {other:?}").into()),
    }
}

//! Latency and rate of each operation and size, the twins in turn.

use std::time::{Duration, Instant};

use super::twin::{Side, Twin, numbers};
use super::{Failure, progress, tell};
use crate::bench::stats::precise;
use crate::bench::{Form, Group, Record, Summary};

/// Turns of each twin in each row.
const ROUNDS: usize = 6;
/// How long one turn may take, in milliseconds; three samples are taken in any case.
const TURN_MS: u64 = 60;
/// How long the whole group may take; rows behind that are left out, and named.
const LIMIT: Duration = Duration::from_secs(6 * 60);

const SIZES: [u32; 6] = [2, 64, 1 << 10, 4 << 10, 64 << 10, 1 << 20];

/// What is measured in one row.
struct Row {
    name: String,
    form: Form,
    /// The command, the form to be added.
    command: String,
    /// Whether the command is known to the queues with nothing around them.
    bare: bool,
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    // From the smallest on, so that what a limit cuts off is the least telling.
    for size in SIZES {
        for kind in ["send", "write", "read"] {
            operation(&mut rows, kind, size);
        }
        if size == 64 {
            operation(&mut rows, "atomic", 8);
        }
    }
    rows
}

fn operation(rows: &mut Vec<Row>, kind: &str, size: u32) {
    let latency = |how: &str| format!("latency {kind} {size} 2000 {TURN_MS} {how}");
    let name = |what: &str| format!("{what}_{kind}_{size}");
    rows.push(Row {
        name: name("latency_poll"),
        form: Form::Exclusive,
        command: latency("poll"),
        bare: kind == "write",
    });
    rows.push(Row {
        name: name("latency_event"),
        form: Form::Shared,
        command: latency("event"),
        bare: false,
    });
    // A batch of long messages would only measure the wire.
    let batch = if size > 4 << 10 { 4 } else { 16 };
    rows.push(Row {
        name: name("rate"),
        form: Form::Exclusive,
        command: format!("rate {kind} {size} {batch} {TURN_MS}"),
        bare: false,
    });
}

pub(super) fn run() -> Result<(), Failure> {
    let mut twins = [Twin::start(Side::C)?, Twin::start(Side::Rust)?];
    let start = Instant::now();
    let mut left_out = Vec::new();
    for row in rows() {
        if start.elapsed() > LIMIT {
            left_out.push(row.name);
            continue;
        }
        progress(&row.name);
        tell(&measure(&mut twins, &row)?)?;
    }
    if !left_out.is_empty() {
        progress(format_args!("no time was left for {}", left_out.join(", ")));
    }
    Ok(())
}

fn measure(twins: &mut [Twin; 2], row: &Row) -> Result<Record, Failure> {
    let [c, rust] = twins;
    let mut samples = (Vec::new(), Vec::new(), Vec::new());
    // C's turns, split in two: what they differ by is not C's or Rust's doing.
    let mut halves = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let of = |twin: &mut Twin, form: &str| -> Result<Vec<u64>, Failure> {
            numbers(&twin.ask(&format!("{} {form}", row.command))?, "ns")
        };
        let form = row.form.name();
        let (of_c, of_rust);
        // Neither always goes first.
        if round % 2 == 0 {
            of_c = of(c, form)?;
            of_rust = of(rust, form)?;
        } else {
            of_rust = of(rust, form)?;
            of_c = of(c, form)?;
        }
        if row.bare {
            samples.2.extend(of(c, "bare")?);
        }
        let half = if round % 2 == 0 {
            &mut halves.0
        } else {
            &mut halves.1
        };
        half.extend_from_slice(&of_c);
        samples.0.extend(of_c);
        samples.1.extend(of_rust);
    }
    let mut record = Record::new(Group::Traffic, &row.name, row.form, "ns");
    record.c = Summary::of_numbers(&samples.0, 1.0);
    record.rust = Summary::of_numbers(&samples.1, 1.0);
    record.limit = Summary::of_numbers(&samples.2, 1.0).map(|s| s.median);
    record.noise = noise(&halves.0, &halves.1);
    Ok(record)
}

/// By how much the medians of two samplings of the same thing differ, or their least values if
/// those differ more.
pub(super) fn noise(one: &[u64], other: &[u64]) -> Option<f64> {
    let floats = |all: &[u64]| all.iter().map(|n| precise(*n)).collect::<Vec<_>>();
    let (one, other) = (Summary::of(&floats(one))?, Summary::of(&floats(other))?);
    let apart = |a: f64, b: f64| (a.min(b) > 0.0).then(|| a.max(b) / a.min(b) - 1.0);
    Some(apart(one.median, other.median)?.max(apart(one.min, other.min)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_and_operation_has_its_rows() {
        let rows = rows();
        // Three of each for three operations and six sizes, and for one atomic.
        assert_eq!(rows.len(), 3 * (3 * 6 + 1));
        let names: std::collections::BTreeSet<&str> =
            rows.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names.len(), rows.len());
        assert!(names.contains("latency_event_read_1048576"));
        assert!(names.contains("rate_atomic_8"));
    }

    #[test]
    fn noise_is_what_equals_differ_by() {
        let apart = noise(&[100, 100, 100], &[110, 110, 110]);
        assert!(apart.is_some_and(|x| (x - 0.1).abs() < 1e-9));
        assert_eq!(noise(&[5, 6], &[5, 6]), Some(0.0));
        assert_eq!(noise(&[], &[1]), None);
    }
}

//! Latency and rate of each operation and size, the twins in turn.

use std::time::Duration;

use super::alone::{settle, stay_on_one_processor};
use super::turns::{LEAST_ROUNDS, Turns, in_turn};
use super::twin::{Side, Twin, numbers};
use super::{Budget, Failure, progress, tell};
use crate::bench::{Clock, Form, Group, Record, Summary};

/// Turns of each twin in each row, where there is time for them; many and short, so that what else the
/// machine does meanwhile falls on both alike.
const ROUNDS: usize = 100;
/// Of so many rounds, one has a turn of what is bare.
const BARE_EVERY: usize = 4;
/// How long all rows may take, even where there is more time.
const MOST: Duration = Duration::from_secs(400);

const SIZES: [u32; 6] = [2, 64, 1 << 10, 4 << 10, 64 << 10, 1 << 20];

/// What is measured in one row.
struct Row {
    name: String,
    form: Form,
    /// The command, the form to be added.
    command: String,
    /// C's command, where it has none that is the same.
    of_c: Option<String>,
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
            singly(&mut rows);
        }
    }
    rows
}

fn operation(rows: &mut Vec<Row>, kind: &str, size: u32) {
    // In milliseconds; one sample is taken in any case.
    let turn = Clock::here().turn_ms();
    let latency = |how: &str| format!("latency {kind} {size} 2000 {turn} {how}");
    let name = |what: &str| format!("{what}_{kind}_{size}");
    rows.push(Row {
        name: name("latency_poll"),
        form: Form::Exclusive,
        command: latency("poll"),
        of_c: None,
        bare: kind == "write",
    });
    rows.push(Row {
        name: name("latency_event"),
        form: Form::Shared,
        command: latency("event"),
        of_c: None,
        bare: false,
    });
    // A batch of long messages would only measure the wire.
    let batch = if size > 4 << 10 { 4 } else { 16 };
    rows.push(Row {
        name: name("rate"),
        form: Form::Exclusive,
        command: format!("rate {kind} {size} {batch} {turn}"),
        of_c: None,
        bare: false,
    });
}

/// 16 WRITEs by 16 calls: each tells the device, or they are posted under a doorbell held back. C has
/// nothing but the first.
fn singly(rows: &mut Vec<Row>) {
    let turn = Clock::here().turn_ms();
    let command = |name: &str| format!("{name} write 64 16 {turn}");
    for (name, way) in [
        ("rate_singly_write_64", "singly"),
        ("rate_held_write_64", "held"),
    ] {
        rows.push(Row {
            name: name.to_owned(),
            form: Form::Exclusive,
            command: command(way),
            of_c: Some(command("singly")),
            bare: false,
        });
    }
}

pub(super) fn run(budget: Budget) -> Result<(), Failure> {
    stay_on_one_processor();
    let mut twins = [Twin::start(Side::C)?, Twin::start(Side::Rust)?];
    settle(&twins);
    let budget = Budget::of(budget.left().min(MOST));
    let rows = rows();
    let mut left = u32::try_from(rows.len())?;
    for row in rows {
        progress(&row.name);
        let time = Budget::of(budget.left() / left.max(1));
        left = left.saturating_sub(1);
        tell(&measure(&mut twins, &row, time)?)?;
    }
    Ok(())
}

fn measure(twins: &mut [Twin; 2], row: &Row, time: Budget) -> Result<Record, Failure> {
    let mut turns = Turns::default();
    let mut bare = Vec::new();
    for round in 0..Clock::here().turns(ROUNDS) {
        if round >= LEAST_ROUNDS && round % 2 == 0 && time.is_spent() {
            break;
        }
        let of = |twin: &mut Twin, form: &str| -> Result<Vec<u64>, Failure> {
            let own = row.of_c.as_ref().filter(|_| twin.side() == Side::C);
            let command = own.unwrap_or(&row.command);
            numbers(&twin.ask(&format!("{command} {form}"))?, "ns")
        };
        let form = row.form.name();
        let [of_c, of_rust] = in_turn(twins, round, |twin| of(twin, form))?;
        if row.bare && round % BARE_EVERY == 0 {
            bare.extend(of(&mut twins[0], "bare")?);
        }
        turns.push(&of_c, &of_rust);
    }
    let mut record = Record::new(Group::Traffic, &row.name, row.form, "ns");
    turns.tell(&mut record, 1.0);
    record.limit = Summary::of_numbers(&bare, 1.0).map(|s| s.median);
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_and_operation_has_its_rows() {
        let rows = rows();
        // Three of each for three operations and six sizes, and for one atomic; and two singly.
        assert_eq!(rows.len(), 3 * (3 * 6 + 1) + 2);
        let names: std::collections::BTreeSet<&str> =
            rows.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names.len(), rows.len());
        assert!(names.contains("latency_event_read_1048576"));
        assert!(names.contains("rate_atomic_8"));
    }
}

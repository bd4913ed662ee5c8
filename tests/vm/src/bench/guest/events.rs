//! What it costs to be told of an event, with few and with many objects alive.

use std::fs;
use std::time::{Duration, Instant};

use super::alone::{settle, stay_on_one_processor};
use super::instructions::{median, regions};
use super::turns::{LEAST_ROUNDS, Turns, in_turn};
use super::twin::{Side, Twin, numbers};
use super::{Budget, Failure, progress, tell};
use crate::bench::{Clock, Form, Group, Record, Summary};

const LIVE: [u32; 3] = [1, 1_000, 100_000];
/// What is taken instead of the last where making a thousand takes longer than this.
const FEWER: u32 = 10_000;
const THOUSAND_LIMIT: Duration = Duration::from_millis(1_200);
/// Beyond these, instructions are counted no more: each count makes all objects anew.
const COUNTED: [u32; 2] = [1, 1_000];
/// Events of one turn, and turns.
const EVENTS: usize = 20;
const ROUNDS: usize = 20;

pub(super) fn run(budget: Budget) -> Result<(), Failure> {
    // Each queue is a mapping of its own, and 65,530 are allowed otherwise.
    fs::write("/proc/sys/vm/max_map_count", "1000000")?;
    for live in COUNTED {
        progress(format_args!("instructions with {live} alive"));
        let mut row = record(format!("event_instructions_{live}_live"), "instructions");
        row.c = Some(counted(Side::C, live)?);
        row.rust = Some(counted(Side::Rust, live)?);
        tell(&row)?;
    }
    stay_on_one_processor();
    let mut twins = [Twin::start(Side::C)?, Twin::start(Side::Rust)?];
    settle(&twins);
    let mut slow = false;
    for mut live in LIVE {
        if slow && live > FEWER {
            progress(format_args!(
                "this machine is too slow for {live} objects: {FEWER} instead"
            ));
            live = FEWER;
        }
        let mut row = record(format!("event_{live}_live"), "ns");
        let mut turns = Turns::default();
        for round in 0..Clock::here().turns(ROUNDS) {
            if round >= LEAST_ROUNDS && budget.is_spent() {
                break;
            }
            let [c, rust] = in_turn(&mut twins, round, |twin| {
                // Only making them takes long, which is in the first round.
                if round == 0 {
                    progress(format_args!("{live} alive, {}", twin.side().name()));
                }
                let start = Instant::now();
                let times = numbers(&twin.ask(&format!("events {live} {EVENTS}"))?, "ns")?;
                slow |= live == 1_000 && start.elapsed() > THOUSAND_LIMIT;
                Ok(times)
            })?;
            turns.push(&c, &rust);
        }
        turns.tell(&mut row, 1.0);
        tell(&row)?;
    }
    progress("ending, with all that is alive");
    Ok(())
}

fn record(row: String, unit: &str) -> Record {
    Record::new(Group::Events, row, Form::Shared, unit)
}

fn counted(side: Side, live: u32) -> Result<Summary, Failure> {
    let counts = regions(side.program(), &["events", &live.to_string(), "4"])?;
    // The first one is left out, as everywhere.
    let counts: Vec<u64> = counts.iter().skip(1).map(|(count, _)| *count).collect();
    Ok(Summary::exact(median(&counts)?))
}

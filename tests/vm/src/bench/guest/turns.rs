//! Turns of the two twins, side by side.
//!
//! What else the machine does falls on turns that stand side by side alike; so it is their ratios that
//! tell who is behind, and how well that is known.

use super::Failure;
use crate::bench::{Interval, Record, Summary};

/// So many turns there are however little time is left: enough for an interval.
pub(super) const LEAST_ROUNDS: usize = 8;

/// Asks both the same, C and then Rust or the other way: of two rounds each goes first in one.
pub(super) fn in_turn<S, T>(
    sides: &mut [S; 2],
    round: usize,
    mut ask: impl FnMut(&mut S) -> Result<T, Failure>,
) -> Result<[T; 2], Failure> {
    let [c, rust] = sides;
    if round.is_multiple_of(2) {
        Ok([ask(c)?, ask(rust)?])
    } else {
        let of_rust = ask(rust)?;
        Ok([ask(c)?, of_rust])
    }
}

/// The samples of all turns, and what each pair of turns says.
#[derive(Debug, Default)]
pub(super) struct Turns {
    c: Vec<u64>,
    rust: Vec<u64>,
    medians: Vec<f64>,
    least: Vec<f64>,
}

impl Turns {
    /// Takes a turn of each.
    pub(super) fn push(&mut self, c: &[u64], rust: &[u64]) {
        let of = |samples| Summary::of_numbers(samples, 1.0);
        if let (Some(of_c), Some(of_rust)) = (of(c), of(rust)) {
            self.medians.push(of_rust.median / of_c.median);
            self.least.push(of_rust.min / of_c.min);
        }
        self.c.extend_from_slice(c);
        self.rust.extend_from_slice(rust);
    }

    /// Puts them into a row, each divided by `by`.
    pub(super) fn tell(&self, row: &mut Record, by: f64) {
        row.c = Summary::of_numbers(&self.c, by);
        row.rust = Summary::of_numbers(&self.rust, by);
        row.medians_within = Interval::of_median(&self.medians);
        row.least_within = Interval::of_median(&self.least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Form, Group};

    #[test]
    fn pairs_are_compared_and_samples_put_together() {
        let mut turns = Turns::default();
        // Slower from turn to turn, as a machine may get; Rust always takes a tenth more.
        for turn in 1..=12u64 {
            turns.push(
                &[100 * turn, 110 * turn, 120 * turn],
                &[110 * turn, 121 * turn, 132 * turn],
            );
        }
        let mut row = Record::new(Group::Traffic, "x", Form::Shared, "µs");
        turns.tell(&mut row, 1000.0);
        assert_eq!(row.c.map(|c| (c.min, c.samples)), Some((0.1, 36)));
        for within in [row.medians_within, row.least_within] {
            let close = |x: f64| (x - 1.1).abs() < 1e-9;
            assert!(
                within.is_some_and(|w| close(w.low) && close(w.high)),
                "{within:?}"
            );
        }
    }
}

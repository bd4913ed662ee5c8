//! From samples to the numbers that are shown.

use std::fmt;
use std::str::FromStr;

/// Least, median and 99th percentile of some samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The least.
    pub min: f64,
    /// The middle one: half of the samples are no greater.
    pub median: f64,
    /// 99 of 100 samples are no greater.
    pub p99: f64,
    /// How many samples there were.
    pub samples: usize,
}

impl Summary {
    /// Of samples in any order; `None` if there are none.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|x| x.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            min: *sorted.first()?,
            median: rank(&sorted, 50)?,
            p99: rank(&sorted, 99)?,
            samples: sorted.len(),
        })
    }

    /// Of whole numbers, each divided by `by`.
    pub fn of_numbers(samples: &[u64], by: f64) -> Option<Self> {
        let samples: Vec<f64> = samples.iter().map(|n| precise(*n) / by).collect();
        Self::of(&samples)
    }

    /// A number that was counted, and so is the same each time.
    pub fn exact(value: f64) -> Self {
        Self {
            min: value,
            median: value,
            p99: value,
            samples: 1,
        }
    }
}

/// As a floating-point number: exact up to 2^53, which no count here comes near.
#[allow(
    clippy::cast_precision_loss,
    reason = "counts and nanoseconds of one run are far below 2^53"
)]
pub fn precise(number: u64) -> f64 {
    number as f64
}

/// The nearest rank: the least sample that at least so many of a hundred do not exceed.
fn rank(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{},{},{},{}",
            self.min, self.median, self.p99, self.samples
        )
    }
}

impl FromStr for Summary {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no summary");
        let mut parts = text.split(',');
        let mut number = || parts.next()?.parse::<f64>().ok().filter(|x| x.is_finite());
        let (min, median, p99) = match (number(), number(), number()) {
            (Some(min), Some(median), Some(p99)) => (min, median, p99),
            _ => return Err(wrong()),
        };
        let samples = parts.next().and_then(|n| n.parse().ok());
        match (samples, parts.next()) {
            (Some(samples), None) => Ok(Self {
                min,
                median,
                p99,
                samples,
            }),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_samples() {
        let all: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        let of = |samples: &[f64]| Summary::of(samples).map(|s| (s.min, s.median, s.p99));
        assert_eq!(of(&all), Some((1.0, 100.0, 198.0)));
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some((1.0, 2.0, 3.0)));
        assert_eq!(of(&[4.0, 1.0]), Some((1.0, 1.0, 4.0)));
        assert_eq!(of(&[7.0]), Some((7.0, 7.0, 7.0)));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[f64::NAN, 5.0]), Some((5.0, 5.0, 5.0)));
    }

    #[test]
    fn numbers_are_divided() {
        let of_16 = Summary::of_numbers(&[160, 176, 168], 16.0);
        assert_eq!(of_16.map(|s| (s.min, s.median)), Some((10.0, 10.5)));
        assert_eq!(precise(1 << 52), 4_503_599_627_370_496.0);
    }

    #[test]
    fn a_summary_survives_its_text() {
        for samples in [&[1.5, 2.25, 9.0][..], &[0.0][..], &[1e9, 3.0][..]] {
            let summary = Summary::of(samples);
            let back = summary.map(|s| s.to_string().parse::<Summary>());
            assert_eq!(back, summary.map(Ok));
        }
        for wrong in [
            "",
            "1",
            "1,2,3",
            "1,2,3,4,5",
            "1,2,x,4",
            "1,2,NaN,4",
            "1,2,3,-4",
        ] {
            assert!(wrong.parse::<Summary>().is_err(), "{wrong}");
        }
    }
}

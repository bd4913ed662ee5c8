//! How well a ratio is known, from turns that stood side by side.

use std::fmt;
use std::str::FromStr;

/// Between which two values the median of some ratios lies, at 99 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// It is hardly below this.
    pub low: f64,
    /// It is hardly above this.
    pub high: f64,
}

/// How rarely the median lies to one side of the interval: once in 200.
const TO_ONE_SIDE: f64 = 0.005;

impl Interval {
    /// From ratios in any order, by counting signs: nothing is supposed of how they are spread. `None` if
    /// they are too few to tell, which is below eight.
    pub fn of_median(ratios: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = ratios.iter().copied().filter(|x| x.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let cut = cut(sorted.len())?;
        Some(Self {
            low: *sorted.get(cut)?,
            high: *sorted.get(sorted.len().checked_sub(cut + 1)?)?,
        })
    }

    /// By which factor its middle may be wrong, less 1: 0.05 for 5 %.
    pub fn doubt(self) -> Option<f64> {
        (self.low > 0.0).then(|| (self.high / self.low).sqrt() - 1.0)
    }
}

/// How many of so many sorted values can be left out at each end.
///
/// The median has as many of `n` values below it as a coin thrown `n` times shows heads; so the `k` least
/// can go if fewer than `k` heads, or just as many, are rarer than [`TO_ONE_SIDE`].
fn cut(n: usize) -> Option<usize> {
    let mut ways = 0.5f64.powi(i32::try_from(n).ok()?);
    let (mut sum, mut k, mut thrown, mut heads) = (ways, 0, n, 1);
    if n == 0 || sum > TO_ONE_SIDE {
        return None;
    }
    while thrown > 0 {
        ways = ways * small(thrown) / small(heads);
        sum += ways;
        if sum > TO_ONE_SIDE {
            break;
        }
        (k, thrown, heads) = (k + 1, thrown - 1, heads + 1);
    }
    Some(k)
}

fn small(n: usize) -> f64 {
    u32::try_from(n).map_or(f64::INFINITY, f64::from)
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.low, self.high)
    }
}

impl FromStr for Interval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<f64>().ok().filter(|x| x.is_finite());
        text.split_once(',')
            .and_then(|(low, high)| {
                Some(Self {
                    low: number(low)?,
                    high: number(high)?,
                })
            })
            .ok_or_else(|| format!("{text:?} is no interval"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_tables_of_the_sign_test_have_it() {
        // The critical values at 1 %, two-sided.
        for (n, cut_off) in [
            (7, None),
            (8, Some(0)),
            (10, Some(0)),
            (11, Some(0)),
            (12, Some(1)),
            (20, Some(3)),
            (40, Some(11)),
            (100, Some(36)),
        ] {
            assert_eq!(cut(n), cut_off, "{n}");
        }
        assert_eq!(cut(0), None);
    }

    #[test]
    fn the_ends_are_cut_off() {
        let ratios: Vec<f64> = (1..=12).rev().map(f64::from).collect();
        let interval = Interval::of_median(&ratios);
        assert_eq!(
            interval,
            Some(Interval {
                low: 2.0,
                high: 11.0
            })
        );
        assert_eq!(Interval::of_median(&ratios[..7]), None);
        let doubt = |low, high| Interval { low, high }.doubt();
        assert_eq!(doubt(1.0, 1.44), Some(1.2 - 1.0));
        assert_eq!(doubt(0.0, 1.0), None);
    }

    #[test]
    fn an_interval_survives_its_text() {
        let interval = Interval {
            low: 0.97,
            high: 1.5,
        };
        assert_eq!(interval.to_string().parse(), Ok(interval));
        for wrong in ["", "1", "1,x", "1,NaN", "1,2,3"] {
            assert!(wrong.parse::<Interval>().is_err(), "{wrong}");
        }
    }
}

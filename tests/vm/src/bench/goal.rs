//! What the figures are measured against.
//!
//! Must never be loosened for a machine: a goal that is missed is shown as missed.

use super::interval::Interval;
use super::record::{COUNTED, Form, Group, Record};

/// What a row should reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Rust over C, at most.
    Ratio(f64),
    /// Rust's own number, at most.
    Most(f64),
    /// Neither the median nor the least is known to be behind C's: 1 is within the interval, or Rust is ahead.
    NotBehind,
}

/// Where a ratio may be wrong by more than this, a row tells nothing of who is behind.
const DOUBT_LIMIT: f64 = 0.25;

impl Goal {
    /// The goal of a row, if it has one.
    pub fn of(record: &Record) -> Option<Self> {
        let row = record.row.as_str();
        match (record.group, record.form) {
            (Group::Instructions, _) if row.starts_with("doorbell") => None,
            (Group::Instructions, Form::Shared) => Some(Self::Ratio(0.8)),
            (Group::Instructions, Form::Exclusive) => Some(Self::Ratio(match row {
                "post_send_write_64" | "post_send_inline_32" => 0.5,
                "post_send_batch16" => 0.35,
                "post_recv_1" | "post_recv_batch16" => 0.45,
                "poll_1" | "poll_16" => 0.6,
                "poll_empty" => 0.25,
                _ => return None,
            })),
            (Group::Traffic, _) if record.c.is_some() => Some(Self::NotBehind),
            (Group::BringUp, _) => match row {
                _ if row.starts_with("create_") || row.starts_with("destroy_") => {
                    (record.unit != COUNTED).then_some(Self::NotBehind)
                }
                "exec_to_rts_system_calls" => Some(Self::Most(40.0)),
                "exec_to_rts" => Some(Self::Ratio(0.2)),
                _ => None,
            },
            (Group::Size, _) => match row {
                "pingpong_resident" => Some(Self::Most(1024.0)),
                "pingpong_file" => Some(Self::Most(700_000.0)),
                "heap_calls" => Some(Self::Most(0.0)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the row reaches it; `None` if a number for it is missing, or lost in noise.
    pub fn met(self, record: &Record) -> Option<bool> {
        match self {
            Self::Ratio(most) => Some(record.ratio()? <= most),
            Self::Most(most) => Some(record.rust?.median <= most),
            Self::NotBehind => {
                let within = [record.medians_within?, record.least_within?];
                let known = |within: &Interval| within.doubt().is_some_and(|d| d <= DOUBT_LIMIT);
                within
                    .iter()
                    .all(known)
                    .then(|| within.iter().all(|within| within.low <= 1.0))
            }
        }
    }

    /// As it stands in the table.
    pub fn text(self) -> String {
        match self {
            Self::Ratio(most) => format!("ratio ≤ {most}"),
            Self::Most(most) => format!("≤ {most}"),
            Self::NotBehind => "not behind".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Summary;

    fn record(group: Group, row: &str, form: Form, c: f64, rust: f64) -> Record {
        let mut record = Record::new(group, row, form, "");
        record.c = Some(Summary::exact(c));
        record.rust = Some(Summary::exact(rust));
        record
    }

    #[test]
    fn each_kind_is_judged() {
        let judged = |r: &Record| Goal::of(r).and_then(|g| g.met(r));
        let row = |form, rust| record(Group::Instructions, "poll_empty", form, 100.0, rust);
        assert_eq!(judged(&row(Form::Exclusive, 25.0)), Some(true));
        assert_eq!(judged(&row(Form::Exclusive, 26.0)), Some(false));
        assert_eq!(judged(&row(Form::Shared, 80.0)), Some(true));
        assert_eq!(judged(&row(Form::Shared, 81.0)), Some(false));
        let calls = |n| {
            record(
                Group::BringUp,
                "exec_to_rts_system_calls",
                Form::Shared,
                300.0,
                n,
            )
        };
        assert_eq!(judged(&calls(40.0)), Some(true));
        assert_eq!(judged(&calls(41.0)), Some(false));
        let between = |low, high| Some(Interval { low, high });
        let mut latency = record(Group::Traffic, "x", Form::Shared, 100.0, 104.0);
        assert_eq!(judged(&latency), None);
        latency.medians_within = between(1.02, 1.06);
        assert_eq!(judged(&latency), None);
        latency.least_within = between(0.9, 0.95);
        assert_eq!(judged(&latency), Some(false));
        latency.medians_within = between(0.99, 1.09);
        assert_eq!(judged(&latency), Some(true));
        latency.least_within = between(1.01, 1.02);
        assert_eq!(judged(&latency), Some(false));
        latency.least_within = between(0.7, 1.2);
        assert_eq!(judged(&latency), None);
        let mut counted = record(Group::BringUp, "create_pd", Form::Shared, 100.0, 200.0);
        COUNTED.clone_into(&mut counted.unit);
        assert_eq!(Goal::of(&counted), None);
        counted.unit = "µs".to_owned();
        assert_eq!(Goal::of(&counted), Some(Goal::NotBehind));
    }
}

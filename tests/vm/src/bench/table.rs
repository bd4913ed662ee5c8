//! The records as Markdown and as JSON.

use std::fmt::Write as _;

use super::goal::Goal;
use super::interval::Interval;
use super::record::{Group, Record};
use super::stats::Summary;

/// On what the numbers were measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The guest kernel's release.
    pub kernel: String,
    /// The host's processor, and how the guest ran on it.
    pub cpu: String,
    /// The workspace's commit.
    pub commit: String,
    /// Versions of what C was.
    pub c: String,
}

/// The whole as a page.
pub fn markdown(machine: &Machine, records: &[Record]) -> String {
    let mut page = format!(
        "# C and Rust in one guest\n\nKernel {}; {}; commit {}; C: {}. Less is better in every row; \
         ratios are Rust over C, of the medians. What the columns and rows mean: \
         `docs/performance.md`.\n",
        machine.kernel, machine.cpu, machine.commit, machine.c
    );
    for group in Group::every() {
        let rows: Vec<&Record> = records.iter().filter(|r| r.group == group).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = write!(
            page,
            "\n## {}\n\n| row | form | unit | C min / median / p99 | Rust min / median / p99 | ratio \
             | 99 % of medians | of least | limit | goal |\n|---|---|---|---:|---:|---:|---:|---:|---:|---|\n",
            group.name()
        );
        for record in rows {
            let _ = writeln!(
                page,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                record.row,
                record.form.name(),
                record.unit,
                summary(record.c),
                summary(record.rust),
                record
                    .ratio()
                    .map_or_else(String::new, |r| format!("{r:.3}")),
                within(record.medians_within),
                within(record.least_within),
                record.limit.map_or_else(String::new, number),
                goal(record)
            );
        }
    }
    page
}

fn goal(record: &Record) -> String {
    let Some(goal) = Goal::of(record) else {
        return String::new();
    };
    let met = match goal.met(record) {
        Some(true) => "met",
        Some(false) => "**missed**",
        None if record.c.is_some() && record.rust.is_some() => "lost in noise",
        None => "not measured",
    };
    format!("{}: {met}", goal.text())
}

fn summary(summary: Option<Summary>) -> String {
    match summary {
        None => String::new(),
        Some(s) if s.min == s.p99 => number(s.median),
        Some(s) => format!(
            "{} / {} / {}",
            number(s.min),
            number(s.median),
            number(s.p99)
        ),
    }
}

fn within(interval: Option<Interval>) -> String {
    interval.map_or_else(String::new, |i| format!("{:.4}–{:.4}", i.low, i.high))
}

/// Three digits that count, and no more.
fn number(x: f64) -> String {
    if x.fract() == 0.0 || x.abs() >= 100.0 {
        format!("{x:.0}")
    } else if x.abs() >= 10.0 {
        format!("{x:.1}")
    } else {
        format!("{x:.2}")
    }
}

/// An array of objects, one for each record. `c` and `rust` are medians.
pub fn json(machine: &Machine, records: &[Record]) -> String {
    let mut all = String::from("[\n");
    for (i, record) in records.iter().enumerate() {
        let mut fields = vec![
            ("row", quoted(&record.row)),
            ("form", quoted(record.form.name())),
            ("c", optional(record.c.map(|s| s.median))),
            ("rust", optional(record.rust.map(|s| s.median))),
            ("ratio", optional(record.ratio())),
            ("unit", quoted(&record.unit)),
            ("group", quoted(record.group.name())),
            ("limit", optional(record.limit)),
        ];
        for (names, within) in [
            (["ratio_low", "ratio_high"], record.medians_within),
            (["ratio_least_low", "ratio_least_high"], record.least_within),
        ] {
            fields.push((names[0], optional(within.map(|w| w.low))));
            fields.push((names[1], optional(within.map(|w| w.high))));
        }
        for (names, side) in [
            (["c_min", "c_p99"], record.c),
            (["rust_min", "rust_p99"], record.rust),
        ] {
            fields.push((names[0], optional(side.map(|s| s.min))));
            fields.push((names[1], optional(side.map(|s| s.p99))));
        }
        let goal = Goal::of(record);
        let met = goal.and_then(|g| g.met(record));
        let word = |w: bool| w.to_string();
        fields.push(("goal", goal.map_or_else(null, |g| quoted(&g.text()))));
        fields.push(("met", met.map_or_else(null, word)));
        for (name, side) in [("c_samples", record.c), ("rust_samples", record.rust)] {
            fields.push((name, side.map_or_else(null, |s| s.samples.to_string())));
        }
        fields.push(("kernel", quoted(&machine.kernel)));
        fields.push(("cpu", quoted(&machine.cpu)));
        fields.push(("c_library", quoted(&machine.c)));
        fields.push(("commit", quoted(&machine.commit)));
        let fields: Vec<String> = fields
            .into_iter()
            .map(|(name, value)| format!("{}: {value}", quoted(name)))
            .collect();
        let comma = if i + 1 < records.len() { "," } else { "" };
        let _ = writeln!(all, "  {{{}}}{comma}", fields.join(", "));
    }
    all.push_str("]\n");
    all
}

fn null() -> String {
    "null".to_owned()
}

fn optional(number: Option<f64>) -> String {
    match number {
        Some(x) if x.is_finite() => x.to_string(),
        _ => null(),
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if u32::from(c) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Form;

    fn sample() -> (Machine, Vec<Record>) {
        let machine = Machine {
            kernel: "6.12".into(),
            cpu: "a \"fast\" one\\\n".into(),
            commit: "abc".into(),
            c: "rdma-core 1".into(),
        };
        let mut counted = Record::new(
            Group::Instructions,
            "poll_empty",
            Form::Exclusive,
            "instructions",
        );
        counted.c = Some(Summary::exact(48.0));
        counted.rust = Some(Summary::exact(12.0));
        counted.limit = Some(5.0);
        let mut timed = Record::new(Group::Traffic, "latency_write_64", Form::Shared, "ns");
        timed.c = Summary::of(&[10.0, 12.5, 200.0]);
        timed.medians_within = Some(Interval {
            low: 0.951,
            high: 1.049,
        });
        (machine, vec![counted, timed])
    }

    #[test]
    fn markdown_has_a_table_for_each_group() {
        let (machine, records) = sample();
        let page = markdown(&machine, &records);
        assert!(page.contains("## instructions"));
        assert!(page.contains("## traffic"));
        assert!(!page.contains("## events"));
        let row = "| poll_empty | exclusive | instructions | 48 | 12 | 0.250 |  |  | 5 | ratio ≤ 0.25: met |";
        assert!(page.lines().any(|l| l == row), "{page}");
        let row = "| latency_write_64 | shared | ns | 10 / 12.5 / 200 |  |  | 0.9510–1.0490 |  |  | not behind: not measured |";
        assert!(page.lines().any(|l| l == row), "{page}");
    }

    #[test]
    fn json_says_what_is_known_and_null_else() {
        let (machine, records) = sample();
        let text = json(&machine, &records);
        let lines: Vec<&str> = text.lines().collect();
        let [first, counted, timed, last] = lines.as_slice() else {
            panic!("{text}");
        };
        assert_eq!((*first, *last), ("[", "]"));
        assert!(counted.starts_with(
            r#"  {"row": "poll_empty", "form": "exclusive", "c": 48, "rust": 12, "ratio": 0.25, "unit": "instructions", "#
        ));
        assert!(counted.ends_with("},") && timed.ends_with('}'));
        assert!(counted.contains(r#""met": true"#));
        assert!(counted.contains(r#""cpu": "a \"fast\" one\\\u000a""#));
        assert!(timed.contains(r#""c": 12.5, "rust": null, "ratio": null, "unit": "ns""#));
        assert_eq!(json(&machine, &[]), "[\n]\n");
    }

    #[test]
    fn digits_that_count() {
        for (x, text) in [
            (48.0, "48"),
            (5.4321, "5.43"),
            (54.321, "54.3"),
            (543.21, "543"),
            (0.0, "0"),
        ] {
            assert_eq!(number(x), text);
        }
    }
}

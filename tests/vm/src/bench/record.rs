//! One row of the table, as the guest tells it to the host: a line of words, tab between them.

use std::fmt;
use std::str::FromStr;

use super::interval::Interval;
use super::stats::Summary;

/// A part of the bench that can be asked for alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// User-space instructions of one call, counted.
    Instructions,
    /// Latency and rate.
    Traffic,
    /// From exec to RTS, objects made and unmade.
    BringUp,
    /// Asynchronous events.
    Events,
    /// Memory and files.
    Size,
    /// Other Rust crates for verbs, built from nothing. No guest takes part.
    RustBuilds,
    /// Other Rust crates for verbs, in the guest.
    RustPeers,
}

impl Group {
    /// All that run where none is named, in the order in which they run.
    pub const ALL: [Self; 5] = [
        Self::Instructions,
        Self::Size,
        Self::BringUp,
        Self::Events,
        Self::Traffic,
    ];

    /// Those too that only run where they are named.
    pub fn every() -> impl Iterator<Item = Self> {
        Self::ALL
            .into_iter()
            .chain([Self::RustBuilds, Self::RustPeers])
    }

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Traffic => "traffic",
            Self::BringUp => "bring-up",
            Self::Events => "events",
            Self::Size => "size",
            Self::RustBuilds => "rust-builds",
            Self::RustPeers => "rust-peers",
        }
    }
}

impl FromStr for Group {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::every()
            .find(|group| group.name() == name)
            .ok_or_else(|| {
                let all: Vec<&str> = Self::every().map(Self::name).collect();
                format!("there is no group {name}; there are {}", all.join(", "))
            })
    }
}

/// How Rust used the queues; C has one way only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One owner, no locks.
    Exclusive,
    /// Handles that may be cloned and used by any thread; also all that is no matter of queues.
    Shared,
}

impl Form {
    /// Its name in the output, and to the Rust twin.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        }
    }
}

/// One row. Less is better in all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The part that it belongs to.
    pub group: Group,
    /// What was done.
    pub row: String,
    /// How Rust did it.
    pub form: Form,
    /// What is counted.
    pub unit: String,
    /// C's numbers.
    pub c: Option<Summary>,
    /// Rust's numbers.
    pub rust: Option<Summary>,
    /// What is left with nothing around the work itself: no library, no checks.
    pub limit: Option<f64>,
    /// How well the ratio of medians is known, by turns that stood side by side.
    pub medians_within: Option<Interval>,
    /// The same of the least values.
    pub least_within: Option<Interval>,
}

impl Record {
    /// A row without numbers yet.
    pub fn new(group: Group, row: impl Into<String>, form: Form, unit: &str) -> Self {
        Self {
            group,
            row: row.into(),
            form,
            unit: unit.to_owned(),
            c: None,
            rust: None,
            limit: None,
            medians_within: None,
            least_within: None,
        }
    }

    /// Rust's median over C's.
    pub fn ratio(&self) -> Option<f64> {
        ratio(self.rust?.median, self.c?.median)
    }
}

fn ratio(rust: f64, c: f64) -> Option<f64> {
    (c > 0.0).then_some(rust / c)
}

/// The unit of what is counted one by one.
pub const COUNTED: &str = "instructions";

/// First word of a record's line.
const TAG: &str = "record";

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let optional = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let words = [
            TAG.to_owned(),
            self.group.name().to_owned(),
            self.row.clone(),
            self.form.name().to_owned(),
            self.unit.clone(),
            optional(self.c.map(|s| s.to_string())),
            optional(self.rust.map(|s| s.to_string())),
            optional(self.limit.map(|x| x.to_string())),
            optional(self.medians_within.map(|x| x.to_string())),
            optional(self.least_within.map(|x| x.to_string())),
        ];
        f.write_str(&words.join("\t"))
    }
}

impl FromStr for Record {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split('\t').collect();
        let [TAG, group, row, form, unit, c, rust, limit, medians, least] = words.as_slice() else {
            return Err(format!("{line:?} is no record"));
        };
        let number = |text: &str| {
            let number = text.parse::<f64>().ok().filter(|x| x.is_finite());
            number.ok_or_else(|| format!("{text:?} is no number"))
        };
        Ok(Self {
            group: group.parse()?,
            row: (*row).to_owned(),
            form: match *form {
                "exclusive" => Form::Exclusive,
                "shared" => Form::Shared,
                other => return Err(format!("there is no form {other}")),
            },
            unit: (*unit).to_owned(),
            c: given(c).map(str::parse).transpose()?,
            rust: given(rust).map(str::parse).transpose()?,
            limit: given(limit).map(number).transpose()?,
            medians_within: given(medians).map(str::parse).transpose()?,
            least_within: given(least).map(str::parse).transpose()?,
        })
    }
}

fn given(word: &str) -> Option<&str> {
    (word != "-").then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_line() {
        let mut record = Record::new(Group::BringUp, "create_mr", Form::Shared, "ns");
        assert_eq!(record.to_string().parse(), Ok(record.clone()));
        record.c = Summary::of(&[2.0, 4.0]);
        record.rust = Some(Summary::exact(1.0));
        record.limit = Some(0.5);
        record.medians_within = Some(Interval {
            low: 0.49,
            high: 0.52,
        });
        assert_eq!(record.to_string().parse(), Ok(record.clone()));
        assert_eq!(record.ratio(), Some(0.5));
        record.c = Some(Summary::exact(0.0));
        assert_eq!(record.ratio(), None);
        for group in Group::every() {
            assert_eq!(group.name().parse(), Ok(group));
        }
    }

    #[test]
    fn other_lines_are_no_records() {
        for line in [
            "",
            "record",
            "record\tspeed\tx\tshared\tns\t-\t-\t-\t-\t-",
            "record\tevents\tx\tmine\tns\t-\t-\t-\t-\t-",
            "record\tevents\tx\tshared\tns\t1\t-\t-\t-\t-",
            "record\tevents\tx\tshared\tns\t-\t-\t-\t0.5\t-",
            "record\tevents\tx\tshared\tns\t-\t-\tinf\t-\t-",
            "recorder\tevents\tx\tshared\tns\t-\t-\t-\t-\t-",
        ] {
            assert!(line.parse::<Record>().is_err(), "{line}");
        }
    }
}

//! Which cases are expected to be ignored: `tests/vm/expected.toml`, read when this was built.
//!
//! Must never make a pass of anything: it only turns an ignore that nobody has written down, or a
//! pass that somebody has written off, into a failure.

use super::report::Problem;
use crate::cases::{KernelRange, Report};
use crate::guest::parse_release;

/// The list.
#[derive(Debug)]
pub struct Expected {
    entries: Vec<Entry>,
}

/// One case on some kernels.
#[derive(Debug)]
struct Entry {
    case: String,
    kernels: KernelRange,
    why: String,
}

impl Expected {
    /// The list as it was when this was built.
    pub fn built_in() -> Result<Self, Problem> {
        Self::parse(include_str!("../../expected.toml"))
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        let bad = |what: String| Problem::new(format!("tests/vm/expected.toml: {what}"));
        let table: toml::Table = text.parse().map_err(|e| bad(format!("{e}")))?;
        let mut entries = Vec::new();
        for (key, value) in &table {
            let list = value.as_array().filter(|_| key == "ignored");
            for item in list.ok_or_else(|| bad(format!("{key} is not [[ignored]]")))? {
                entries.push(Entry::parse(item).map_err(bad)?);
            }
        }
        Ok(Self { entries })
    }

    /// Judges a report by whether it was expected.
    pub fn judge(&self, case: &str, kernel: Option<(u32, u32)>, report: Report) -> Report {
        let entry = self.entries.iter().find(|entry| {
            entry.case == case && kernel.is_some_and(|kernel| entry.kernels.contains(kernel))
        });
        match (report, entry) {
            (Report::Ignored(why), Some(entry)) if why.contains(&entry.why) => Report::Ignored(why),
            (Report::Ignored(why), _) => Report::Failed(format!(
                "ignored, and tests/vm/expected.toml does not list it for this reason: {why}"
            )),
            (Report::Passed, Some(entry)) => Report::Failed(format!(
                "passes, although tests/vm/expected.toml lists it as ignored: {}",
                entry.why
            )),
            (report, _) => report,
        }
    }
}

impl Entry {
    fn parse(item: &toml::Value) -> Result<Self, String> {
        let text = |key: &str| {
            item.get(key)
                .and_then(toml::Value::as_str)
                .map(str::to_owned)
                .ok_or_else(|| format!("an entry without {key}"))
        };
        let kernels = text("kernels")?;
        Ok(Self {
            case: text("case")?,
            kernels: range(&kernels).ok_or_else(|| format!("{kernels:?} names no kernels"))?,
            why: text("why")?,
        })
    }
}

fn range(text: &str) -> Option<KernelRange> {
    Some(match text.split_once(' ') {
        None if text == "all" => KernelRange::ALL,
        None => {
            let (major, minor) = parse_release(text)?;
            KernelRange::between((major, minor), (major, minor.checked_add(1)?))
        }
        Some(("since", release)) => {
            let (major, minor) = parse_release(release)?;
            KernelRange::since(major, minor)
        }
        Some(("before", release)) => {
            let (major, minor) = parse_release(release)?;
            KernelRange::before(major, minor)
        }
        Some(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    #[test]
    fn what_is_not_listed_fails_and_so_does_what_passes_after_all() {
        let list = Expected::parse(
            "[[ignored]]\ncase = \"a::b\"\nkernels = \"before 6.12\"\nwhy = \"too old\"\n",
        )
        .unwrap();
        let ignored = |why: &str| Report::Ignored(why.to_owned());
        let old = Some((6, 1));
        assert_eq!(
            list.judge("a::b", old, ignored("kernel too old")),
            ignored("kernel too old")
        );
        for (case, kernel, report) in [
            ("a::b", old, ignored("no such file")),
            ("a::b", Some((6, 12)), ignored("too old")),
            ("a::b", None, ignored("too old")),
            ("a::c", old, ignored("too old")),
            ("a::b", old, Report::Passed),
        ] {
            let judged = list.judge(case, kernel, report);
            assert!(
                matches!(judged, Report::Failed(_)),
                "{case} {kernel:?}: {judged:?}"
            );
        }
        assert_eq!(
            list.judge("a::b", Some((6, 12)), Report::Passed),
            Report::Passed
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "x",
            "other = 1",
            "[[ignored]]\ncase = \"a\"\nwhy = \"b\"",
            "[[ignored]]\ncase = \"a\"\nwhy = \"b\"\nkernels = \"some\"",
            "[[ignored]]\ncase = \"a\"\nwhy = \"b\"\nkernels = \"until 6.1\"",
        ] {
            assert!(Expected::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_list_and_the_cases_agree() {
        let list = Expected::built_in().unwrap();
        let known = cases::all();
        for entry in &list.entries {
            assert!(
                known.iter().any(|case| case.name == entry.case),
                "{} is no case",
                entry.case
            );
        }
        for case in known {
            let Some(bad) = case.known_bad else { continue };
            let listed = list.entries.iter().find(|entry| entry.case == case.name);
            let listed = listed.unwrap_or_else(|| panic!("{} is not listed", case.name));
            assert_eq!(listed.kernels, bad.kernels, "{}", case.name);
            assert!(bad.why.contains(&listed.why), "{}: {}", case.name, bad.why);
        }
    }
}

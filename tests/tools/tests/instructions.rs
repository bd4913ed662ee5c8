//! No call of the data path takes more instructions than it did: `ceilings.txt` has the counts, and
//! 5 % more fail.
//!
//! The tool is built as a user builds a program, in release, in a target folder of its own. It also
//! fails if a call allocates.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use uverbs_tools::count;

/// Instructions for each work request, by row and form.
type Counts = BTreeMap<(String, String), f64>;

/// Exit status when counting is required and cannot be had.
const REQUIRED: u8 = 101;

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let ceilings = ceilings();
    let counts = if args.list {
        Err(String::new())
    } else {
        counts()
    };
    if let (Err(why), "require") = (
        &counts,
        env::var("UVERBS_COUNT").as_deref().unwrap_or("auto"),
    ) && !args.list
    {
        report(why);
        return ExitCode::from(REQUIRED);
    }
    let mut trials: Vec<Trial> = ceilings
        .iter()
        .map(|((row, form), ceiling)| {
            let ceiling = *ceiling;
            let count = counts.as_ref().map_or_else(
                |why| Err(why.clone()),
                |counts| Ok(counts.get(&(row.clone(), form.clone())).copied()),
            );
            Trial::ignorable_test(format!("{row}::{form}"), move || check(count, ceiling))
        })
        .collect();
    let missing: Vec<String> = counts.as_ref().map_or_else(
        |_| Vec::new(),
        |counts| {
            let unlisted = counts.keys().filter(|key| !ceilings.contains_key(*key));
            unlisted
                .map(|(row, form)| format!("{row} {form}"))
                .collect()
        },
    );
    trials.push(Trial::test("every_row_has_a_ceiling", move || {
        if missing.is_empty() {
            Ok(())
        } else {
            Err(Failed::from(format!("not in ceilings.txt: {missing:?}")))
        }
    }));
    libtest_mimic::run(&args, trials).exit_code()
}

#[expect(clippy::print_stderr, reason = "a test runner")]
fn report(why: &str) {
    eprintln!("counting is required and cannot be had: {why}");
}

fn check(count: Result<Option<f64>, String>, ceiling: f64) -> Result<Completion, Failed> {
    match count {
        Err(why) => Ok(Completion::ignored_with(why)),
        Ok(None) => Err("the tool counts no such row".into()),
        Ok(Some(count)) if count > ceiling * 1.05 => Err(Failed::from(format!(
            "{count} instructions; it was {ceiling} when the ceiling was set"
        ))),
        Ok(Some(_)) => Ok(Completion::Completed),
    }
}

/// What `ceilings.txt` says.
fn ceilings() -> Counts {
    include_str!("../ceilings.txt")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| {
            let mut words = line.split_whitespace();
            let mut word = || words.next().unwrap_or_default().to_owned();
            let (row, form) = (word(), word());
            let count = word()
                .parse()
                .unwrap_or_else(|_| panic!("ceilings.txt: {line}"));
            ((row, form), count)
        })
        .collect()
}

/// What the tool counts now, or why it cannot.
///
/// # Panics
/// If it can be tried, and the tool is not built or fails: that is a failure and no lack.
fn counts() -> Result<Counts, String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("the ceilings are of x86-64".to_owned());
    }
    count::permitted().map_err(|why| why.to_string())?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |target| root.join(target))
        .join("count");
    let built = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(&root)
        .args(["build", "--release", "--quiet", "-p", "uverbs-tools"])
        .args([
            "--bin",
            "uverbs-count",
            "--features",
            "count",
            "--target-dir",
        ])
        .arg(&target)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .stdin(Stdio::null())
        .status();
    assert!(
        built.is_ok_and(|status| status.success()),
        "the tool was not built"
    );
    let output = Command::new(target.join("release/uverbs-count"))
        .arg("--json")
        .output()
        .unwrap_or_else(|error| panic!("the tool does not start: {error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the tool failed: {errors}");
    let counts: Counts = text.lines().filter_map(line).collect();
    assert!(!counts.is_empty(), "the tool counted nothing: {text}");
    Ok(counts)
}

/// One line of the tool: `{"row": "…", "form": "…", "instructions": …}`.
fn line(line: &str) -> Option<((String, String), f64)> {
    let words: Vec<&str> = line.split('"').collect();
    let [
        _,
        "row",
        _,
        row,
        _,
        "form",
        _,
        form,
        _,
        "instructions",
        count,
    ] = words[..]
    else {
        return None;
    };
    let count = count.trim_matches(|c: char| !c.is_ascii_digit()).parse();
    Some(((row.to_owned(), form.to_owned()), count.ok()?))
}

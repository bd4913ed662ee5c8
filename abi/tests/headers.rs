//! The layouts against the kernel's own uapi headers, of three lines of kernels, by a C compiler.
//!
//! Every size, alignment, offset, width and number that `src/layout` declares is compared, and what
//! an older header lacks must be just what the comments say is newer. The headers come from
//! `cargo vm setup`; must never download anything. See `headers.md` beside this file.

#[path = "headers/c.rs"]
mod c;
#[path = "headers/compare.rs"]
mod compare;
#[path = "headers/exceptions.rs"]
mod exceptions;
#[path = "headers/odd.rs"]
mod odd;
#[path = "headers/source.rs"]
mod source;
#[path = "headers/value.rs"]
mod value;

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use c::{Compiler, Names};
use compare::{Comparison, show};
use source::Source;

/// The lines of headers that the set-up makes.
const LINES: [&str; 3] = ["6.1", "6.12", "newest"];

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let list = args.nocapture;
    let mut trials = odd::trials();
    let given = env::var_os("UVERBS_UAPI_HEADERS").filter(|v| !v.is_empty());
    match given {
        Some(folder) => trials.push(trial("headers::given", move || {
            headers(Path::new(&folder), None, list)
        })),
        None => trials.extend(LINES.map(|line| {
            trial(&format!("headers::{line}"), move || {
                let folder = folder(line).map_err(Missing::Here)?;
                headers(&folder, Some(line), list)
            })
        })),
    }
    libtest_mimic::run(&args, trials).exit_code()
}

/// Why there is no verdict of success.
enum Missing {
    /// The comparison cannot be made here.
    Here(String),
    /// The comparison was made, or should have been.
    Wrong(String),
}

fn trial(name: &str, run: impl FnOnce() -> Result<(), Missing> + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || match run() {
        Ok(()) => Ok(Completion::Completed),
        Err(Missing::Here(why)) if env::var_os("UVERBS_VM").is_none_or(|v| v != "require") => {
            Ok(Completion::ignored_with(why))
        }
        Err(Missing::Here(why)) => Err(Failed::from(format!("required, and not to be had: {why}"))),
        Err(Missing::Wrong(how)) => Err(Failed::from(how)),
    })
}

/// Where the set-up puts a line of headers.
fn folder(line: &str) -> Result<PathBuf, String> {
    let set = |name: &str| {
        env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let cache = set("UVERBS_VM_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|d| d.join("uverbs-vm")))
        .or_else(|| set("HOME").map(|d| d.join(".cache/uverbs-vm")))
        .ok_or("there is no place for the cache; set UVERBS_VM_CACHE to a folder")?;
    let folder = cache.join("headers").join(line);
    if folder.join("usr/include/rdma").is_dir() {
        return Ok(folder);
    }
    let note = cache.join("headers").join(format!("{line}.why"));
    Err(match fs::read_to_string(note) {
        Ok(why) => format!(
            "no headers {line}: {}; to try again: cargo vm setup --refresh",
            why.trim()
        ),
        Err(_) => format!("no headers {line} were set up; run: cargo vm setup"),
    })
}

fn headers(folder: &Path, line: Option<&str>, list: bool) -> Result<(), Missing> {
    if cfg!(miri) {
        return Err(Missing::Here("Miri starts no programs".to_owned()));
    }
    let compiler = c::find().ok_or_else(|| Missing::Here("no C compiler (cc)".to_owned()))?;
    if !folder.join("usr/include/rdma").is_dir() {
        // Only a folder that was asked for by name gets here without.
        return Err(Missing::Wrong(format!(
            "{} has no usr/include/rdma",
            folder.display()
        )));
    }
    let name = line.unwrap_or("given");
    let work = Work::new(name).map_err(Missing::Wrong)?;
    let (version, found, wrong) = ask(folder, compiler, &work.0).map_err(Missing::Wrong)?;
    if line.is_some_and(|l| l != "newest" && l != version) {
        return Err(Missing::Wrong(format!(
            "the headers {name} are of {version}"
        )));
    }
    if list {
        tell(name, &version, &found);
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Missing::Wrong(format!(
        "{} differences from the headers of {version}:\n  {}",
        wrong.len(),
        wrong.join("\n  ")
    )))
}

fn ask(
    folder: &Path,
    compiler: PathBuf,
    work: &Path,
) -> Result<(String, Comparison, Vec<String>), String> {
    let source = layouts()?;
    let compiler = Compiler::new(compiler, folder)?;
    let names: Names = compiler.names(work)?;
    // Fewer would mean that the preprocessor's output was not understood.
    if names.structures() < 60 {
        return Err(format!(
            "only {} structures were found in {}",
            names.structures(),
            folder.display()
        ));
    }
    let found = compare::compare(&source, &names, compiler.version)?;
    let questions: Vec<String> = found
        .questions
        .iter()
        .map(|q| q.expression.clone())
        .collect();
    let answers = compiler.ask(work, &questions)?;
    let mut wrong = found.wrong.clone();
    let pairs = found.questions.iter().zip(answers);
    wrong.extend(pairs.filter_map(|(q, answer)| q.mismatch(answer)));
    if exceptions::READ
        .last()
        .is_some_and(|last| compiler.version >= *last)
    {
        wrong.extend(
            found
                .unused()
                .iter()
                .map(|e| format!("exception {e}: nothing needs it")),
        );
    }
    Ok((show(compiler.version), found, wrong))
}

/// All that the crate declares. There were this many when the test was written, and more to come.
fn layouts() -> Result<Source, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/layout");
    let source = source::read(&folder)?;
    let fields: usize = source.structs.iter().map(|s| s.fields.len()).sum();
    let found = [
        source.structs.len(),
        fields,
        source.consts.len(),
        source.drivers.len(),
    ];
    let least = [95, 500, 570, 22];
    if found.iter().zip(least).any(|(found, least)| *found < least) {
        return Err(format!(
            "read {found:?} structures, fields, numbers and drivers; expected at least {least:?}"
        ));
    }
    Ok(source)
}

/// What was compared, and what these headers lack.
fn tell(name: &str, version: &str, found: &Comparison) {
    let mut text = format!("headers {name} ({version}): {}", found.counts);
    text.push('\n');
    for (since, names) in &found.later {
        for thing in names {
            text.push_str(&format!("  since {}: {thing}\n", show(*since)));
        }
    }
    // With standard error closed there is nobody to tell.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// A folder for one trial, removed when it is dropped.
struct Work(PathBuf);

impl Work {
    fn new(name: &str) -> Result<Self, String> {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = place.join(format!("headers-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|e| format!("making {}: {e}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

//! The small program of `docs/performance.md` stays small: it is built by the very command that the
//! page has, and must not have more bytes than the page promises.
//!
//! It is built in a target folder of its own, so that it is there the next time.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// Bytes of the file, at most: the goal on the page.
const MOST: u64 = 700_000;
/// What the page builds for.
const TARGET: &str = "x86_64-unknown-linux-musl";
/// Exit status when it is required and cannot be built.
const REQUIRED: u8 = 101;

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let missing = if args.list { None } else { missing() };
    let is_required = env::var("UVERBS_COUNT").is_ok_and(|value| value == "require");
    if let Some(why) = &missing
        && is_required
    {
        report(why);
        return ExitCode::from(REQUIRED);
    }
    let trial = Trial::ignorable_test("the_small_pingpong_stays_small", || {
        missing.map_or_else(check, |why| Ok(Completion::ignored_with(why)))
    });
    libtest_mimic::run(&args, vec![trial]).exit_code()
}

#[expect(clippy::print_stderr, reason = "a test runner")]
fn report(why: &str) {
    eprintln!("the small program is required and cannot be built: {why}");
}

/// What is missing for building it.
fn missing() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the goal is of x86-64".to_owned());
    }
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let asked = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", TARGET])
        .output();
    let folder = match asked {
        Ok(output) if output.status.success() => output.stdout,
        Ok(output) => return Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => return Some(format!("the compiler cannot be asked: {error}")),
    };
    let folder = String::from_utf8_lossy(&folder);
    let is_there = Path::new(folder.trim()).is_dir();
    (!is_there).then(|| format!("not installed: `rustup target add {TARGET}`"))
}

fn check() -> Result<Completion, Failed> {
    let size = fs::metadata(build()?)?.len();
    if size > MOST {
        return Err(Failed::from(format!(
            "the small ping-pong has {size} bytes, more than {MOST}"
        )));
    }
    Ok(Completion::Completed)
}

/// Builds it, and says where it is.
fn build() -> Result<PathBuf, Failed> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |target| root.join(target))
        .join("small");
    let page = fs::read_to_string(root.join("docs/performance.md"))?;
    let arguments = command(&page).ok_or("docs/performance.md has no command to build it")?;
    let built = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(&root)
        .args(arguments)
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .stdin(Stdio::null())
        .status()?;
    if !built.success() {
        return Err("it was not built".into());
    }
    Ok(target.join(TARGET).join("small/uverbs-pingpong"))
}

/// The arguments for cargo: `cargo rustc --profile small …`, over several lines.
fn command(page: &str) -> Option<Vec<&str>> {
    let (_, rest) = page.split_once("    cargo rustc --profile small ")?;
    let mut arguments = vec!["rustc", "--profile", "small"];
    for line in rest.lines() {
        let words = line.trim_end_matches('\\');
        arguments.extend(words.split_whitespace());
        if words == line {
            break;
        }
    }
    Some(arguments)
}

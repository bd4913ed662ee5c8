//! The test-only kernel modules of `tests/vm/modules`, built for each test kernel into the cache.
//!
//! Kept by the kernel's release and by a hash of the sources, which are compiled into this program.
//! Must never be built by a test, and never fail the set-up: the cases that need them say why they
//! cannot run.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::Duration;

use super::builder::{self, Builder};
use super::cache::Cache;
use super::kernel::Kernel;
use super::report::{Doing, Problem, say};

/// What is built from.
const SOURCES: [(&str, &str); 3] = [
    ("Kbuild", include_str!("../../modules/Kbuild")),
    ("ibfake.c", include_str!("../../modules/ibfake.c")),
    ("ibinject.c", include_str!("../../modules/ibinject.c")),
];

/// What comes of it.
pub const MODULES: [&str; 2] = ["ibfake.ko", "ibinject.ko"];

/// How long a failure is remembered unless a refresh is asked for.
const MEMORY: Duration = Duration::from_secs(3600);

/// The modules that were built for this kernel; or why there are none.
pub fn find(cache: &Cache, kernel: &Kernel) -> Result<Vec<PathBuf>, Problem> {
    let folder = folder(cache, &kernel.release);
    let all: Vec<PathBuf> = MODULES.iter().map(|name| folder.join(name)).collect();
    if all.iter().all(|module| module.is_file()) {
        return Ok(all);
    }
    Err(Problem::new(
        match fs::read_to_string(note(cache, &kernel.release)) {
            Ok(why) => format!(
                "the test modules are not built for {}: {why}",
                kernel.release
            ),
            Err(_) => format!(
                "the test modules are not built for {}; run: cargo vm setup --kernel LINE",
                kernel.release
            ),
        },
    ))
}

/// Whether nothing is to be done for these lines: built, or could not be a short while ago.
pub fn settled(cache: &Cache, lines: &[String]) -> bool {
    lines.iter().all(|line| match Kernel::of_line(cache, line) {
        Ok(kernel) => find(cache, &kernel).is_ok() || failed_lately(cache, &kernel.release),
        Err(_) => false,
    })
}

/// Builds what is missing; says what cannot be built, and leaves a note of it.
pub fn ensure(cache: &Cache, lines: &[String], refresh: bool) {
    for line in lines {
        let Ok(kernel) = Kernel::of_line(cache, line) else {
            continue;
        };
        let release = &kernel.release;
        if find(cache, &kernel).is_ok() || (!refresh && failed_lately(cache, release)) {
            continue;
        }
        let note = note(cache, release);
        match build(cache, line, &kernel) {
            Ok(()) => drop(fs::remove_file(note)),
            Err(e) => {
                say(format_args!(
                    "test modules for {release}: not to be had, going on; the cases that need them \
                     will not run. To try again: cargo vm setup --kernel {line} --refresh\n{e}"
                ));
                if cache.make("modules").is_ok() {
                    let all = e.to_string();
                    let _ = fs::write(note, all.lines().next().unwrap_or_default());
                }
            }
        }
    }
}

fn build(cache: &Cache, line: &str, kernel: &Kernel) -> Result<(), Problem> {
    builder::can_enter()?;
    let release = &kernel.release;
    let built = Builder::ensure(cache, kernel.arch)?.build(cache, line, release, &SOURCES)?;
    let modules = cache.make("modules")?;
    // Those of older sources are of no use any more.
    for entry in fs::read_dir(&modules)
        .doing(|| format!("reading {}", modules.display()))?
        .flatten()
    {
        let name = entry.file_name();
        if name.to_str().is_some_and(|n| of_release(n, release)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let folder = folder(cache, release);
    let partial = modules.join("partial");
    let _ = fs::remove_dir_all(&partial);
    let what = || format!("copying the test modules to {}", folder.display());
    fs::create_dir_all(&partial).doing(what)?;
    for name in MODULES {
        fs::copy(built.join(name), partial.join(name)).doing(what)?;
    }
    fs::rename(&partial, &folder).doing(what)
}

/// `RELEASE_HASH`; a release holds no underscore.
fn folder(cache: &Cache, release: &str) -> PathBuf {
    cache
        .at("modules")
        .join(format!("{release}_{:016x}", hash()))
}

fn of_release(folder: &str, release: &str) -> bool {
    folder
        .strip_prefix(release)
        .is_some_and(|rest| rest.starts_with('_'))
}

fn hash() -> u64 {
    let mut hasher = DefaultHasher::new();
    SOURCES.hash(&mut hasher);
    hasher.finish()
}

fn note(cache: &Cache, release: &str) -> PathBuf {
    cache.at("modules").join(format!("{release}.why"))
}

fn failed_lately(cache: &Cache, release: &str) -> bool {
    fs::metadata(note(cache, release))
        .and_then(|m| m.modified())
        .is_ok_and(|at| at.elapsed().is_ok_and(|age| age < MEMORY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_belongs_to_one_release() {
        assert!(of_release("6.1.0-5-amd64_00ff", "6.1.0-5-amd64"));
        assert!(!of_release("6.1.0-57-amd64_00ff", "6.1.0-5-amd64"));
        assert!(!of_release("6.1.0-5-amd64.why", "6.1.0-5-amd64"));
    }

    #[test]
    fn what_is_built_is_what_the_sources_name() {
        let kbuild = SOURCES[0].1;
        for module in MODULES {
            let object = module.replace(".ko", ".o");
            let source = module.replace(".ko", ".c");
            assert!(kbuild.contains(&object), "{object}");
            assert!(SOURCES.iter().any(|(name, _)| *name == source), "{source}");
        }
    }
}

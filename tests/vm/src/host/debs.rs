//! Debian's packages, unpacked into a folder of the cache, and what of them is taken into a guest.
//!
//! Must never run a package's scripts, and never take anything from this system itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::apt::Apt;
use super::arch::Arch;
use super::cache::Cache;
use super::cpio::{Entry, Tree};
use super::elf;
use super::packages::{self, Package};
use super::report::{Doing, Problem};

/// Where the packages come from.
const SUITE: &str = "trixie";

/// The file that lists what was unpacked; written last.
const VERSIONS: &str = "versions";

/// Some packages, for one architecture.
#[derive(Debug)]
pub struct Debs {
    folder: PathBuf,
    arch: Arch,
    packages: &'static [&'static str],
}

impl Debs {
    /// These packages, in the folder of this name in the cache.
    pub fn new(cache: &Cache, name: &str, arch: Arch, packages: &'static [&'static str]) -> Self {
        Self {
            folder: cache.at(&arch.place(name)),
            arch,
            packages,
        }
    }

    /// Whether all of them were unpacked.
    pub fn are_there(&self) -> bool {
        self.packages
            .iter()
            .all(|name| self.version(name).is_some())
    }

    /// The version of a package that was unpacked.
    pub fn version(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.folder.join(VERSIONS)).ok()?;
        text.lines()
            .filter_map(|line| line.split_once(' '))
            .find(|(package, _)| *package == name)
            .map(|(_, version)| version.to_owned())
    }

    /// Downloads and unpacks them, in the place of what is there.
    pub fn unpack(&self, cache: &Cache) -> Result<(), Problem> {
        let apt = Apt::for_arch(cache, self.arch, &[SUITE])?;
        let index = apt.index()?;
        let mut wanted: Vec<&Package> = Vec::new();
        for name in self.packages {
            wanted.push(
                packages::named(&index, name)
                    .ok_or_else(|| Problem::new(format!("{SUITE} has no package {name}")))?,
            );
        }
        apt.unpack(&wanted, &self.folder)?;
        let list: String = wanted
            .iter()
            .map(|p| format!("{} {}\n", p.name, p.version))
            .collect();
        let file = self.folder.join(VERSIONS);
        fs::write(&file, list).doing(|| format!("writing {}", file.display()))
    }

    /// Where something of the packages is on this system.
    pub fn at(&self, place: &str) -> PathBuf {
        self.folder.join(place)
    }

    /// The folder of shared objects, such as `usr/lib/x86_64-linux-gnu`.
    pub fn libraries(&self) -> Result<String, Problem> {
        self.list("usr/lib")?
            .into_iter()
            .find(|name| name.ends_with("-linux-gnu"))
            .map(|name| format!("usr/lib/{name}"))
            .ok_or_else(|| Problem::new("the packages hold no shared objects"))
    }

    /// The names in a folder of the packages, in order.
    pub fn list(&self, place: &str) -> Result<Vec<String>, Problem> {
        list(&self.at(place))
    }

    /// A file of the packages.
    pub fn read(&self, place: &str) -> Result<Vec<u8>, Problem> {
        let path = self.at(place);
        fs::read(&path).doing(|| {
            format!(
                "reading {} (without the folder {} the packages are unpacked again)",
                path.display(),
                self.folder.display()
            )
        })
    }

    /// Takes a file along as it is.
    pub fn put(&self, tree: &mut Tree, place: &str, runs: bool) -> Result<(), Problem> {
        let content = self.read(place)?;
        tree.put(&format!("/{place}"), Entry::File(content, runs));
        Ok(())
    }

    /// Takes programs and shared objects along, with all that they name: each at its own place, as on
    /// an installed system.
    pub fn put_programs(&self, tree: &mut Tree, mut todo: Vec<String>) -> Result<(), Problem> {
        let libraries = self.libraries()?;
        let mut seen = BTreeSet::new();
        while let Some(place) = todo.pop() {
            if !seen.insert(place.clone()) {
                continue;
            }
            let content = self.read(&place)?;
            let wants = elf::dynamic(&content)
                .ok_or_else(|| Problem::new(format!("{place} of the packages is no program")))?;
            tree.put(&format!("/{place}"), Entry::File(content, true));
            if let Some(interpreter) = wants.interpreter {
                let inside = format!("usr/{}", interpreter.trim_start_matches('/'));
                tree.put(&interpreter, Entry::File(self.read(&inside)?, true));
            }
            for name in wants.needed {
                todo.push(format!("{libraries}/{name}"));
            }
        }
        Ok(())
    }
}

/// The names in a folder, in order.
pub fn list(folder: &Path) -> Result<Vec<String>, Problem> {
    let what = || format!("reading {}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).doing(what)? {
        names.push(
            entry
                .doing(what)?
                .file_name()
                .to_string_lossy()
                .into_owned(),
        );
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder as it is after unpacking: this test is the program, and all that it needs.
    fn unpacked(name: &str) -> Debs {
        let folder = std::env::temp_dir().join(format!("uverbs-vm-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let debs = Debs {
            folder,
            arch: Arch::Amd64,
            packages: &["one", "two"],
        };
        let own = fs::read("/proc/self/exe").unwrap();
        let wants = elf::dynamic(&own).unwrap();
        let put = |place: &str, content: &[u8]| {
            let path = debs.at(place);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        put("usr/bin/program", &own);
        put("etc/settings", b"x");
        put("usr/lib/any-linux-gnu/other.so", &own);
        for name in wants.needed {
            put(&format!("usr/lib/any-linux-gnu/{name}"), &own);
        }
        if let Some(interpreter) = wants.interpreter {
            put(&format!("usr{interpreter}"), b"linker");
        }
        debs
    }

    #[test]
    fn programs_come_with_all_that_they_name() {
        let debs = unpacked("programs");
        let wants = elf::dynamic(&debs.read("usr/bin/program").unwrap()).unwrap();
        let mut tree = Tree::default();
        debs.put(&mut tree, "etc/settings", false).unwrap();
        debs.put_programs(&mut tree, vec!["usr/bin/program".to_owned()])
            .unwrap();
        assert!(matches!(
            tree.at("/usr/bin/program"),
            Some(Entry::File(_, true))
        ));
        assert_eq!(
            tree.at("/etc/settings"),
            Some(&Entry::File(b"x".to_vec(), false))
        );
        for name in wants.needed {
            assert!(
                tree.at(&format!("/usr/lib/any-linux-gnu/{name}")).is_some(),
                "{name}"
            );
        }
        if let Some(interpreter) = wants.interpreter {
            let linker = Entry::File(b"linker".to_vec(), true);
            assert_eq!(tree.at(&interpreter), Some(&linker));
        }
        assert!(tree.at("/usr/lib/any-linux-gnu/other.so").is_none());
        for no_program in ["etc/settings", "usr/bin/missing"] {
            assert!(
                debs.put_programs(&mut tree, vec![no_program.to_owned()])
                    .is_err()
            );
        }
        fs::remove_dir_all(&debs.folder).unwrap();
    }

    #[test]
    fn what_is_not_listed_is_not_there() {
        let debs = unpacked("versions");
        assert!(!debs.are_there());
        fs::write(debs.at(VERSIONS), "one 1:2.3-4\n").unwrap();
        assert!(!debs.are_there());
        fs::write(debs.at(VERSIONS), "one 1:2.3-4\ntwo 5\n").unwrap();
        assert!(debs.are_there());
        assert_eq!(debs.version("one").as_deref(), Some("1:2.3-4"));
        assert_eq!(debs.version("three"), None);
        fs::remove_dir_all(&debs.folder).unwrap();
    }
}

//! Finds the shared objects of a program, as its dynamic linker would, to take them along.
//!
//! Must never run the program or its interpreter to find out (`ldd` does): the program may be
//! anything. Must never write to the host.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::arch::Arch;
use super::cpio::{Entry, Tree};
use super::elf;
use super::report::{Doing, Problem, say};

/// Adds to the tree what its programs and shared objects need; gives back the folders in which the
/// guest's dynamic linker has to look.
///
/// What `program` lacks is an error; what something else lacks is only said, since it may never be
/// used.
pub fn complete(tree: &mut Tree, sources: &Sources, program: &str) -> Result<Vec<String>, Problem> {
    let mut search = Search {
        host: host_folders(),
        sources,
        folders: BTreeSet::new(),
        missing: BTreeSet::new(),
    };
    search.follow(tree, vec![program.to_owned()], true)?;
    let others = tree
        .iter()
        .filter(|(_, e)| matches!(e, Entry::File(content, _) if elf::is_elf(content)))
        .map(|(path, _)| path)
        .collect();
    search.follow(tree, others, false)?;
    // The C library opens this one by itself when a thread ends; it is in no list.
    if search
        .folders
        .iter()
        .any(|f| tree.at(&format!("{f}/libc.so.6")).is_some())
    {
        search.find(tree, program, "libgcc_s.so.1", &[])?;
    }
    Ok(search.folders.into_iter().collect())
}

struct Search<'a> {
    host: Vec<PathBuf>,
    sources: &'a Sources,
    folders: BTreeSet<String>,
    /// What is nowhere to be found, each said once.
    missing: BTreeSet<String>,
}

impl Search<'_> {
    fn follow(
        &mut self,
        tree: &mut Tree,
        mut todo: Vec<String>,
        must: bool,
    ) -> Result<(), Problem> {
        let mut seen = BTreeSet::new();
        while let Some(path) = todo.pop() {
            if !seen.insert(path.clone()) {
                continue;
            }
            let Some(Entry::File(content, _)) = tree.at(&path) else {
                continue;
            };
            // A script's interpreter is followed with the others.
            let Some(wants) = elf::dynamic(content) else {
                continue;
            };
            if let Some(interpreter) = wants.interpreter
                && tree.at(&interpreter).is_none()
            {
                put(tree, &interpreter, Path::new(&interpreter))?;
            }
            for name in &wants.needed {
                match self.find(tree, &path, name, &wants.search)? {
                    Some(place) => todo.push(place),
                    None => {
                        let text = format!(
                            "{} needs {name}, which is neither on this system nor among the files \
                             given by --with; add --with FOLDER-OR-FILE[=PLACE IN THE GUEST]",
                            self.sources.of(&path).display()
                        );
                        if must {
                            return Err(Problem::new(text));
                        }
                        if self.missing.insert(name.clone()) {
                            say(text);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Finds one shared object, in the tree or on the host; from there it is put into the tree.
    fn find(
        &mut self,
        tree: &mut Tree,
        path: &str,
        name: &str,
        search: &[String],
    ) -> Result<Option<String>, Problem> {
        let own = Path::new(path).parent().unwrap_or_else(|| Path::new("/"));
        if let Some(folder) = folder_in(tree, name, &expand(search, own)) {
            let place = format!("{folder}/{name}");
            self.folders.insert(folder);
            return Ok(Some(resolved(tree, place)));
        }
        let source = self.sources.of(path);
        let beside = source.parent().unwrap_or_else(|| Path::new("/"));
        let found = expand(search, beside)
            .iter()
            .map(PathBuf::from)
            .chain(self.host.iter().cloned())
            .map(|folder| folder.join(name))
            .find(|file| fits(file));
        let Some(file) = found else { return Ok(None) };
        let place = file.to_string_lossy().into_owned();
        put(tree, &place, &file)?;
        self.folders
            .extend(file.parent().map(|p| p.to_string_lossy().into_owned()));
        Ok(Some(place))
    }
}

/// Follows links inside the tree; they are of one name, beside each other.
fn resolved(tree: &Tree, mut place: String) -> String {
    for _ in 0..8 {
        let Some(Entry::Link(target)) = tree.at(&place) else {
            break;
        };
        let folder = place.rsplit_once('/').map_or("", |(f, _)| f);
        place = if target.starts_with('/') {
            target.clone()
        } else {
            format!("{folder}/{target}")
        };
    }
    place
}

/// Where files in the tree came from on the host.
#[derive(Debug, Clone, Default)]
pub struct Sources(std::collections::BTreeMap<String, PathBuf>);

impl Sources {
    /// Remembers one.
    pub fn insert(&mut self, place: &str, source: &Path) {
        self.0.insert(place.to_owned(), source.to_owned());
    }

    fn of(&self, place: &str) -> PathBuf {
        self.0
            .get(place)
            .cloned()
            .unwrap_or_else(|| PathBuf::from(place))
    }
}

fn put(tree: &mut Tree, place: &str, file: &Path) -> Result<(), Problem> {
    let content = fs::read(file).doing(|| format!("reading {}", file.display()))?;
    tree.put(place, Entry::File(content, true));
    Ok(())
}

/// The folder of the tree that holds a file of this name: one that was asked for, or any.
fn folder_in(tree: &Tree, name: &str, asked: &[String]) -> Option<String> {
    if let Some(folder) = asked
        .iter()
        .find(|f| tree.at(&format!("{f}/{name}")).is_some())
    {
        return Some(folder.clone());
    }
    let end = format!("/{name}");
    tree.iter()
        .find(|(path, e)| path.ends_with(&end) && **e != Entry::Folder)
        .map(|(path, _)| path.trim_end_matches(&end).to_owned())
}

fn expand(search: &[String], origin: &Path) -> Vec<String> {
    let origin = origin.to_string_lossy();
    search
        .iter()
        .map(|s| s.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin))
        .collect()
}

/// Whether this is a shared object for our machine (a folder may hold those of another one).
fn fits(file: &Path) -> bool {
    fs::read(file)
        .is_ok_and(|b| elf::machine(&b) == Some(Arch::Amd64) && elf::dynamic(&b).is_some())
}

/// Folders that the host's dynamic linker looks through.
fn host_folders() -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = env::var_os("LD_LIBRARY_PATH")
        .map(|v| env::split_paths(&v).filter(|p| p.is_absolute()).collect())
        .unwrap_or_default();
    configured(Path::new("/etc/ld.so.conf"), &mut all, 0);
    let usual = [
        "/lib/x86_64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu",
        "/lib64",
        "/usr/lib64",
    ];
    all.extend(
        usual
            .iter()
            .chain(&["/lib", "/usr/lib", "/usr/local/lib"])
            .map(PathBuf::from),
    );
    all
}

fn configured(file: &Path, all: &mut Vec<PathBuf>, depth: u32) {
    let Ok(text) = fs::read_to_string(file) else {
        return;
    };
    if depth > 4 {
        return;
    }
    for line in text
        .lines()
        .map(|l| l.split('#').next().unwrap_or_default().trim())
    {
        if let Some(pattern) = line.strip_prefix("include") {
            // Only the form that is in use: a folder and `*.conf`.
            let pattern = Path::new(pattern.trim());
            let folder = pattern.parent().unwrap_or_else(|| Path::new("/"));
            let Ok(entries) = fs::read_dir(folder) else {
                continue;
            };
            let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
            files.retain(|f| f.extension() == pattern.extension());
            files.sort();
            for f in files {
                configured(&f, all, depth + 1);
            }
        } else if line.starts_with('/') {
            all.push(PathBuf::from(line));
        }
    }
}

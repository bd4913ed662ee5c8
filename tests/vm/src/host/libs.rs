//! Finds the shared objects of a program, as its dynamic linker would, to take them along.
//!
//! Must never run the program or its interpreter to find out (`ldd` does): the program may be
//! anything. Must never write to the host.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::cpio::{Entry, Tree};
use super::elf;
use super::report::{Doing, Problem};

/// Adds to the tree what its programs and shared objects need; gives back the folders in which the
/// guest's dynamic linker has to look.
pub fn complete(tree: &mut Tree, sources: &Sources) -> Result<Vec<String>, Problem> {
    let host = host_folders();
    let mut folders = BTreeSet::new();
    let mut todo: Vec<String> = tree
        .iter()
        .filter(|(_, e)| matches!(e, Entry::File(content, _) if elf::is_elf(content)))
        .map(|(path, _)| path)
        .filter(|path| path != "/init" && !path.starts_with("/modules/"))
        .collect();
    while let Some(path) = todo.pop() {
        let Some(Entry::File(content, _)) = tree.at(&path) else {
            continue;
        };
        let Some(wants) = elf::dynamic(content) else {
            continue;
        };
        if let Some(interpreter) = wants.interpreter
            && tree.at(&interpreter).is_none()
        {
            put(tree, &interpreter, Path::new(&interpreter))?;
        }
        for name in wants.needed {
            let own = Path::new(&path).parent().unwrap_or_else(|| Path::new("/"));
            let asked = expand(&wants.search, own);
            if let Some(folder) = folder_in(tree, &name, &asked) {
                folders.insert(folder);
                continue;
            }
            let source = sources.of(&path);
            let beside = source.parent().unwrap_or_else(|| Path::new("/"));
            let found = expand(&wants.search, beside)
                .iter()
                .map(PathBuf::from)
                .chain(host.iter().cloned())
                .map(|folder| folder.join(&name))
                .find(|file| fits(file));
            let Some(file) = found else {
                return Err(Problem::new(format!(
                    "{} needs {name}, which is neither on this system nor among the files given \
                     by --with; add --with FOLDER-OR-FILE[=PLACE IN THE GUEST]",
                    source.display()
                )));
            };
            let place = file.to_string_lossy().into_owned();
            put(tree, &place, &file)?;
            folders.extend(file.parent().map(|p| p.to_string_lossy().into_owned()));
            todo.push(place);
        }
    }
    Ok(folders.into_iter().collect())
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
    fs::read(file).is_ok_and(|b| elf::dynamic(&b).is_some())
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

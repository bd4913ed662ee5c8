//! Gathers what `cargo vm run` takes into the guest: the program, its shared objects, `--with`.
//!
//! Must never place anything where the guest mounts something over it, and never take along more
//! than was asked for and is needed.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use super::cache::Cache;
use super::cpio::{Entry, Tree};
use super::libs::{self, Sources};
use super::report::{Doing, Problem};

/// Files for the guest, and how to start the program there.
#[derive(Debug)]
pub struct Payload {
    /// All files.
    pub tree: Tree,
    /// The program's path in the guest.
    pub program: String,
    /// Value for `LD_LIBRARY_PATH`; empty for a static program.
    pub library_path: String,
}

/// Where the guest's init itself puts things.
const TAKEN: [&str; 6] = ["/proc", "/sys", "/dev", "/modules", "/share", "/init"];

/// Gathers a program and what it needs.
pub fn gather(cache: &Cache, program: &OsStr, with: &[OsString]) -> Result<Payload, Problem> {
    let mut b = Builder {
        tree: Tree::default(),
        sources: Sources::default(),
    };
    for spec in with {
        b.with(spec)?;
    }
    let busybox = find_busybox(cache);
    if let Some(busybox) = &busybox {
        b.file("/bin/busybox", busybox)?;
        if b.tree.at("/bin/sh").is_none() {
            b.tree.put("/bin/sh", Entry::Link("/bin/busybox".into()));
        }
    }
    let program = match find_program(program) {
        Some(path) => b.program(&path)?,
        None if program == "busybox" && busybox.is_some() => "/bin/busybox".to_owned(),
        None if Path::new(program).exists() => {
            return Err(Problem::new(format!(
                "{} is not executable",
                program.display()
            )));
        }
        None => {
            return Err(Problem::new(format!(
                "there is no program {}; give its path, or a name in PATH",
                program.display()
            )));
        }
    };
    etc(&mut b.tree);
    let folders = libs::complete(&mut b.tree, &b.sources, &program)?;
    Ok(Payload {
        tree: b.tree,
        program,
        library_path: folders.join(":"),
    })
}

/// A few files that programs expect.
fn etc(tree: &mut Tree) {
    for (path, text) in [
        ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
        ("/etc/group", "root:x:0:\n"),
        (
            "/etc/hosts",
            "127.0.0.1 localhost\n10.0.0.1 rxe0\n10.0.0.2 rxe1\n",
        ),
        (
            "/etc/nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files\n",
        ),
    ] {
        if tree.at(path).is_none() {
            tree.put(path, Entry::File(text.as_bytes().to_vec(), false));
        }
    }
}

/// busybox as the set-up unpacked it, where it did.
fn find_busybox(cache: &Cache) -> Option<PathBuf> {
    let tools = cache.at("tools");
    ["bin/busybox", "usr/bin/busybox"]
        .iter()
        .map(|p| tools.join(p))
        .find(|p| p.is_file())
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Finds a program as a shell does: a path if it holds a slash, else through `PATH`.
pub fn find_program(name: &OsStr) -> Option<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return std::path::absolute(name).ok().filter(|p| is_program(p));
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .filter(|d| d.is_absolute())
        .map(|d| d.join(name))
        .find(|p| is_program(p))
}

/// A path without `.` and `..`, as files are placed in the guest.
fn folded(path: &Path) -> PathBuf {
    let mut folded = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => folded.push(name),
            Component::ParentDir => drop(folded.pop()),
            _ => {}
        }
    }
    folded
}

struct Builder {
    tree: Tree,
    sources: Sources,
}

impl Builder {
    fn file(&mut self, place: &str, source: &Path) -> Result<(), Problem> {
        let what = || format!("reading {}", source.display());
        let content = fs::read(source).doing(what)?;
        let mode = fs::metadata(source).doing(what)?.permissions().mode();
        self.tree
            .put(place, Entry::File(content, mode & 0o111 != 0));
        self.sources.insert(place, source);
        Ok(())
    }

    fn program(&mut self, path: &Path) -> Result<String, Problem> {
        let mut place = folded(path).to_string_lossy().into_owned();
        if is_taken(&place) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            place = format!("/root/{name}");
        }
        self.file(&place, path)?;
        self.interpreter_of_script(&place)?;
        Ok(place)
    }

    /// A script brings the interpreter that its first line names.
    fn interpreter_of_script(&mut self, place: &str) -> Result<(), Problem> {
        let Some(Entry::File(content, _)) = self.tree.at(place) else {
            return Ok(());
        };
        let Some(line) = content
            .strip_prefix(b"#!")
            .and_then(|c| c.split(|b| *b == b'\n').next())
        else {
            return Ok(());
        };
        let line = String::from_utf8_lossy(line).into_owned();
        let mut words = line.split_whitespace();
        let Some(interpreter) = words.next() else {
            return Ok(());
        };
        let second = words
            .next()
            .filter(|_| interpreter.ends_with("/env"))
            .map(OsStr::new);
        for path in [
            Some(PathBuf::from(interpreter)),
            second.and_then(find_program),
        ] {
            let Some(path) = path else { continue };
            let there = path.to_string_lossy();
            if self.tree.at(&there).is_none() {
                self.file(&there, &path)?;
            }
        }
        Ok(())
    }

    /// One `--with SRC[=DST]`.
    fn with(&mut self, spec: &OsStr) -> Result<(), Problem> {
        let text = spec
            .to_str()
            .ok_or_else(|| Problem::new(format!("--with {}: not UTF-8", spec.display())))?;
        let (source, place) = match text.rsplit_once('=') {
            Some((s, d)) if !Path::new(text).exists() => (s, Some(d)),
            _ => (text, None),
        };
        let source = std::path::absolute(source).doing(|| format!("--with {text}"))?;
        let meta = fs::metadata(&source)
            .doing(|| format!("--with {text}: reading {}", source.display()))?;
        let mut place = place.map_or_else(|| source.to_string_lossy().into_owned(), str::to_owned);
        if !place.starts_with('/') {
            return Err(Problem::new(format!(
                "--with {text}: the place in the guest must start with a slash"
            )));
        }
        if place.ends_with('/') && !meta.is_dir() {
            place.push_str(&source.file_name().unwrap_or_default().to_string_lossy());
        }
        let place = folded(Path::new(&place)).to_string_lossy().into_owned();
        if is_taken(&place) {
            return Err(Problem::new(format!(
                "--with {text}: {place} is taken in the guest; choose another place"
            )));
        }
        if meta.is_dir() {
            self.folder(&place, &source)
        } else {
            self.file(&place, &source)
        }
    }

    fn folder(&mut self, place: &str, source: &Path) -> Result<(), Problem> {
        let place = place.trim_end_matches('/');
        self.tree.put(place, Entry::Folder);
        let what = || format!("reading {}", source.display());
        for entry in fs::read_dir(source).doing(what)? {
            let entry = entry.doing(what)?;
            let inner = format!("{place}/{}", entry.file_name().to_string_lossy());
            let path = entry.path();
            let kind = entry.file_type().doing(what)?;
            if kind.is_symlink() {
                let target = fs::read_link(&path).doing(what)?;
                // A link inside stays a link; one that leads elsewhere becomes what it leads to.
                let inside = target.components().count() == 1;
                let meta = fs::metadata(&path);
                match meta {
                    Ok(_) if inside => self
                        .tree
                        .put(&inner, Entry::Link(target.to_string_lossy().into_owned())),
                    Ok(m) if m.is_file() => self.file(&inner, &path)?,
                    // Dangling links, and links to folders elsewhere, are left out.
                    _ => {}
                }
            } else if kind.is_dir() {
                self.folder(&inner, &path)?;
            } else if kind.is_file() {
                self.file(&inner, &path)?;
            }
        }
        Ok(())
    }
}

fn is_taken(place: &str) -> bool {
    place == "/"
        || TAKEN.iter().any(|t| {
            place
                .strip_prefix(t)
                .is_some_and(|r| r.is_empty() || r.starts_with('/'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_folded() {
        for (given, folded_to) in [
            ("/a/b/../c", "/a/c"),
            ("/a/./b/", "/a/b"),
            ("/../../proc/x", "/proc/x"),
            ("/", "/"),
        ] {
            assert_eq!(folded(Path::new(given)), Path::new(folded_to), "{given}");
        }
    }

    #[test]
    fn taken_places() {
        assert!(is_taken("/dev"));
        assert!(is_taken("/dev/shm/x"));
        assert!(is_taken("/"));
        assert!(!is_taken("/device"));
        assert!(!is_taken("/etc/x"));
    }

    #[test]
    fn with_places_files() -> Result<(), Box<dyn std::error::Error>> {
        let dir = env::temp_dir().join(format!("uverbs-vm-with-{}", std::process::id()));
        fs::create_dir_all(dir.join("in"))?;
        fs::write(dir.join("in/a"), "x")?;
        let _ = fs::remove_file(dir.join("in/l"));
        std::os::unix::fs::symlink("a", dir.join("in/l"))?;
        let mut b = Builder {
            tree: Tree::default(),
            sources: Sources::default(),
        };
        b.with(OsStr::new(&format!("{}=/etc/y", dir.join("in").display())))?;
        b.with(OsStr::new(&format!("{}=/opt/", dir.join("in/a").display())))?;
        assert_eq!(
            b.tree.at("/etc/y/a"),
            Some(&Entry::File(b"x".to_vec(), false))
        );
        assert_eq!(b.tree.at("/etc/y/l"), Some(&Entry::Link("a".into())));
        assert_eq!(
            b.tree.at("/opt/a"),
            Some(&Entry::File(b"x".to_vec(), false))
        );
        assert!(
            b.with(OsStr::new(&format!(
                "{}=/dev/x",
                dir.join("in/a").display()
            )))
            .is_err()
        );
        assert!(b.with(OsStr::new("/no/such/file/anywhere")).is_err());
        fs::remove_dir_all(&dir)?;
        Ok(())
    }
}

//! The cache folder: everything this tool puts on the host's disk is under it.
//!
//! Must never be the only copy of anything: it can be deleted at any time.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::report::{Doing, Problem, say};

/// The cache folder.
#[derive(Debug, Clone)]
pub struct Cache(PathBuf);

impl Cache {
    /// Finds the folder: `UVERBS_VM_CACHE`, or `uverbs-vm` in the user's cache.
    pub fn locate() -> Result<Self, Problem> {
        let set = |name: &str| {
            env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        set("UVERBS_VM_CACHE")
            .or_else(|| set("XDG_CACHE_HOME").map(|d| d.join("uverbs-vm")))
            .or_else(|| set("HOME").map(|d| d.join(".cache/uverbs-vm")))
            .map(Self)
            .ok_or_else(|| {
                Problem::new("there is no place for the cache; set UVERBS_VM_CACHE to a folder")
            })
    }

    /// A place in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Makes a folder in it.
    pub fn make(&self, name: &str) -> Result<PathBuf, Problem> {
        let path = self.at(name);
        fs::create_dir_all(&path).doing(|| format!("making the folder {}", path.display()))?;
        Ok(path)
    }

    /// Keeps other runs of the set-up out until the lock is dropped.
    pub fn lock(&self) -> Result<Flock<File>, Problem> {
        self.make("")?;
        let path = self.at("lock");
        let open = || {
            File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)
        };
        let what = || format!("locking {}", path.display());
        match Flock::lock(open().doing(what)?, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(lock),
            Err(_) => {
                say("waiting for another set-up to finish");
                Flock::lock(open().doing(what)?, FlockArg::LockExclusive)
                    .map_err(|(_, e)| e)
                    .doing(what)
            }
        }
    }

    /// Makes a folder for one run, removed when it is dropped; leftovers of dead runs go too.
    pub fn run_folder(&self) -> Result<RunFolder, Problem> {
        let runs = self.make("runs")?;
        for entry in fs::read_dir(&runs)
            .doing(|| format!("reading {}", runs.display()))?
            .flatten()
        {
            let name = entry.file_name();
            let pid = name
                .to_str()
                .and_then(|n| n.split('-').next()?.parse().ok());
            if pid.is_some_and(|p| kill(Pid::from_raw(p), None).is_err()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        for n in 0..u32::MAX {
            let path = runs.join(format!("{}-{n}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(RunFolder(path)),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e).doing(|| format!("making {}", path.display())),
            }
        }
        Err(Problem::new(format!("no free name in {}", runs.display())))
    }
}

/// A folder that lasts as long as this value.
#[derive(Debug)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// A place in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

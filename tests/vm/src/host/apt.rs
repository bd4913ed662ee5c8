//! A private apt: its own state, its own suites, all of it in the cache.
//!
//! So suites can be reached that the system does not use. Must never install anything and never
//! touch the system's apt; signatures are checked as the system checks them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::arch::Arch;
use super::cache::Cache;
use super::mirrors::{self, Mirrors};
use super::packages::{self, Package};
use super::process;
use super::report::{Doing, Problem, Step};

/// The private apt.
#[derive(Debug)]
pub struct Apt {
    folder: PathBuf,
    arch: Arch,
}

impl Apt {
    /// Sets it up for these suites, and packages for x86-64.
    pub fn for_suites(cache: &Cache, suites: &[&str]) -> Result<Self, Problem> {
        Self::for_arch(cache, Arch::Amd64, suites)
    }

    /// Sets it up for these suites, and packages for an architecture.
    pub fn for_arch(cache: &Cache, arch: Arch, suites: &[&str]) -> Result<Self, Problem> {
        for name in ["apt-get", "apt-cache", "dpkg-deb"] {
            if !process::has(name) {
                return Err(Problem::new(format!(
                    "{name} is not here, so no kernel can be fetched; bring one of your own and \
                     name its folder: UVERBS_KERNEL=FOLDER, holding boot/vmlinuz-RELEASE and \
                     lib/modules/RELEASE"
                )));
            }
        }
        if !mirrors::has_keys() {
            return Err(Problem::new(
                "the keys of Debian's archive are not here, so its kernels cannot be checked; run: \
                 apt-get install debian-archive-keyring",
            ));
        }
        let place = arch.place("apt");
        let folder = cache.make(&place)?;
        for name in ["state/lists/partial", "cache/archives/partial", "etc"] {
            cache.make(&format!("{place}/{name}"))?;
        }
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).doing(|| format!("writing {}", path.display()))
        };
        write("state/status", "")?;
        write(
            "etc/sources.list",
            &Mirrors::of_system().sources_list(suites, arch),
        )?;
        Ok(Self { folder, arch })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let f = self.folder.display();
        for option in [
            format!("Dir::State={f}/state"),
            format!("Dir::State::status={f}/state/status"),
            format!("Dir::Cache={f}/cache"),
            format!("Dir::Etc::sourcelist={f}/etc/sources.list"),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            "Dir::Etc::preferences=/dev/null".to_owned(),
            "Dir::Etc::preferencesparts=/dev/null".to_owned(),
            format!("APT::Architecture={}", self.arch.debian()),
            format!("APT::Architectures={}", self.arch.debian()),
            // The sandbox's user may not enter a cache in somebody's home.
            "APT::Sandbox::User=root".to_owned(),
            "APT::Get::List-Cleanup=false".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::Retries=2".to_owned(),
            "Acquire::http::Timeout=30".to_owned(),
            "Acquire::https::Timeout=30".to_owned(),
            "APT::Update::Error-Mode=any".to_owned(),
        ] {
            command.arg("-o").arg(option);
        }
        command
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Fetches the indexes and reads them.
    pub fn index(&self) -> Result<Vec<Package>, Problem> {
        let step = Step::start("reading the package lists");
        process::quietly(
            self.command("apt-get").args(["-q", "update"]),
            "reading the package lists",
        )
        .map_err(|e| {
            Problem::new(format!(
                "{e}\nis the network there? then run again: cargo vm setup"
            ))
        })?;
        let out = process::quietly(
            self.command("apt-cache").arg("dumpavail"),
            "listing the packages",
        )?;
        step.done();
        Ok(packages::parse(&String::from_utf8_lossy(&out)))
    }

    /// These packages and all that they cannot be without, as apt itself works it out for a system
    /// that has nothing installed.
    pub fn closure(&self, index: &[Package], names: &[&str]) -> Result<Vec<Package>, Problem> {
        let out = process::quietly(
            self.command("apt-get")
                .args(["-q", "--simulate", "--no-install-recommends", "install"])
                .args(["-o", "Debug::NoLocking=true"])
                .args(names),
            "working out what a package needs",
        )?;
        Ok(packages::simulated(&String::from_utf8_lossy(&out), index))
    }

    /// Downloads packages and unpacks them into a folder, which appears whole or not at all.
    pub fn unpack(&self, wanted: &[&Package], into: &Path) -> Result<(), Problem> {
        let store = self.folder.join("download");
        let _ = fs::remove_dir_all(&store);
        fs::create_dir_all(&store).doing(|| format!("making {}", store.display()))?;
        let names: Vec<String> = wanted
            .iter()
            .map(|p| format!("{}={}", p.name, p.version))
            .collect();
        let size = wanted.iter().map(|p| p.size).sum::<u64>() / 1_000_000;
        let what = match names.len() {
            0..=8 => names.join(" "),
            many => format!("{many} packages"),
        };
        let step = Step::start(format!("downloading {what} ({size} MB)"));
        process::quietly(
            self.command("apt-get")
                .args(["-q", "download"])
                .args(&names)
                .current_dir(&store),
            "downloading",
        )?;
        step.done();

        let step = Step::start("unpacking");
        let partial = self.folder.join("unpack");
        let _ = fs::remove_dir_all(&partial);
        fs::create_dir_all(&partial).doing(|| format!("making {}", partial.display()))?;
        for entry in fs::read_dir(&store)
            .doing(|| format!("reading {}", store.display()))?
            .flatten()
        {
            process::quietly(
                Command::new("dpkg-deb")
                    .arg("-x")
                    .arg(entry.path())
                    .arg(&partial),
                "unpacking",
            )?;
        }
        let _ = fs::remove_dir_all(into);
        fs::rename(&partial, into).doing(|| format!("moving to {}", into.display()))?;
        let _ = fs::remove_dir_all(&store);
        step.done();
        Ok(())
    }
}

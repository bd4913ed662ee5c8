//! Finds an unpacked kernel: its image, its modules, its release.
//!
//! Must never download: that is the set-up's alone.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::arch::Arch;
use super::cache::Cache;
use super::report::Problem;

/// A kernel that can be booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The compressed image.
    pub image: PathBuf,
    /// The folder `lib/modules/RELEASE`.
    pub modules: PathBuf,
    /// Such as `6.12.117+deb12-amd64`.
    pub release: String,
    /// What it runs on.
    pub arch: Arch,
}

/// A line of kernels: a name such as `6.12`, or `newest`.
pub const DEFAULT_LINE: &str = "6.12";

impl Kernel {
    /// Looks for a kernel in a folder into which kernel packages were unpacked.
    pub fn in_folder(folder: &Path) -> Result<Self, Problem> {
        for modules in ["lib/modules", "usr/lib/modules"].map(|m| folder.join(m)) {
            let Ok(entries) = fs::read_dir(&modules) else {
                continue;
            };
            let mut releases: Vec<String> = entries
                .flatten()
                .filter_map(|e| e.file_name().into_string().ok())
                .collect();
            releases.sort_unstable();
            for release in releases.into_iter().rev() {
                let own = modules.join(&release);
                let images = [
                    folder.join(format!("boot/vmlinuz-{release}")),
                    own.join("vmlinuz"),
                ];
                if own.join("kernel").is_dir()
                    && own.join("modules.builtin").is_file()
                    && let Some(image) = images.into_iter().find(|i| i.is_file())
                {
                    return Ok(Self {
                        arch: Arch::of_kernel(&release, &image),
                        image,
                        modules: own,
                        release,
                    });
                }
            }
        }
        Err(Problem::new(format!(
            "{} holds no kernel: wanted are boot/vmlinuz-RELEASE and lib/modules/RELEASE with \
             the folder kernel and the file modules.builtin",
            folder.display()
        )))
    }

    /// The kernel of a line that the set-up has unpacked.
    pub fn of_line(cache: &Cache, line: &str) -> Result<Self, Problem> {
        let link = cache.at("kernels").join(format!("line-{line}"));
        if !link.exists() {
            return Err(Problem::new(format!(
                "no kernel {line} was set up; run: cargo vm setup --kernel {line}"
            )));
        }
        Self::in_folder(&link)
    }

    /// What the environment asks for: `UVERBS_KERNEL=<folder>`.
    pub fn from_environment() -> Option<Result<Self, Problem>> {
        let folder = env::var_os("UVERBS_KERNEL").filter(|v| !v.is_empty())?;
        Some(
            Self::in_folder(Path::new(&folder))
                .map_err(|e| Problem::new(format!("UVERBS_KERNEL is set, but {e}"))),
        )
    }
}

/// The line to use: what was asked for, or `UVERBS_VM_KERNEL`, or 6.12.
pub fn line(asked: Option<&str>) -> String {
    asked
        .map(str::to_owned)
        .or_else(|| env::var("UVERBS_VM_KERNEL").ok().filter(|v| !v.is_empty()))
        .unwrap_or_else(|| DEFAULT_LINE.to_owned())
}

/// The kernel to boot: the line asked for, else what the environment names, else the default line.
pub fn choose(cache: &Cache, asked: Option<&str>) -> Result<Kernel, Problem> {
    match Kernel::from_environment() {
        Some(kernel) if asked.is_none() => kernel,
        _ => Kernel::of_line(cache, &line(asked)),
    }
}

//! Chooses the accelerator: KVM where it really works, else emulation.
//!
//! That `/dev/kvm` opens proves nothing: there are hosts where every guest dies at once. So KVM is
//! tried once with the real guest, and the outcome is remembered until the host is booted anew.
//! Must never let a broken KVM cost more than its few seconds, nor more than once.

use std::env;
use std::fmt;
use std::fs::{self, File};
use std::path::Path;

use super::cache::Cache;

/// How QEMU runs the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// By the host's processor.
    Kvm,
    /// By emulation.
    Tcg,
}

impl fmt::Display for Accel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kvm => "KVM",
            Self::Tcg => "TCG (emulation)",
        })
    }
}

/// What is known before a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Use this.
    Use(Accel),
    /// KVM opens; nobody has tried it since the host was booted.
    TryKvm,
}

/// What to use, by `UVERBS_VM_ACCEL` (`kvm` or `tcg`), what is remembered, and the device.
pub fn known(cache: &Cache) -> Known {
    match env::var("UVERBS_VM_ACCEL").as_deref() {
        Ok("tcg") => return Known::Use(Accel::Tcg),
        Ok("kvm") => return Known::Use(Accel::Kvm),
        _ => {}
    }
    if File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_err()
    {
        return Known::Use(Accel::Tcg);
    }
    let text = fs::read_to_string(cache.at("accel")).unwrap_or_default();
    match text.split_once('\n') {
        Some((host, "works\n")) if host == this_boot() => Known::Use(Accel::Kvm),
        Some((host, "broken\n")) if host == this_boot() => Known::Use(Accel::Tcg),
        _ => Known::TryKvm,
    }
}

/// Remembers whether KVM works.
pub fn remember(cache: &Cache, works: bool) {
    let word = if works { "works" } else { "broken" };
    // Not remembered is only slow.
    let _ = fs::write(cache.at("accel"), format!("{}\n{word}\n", this_boot()));
}

/// The host's boot and kernel, in one line.
fn this_boot() -> String {
    let read = |p: &str| {
        fs::read_to_string(Path::new(p))
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    format!(
        "{} {}",
        read("/proc/sys/kernel/random/boot_id"),
        read("/proc/sys/kernel/osrelease")
    )
}

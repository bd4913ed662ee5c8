//! The two architectures of guests, and what each is called by whom.
//!
//! A line of kernels says which: `6.12` is x86-64, `6.12-arm64` is 64-bit ARM.

use std::path::Path;

/// What the names of lines of kernels for ARM end in.
const ARM_SUFFIX: &str = "-arm64";

/// An architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// x86-64, which the host must be.
    Amd64,
    /// 64-bit ARM, always emulated.
    Arm64,
}

impl Arch {
    /// Takes a line apart: its architecture, and the line of kernels without it.
    pub fn of_line(line: &str) -> (Self, &str) {
        match line.strip_suffix(ARM_SUFFIX) {
            Some(base) => (Self::Arm64, base),
            None => (Self::Amd64, line),
        }
    }

    /// The architecture of a kernel with this release or image.
    pub fn of_kernel(release: &str, image: &Path) -> Self {
        // The header of an ARM image has its mark at byte 56.
        let marked = || {
            let mut head = [0; 60];
            let file = std::fs::File::open(image);
            file.and_then(|mut file| std::io::Read::read_exact(&mut file, &mut head))
                .is_ok()
                && head.ends_with(b"ARM\x64")
        };
        if release.ends_with(ARM_SUFFIX) || marked() {
            Self::Arm64
        } else {
            Self::Amd64
        }
    }

    /// Debian's name for it.
    pub const fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The compiler's target for static programs.
    pub const fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-musl",
            Self::Arm64 => "aarch64-unknown-linux-musl",
        }
    }

    /// The emulator.
    pub const fn qemu(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
        }
    }

    /// Debian's package that holds the emulator.
    pub const fn qemu_package(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-system-x86",
            Self::Arm64 => "qemu-system-arm",
        }
    }

    /// The C compiler for this architecture's kernels: its package in Debian, and its name there.
    pub const fn compiler(self) -> (&'static str, &'static str) {
        match self {
            Self::Amd64 => ("gcc", "gcc"),
            Self::Arm64 => ("gcc-aarch64-linux-gnu", "aarch64-linux-gnu-gcc"),
        }
    }

    /// How many times the usual limits its guests may take.
    pub const fn patience(self) -> u32 {
        match self {
            Self::Amd64 => 1,
            Self::Arm64 => 4,
        }
    }

    /// `name` for the one architecture, with an ending for the other.
    pub fn place(self, name: &str) -> String {
        match self {
            Self::Amd64 => name.to_owned(),
            Self::Arm64 => format!("{name}{ARM_SUFFIX}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Arch;

    #[test]
    fn lines_say_the_architecture() {
        assert_eq!(Arch::of_line("6.12"), (Arch::Amd64, "6.12"));
        assert_eq!(Arch::of_line("6.12-arm64"), (Arch::Arm64, "6.12"));
        assert_eq!(Arch::of_line("newest"), (Arch::Amd64, "newest"));
    }
}

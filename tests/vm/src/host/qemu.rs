//! Starts QEMU so that it can never outlive this process.
//!
//! Must never kill by name: only by the process that it started itself.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use super::accel::Accel;
use super::arch::Arch;
use super::kernel::Kernel;
use super::payload::find_program;
use super::report::{Doing, Problem, say};
use crate::bench::Clock;
use crate::guest::init::{SHARE_TAG, SHARE_WORD};
use crate::guest::{FULL_WORD, GUEST_WORD};
use crate::protocol::PORT_NAME;

/// First argument that makes the executable the step between this process and QEMU.
pub const SHIM_ARG: &str = "host-qemu";

/// Environment variable: set, the long cases run in full.
pub const FULL: &str = "UVERBS_VM_FULL";

/// The machine to start.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The kernel.
    pub kernel: Kernel,
    /// The first root.
    pub initrd: PathBuf,
    /// Processors.
    pub smp: u32,
    /// Memory, in MiB.
    pub mem: u32,
    /// What its clock goes by, where it is emulated.
    pub clock: Clock,
    /// A folder of the host's to show at `/share`.
    pub share: Option<PathBuf>,
}

/// Where QEMU is.
pub fn find(arch: Arch) -> Result<PathBuf, Problem> {
    let name = arch.qemu();
    find_program(OsStr::new(name)).ok_or_else(|| {
        Problem::new(format!(
            "{name} is not installed (not found in PATH); run: cargo vm setup"
        ))
    })
}

/// Starts QEMU; its standard input and output are the guest's port.
pub fn start(machine: &Machine, accel: Accel, console: &Path) -> Result<Child, Problem> {
    let qemu = find(machine.kernel.arch)?;
    let cpu = match machine.kernel.arch {
        Arch::Amd64 => processor(accel, major_version(&qemu)),
        Arch::Arm64 => ARM_PROCESSOR,
    };
    let mut command = Command::new("/proc/self/exe");
    command
        .arg(SHIM_ARG)
        .arg(std::process::id().to_string())
        .arg(qemu);
    command.args(arguments(machine, accel, cpu, console));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().doing(|| "starting QEMU".to_owned())
}

/// The step in between: asks the kernel to kill this process when its parent dies, and becomes QEMU.
pub fn shim(args: &[OsString]) -> ExitCode {
    let [_, parent, program, rest @ ..] = args else {
        return ExitCode::FAILURE;
    };
    let parent = parent.to_str().and_then(|p| p.parse().ok());
    if set_pdeathsig(Signal::SIGKILL).is_err() || parent != Some(getppid().as_raw()) {
        // The parent died before it could be watched.
        return ExitCode::FAILURE;
    }
    let error = Command::new(program).args(rest).exec();
    say(format_args!("starting {}: {error}", program.display()));
    ExitCode::FAILURE
}

/// The processor to show a guest of ARM: the newest one whose pointers are not signed, since the
/// emulation of that costs more than all else.
const ARM_PROCESSOR: &str = "cortex-a72";

/// Whether the long cases are to run in full.
pub fn runs_in_full() -> bool {
    std::env::var_os(FULL).is_some()
}

/// In an option's value a comma ends it, unless doubled.
fn quoted(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

/// What QEMU calls itself, with its version: what it shows the guest, and so what the guest does, hangs on it.
pub fn version(arch: Arch) -> Result<String, Problem> {
    let text = what_it_says(&find(arch)?).doing(|| "asking QEMU for its version".to_owned())?;
    Ok(text.lines().next().unwrap_or("QEMU").to_owned())
}

/// QEMU's major version; `None` where it does not say.
fn major_version(qemu: &Path) -> Option<u32> {
    parse_version(&what_it_says(qemu).ok()?)
}

fn what_it_says(qemu: &Path) -> io::Result<String> {
    let out = Command::new(qemu).arg("--version").output()?;
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

fn parse_version(text: &str) -> Option<u32> {
    text.split_once("version ")?
        .1
        .split('.')
        .next()?
        .parse()
        .ok()
}

/// The processor to show the guest.
///
/// Before version 8, the emulation of CMPXCHG16B leaves wrong flags behind when an interrupt came
/// in just before, and the guest's kernel, which uses it to allocate memory, then dies of a double
/// fault: seen once in some thirty boots. Without the feature the kernel does without.
fn processor(accel: Accel, version: Option<u32>) -> &'static str {
    match (accel, version) {
        (Accel::Tcg, Some(..8) | None) => "max,-cx16",
        _ => "max",
    }
}

fn arguments(m: &Machine, accel: Accel, cpu: &str, console: &Path) -> Vec<OsString> {
    let by_instructions = accel == Accel::Tcg && m.clock == Clock::Instructions;
    // Instructions can be counted in one thread only.
    let emulation = if by_instructions {
        "tcg,thread=single"
    } else {
        "tcg,thread=multi"
    };
    // For KVM's first byte to come soon, the kernel must speak early. With TCG:
    // no_timer_check: that check panics when the emulator is starved for a moment.
    // tsc=reliable: else the kernel finds the clock unreliable and rewrites its hottest code while
    // the other processor runs it, which the emulator gets wrong now and then.
    let (accel, words) = match (m.kernel.arch, accel) {
        (Arch::Arm64, _) => (emulation, "console=ttyAMA0 loglevel=5"),
        (_, Accel::Kvm) => (
            "kvm",
            "console=ttyS0,115200 earlyprintk=ttyS0,115200 loglevel=7",
        ),
        (_, Accel::Tcg) => (
            emulation,
            "console=ttyS0,115200 no_timer_check tsc=reliable loglevel=5",
        ),
    };
    let share = if m.share.is_some() { SHARE_WORD } else { "" };
    let full = if runs_in_full() { FULL_WORD } else { "" };
    let append = format!(
        "panic=-1 random.trust_cpu=on mitigations=off {words} {GUEST_WORD} \
         {share} {full}"
    );
    let mut args: Vec<OsString> = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    add(&[
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
    ]);
    if m.kernel.arch == Arch::Arm64 {
        add(&["-machine", "virt"]);
    }
    if by_instructions {
        // While all sleep, the clock jumps to the next timer: nobody waits for it.
        add(&["-icount", "shift=0,sleep=off"]);
    }
    let smp = if by_instructions { 1 } else { m.smp };
    add(&["-accel", accel, "-cpu", cpu]);
    add(&["-smp", &smp.to_string(), "-m", &m.mem.to_string()]);
    add(&[
        "-kernel",
        &m.kernel.image.to_string_lossy(),
        "-initrd",
        &m.initrd.to_string_lossy(),
    ]);
    add(&["-append", &append]);
    add(&[
        "-chardev",
        &format!("file,id=console,path={}", quoted(console)),
    ]);
    add(&["-serial", "chardev:console"]);
    add(&["-chardev", "stdio,id=port,signal=off"]);
    add(&["-device", "virtio-serial-pci", "-device"]);
    add(&[&format!("virtserialport,chardev=port,name={PORT_NAME}")]);
    if let Some(folder) = &m.share {
        add(&["-fsdev"]);
        add(&[&format!(
            "local,id=share,path={},security_model=none,readonly=on,multidevs=remap",
            quoted(folder)
        )]);
        add(&[
            "-device",
            &format!("virtio-9p-pci,fsdev=share,mount_tag={SHARE_TAG}"),
        ]);
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors() {
        let of = |text: &str| processor(Accel::Tcg, parse_version(text));
        assert_eq!(
            of("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\n"),
            "max,-cx16"
        );
        assert_eq!(of("QEMU emulator version 10.0.3\n"), "max");
        assert_eq!(of("nonsense"), "max,-cx16");
        assert_eq!(processor(Accel::Kvm, Some(7)), "max");
    }
}

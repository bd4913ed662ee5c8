//! Process 1 of the guest: makes the machine, tells the host, runs its jobs, switches off.
//!
//! Must never return or panic on what it is given: the kernel panics when process 1 ends. What goes
//! wrong before the port is open can only be said on the console, where the host looks for it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};

use super::run::{self, Port};
use super::{injector, modules, net, rdma};
use crate::protocol::{Job, PORT_NAME, ToGuest, ToHost};

/// The list of modules that bring the port.
pub const EARLY_MODULES: &str = "early";
/// The list of all other modules.
pub const LATE_MODULES: &str = "late";
/// Word on the kernel's command line: mount the share.
pub const SHARE_WORD: &str = "uverbs.share";
/// Tag of the share.
pub const SHARE_TAG: &str = "uverbs-share";
/// Start of what init writes on the console when it gives up.
pub const CONSOLE_PREFIX: &str = "uverbs-vm init: ";

enum Order {
    Run(Job, Receiver<Option<Vec<u8>>>),
    PowerOff,
}

/// Runs the guest; does not come back.
pub fn main() -> ExitCode {
    if let Err(e) = machine() {
        let _ = writeln!(io::stderr(), "{CONSOLE_PREFIX}{e}");
    }
    let _ = reboot(RebootMode::RB_POWER_OFF);
    ExitCode::FAILURE
}

fn machine() -> io::Result<()> {
    mounts()?;
    let _ = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
    modules::load(EARLY_MODULES)?;
    let file = open_port()?;
    let port = Port::new(file.try_clone()?);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    port.tell(&ToHost::Hello(release.trim().to_owned()));
    if let Err(e) = devices(&port) {
        port.tell(&ToHost::Failed(e.to_string()));
        // The host ends the machine once it has read this.
        thread::sleep(Duration::from_secs(5));
        return Err(e);
    }
    let orders = listen(file);
    port.tell(&ToHost::Ready);
    while let Ok(Order::Run(job, stdin)) = orders.recv() {
        // What a job before this one took down or deleted comes back first.
        if let Err(e) = injector::unload()
            .and_then(|()| net::ensure_wire())
            .and_then(|()| rdma::ensure_devices())
        {
            port.tell(&ToHost::Stderr(
                format!("the guest's network: {e}\n").into_bytes(),
            ));
        }
        let done = run::run(&port, &job, stdin);
        port.tell(&ToHost::Done(done));
    }
    Ok(())
}

fn devices(port: &Port) -> io::Result<()> {
    modules::load(LATE_MODULES)?;
    port.tell(&ToHost::Progress("modules loaded".into()));
    net::ensure_wire()?;
    port.tell(&ToHost::Progress("veth pair up".into()));
    rdma::ensure_devices()?;
    port.tell(&ToHost::Progress("rxe0 and rxe1 active".into()));
    if fs::read_to_string("/proc/cmdline")?
        .split_whitespace()
        .any(|w| w == SHARE_WORD)
    {
        fs::create_dir_all("/share")?;
        mount_on(
            SHARE_TAG,
            "/share",
            "9p",
            "trans=virtio,version=9p2000.L,msize=262144",
            true,
        )?;
    }
    Ok(())
}

fn mount_on(source: &str, target: &str, kind: &str, data: &str, readonly: bool) -> io::Result<()> {
    fs::create_dir_all(target)?;
    let flags = if readonly {
        MsFlags::MS_RDONLY
    } else {
        MsFlags::empty()
    };
    mount(Some(source), target, Some(kind), flags, Some(data))
        .map_err(|e| io::Error::other(format!("mounting {kind} on {target}: {e}")))
}

fn mounts() -> io::Result<()> {
    mount_on("proc", "/proc", "proc", "", false)?;
    mount_on("sysfs", "/sys", "sysfs", "", false)?;
    mount_on("devtmpfs", "/dev", "devtmpfs", "", false)?;
    mount_on("devpts", "/dev/pts", "devpts", "ptmxmode=0666", false)?;
    mount_on("tmpfs", "/dev/shm", "tmpfs", "mode=1777", false)?;
    // The root is in memory already, and may hold files that the host put under /tmp.
    for (folder, mode) in [("/tmp", 0o1777), ("/run", 0o755), ("/root", 0o700)] {
        fs::create_dir_all(folder)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(mode))?;
    }
    for (link, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
        ("stderr", "fd/2"),
    ] {
        let _ = symlink(target, Path::new("/dev").join(link));
    }
    Ok(())
}

/// Waits for the port's node, which appears a little after the modules are loaded.
fn open_port() -> io::Result<File> {
    let start = Instant::now();
    loop {
        if let Some(path) = find_port() {
            return OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .map_err(|e| io::Error::new(e.kind(), format!("opening {path}: {e}")));
        }
        if start.elapsed() > Duration::from_secs(20) {
            return Err(io::Error::other("no virtio port after 20 s"));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn find_port() -> Option<String> {
    for entry in fs::read_dir("/sys/class/virtio-ports").ok()?.flatten() {
        let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        let node = format!("/dev/{}", entry.file_name().to_str()?);
        if name.trim() == PORT_NAME && Path::new(&node).exists() {
            return Some(node);
        }
    }
    None
}

/// Reads what the host says, and keeps standard input and orders apart.
fn listen(mut file: File) -> Receiver<Order> {
    let (orders, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut stdin: Option<Sender<Option<Vec<u8>>>> = None;
        while let Ok(Some(message)) = ToGuest::read(&mut file) {
            match message {
                ToGuest::Run(job) => {
                    let (tx, rx) = mpsc::channel();
                    stdin = Some(tx);
                    if orders.send(Order::Run(job, rx)).is_err() {
                        return;
                    }
                }
                ToGuest::Stdin(bytes) => {
                    if let Some(to) = &stdin {
                        let _ = to.send(Some(bytes));
                    }
                }
                ToGuest::StdinEnd => stdin = None,
                ToGuest::Kill => run::kill_all(),
                ToGuest::PowerOff => break,
            }
        }
        let _ = orders.send(Order::PowerOff);
    });
    receiver
}

//! A running guest: boots it, speaks with it, and sees to its end.
//!
//! Must never wait without a limit, and never leave QEMU running: it is killed when this is dropped.

use std::fs;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::accel::{self, Accel, Known};
use super::arch::Arch;
use super::cache::{Cache, RunFolder};
use super::qemu::{self, Machine};
use super::report::{Doing, Problem, say};
use crate::guest::init::CONSOLE_PREFIX;
use crate::guest::kmsg::is_complaint;
use crate::protocol::{ToGuest, ToHost};

/// How long a KVM nobody has tried may take to show its first byte.
const FIRST_BYTE: Duration = Duration::from_secs(5);
/// How long a KVM nobody has tried may take until the guest's init speaks.
const KVM_HELLO: Duration = Duration::from_secs(30);
/// How long a guest may take until its devices are ready; several times that on some architectures.
const BOOT_LIMIT: Duration = Duration::from_secs(240);

/// What comes next from a guest.
#[derive(Debug)]
pub enum Next {
    /// It says this.
    Message(ToHost),
    /// Nothing before the limit.
    TimedOut,
    /// It is gone.
    Died,
}

/// A guest that is booted and ready.
#[derive(Debug)]
pub struct Guest {
    process: Process,
    /// The kernel's release.
    pub release: String,
    /// How it is run.
    pub accel: Accel,
    /// How long it took to be ready.
    pub boot_time: Duration,
}

/// QEMU and the threads that read from it.
#[derive(Debug)]
struct Process {
    child: Child,
    input: Input,
    messages: Receiver<ToHost>,
    complaints: Arc<Mutex<String>>,
    console: PathBuf,
    /// How long it may take until its devices are ready.
    boot_limit: Duration,
}

/// Says things to the guest, from any thread.
#[derive(Debug, Clone)]
pub struct Input(Arc<Mutex<Option<ChildStdin>>>);

impl Input {
    /// Says this; a guest that is gone is noticed where its messages are read.
    pub fn tell(&self, what: &ToGuest) -> Result<(), Problem> {
        let mut pipe = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match pipe.as_mut().map(|p| what.write(p)) {
            Some(Err(e)) if e.kind() == std::io::ErrorKind::InvalidInput => {
                Err(Problem::new(e.to_string()))
            }
            _ => Ok(()),
        }
    }
}

impl Process {
    fn start(machine: &Machine, accel: Accel, folder: &RunFolder) -> Result<Self, Problem> {
        let console = folder.at("console.log");
        let _ = fs::remove_file(&console);
        let mut child = qemu::start(machine, accel, &console)?;
        let (to, messages) = mpsc::channel();
        if let Some(pipe) = child.stdout.take() {
            thread::spawn(move || {
                let mut pipe = BufReader::with_capacity(64 << 10, pipe);
                while let Ok(Some(message)) = ToHost::read(&mut pipe) {
                    if to.send(message).is_err() {
                        return;
                    }
                }
            });
        }
        let complaints = Arc::new(Mutex::new(String::new()));
        if let Some(mut pipe) = child.stderr.take() {
            let complaints = Arc::clone(&complaints);
            thread::spawn(move || {
                let mut buf = [0; 4096];
                while let Ok(n @ 1..) = pipe.read(&mut buf) {
                    let text = String::from_utf8_lossy(buf.get(..n).unwrap_or_default());
                    let mut all = complaints.lock().unwrap_or_else(PoisonError::into_inner);
                    if all.len() < 64 << 10 {
                        all.push_str(&text);
                    }
                }
            });
        }
        let input = Input(Arc::new(Mutex::new(child.stdin.take())));
        Ok(Self {
            child,
            input,
            messages,
            complaints,
            console,
            boot_limit: BOOT_LIMIT * machine.kernel.arch.patience(),
        })
    }

    fn next(&self, deadline: Option<Instant>) -> Next {
        let got = match deadline {
            None => self
                .messages
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
            Some(d) => self
                .messages
                .recv_timeout(d.saturating_duration_since(Instant::now())),
        };
        match got {
            Ok(message) => Next::Message(message),
            Err(RecvTimeoutError::Timeout) => Next::TimedOut,
            Err(RecvTimeoutError::Disconnected) => Next::Died,
        }
    }

    fn spoke(&self) -> bool {
        fs::metadata(&self.console).is_ok_and(|m| m.len() > 0)
    }

    /// QEMU's own words and the end of the console, for a message.
    fn last_words(&self) -> String {
        let mut text = self
            .complaints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        // A dump of registers helps nobody here.
        text.truncate(text.char_indices().nth(600).map_or(text.len(), |(i, _)| i));
        for line in tail(&self.console, 20) {
            text.push_str("  console| ");
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Guest {
    /// Boots a guest and waits until its devices are ready.
    pub fn boot(cache: &Cache, machine: &Machine, folder: &RunFolder) -> Result<Self, Problem> {
        let known = match machine.kernel.arch {
            Arch::Amd64 => accel::known(cache),
            Arch::Arm64 => Known::Use(Accel::Tcg),
        };
        let accel = match known {
            Known::Use(accel) => accel,
            Known::TryKvm => {
                if let Some(guest) = Self::try_kvm(cache, machine, folder)? {
                    return Ok(guest);
                }
                Accel::Tcg
            }
        };
        match Self::boot_with(accel, machine, folder) {
            Err(Early::Died(problem)) => {
                // An emulated machine on a busy host may miss its own timers. A second death is
                // the guest's own fault.
                say(format_args!("{problem}\ntrying once more …"));
                Self::boot_with(accel, machine, folder).map_err(Early::into_problem)
            }
            other => other.map_err(Early::into_problem),
        }
    }

    fn boot_with(accel: Accel, machine: &Machine, folder: &RunFolder) -> Result<Self, Early> {
        let start = Instant::now();
        let mut process = Process::start(machine, accel, folder).map_err(Early::Other)?;
        match process.next(Some(start + process.boot_limit)) {
            Next::Message(ToHost::Hello(release)) => {
                Self::ready(process, accel, release, start).map_err(Early::Other)
            }
            other => Err(boot_failed(&mut process, &other)),
        }
    }

    /// Boots under a KVM of which nothing is known; `None` if it does not work.
    fn try_kvm(
        cache: &Cache,
        machine: &Machine,
        folder: &RunFolder,
    ) -> Result<Option<Self>, Problem> {
        say("trying KVM, once …");
        let start = Instant::now();
        let process = Process::start(machine, Accel::Kvm, folder)?;
        let why = loop {
            match process.next(Some(Instant::now() + Duration::from_millis(50))) {
                Next::Message(ToHost::Hello(release)) => {
                    accel::remember(cache, true);
                    return Self::ready(process, Accel::Kvm, release, start).map(Some);
                }
                Next::Died => break "the guest died at once",
                _ if !process.spoke() && start.elapsed() > FIRST_BYTE => {
                    break "the guest said nothing within 5 s";
                }
                _ if start.elapsed() > KVM_HELLO => break "the guest did not come up within 30 s",
                _ => {}
            }
        };
        // A missing file or a refused option is not KVM's fault; it will be seen again without it.
        accel::remember(cache, false);
        say(format_args!(
            "KVM opens but does not work here ({why}); using emulation"
        ));
        Ok(None)
    }

    fn ready(
        mut process: Process,
        accel: Accel,
        release: String,
        start: Instant,
    ) -> Result<Self, Problem> {
        loop {
            match process.next(Some(start + process.boot_limit)) {
                Next::Message(ToHost::Ready) => {
                    return Ok(Self {
                        process,
                        release,
                        accel,
                        boot_time: start.elapsed(),
                    });
                }
                Next::Message(ToHost::Progress(_)) => {}
                Next::Message(ToHost::Failed(why)) => {
                    return Err(Problem::new(format!(
                        "the guest cannot make its RDMA devices: {why}\n{}",
                        process.last_words()
                    )));
                }
                other => return Err(boot_failed(&mut process, &other).into_problem()),
            }
        }
    }

    /// Something to speak with from other threads.
    pub fn input(&self) -> Input {
        self.process.input.clone()
    }

    /// Says this to the guest.
    pub fn tell(&self, what: &ToGuest) -> Result<(), Problem> {
        self.process.input.tell(what)
    }

    /// What the guest says next.
    pub fn next(&self, deadline: Option<Instant>) -> Next {
        self.process.next(deadline)
    }

    /// The end of what is on the console, for a message.
    pub fn last_words(&self) -> String {
        self.process.last_words()
    }

    /// All of the console so far.
    pub fn console(&self) -> String {
        fs::read(&self.process.console)
            .map(|b| String::from_utf8_lossy(&b).into_owned())
            .unwrap_or_default()
    }

    /// Copies the console to a file.
    pub fn save_console(&self, to: &Path) -> Result<(), Problem> {
        fs::copy(&self.process.console, to)
            .map(drop)
            .doing(|| format!("writing {}", to.display()))
    }

    /// Lets the guest switch itself off, for at most ten seconds; then QEMU is killed.
    pub fn power_off(&mut self) {
        let _ = self.tell(&ToGuest::PowerOff);
        let deadline = Instant::now() + Duration::from_secs(10);
        while matches!(self.next(Some(deadline)), Next::Message(_)) {}
        self.process.kill();
    }
}

/// Why a boot failed.
enum Early {
    /// The guest was suddenly gone.
    Died(Problem),
    /// Anything else, which would only happen again.
    Other(Problem),
}

impl Early {
    fn into_problem(self) -> Problem {
        match self {
            Self::Died(p) | Self::Other(p) => p,
        }
    }
}

fn boot_failed(process: &mut Process, how: &Next) -> Early {
    let console = fs::read(&process.console).unwrap_or_default();
    let console = String::from_utf8_lossy(&console);
    let said = console
        .lines()
        .find_map(|l| l.split_once(CONSOLE_PREFIX))
        .map(|(_, why)| why);
    let words = process.last_words();
    let other = |text: String| Early::Other(Problem::new(format!("{text}\n{words}")));
    match (said, how) {
        (Some(why), _) => other(format!("the guest gave up: {why}")),
        (None, Next::TimedOut) => other(format!(
            "the guest was not ready after {} s",
            process.boot_limit.as_secs()
        )),
        (None, _) => {
            // Its output is closed, so it ends now.
            let end = process
                .child
                .wait()
                .map(|s| s.to_string())
                .unwrap_or_default();
            Early::Died(Problem::new(format!(
                "the guest died while it was booting (QEMU ended with {end})\n{words}"
            )))
        }
    }
}

/// What of a console explains an end: from the first complaint on, or else the last lines.
fn tail(path: &Path, lines: usize) -> Vec<String> {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<String> = text
        .lines()
        .map(|l| l.chars().filter(|c| !c.is_control()).collect::<String>())
        .filter(|l| !l.trim().is_empty())
        .collect();
    let last = all.len().saturating_sub(lines);
    let first = all.iter().position(|l| is_complaint(l)).unwrap_or(last);
    let mut shown = all.get(first..).unwrap_or_default().to_vec();
    if shown.len() > 2 * lines {
        shown.splice(lines..shown.len() - lines, ["…".to_owned()]);
    }
    shown
}

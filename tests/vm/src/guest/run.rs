//! Runs one job in the guest and carries its input and output over the port.
//!
//! Must never leave a process of a job behind: when the job's first process ends, the rest is
//! killed. Must never wait for a child through [`std::process::Child`]: init reaps everything, also
//! what it did not start.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::VERDICT_PATH;
use crate::protocol::{Done, Job, ToHost};

/// The writing half of the port, shared by all that tell the host something.
#[derive(Debug, Clone)]
pub struct Port(Arc<Mutex<File>>);

impl Port {
    /// Takes the opened port.
    pub fn new(file: File) -> Self {
        Self(Arc::new(Mutex::new(file)))
    }

    /// Tells the host something; a host that is gone is no error, it ends the guest anyway.
    pub fn tell(&self, what: &ToHost) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = what.write(&mut *file);
    }
}

/// Kills every process but init.
pub fn kill_all() {
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
}

/// Runs the job to its end. `stdin` gives its input; `None` in it is the end of the input.
pub fn run(port: &Port, job: &Job, stdin: Receiver<Option<Vec<u8>>>) -> Done {
    let _ = fs::remove_file(VERDICT_PATH);
    let status = match start(port, job, stdin) {
        Ok(status) => status,
        Err(e) => {
            let name = job
                .argv
                .first()
                .map(|a| String::from_utf8_lossy(a))
                .unwrap_or_default();
            let text = format!("{name} cannot be started in the guest: {e}\n");
            port.tell(&ToHost::Stderr(text.into_bytes()));
            if e.kind() == io::ErrorKind::NotFound {
                127
            } else {
                126
            }
        }
    };
    Done {
        status,
        verdict: fs::read_to_string(VERDICT_PATH).ok(),
    }
}

fn start(port: &Port, job: &Job, stdin: Receiver<Option<Vec<u8>>>) -> io::Result<u8> {
    let (program, args) = job.argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(OsStr::from_bytes(program));
    command
        .args(args.iter().map(|a| OsStr::from_bytes(a)))
        .env_clear()
        .current_dir("/");
    for pair in &job.env {
        let at = pair.iter().position(|b| *b == b'=').unwrap_or(pair.len());
        let (name, value) = pair.split_at(at);
        command.env(
            OsStr::from_bytes(name),
            OsStr::from_bytes(value.get(1..).unwrap_or_default()),
        );
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);

    if let Some(pipe) = child.stdin.take() {
        let port = port.clone();
        // Not joined: it ends when the host says so, or when the next job comes.
        thread::spawn(move || feed(pipe, &stdin, &port));
    }
    let mut pumps = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        let port = port.clone();
        pumps.push(thread::spawn(move || pump(pipe, &port, ToHost::Stdout)));
    }
    if let Some(pipe) = child.stderr.take() {
        let port = port.clone();
        pumps.push(thread::spawn(move || pump(pipe, &port, ToHost::Stderr)));
    }

    let status = wait_for(pid)?;
    kill_all();
    reap_rest();
    for pump in pumps {
        let _ = pump.join();
    }
    Ok(status)
}

fn feed(mut pipe: impl Write, stdin: &Receiver<Option<Vec<u8>>>, port: &Port) {
    let mut open = true;
    while let Ok(Some(bytes)) = stdin.recv() {
        // A job that closed its input does not stop the host's flow: the rest is dropped.
        open = open && pipe.write_all(&bytes).is_ok();
        port.tell(&ToHost::StdinTaken(
            u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        ));
    }
}

fn pump(mut pipe: impl Read, port: &Port, wrap: fn(Vec<u8>) -> ToHost) {
    let mut buf = vec![0; 64 << 10];
    loop {
        match pipe.read(&mut buf) {
            Ok(0) => return,
            Ok(n) => port.tell(&wrap(buf.get(..n).unwrap_or_default().to_vec())),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn wait_for(pid: Pid) -> io::Result<u8> {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(p, code)) if p == pid => {
                return Ok(u8::try_from(code & 0xff).unwrap_or(u8::MAX));
            }
            Ok(WaitStatus::Signaled(p, signal, _)) if p == pid => {
                return Ok(128_u8.saturating_add(u8::try_from(signal as i32).unwrap_or(0)));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Reaps what was killed; something stuck in the kernel is not waited for longer than two seconds.
fn reap_rest() {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(2) {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => thread::sleep(Duration::from_millis(2)),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

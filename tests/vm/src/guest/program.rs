//! Runs programs beside a case: those of rdma-core and perftest, and the examples.
//!
//! Must never wait without a deadline, and never leave a program running: dropping kills it.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Where the examples are in the guest.
pub const EXAMPLES: &str = "/examples";

/// Where Debian's programs are in the guest.
pub const DEBIAN: &str = "/usr/bin";

/// A program that was started.
#[derive(Debug)]
pub struct Program {
    line: String,
    child: Child,
    output: Arc<Mutex<String>>,
    pumps: Vec<JoinHandle<()>>,
}

/// How a program ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Its command line.
    pub line: String,
    /// Its exit status.
    pub status: ExitStatus,
    /// What it wrote to standard output and standard error.
    pub output: String,
}

impl Ended {
    /// Its output, if it ended well.
    pub fn well(self) -> io::Result<String> {
        if self.status.success() {
            Ok(self.output)
        } else {
            Err(io::Error::other(self.to_string()))
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n{}", self.line, self.status, self.output)
    }
}

impl Program {
    /// Starts a program with the words of a line as its arguments.
    pub fn start(line: &str) -> io::Result<Self> {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        Self::spawn(line, command)
    }

    /// Starts a command that is known under a name.
    pub fn spawn(name: &str, mut command: Command) -> io::Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|e| io::Error::new(e.kind(), format!("starting {name}: {e}")))?;
        let output = Arc::new(Mutex::new(String::new()));
        let pipes: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|pipe| Box::new(pipe) as _),
            child.stderr.take().map(|pipe| Box::new(pipe) as _),
        ];
        let pumps = pipes
            .into_iter()
            .flatten()
            .map(|pipe| {
                let output = Arc::clone(&output);
                thread::spawn(move || pump(pipe, &output))
            })
            .collect();
        Ok(Self {
            line: name.to_owned(),
            child,
            output,
            pumps,
        })
    }

    /// What it has written so far.
    pub fn output(&self) -> String {
        self.output
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits until what it has written satisfies `enough`; fails if it ends before, or in time.
    pub fn wait_until(
        &mut self,
        limit: Duration,
        enough: impl Fn(&str) -> bool,
    ) -> io::Result<String> {
        let deadline = Instant::now() + limit;
        loop {
            let output = self.output();
            if enough(&output) {
                return Ok(output);
            }
            let end = self.child.try_wait()?;
            let late = Instant::now() > deadline;
            if end.is_some() || late {
                let why = end.map_or_else(|| "still runs".to_owned(), |status| status.to_string());
                let text = format!("{}: not seen ({why}):\n{output}", self.line);
                return Err(io::Error::other(text));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until it, or anything, listens at this TCP port; fails if it ends before, or in time.
    pub fn wait_to_listen(&mut self, limit: Duration, port: u16) -> io::Result<()> {
        self.wait_until(limit, |_| listens(port)).map(drop)
    }

    /// Waits for its end; kills it if that does not come in time.
    pub fn end(mut self, limit: Duration) -> io::Result<Ended> {
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                let seconds = limit.as_secs();
                let text = format!(
                    "{}: no end within {seconds} s:\n{}",
                    self.line,
                    self.output()
                );
                return Err(io::Error::other(text));
            }
            thread::sleep(Duration::from_millis(5));
        };
        for pump in self.pumps.drain(..) {
            let _ = pump.join();
        }
        Ok(Ended {
            line: self.line.clone(),
            status,
            output: self.output(),
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether anything listens at this TCP port, by the tables of the kernel.
fn listens(port: u16) -> bool {
    const LISTENS: &str = "0A";
    let end = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let table = fs::read_to_string(table).unwrap_or_default();
        table.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let here = words.next().is_some_and(|here| here.ends_with(&end));
            here && words.nth(1) == Some(LISTENS)
        })
    })
}

fn pump(mut pipe: impl Read, output: &Mutex<String>) {
    let mut buf = [0; 4096];
    while let Ok(n @ 1..) = pipe.read(&mut buf) {
        let text = String::from_utf8_lossy(buf.get(..n).unwrap_or_default());
        let mut all = output.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_str(&text);
    }
}

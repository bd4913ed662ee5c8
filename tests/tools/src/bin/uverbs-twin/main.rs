//! The Rust half of `cargo vm bench`: the same work as its C twin (`tests/vm/peers`), call for call.
//!
//! ```text
//! uverbs-twin                           commands come on standard input, numbers go to standard output
//! uverbs-twin bring-up [DEVICE]         from nothing to RTS, once
//! uverbs-twin counted COMMAND …         one command, its calls marked for the counter
//! ```
//!
//! It must never do anything between two marks, or between two
//! readings of the clock, that its twin does not do.

mod control;
mod ends;
mod events;
mod heap;
mod rows;
mod traffic;

use std::error::Error;
use std::fmt::Display;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use uverbs_tools::{bring_up, count};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The words of one command, its name first.
struct Words<'l>(Vec<&'l str>);

impl<'l> Words<'l> {
    fn at(&self, place: usize) -> &'l str {
        self.0.get(place).copied().unwrap_or_default()
    }

    fn number(&self, place: usize, otherwise: u64) -> Result<u64> {
        match self.at(place) {
            "" => Ok(otherwise),
            word => Ok(word.parse()?),
        }
    }

    fn count(&self, place: usize, otherwise: u64) -> Result<usize> {
        Ok(usize::try_from(self.number(place, otherwise)?)?)
    }
}

/// Answers with one line: a name and numbers.
fn answer<T: Display>(name: &str, numbers: impl IntoIterator<Item = T>) -> Result<()> {
    let mut line = name.to_owned();
    for number in numbers {
        line.push_str(&format!(" {number}"));
    }
    line.push('\n');
    io::stdout().write_all(line.as_bytes())?;
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.first().map(String::as_str) {
        Some("bring-up") => bring_up::bring_up(args.get(1).map_or("rxe0", String::as_str)),
        Some("counted") => counted(&args),
        _ => serve(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stdout(), "! {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<()> {
    let mut bench = Bench::default();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words = Words(line.split_whitespace().collect());
        match words.at(0) {
            "" => continue,
            "latency" => traffic::latency(&mut bench, &words)?,
            "rate" | "singly" | "held" => traffic::rate(&mut bench, &words)?,
            "make" => control::make(&mut bench, &words, false)?,
            "many" => control::many(&mut bench, &words)?,
            "events" => events::run(&mut bench, &words, false)?,
            "heap" => heap::run(&mut bench, &words)?,
            other => return Err(format!("there is no command {other}").into()),
        }
        let mut out = io::stdout().lock();
        out.write_all(b".\n")?;
        out.flush()?;
    }
    Ok(())
}

/// One command under the counter; the first region is empty.
fn counted(args: &[String]) -> Result<()> {
    let mut bench = Bench::default();
    let words = Words(args.iter().skip(1).map(String::as_str).collect());
    bench.ends()?;
    count::trace_me()?;
    count::mark();
    count::mark();
    match words.at(0) {
        "count" => rows::run(&mut bench, &words),
        "events" => events::run(&mut bench, &words, true),
        "make" => control::make(&mut bench, &words, true),
        other => Err(format!("{other} cannot be counted").into()),
    }
}

/// What commands share, made when it is first asked for.
#[derive(Default)]
struct Bench {
    ends: Option<ends::Ends>,
    told: Option<ends::Ends>,
    live: Vec<uverbs::SharedReceiveQueue>,
}

impl Bench {
    fn ends(&mut self) -> Result<ends::Ends> {
        if self.ends.is_none() {
            self.ends = Some(ends::Ends::connected(false)?);
        }
        self.ends
            .clone()
            .ok_or_else(|| "the ends are not there".into())
    }

    /// As [`ends`](Self::ends), others, with completion channels.
    fn told(&mut self) -> Result<ends::Ends> {
        if self.told.is_none() {
            self.told = Some(ends::Ends::connected(true)?);
        }
        self.told
            .clone()
            .ok_or_else(|| "the ends are not there".into())
    }
}

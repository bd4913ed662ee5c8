//! What the tool itself says, always on standard error: the program's own output has the other one.
//!
//! Must never print from more than one place at once, and never leave a step of more than a second
//! without a word.

use std::fmt;
use std::io::{self, Write};
use std::time::Instant;

/// An error of the host's side: a sentence, with the next step where one is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem(String);

impl Problem {
    /// Makes one from a sentence.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Problem {}

impl From<String> for Problem {
    fn from(s: String) -> Self {
        Self(s)
    }
}

/// Adds to an error what was being done.
pub trait Doing<T> {
    /// `what` comes before the error: "reading /x".
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Problem>;
}

impl<T, E: fmt::Display> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Problem> {
        self.map_err(|e| Problem(format!("{}: {e}", what())))
    }
}

/// Says one line.
pub fn say(line: impl fmt::Display) {
    // With standard error closed there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "vm: {line}");
}

/// A step that is announced when it starts, and its time told when it ends.
#[derive(Debug)]
pub struct Step {
    what: String,
    start: Instant,
}

impl Step {
    /// Announces a step.
    pub fn start(what: impl Into<String>) -> Self {
        let what = what.into();
        say(format_args!("{what} …"));
        Self {
            what,
            start: Instant::now(),
        }
    }

    /// Tells how long it took, if that was worth telling.
    pub fn done(self) {
        let took = self.start.elapsed();
        if took.as_millis() >= 1000 {
            say(format_args!(
                "{}: done in {:.1} s",
                self.what,
                took.as_secs_f32()
            ));
        }
    }
}

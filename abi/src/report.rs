//! The long form of an error, and what all errors have in common.
//!
//! An error's own text is its short form: one line, lower case, no full stop. The long form is that
//! line and below it what was found when the operation failed, what usually causes it and what to do
//! next, one thing a line.
//!
//! Must never fail, and never leave the error number out.

use std::fmt;

use crate::Errno;

/// What every error of these crates can say beside its text.
///
/// ```
/// use uverbs_abi::{CommandError, Errno, Explain};
///
/// let error = CommandError::refused("REG_MR", Errno::ENOMEM);
/// assert_eq!(error.raw_os_error(), Some(12));
/// eprintln!("{}", error.report()); // several lines
/// ```
pub trait Explain: std::error::Error {
    /// The kernel's error number, where it was the kernel that refused.
    fn errno(&self) -> Option<Errno>;

    /// Adds to the long form what the short one leaves out.
    fn explain(&self, report: &mut Report) {
        let _ = report;
    }

    /// [`errno`](Self::errno) as a plain number, as [`std::io::Error::raw_os_error`] has it.
    fn raw_os_error(&self) -> Option<i32> {
        self.errno().map(Errno::raw)
    }

    /// The long form: what was found, the usual causes in order of likelihood, the next step.
    fn report(&self) -> Report {
        let mut report = Report::new(self.to_string());
        self.explain(&mut report);
        report
    }
}

/// One line of a [`Report`] below the first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// What something means.
    Meaning(String),
    /// What was looked up when the operation failed.
    Found(String),
    /// A usual cause; the likeliest comes first.
    Cause(String),
    /// What to do next.
    Next(String),
}

/// The long form of an error. Prints as several lines, without a line break at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    head: String,
    notes: Vec<Note>,
}

impl Report {
    /// A report that says no more than the short form.
    #[must_use]
    pub fn new(head: impl Into<String>) -> Self {
        Self {
            head: head.into(),
            notes: Vec::new(),
        }
    }

    /// The short form.
    #[must_use]
    pub fn head(&self) -> &str {
        &self.head
    }

    /// The lines below it, in order.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Says what something means.
    pub fn meaning(&mut self, text: impl Into<String>) -> &mut Self {
        self.push(Note::Meaning(text.into()))
    }

    /// Says what was looked up.
    pub fn found(&mut self, text: impl Into<String>) -> &mut Self {
        self.push(Note::Found(text.into()))
    }

    /// Names a usual cause, less likely than those named before.
    pub fn cause(&mut self, text: impl Into<String>) -> &mut Self {
        self.push(Note::Cause(text.into()))
    }

    /// Names a next step.
    pub fn next(&mut self, text: impl Into<String>) -> &mut Self {
        self.push(Note::Next(text.into()))
    }

    /// What is said twice is said once.
    fn push(&mut self, note: Note) -> &mut Self {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.head)?;
        for note in &self.notes {
            let (label, text) = match note {
                Note::Meaning(text) => ("means", text),
                Note::Found(text) => ("found", text),
                Note::Cause(text) => ("cause", text),
                Note::Next(text) => ("next", text),
            };
            write!(f, "\n  {label}: {text}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_its_head_and_a_line_for_each_note() {
        let mut report = Report::new("it failed");
        report.meaning("badly").found("a thing").cause("rain");
        report.next("wait").next("wait");
        assert_eq!(
            report.to_string(),
            "it failed\n  means: badly\n  found: a thing\n  cause: rain\n  next: wait"
        );
        assert_eq!((report.head(), report.notes().len()), ("it failed", 4));
    }
}

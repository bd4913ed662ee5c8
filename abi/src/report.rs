//! The long form of an error, and what all errors have in common.
//!
//! An error's own text is its short form: one line, lower case, no full stop. The long form is that
//! line and below it what was found when the operation failed, what usually causes it and what to do
//! next, one thing a line.
//!
//! Must never fail, and never leave the error number out.

use std::error::Error;
use std::fmt;
use std::io;

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
pub trait Explain: Error {
    /// The kernel's error number, where it was the kernel that refused.
    fn errno(&self) -> Option<Errno>;

    /// Adds to the long form what the short one leaves out.
    fn explain(&self, report: &mut Report) {
        let _ = report;
    }

    /// Of which kind it is as a [`std::io::Error`], which every error of these crates becomes with `?`:
    /// by default that of the kernel's number, and `InvalidInput` where the kernel was not asked.
    fn kind(&self) -> io::ErrorKind {
        match self.errno() {
            Some(errno) => errno.kind(),
            None => io::ErrorKind::InvalidInput,
        }
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

impl Note {
    /// Where its kind stands in a report.
    const fn rank(&self) -> u8 {
        match self {
            Self::Meaning(_) => 0,
            Self::Found(_) => 1,
            Self::Cause(_) => 2,
            Self::Next(_) => 3,
        }
    }
}

/// The long form of an error. Prints as several lines, without a line break at the end.
///
/// Every error that can [`Explain`] itself becomes one with `?`, and it prints the same with `{:?}`:
/// what a program's `main` needs in order to end with it.
///
/// ```
/// use uverbs_abi::{CommandError, Errno, Report};
///
/// fn work() -> Result<(), Report> {
///     Err(CommandError::refused("REG_DMABUF_MR", Errno::EOPNOTSUPP))?;
///     Ok(())
/// }
///
/// fn main() -> Result<(), Report> {
///     // work()?; would end in exit status 1, with on stderr:
///     // Error: REG_DMABUF_MR is not supported by this kernel or device (EOPNOTSUPP: …); …
///     //   found: this machine runs Linux 6.1.0-40-amd64
///     //   cause: the kernel is older than the command
///     //   cause: the device's driver does not have the command
///     assert!(format!("{:?}", work().unwrap_err()).contains("\n  cause: the kernel is older"));
///     Ok(())
/// }
/// ```
#[derive(Clone, PartialEq, Eq)]
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

    /// What is said twice is said once; so is what the short form has found already.
    fn push(&mut self, note: Note) -> &mut Self {
        let told = matches!(&note, Note::Found(text) if self.head.contains(text.as_str()));
        if !told && !self.notes.contains(&note) {
            // What is told later is put where a reader looks for it.
            let at = self
                .notes
                .iter()
                .rposition(|other| other.rank() <= note.rank());
            self.notes.insert(at.map_or(0, |at| at + 1), note);
        }
        self
    }
}

/// As [`Display`](fmt::Display), since it is what `main` prints.
impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<E: Explain> From<E> for Report {
    fn from(error: E) -> Self {
        error.report()
    }
}

impl From<String> for Report {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&str> for Report {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

/// For whatever else a `main` runs into. With what is inside, if it is an error of its own.
impl From<Box<dyn Error + Send + Sync>> for Report {
    fn from(error: Box<dyn Error + Send + Sync>) -> Self {
        chain(&*error)
    }
}

/// As above.
impl From<Box<dyn Error>> for Report {
    fn from(error: Box<dyn Error>) -> Self {
        chain(&*error)
    }
}

/// An error of somebody else's, with what it says of its sources.
fn chain(error: &(dyn Error + 'static)) -> Report {
    let mut report = Report::new(error.to_string());
    sources(error, &mut report);
    report
}

fn sources(error: &(dyn Error + 'static), report: &mut Report) {
    let mut next = error.source();
    while let Some(source) = next {
        let text = source.to_string();
        if !report.head.contains(&text) {
            report.cause(text);
        }
        next = source.source();
    }
}

impl Explain for io::Error {
    /// Its own number, or that of the error of these crates that it was made of.
    fn errno(&self) -> Option<Errno> {
        Errno::of(self)
    }

    fn explain(&self, report: &mut Report) {
        sources(self, report);
    }

    fn kind(&self) -> io::ErrorKind {
        Self::kind(self)
    }
}

macro_rules! explain_std {
    ($($error:ty)+) => {$(
        /// So that a `main` can use `?` on it as well.
        impl Explain for $error {
            fn errno(&self) -> Option<Errno> {
                None
            }
        }
    )+};
}

explain_std! {
    std::net::AddrParseError
    std::num::ParseIntError
    std::num::TryFromIntError
    std::str::Utf8Error
    std::string::FromUtf8Error
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
    use crate::CommandError;

    #[test]
    fn a_report_is_its_head_and_a_line_for_each_note() {
        let mut report = Report::new("it failed");
        report.meaning("badly").found("a thing").cause("rain");
        report.next("wait").next("wait").found("it failed");
        assert_eq!(
            report.to_string(),
            "it failed\n  means: badly\n  found: a thing\n  cause: rain\n  next: wait"
        );
        assert_eq!((report.head(), report.notes().len()), ("it failed", 4));
        assert_eq!(format!("{report:?}"), report.to_string());
    }

    /// What `main` meets: errors of these crates, of the standard library, of others, and plain words.
    #[test]
    fn whatever_a_main_meets_becomes_a_report() {
        fn of(error: impl Into<Report>) -> String {
            error.into().to_string()
        }
        let refused = CommandError::refused("REG_MR", Errno::EPERM);
        let short = "REG_MR failed (EPERM: operation not permitted)";
        let long = of(refused);
        assert!(
            long.starts_with(&format!("{short}\n  next: look at")),
            "{long}"
        );
        assert_eq!(of(io::Error::from(refused)), short);
        assert_eq!(of("usage: mine DEVICE"), "usage: mine DEVICE");
        assert_eq!(of("a".to_owned() + "b"), "ab");
        let not_a_number = "x".parse::<u32>().err().map(of);
        assert_eq!(
            not_a_number.as_deref(),
            Some("invalid digit found in string")
        );
        #[derive(Debug)]
        struct Theirs(CommandError);
        impl fmt::Display for Theirs {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("their own words")
            }
        }
        impl Error for Theirs {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }
        let boxed: Box<dyn Error> = Box::new(Theirs(refused));
        assert_eq!(Errno::of(&*boxed), Some(Errno::EPERM));
        assert_eq!(of(boxed), format!("their own words\n  cause: {short}"));
        let boxed: Box<dyn Error + Send + Sync> = Box::new(Theirs(refused));
        assert_eq!(of(boxed), format!("their own words\n  cause: {short}"));
    }
}

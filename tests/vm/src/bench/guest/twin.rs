//! A twin that runs: says a command to it and reads its answer.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::Failure;
use crate::bench::{C_TWIN, RUST_TWIN};

/// Numbers by their name.
pub(super) type Answer = BTreeMap<String, Vec<u64>>;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    C,
    Rust,
}

impl Side {
    pub(super) const BOTH: [Self; 2] = [Self::C, Self::Rust];

    /// Its program.
    pub(super) const fn program(self) -> &'static str {
        match self {
            Self::C => C_TWIN,
            Self::Rust => RUST_TWIN,
        }
    }

    /// Its name in messages.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::C => "C",
            Self::Rust => "Rust",
        }
    }
}

/// A twin that waits for commands. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Twin {
    side: Side,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Twin {
    pub(super) fn start(side: Side) -> Result<Self, Failure> {
        let mut child = Command::new(side.program())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{}: {e}", side.program()))?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("the twin has no output")?;
        Ok(Self {
            side,
            child,
            input,
            output: BufReader::new(output),
        })
    }

    pub(super) const fn side(&self) -> Side {
        self.side
    }

    /// The process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Says a command and waits for its answer.
    pub(super) fn ask(&mut self, command: &str) -> Result<Answer, Failure> {
        let input = self.input.as_mut().ok_or("the twin has no input")?;
        writeln!(input, "{command}")?;
        input.flush()?;
        let mut answer = Answer::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                let status = self.child.wait()?;
                return Err(format!("{}: {command}: it ended: {status}", self.side.name()).into());
            }
            if line.trim_end() == "." {
                return Ok(answer);
            }
            let (name, numbers) =
                parse(&line).map_err(|why| format!("{}: {command}: {why}", self.side.name()))?;
            answer.insert(name, numbers);
        }
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        // At the end of its input it ends by itself, and destroys what it made.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// Takes a line of an answer apart; an error that the twin tells is one here.
pub(super) fn parse(line: &str) -> Result<(String, Vec<u64>), String> {
    let line = line.trim();
    if let Some(why) = line.strip_prefix('!') {
        return Err(why.trim().to_owned());
    }
    let mut words = line.split_whitespace();
    let name = words.next().ok_or("an empty line")?.to_owned();
    let numbers: Result<Vec<u64>, _> = words.map(str::parse).collect();
    match numbers {
        Ok(numbers) => Ok((name, numbers)),
        Err(e) => Err(format!("{line:?}: {e}")),
    }
}

/// The numbers of this name.
pub(super) fn numbers(answer: &Answer, name: &str) -> Result<Vec<u64>, Failure> {
    answer
        .get(name)
        .filter(|n| !n.is_empty())
        .cloned()
        .ok_or_else(|| format!("the twin's answer has no {name}").into())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lines_of_an_answer() {
        assert_eq!(parse("ns 1 2 3\n"), Ok(("ns".to_owned(), vec![1, 2, 3])));
        assert_eq!(parse("got"), Ok(("got".to_owned(), vec![])));
        assert_eq!(
            parse("! no such device\n"),
            Err("no such device".to_owned())
        );
        assert!(parse("ns 1 -2").is_err());
        assert!(parse("\n").is_err());
    }
}

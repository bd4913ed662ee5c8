//! The C side: which names the headers have, what a structure's body has in it, and the compiler's
//! answers.
//!
//! Must never let the system's own headers in: the compiler is called with `-nostdinc`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::source::Version;

/// The headers that are looked through, where they exist.
const HEADERS: [&str; 9] = [
    "linux/netlink.h",
    "linux/in.h",
    "linux/in6.h",
    "rdma/ib_user_verbs.h",
    "rdma/ib_user_ioctl_verbs.h",
    "rdma/rdma_user_ioctl_cmds.h",
    "rdma/ib_user_ioctl_cmds.h",
    "rdma/rdma_user_rxe.h",
    "rdma/rdma_netlink.h",
];

/// A member of a structure or of a union, as C declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its name; none for an anonymous structure or union.
    pub(crate) name: Option<String>,
    /// An array with no length: it takes no room.
    pub(crate) flexible: bool,
    /// What is in it, if that is declared in place.
    pub(crate) body: Option<Vec<Self>>,
}

/// Names that a C text declares, each with the header it is in first.
#[derive(Debug, Default)]
pub(crate) struct Names {
    words: BTreeMap<String, String>,
    bodies: BTreeMap<String, (String, Result<Vec<Member>, String>)>,
}

impl Names {
    /// The header that has a name.
    pub(crate) fn header_of(&self, name: &str) -> Option<&str> {
        self.words.get(name).map(String::as_str)
    }

    /// The header and the body of a structure, if the headers have it.
    pub(crate) fn structure(&self, name: &str) -> Result<Option<(&str, &[Member])>, String> {
        match self.bodies.get(name) {
            None => Ok(None),
            Some((header, Ok(body))) => Ok(Some((header, body))),
            Some((header, Err(e))) => Err(format!("struct {name} in {header}: {e}")),
        }
    }

    /// How many structures there are.
    pub(crate) fn structures(&self) -> usize {
        self.bodies.len()
    }

    /// Reads what the preprocessor leaves (with `-dD`: the definitions of macros as well).
    pub(crate) fn read(text: &str) -> Self {
        let mut names = Self::default();
        // Each token with the number of its header.
        let (mut all, mut headers) = (Vec::new(), vec![String::new()]);
        for line in text.lines() {
            if let Some(directive) = line.trim_start().strip_prefix('#') {
                if let Some(macro_) = directive.trim_start().strip_prefix("define") {
                    if let Some(name) = tokens(macro_).first() {
                        let header = headers.last().cloned().unwrap_or_default();
                        names.words.entry(name.clone()).or_insert(header);
                    }
                } else if let Some(path) = directive.split('"').nth(1) {
                    headers.push(short(path));
                }
                continue;
            }
            let at = headers.len() - 1;
            all.extend(tokens(line).into_iter().map(|t| (t, at)));
        }
        let header = |at: usize| headers.get(at).cloned().unwrap_or_default();
        let words: Vec<&str> = all.iter().map(|(t, _)| t.as_str()).collect();
        for (i, (token, at)) in all.iter().enumerate() {
            if !is_word(token) {
                continue;
            }
            names
                .words
                .entry(token.clone())
                .or_insert_with(|| header(*at));
            let (Some(tag), Some(&"{")) = (words.get(i + 1), words.get(i + 2)) else {
                continue;
            };
            if token == "struct" && is_word(tag) {
                let inside = words.get(i + 3..).unwrap_or_default();
                // Most of the structures are not asked for, and may be as odd as they like.
                let body = members(inside);
                names.bodies.insert((*tag).to_owned(), (header(*at), body));
            }
        }
        names
    }
}

/// `rdma/ib_user_verbs.h` of a path to it.
fn short(path: &str) -> String {
    let at = path.rfind("usr/include/").map(|at| at + 12);
    at.and_then(|at| path.get(at..)).unwrap_or(path).to_owned()
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

fn tokens(text: &str) -> Vec<String> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut all = Vec::new();
    let mut word = String::new();
    for c in text.chars().chain([' ']) {
        if part(c) {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            all.push(std::mem::take(&mut word));
        }
        if !c.is_whitespace() {
            all.push(c.to_string());
        }
    }
    all
}

/// Reads the members up to the bracket that closes the body.
pub(crate) fn members(tokens: &[&str]) -> Result<Vec<Member>, String> {
    let mut all = Vec::new();
    let mut rest = tokens;
    loop {
        match rest.first() {
            None => return Err("the body has no end".to_owned()),
            Some(&"}") => return Ok(all),
            Some(&";") => rest = rest.get(1..).unwrap_or_default(),
            Some(_) => {
                let end = end_of(rest, ";").ok_or("a member has no end")?;
                let (declaration, tail) = rest.split_at(end);
                all.extend(member(declaration)?);
                rest = tail;
            }
        }
    }
}

/// Where a token is that lies in no bracket.
fn end_of(tokens: &[&str], end: &str) -> Option<usize> {
    let mut depth = 0_i32;
    for (i, token) in tokens.iter().enumerate() {
        if depth == 0 && *token == end {
            return Some(i);
        }
        match *token {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Reads one declaration, which may name several members or none.
fn member(declaration: &[&str]) -> Result<Vec<Member>, String> {
    let mut plain = Vec::new();
    let mut rest = declaration;
    while let Some(token) = rest.first() {
        rest = rest.get(1..).unwrap_or_default();
        match *token {
            "__extension__" | "const" | "volatile" => {}
            "__attribute__" => {
                let end = end_of(rest.get(1..).unwrap_or_default(), ")");
                rest = rest
                    .get(end.ok_or("an attribute has no end")? + 2..)
                    .unwrap_or_default();
            }
            token => plain.push(token),
        }
    }
    let said = plain.join(" ");
    let mut body = None;
    let mut names: &[&str] = &plain;
    if let Some(open) = plain.iter().position(|t| *t == "{") {
        if !matches!(plain.first(), Some(&"struct" | &"union")) || open > 2 {
            return Err(format!("not understood: {said}"));
        }
        let inside = plain.get(open + 1..).unwrap_or_default();
        let close = end_of(inside, "}").ok_or("a body has no end")?;
        body = Some(members(inside.get(..=close).unwrap_or_default())?);
        names = inside.get(close + 1..).unwrap_or_default();
        if names.is_empty() {
            return Ok(vec![Member {
                name: None,
                flexible: false,
                body,
            }]);
        }
    }
    names
        .split(|t| *t == ",")
        .map(|one| {
            let array = one.iter().position(|t| *t == "[").unwrap_or(one.len());
            let (before, length) = one.split_at(array);
            let name = before.last().filter(|t| is_word(t));
            let odd = |t: &&str| !is_word(t) && *t != "*";
            match name {
                Some(name) if !before.iter().any(odd) => Ok(Member {
                    name: Some((*name).to_owned()),
                    flexible: length == ["[", "]"] || length == ["[", "0", "]"],
                    body: body.clone(),
                }),
                _ => Err(format!("not understood: {said}")),
            }
        })
        .collect()
}

/// A C compiler with a folder of headers.
#[derive(Debug)]
pub(crate) struct Compiler {
    program: PathBuf,
    includes: Vec<PathBuf>,
    text: String,
    /// The version that the headers say they are of.
    pub(crate) version: Version,
}

/// Whether there is a C compiler.
pub(crate) fn find() -> Option<PathBuf> {
    let run = Command::new("cc")
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    run.is_ok_and(|o| o.status.success()).then(|| "cc".into())
}

impl Compiler {
    /// `folder` is that which has `usr/include` in it.
    pub(crate) fn new(program: PathBuf, folder: &Path) -> Result<Self, String> {
        let include = folder.join("usr/include");
        let mut text = String::new();
        for header in HEADERS.iter().filter(|h| include.join(h).is_file()) {
            let _ = writeln!(text, "#include <{header}>");
        }
        let version = fs::read_to_string(include.join("linux/version.h"))
            .ok()
            .and_then(|t| version(&t))
            .ok_or_else(|| format!("{}/linux/version.h tells no version", include.display()))?;
        let mut includes = vec![include.clone()];
        includes.extend(machine_folder(&program, &include)?);
        Ok(Self {
            program,
            includes,
            text,
            version,
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["-nostdinc", "-std=gnu11", "-w", "-x", "c"]);
        for folder in &self.includes {
            command.arg("-isystem").arg(folder);
        }
        command.stdin(Stdio::null());
        command
    }

    /// What the headers declare.
    pub(crate) fn names(&self, work: &Path) -> Result<Names, String> {
        let file = work.join("names.c");
        fs::write(&file, &self.text).map_err(|e| format!("writing {}: {e}", file.display()))?;
        let mut command = self.command();
        let text = run(command.args(["-E", "-dD"]).arg(&file), "the headers")?;
        Ok(Names::read(&text))
    }

    /// What each expression is, and whether it is negative: the program is compiled and run.
    pub(crate) fn ask(&self, work: &Path, questions: &[String]) -> Result<Vec<u64>, String> {
        let mut text = self.text.clone();
        // No header of the C library is asked for, nor would there be one.
        text.push_str(
            "int printf(const char *, ...);\nstatic const unsigned long long all[] = {\n",
        );
        for question in questions {
            let _ = writeln!(text, "(unsigned long long)({question}),");
        }
        text.push_str(
            "};\nint main(void) {\n\
             for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) printf(\"%llu\\n\", all[i]);\n\
             return 0;\n}\n",
        );
        let (file, program) = (work.join("probe.c"), work.join("probe"));
        fs::write(&file, text).map_err(|e| format!("writing {}: {e}", file.display()))?;
        let mut command = self.command();
        run(command.arg(&file).arg("-o").arg(&program), "the probe")?;
        let said = run(&mut Command::new(&program), "the probe's program")?;
        let answers: Vec<u64> = said.lines().filter_map(|l| l.parse().ok()).collect();
        if answers.len() == questions.len() {
            return Ok(answers);
        }
        Err(format!(
            "{} answers to {} questions",
            answers.len(),
            questions.len()
        ))
    }
}

fn run(command: &mut Command, what: &str) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|e| format!("{what}: starting {}: {e}", command.get_program().display()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().take(40).collect();
    Err(format!("{what}: {}\n{}", output.status, lines.join("\n")))
}

/// The folder that has `asm` in it: `usr/include` itself, or one for a kind of machine.
fn machine_folder(program: &Path, include: &Path) -> Result<Option<PathBuf>, String> {
    let has_asm = |folder: &Path| folder.join("asm/types.h").is_file();
    if has_asm(include) {
        return Ok(None);
    }
    let machine = run(Command::new(program).arg("-dumpmachine"), "the compiler")?;
    // Some compilers have the vendor in it: x86_64-pc-linux-gnu.
    let machine = machine.trim();
    let mut parts = machine.split('-');
    let first = parts.next().unwrap_or_default();
    let last = parts.rev().take(2).collect::<Vec<_>>();
    let short = match last.as_slice() {
        [end, os] => format!("{first}-{os}-{end}"),
        _ => machine.to_owned(),
    };
    for name in [machine, &short, "x86_64-linux-gnu"] {
        let folder = include.join(name);
        if has_asm(&folder) {
            return Ok(Some(folder));
        }
    }
    Err(format!("{} has no asm/types.h", include.display()))
}

/// The version in `linux/version.h`.
pub(crate) fn version(text: &str) -> Option<Version> {
    let code = text
        .lines()
        .find_map(|l| l.strip_prefix("#define LINUX_VERSION_CODE"))?;
    let code: u32 = code.trim().parse().ok()?;
    Some((code >> 16, (code >> 8) & 0xFF))
}

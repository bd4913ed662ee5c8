//! Reads the layout files as text: the structures' tables, the numbers, and since when they are.
//!
//! Text, since the names must be known to ask C about them. The offsets and sizes read here are
//! those that the compiler has checked. Whatever is not understood is an error: must never leave
//! an item out in silence.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::value::literal;

/// A kernel's version: major, minor.
pub(crate) type Version = (u32, u32);

/// A piece of Rust, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// Text of a `///` line.
    Doc(String),
    /// A name; `r#` is taken off.
    Word(String),
    /// A number, as it is written.
    Number(String),
    /// One character.
    Mark(char),
    /// A string, a character or a lifetime: nothing here needs them.
    Other,
}

/// A `kernel_struct!` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Struct {
    /// Its name.
    pub(crate) name: String,
    /// Its size.
    pub(crate) size: u64,
    /// Its alignment.
    pub(crate) align: u64,
    /// What the comment says.
    pub(crate) since: Option<Version>,
    /// Its fields, in order.
    pub(crate) fields: Vec<Field>,
}

/// One line of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its name.
    pub(crate) name: String,
    /// Where it lies.
    pub(crate) offset: u64,
    /// Its type.
    pub(crate) ty: Type,
    /// What the comment says, of the field or of the whole.
    pub(crate) since: Option<Version>,
}

/// The type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    /// A number or another structure, by name.
    Named(String),
    /// An array.
    Array(Box<Self>, Vec<Token>),
}

/// A `pub const`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Const {
    /// File, under the folder of the layouts, and the modules in it: `ids/mod`, `method`, `qp`.
    pub(crate) path: Vec<String>,
    /// Its name.
    pub(crate) name: String,
    /// First word of its type: `u32`, `Attr`.
    pub(crate) ty: String,
    /// What it is equal to; for `Attr::new(…)` what is in the brackets.
    pub(crate) value: Vec<Token>,
    /// What the comment says, of the number or of a module around it.
    pub(crate) since: Option<Version>,
}

/// All that the layout files declare.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// The structures.
    pub(crate) structs: Vec<Struct>,
    /// The numbers.
    pub(crate) consts: Vec<Const>,
    /// Names of the drivers, with what their comments say.
    pub(crate) drivers: BTreeMap<String, Option<Version>>,
}

/// Reads every file under a folder.
pub(crate) fn read(folder: &Path) -> Result<Source, String> {
    let mut source = Source::default();
    visit(folder, folder, &mut source)?;
    Ok(source)
}

fn visit(root: &Path, folder: &Path, source: &mut Source) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("reading {}: {e}", folder.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    for path in paths {
        if path.is_dir() {
            visit(root, &path, source)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let inner = path.strip_prefix(root).unwrap_or(&path).with_extension("");
            let name = inner.display().to_string();
            parse(&name, &text, source).map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    Ok(())
}

/// Cuts a text into tokens.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("//") {
            let end = after.find('\n').unwrap_or(after.len());
            let (line, tail) = after.split_at(end);
            // Four slashes are no documentation.
            if let Some(doc) = line.strip_prefix('/').filter(|d| !d.starts_with('/')) {
                all.push(Token::Doc(doc.trim().to_owned()));
            }
            rest = tail;
        } else if rest.starts_with("/*") {
            rest = after_block(rest)?;
        } else if let Some(after) = raw_string(rest)? {
            all.push(Token::Other);
            rest = after;
        } else if let Some(after) = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('"') {
            all.push(Token::Other);
            rest = after_quote(after, '"')?;
        } else if c == '\'' || rest.starts_with("b'") {
            all.push(Token::Other);
            rest = after_tick(rest.trim_start_matches('b'))?;
        } else if c.is_ascii_digit() {
            let end = rest
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            let (number, tail) = rest.split_at(end);
            all.push(Token::Number(number.to_owned()));
            rest = tail;
        } else if c.is_alphabetic() || c == '_' {
            let from = rest.strip_prefix("r#").unwrap_or(rest);
            let end = from
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(from.len());
            let (word, tail) = from.split_at(end);
            all.push(Token::Word(word.to_owned()));
            rest = tail;
        } else {
            if !c.is_whitespace() {
                all.push(Token::Mark(c));
            }
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
    }
    Ok(all)
}

fn after_block(text: &str) -> Result<&str, String> {
    let mut depth = 0_u32;
    let mut rest = text;
    loop {
        if let Some(after) = rest.strip_prefix("/*") {
            (depth, rest) = (depth + 1, after);
        } else if let Some(after) = rest.strip_prefix("*/") {
            (depth, rest) = (depth - 1, after);
            if depth == 0 {
                return Ok(rest);
            }
        } else {
            let mut chars = rest.chars();
            chars.next().ok_or("a comment has no end")?;
            rest = chars.as_str();
        }
    }
}

/// What follows a string `r"…"` or `r#"…"#`; none if there is no such string.
fn raw_string(text: &str) -> Result<Option<&str>, String> {
    let Some(after) = text.strip_prefix('b').unwrap_or(text).strip_prefix('r') else {
        return Ok(None);
    };
    let inner = after.trim_start_matches('#');
    let hashes = after.len() - inner.len();
    let Some(inner) = inner.strip_prefix('"') else {
        return Ok(None);
    };
    let end = format!("\"{}", "#".repeat(hashes));
    inner
        .split_once(&end)
        .map(|(_, after)| Some(after))
        .ok_or_else(|| "a string has no end".to_owned())
}

fn after_quote(text: &str, quote: char) -> Result<&str, String> {
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote {
            return Ok(chars.as_str());
        }
    }
    Err("a string has no end".to_owned())
}

/// What follows a character or a lifetime.
fn after_tick(text: &str) -> Result<&str, String> {
    let after = text.strip_prefix('\'').unwrap_or(text);
    let mut chars = after.chars();
    let first = chars.next();
    if first == Some('\\') || chars.next() == Some('\'') {
        return after_quote(after, '\'');
    }
    Ok(after.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_'))
}

/// The version of "Since 6.12." in a comment.
pub(crate) fn since(doc: &str) -> Option<Version> {
    doc.match_indices("Since ").find_map(|(at, found)| {
        let word = doc.get(at + found.len()..)?.split_whitespace().next()?;
        let (major, minor) = word.strip_suffix('.')?.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    })
}

/// Reads one file.
pub(crate) fn parse(file: &str, text: &str, source: &mut Source) -> Result<(), String> {
    let all = tokens(text)?;
    let before = (source.structs.len(), source.consts.len());
    let mut reader = Reader { all: &all, at: 0 };
    let path = [file.to_owned()];
    module(&mut reader, &path, None, source)?;
    if reader.peek(0).is_some() {
        return Err("a bracket too many".to_owned());
    }
    // Counted again in another way, so that nothing is left out in silence.
    let starts = |what: &[&str]| {
        text.lines()
            .map(str::trim_start)
            .filter(|l| what.iter().any(|w| l.starts_with(w)))
            .count()
    };
    let structs = starts(&["kernel_struct! {", "kernel_struct!{"]);
    let consts = starts(&["pub const "]) - starts(&["pub const fn "]);
    let found = (
        source.structs.len() - before.0,
        source.consts.len() - before.1,
    );
    if found != (structs, consts) {
        return Err(format!(
            "{} structures and {} numbers were read, and there are {structs} and {consts}",
            found.0, found.1
        ));
    }
    Ok(())
}

pub(crate) struct Reader<'a> {
    pub(crate) all: &'a [Token],
    pub(crate) at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn peek(&self, ahead: usize) -> Option<&'a Token> {
        self.all.get(self.at + ahead)
    }

    pub(crate) fn next(&mut self) -> Result<&'a Token, String> {
        let token = self.peek(0).ok_or("the text ends too early")?;
        self.at += 1;
        Ok(token)
    }

    pub(crate) fn is_word(&self, ahead: usize, word: &str) -> bool {
        matches!(self.peek(ahead), Some(Token::Word(w)) if w == word)
    }

    pub(crate) fn is_mark(&self, ahead: usize, mark: char) -> bool {
        self.peek(ahead) == Some(&Token::Mark(mark))
    }

    pub(crate) fn take_mark(&mut self, mark: char) -> bool {
        let there = self.is_mark(0, mark);
        self.at += usize::from(there);
        there
    }

    pub(crate) fn take_word(&mut self, word: &str) -> bool {
        let there = self.is_word(0, word);
        self.at += usize::from(there);
        there
    }

    pub(crate) fn mark(&mut self, mark: char) -> Result<(), String> {
        match self.next()? {
            Token::Mark(m) if *m == mark => Ok(()),
            other => Err(format!("{mark} was expected, not {other:?}")),
        }
    }

    pub(crate) fn word(&mut self) -> Result<String, String> {
        match self.next()? {
            Token::Word(w) => Ok(w.clone()),
            other => Err(format!("a name was expected, not {other:?}")),
        }
    }

    pub(crate) fn this_word(&mut self, word: &str) -> Result<(), String> {
        let found = self.word()?;
        if found == word {
            return Ok(());
        }
        Err(format!("{word} was expected, not {found}"))
    }

    pub(crate) fn number(&mut self) -> Result<u64, String> {
        match self.next()? {
            Token::Number(n) => u64::try_from(literal(n)?).map_err(|e| e.to_string()),
            other => Err(format!("a number was expected, not {other:?}")),
        }
    }

    /// Leaves out what is between brackets, the opening one being next.
    pub(crate) fn skip_brackets(&mut self) -> Result<(), String> {
        let mut depth = 0_u32;
        loop {
            match self.next()? {
                Token::Mark('(' | '[' | '{') => depth += 1,
                Token::Mark(')' | ']' | '}') => {
                    depth = depth.checked_sub(1).ok_or("a bracket too many")?;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
    }

    /// Documentation and attributes before an item.
    pub(crate) fn docs(&mut self) -> Result<String, String> {
        let mut text = String::new();
        loop {
            match self.peek(0) {
                Some(Token::Doc(line)) => {
                    text.push_str(line);
                    text.push('\n');
                    self.at += 1;
                }
                Some(Token::Mark('#')) => {
                    self.at += 1;
                    self.take_mark('!');
                    self.skip_brackets()?;
                }
                _ => return Ok(text),
            }
        }
    }

    /// `pub`, `pub(crate)`, or nothing.
    pub(crate) fn visibility(&mut self) -> Result<bool, String> {
        if !self.take_word("pub") {
            return Ok(false);
        }
        if self.is_mark(0, '(') {
            self.skip_brackets()?;
        }
        Ok(true)
    }
}

/// The items of a module, up to its closing bracket or the end of the text.
fn module(
    reader: &mut Reader<'_>,
    path: &[String],
    around: Option<Version>,
    source: &mut Source,
) -> Result<(), String> {
    while reader.peek(0).is_some() && !reader.is_mark(0, '}') {
        let doc = reader.docs()?;
        let since = since(&doc).or(around);
        let public = reader.visibility()?;
        if reader.is_word(0, "kernel_struct") && reader.is_mark(1, '!') {
            reader.at += 2;
            structure(reader, around, source)?;
        } else if reader.is_word(0, "mod") && reader.is_mark(2, '{') {
            reader.at += 1;
            let mut inner = path.to_vec();
            inner.push(reader.word()?);
            reader.mark('{')?;
            module(reader, &inner, since, source)?;
            reader.mark('}')?;
        } else if public && reader.is_word(0, "enum") && reader.is_word(1, "DriverId") {
            reader.at += 2;
            drivers(reader, source)?;
        } else if public && reader.is_word(0, "const") && reader.is_mark(2, ':') {
            reader.at += 1;
            let item = constant(reader, path, since)?;
            source.consts.push(item);
        } else {
            skip_item(reader)?;
        }
    }
    Ok(())
}

/// Any other item: up to `;`, or up to the end of `{…}` if it is not a value.
fn skip_item(reader: &mut Reader<'_>) -> Result<(), String> {
    let mut value = false;
    while reader.peek(0).is_some() {
        if reader.is_mark(0, '}') {
            return Ok(());
        }
        if reader.is_mark(0, '{') {
            reader.skip_brackets()?;
            if !value {
                return Ok(());
            }
        } else if reader.is_mark(0, '(') || reader.is_mark(0, '[') {
            reader.skip_brackets()?;
        } else {
            let token = reader.next()?;
            if *token == Token::Mark(';') {
                return Ok(());
            }
            let use_tree = matches!(token, Token::Word(w) if w == "use");
            value |= *token == Token::Mark('=') || use_tree;
        }
    }
    Ok(())
}

fn structure(
    reader: &mut Reader<'_>,
    around: Option<Version>,
    source: &mut Source,
) -> Result<(), String> {
    reader.mark('{')?;
    let whole = since(&reader.docs()?).or(around);
    reader.visibility()?;
    reader.this_word("struct")?;
    let name = reader.word()?;
    let mut fields = Vec::new();
    let mut table = || -> Result<(u64, u64), String> {
        reader.mark(',')?;
        reader.this_word("size")?;
        let size = reader.number()?;
        reader.mark(',')?;
        reader.this_word("align")?;
        let align = reader.number()?;
        reader.mark('{')?;
        while !reader.take_mark('}') {
            let since = since(&reader.docs()?).or(whole);
            reader.mark('[')?;
            let offset = reader.number()?;
            reader.mark(']')?;
            reader.visibility()?;
            let name = reader.word()?;
            reader.mark(':')?;
            let ty = field_type(reader)?;
            if !reader.is_mark(0, '}') {
                reader.mark(',')?;
            }
            fields.push(Field {
                name,
                offset,
                ty,
                since,
            });
        }
        reader.mark('}')?;
        Ok((size, align))
    };
    let (size, align) = table().map_err(|e| format!("{name}: {e}"))?;
    if fields.is_empty() {
        return Err(format!("{name} has no fields"));
    }
    source.structs.push(Struct {
        name,
        size,
        align,
        since: whole,
        fields,
    });
    Ok(())
}

fn field_type(reader: &mut Reader<'_>) -> Result<Type, String> {
    if !reader.take_mark('[') {
        return Ok(Type::Named(reader.word()?));
    }
    let element = field_type(reader)?;
    reader.mark(';')?;
    let mut length = Vec::new();
    while !reader.take_mark(']') {
        length.push(reader.next()?.clone());
    }
    Ok(Type::Array(Box::new(element), length))
}

fn constant(
    reader: &mut Reader<'_>,
    path: &[String],
    since: Option<Version>,
) -> Result<Const, String> {
    let name = reader.word()?;
    reader.mark(':')?;
    let ty = reader.word()?;
    while !reader.is_mark(0, '=') {
        reader.next()?;
    }
    reader.mark('=')?;
    let mut value = Vec::new();
    while !reader.take_mark(';') {
        value.push(reader.next()?.clone());
    }
    if ty == "Attr" {
        let call = ["Attr", "::", "new", "("];
        let said: String = value.iter().take(5).map(show).collect();
        if said != call.concat() || value.pop() != Some(Token::Mark(')')) {
            return Err(format!("{name} is no Attr::new(…)"));
        }
        value.drain(..5);
    }
    Ok(Const {
        path: path.to_vec(),
        name,
        ty,
        value,
        since,
    })
}

fn drivers(reader: &mut Reader<'_>, source: &mut Source) -> Result<(), String> {
    reader.mark('{')?;
    while !reader.take_mark('}') {
        let since = since(&reader.docs()?);
        let name = reader.word()?;
        if reader.is_mark(0, '(') {
            reader.skip_brackets()?;
        }
        reader.take_mark(',');
        source.drivers.insert(name, since);
    }
    Ok(())
}

pub(crate) fn show(token: &Token) -> String {
    match token {
        Token::Word(t) | Token::Number(t) | Token::Doc(t) => t.clone(),
        Token::Mark(c) => c.to_string(),
        Token::Other => "?".to_owned(),
    }
}

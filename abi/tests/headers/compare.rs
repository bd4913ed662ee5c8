//! Compares all that `abi` declares with one set of headers.
//!
//! Names are looked for in the headers first, and the compiler is then asked about those that are
//! there: so a name that is missing is told from one that is wrong.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use uverbs_abi::layout::driver::DriverId;
use uverbs_abi::layout::netlink::{rdma_nl_get_client, rdma_nl_get_op, rdma_nl_get_type};

use crate::c::{Member, Names};
use crate::exceptions::{
    ATTRIBUTES, EXPRESSIONS, FIELDS, IN_PLACE, LEFT_OUT, NOT_UAPI, PADDING, READ, SINCE,
    WIDER_BEFORE,
};
use crate::source::{Const, Field, Source, Struct, Type, Version};
use crate::value::number_type;

/// A question to the compiler, and what the answer should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    /// What is asked about: "size of struct x".
    pub(crate) what: String,
    /// The C expression.
    pub(crate) expression: String,
    /// Rust's value.
    pub(crate) ours: i128,
    /// Bytes of Rust's type, where C may have spread the sign of an `int` over more.
    pub(crate) bytes: Option<u32>,
    /// The header that has it.
    pub(crate) header: String,
}

impl Question {
    /// The mismatch, if the answer is one.
    pub(crate) fn mismatch(&self, answer: u64) -> Option<String> {
        let spread = self.bytes.filter(|b| *b < 8).is_some_and(|bytes| {
            let shift = 64 - 8 * bytes;
            let back = (answer << shift).cast_signed() >> shift;
            back < 0
                && back.cast_unsigned() == answer
                && self.ours == i128::from((answer << shift) >> shift)
        });
        let plain = i128::from(answer) == self.ours;
        (!plain && !spread).then(|| {
            format!(
                "{}: ours {}, theirs {answer} ({})",
                self.what, self.ours, self.header
            )
        })
    }
}

/// What was found without the compiler.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// To be asked.
    pub(crate) questions: Vec<Question>,
    /// What is wrong already.
    pub(crate) wrong: Vec<String>,
    /// What these headers do not have yet, by the version that brings it.
    pub(crate) later: BTreeMap<Version, Vec<String>>,
    /// How many were found in the headers.
    pub(crate) counts: Counts,
    /// Entries of the exceptions that were of use.
    used: RefCell<BTreeSet<String>>,
}

/// How many of each were found in the headers.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    /// Structures.
    pub(crate) structs: usize,
    /// Fields.
    pub(crate) fields: usize,
    /// Numbers with names of their own.
    pub(crate) numbers: usize,
    /// Ids of objects, methods, attributes and drivers.
    pub(crate) ids: usize,
    /// Numbers that no uapi header has.
    pub(crate) not_uapi: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            structs,
            fields,
            numbers,
            ids,
            not_uapi,
        } = self;
        write!(
            f,
            "{structs} structures with {fields} fields, {numbers} numbers and {ids} ids compared; \
             {not_uapi} numbers are in no uapi header"
        )
    }
}

/// Compares the source with what the headers of a version declare.
pub(crate) fn compare(
    source: &Source,
    names: &Names,
    version: Version,
) -> Result<Comparison, String> {
    let mut compare = Compare::tables(source, names, version)?;
    compare.drivers()?;
    compare.netlink_types();
    Ok(compare.found)
}

/// The structures and the numbers alone.
pub(crate) fn tables(
    source: &Source,
    names: &Names,
    version: Version,
) -> Result<Comparison, String> {
    Ok(Compare::tables(source, names, version)?.found)
}

impl Comparison {
    /// Exceptions that nothing needed; only the newest headers have all.
    pub(crate) fn unused(&self) -> Vec<String> {
        let used = self.used.borrow();
        let entry = |table: &str, a: &str, b: &str| format!("{table} {a} {b}");
        let mut all: Vec<String> = Vec::new();
        all.extend(IN_PLACE.iter().map(|(a, ..)| entry("IN_PLACE", a, "")));
        all.extend(FIELDS.iter().map(|(a, b, _)| entry("FIELDS", a, b)));
        all.extend(LEFT_OUT.iter().map(|(a, b, _)| entry("LEFT_OUT", a, b)));
        all.extend(SINCE.iter().map(|(a, ..)| entry("SINCE", a, "")));
        all.extend(
            EXPRESSIONS
                .iter()
                .map(|(a, ..)| entry("EXPRESSIONS", a, "")),
        );
        all.extend(NOT_UAPI.iter().map(|(a, _)| entry("NOT_UAPI", a, "")));
        all.extend(ATTRIBUTES.iter().map(|(a, _)| entry("ATTRIBUTES", a, "")));
        all.retain(|e| !used.contains(e));
        all
    }

    fn uses(&self, table: &str, a: &str, b: &str) {
        self.used.borrow_mut().insert(format!("{table} {a} {b}"));
    }
}

/// A structure in C: the name of its type, its header, and its members.
type InC<'a> = (String, &'a str, &'a [Member]);

struct Compare<'a> {
    source: &'a Source,
    names: &'a Names,
    version: Version,
    found: Comparison,
}

impl<'a> Compare<'a> {
    fn tables(source: &'a Source, names: &'a Names, version: Version) -> Result<Self, String> {
        let mut compare = Self {
            source,
            names,
            version,
            found: Comparison::default(),
        };
        for item in &source.structs {
            compare.structure(item)?;
        }
        for item in &source.consts {
            compare.number(item)?;
        }
        Ok(compare)
    }

    fn wrong(&mut self, what: impl Into<String>) {
        self.found.wrong.push(what.into());
    }

    fn ask(&mut self, what: String, expression: String, ours: u64, header: &str) {
        self.found.questions.push(Question {
            what,
            expression,
            ours: ours.into(),
            bytes: None,
            header: header.to_owned(),
        });
    }

    /// Whether a thing may be there, or may be missing, in headers of this version.
    fn presence(&mut self, what: &str, since: Option<Version>, there: bool) {
        let listed = SINCE.iter().find(|(start, ..)| what.starts_with(start));
        if let Some((name, ..)) = listed {
            self.found.uses("SINCE", name, "");
        }
        let since = listed.map(|(_, version, _)| *version).or(since);
        let version = show(self.version);
        let Some(since) = since else {
            if !there && self.version >= READ[0] {
                self.wrong(format!(
                    "{what}: {version} has no such thing, and its comment names no version"
                ));
            }
            return;
        };
        let Some(place) = READ.iter().position(|r| *r == since) else {
            self.wrong(format!(
                "{what}: since {}, which is none of the kernels read",
                show(since)
            ));
            return;
        };
        let last_without = place.checked_sub(1).and_then(|p| READ.get(p)).copied();
        if there && last_without.is_some_and(|last| self.version <= last) {
            self.wrong(format!(
                "{what}: since {}, and {version} has it already",
                show(since)
            ));
        }
        if !there && self.version >= since {
            self.wrong(format!(
                "{what}: since {}, and {version} does not have it",
                show(since)
            ));
        } else if !there {
            let list = self.found.later.entry(since).or_default();
            list.push(what.to_owned());
        }
    }

    /// Looks for a structure.
    fn find(&mut self, name: &str) -> Result<Option<InC<'a>>, String> {
        let names = self.names;
        let place = IN_PLACE.iter().find(|(n, ..)| *n == name);
        let Some((_, parent, path)) = place else {
            return Ok(names
                .structure(name)?
                .map(|(header, members)| (format!("struct {name}"), header, members)));
        };
        self.found.uses("IN_PLACE", name, "");
        let Some((header, members)) = names.structure(parent)? else {
            return Ok(None);
        };
        let Some(inner) = descend(members, path).and_then(|m| m.body.as_deref()) else {
            return Ok(None);
        };
        let ty = format!("__typeof__(((struct {parent} *)0)->{path})");
        Ok(Some((ty, header, inner)))
    }

    fn structure(&mut self, item: &Struct) -> Result<(), String> {
        let name = &item.name;
        let found = self.find(name)?;
        self.presence(&format!("struct {name}"), item.since, found.is_some());
        let Some((ty, header, members)) = found else {
            return Ok(());
        };
        self.found.counts.structs += 1;
        self.ask(
            format!("size of struct {name}"),
            format!("sizeof({ty})"),
            item.size,
            header,
        );
        self.ask(
            format!("alignment of struct {name}"),
            format!("_Alignof({ty})"),
            item.align,
            header,
        );
        let mut covered = BTreeSet::new();
        for field in &item.fields {
            let path = self.field(item, field, &ty, header, members)?;
            covered.insert(path.split('.').next().unwrap_or_default().to_owned());
        }
        self.left_out(item, &ty, header, members, &covered);
        Ok(())
    }

    /// Gives back where the field is in C.
    fn field(
        &mut self,
        item: &Struct,
        field: &Field,
        ty: &str,
        header: &str,
        members: &[Member],
    ) -> Result<String, String> {
        let (name, what) = (&item.name, format!("{}.{}", item.name, field.name));
        let renamed = FIELDS
            .iter()
            .find(|(s, f, _)| s == name && *f == field.name);
        if renamed.is_some() {
            self.found.uses("FIELDS", name, &field.name);
        }
        let path = renamed.map_or(field.name.as_str(), |(.., path)| *path);
        let member = descend(members, path);
        // Bytes without a name in C: that no member of C's lies there follows from the others,
        // since each of them is compared with a field of ours.
        if member.is_none() && PADDING.contains(&field.name.as_str()) {
            return Ok(path.to_owned());
        }
        // What came with the whole structure has been told of already.
        let since = field.since.filter(|s| item.since != Some(*s));
        self.presence(&what, since, member.is_some());
        let Some(member) = member else {
            return Ok(path.to_owned());
        };
        self.found.counts.fields += 1;
        let whole = format!("(({ty} *)0)->{path}");
        self.ask(
            format!("offset of {what}"),
            format!("__builtin_offsetof({ty}, {path})"),
            field.offset,
            header,
        );
        let wider = WIDER_BEFORE
            .iter()
            .find(|(s, f, before, _)| s == name && *f == field.name && self.version < *before);
        let width = match wider {
            Some((.., bytes)) => *bytes,
            None => self
                .source
                .width(&field.ty)
                .map_err(|e| format!("{what}: {e}"))?,
        };
        self.ask(
            format!("width of {what}"),
            format!("sizeof({whole})"),
            width,
            header,
        );
        let signed = match &field.ty {
            Type::Named(ty) if member.body.is_none() => number_type(ty).map(|(_, s)| s),
            _ => None,
        };
        if let Some(signed) = signed {
            self.ask(
                format!("sign of {what}"),
                format!("(__typeof__({whole}))-1 < 0"),
                signed.into(),
                header,
            );
        }
        Ok(path.to_owned())
    }

    /// Members of C's that no field of ours stands for.
    fn left_out(
        &mut self,
        item: &Struct,
        ty: &str,
        header: &str,
        members: &[Member],
        covered: &BTreeSet<String>,
    ) {
        let name = &item.name;
        for member in members {
            let body = member.body.as_deref();
            let Some(theirs) = &member.name else {
                self.left_out(item, ty, header, body.unwrap_or_default(), covered);
                continue;
            };
            if covered.contains(theirs) || body.is_some_and(<[_]>::is_empty) {
                continue;
            }
            if member.flexible {
                // What follows the structure must begin where ours ends.
                self.ask(
                    format!("offset of {name}.{theirs}, which follows"),
                    format!("__builtin_offsetof({ty}, {theirs})"),
                    item.size,
                    header,
                );
            } else if LEFT_OUT.iter().any(|(s, m, _)| s == name && m == theirs) {
                self.found.uses("LEFT_OUT", name, theirs);
            } else {
                self.wrong(format!(
                    "{name}.{theirs}: {header} has it, and ours has no such field"
                ));
            }
        }
    }

    fn number(&mut self, item: &Const) -> Result<(), String> {
        let ours = self.source.value(item)?;
        let modules: Vec<&str> = item.path.iter().skip(1).map(String::as_str).collect();
        let what = [modules.as_slice(), &[&item.name]].concat().join("::");
        let bytes = number_type(&item.ty).map(|(bytes, _)| bytes);
        if let Some((_, needs, expression)) = EXPRESSIONS.iter().find(|(n, ..)| *n == what) {
            self.found.uses("EXPRESSIONS", &what, "");
            let header = self.names.header_of(needs);
            self.presence(&what, item.since, header.is_some());
            if let Some(header) = header {
                self.found.counts.numbers += 1;
                self.put(what, (*expression).to_owned(), ours, bytes, header);
            }
            return Ok(());
        }
        if let Some((start, _)) = NOT_UAPI.iter().find(|(s, _)| what.starts_with(s)) {
            self.found.uses("NOT_UAPI", start, "");
            self.found.counts.not_uapi += 1;
            if let Some(header) = self.names.header_of(&what) {
                self.wrong(format!(
                    "{what}: said to be in no uapi header, and {header} has it"
                ));
            }
            return Ok(());
        }
        let candidates = self.in_c(item, &modules);
        let found = candidates
            .iter()
            .find_map(|c| Some((c, self.names.header_of(c)?)));
        self.presence(&what, item.since, found.is_some());
        if let Some((theirs, header)) = found {
            let count = if modules.is_empty() {
                &mut self.found.counts.numbers
            } else {
                &mut self.found.counts.ids
            };
            *count += 1;
            let what = if *theirs == what {
                what
            } else {
                format!("{what} ({theirs})")
            };
            self.put(what, theirs.clone(), ours, bytes, header);
        }
        Ok(())
    }

    fn put(
        &mut self,
        what: String,
        expression: String,
        ours: i128,
        bytes: Option<u32>,
        header: &str,
    ) {
        self.found.questions.push(Question {
            what,
            expression,
            ours,
            bytes,
            header: header.to_owned(),
        });
    }

    /// Names that a number may have in C: ids are in modules, `UVERBS_…` in C.
    fn in_c(&self, item: &Const, modules: &[&str]) -> Vec<String> {
        let name = &item.name;
        let file = item.path.first().map(String::as_str);
        match (file, modules) {
            (Some("ids/mod"), ["object"]) => vec![format!("UVERBS_OBJECT_{name}")],
            (Some("ids/mod"), ["method", object]) => vec![
                format!("UVERBS_METHOD_{}_{name}", object.to_uppercase()),
                format!("UVERBS_METHOD_{name}"),
            ],
            (Some("ids/attr"), [method]) => {
                let listed = ATTRIBUTES.iter().find(|(m, _)| m == method);
                if let Some((method, start)) = listed {
                    self.found.uses("ATTRIBUTES", method, "");
                    return vec![format!("{start}{name}")];
                }
                // `cq_create` is CREATE_CQ in C; all else is as it is.
                let turned = ["create", "destroy"].iter().find_map(|verb| {
                    let object = method.strip_suffix(verb)?.strip_suffix('_')?;
                    Some(format!("{verb}_{object}"))
                });
                let method = turned.unwrap_or_else(|| (*method).to_owned());
                vec![format!("UVERBS_ATTR_{}_{name}", method.to_uppercase())]
            }
            _ => vec![name.clone()],
        }
    }

    /// `DriverId` is asked through the crate; its comments say since when.
    fn drivers(&mut self) -> Result<(), String> {
        let mut seen = 0;
        for raw in 0..256 {
            let driver = DriverId::from_raw(raw);
            if matches!(driver, DriverId::Other(_)) {
                continue;
            }
            seen += 1;
            let name = format!("{driver:?}");
            let what = format!("DriverId::{name}");
            let since = self.source.drivers.get(&name).copied();
            let since = since.ok_or_else(|| format!("{what} was not read from the source"))?;
            let mut theirs = "RDMA_DRIVER".to_owned();
            for c in name.chars() {
                if c.is_uppercase() {
                    theirs.push('_');
                }
                theirs.extend(c.to_uppercase());
            }
            let header = self.names.header_of(&theirs);
            self.presence(&what, since, header.is_some());
            if let Some(header) = header {
                self.found.counts.ids += 1;
                self.ask(what, theirs, driver.to_raw().into(), header);
            }
        }
        if seen + 1 == self.source.drivers.len() {
            return Ok(());
        }
        Err(format!(
            "{seen} drivers have a number, and the source names {} with Other",
            self.source.drivers.len()
        ))
    }

    /// The three functions that are macros in C.
    fn netlink_types(&mut self) {
        let ty = rdma_nl_get_type(5, 15);
        let asked = [
            (ty, "RDMA_NL_GET_TYPE", "RDMA_NL_GET_TYPE(5, 15)".to_owned()),
            (
                rdma_nl_get_op(ty),
                "RDMA_NL_GET_OP",
                format!("RDMA_NL_GET_OP({ty})"),
            ),
            (
                rdma_nl_get_client(ty),
                "RDMA_NL_GET_CLIENT",
                format!("RDMA_NL_GET_CLIENT({ty})"),
            ),
        ];
        for (ours, name, expression) in asked {
            match self.names.header_of(name) {
                Some(header) => self.ask(expression.clone(), expression, ours.into(), header),
                None => self.wrong(format!("{name} is in no header")),
            }
        }
    }
}

/// The member at a path of names; through those without a name.
fn descend<'m>(members: &'m [Member], path: &str) -> Option<&'m Member> {
    let (first, rest) = match path.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    let found = members.iter().find_map(|m| match &m.name {
        Some(name) => (name == first).then_some(m),
        None => descend(m.body.as_deref()?, first),
    })?;
    match rest {
        Some(rest) => descend(found.body.as_deref()?, rest),
        None => Some(found),
    }
}

/// `6.12`
pub(crate) fn show(version: Version) -> String {
    format!("{}.{}", version.0, version.1)
}

//! What the numbers of the layout files are worth: a small evaluator of constant expressions.
//!
//! Whatever is not understood is an error.

use crate::source::{Const, Reader, Source, Token, Type, show};

/// A number as Rust writes it: with a radix, underscores, and a type behind.
pub(crate) fn literal(text: &str) -> Result<i128, String> {
    let bad = || format!("{text} is no number");
    let plain = text.replace('_', "");
    let (radix, digits) = match plain.get(..2) {
        Some("0x") => (16, plain.get(2..).unwrap_or_default()),
        Some("0o") => (8, plain.get(2..).unwrap_or_default()),
        Some("0b") => (2, plain.get(2..).unwrap_or_default()),
        _ => (10, plain.as_str()),
    };
    let digits = TYPES
        .iter()
        .find_map(|(ty, ..)| digits.strip_suffix(ty))
        .unwrap_or(digits);
    i128::from_str_radix(digits, radix).map_err(|_| bad())
}

/// Numbers: name, bytes, signed.
const TYPES: [(&str, u32, bool); 10] = [
    ("u8", 1, false),
    ("i8", 1, true),
    ("u16", 2, false),
    ("i16", 2, true),
    ("u32", 4, false),
    ("i32", 4, true),
    ("u64", 8, false),
    ("i64", 8, true),
    ("usize", 8, false),
    ("isize", 8, true),
];

/// Bytes and sign of a type of numbers.
pub(crate) fn number_type(name: &str) -> Option<(u32, bool)> {
    TYPES
        .iter()
        .find(|(ty, ..)| *ty == name)
        .map(|(_, bytes, signed)| (*bytes, *signed))
}

impl Source {
    /// The value of a number.
    pub(crate) fn value(&self, item: &Const) -> Result<i128, String> {
        let value = self
            .calculate(&item.value, 0)
            .map_err(|e| format!("{}: {e}", item.name))?;
        let ty = if item.ty == "Attr" { "u16" } else { &item.ty };
        let (bytes, signed) =
            number_type(ty).ok_or_else(|| format!("{}: {ty} is no type of numbers", item.name))?;
        let bits = bytes * 8 - u32::from(signed);
        let least = if signed { -(1_i128 << bits) } else { 0 };
        if value < least || value >= 1 << bits {
            return Err(format!("{}: {value} is no {ty}", item.name));
        }
        Ok(value)
    }

    /// Bytes of a field's type.
    pub(crate) fn width(&self, ty: &Type) -> Result<u64, String> {
        match ty {
            Type::Named(name) => number_type(name)
                .map(|(bytes, _)| u64::from(bytes))
                .or_else(|| {
                    self.structs
                        .iter()
                        .find(|s| s.name == *name)
                        .map(|s| s.size)
                })
                .ok_or_else(|| format!("{name} is no known type")),
            Type::Array(element, length) => {
                let length = u64::try_from(self.calculate(length, 0)?)
                    .map_err(|_| "the length of an array is negative")?;
                Ok(self.width(element)? * length)
            }
        }
    }

    /// Numbers, names of other numbers, brackets, and `*`, `+` and `-`, `<<`, `|` between them.
    pub(crate) fn calculate(&self, value: &[Token], depth: u32) -> Result<i128, String> {
        if depth > 8 {
            return Err("it goes round in circles".to_owned());
        }
        let mut sum = Sum {
            source: self,
            reader: Reader { all: value, at: 0 },
            depth,
        };
        let result = sum.level(0)?;
        match sum.reader.peek(0) {
            None => Ok(result),
            Some(token) => Err(format!("{} is not understood", show(token))),
        }
    }
}

struct Sum<'a> {
    source: &'a Source,
    reader: Reader<'a>,
    depth: u32,
}

impl Sum<'_> {
    /// One level of precedence and those that bind more strongly, in Rust's order.
    fn level(&mut self, level: u32) -> Result<i128, String> {
        if level > 3 {
            return self.single();
        }
        let mut left = self.level(level + 1)?;
        loop {
            let here = |mark| self.reader.is_mark(0, mark);
            let mark = match level {
                0 if here('|') => '|',
                1 if here('<') && self.reader.is_mark(1, '<') => '<',
                2 if here('+') => '+',
                2 if here('-') => '-',
                3 if here('*') => '*',
                _ => return Ok(left),
            };
            self.reader.at += if mark == '<' { 2 } else { 1 };
            let right = self.level(level + 1)?;
            left = match mark {
                '|' => Some(left | right),
                '<' => u32::try_from(right)
                    .ok()
                    .filter(|by| *by < 64)
                    .and_then(|by| left.checked_mul(1 << by)),
                '+' => left.checked_add(right),
                '-' => left.checked_sub(right),
                _ => left.checked_mul(right),
            }
            .ok_or("it is too large")?;
        }
    }

    fn single(&mut self) -> Result<i128, String> {
        match self.reader.next()? {
            Token::Number(n) => literal(n),
            Token::Mark('(') => {
                let inner = self.level(0)?;
                self.reader.mark(')')?;
                Ok(inner)
            }
            Token::Mark('-') => self.single().map(|n| -n),
            Token::Word(name) => {
                let other = self.source.consts.iter().find(|c| c.name == *name);
                let other = other.ok_or_else(|| format!("{name} is no known number"))?;
                self.source.calculate(&other.value, self.depth + 1)
            }
            other => Err(format!("{} is not understood", show(other))),
        }
    }
}

//! Reads what is needed from ELF files: the interpreter, the libraries, a module's notes.
//!
//! Ground truth: the ELF-64 format, little-endian. The files may be anything: must never panic, and
//! never follow an offset that was not checked.

use super::arch::Arch;

/// What a program or a shared object asks for when it is started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dynamic {
    /// Path of the interpreter (the dynamic linker), if it has one.
    pub interpreter: Option<String>,
    /// Names of the shared objects it needs.
    pub needed: Vec<String>,
    /// Folders to search for them (`RUNPATH` or, if there is none, `RPATH`).
    pub search: Vec<String>,
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// Whether these are the first bytes of an ELF file at all.
pub fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF")
}

fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(
        b.get(at..at.checked_add(2)?)?.try_into().ok()?,
    ))
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        b.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(
        b.get(at..at.checked_add(8)?)?.try_into().ok()?,
    ))
}

fn place_at(b: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64_at(b, at)?).ok()
}

fn slice(b: &[u8], start: usize, len: usize) -> Option<&[u8]> {
    b.get(start..start.checked_add(len)?)
}

fn c_string(b: &[u8], start: usize) -> Option<String> {
    let rest = b.get(start..)?;
    let end = rest.iter().position(|c| *c == 0)?;
    Some(String::from_utf8_lossy(rest.get(..end)?).into_owned())
}

struct Segment {
    kind: u32,
    offset: usize,
    address: u64,
    len: usize,
}

fn segments(b: &[u8]) -> Option<Vec<Segment>> {
    let table = place_at(b, 32)?;
    let size = usize::from(u16_at(b, 54)?);
    let count = usize::from(u16_at(b, 56)?);
    let mut all = Vec::new();
    for i in 0..count {
        let at = table.checked_add(i.checked_mul(size)?)?;
        all.push(Segment {
            kind: u32_at(b, at)?,
            offset: place_at(b, at.checked_add(8)?)?,
            address: u64_at(b, at.checked_add(16)?)?,
            len: place_at(b, at.checked_add(32)?)?,
        });
    }
    Some(all)
}

fn is_ours(b: &[u8]) -> bool {
    // 64 bits, little-endian, of an architecture that has guests
    is_elf(b) && b.get(4) == Some(&2) && b.get(5) == Some(&1) && machine(b).is_some()
}

/// What it runs on; `None` for anything that no guest is.
pub fn machine(b: &[u8]) -> Option<Arch> {
    match u16_at(b, 18)? {
        62 => Some(Arch::Amd64),
        183 => Some(Arch::Arm64),
        _ => None,
    }
}

/// Reads interpreter and libraries; `None` if it is no sound ELF file for a guest.
pub fn dynamic(b: &[u8]) -> Option<Dynamic> {
    if !is_ours(b) {
        return None;
    }
    let segments = segments(b)?;
    let mut result = Dynamic::default();
    if let Some(s) = segments.iter().find(|s| s.kind == PT_INTERP) {
        result.interpreter = Some(c_string(slice(b, s.offset, s.len)?, 0)?);
    }
    let Some(s) = segments.iter().find(|s| s.kind == PT_DYNAMIC) else {
        return Some(result);
    };
    let entries: Vec<(u64, u64)> = slice(b, s.offset, s.len)?
        .chunks_exact(16)
        .map_while(|e| Some((u64_at(e, 0)?, u64_at(e, 8)?)))
        .take_while(|(tag, _)| *tag != 0)
        .collect();
    let Some((_, strings)) = entries.iter().find(|(tag, _)| *tag == DT_STRTAB) else {
        return Some(result);
    };
    let home = segments.iter().find(|s| {
        s.kind == PT_LOAD
            && strings
                .checked_sub(s.address)
                .and_then(|d| usize::try_from(d).ok())
                .is_some_and(|d| d < s.len)
    })?;
    let strings = home
        .offset
        .checked_add(usize::try_from(strings - home.address).ok()?)?;
    let string = |value: u64| c_string(b, strings.checked_add(usize::try_from(value).ok()?)?);
    let mut rpath = None;
    let mut runpath = None;
    for (tag, value) in entries {
        match tag {
            DT_NEEDED => result.needed.push(string(value)?),
            DT_RPATH => rpath = Some(string(value)?),
            DT_RUNPATH => runpath = Some(string(value)?),
            _ => {}
        }
    }
    if let Some(paths) = runpath.or(rpath) {
        result.search = paths
            .split(':')
            .filter(|p| !p.is_empty())
            .map(str::to_owned)
            .collect();
    }
    Some(result)
}

/// Content of the section of this name; `None` if there is none or the file is not sound.
pub fn section<'a>(b: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    if !is_ours(b) {
        return None;
    }
    let table = place_at(b, 40)?;
    let size = usize::from(u16_at(b, 58)?);
    let count = usize::from(u16_at(b, 60)?);
    let header = |i: usize| table.checked_add(i.checked_mul(size)?);
    let names = place_at(b, header(usize::from(u16_at(b, 62)?))?.checked_add(24)?)?;
    for i in 0..count {
        let at = header(i)?;
        let name = names.checked_add(usize::try_from(u32_at(b, at)?).ok()?)?;
        if c_string(b, name).as_deref() == Some(wanted) {
            return slice(
                b,
                place_at(b, at.checked_add(24)?)?,
                place_at(b, at.checked_add(32)?)?,
            );
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap_or_default()
    }

    #[test]
    fn reads_this_test() {
        let b = own();
        assert!(dynamic(&b).is_some());
        assert!(section(&b, ".text").is_some_and(|t| !t.is_empty()));
        assert!(section(&b, ".no-such").is_none());
    }

    #[test]
    fn cut_files_do_no_harm() {
        let b = own();
        for len in (0..256).chain([1000, 4096, 100_000]) {
            let cut = b.get(..len).unwrap_or(&b);
            let _ = dynamic(cut);
            let _ = section(cut, ".modinfo");
        }
    }

    #[test]
    fn wild_numbers_do_no_harm() {
        let b = own();
        let mut head: Vec<u8> = b.get(..4096).unwrap_or(&b).to_vec();
        for at in 16..1024 {
            for value in [0xff, 0x7f, 0x00] {
                let Some(slot) = head.get_mut(at) else {
                    continue;
                };
                let old = std::mem::replace(slot, value);
                let _ = dynamic(&head);
                let _ = section(&head, ".modinfo");
                if let Some(slot) = head.get_mut(at) {
                    *slot = old;
                }
            }
        }
        let mut all = b"\x7fELF\x02\x01".to_vec();
        all.resize(4096, 0xff);
        assert_eq!(dynamic(&all), None);
        assert_eq!(section(&all, "x"), None);
    }

    #[test]
    fn no_elf() {
        assert_eq!(dynamic(b""), None);
        assert_eq!(dynamic(b"#!/bin/sh\n"), None);
        assert!(!is_elf(b"\x7fEL"));
    }
}

//! Writes the archive that the kernel unpacks as its first root: cpio, format "newc".
//!
//! Ground truth: the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`. Must
//! never write a name twice or a file before its folder: [`Tree`] sees to both.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Component, Path};

/// One thing in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A folder.
    Folder,
    /// A file: its content and whether it may be run.
    File(Vec<u8>, bool),
    /// A symbolic link and where it points.
    Link(String),
}

/// All that goes into the archive, by path without the leading slash.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    entries: BTreeMap<String, Entry>,
}

impl Tree {
    /// Puts something at an absolute path, with the folders above it; what was there is replaced.
    pub fn put(&mut self, path: &str, entry: Entry) {
        let mut parts: Vec<&str> = Vec::new();
        for part in Path::new(path).components() {
            match part {
                Component::Normal(p) => parts.extend(p.to_str()),
                Component::ParentDir => drop(parts.pop()),
                _ => {}
            }
        }
        let Some((_, above)) = parts.split_last() else {
            return;
        };
        let mut folder = String::new();
        for part in above {
            if !folder.is_empty() {
                folder.push('/');
            }
            folder.push_str(part);
            self.entries.entry(folder.clone()).or_insert(Entry::Folder);
        }
        let name = parts.join("/");
        if entry == Entry::Folder && self.entries.contains_key(&name) {
            return;
        }
        self.entries.insert(name, entry);
    }

    /// What is at an absolute path.
    pub fn at(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path.trim_start_matches('/'))
    }

    /// All paths (absolute) and what is there.
    pub fn iter(&self) -> impl Iterator<Item = (String, &Entry)> {
        self.entries.iter().map(|(name, e)| (format!("/{name}"), e))
    }

    /// Writes the archive. A map's order puts each folder before what is in it.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        for (inode, (name, entry)) in self.entries.iter().enumerate() {
            let (mode, content): (u32, &[u8]) = match entry {
                Entry::Folder => (0o040_755, &[]),
                Entry::File(content, true) => (0o100_755, content),
                Entry::File(content, false) => (0o100_644, content),
                Entry::Link(target) => (0o120_777, target.as_bytes()),
            };
            record(to, inode + 1, mode, name, content)?;
        }
        record(to, 0, 0, "TRAILER!!!", &[])
    }
}

fn record(
    to: &mut impl Write,
    inode: usize,
    mode: u32,
    name: &str,
    content: &[u8],
) -> io::Result<()> {
    let size = u32::try_from(content.len())
        .map_err(|_| io::Error::other(format!("{name} is larger than 4 GiB")))?;
    // magic, inode, mode, uid, gid, links, time, size, device (2), rdevice (2), name's size, check
    write!(
        to,
        "070701{inode:08x}{mode:08x}{0:08x}{0:08x}{1:08x}{0:08x}{size:08x}{0:08x}{0:08x}{0:08x}{0:08x}{2:08x}{0:08x}",
        0,
        1,
        name.len() + 1
    )?;
    to.write_all(name.as_bytes())?;
    // The header has 110 bytes; name with its zero, and content, end at multiples of four.
    pad(to, 110 + name.len() + 1, 1)?;
    to.write_all(content)?;
    pad(to, content.len(), 0)
}

fn pad(to: &mut impl Write, written: usize, zeros: usize) -> io::Result<()> {
    let more = zeros + written.next_multiple_of(4) - written;
    to.write_all(&[0; 5][..more.min(5)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an archive back: name, mode, content.
    fn read(mut b: &[u8]) -> Option<Vec<(String, u32, Vec<u8>)>> {
        let mut all = Vec::new();
        loop {
            let field = |i: usize| {
                let text = std::str::from_utf8(b.get(6 + i * 8..14 + i * 8)?).ok()?;
                usize::from_str_radix(text, 16).ok()
            };
            if b.get(..6)? != b"070701" {
                return None;
            }
            let (mode, size, name_len) = (field(1)?, field(6)?, field(11)?);
            let name = b.get(110..110 + name_len - 1)?;
            assert_eq!(b.get(110 + name_len - 1), Some(&0));
            let start = (110 + name_len).next_multiple_of(4);
            let content = b.get(start..start + size)?.to_vec();
            b = b.get((start + size).next_multiple_of(4)..)?;
            let name = String::from_utf8(name.to_vec()).ok()?;
            if name == "TRAILER!!!" {
                return Some(all);
            }
            all.push((name, u32::try_from(mode).ok()?, content));
        }
    }

    #[test]
    fn comes_back_with_folders_first() -> io::Result<()> {
        let mut tree = Tree::default();
        tree.put("/usr/bin/x", Entry::File(b"abc".to_vec(), true));
        tree.put("/etc/a", Entry::File(Vec::new(), false));
        tree.put("/etc", Entry::Folder);
        tree.put("/bin/../lib/./l", Entry::Link("/usr/bin/x".into()));
        let mut out = Vec::new();
        tree.write(&mut out)?;
        assert!(out.len().is_multiple_of(4));
        let got = read(&out).unwrap_or_default();
        let short: Vec<_> = got
            .iter()
            .map(|(n, m, c)| (n.as_str(), *m, c.as_slice()))
            .collect();
        assert_eq!(
            short,
            [
                ("etc", 0o040_755, &b""[..]),
                ("etc/a", 0o100_644, b""),
                ("lib", 0o040_755, b""),
                ("lib/l", 0o120_777, b"/usr/bin/x"),
                ("usr", 0o040_755, b""),
                ("usr/bin", 0o040_755, b""),
                ("usr/bin/x", 0o100_755, b"abc"),
            ]
        );
        Ok(())
    }

    #[test]
    fn every_length_is_padded() -> io::Result<()> {
        for n in 0..9 {
            let mut tree = Tree::default();
            tree.put(
                &format!("/{}", "n".repeat(n + 1)),
                Entry::File(vec![7; n], false),
            );
            let mut out = Vec::new();
            tree.write(&mut out)?;
            assert_eq!(read(&out).map(|r| r.len()), Some(1), "{n}");
        }
        Ok(())
    }
}

//! Works out which kernel modules are needed, and in which order, from the modules themselves.
//!
//! The packages hold no `modules.dep`, so each module's own `depends=` is read. Must never depend
//! on a fixed list of dependencies: they change from kernel to kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::elf;
use super::report::{Doing, Problem};

/// A module to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Where it is on the host.
    pub file: PathBuf,
    /// Whether the guest may go on without it.
    pub optional: bool,
}

/// What a module says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Info {
    /// Modules it cannot be loaded without.
    pub depends: Vec<String>,
    /// Modules it would like to have before it.
    pub soft: Vec<String>,
}

/// All modules of a kernel, by name.
#[derive(Debug)]
pub struct Index {
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
}

/// Names with `-` and `_` are the same module.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}

fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let stem = [".ko", ".ko.xz"]
        .iter()
        .find_map(|end| file.strip_suffix(end))?;
    Some(plain(stem))
}

impl Index {
    /// Looks through a folder such as `lib/modules/6.12…`.
    pub fn of(folder: &Path) -> Result<Self, Problem> {
        let mut files = BTreeMap::new();
        let mut folders = vec![folder.join("kernel")];
        while let Some(next) = folders.pop() {
            for entry in fs::read_dir(&next).doing(|| format!("reading {}", next.display()))? {
                let entry = entry.doing(|| format!("reading {}", next.display()))?;
                let path = entry.path();
                if entry.file_type().is_ok_and(|t| t.is_dir()) {
                    folders.push(path);
                } else if let Some(name) = module_name(&path) {
                    files.insert(name, path);
                }
            }
        }
        let builtin = fs::read_to_string(folder.join("modules.builtin"))
            .unwrap_or_default()
            .lines()
            .filter_map(|l| module_name(Path::new(l)))
            .collect();
        Ok(Self { files, builtin })
    }

    /// The wanted modules and all they depend on, each after its dependencies.
    pub fn order(&self, wanted: &[&str], liked: &[&str]) -> Result<Vec<Module>, Problem> {
        let mut order = Order {
            index: self,
            seen: BTreeSet::new(),
            list: Vec::new(),
        };
        for name in liked {
            order.add(&plain(name), true)?;
        }
        for name in wanted {
            order.add(&plain(name), false)?;
        }
        Ok(order.list)
    }
}

struct Order<'a> {
    index: &'a Index,
    seen: BTreeSet<String>,
    list: Vec<Module>,
}

impl Order<'_> {
    fn add(&mut self, name: &str, optional: bool) -> Result<(), Problem> {
        if self.index.builtin.contains(name) {
            return Ok(());
        }
        let Some(file) = self.index.files.get(name) else {
            return if optional {
                Ok(())
            } else {
                Err(Problem::new(format!(
                    "the kernel has no module {name}; another kernel is needed (cargo vm setup)"
                )))
            };
        };
        if !self.seen.insert(name.to_owned()) {
            // Asked for softly before, and now in earnest.
            if !optional && let Some(m) = self.list.iter_mut().find(|m| m.file == *file) {
                m.optional = false;
            }
            return Ok(());
        }
        let info = read_info(file)?;
        for soft in &info.soft {
            self.add(soft, true)?;
        }
        for needed in &info.depends {
            self.add(needed, optional)?;
        }
        self.list.push(Module {
            file: file.clone(),
            optional,
        });
        Ok(())
    }
}

fn read_info(file: &Path) -> Result<Info, Problem> {
    let what = || format!("reading the kernel module {}", file.display());
    let raw = fs::read(file).doing(what)?;
    let bytes = if file.extension().is_some_and(|e| e == "xz") {
        let mut out = Vec::new();
        lzma_rust2::XzReader::new(raw.as_slice(), false)
            .read_to_end(&mut out)
            .doing(what)?;
        out
    } else {
        raw
    };
    elf::section(&bytes, ".modinfo")
        .map(parse_info)
        .ok_or_else(|| Problem::new(format!("{} is no kernel module", file.display())))
}

/// Takes dependencies out of the `.modinfo` section: `name=value`, each ended by a zero.
pub fn parse_info(section: &[u8]) -> Info {
    let mut info = Info::default();
    for item in section.split(|b| *b == 0) {
        let text = String::from_utf8_lossy(item);
        if let Some(list) = text.strip_prefix("depends=") {
            info.depends
                .extend(list.split(',').filter(|n| !n.is_empty()).map(plain));
        } else if let Some(list) = text.strip_prefix("softdep=") {
            let mut before = false;
            for word in list.split_whitespace() {
                match word {
                    "pre:" => before = true,
                    "post:" => before = false,
                    name if before => info.soft.push(plain(name)),
                    _ => {}
                }
            }
        }
    }
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modinfo() {
        let info = parse_info(
            b"license=GPL\0\0depends=ib_core,udp-tunnel\0softdep=pre: crc32c post: x\0name=rdma_rxe\0",
        );
        assert_eq!(info.depends, ["ib_core", "udp_tunnel"]);
        assert_eq!(info.soft, ["crc32c"]);
        assert_eq!(parse_info(b"depends=\0"), Info::default());
        assert_eq!(parse_info(&[0xff, 0xfe]), Info::default());
    }

    #[test]
    fn names() {
        assert_eq!(
            module_name(Path::new("a/b/ib-core.ko.xz")).as_deref(),
            Some("ib_core")
        );
        assert_eq!(module_name(Path::new("x.ko")).as_deref(), Some("x"));
        assert_eq!(module_name(Path::new("x.txt")), None);
    }

    #[test]
    fn a_missing_module_is_named() {
        let index = Index {
            files: BTreeMap::new(),
            builtin: ["virtio".into()].into(),
        };
        assert_eq!(
            index
                .order(&["virtio"], &["crc32_generic"])
                .map(|o| o.len()),
            Ok(0)
        );
        let e = index.order(&["rdma_rxe"], &[]).map_err(|e| e.to_string());
        assert!(e.is_err_and(|e| e.contains("rdma_rxe")));
    }
}

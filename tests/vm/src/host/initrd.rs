//! Puts the guest's first root together: the program as `/init`, the modules, and the payload.
//!
//! Must never take all modules along: only those that are needed, found by their own words.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use super::cpio::{Entry, Tree};
use super::kernel::Kernel;
use super::kmods::{Index, Module};
use super::report::{Doing, Problem};
use crate::guest::init::{EARLY_MODULES, LATE_MODULES};
use crate::guest::modules::{FOLDER, OPTIONAL};

/// Writes the archive to `to`; gives back its size.
pub fn write(
    to: &Path,
    guest: &Path,
    kernel: &Kernel,
    share: bool,
    mut tree: Tree,
) -> Result<u64, Problem> {
    let program = fs::read(guest).doing(|| format!("reading {}", guest.display()))?;
    tree.put("/init", Entry::File(program, true));
    for folder in ["/proc", "/sys", "/dev", "/tmp", "/run", "/root", "/etc"] {
        tree.put(folder, Entry::Folder);
    }
    let index = Index::of(&kernel.modules)?;
    let early = index.order(&["virtio_pci", "virtio_console"], &[])?;
    let mut wanted = vec!["ib_uverbs", "rdma_rxe", "rdma_ucm", "veth"];
    if share {
        wanted.extend(["9pnet_virtio", "9p"]);
    }
    // 6.1 and 6.12 find the checksum by name at run time; later kernels have it built in.
    let late = index.order(&wanted, &["crc32_generic", "crc32c_generic"])?;
    put_modules(&mut tree, EARLY_MODULES, &early)?;
    put_modules(&mut tree, LATE_MODULES, &late)?;

    let what = || format!("writing {}", to.display());
    let mut file = BufWriter::new(File::create(to).doing(what)?);
    tree.write(&mut file).doing(what)?;
    file.flush().doing(what)?;
    Ok(fs::metadata(to).doing(what)?.len())
}

fn put_modules(tree: &mut Tree, list: &str, modules: &[Module]) -> Result<(), Problem> {
    let mut order = String::new();
    for module in modules {
        let name = module
            .file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let content =
            fs::read(&module.file).doing(|| format!("reading {}", module.file.display()))?;
        tree.put(&format!("{FOLDER}/{name}"), Entry::File(content, false));
        if module.optional {
            order.push(OPTIONAL);
        }
        order.push_str(&name);
        order.push('\n');
    }
    tree.put(
        &format!("{FOLDER}/{list}"),
        Entry::File(order.into_bytes(), false),
    );
    Ok(())
}

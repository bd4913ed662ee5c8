//! Loads the kernel modules that the host packed, in the order the host worked out.
//!
//! Must never guess: a module that does not load stops the set-up and is named.

use std::fs::{self, File};
use std::io;

use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};

/// The folder in the initramfs that holds the modules and the list `order`.
pub const FOLDER: &str = "/modules";

/// Prefix in the list of a module that speeds something up or is asked for softly: if it does not
/// load, all goes on.
pub const OPTIONAL: char = '?';

/// Says that the file is compressed: the kernel unpacks it (`MODULE_INIT_COMPRESSED_FILE`).
const COMPRESSED: u32 = 4;

/// Loads all modules of one list.
pub fn load(list: &str) -> io::Result<()> {
    let order = fs::read_to_string(format!("{FOLDER}/{list}"))?;
    for line in order.lines().filter(|l| !l.is_empty()) {
        let (file, optional) = match line.strip_prefix(OPTIONAL) {
            Some(file) => (file, true),
            None => (line, false),
        };
        match load_one(file) {
            Err(e) if !optional => {
                return Err(io::Error::new(
                    e.kind(),
                    format!("loading the module {file}: {e}"),
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

fn load_one(file: &str) -> io::Result<()> {
    let opened = File::open(format!("{FOLDER}/{file}"))?;
    let flags = if file.ends_with(".ko") { 0 } else { COMPRESSED };
    match finit_module(opened, c"", ModuleInitFlags::from_bits_retain(flags)) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

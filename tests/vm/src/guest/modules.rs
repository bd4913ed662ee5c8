//! Loads the kernel modules that the host packed, in the order the host worked out.
//!
//! Must never guess: a module that does not load stops the set-up and is named.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;

use nix::errno::Errno;
use nix::kmod::{DeleteModuleFlags, ModuleInitFlags, delete_module, finit_module};

/// The folder in the initramfs that holds the modules and the list `order`.
pub const FOLDER: &str = "/modules";

/// The folder in the initramfs that holds the modules which only some cases load.
pub const TEST_FOLDER: &str = "/modules/test";

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
        match load_file(&format!("{FOLDER}/{file}")) {
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

/// Loads one of the test modules; it may be loaded already.
pub fn load_test(name: &str) -> io::Result<()> {
    load_file(&format!("{TEST_FOLDER}/{name}.ko"))
        .map_err(|e| io::Error::new(e.kind(), format!("loading the test module {name}: {e}")))
}

/// Takes a module out again, if it is loaded.
pub fn unload(name: &str) -> io::Result<()> {
    let text = CString::new(name)?;
    match delete_module(&text, DeleteModuleFlags::O_NONBLOCK) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(e) => Err(io::Error::new(
            io::Error::from(e).kind(),
            format!("unloading {name}: {e}"),
        )),
    }
}

/// Takes a module out, and before it those that use it.
pub fn unload_with_users(name: &str) -> io::Result<()> {
    let loaded = fs::read_to_string("/proc/modules")?;
    // Name, size, number of users, their names with a comma after each (or a dash).
    let mut lines = loaded.lines().map(|line| line.split(' '));
    let Some(mut line) = lines.find(|line| line.clone().next() == Some(name)) else {
        return Ok(());
    };
    let users = line.nth(3).unwrap_or_default();
    for user in users.split(',').filter(|user| !["", "-"].contains(user)) {
        unload_with_users(user)?;
    }
    unload(name)
}

fn load_file(file: &str) -> io::Result<()> {
    let opened = File::open(file)?;
    let flags = if file.ends_with(".ko") { 0 } else { COMPRESSED };
    match finit_module(opened, c"", ModuleInitFlags::from_bits_retain(flags)) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

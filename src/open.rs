//! UNSAFE ROOM 5: opens the device for a context. No other place of this crate has the file.
#![allow(unsafe_code, reason = "vouches for the commands that a context runs")]

use std::io;
use std::path::Path;

use uverbs_abi::sys::UverbsFd;

/// Opens a node, if it has this device number.
pub(crate) fn node(path: &Path, number: u64) -> io::Result<UverbsFd> {
    // SAFETY: the file goes into a context's session and nowhere else; a context runs the commands
    // of `uverbs_providers::verbs` and of the providers alone, and no user of this crate can reach
    // the session. Of those, only a registration names memory, and `mr/memory.rs` vouches for it.
    unsafe { UverbsFd::open(path, Some(number)) }
}

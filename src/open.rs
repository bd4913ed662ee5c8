//! UNSAFE ROOM 5: opens the device for a context. No other place of this crate has the file.
#![allow(unsafe_code, reason = "vouches for the commands that a context runs")]

use std::io;

use uverbs_abi::sys::UverbsFd;

use crate::device::Device;

/// Opens a device's node, if it still is that device's.
pub(crate) fn node(device: &Device) -> io::Result<UverbsFd> {
    // SAFETY: the file goes into a context's session and nowhere else; a context runs the commands
    // of `uverbs_providers::verbs` and of the providers alone, and no user of this crate can reach
    // the session. Of those, only a registration names memory, and `mr/memory.rs` vouches for it.
    unsafe { UverbsFd::open(device.node(), Some(device.number())) }
}

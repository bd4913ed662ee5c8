//! The bring-up in a program that the C library starts itself.
//!
//! With `fn main` the standard library first looks after closed descriptors, broken pipes and stack overflows,
//! in eleven system calls. Here that is left out, so that what remains beside C is the library's part.

#![no_main]

use std::io::{self, Write};

use nix::libc::{c_char, c_int};

#[allow(
    unsafe_code,
    reason = "the C library calls the one function of this name, with these arguments"
)]
// No other `main` is in the program (`no_main`), and this one has the signature that C demands.
#[unsafe(no_mangle)]
extern "C" fn main(_count: c_int, _arguments: *const *const c_char) -> c_int {
    match uverbs_tools::bring_up::bring_up("rxe0") {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(io::stdout(), "! {error}");
            1
        }
    }
}

//! Every test case that runs in the guest, as single tests. See `docs/testing.md`.

use std::process::ExitCode;

use uverbs_vm::host::{qemu, suite};

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    if args.first().is_some_and(|a| a == qemu::SHIM_ARG) {
        return qemu::shim(&args);
    }
    suite::main()
}

//! The executable: the host's command line, or the guest's init when it is process 1.
//!
//! Must never decide anything itself; each part lives in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::process::id() == 1 {
        return uverbs_vm::guest::init::main();
    }
    let args: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    let inside = uverbs_vm::guest::inside();
    match args.first().and_then(|a| a.to_str()) {
        // These change the machine they run on, so they are unknown anywhere but in the guest.
        Some(uverbs_vm::guest::CASE_ARG) if inside => uverbs_vm::guest::case::main(args.get(1)),
        Some(uverbs_vm::guest::PART_ARG) if inside => uverbs_vm::cases::parts::main(args.get(1)),
        Some(uverbs_vm::guest::DEMO_ARG) if inside => uverbs_vm::demo::run(args.get(1)),
        Some(uverbs_vm::guest::BENCH_ARG) if inside => {
            uverbs_vm::bench::guest::main(args.get(1..).unwrap_or_default())
        }
        Some(uverbs_vm::guest::BENCH_START_ARG) if inside => {
            uverbs_vm::bench::guest::start_when_told(args.get(1..).unwrap_or_default())
        }
        Some(uverbs_vm::host::qemu::SHIM_ARG) => uverbs_vm::host::qemu::shim(&args),
        _ => uverbs_vm::host::cli::main(args),
    }
}

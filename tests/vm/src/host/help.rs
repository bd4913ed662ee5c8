//! The words of `--help`.
//!
//! Must never promise what the command does not do.

/// The help of a command; of the whole for an empty name.
pub fn text(command: &str) -> &'static str {
    match command {
        "setup" => SETUP,
        "run" => RUN,
        "demo" => DEMO,
        "bench" => BENCH,
        "test" => TEST,
        _ => ALL,
    }
}

const ALL: &str = "\
runs RDMA programs against the kernel's own rdma_rxe in a virtual machine, with no hardware.

  cargo vm setup                     prepare: the compiler's target, the emulator, a kernel
  cargo vm run -- PROGRAM [ARGS]     run a program of this system in the guest
  cargo vm demo                      show uverbs at work in the guest
  cargo vm bench                     compare with C in the guest, number by number
  cargo vm test [-- ARGS]            run all tests, those in the guest included

each does the set-up first where it is missing. `cargo vm COMMAND --help` tells more.

environment:
  UVERBS_VM_CACHE    folder for kernels and all else (default: uverbs-vm in the user's cache)
  UVERBS_VM_KERNEL   line of kernels to use: 6.12 (default), 6.1, newest
  UVERBS_KERNEL      folder of a kernel of your own: boot/vmlinuz-RELEASE, lib/modules/RELEASE
  UVERBS_VM_ACCEL    kvm or tcg; by itself the tool tries KVM once and remembers
  UVERBS_VM          for tests: auto (default), require, off
";

const SETUP: &str = "\
cargo vm setup [--kernel LINE,…] [--refresh]

prepares: adds the compiler's musl target, installs qemu-system-x86 where it is missing (as root on
a Debian-like system; elsewhere it says what to do), unpacks kernels into the cache, and builds the
test-only kernel modules there. nothing else of the system is changed. the second time it does
nothing.

  --kernel LINE,…   lines of kernels: 6.12 (default), 6.1, newest; with -arm64 behind it, a kernel,
                    a target and an emulator for 64-bit ARM
  --refresh         look for newer kernels of these lines

examples:
  cargo vm setup
  cargo vm setup --kernel 6.1,6.12,newest
";

const RUN: &str = "\
cargo vm run [OPTIONS] -- PROGRAM [ARGUMENTS]

boots a guest with two RDMA devices and runs a program of this system in it. rxe0 (10.0.0.1,
fd00::1) and rxe1 (10.0.0.2, fd00::2) are the two ends of one wire. the program may be static, or
dynamic: its shared objects are taken along. standard input, output and error are passed through,
and the exit status is the program's.

  --kernel LINE       line of kernels: 6.12 (default), 6.1, newest
  --smp N             processors (2)
  --mem MIB           memory in MiB (1024)
  --share FOLDER      show a folder of this system in the guest, read-only, at /share
  --with SRC[=DST]    take a file or a folder along, with the shared objects it needs; again for more
  --env NAME[=VALUE]  set a variable for the program; without a value, as it is set here
  --timeout S         kill it after so many seconds (600; 0: never)
  --console FILE      leave a copy of the kernel's console in a file

exit status: the program's own; 128 and the signal's number if a signal ended it; 124 after the
time-out; 125 if the guest died or could not be made; 126 and 127 if the program cannot be started
or found; 2 if the command line is wrong.

`busybox` is always at hand as a program and as the guest's /bin/sh.

examples:
  cargo vm run -- busybox sh -c 'cat /sys/class/infiniband/*/node_type'
  cargo vm run -- ./target/x86_64-unknown-linux-musl/debug/mine --device rxe0
  cargo vm run --with /usr/lib/x86_64-linux-gnu/libibverbs --with /etc/libibverbs.d -- ibv_devinfo
  cargo vm run --share . -- busybox ls /share
";

const DEMO: &str = "\
cargo vm demo [--kernel LINE] [--smp N] [--mem MIB] [--timeout S] [--console FILE]

boots a guest and shows uverbs at work in it: one static program, no shared object, no C. its last
line is `demo: passed` or `demo: failed (why)`, and the exit status says the same.

example:
  cargo vm demo
";

const BENCH: &str = "\
cargo vm bench [--only GROUP,…] [--json FILE] [--markdown FILE] [--clock host|instructions] [--kernel LINE]
               [--smp N] [--mem MIB] [--timeout S] [--console FILE]

boots one guest in which C (Debian's rdma-core) and Rust do the same work in turn on the same devices,
and prints a table of both. needs a C compiler on this system. without --only it takes up to
15 minutes; by the host's clock fewer samples are taken where time runs short. a group that fails takes
no other with it.

  --only GROUP,…    instructions  user-space instructions of a call, counted one by one
                    size          memory and files of a ping-pong, calls of the heap
                    bring-up      from exec to RTS; objects made and unmade; 10,000 queue pairs
                    events        being told of an event, with up to 100,000 objects alive
                    traffic       latency and rate, by polling and by events
                  and, where they are named only, of the crates ibverbs, sideway and this one:
                    rust-builds   building each from nothing, twice; dependencies; no guest
                    rust-peers    instructions of a call; memory and files of a program
  --json FILE       leave the records in a file: an array of {row, form, c, rust, ratio, unit, …}
  --markdown FILE   leave the table in a file
  --clock CLOCK     instructions  the guest has one processor, and its clock goes on by a nanosecond with each
                                  instruction, the kernel's among them: next to no noise. so it is by itself
                                  where the guest is emulated (UVERBS_VM_ACCEL=tcg: also where KVM works)
                    host          it goes by the host's time
  --kernel LINE     line of kernels: 6.12 (default), 6.1, newest
  --smp N           processors by the host's clock (2)
  --mem MIB         memory in MiB (4096)
  --timeout S       kill it after so many seconds (900; 0: never)

exit status: 0 if all that was asked for was measured, whatever came out; 1 if not; 125 if the guest died
or could not be made; 2 if the command line is wrong.

examples:
  cargo vm bench
  cargo vm bench --only instructions --json counts.json
  cargo vm bench --only rust-builds,rust-peers
";

const TEST: &str = "\
cargo vm test [--kernel LINE,…] [--full]

runs every test there is, each layer once: unit, golden, layout, fake kernel, property, doc and
compile-fail tests, the loom models, and the cases in the guest on each kernel. does the set-up
first. the last line is `N passed, N failed, N ignored`; a layer that could not run has failed.

  --kernel LINE,…   lines of kernels, each in full: 6.1, 6.12, newest, 6.12-arm64, …
                    (default: 6.12 in full, and of newest the cases that hang on the kernel)
  --full            the long cases in full, not a sample of them

for a part of it: cargo test -p uverbs-vm --test vm rc::
";

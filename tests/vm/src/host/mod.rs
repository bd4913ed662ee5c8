//! What runs on the host: preparing, packing, booting, and speaking with the guest.

pub mod accel;
pub mod apt;
pub mod build;
pub mod cache;
pub mod cli;
pub mod cpio;
pub mod drive;
pub mod elf;
pub mod headers;
pub mod help;
pub mod initrd;
pub mod kernel;
pub mod kmods;
pub mod libs;
pub mod mirrors;
pub mod options;
pub mod packages;
pub mod payload;
pub mod process;
pub mod qemu;
pub mod report;
pub mod run;
pub mod session;
pub mod setup;
pub mod suite;

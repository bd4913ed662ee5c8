//! `cargo vm bench`: C and Rust doing the same work in turn, in one guest, on one device.
//!
//! The two twins (`tests/vm/peers` in C, `uverbs-twin` of `tests/tools` in Rust) do what they are told
//! and say numbers; the controller in [`guest`] tells them, in turn, and makes a [`Record`] of each row;
//! the host puts the records into a table. Must never compare numbers of two boots.

pub mod clock;
pub mod goal;
pub mod guest;
pub mod interval;
pub mod record;
pub mod stats;
pub mod table;

pub use clock::Clock;
pub use interval::Interval;
pub use record::{Form, Group, Record};
pub use stats::Summary;

/// Where the twins and the ping-pongs are in the guest.
pub const FOLDER: &str = "/bench";
/// The C twin.
pub const C_TWIN: &str = "/bench/c-twin";
/// The bring-up with the kernel's part alone.
pub const C_LIMIT: &str = "/bench/c-limit";
/// The Rust twin.
pub const RUST_TWIN: &str = "/bench/rust-twin";
/// The bring-up of the Rust twin, without the standard library's start.
pub const RUST_NO_MAIN: &str = "/bench/rust-no-main";
/// The ping-pong of this workspace.
pub const RUST_PINGPONG: &str = "/bench/rust-pingpong";
/// rdma-core's ping-pong.
pub const C_PINGPONG: &str = "/usr/bin/ibv_rc_pingpong";
/// The program that makes the dynamic linker's cache.
pub const LDCONFIG: &str = "/usr/sbin/ldconfig";
/// Where the programs of the Rust peers are, by the crate's name.
pub const RUST_PEERS: &str = "/bench/rust-peers";
/// The Rust crates that are compared, this project's last.
pub const CRATES: [&str; 3] = ["ibverbs", "sideway", "uverbs"];

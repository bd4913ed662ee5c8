//! The virtual machine in which uverbs is tried against the kernel's own `rdma_rxe`.
//!
//! One executable plays both parts. On the host it prepares a kernel and an emulator, packs itself
//! into an initramfs, boots it and speaks with it. As process 1 of the guest it makes the RDMA
//! devices and runs what the host asks for. What the two say to each other is in [`protocol`].
//!
//! This crate must never put anything into the host's system outside its cache folder, apart from
//! the emulator's package (and that only as root), and must never pass silently when something is
//! missing.

pub mod bench;
pub mod cases;
pub mod demo;
pub mod guest;
pub mod host;
pub mod protocol;

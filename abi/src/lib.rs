//! The kernel's side of RDMA verbs: what the bytes of the uverbs ABI look like, and how to hand
//! them over.
//!
//! | module | what it is | needs |
//! |---|---|---|
//! | [`layout`] | structures and numbers, named as in the kernel's headers | `core` |
//! | [`command`] | one ioctl command: typed attributes in, typed reply out | `std` |
//! | [`legacy`] | the older `write()` framing, kept for the doorbell | `std` |
//! | [`kernel`] | [`Kernel`], the seam between us and the device node | `std` |
//! | [`netlink`] | asking the kernel which devices there are | `std` |
//! | [`report`] | the long form of an error, and what all errors can say | `std` |
//! | [`session`] | one open device: whose process, which driver, still there? | `std` |
//! | [`sys`] | the system calls themselves; the one place here with `unsafe` | `std` |
//!
//! With `default-features = false` only [`layout`] is left, and the crate is `no_std`.
//!
//! This crate knows nothing of queue pairs as objects, of rings or of any driver's fast path; it
//! must never depend on the crates above it.

#![cfg_attr(not(feature = "std"), no_std)]

pub mod layout;

#[cfg(feature = "std")]
pub mod command;
#[cfg(feature = "std")]
#[doc(hidden)]
pub mod count;
#[cfg(feature = "std")]
pub mod errno;
#[cfg(feature = "std")]
pub mod error;
#[cfg(feature = "std")]
pub mod kernel;
#[cfg(feature = "std")]
pub mod legacy;
#[cfg(feature = "std")]
pub mod mapping;
#[cfg(feature = "std")]
pub mod netlink;
#[cfg(feature = "std")]
pub mod report;
#[cfg(feature = "std")]
pub mod session;
#[cfg(feature = "std")]
pub mod sys;

#[cfg(feature = "std")]
pub use self::{
    command::{Command, Reply},
    errno::Errno,
    error::{Cause, CommandError},
    kernel::{IoctlOnly, Kernel},
    mapping::Mapping,
    report::{Explain, Note, Report},
    session::Session,
};

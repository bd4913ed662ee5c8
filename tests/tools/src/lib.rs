//! What uverbs is measured with.
//!
//! [`count`] counts the instructions that a program executes between two marks, exactly, by
//! executing them one at a time. It works on any program that follows its small protocol, in
//! whatever language that is written.
//!
//! [`bring_up`] is what is timed from a program's start on.
//!
//! `quiet`, with the feature `count`, is the kernel that it is counted on without a device.

pub mod bring_up;
pub mod count;
#[cfg(feature = "count")]
pub mod quiet;

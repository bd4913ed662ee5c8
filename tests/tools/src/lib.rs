//! What uverbs is measured with.
//!
//! [`count`] counts the instructions that a program executes between two marks, exactly, by
//! executing them one at a time. It works on any program that follows its small protocol, in
//! whatever language that is written.

pub mod count;

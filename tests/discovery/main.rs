//! Discovery on made-up machines: netlink is played, `/sys` and `/dev` are folders.
//!
//! The nodes are links to character devices that every machine has (`/dev/null` and its kind), so
//! that "opened" can be seen: what fails then is the first ioctl.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod kernel;
mod machine;

mod identity;
mod listing;
mod messages;
mod nodes;

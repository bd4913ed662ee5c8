//! What is looked up after something has failed, so that the error can say what stands in the way.
//!
//! Nothing here runs before a failure. A look-up that fails itself leaves its finding out: an error
//! then says less, and never something else. What is outside of the device (interfaces, routes,
//! neighbours) is looked at only for devices that were opened from their node: a kernel that a test
//! plays has no business with the machine's network.

mod elements;
mod memory;
mod net;
mod node;
mod path;
mod wc;

pub use memory::MemoryFinding;
pub(crate) use memory::{locked, look as memory};
pub(crate) use node::rights;
pub use path::PathFinding;
pub(crate) use path::look as path;

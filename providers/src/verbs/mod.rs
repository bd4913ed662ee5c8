//! The kernel's half of each verb: one command each, written once for all drivers. A driver adds
//! its own part as bytes (`uhw`), without either half knowing the other's size.
//!
//! Ground truth: `ib_user_verbs.h`, `ib_user_ioctl_cmds.h` and the kernel's `uverbs_std_types_*.c`.
//! The ioctl methods are used where there are any; the rest are `write()` commands carried by the
//! ioctl INVOKE_WRITE. Nothing here keeps state.

pub mod context;
pub mod cq;
pub mod mr;
pub mod pd;
pub mod qp;
pub mod srq;
pub mod wq;

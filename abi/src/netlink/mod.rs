//! Asking the kernel over netlink: what RDMA devices there are, without sysfs.
//!
//! | module | what it is |
//! |---|---|
//! | [`message`] | builds requests, takes answers apart; bytes only |
//! | [`client`] | one request, all of its answers: sequence numbers, refusals, interrupted lists |
//! | [`socket`] | the socket itself, with a time limit |
//! | [`nldev`] | the RDMA subsystem's requests, and what they answer, typed |
//!
//! Ground truth: `linux/netlink.h`, `rdma/rdma_netlink.h`; `drivers/infiniband/core/nldev.c` and
//! `net/netlink/af_netlink.c` for what is answered when. Nothing here trusts a length that was
//! received.

pub mod client;
pub mod message;
pub mod nldev;
pub mod socket;

pub use self::{
    client::{Answer, Client, NetlinkError, Payloads, Transport},
    message::{Message, attributes},
    socket::{Protocol, Socket},
};

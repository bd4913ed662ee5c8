//! Netlink in the guest: what the crate under test has, for rtnetlink too, with answers as bytes.

use std::io;

use nix::sys::socket::SockProtocol;
use uverbs::abi::netlink::{self, Client, Protocol};

pub use uverbs::abi::layout::netlink::{
    NLM_F_ACK as ACK, NLM_F_CREATE as CREATE, NLM_F_DUMP as DUMP, NLM_F_EXCL as EXCL,
    NLM_F_REPLACE as REPLACE,
};
pub use uverbs::abi::netlink::{Message, attributes};

/// A netlink socket that asks and waits for the answer.
#[derive(Debug)]
pub struct Socket {
    client: Client<netlink::Socket>,
}

impl Socket {
    /// Opens a socket of this protocol: `NetlinkRoute` or `NetlinkRDMA`.
    pub fn open(protocol: SockProtocol) -> io::Result<Self> {
        let protocol = match protocol {
            SockProtocol::NetlinkRoute => Protocol::Route,
            SockProtocol::NetlinkRDMA => Protocol::Rdma,
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        let client = Client::open(protocol)?;
        Ok(Self { client })
    }

    /// Sends a request and gives back the payloads of all answers to it.
    pub fn ask(&mut self, message: Message) -> io::Result<Vec<Vec<u8>>> {
        let answer = self.client.ask(&message)?;
        Ok(answer.payloads().map(<[u8]>::to_vec).collect())
    }
}

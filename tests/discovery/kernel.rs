//! The kernel's half of RDMA netlink, as `drivers/infiniband/core/nldev.c` answers.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use uverbs::abi::layout::netlink::*;
use uverbs::abi::netlink::Transport;
use uverbs::abi::netlink::message::{HEADER, Message, attributes, number, parts};

use crate::machine::Dev;

const GET: u16 = rdma_nl_get_type(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET);
const CHARDEV: u16 = rdma_nl_get_type(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET_CHARDEV);
const SYS: u16 = rdma_nl_get_type(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_SYS_GET);
/// Devices in one datagram of a list.
const IN_ONE: usize = 30;

/// How this netlink behaves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Netlink {
    /// The socket cannot be made, with this number.
    pub(crate) closed: Option<i32>,
    /// Requests are refused with this number.
    pub(crate) refuses: Option<i32>,
    /// Answers are not sent.
    pub(crate) is_silent: bool,
    /// Answers are cut short by so many bytes.
    pub(crate) cut: usize,
    /// The device that is listed first is gone when it is asked about.
    pub(crate) loses_first: bool,
    /// Devices belong to one network namespace each.
    pub(crate) is_exclusive: bool,
}

impl Netlink {
    pub(crate) fn socket(self, devices: Arc<Mutex<Vec<Dev>>>) -> Socket {
        Socket {
            netlink: self,
            devices,
            queue: VecDeque::new(),
        }
    }
}

pub(crate) struct Socket {
    netlink: Netlink,
    devices: Arc<Mutex<Vec<Dev>>>,
    queue: VecDeque<Vec<u8>>,
}

impl Transport for Socket {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let request = parts(message).next().unwrap();
        let (kind, seq) = (request.header.nlmsg_type, request.header.nlmsg_seq);
        let find = |wanted: u16| attributes(request.payload).find(|(kind, _)| *kind == wanted);
        let index = find(RDMA_NLDEV_ATTR_DEV_INDEX).and_then(|(_, value)| number(value));
        let devices = self.devices.lock().unwrap().clone();
        let found = devices.iter().find(|d| Some(u64::from(d.index)) == index);
        let mut answers = Vec::new();
        if let Some(errno) = self.netlink.refuses {
            answers.push(refusal(seq, errno));
        } else if kind == SYS {
            let mode = [u8::from(!self.netlink.is_exclusive)];
            let body = Message::new(SYS, 0).attr(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, &mode);
            answers.push(body.to_bytes(seq));
        } else if kind == GET && request.header.nlmsg_flags & NLM_F_DUMP == NLM_F_DUMP {
            let mut all: Vec<_> = devices
                .iter()
                .map(|d| device(d, NLM_F_MULTI).to_bytes(seq))
                .collect();
            all.push(
                Message::new(NLMSG_DONE, NLM_F_MULTI)
                    .body(&[0; 4])
                    .to_bytes(seq),
            );
            answers.extend(all.chunks(IN_ONE).map(<[_]>::concat));
        } else {
            let is_lost =
                self.netlink.loses_first && found.is_some_and(|d| d.index == devices[0].index);
            let answer = match found.filter(|_| !is_lost) {
                None => refusal(seq, libc::EINVAL),
                Some(found) if kind == GET => device(found, 0).to_bytes(seq),
                Some(found) if kind == CHARDEV && found.has_uverbs => chardev(found).to_bytes(seq),
                Some(_) => refusal(seq, libc::EOPNOTSUPP),
            };
            answers.push(answer);
        }
        if !self.netlink.is_silent {
            for mut answer in answers {
                answer.truncate(answer.len().saturating_sub(self.netlink.cut));
                self.queue.push_back(answer);
            }
        }
        Ok(())
    }

    fn receive(&mut self, datagram: &mut Vec<u8>) -> io::Result<()> {
        *datagram = self.queue.pop_front().ok_or(io::ErrorKind::TimedOut)?;
        Ok(())
    }
}

fn refusal(seq: u32, errno: i32) -> Vec<u8> {
    let body = [(-errno).to_ne_bytes().to_vec(), vec![0; HEADER]].concat();
    Message::new(NLMSG_ERROR, 0).body(&body).to_bytes(seq)
}

fn device(device: &Dev, flags: u16) -> Message {
    Message::new(GET, flags)
        .number(RDMA_NLDEV_ATTR_DEV_INDEX, device.index)
        .text(RDMA_NLDEV_ATTR_DEV_NAME, &device.name)
        .number(RDMA_NLDEV_ATTR_PORT_INDEX, 1)
        .text(RDMA_NLDEV_ATTR_FW_VERSION, "")
        .attr(
            RDMA_NLDEV_ATTR_NODE_GUID,
            &u64::from_be_bytes(device.guid()).to_ne_bytes(),
        )
        .attr(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, &[RDMA_NODE_IB_CA])
        .text(RDMA_NLDEV_ATTR_DEV_PROTOCOL, "roce")
}

fn chardev(device: &Dev) -> Message {
    let (major, minor) = device.number;
    // The kernel's `huge_encode_dev`.
    let packed = u64::from((minor & 0xFF) | (major << 8) | ((minor & !0xFF) << 12));
    Message::new(CHARDEV, 0)
        .number(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, 14)
        .attr(RDMA_NLDEV_ATTR_CHARDEV, &packed.to_ne_bytes())
        .attr(
            RDMA_NLDEV_ATTR_CHARDEV_ABI,
            &u64::from(device.abi).to_ne_bytes(),
        )
        .text(RDMA_NLDEV_ATTR_CHARDEV_NAME, &device.uverbs)
}

//! Netlink: the headers of its messages, and the numbers of the RDMA device netlink, by which
//! devices, links and their character devices are found.
//!
//! Ground truth: `linux/netlink.h`, `rdma/rdma_netlink.h`. Only what discovery and link set-up use
//! is here. Building and parsing messages is done elsewhere.

kernel_struct! {
    /// Stands before every message. Messages begin at multiples of 4 bytes.
    pub struct nlmsghdr, size 16, align 4 {
        /// Length of the message in bytes, header included, padding not.
        [0] pub nlmsg_len: u32,
        /// What it is: `NLMSG_…` below 16, else the protocol's.
        [4] pub nlmsg_type: u16,
        /// `NLM_F_…`.
        [6] pub nlmsg_flags: u16,
        /// Chosen by who asks; the answer has the same.
        [8] pub nlmsg_seq: u32,
        /// Address of the sender's socket; 0 is the kernel.
        [12] pub nlmsg_pid: u32,
    }
}

kernel_struct! {
    /// Stands before the value of an attribute. Attributes begin at multiples of 4 bytes.
    pub struct nlattr, size 4, align 2 {
        /// Length in bytes, header included, padding not.
        [0] pub nla_len: u16,
        /// What it is, below the bits `NLA_F_…`.
        [2] pub nla_type: u16,
    }
}

kernel_struct! {
    /// Payload of [`NLMSG_ERROR`]. Unless it was capped, the payload of the request follows.
    pub struct nlmsgerr, size 20, align 4 {
        /// 0 for an ack, or the error number, negative.
        [0] pub error: i32,
        /// Header of the request.
        [4] pub msg: nlmsghdr,
    }
}

/// Nothing.
pub const NLMSG_NOOP: u16 = 1;
/// A refusal or, with error 0, an ack: [`nlmsgerr`].
pub const NLMSG_ERROR: u16 = 2;
/// The end of a list.
pub const NLMSG_DONE: u16 = 3;
/// Messages were lost.
pub const NLMSG_OVERRUN: u16 = 4;

/// A request.
pub const NLM_F_REQUEST: u16 = 0x1;
/// One of several; [`NLMSG_DONE`] comes at the end.
pub const NLM_F_MULTI: u16 = 0x2;
/// The kernel shall say how it went.
pub const NLM_F_ACK: u16 = 0x4;
/// What is listed changed while it was listed.
pub const NLM_F_DUMP_INTR: u16 = 0x10;
/// Of a request for data: list all.
pub const NLM_F_DUMP: u16 = 0x300;
/// Of a request for a change: put in the place of what is there.
pub const NLM_F_REPLACE: u16 = 0x100;
/// Of a request for a change: fail if it is there.
pub const NLM_F_EXCL: u16 = 0x200;
/// Of a request for a change: make it if it is not there.
pub const NLM_F_CREATE: u16 = 0x400;
/// Of [`NLMSG_ERROR`]: the request's payload was left out.
pub const NLM_F_CAPPED: u16 = 0x100;
/// Of [`NLMSG_ERROR`]: attributes follow.
pub const NLM_F_ACK_TLVS: u16 = 0x200;

/// Attribute of a refusal: its reason, string.
pub const NLMSGERR_ATTR_MSG: u16 = 1;

/// Protocol of the netlink socket.
pub const NETLINK_RDMA: i32 = 20;

/// Client that speaks about devices.
pub const RDMA_NL_NLDEV: u16 = 5;

/// Multicast group of device notices. Since 6.12.
pub const RDMA_NL_GROUP_NOTIFY: u32 = 4;

/// Message type of operation `op` of client `client`.
#[must_use]
pub const fn rdma_nl_get_type(client: u16, op: u16) -> u16 {
    (client << 10) | (op & 0x3FF)
}

/// The operation in a message type.
#[must_use]
pub const fn rdma_nl_get_op(nlmsg_type: u16) -> u16 {
    nlmsg_type & 0x3FF
}

/// The client in a message type.
#[must_use]
pub const fn rdma_nl_get_client(nlmsg_type: u16) -> u16 {
    (nlmsg_type >> 10) & 0x3F
}

/// A device, or (dump) all of them.
pub const RDMA_NLDEV_CMD_GET: u16 = 1;
/// Changes a device: name, namespace.
pub const RDMA_NLDEV_CMD_SET: u16 = 2;
/// Makes a software device on a network interface (`rdma link add`).
pub const RDMA_NLDEV_CMD_NEWLINK: u16 = 3;
/// Removes a software device (`rdma link delete`).
pub const RDMA_NLDEV_CMD_DELLINK: u16 = 4;
/// A port, or (dump) all ports of a device.
pub const RDMA_NLDEV_CMD_PORT_GET: u16 = 5;
/// Settings of the whole subsystem.
pub const RDMA_NLDEV_CMD_SYS_GET: u16 = 6;
/// Changes settings of the whole subsystem.
pub const RDMA_NLDEV_CMD_SYS_SET: u16 = 7;
/// How many objects of each kind exist.
pub const RDMA_NLDEV_CMD_RES_GET: u16 = 9;
/// Queue pairs.
pub const RDMA_NLDEV_CMD_RES_QP_GET: u16 = 10;
/// Completion queues.
pub const RDMA_NLDEV_CMD_RES_CQ_GET: u16 = 12;
/// Memory regions.
pub const RDMA_NLDEV_CMD_RES_MR_GET: u16 = 13;
/// Protection domains.
pub const RDMA_NLDEV_CMD_RES_PD_GET: u16 = 14;
/// The character device of a device: name, number, ABI, driver id.
pub const RDMA_NLDEV_CMD_GET_CHARDEV: u16 = 15;
/// User contexts.
pub const RDMA_NLDEV_CMD_RES_CTX_GET: u16 = 22;
/// Shared receive queues.
pub const RDMA_NLDEV_CMD_RES_SRQ_GET: u16 = 23;
/// A notice of the monitor group. Since 6.12.
pub const RDMA_NLDEV_CMD_MONITOR: u16 = 28;

/// Index of a device, u32.
pub const RDMA_NLDEV_ATTR_DEV_INDEX: u16 = 1;
/// Name of a device, string.
pub const RDMA_NLDEV_ATTR_DEV_NAME: u16 = 2;
/// Port, or the number of ports, u32.
pub const RDMA_NLDEV_ATTR_PORT_INDEX: u16 = 3;
/// Firmware version, string.
pub const RDMA_NLDEV_ATTR_FW_VERSION: u16 = 5;
/// GUID of the node, u64 in host order.
pub const RDMA_NLDEV_ATTR_NODE_GUID: u16 = 6;
/// GUID of the system, u64 in host order.
pub const RDMA_NLDEV_ATTR_SYS_IMAGE_GUID: u16 = 7;
/// Logical state of a port, u8.
pub const RDMA_NLDEV_ATTR_PORT_STATE: u16 = 12;
/// Physical state of a port, u8.
pub const RDMA_NLDEV_ATTR_PORT_PHYS_STATE: u16 = 13;
/// Kind of node, u8.
pub const RDMA_NLDEV_ATTR_DEV_NODE_TYPE: u16 = 14;
/// How many objects of each kind there are: entries.
pub const RDMA_NLDEV_ATTR_RES_SUMMARY: u16 = 15;
/// An entry of the summary: name and count.
pub const RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY: u16 = 16;
/// Kind of object, string: `pd`, `cq`, `qp`, …
pub const RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME: u16 = 17;
/// How many, u64.
pub const RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR: u16 = 18;
/// Number of a queue pair, u32.
pub const RDMA_NLDEV_ATTR_RES_LQPN: u16 = 21;
/// Index of the network interface, u32.
pub const RDMA_NLDEV_ATTR_NDEV_INDEX: u16 = 50;
/// Name of the network interface, string.
pub const RDMA_NLDEV_ATTR_NDEV_NAME: u16 = 51;
/// Number of a completion queue, u32.
pub const RDMA_NLDEV_ATTR_RES_CQN: u16 = 61;
/// Kind of software device to make, string: `rxe`, `siw`.
pub const RDMA_NLDEV_ATTR_LINK_TYPE: u16 = 65;
/// Protocol of a device, string: `roce`, `iw`, `ib`.
pub const RDMA_NLDEV_ATTR_DEV_PROTOCOL: u16 = 67;
/// Kind of character device asked for, string: `uverbs`.
pub const RDMA_NLDEV_ATTR_CHARDEV_TYPE: u16 = 69;
/// Name of the character device, string.
pub const RDMA_NLDEV_ATTR_CHARDEV_NAME: u16 = 70;
/// ABI version of the character device, u64.
pub const RDMA_NLDEV_ATTR_CHARDEV_ABI: u16 = 71;
/// Device number of the character device, u64.
pub const RDMA_NLDEV_ATTR_CHARDEV: u16 = 72;
/// Driver id of a uverbs device, u32; absent for some drivers.
pub const RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID: u16 = 73;
/// Number of a shared receive queue, u32.
pub const RDMA_NLDEV_ATTR_RES_SRQN: u16 = 90;
/// Whether network namespaces share all devices, u8: 0 exclusive, 1 shared.
pub const RDMA_NLDEV_SYS_ATTR_NETNS_MODE: u16 = 66;
/// File descriptor of the network namespace that a device moves to, u32.
pub const RDMA_NLDEV_NET_NS_FD: u16 = 68;
/// What a notice is about, u8: `RDMA_…_EVENT`. Since 6.12.
pub const RDMA_NLDEV_ATTR_EVENT_TYPE: u16 = 102;

/// Kind of node: InfiniBand or RoCE channel adapter.
pub const RDMA_NODE_IB_CA: u8 = 1;
/// Kind of node: InfiniBand switch.
pub const RDMA_NODE_IB_SWITCH: u8 = 2;
/// Kind of node: InfiniBand router.
pub const RDMA_NODE_IB_ROUTER: u8 = 3;
/// Kind of node: iWARP adapter.
pub const RDMA_NODE_RNIC: u8 = 4;
/// Kind of node: Cisco usNIC.
pub const RDMA_NODE_USNIC: u8 = 5;
/// Kind of node: Cisco usNIC over UDP.
pub const RDMA_NODE_USNIC_UDP: u8 = 6;
/// Kind of node: none of the others.
pub const RDMA_NODE_UNSPECIFIED: u8 = 7;

/// A device appeared. Since 6.12.
pub const RDMA_REGISTER_EVENT: u8 = 0;
/// A device went away. Since 6.12.
pub const RDMA_UNREGISTER_EVENT: u8 = 1;
/// A network interface was attached to a port. Since 6.12.
pub const RDMA_NETDEV_ATTACH_EVENT: u8 = 2;
/// A network interface was detached from a port. Since 6.12.
pub const RDMA_NETDEV_DETACH_EVENT: u8 = 3;
/// A device was renamed. Since 7.3.
pub const RDMA_RENAME_EVENT: u8 = 4;
/// The network interface of a port was renamed. Since 7.3.
pub const RDMA_NETDEV_RENAME_EVENT: u8 = 5;

//! Numbers of the RDMA device netlink: how devices, links and their character devices are found.
//!
//! Ground truth: `rdma/rdma_netlink.h`. Only what discovery and link set-up use is here. Numbers
//! only; building and parsing messages is done elsewhere.

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
/// What a notice is about, u8: `RDMA_…_EVENT`. Since 6.12.
pub const RDMA_NLDEV_ATTR_EVENT_TYPE: u16 = 102;

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

//! Records read from the asynchronous event file and from a completion channel.
//!
//! Ground truth: `rdma/ib_user_verbs.h` for the records, `enum ib_event_type` of `ib_verbs.h` for
//! the numbers. One `read()` gives at most one record; unknown numbers pass through unchanged.

kernel_struct! {
    /// One asynchronous event, as read from the event file.
    pub struct ib_uverbs_async_event_desc, size 16, align 8 {
        /// User handle of the object the event is about; the port number for port events; zero
        /// for the device.
        [0] pub element: u64,
        /// `IB_EVENT_…`.
        [8] pub event_type: u32,
        /// Zero.
        [12] pub reserved: u32,
    }
}

kernel_struct! {
    /// One completion event, as read from a completion channel.
    pub struct ib_uverbs_comp_event_desc, size 8, align 8 {
        /// User handle of the completion queue.
        [0] pub cq_handle: u64,
    }
}

/// A completion queue overran or broke. Element: the CQ.
pub const IB_EVENT_CQ_ERR: u32 = 0;
/// A queue pair broke in a way that no completion reports. Element: the QP.
pub const IB_EVENT_QP_FATAL: u32 = 1;
/// The responder met an invalid request. Element: the QP.
pub const IB_EVENT_QP_REQ_ERR: u32 = 2;
/// The responder met an access violation. Element: the QP.
pub const IB_EVENT_QP_ACCESS_ERR: u32 = 3;
/// First packet received before the QP was ready to send. Element: the QP.
pub const IB_EVENT_COMM_EST: u32 = 4;
/// The send queue has drained after a move to SQD. Element: the QP.
pub const IB_EVENT_SQ_DRAINED: u32 = 5;
/// The connection moved to its alternate path. Element: the QP.
pub const IB_EVENT_PATH_MIG: u32 = 6;
/// The connection failed to move to its alternate path. Element: the QP.
pub const IB_EVENT_PATH_MIG_ERR: u32 = 7;
/// The device is gone or beyond repair. Element: zero.
pub const IB_EVENT_DEVICE_FATAL: u32 = 8;
/// The port became active. Element: the port.
pub const IB_EVENT_PORT_ACTIVE: u32 = 9;
/// The port went down. Element: the port.
pub const IB_EVENT_PORT_ERR: u32 = 10;
/// The port's local id changed. Element: the port.
pub const IB_EVENT_LID_CHANGE: u32 = 11;
/// The port's partition keys changed. Element: the port.
pub const IB_EVENT_PKEY_CHANGE: u32 = 12;
/// The subnet manager changed. Element: the port.
pub const IB_EVENT_SM_CHANGE: u32 = 13;
/// A shared receive queue broke. Element: the SRQ.
pub const IB_EVENT_SRQ_ERR: u32 = 14;
/// A shared receive queue fell below its armed limit. Element: the SRQ.
pub const IB_EVENT_SRQ_LIMIT_REACHED: u32 = 15;
/// A QP in error has taken its last entry from its SRQ. Element: the QP.
pub const IB_EVENT_QP_LAST_WQE_REACHED: u32 = 16;
/// The subnet manager asks clients to register anew. Element: the port.
pub const IB_EVENT_CLIENT_REREGISTER: u32 = 17;
/// The port's GID table changed. Element: the port.
pub const IB_EVENT_GID_CHANGE: u32 = 18;
/// A work queue broke. Element: the WQ.
pub const IB_EVENT_WQ_FATAL: u32 = 19;
/// The speed of the device's ports changed: ask each of them. Element: 0. Since 7.3.
pub const IB_EVENT_DEVICE_SPEED_CHANGE: u32 = 20;

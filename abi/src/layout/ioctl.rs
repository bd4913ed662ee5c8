//! The frame of a uverbs ioctl: one header, then an array of attributes.
//!
//! Ground truth: `rdma/rdma_user_ioctl_cmds.h` and `rdma/ib_user_ioctl_cmds.h`.
//! This file never knows which method takes which attribute; that is `ids`.
//!
//! ```text
//! 0        2          4          6          8           16         20         24
//! | length | object_id| method_id| num_attrs| reserved1 | driver_id| reserved2| attr[0] (16) …
//!
//! 0        2     4       6         8                 16
//! | attr_id| len | flags | attr_data| data            |
//! ```

/// The only request number that the uverbs device answers: `_IOWR(0x1b, 1, header)`.
pub const RDMA_VERBS_IOCTL: u32 = 0xC018_1B01;

/// Set by the caller: a kernel that does not know the attribute must refuse the call.
pub const UVERBS_ATTR_F_MANDATORY: u16 = 1;

/// Set by the kernel in the caller's array: the output was written.
pub const UVERBS_ATTR_F_VALID_OUTPUT: u16 = 2;

/// Bits of an id that name its namespace: zero for the core, one for the driver.
pub const UVERBS_ID_NS_MASK: u16 = 0xF000;

/// Position of the namespace in an id.
pub const UVERBS_ID_NS_SHIFT: u16 = 12;

/// First id of the driver's namespace: objects, methods and attributes alike.
pub const UVERBS_ID_DRIVER_NS: u16 = 0x1000;

/// Attribute with the driver's part of the request.
pub const UVERBS_ATTR_UHW_IN: u16 = 0x1000;

/// Attribute with the driver's part of the response.
pub const UVERBS_ATTR_UHW_OUT: u16 = 0x1001;

/// The longest input that travels inside `data` itself instead of behind a pointer.
pub const UVERBS_ATTR_INLINE_MAX: usize = 8;

kernel_struct! {
    /// Header of a uverbs ioctl, followed by `num_attrs` attributes.
    pub struct ib_uverbs_ioctl_hdr, size 24, align 8 {
        /// Bytes of header and attributes together: 24 + 16 × `num_attrs`, at most one page.
        [0] pub length: u16,
        /// Object class, see [`ids::object`](super::ids::object).
        [2] pub object_id: u16,
        /// Method of that class, see [`ids::method`](super::ids::method).
        [4] pub method_id: u16,
        /// Number of attributes that follow.
        [6] pub num_attrs: u16,
        /// Zero.
        [8] pub reserved1: u64,
        /// Driver the caller believes to be talking to, see [`DriverId`](super::driver::DriverId).
        [16] pub driver_id: u32,
        /// Zero.
        [20] pub reserved2: u32,
    }
}

kernel_struct! {
    /// One attribute of a uverbs ioctl.
    pub struct ib_uverbs_attr, size 16, align 8 {
        /// Which attribute of the method this is.
        [0] pub attr_id: u16,
        /// Bytes of the value; zero for object handles and file descriptors.
        [2] pub len: u16,
        /// `UVERBS_ATTR_F_…`.
        [4] pub flags: u16,
        /// Chosen element of an enumerated input, else zero.
        [6] pub elem_id: u8,
        /// Zero.
        [7] pub reserved: u8,
        /// The value itself (inputs up to 8 bytes, handles, file descriptors as a signed number)
        /// or the address of it (longer inputs, every output).
        [8] pub data: u64,
    }
}

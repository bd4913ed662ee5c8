//! What the kernel's bytes look like: structures and numbers, and nothing that acts on them.
//!
//! Ground truth: the kernel's `include/uapi/rdma` headers (and `include/rdma/ib_verbs.h` for the
//! numbers that cross the interface without being in a uapi header). `abi/tests/headers.md` says
//! which version each file was read from.
//!
//! Rules of this module:
//!
//! * Kernel names stay raw: `ib_uverbs_reg_mr`, `IB_QPS_RTS`.
//! * Every structure states size, alignment and the offset of each field, and the compiler
//!   checks them ([`kernel_struct!`](self), [`assert_layout!`](self)). Padding is spelled out as
//!   `reserved` or `pad` fields, so no byte is left undefined when a structure goes to the kernel.
//! * Structures with a 64-bit field are aligned to 8 on every machine, as the kernel's
//!   `__aligned_u64` has it, so a 32-bit program meets a 64-bit kernel with the same bytes.
//! * A union is an array of bytes here, with one structure per member beside it.
//! * A field in network byte order is an array of bytes, never an integer.
//! * "Since" names the first of the kernels read (6.1, 6.12, 7.3) that has the thing; nothing said
//!   means ≤ 6.1.
//! * Core only: no `std`, no `alloc`, no `unsafe`, no system call. Nothing here allocates or fails.

#![allow(non_camel_case_types, reason = "kernel names stay raw")]

/// Checks at compile time the size and alignment of a structure and the offset of every field.
///
/// A field left out of the list does not compile (the structure is taken apart field by field).
macro_rules! assert_layout {
    ($name:ident { size: $size:literal, align: $align:literal, $($field:ident: $off:literal),+ $(,)? }) => {
        const _: () = {
            assert!(
                ::core::mem::size_of::<$name>() == $size,
                concat!("size of ", stringify!($name))
            );
            assert!(
                ::core::mem::align_of::<$name>() == $align,
                concat!("alignment of ", stringify!($name))
            );
            $(
                assert!(
                    ::core::mem::offset_of!($name, $field) == $off,
                    concat!("offset of ", stringify!($name), ".", stringify!($field))
                );
            )+
            let _every_field_is_listed = |value: $name| {
                let $name { $($field: _),+ } = value;
            };
        };
    };
}

/// Declares a kernel structure as a table of `[offset] field: type`, and checks the table.
///
/// The structure is plain bytes in both directions: what the kernel reads must have no undefined
/// byte ([`zerocopy::IntoBytes`]), and what it writes must be valid for any bytes
/// ([`zerocopy::FromBytes`]). Its default is all zeroes.
macro_rules! kernel_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident, size $size:literal, align $align:tt {
            $( $(#[$field_meta:meta])* [$off:literal] $vis:vis $field:ident: $ty:ty, )+
        }
    ) => {
        $(#[$meta])*
        #[doc = concat!("\n\nSize ", stringify!($size), ", alignment ", stringify!($align), ".")]
        #[derive(
            Clone,
            Copy,
            Debug,
            PartialEq,
            Eq,
            ::zerocopy::FromBytes,
            ::zerocopy::IntoBytes,
            ::zerocopy::Immutable,
            ::zerocopy::KnownLayout,
        )]
        #[repr(C, align($align))]
        pub struct $name {
            $(
                $(#[$field_meta])*
                #[doc = concat!("\n\nAt byte ", stringify!($off), ".")]
                $vis $field: $ty,
            )+
        }

        impl Default for $name {
            fn default() -> Self {
                ::zerocopy::FromZeros::new_zeroed()
            }
        }

        assert_layout!($name { size: $size, align: $align, $($field: $off),+ });
    };
}

pub mod cmd;
pub mod driver;
pub mod event;
pub mod ids;
pub mod ioctl;
pub mod netlink;
pub mod rxe;
pub mod verbs;

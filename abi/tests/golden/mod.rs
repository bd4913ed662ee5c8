//! Compares a structure with bytes written by hand, field by field.

#![allow(dead_code, reason = "each test file uses its own part")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A field and its bytes.
pub(crate) type Field = (&'static str, &'static [u8]);

/// Stands for an address, each byte another.
pub(crate) const POINTER: u64 = 0x1122_3344_5566_7788;
/// [`POINTER`] as it lies in memory.
pub(crate) const POINTER_BYTES: &[u8] = &[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11];

/// Compares in both directions: the value gives these bytes, and these bytes give the value.
#[track_caller]
pub(crate) fn golden<T>(value: T, fields: &[Field])
where
    T: IntoBytes + FromBytes + Immutable + PartialEq + std::fmt::Debug,
{
    let mut rest = value.as_bytes();
    for (name, want) in fields {
        let (have, tail) = rest.split_at_checked(want.len()).unwrap_or((rest, &[]));
        assert_eq!(&have, want, "{name}");
        rest = tail;
    }
    assert!(rest.is_empty(), "{} bytes are in no field", rest.len());
    let bytes: Vec<u8> = fields
        .iter()
        .flat_map(|(_, bytes)| bytes.iter().copied())
        .collect();
    assert_eq!(T::read_from_bytes(&bytes).ok(), Some(value));
}

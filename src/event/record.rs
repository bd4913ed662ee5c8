//! The 16 bytes that one `read()` on an asynchronous event file gives, as plain data.
//!
//! Ground truth: `struct ib_uverbs_async_event_desc` in `rdma/ib_user_verbs.h`. It must never
//! guess: any other length is an error, and an element keeps all its 64 bits, since for one class
//! of events it is a port number and for another a token.

use super::AsyncEventKind;
use uverbs_abi::layout::event::ib_uverbs_async_event_desc;

/// How long a record is, in bytes.
pub(crate) const RECORD_LEN: usize = size_of::<ib_uverbs_async_event_desc>();

/// One asynchronous event as the kernel wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawEvent {
    /// The user handle of the object, the number of the port, or zero.
    pub(crate) element: u64,
    /// What happened.
    pub(crate) kind: AsyncEventKind,
}

/// Bytes that are not one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadRecord {
    /// How many bytes there were.
    pub(crate) len: usize,
}

impl RawEvent {
    /// Takes one record apart, of which `len` bytes were read.
    ///
    /// # Errors
    /// [`BadRecord`] unless those are all of it.
    #[inline(always)]
    pub(crate) const fn parse(bytes: [u8; RECORD_LEN], len: usize) -> Result<Self, BadRecord> {
        if len != RECORD_LEN {
            return Err(BadRecord { len });
        }
        let record: ib_uverbs_async_event_desc = zerocopy::transmute!(bytes);
        Ok(Self {
            element: record.element,
            kind: AsyncEventKind::from_raw(record.event_type),
        })
    }

    /// The element as a port number, if it is one: the kernel's port numbers have 32 bits in an
    /// element of 64.
    pub(crate) fn port(&self) -> Option<u32> {
        u32::try_from(self.element).ok()
    }
}

#[cfg(all(test, not(uverbs_loom)))]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(element: u64, kind: u32) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        bytes[..8].copy_from_slice(&element.to_ne_bytes());
        bytes[8..12].copy_from_slice(&kind.to_ne_bytes());
        bytes
    }

    fn parse(bytes: [u8; RECORD_LEN]) -> Result<RawEvent, BadRecord> {
        RawEvent::parse(bytes, RECORD_LEN)
    }

    #[test]
    fn every_kind_decodes_with_its_element() {
        for kind in AsyncEventKind::ALL {
            let element = 0x0123_4567_89ab_cdef;
            let parsed = parse(bytes(element, kind.raw()));
            assert_eq!(parsed, Ok(RawEvent { element, kind }));
        }
    }

    #[test]
    fn a_number_from_the_future_passes_through() {
        let parsed = parse(bytes(7, 21)).unwrap();
        assert_eq!(
            parsed,
            RawEvent {
                element: 7,
                kind: AsyncEventKind::Unknown(21)
            }
        );
    }

    #[test]
    fn only_sixteen_bytes_are_a_record() {
        for len in (0..=64).filter(|len| *len != RECORD_LEN) {
            let parsed = RawEvent::parse([0; RECORD_LEN], len);
            assert_eq!(parsed, Err(BadRecord { len }));
        }
    }

    #[test]
    fn a_port_is_a_number_of_32_bits_in_an_element_of_64() {
        let port = |element| {
            RawEvent {
                element,
                kind: AsyncEventKind::PortErr,
            }
            .port()
        };
        assert_eq!(port(1), Some(1));
        assert_eq!(port(300), Some(300));
        assert_eq!(port(u64::from(u32::MAX)), Some(u32::MAX));
        assert_eq!(port(1 << 32 | 1), None);
    }

    #[test]
    fn golden_record_of_the_kernel() {
        let port_err = if cfg!(target_endian = "little") {
            [1, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0]
        } else {
            [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 10, 0, 0, 0, 0]
        };
        let parsed = parse(port_err).unwrap();
        assert_eq!(
            (parsed.kind, parsed.port()),
            (AsyncEventKind::PortErr, Some(1))
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            // Miri is slow, and has no folder to write failures to.
            cases: if cfg!(miri) { 8 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn decoding_keeps_every_bit(element: u64, kind: u32, reserved: u32) {
            let mut bytes = bytes(element, kind);
            bytes[12..].copy_from_slice(&reserved.to_ne_bytes());
            let parsed = parse(bytes).unwrap();
            prop_assert_eq!(parsed.element, element);
            prop_assert_eq!(parsed.kind.raw(), kind);
            prop_assert_eq!(AsyncEventKind::from_raw(kind), parsed.kind);
        }

        #[test]
        fn no_other_length_decodes(bytes: [u8; RECORD_LEN], len in 0_usize..40) {
            prop_assert_eq!(RawEvent::parse(bytes, len).is_ok(), len == RECORD_LEN);
        }
    }
}

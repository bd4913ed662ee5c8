//! What two queue pairs must know of each other, and its form on the way.

use std::{fmt, io};

use thiserror::Error;
use uverbs_abi::{Errno, Explain, Report};
use uverbs_providers::types::{Mtu, QpNum};

use crate::error::into_io;
use crate::gid::Gid;

/// One end of a connection, for the other end to be told by whatever means there are.
///
/// The form of [`to_bytes`](Self::to_bytes) is fixed for version 1: 40 bytes, numbers in network
/// order.
///
/// ```text
///  0  magic "UVEP"      4  version 1       5  path MTU code     6  LID
///  8  QP number        12  PSN            16  GID (16 bytes)
/// 32  RDMA READs and atomics that this end serves at once      33  reserved, 0 (7 bytes)
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Queue pair number, 24 bits.
    pub qp_num: QpNum,
    /// First packet sequence number that this end sends, 24 bits.
    pub psn: u32,
    /// The port's address.
    pub gid: Gid,
    /// The port's local id; 0 on Ethernet.
    pub lid: u16,
    /// Largest MTU that the port does.
    pub mtu: Mtu,
    /// RDMA READs and atomics that this end serves at once.
    pub max_dest_rd_atomic: u8,
}

/// Bytes that are no endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// Too few or too many.
    #[error("an endpoint has 40 bytes, not {0}")]
    Length(usize),
    /// Something else.
    #[error("the bytes are no endpoint: they do not begin with \"UVEP\"")]
    Magic,
    /// A version that this crate does not know.
    #[error("the endpoint is of version {0}, this crate knows version 1")]
    Version(u8),
    /// A field with a value that cannot be.
    #[error("the endpoint's {0} has a value that it cannot have")]
    Field(&'static str),
    /// Bytes that are 0 in version 1 are not.
    #[error("the endpoint's reserved bytes are not 0, as they are in version 1")]
    Reserved,
}

impl Explain for EndpointError {
    /// None: the kernel is not asked.
    fn errno(&self) -> Option<Errno> {
        None
    }

    fn explain(&self, report: &mut Report) {
        match self {
            Self::Length(_) => {
                report.cause("one read gave a part of them: a stream keeps no boundaries");
                report.next("read until there are 40: `Read::read_exact`");
            }
            Self::Magic => {
                report.cause("the peer is another program, or sent something else first");
                report.cause("a read began in the middle");
            }
            Self::Version(_) | Self::Reserved => {
                report.cause("the peer was built with a later version of this crate");
                report.next("build both ends with the same version");
            }
            Self::Field(_) => {
                report.cause("the bytes were damaged or made up on the way");
                report.next("send what `Endpoint::to_bytes` gives, as it is");
            }
        }
    }

    fn kind(&self) -> io::ErrorKind {
        io::ErrorKind::InvalidData
    }
}

into_io!(EndpointError);

const MAGIC: [u8; 4] = *b"UVEP";
const VERSION: u8 = 1;
const BITS_24: u32 = 0xFF_FFFF;

impl Endpoint {
    /// Bytes of the encoded form.
    pub const LEN: usize = 40;

    /// The encoded form.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&MAGIC);
        put(&[VERSION, self.mtu.raw()]);
        put(&self.lid.to_be_bytes());
        put(&self.qp_num.0.to_be_bytes());
        put(&self.psn.to_be_bytes());
        put(&self.gid.0);
        put(&[self.max_dest_rd_atomic]);
        bytes
    }

    /// Reads the encoded form.
    ///
    /// # Errors
    /// [`EndpointError`] for anything that [`to_bytes`](Self::to_bytes) could not have written.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EndpointError> {
        let bytes: &[u8; Self::LEN] = bytes
            .try_into()
            .map_err(|_| EndpointError::Length(bytes.len()))?;
        let [m0, m1, m2, m3, version, mtu, l0, l1, rest @ ..] = bytes;
        let [q0, q1, q2, q3, p0, p1, p2, p3, rest @ ..] = rest;
        let (gid, rest) = rest
            .split_first_chunk::<16>()
            .ok_or(EndpointError::Field("GID"))?;
        let [max_dest_rd_atomic, reserved @ ..] = rest else {
            return Err(EndpointError::Field("length"));
        };
        if [*m0, *m1, *m2, *m3] != MAGIC {
            return Err(EndpointError::Magic);
        }
        if *version != VERSION {
            return Err(EndpointError::Version(*version));
        }
        let qp_num = u32::from_be_bytes([*q0, *q1, *q2, *q3]);
        let psn = u32::from_be_bytes([*p0, *p1, *p2, *p3]);
        for (name, value) in [("QP number", qp_num), ("PSN", psn)] {
            if value > BITS_24 {
                return Err(EndpointError::Field(name));
            }
        }
        if reserved.iter().any(|byte| *byte != 0) {
            return Err(EndpointError::Reserved);
        }
        Ok(Self {
            qp_num: QpNum(qp_num),
            psn,
            gid: Gid(*gid),
            lid: u16::from_be_bytes([*l0, *l1]),
            mtu: Mtu::from_raw(*mtu).ok_or(EndpointError::Field("path MTU"))?,
            max_dest_rd_atomic: *max_dest_rd_atomic,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Endpoint(qp {} psn {:#x} gid {} lid {} mtu {} rd_atomic {})",
            self.qp_num, self.psn, self.gid, self.lid, self.mtu, self.max_dest_rd_atomic
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Endpoint {
        Endpoint {
            qp_num: QpNum(0x11),
            psn: 0x00AB_CDEF,
            gid: Gid(std::array::from_fn(|index| u8::try_from(index).unwrap())),
            lid: 0x1234,
            mtu: Mtu::Mtu1024,
            max_dest_rd_atomic: 16,
        }
    }

    #[test]
    fn the_form_is_stable() {
        #[rustfmt::skip]
        let expected: [u8; 40] = [
            b'U', b'V', b'E', b'P', 1, 3, 0x12, 0x34,
            0, 0, 0, 0x11,  0, 0xAB, 0xCD, 0xEF,
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
            16, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(example().to_bytes(), expected);
        assert_eq!(Endpoint::from_bytes(&expected), Ok(example()));
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        let good = example().to_bytes();
        let with = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            Endpoint::from_bytes(&bytes)
        };
        assert_eq!(
            Endpoint::from_bytes(&good[..39]),
            Err(EndpointError::Length(39))
        );
        assert_eq!(with(0, b'X'), Err(EndpointError::Magic));
        assert_eq!(with(4, 2), Err(EndpointError::Version(2)));
        assert_eq!(with(5, 6), Err(EndpointError::Field("path MTU")));
        assert_eq!(with(8, 1), Err(EndpointError::Field("QP number")));
        assert_eq!(with(12, 1), Err(EndpointError::Field("PSN")));
        assert_eq!(with(39, 1), Err(EndpointError::Reserved));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_refused_or_come_back_as_they_were(
            mut bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..48),
            genuine in proptest::prelude::any::<bool>(),
        ) {
            if genuine && bytes.len() >= 6 {
                bytes[..6].copy_from_slice(&example().to_bytes()[..6]);
            }
            if let Ok(endpoint) = Endpoint::from_bytes(&bytes) {
                proptest::prop_assert_eq!(&endpoint.to_bytes()[..], &bytes[..]);
            }
        }

        #[test]
        fn an_endpoint_survives_the_way(
            qp_num in 0u32..1 << 24,
            psn in 0u32..1 << 24,
            gid: [u8; 16],
            lid: u16,
            mtu in 1u8..6,
            max_dest_rd_atomic: u8,
        ) {
            let endpoint = Endpoint {
                qp_num: QpNum(qp_num),
                psn,
                gid: Gid(gid),
                lid,
                mtu: Mtu::from_raw(mtu).unwrap(),
                max_dest_rd_atomic,
            };
            proptest::prop_assert_eq!(Endpoint::from_bytes(&endpoint.to_bytes()), Ok(endpoint));
        }
    }
}

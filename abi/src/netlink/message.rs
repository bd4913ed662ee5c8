//! Netlink messages as bytes: requests are built, datagrams and attributes are taken apart.
//!
//! Ground truth: `linux/netlink.h`. Must never trust a length that was received: what does not fit
//! ends the walk, and the rest is there to be looked at.

use zerocopy::{FromBytes, IntoBytes};

use crate::layout::netlink::{NLM_F_REQUEST, nlattr, nlmsghdr};

/// A message's header, in bytes.
pub const HEADER: usize = size_of::<nlmsghdr>();
const ATTR_HEADER: usize = size_of::<nlattr>();
const ALIGN: usize = 4;
/// The two top bits of an attribute's type say "nested" and "network order".
const TYPE_MASK: u16 = 0x3FFF;
/// Longest value of an attribute, in bytes.
pub const MAX_VALUE: usize = u16::MAX as usize - ATTR_HEADER;

/// A request under construction.
#[derive(Debug, Clone)]
pub struct Message {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Message {
    /// Starts a request of this type; `NLM_F_REQUEST` is added to the flags.
    #[must_use]
    pub const fn new(kind: u16, flags: u16) -> Self {
        Self {
            kind,
            flags: flags | NLM_F_REQUEST,
            body: Vec::new(),
        }
    }

    /// Adds bytes of a fixed header, padded to 4.
    #[must_use]
    pub fn body(mut self, bytes: &[u8]) -> Self {
        self.body.extend_from_slice(bytes);
        self.body.resize(self.body.len().next_multiple_of(ALIGN), 0);
        self
    }

    /// Adds an attribute.
    ///
    /// # Panics
    /// If the value is longer than [`MAX_VALUE`]; no length field could say so.
    #[must_use]
    pub fn attr(mut self, kind: u16, value: &[u8]) -> Self {
        assert!(value.len() <= MAX_VALUE, "an attribute is too long");
        // The length leaves the padding out; the kernel checks strings by it.
        let header = nlattr {
            nla_len: u16::try_from(ATTR_HEADER + value.len()).unwrap_or(u16::MAX),
            nla_type: kind,
        };
        self.body.extend_from_slice(header.as_bytes());
        self.body(value)
    }

    /// Adds a string with its terminating zero.
    ///
    /// # Panics
    /// As [`attr`](Self::attr).
    #[must_use]
    pub fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attr(kind, &bytes)
    }

    /// Adds a number of 32 bits.
    #[must_use]
    pub fn number(self, kind: u16, value: u32) -> Self {
        self.attr(kind, &value.to_ne_bytes())
    }

    /// Adds an attribute that holds what `fill` adds.
    ///
    /// # Panics
    /// As [`attr`](Self::attr).
    #[must_use]
    pub fn nest(self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let inner = fill(Self::new(0, 0));
        self.attr(kind, &inner.body)
    }

    /// The flags it goes out with.
    #[must_use]
    pub const fn flags(&self) -> u16 {
        self.flags
    }

    /// The whole message with this sequence number.
    #[must_use]
    pub fn to_bytes(&self, seq: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes, seq);
        bytes
    }

    /// Puts the whole message with this sequence number in the place of what `bytes` holds.
    pub fn write_to(&self, bytes: &mut Vec<u8>, seq: u32) {
        let header = nlmsghdr {
            nlmsg_len: u32::try_from(HEADER + self.body.len()).unwrap_or(u32::MAX),
            nlmsg_type: self.kind,
            nlmsg_flags: self.flags,
            nlmsg_seq: seq,
            nlmsg_pid: 0,
        };
        bytes.clear();
        bytes.reserve(HEADER + self.body.len());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(&self.body);
    }
}

/// One message of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'d> {
    /// Its header.
    pub header: nlmsghdr,
    /// What follows the header.
    pub payload: &'d [u8],
}

impl Part<'_> {
    /// Adds it to others, padded.
    pub(super) fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.header.as_bytes());
        bytes.extend_from_slice(self.payload);
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
    }
}

/// The messages of a datagram; ends at the first that does not fit.
#[derive(Debug, Clone)]
pub struct Parts<'d> {
    rest: &'d [u8],
}

/// Goes through the messages of a datagram.
#[must_use]
pub const fn parts(datagram: &[u8]) -> Parts<'_> {
    Parts { rest: datagram }
}

impl<'d> Parts<'d> {
    /// What has not been taken: empty at the end of a sound datagram.
    #[must_use]
    pub const fn rest(&self) -> &'d [u8] {
        self.rest
    }
}

impl<'d> Iterator for Parts<'d> {
    type Item = Part<'d>;

    fn next(&mut self) -> Option<Part<'d>> {
        let (header, _) = nlmsghdr::read_from_prefix(self.rest).ok()?;
        let len = usize::try_from(header.nlmsg_len).ok()?;
        let payload = self.rest.get(HEADER..len)?;
        self.rest = after(self.rest, len);
        Some(Part { header, payload })
    }
}

/// The attributes of a payload; ends at the first that does not fit.
#[derive(Debug, Clone)]
pub struct Attributes<'p> {
    rest: &'p [u8],
}

/// Goes through the attributes of a payload: type, and value.
#[must_use]
pub const fn attributes(payload: &[u8]) -> Attributes<'_> {
    Attributes { rest: payload }
}

impl<'p> Attributes<'p> {
    /// What has not been taken: empty at the end of a sound payload.
    #[must_use]
    pub const fn rest(&self) -> &'p [u8] {
        self.rest
    }
}

impl<'p> Iterator for Attributes<'p> {
    type Item = (u16, &'p [u8]);

    fn next(&mut self) -> Option<(u16, &'p [u8])> {
        let (header, _) = nlattr::read_from_prefix(self.rest).ok()?;
        let len = usize::from(header.nla_len);
        let value = self.rest.get(ATTR_HEADER..len)?;
        self.rest = after(self.rest, len);
        Some((header.nla_type & TYPE_MASK, value))
    }
}

/// What comes after the first `len` bytes and their padding; the last may lack its padding.
fn after(bytes: &[u8], len: usize) -> &[u8] {
    bytes.get(len.next_multiple_of(ALIGN)..).unwrap_or_default()
}

/// A number in the machine's order, as wide as it came: 1, 2, 4 or 8 bytes.
#[must_use]
pub fn number(value: &[u8]) -> Option<u64> {
    match *value {
        [byte] => Some(byte.into()),
        [a, b] => Some(u16::from_ne_bytes([a, b]).into()),
        [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d]).into()),
        _ => Some(u64::from_ne_bytes(value.try_into().ok()?)),
    }
}

/// A string, up to its terminating zero. What is not UTF-8 in it is replaced.
#[must_use]
pub fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(value.get(..end.unwrap_or(value.len())).unwrap_or_default())
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back() {
        let bytes = Message::new(16, 4)
            .text(3, "veth0")
            .number(6, 7)
            .to_bytes(9);
        assert_eq!(bytes.len(), 16 + 12 + 8);
        let mut all = parts(&bytes);
        let part = all.next().unwrap();
        assert_eq!(all.rest(), b"");
        let header = part.header;
        assert_eq!((header.nlmsg_len, header.nlmsg_type), (36, 16));
        assert_eq!((header.nlmsg_flags, header.nlmsg_seq), (5, 9));
        let got: Vec<_> = attributes(part.payload).collect();
        assert_eq!(got, [(3, &b"veth0\0"[..]), (6, &7_u32.to_ne_bytes()[..])]);
    }

    #[test]
    fn nested_lengths_cover_their_content() {
        let bytes = Message::new(16, 0)
            .nest(18, |m| m.text(1, "veth"))
            .to_bytes(1);
        let got: Vec<_> = attributes(&bytes[HEADER..]).collect();
        let [(18, inner)] = got.as_slice() else {
            panic!("one attribute expected: {got:?}")
        };
        assert_eq!(attributes(inner).collect::<Vec<_>>(), [(1, &b"veth\0"[..])]);
    }

    #[test]
    fn hostile_lengths_end_the_walk() {
        for hostile in [
            &[255, 255, 1, 0, 1][..],
            &[0, 0, 1, 0, 1],
            &[3, 0, 1, 0],
            &[1],
        ] {
            let mut all = attributes(hostile);
            assert_eq!(all.next(), None);
            assert_eq!(all.rest(), hostile);
        }
        let mut long = [0; 16];
        long[..4].fill(255);
        assert_eq!(parts(&long).next(), None);
        assert_eq!(parts(&[0; 16]).next(), None);
    }

    #[test]
    fn numbers_have_the_width_they_come_in() {
        assert_eq!(number(&[7]), Some(7));
        assert_eq!(number(&0x1234_u16.to_ne_bytes()), Some(0x1234));
        assert_eq!(number(&u32::MAX.to_ne_bytes()), Some(u32::MAX.into()));
        assert_eq!(number(&u64::MAX.to_ne_bytes()), Some(u64::MAX));
        assert_eq!(number(&[]), None);
        assert_eq!(number(&[0; 3]), None);
        assert_eq!(text(b"rxe0\0\0"), "rxe0");
        assert_eq!(text(b"rxe0"), "rxe0");
    }
}

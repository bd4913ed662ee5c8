//! The name under which the kernel knows an object of ours.
//!
//! The kernel gives back, with every event, the 64-bit number that it was given at create. A C
//! library gives it the address of an object; this crate gives it a name to be looked up. A name
//! is used once: what is left of an object that is gone leads nowhere, never to its successor.

use std::fmt;
use std::num::NonZeroU32;

/// Identifies one object of this process for the kernel, once and for all.
///
/// An index, and how many objects have used that index before. Zero in the upper half is never
/// given out: so no port number, nor zero, is ever a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    index: u32,
    generation: NonZeroU32,
}

impl Token {
    /// The first generation of an index.
    pub(super) const FIRST: NonZeroU32 = NonZeroU32::MIN;

    pub(super) const fn new(index: u32, generation: NonZeroU32) -> Self {
        Self { index, generation }
    }

    /// The token that the kernel has as `raw`, if that can be one at all.
    pub(crate) fn from_raw(raw: u64) -> Option<Self> {
        let [a, b, c, d, e, f, g, h] = raw.to_be_bytes();
        let generation = NonZeroU32::new(u32::from_be_bytes([a, b, c, d]))?;
        Some(Self {
            index: u32::from_be_bytes([e, f, g, h]),
            generation,
        })
    }

    /// The number that the kernel is given as `user_handle`. Never zero.
    #[must_use]
    pub fn as_raw(self) -> u64 {
        u64::from(self.generation.get()) << 32 | u64::from(self.index)
    }

    pub(super) const fn index(self) -> u32 {
        self.index
    }

    pub(super) const fn generation(self) -> NonZeroU32 {
        self.generation
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({self})")
    }
}

#[cfg(all(test, not(uverbs_loom)))]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_the_way_through_the_kernel() {
        for (index, generation) in [(0, 1), (u32::MAX, 1), (0, u32::MAX), (7, 0x8000_0001)] {
            let token = Token::new(index, NonZeroU32::new(generation).unwrap());
            assert_ne!(token.as_raw(), 0);
            assert_eq!(Token::from_raw(token.as_raw()), Some(token));
        }
        assert_eq!(Token::new(5, Token::FIRST).as_raw(), 0x1_0000_0005);
    }

    #[test]
    fn neither_zero_nor_a_port_number_is_a_token() {
        for raw in [0, 1, 255, u64::from(u32::MAX)] {
            assert_eq!(Token::from_raw(raw), None);
        }
    }
}

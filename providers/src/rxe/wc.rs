//! What a slot of rxe's completion queue says. Pure; any bytes at all give a completion.
//!
//! Ground truth: `struct ib_uverbs_wc` in `ib_user_verbs.h`, filled by the kernel's `rxe_comp.c`
//! and `rxe_resp.c`. [`Wc`] has the same layout, so nothing has to be taken apart.

use std::mem::offset_of;

use uverbs_abi::layout::cmd::ib_uverbs_wc;
use zerocopy::transmute;

use crate::wc::Wc;

/// Bytes of a slot that mean something.
pub const WC_LEN: usize = size_of::<ib_uverbs_wc>();

/// 8-byte words of a slot that mean something.
pub const WC_WORDS: usize = WC_LEN / 8;

/// Pairs of them.
pub(super) const WC_PAIRS: usize = WC_WORDS / 2;

macro_rules! same_place {
    ($($ours:ident = $theirs:ident),+) => {
        const _: () = assert!(
            size_of::<Wc>() == WC_LEN $(&& offset_of!(Wc, $ours) == offset_of!(ib_uverbs_wc, $theirs))+
        );
    };
}

same_place! {
    wr_id = wr_id, status = status, raw_opcode = opcode, vendor_err = vendor_err, byte_len = byte_len,
    raw_ex = ex, qp_num = qp_num, src_qp = src_qp, flags = wc_flags, pkey_index = pkey_index,
    slid = slid, sl = sl, dlid_path_bits = dlid_path_bits, port_num = port_num
}

/// Reads a completion.
#[inline]
#[must_use]
pub fn decode(words: [u64; WC_WORDS]) -> Wc {
    transmute!(words)
}

/// [`decode`], of words in pairs.
#[inline]
pub(super) fn decode_pairs(pairs: [[u64; 2]; WC_PAIRS]) -> Wc {
    transmute!(pairs)
}

/// Where the word with the status is.
pub(super) const STATUS: usize = offset_of!(ib_uverbs_wc, status);

/// Whether a completion is no success, by the word with its status; or one of several, by those words
/// in one, bit by bit.
#[inline]
pub(super) const fn has_failed(word: u64) -> bool {
    // The status comes first in it, and success is 0.
    let [a, b, c, d, ..] = word.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d]) != 0
}

//! What a slot of rxe's completion queue says. Pure; any bytes at all give a completion.
//!
//! Ground truth: `struct ib_uverbs_wc` in `ib_user_verbs.h`, filled by the kernel's `rxe_comp.c`
//! and `rxe_resp.c`.

use uverbs_abi::layout::cmd::ib_uverbs_wc;
use zerocopy::transmute;

use crate::types::QpNum;
use crate::wc::{Wc, WcFlags, WcStatus};

/// Bytes of a slot that mean something.
pub const WC_LEN: usize = size_of::<ib_uverbs_wc>();

/// 8-byte words of a slot that mean something.
pub const WC_WORDS: usize = WC_LEN / 8;

/// Reads a completion.
#[inline]
#[must_use]
pub fn decode(words: [u64; WC_WORDS]) -> Wc {
    let raw: ib_uverbs_wc = transmute!(words);
    let flags = WcFlags::from_bits_retain(raw.wc_flags);
    // A union: immediate data as it came from the wire, or a key as the kernel counts.
    let raw_ex = if flags.contains(WcFlags::WITH_IMM) {
        u32::from_be_bytes(raw.ex)
    } else {
        u32::from_ne_bytes(raw.ex)
    };
    Wc {
        wr_id: raw.wr_id,
        status: WcStatus::from_raw(raw.status),
        vendor_err: raw.vendor_err,
        qp_num: QpNum(raw.qp_num),
        byte_len: raw.byte_len,
        flags,
        src_qp: QpNum(raw.src_qp),
        pkey_index: raw.pkey_index,
        slid: raw.slid,
        sl: raw.sl,
        dlid_path_bits: raw.dlid_path_bits,
        raw_opcode: raw.opcode,
        raw_ex,
    }
}

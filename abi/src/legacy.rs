//! The `write()` framing of uverbs, older than the ioctls.
//!
//! Ground truth: `struct ib_uverbs_cmd_hdr` in `ib_user_verbs.h`. What is left of it here is the
//! doorbell: on drivers that have the kernel do the work (rxe, siw) an empty POST_SEND says "look
//! at the send queue", and as a `write()` it costs about half of what the ioctl costs. All other
//! commands go through [`Command::invoke_write`](crate::Command::invoke_write).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use zerocopy::IntoBytes;

use crate::layout::cmd::{IB_USER_VERBS_CMD_POST_SEND, ib_uverbs_cmd_hdr, ib_uverbs_post_send};

/// Bytes of a header and a request, ready for [`Kernel::write`](crate::Kernel::write).
pub const DOORBELL_LEN: usize = size_of::<ib_uverbs_cmd_hdr>() + size_of::<ib_uverbs_post_send>();

/// Bytes that the kernel writes back for a doorbell: the index of the bad request, always 0 here.
pub const DOORBELL_RESPONSE_LEN: usize = 4;

const IN_WORDS: u16 = 8;
const OUT_WORDS: u16 = 1;
const _: () = assert!(IN_WORDS as usize * 4 == DOORBELL_LEN);
const _: () = assert!(OUT_WORDS as usize * 4 == DOORBELL_RESPONSE_LEN);

/// The least `wqe_size` that the kernel accepts (`struct ib_uverbs_send_wr`), in bytes.
const SEND_WR_SIZE: u32 = 56;

/// The request part of a doorbell: POST_SEND with no work request in it.
#[must_use]
pub fn doorbell_request(qp_handle: u32) -> ib_uverbs_post_send {
    ib_uverbs_post_send {
        response: 0,
        qp_handle,
        wr_count: 0,
        sge_count: 0,
        wqe_size: SEND_WR_SIZE,
    }
}

/// The whole doorbell as `write()` takes it.
#[must_use]
pub fn doorbell_frame(qp_handle: u32) -> [u8; DOORBELL_LEN] {
    let header = ib_uverbs_cmd_hdr {
        command: IB_USER_VERBS_CMD_POST_SEND,
        in_words: IN_WORDS,
        out_words: OUT_WORDS,
    };
    let mut frame = [0; DOORBELL_LEN];
    let (head, body) = frame.split_at_mut(size_of::<ib_uverbs_cmd_hdr>());
    head.copy_from_slice(header.as_bytes());
    body.copy_from_slice(doorbell_request(qp_handle).as_bytes());
    frame
}

/// Room for what the kernel answers to doorbells: at each of them it writes 4 bytes, and nobody reads
/// them. Atomic, since rings of several threads may write it at the same time; and as far behind whatever
/// lies before it as processors share memory.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Response {
    apart: [u64; 8],
    word: AtomicU32,
}

impl Response {
    /// Room in which nothing has been written.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            apart: [0; 8],
            word: AtomicU32::new(0),
        }
    }
}

impl AsRef<Self> for Response {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// A doorbell that is ready to be rung again and again.
pub struct Doorbell {
    frame: [u8; DOORBELL_LEN],
    qp_handle: u32,
    /// Keeps the room where the frame says that the kernel is to put its response. Shared, it neither
    /// moves nor changes hands, so that a reference that it gave out could live as long as this does.
    _home: Arc<dyn AsRef<Response> + Send + Sync>,
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Doorbell(of queue pair {})", self.qp_handle)
    }
}

impl Doorbell {
    /// The doorbell of one queue pair.
    #[must_use]
    pub fn new(qp_handle: u32) -> Self {
        Self::answered_in(Arc::new(Response::new()), qp_handle)
    }

    /// The same, with room for the response in something that is there anyway.
    #[must_use]
    pub fn answered_in<H>(home: Arc<H>, qp_handle: u32) -> Self
    where
        H: AsRef<Response> + Send + Sync + 'static,
    {
        let mut frame = doorbell_frame(qp_handle);
        let response: &Response = (*home).as_ref();
        if let Some(slot) = frame.get_mut(8..16) {
            let address = response.word.as_ptr().expose_provenance() as u64;
            slot.copy_from_slice(&address.to_ne_bytes());
        }
        Self {
            frame,
            qp_handle,
            _home: home,
        }
    }

    /// What the kernel is given. The address in it is good for as long as this value.
    #[inline]
    #[must_use]
    pub const fn frame(&self) -> &[u8; DOORBELL_LEN] {
        &self.frame
    }

    /// The queue pair that it is for.
    #[must_use]
    pub const fn qp_handle(&self) -> u32 {
        self.qp_handle
    }
}

/// Whether a frame is a doorbell, whichever queue pair it is for and wherever its response goes.
#[must_use]
pub fn is_doorbell(frame: &[u8]) -> bool {
    // Bytes 8 to 16 are the address of the response, 16 to 20 the queue pair's handle.
    let fixed = |frame: &[u8; DOORBELL_LEN]| {
        let [
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            ..,
            q,
            r,
            s,
            t,
            u,
            v,
            w,
            x,
            y,
            z,
            k,
            l,
        ] = *frame;
        (
            u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            u32::from_ne_bytes([q, r, s, t]),
            u64::from_ne_bytes([u, v, w, x, y, z, k, l]),
        )
    };
    <&[u8; DOORBELL_LEN]>::try_from(frame)
        .is_ok_and(|frame| fixed(frame) == fixed(&doorbell_frame(0)))
}

#[cfg(test)]
mod tests {
    use super::{Doorbell, Response, doorbell_frame, is_doorbell};

    #[test]
    fn nothing_but_a_doorbell_is_one() {
        assert!(is_doorbell(&doorbell_frame(u32::MAX)));
        let good = doorbell_frame(7);
        for at in (0..8).chain(20..32) {
            let mut bad = good;
            bad[at] ^= 1;
            assert!(!is_doorbell(&bad), "byte {at}");
        }
        assert!(!is_doorbell(&good[..31]) && !is_doorbell(&[]));
    }

    #[test]
    fn a_ready_doorbell_is_one_and_says_where_its_response_goes() {
        let doorbell = Doorbell::new(7);
        assert!(is_doorbell(doorbell.frame()));
        let mut expected = doorbell_frame(7);
        let response: &Response = (*doorbell._home).as_ref();
        let address = response.word.as_ptr().addr() as u64;
        expected[8..16].copy_from_slice(&address.to_ne_bytes());
        assert_eq!((doorbell.frame(), doorbell.qp_handle()), (&expected, 7));
    }

    #[test]
    fn the_doorbell_is_the_kernels_32_bytes() {
        #[rustfmt::skip]
        let expected: [u8; 32] = [
            28, 0, 0, 0,             // command: POST_SEND
            8, 0, 1, 0,              // in_words 8, out_words 1
            0, 0, 0, 0, 0, 0, 0, 0,  // response, filled in by the caller
            7, 0, 0, 0,              // qp_handle
            0, 0, 0, 0,              // wr_count
            0, 0, 0, 0,              // sge_count
            56, 0, 0, 0,             // wqe_size
        ];
        if cfg!(target_endian = "little") {
            assert_eq!(doorbell_frame(7), expected);
        }
    }
}

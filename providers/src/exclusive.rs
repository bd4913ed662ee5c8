//! What the owner of an exclusive queue can do with it: the calls of the shared form, with no lock
//! and no table between.
//!
//! One `match` decides whose queue it is; with one driver built in, not even that is left.

use crate::contract::{ExclusiveCq, ExclusiveRecv, ExclusiveSend};
use crate::error::{PollError, PostError};
use crate::wc::Wc;
use crate::wr::{RecvWr, SendWr};

impl ExclusiveCq {
    /// Moves completions out, oldest first, and gives the part of `out` that was filled.
    ///
    /// # Errors
    /// [`PollError`].
    #[inline]
    #[cfg_attr(
        not(feature = "rxe"),
        expect(unused_variables, reason = "no driver is built in")
    )]
    pub fn poll<'b>(&mut self, out: &'b mut [Wc]) -> Result<&'b mut [Wc], PollError> {
        match *self {
            #[cfg(feature = "rxe")]
            Self::Rxe(ref mut ring) => ring.poll(out),
        }
    }
}

impl ExclusiveSend {
    /// Encodes and publishes send requests, in order, then rings the doorbell once.
    ///
    /// # Errors
    /// [`PostError`]; `accepted` counts those that are in the queue.
    #[inline]
    #[cfg_attr(
        not(feature = "rxe"),
        expect(unused_variables, reason = "no driver is built in")
    )]
    pub fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        match *self {
            #[cfg(feature = "rxe")]
            Self::Rxe(ref mut ring) => ring.post_send(wrs),
        }
    }
}

impl ExclusiveSend {
    /// As [`post_send`](Self::post_send), without the doorbell: [`ring_owed`](Self::ring_owed) is to
    /// follow. Until then the device may look at the requests or not.
    ///
    /// # Errors
    /// [`PostError`]; `accepted` counts those that are in the queue.
    #[inline]
    #[cfg_attr(
        not(feature = "rxe"),
        expect(unused_variables, reason = "no driver is built in")
    )]
    pub fn put_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        match *self {
            #[cfg(feature = "rxe")]
            Self::Rxe(ref mut ring) => ring.put_send(wrs),
        }
    }

    /// Rings the doorbell once for all that was [put](Self::put_send) in since, if anything was.
    ///
    /// # Errors
    /// [`PostError`], with all of that as `accepted`: it is in the queue, and whatever rings later tells
    /// of it too. [`PostCause::WrongState`](crate::error::PostCause::WrongState) if a move to RESET has
    /// dropped it all.
    #[inline]
    pub fn ring_owed(&mut self) -> Result<(), PostError> {
        match *self {
            #[cfg(feature = "rxe")]
            Self::Rxe(ref mut ring) => ring.ring_owed(),
        }
    }
}

impl ExclusiveRecv {
    /// Posts receives, in order.
    ///
    /// # Errors
    /// [`PostError`]; `accepted` counts those that are in the queue.
    #[inline]
    #[cfg_attr(
        not(feature = "rxe"),
        expect(unused_variables, reason = "no driver is built in")
    )]
    pub fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        match *self {
            #[cfg(feature = "rxe")]
            Self::Rxe(ref mut ring) => ring.post_recv(wrs),
        }
    }
}

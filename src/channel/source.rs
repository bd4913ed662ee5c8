//! One completion channel of the kernel, as its handles and its queues share it.
//!
//! Ground truth: `ib_uverbs_event_read`: one record of 8 bytes for one `read()`, which holds the
//! number that the queue was created with; `EIO` once the kernel has let go of the channel.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno as Nix;
use uverbs_abi::layout::event::ib_uverbs_comp_event_desc;

use super::bell::Rope;
use super::event::CompletionEvent;
use crate::event::{EventError, EventFile, Found, Ledger, Sort, Until, WeakObject};

const RECORD_LEN: usize = size_of::<ib_uverbs_comp_event_desc>();

/// The file, and the ledger in which the queues are found. It does not keep the context.
#[derive(Debug)]
pub(crate) struct ChannelSource {
    file: Arc<EventFile>,
    ledger: Ledger<WeakObject>,
    passed_over: AtomicU64,
}

impl ChannelSource {
    pub(super) const fn new(file: Arc<EventFile>, ledger: Ledger<WeakObject>) -> Self {
        Self {
            file,
            ledger,
            passed_over: AtomicU64::new(0),
        }
    }

    pub(crate) fn file(&self) -> &EventFile {
        &self.file
    }

    pub(super) fn passed_over(&self) -> u64 {
        // Relaxed: for people to look at.
        self.passed_over.load(Ordering::Relaxed)
    }

    /// `None` when the time is up, or when the bell of the queue that is waited for has been rung or has
    /// nudged this one.
    pub(super) fn next_until(
        &self,
        until: Until,
        rope: Option<&Rope>,
    ) -> Result<Option<CompletionEvent>, EventError> {
        let (mut reads, mut waited) = (until.reads_first(&self.file), false);
        loop {
            if reads || self.file.is_ending() {
                if let Some(event) = self.read()? {
                    if !waited {
                        self.file.note_hit();
                    }
                    return Ok(Some(event));
                }
            } else {
                self.file.check()?;
            }
            if rope.is_some_and(|rope| rope.is_rung() || rope.take_nudge()) {
                return Ok(None);
            }
            match until.left() {
                Some(timeout) => {
                    self.file.poll(timeout, rope.map(AsFd::as_fd))?;
                    waited = true;
                }
                None if !reads => {}
                None => return Ok(None),
            }
            reads = true;
        }
    }

    /// The next event that leads to a queue. `None` if there is nothing to read; whoever waits then
    /// may have been woken for that reason, so it is asked again.
    pub(super) fn read(&self) -> Result<Option<CompletionEvent>, EventError> {
        loop {
            // Asked before the read: what was queued when the end was announced is still read.
            let ending = if self.file.is_undisturbed() {
                None
            } else {
                self.file.check()?;
                self.file.ending()
            };
            let Some(token) = self.read_record()? else {
                return ending.map_or(Ok(None), Err);
            };
            if let Some(event) = self.look_up(token) {
                return Ok(Some(event));
            }
            self.passed_over.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn read_record(&self) -> Result<Option<u64>, EventError> {
        // Memory of our own, and large enough: the kernel takes the event off the queue, and counts
        // it, before it finds that it cannot store it.
        let mut bytes = [0; RECORD_LEN];
        match self.file.read(&mut bytes) {
            Ok(None) => Ok(None),
            // The kernel has let go of the channel: with the context, or with the device. The end of
            // a file is no kernel's answer; it would be one for good as well.
            Ok(Some(0)) | Err(Nix::EIO) => Err(self.ended()),
            Ok(Some(RECORD_LEN)) => {
                let record: ib_uverbs_comp_event_desc = zerocopy::transmute!(bytes);
                Ok(Some(record.cq_handle))
            }
            Ok(Some(len)) => Err(EventError::BadRecord { len }),
            Err(errno) => Err(errno.into()),
        }
    }

    #[cold]
    fn ended(&self) -> EventError {
        match self.file.ending() {
            Some(ending) => ending,
            None => {
                self.file.device_gone();
                EventError::DeviceGone
            }
        }
    }

    /// Of a queue that is gone or going, and of what is no queue's, the ack has been paid.
    #[inline(always)]
    fn look_up(&self, token: u64) -> Option<CompletionEvent> {
        let unclaimed = self.ledger.unclaimed_of(Sort::Completion, token);
        let found = unclaimed.reach(|object, _| match object {
            WeakObject::Cq(weak) => weak.upgrade().map(CompletionEvent::new).ok_or(()),
            _ => Err(()),
        });
        match found {
            Found::Live(event) => Some(event),
            Found::Missed(()) | Found::Gone(_) | Found::Unknown => None,
        }
    }
}

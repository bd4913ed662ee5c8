//! A kernel that makes its objects by the fake device, rings into `/dev/null`, and leaves the moves
//! on its side of the queues to whoever counts.
#![allow(
    unsafe_code,
    reason = "opens /dev/null as if it were the node of a device"
)]

use std::hint::black_box;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use uverbs::Errno;
use uverbs::abi::layout::rxe::queue_buf;
use uverbs::abi::legacy::Doorbell;
use uverbs::abi::sys::{Slice, UverbsFd, laid_out};
use uverbs::abi::{Command, Kernel, Mapping};
use uverbs::fake::Fabric;

use crate::count::mark;

const WORD: usize = size_of::<u64>();

/// The kernel's side of one queue.
#[derive(Clone, Debug)]
pub struct Queue(Arc<[AtomicU64]>);

impl Queue {
    fn word(&self, byte: usize) -> &AtomicU64 {
        static NOWHERE: AtomicU64 = AtomicU64::new(0);
        self.0.get(byte / WORD).unwrap_or(&NOWHERE)
    }

    /// Takes everything that was posted.
    pub fn drain(&self) {
        let posted = self.word(queue_buf::PRODUCER_INDEX).load(Ordering::Acquire);
        // Release: pairs with the Acquire load of the consumer's index before a slot is filled again.
        self.word(queue_buf::CONSUMER_INDEX)
            .store(posted, Ordering::Release);
    }

    /// Puts `count` successful completions into a completion queue with slots of 64 bytes.
    pub fn complete(&self, count: u64) {
        let header = self.word(0).load(Ordering::Relaxed);
        let mask = header >> 32;
        let producer = self.word(queue_buf::PRODUCER_INDEX).load(Ordering::Relaxed);
        for ahead in 0..count {
            let slot = queue_buf::DATA as u64 + ((producer + ahead) & mask) * 64;
            let Ok(slot) = usize::try_from(slot) else {
                return;
            };
            // wr_id; status 0 and opcode; vendor_err and byte_len; ex and qp_num; the rest.
            let words = [7 + ahead, 1 << 32, 64 << 32, 17 << 32, 0, 0];
            for (at, word) in words.into_iter().enumerate() {
                self.word(slot + at * WORD).store(word, Ordering::Relaxed);
            }
        }
        // Release: pairs with the Acquire load of the producer's index before a slot is read.
        self.word(queue_buf::PRODUCER_INDEX)
            .store((producer + count) & mask, Ordering::Release);
    }
}

/// The kernel itself; see the module.
#[derive(Debug)]
pub struct Quiet {
    fake: Arc<dyn Kernel>,
    null: UverbsFd,
    queues: Mutex<Vec<Queue>>,
    apart: AtomicBool,
}

impl Quiet {
    /// A device of this name.
    ///
    /// # Errors
    /// If `/dev/null` cannot be opened.
    pub fn new(fabric: &Fabric, name: &str) -> io::Result<Self> {
        // SAFETY: commands reach the fake alone; what is written to this file goes nowhere, so that
        // no memory is reached through it.
        let null = unsafe { UverbsFd::open(Path::new("/dev/null"), None) }?;
        Ok(Self {
            fake: fabric.add_device(name).kernel(),
            null,
            queues: Mutex::default(),
            apart: AtomicBool::new(false),
        })
    }

    /// Whether a region ends where this kernel is called, and another one begins where it returns: what
    /// the fake does is then not counted.
    pub fn set_apart(&self, apart: bool) {
        // Relaxed: one thread.
        self.apart.store(apart, Ordering::Relaxed);
    }

    /// Does the fake's part.
    fn aside<R>(&self, work: impl FnOnce() -> R) -> R {
        let is_apart = self.apart.load(Ordering::Relaxed);
        if is_apart {
            mark();
        }
        let result = work();
        if is_apart {
            mark();
        }
        result
    }

    /// The queue that was mapped last, or so many before it.
    #[must_use]
    pub fn last(&self, back: usize) -> Option<Queue> {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.iter().rev().nth(back).cloned()
    }
}

impl Kernel for Quiet {
    fn ioctl(&self, driver: u32, command: &mut Command<'_>) -> Result<(), Errno> {
        if self.apart.load(Ordering::Relaxed) {
            // As it is laid out for the real kernel, which is counted too.
            let mut fd = u32::MAX;
            let address = |slice: Slice<'_>| match slice {
                Slice::In(bytes) => bytes.as_ptr().addr() as u64,
                Slice::Out(bytes) => bytes.as_ptr().addr() as u64,
            };
            black_box(&laid_out(command, driver, &mut fd, address));
        }
        self.aside(|| self.fake.ioctl(driver, command))
    }

    fn write(&self, frame: &mut [u8], response: &mut [u8]) -> Result<(), Errno> {
        self.null.write(frame, response)
    }

    fn doorbell(&self, doorbell: &Doorbell) -> Result<(), Errno> {
        self.null.doorbell(doorbell)
    }

    fn doorbell_file(&self) -> Option<&Arc<OwnedFd>> {
        self.null.doorbell_file()
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        self.aside(|| {
            let mapping = self.fake.map(offset, len)?;
            if let Mapping::Heap(words) = &mapping {
                let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
                queues.push(Queue(Arc::clone(words)));
            }
            Ok(mapping)
        })
    }
}

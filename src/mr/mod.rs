//! Memory regions: memory that the device, and peers if they are let, may read and write.
//!
//! What makes it sound, in short (`docs/safety.md` has the whole of it): the region owns the
//! buffer and gives it back only after the kernel has taken the device's access away; its bytes are
//! reached by copies, never through a reference; and if the kernel refuses to take the access away,
//! the buffer is leaked, never freed.

mod memory;
mod owner;
mod slices;

pub use owner::{PageBuf, RawMemory, RawParts, StableBytes};
pub use slices::Slices;

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use uverbs_abi::{Cause, CommandError, Errno};
use uverbs_providers::sge::{MAX_MESSAGE, Sge};
use uverbs_providers::types::{AccessFlags, Lkey, Rkey};
use uverbs_providers::verbs;
use uverbs_providers::wr::RemoteAddr;

use crate::context::Context;
use crate::diagnose;
use crate::error::{
    DeregisterError, DeregisterErrorCause, RangeError, RegisterError, RegisterErrorCause,
};
use crate::living::Region;
use crate::pd::ProtectionDomain;
use memory::Memory;
use owner::Buried;

/// A registered buffer.
///
/// A cheap handle. Work requests name stretches of it through [`slice`](Self::slice); peers are
/// told of it through [`remote`](Self::remote). When the last handle goes, the buffer is
/// deregistered, then freed.
///
/// `B` is what owned the memory before: it comes back from [`into_inner`](Self::into_inner).
#[doc(alias = "ibv_mr")]
pub struct MemoryRegion<B: StableBytes = PageBuf> {
    inner: Arc<MrInner<B>>,
}

struct MrInner<B: StableBytes> {
    registered: verbs::mr::Registered,
    access: AccessFlags,
    memory: Memory,
    /// The owner, taken apart; put together again only after the device's access has ended.
    parts: Option<RawParts<B>>,
    pd: ProtectionDomain,
}

impl ProtectionDomain {
    /// Registers a buffer that the region then owns.
    ///
    /// Reading by the local device is always allowed; `access` says what else.
    ///
    /// # Errors
    /// [`RegisterError`], with the buffer; it names the locked-memory limit if that is in the way.
    #[doc(alias = "ibv_reg_mr")]
    pub fn register<B: StableBytes>(
        &self,
        buffer: B,
        access: AccessFlags,
    ) -> Result<MemoryRegion<B>, RegisterError<B>> {
        let parts = buffer.dissolve();
        let length = parts.len();
        let refuse = |parts: RawParts<B>, cause| {
            let findings = Vec::new();
            Err(RegisterError {
                buffer: Some(parts.rebuild()),
                length,
                cause,
                findings,
            })
        };
        if length == 0 {
            return refuse(parts, RegisterErrorCause::Empty);
        }
        if access.intersects(AccessFlags::NEED_WRITABLE) && !B::WRITABLE {
            return refuse(parts, RegisterErrorCause::ReadOnly);
        }
        let remote_writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        if access.intersects(remote_writes) && !access.contains(AccessFlags::LOCAL_WRITE) {
            return refuse(parts, RegisterErrorCause::NeedsLocalWrite);
        }
        let memory = parts.memory();
        let start = memory.address();
        if start.checked_add(length as u64).is_none() {
            let length = length as u64;
            return refuse(parts, RegisterErrorCause::Wraps { start, length });
        }
        match memory.register(self, access) {
            Ok(registered) => {
                let region = Region {
                    pd: self.inner.handle,
                    access,
                    start,
                    length: length as u64,
                };
                let living = self.context().living();
                living.enter_region(registered.lkey, region);
                Ok(MemoryRegion {
                    inner: Arc::new(MrInner {
                        registered,
                        access,
                        memory,
                        parts: Some(parts),
                        pd: self.clone(),
                    }),
                })
            }
            Err(error) => {
                let cause = explain(self.context(), error, start, length as u64);
                // While the memory is still as it was.
                let findings = diagnose::memory(start, length as u64);
                if matches!(error.cause, Cause::BadReply(_)) {
                    // It is registered, and nobody knows under which handle: the device may write
                    // it until the file is closed. Parts that are not rebuilt free nothing.
                    self.context().note_leak(length);
                    return Err(RegisterError {
                        buffer: None,
                        length,
                        cause,
                        findings,
                    });
                }
                Err(RegisterError {
                    buffer: Some(parts.rebuild()),
                    length,
                    cause,
                    findings,
                })
            }
        }
    }

    /// Registers `len` bytes of new, zeroed, page-aligned memory.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn allocate(
        &self,
        len: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion<PageBuf>, RegisterError<PageBuf>> {
        match PageBuf::try_zeroed(len) {
            Some(buffer) => self.register(buffer, access),
            None => Err(RegisterError {
                buffer: None,
                length: len,
                cause: RegisterErrorCause::NoMemory,
                findings: Vec::new(),
            }),
        }
    }
}

/// What can be said about a refused registration beyond its number. Only looks, and cannot fail.
fn explain(context: &Context, error: CommandError, start: u64, length: u64) -> RegisterErrorCause {
    if error.is_unsupported() || error.errno().is_none() {
        return error.into();
    }
    let device = context.query_device().ok();
    if let Some(max_mr_size) = device.as_ref().map(|device| device.max_mr_size)
        && length > max_mr_size
    {
        return RegisterErrorCause::TooLarge {
            max_mr_size,
            source: error,
        };
    }
    if error.errno() != Some(Errno::ENOMEM) {
        return error.into();
    }
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .and_then(|size| u64::try_from(size).ok())
        .filter(|size| *size > 0)
        .unwrap_or(4096);
    let pages = (start % page).saturating_add(length).div_ceil(page);
    let need = pages.saturating_mul(page);
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_MEMLOCK)
        .ok()
        .map(|(limit, _)| limit)
        .filter(|limit| *limit != libc::RLIM_INFINITY);
    if let Some(limit) = limit {
        let locked = diagnose::locked();
        let is_exempt = locked.is_some_and(|locked| locked.is_exempt);
        let pinned = locked.map_or(0, |locked| locked.pinned);
        // A kernel that a test plays knows no capabilities, and pins nothing that is counted.
        let counts = !context.is_from_node() || locked.is_some() && !is_exempt;
        if counts && need.saturating_add(pinned) > limit {
            return RegisterErrorCause::Memlock {
                need,
                limit,
                source: error,
            };
        }
        if !is_exempt {
            return RegisterErrorCause::MaybeMemlock {
                need,
                limit,
                source: error,
            };
        }
    }
    // With no limit in the way it is lack of memory, or of places in the device's table.
    match device {
        Some(device) => RegisterErrorCause::NoRoom {
            max_mr: device.max_mr,
            source: error,
        },
        None => error.into(),
    }
}

impl<B: StableBytes> MemoryRegion<B> {
    /// Its length in bytes; never 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.inner.memory.len()
    }

    /// The address under which the device knows its first byte.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.inner.memory.address()
    }

    /// The key for local work requests.
    #[must_use]
    pub fn lkey(&self) -> Lkey {
        self.inner.registered.lkey
    }

    /// The key for peers.
    #[must_use]
    pub fn rkey(&self) -> Rkey {
        self.inner.registered.rkey
    }

    /// What the device and peers may do with it.
    #[must_use]
    pub fn access(&self) -> AccessFlags {
        self.inner.access
    }

    /// The protection domain it belongs to.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// A stretch of it for a work request.
    ///
    /// # Errors
    /// [`RangeError`] if it is not inside the region or longer than 2³¹ bytes;
    /// [`slices`](Self::slices) cuts what is longer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Sge, RangeError> {
        let (start, len) = self.bounds(range)?;
        let short = u32::try_from(len).ok().filter(|len| *len <= MAX_MESSAGE);
        let length = short.ok_or(RangeError::TooLong { given: len })?;
        Ok(self.inner.element(start, length))
    }

    /// Where a peer finds the byte at `offset`, for the peer to be told. The end itself is allowed, as
    /// it is in [`slice`](Self::slice): a request of no bytes can be made there, and any other is
    /// refused by this end's device.
    ///
    /// Of a region without any REMOTE right the key is 0, which opens nothing: a peer that uses it is told
    /// [`RemoteAccessError`](crate::WcStatus::RemoteAccessError).
    ///
    /// # Errors
    /// [`RangeError`] if it is past the end.
    pub fn remote(&self, offset: usize) -> Result<RemoteAddr, RangeError> {
        self.bounds(offset..)?;
        Ok(RemoteAddr {
            addr: self.addr() + offset as u64,
            rkey: self.rkey(),
        })
    }

    /// Copies `bytes` into the region at `offset`.
    ///
    /// # Errors
    /// [`RangeError`] if they do not fit, or if the buffer is read-only.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), RangeError> {
        if !B::WRITABLE {
            return Err(RangeError::ReadOnly);
        }
        self.check(offset, bytes.len())?;
        self.inner.memory.write(offset, bytes);
        Ok(())
    }

    /// Copies bytes of the region, from `offset` on, into `bytes`.
    ///
    /// While the device or a peer writes them, each aligned stretch of 8 bytes is read whole, and
    /// nothing is promised about how several of them go together.
    ///
    /// # Errors
    /// [`RangeError`] if there are not so many.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<(), RangeError> {
        self.check(offset, bytes.len())?;
        self.inner.memory.read(offset, bytes);
        Ok(())
    }

    /// Copies a stretch of the region into a new vector.
    ///
    /// # Errors
    /// [`RangeError`] if it is not inside the region.
    pub fn to_vec(&self, range: impl RangeBounds<usize>) -> Result<Vec<u8>, RangeError> {
        let (start, len) = self.bounds(range)?;
        let mut bytes = vec![0; len];
        self.inner.memory.read(start, &mut bytes);
        Ok(bytes)
    }

    /// Reads 8 bytes as one number in the machine's byte order, as atomic operations see them.
    ///
    /// # Errors
    /// [`RangeError`] if they are not inside the region or not 8-aligned in memory.
    pub fn load_u64(&self, offset: usize) -> Result<u64, RangeError> {
        self.check(offset, 8)?;
        self.inner
            .memory
            .load(offset)
            .ok_or(RangeError::Unaligned { offset })
    }

    /// Writes 8 bytes as one number in the machine's byte order.
    ///
    /// # Errors
    /// [`RangeError`], as [`load_u64`](Self::load_u64), or if the buffer is read-only.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), RangeError> {
        if !B::WRITABLE {
            return Err(RangeError::ReadOnly);
        }
        self.check(offset, 8)?;
        self.inner
            .memory
            .store(offset, value)
            .ok_or(RangeError::Unaligned { offset })
    }

    /// Deregisters, and gives the buffer back.
    ///
    /// # Errors
    /// [`DeregisterError`] with the region: other handles to it are alive, or the kernel refused.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn into_inner(self) -> Result<B, DeregisterError<Self>> {
        let mut inner = match Arc::try_unwrap(self.inner) {
            Ok(inner) => inner,
            Err(inner) => {
                let others = Arc::strong_count(&inner).saturating_sub(1);
                let cause = DeregisterErrorCause::Shared { others };
                return Err(DeregisterError {
                    region: Self { inner },
                    cause,
                });
            }
        };
        if !inner.is_fenced() {
            let region = Self {
                inner: Arc::new(inner),
            };
            let cause = DeregisterErrorCause::NotFenced;
            return Err(DeregisterError { region, cause });
        }
        if let Err(error) = inner.deregister() {
            let region = Self {
                inner: Arc::new(inner),
            };
            return Err(DeregisterError {
                region,
                cause: error.into(),
            });
        }
        match inner.parts.take() {
            Some(parts) => Ok(parts.rebuild()),
            // Only `Drop` and this function take the parts, and each ends the region.
            None => unreachable!("a region has its owner's parts until it ends"),
        }
    }

    fn check(&self, offset: usize, len: usize) -> Result<(), RangeError> {
        let end = offset
            .checked_add(len)
            .ok_or_else(|| self.endless(offset))?;
        if end <= self.len() {
            Ok(())
        } else {
            Err(RangeError::Outside {
                start: offset,
                end,
                len: self.len(),
            })
        }
    }

    fn endless(&self, start: usize) -> RangeError {
        RangeError::Endless {
            start,
            len: self.inner.memory.len(),
        }
    }

    fn bounds(&self, range: impl RangeBounds<usize>) -> Result<(usize, usize), RangeError> {
        let after = |byte: usize, start| byte.checked_add(1).ok_or_else(|| self.endless(start));
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => after(*start, *start)?,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => after(*end, start)?,
            Bound::Excluded(end) => *end,
            Bound::Unbounded if start > self.len() => {
                let len = self.len();
                return Err(RangeError::PastEnd { start, len });
            }
            Bound::Unbounded => self.len(),
        };
        match end.checked_sub(start) {
            Some(len) if end <= self.len() => Ok((start, len)),
            None => Err(RangeError::Reversed { start, end }),
            Some(_) => Err(RangeError::Outside {
                start,
                end,
                len: self.len(),
            }),
        }
    }
}

impl<B: StableBytes> MrInner<B> {
    /// Takes the device's access away. Only success says that it is gone: after the device has been
    /// removed the kernel still answers this, once, and while it is being removed it says `EIO`
    /// before the device has stopped.
    fn deregister(&self) -> Result<(), CommandError> {
        let context = self.pd.context();
        let session = context.session();
        let registered = &self.registered;
        // Before any lock: in a forked child its holder may not exist.
        if !session.is_ours() {
            return verbs::mr::deregister(session, registered.handle);
        }
        let region = context.living().leave_region(registered.lkey);
        let outcome = verbs::mr::deregister(session, registered.handle);
        if let (Err(error), Some(region)) = (&outcome, region)
            && !error.is_done()
        {
            context.living().enter_region(registered.lkey, region);
        }
        outcome
    }

    /// Whether the device touches the memory no more once the registration has ended.
    fn is_fenced(&self) -> bool {
        let provider = self.pd.context().provider();
        provider.is_some_and(|provider| provider.dereg_fences())
    }

    /// Frees the owner's memory, or keeps it for as long as a driver may still write it.
    fn release(&mut self) {
        let Some(parts) = self.parts.take() else {
            return;
        };
        if self.is_fenced() {
            drop(parts.rebuild());
        } else {
            self.pd.inner.bury(Box::new(Buried::new(parts)));
        }
    }
}

impl<B: StableBytes> Drop for MrInner<B> {
    fn drop(&mut self) {
        if self.parts.is_none() {
            return;
        }
        match self.deregister() {
            Ok(()) => self.release(),
            // The device may go on writing: better lost than reused. In a forked child the memory
            // is the child's copy, but pages pinned for the parent may be among it.
            Err(error) => {
                if error.cause != Cause::ForeignProcess {
                    self.pd.context().note_leak(self.memory.len());
                }
                // Parts that are dropped without being rebuilt free nothing.
                self.parts = None;
            }
        }
    }
}

impl<B: StableBytes> Clone for MemoryRegion<B> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<B: StableBytes> fmt::Debug for MemoryRegion<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("len", &self.len())
            .field("lkey", &format_args!("{:#x}", self.lkey()))
            .field("rkey", &format_args!("{:#x}", self.rkey()))
            .field("access", &self.inner.access)
            .finish()
    }
}

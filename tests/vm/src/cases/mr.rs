//! Memory regions: what can be registered, with which rights, and what comes back.

use std::sync::Arc;

use nix::sys::resource::{Resource, setrlimit};
use uverbs::abi::layout::cmd::{
    IB_USER_VERBS_CMD_ALLOC_PD, IB_USER_VERBS_CMD_REG_MR, ib_uverbs_alloc_pd,
    ib_uverbs_alloc_pd_resp, ib_uverbs_reg_mr, ib_uverbs_reg_mr_resp,
};
use uverbs::abi::{Command, Session};
use uverbs::{
    AccessFlags, DeregisterErrorCause, Errno, MemoryRegion, PageBuf, RangeError,
    RegisterErrorCause, RemoteAddr, SendWr, StableBytes, WcStatus,
};

use super::pair::{
    End, Failure, Spy, all_access, as_nobody, ensure, open, pair, pattern, same, same_bytes,
};
use super::{Case, CaseResult, Verdict};

pub(super) const CASES: &[Case] = &[
    Case::new("mr::every_owner", every_owner),
    Case::new("mr::all_access_flags_as_the_kernel_judges", all_flags).every_kernel(),
    Case::new("mr::read_only_memory", read_only),
    Case::new("mr::of_no_bytes", no_bytes),
    Case::new("mr::a_range_that_wraps", wraps),
    Case::new("mr::clones_and_into_inner", clones),
    Case::new("mr::bounds", bounds),
    Case::new("mr::locked_memory_limit", memlock),
    Case::new("mr::sizes_and_many", sizes_and_many),
];

static TEXT: &[u8] = b"bytes in the part of the program that nobody may write";

/// The peer writes into a region.
fn poke(a: &End, remote: RemoteAddr, bytes: &[u8]) -> Result<(), Failure> {
    a.qp.post_send(&[SendWr::write_inline(1, bytes, remote).signaled()])?;
    a.expect("the peer's write", 1, WcStatus::Success).map(drop)
}

/// The peer reads all of a region.
fn peek<B: StableBytes>(a: &End, region: &MemoryRegion<B>) -> Result<Vec<u8>, Failure> {
    let copy = a.pd.allocate(region.len(), AccessFlags::LOCAL_WRITE)?;
    a.qp.post_send(&[SendWr::read(2, &[copy.slice(..)?], region.remote(0)?).signaled()])?;
    a.expect("the peer's read", 2, WcStatus::Success)?;
    Ok(copy.to_vec(..)?)
}

fn every_owner() -> CaseResult {
    let (a, b) = pair()?;
    let mut vector = Vec::with_capacity(5000);
    vector.extend_from_slice(&pattern(3001, 1));
    let address = vector.as_ptr().addr();
    let region = b.pd.register(vector, all_access())?;
    same(
        "where",
        (region.addr(), region.len()),
        (address as u64, 3001),
    )?;
    poke(&a, region.remote(2990)?, b"from a peer")?;
    let mut want = pattern(3001, 1);
    want[2990..].copy_from_slice(b"from a peer");
    same_bytes("read by a peer", &peek(&a, &region)?, &want)?;
    let vector = region.into_inner()?;
    same_bytes("vector", &vector, &want)?;
    same(
        "vector",
        (vector.as_ptr().addr(), vector.capacity()),
        (address, 5000),
    )?;

    let region =
        b.pd.register(vec![7; 17].into_boxed_slice(), all_access())?;
    poke(&a, region.remote(3)?, b"box")?;
    region.write_at(16, b"!")?;
    let back = region.into_inner()?;
    let mut want = [7; 17];
    want[3..6].copy_from_slice(b"box");
    want[16] = b'!';
    same_bytes("box", &back, &want)?;

    let mut pages = PageBuf::zeroed(8192);
    pages.as_mut_slice()[4095] = 9;
    let region = b.pd.register(pages, all_access())?;
    same("aligned", region.addr() % 4096, 0)?;
    poke(&a, region.remote(4096)?, b"page")?;
    let pages = region.into_inner()?;
    same_bytes("pages", &pages.as_slice()[4095..4100], b"\x09page")?;
    let key = b.pd.register(pages, all_access())?.rkey();

    let shared: Arc<[u8]> = Arc::from(pattern(500, 3));
    let region =
        b.pd.register(Arc::clone(&shared), AccessFlags::REMOTE_READ)?;
    ensure(
        region.rkey() != key,
        "the key of a region that is gone is used again at once",
    )?;
    same_bytes("shared", &peek(&a, &region)?, &shared)?;
    let back = region.into_inner()?;
    ensure(Arc::ptr_eq(&back, &shared), "another allocation")?;
    drop(back);
    same("handles", Arc::strong_count(&shared), 1)?;

    let region = b.pd.register(TEXT, AccessFlags::REMOTE_READ)?;
    same_bytes("static", &peek(&a, &region)?, TEXT)?;
    same("static", region.into_inner()?.as_ptr(), TEXT.as_ptr())?;
    same(
        "leaked",
        (a.context.leaked_bytes(), b.context.leaked_bytes()),
        (0, 0),
    )?;
    Ok(Verdict::Passed)
}

/// A protection domain, and regions in it, without the library's opinion.
struct Raw(Session, u32);

impl Raw {
    fn new(session: Session) -> Result<Self, Failure> {
        let request = ib_uverbs_alloc_pd::default();
        let mut response = ib_uverbs_alloc_pd_resp::default();
        let mut command = Command::invoke_write("ALLOC_PD", IB_USER_VERBS_CMD_ALLOC_PD);
        session.run(command.core(&request, &mut response))?;
        Ok(Self(session, response.pd_handle))
    }

    /// What the kernel says; what it registers stays so until the device is closed.
    fn register(&self, address: usize, length: u64, access: u32) -> Result<(), Option<Errno>> {
        let request = ib_uverbs_reg_mr {
            start: address as u64,
            length,
            hca_va: address as u64,
            pd_handle: self.1,
            access_flags: access,
            ..Default::default()
        };
        let mut response = ib_uverbs_reg_mr_resp::default();
        let mut command = Command::invoke_write("REG_MR", IB_USER_VERBS_CMD_REG_MR);
        let ran = self.0.run(command.core(&request, &mut response));
        ran.map(drop).map_err(|error| error.errno())
    }
}

fn all_flags() -> CaseResult {
    let (_spy, context, session) = Spy::open("rxe0")?;
    let pd = context.alloc_pd()?;
    let raw = Raw::new(session)?;
    let memory: &'static [u8] = Box::leak(vec![0; 4096].into_boxed_slice());
    let mut refused = 0;
    for bits in 0..32 {
        let access = AccessFlags::from_bits(bits).ok_or("five flags, five bits")?;
        let kernel = raw.register(memory.as_ptr().addr(), 4096, bits);
        let ours = pd.allocate(4096, access);
        match (kernel, ours) {
            (Ok(()), Ok(region)) => same("kept", region.access(), access)?,
            (Err(Some(Errno::EINVAL)), Err(error)) => {
                refused += 1;
                let why = RegisterErrorCause::NeedsLocalWrite;
                same(&format!("{access:?}"), error.cause, why)?;
                let buffer = error.buffer.ok_or("the buffer is lost")?;
                same("the buffer", buffer.as_slice().len(), 4096)?;
            }
            (kernel, ours) => {
                let text = format!("{access:?}: the kernel says {kernel:?}, we say {ours:?}");
                return Err(text.into());
            }
        }
    }
    // REMOTE_WRITE, REMOTE_ATOMIC or both, times two other flags.
    same("refused", refused, 12)?;
    // No rights at all still let the device read: that is what a send needs.
    let (a, b) = pair()?;
    let out = a.pd.register(pattern(100, 5), AccessFlags::empty())?;
    let back = b.region(100, 0)?;
    a.qp.post_send(&[SendWr::write(1, &[out.slice(..)?], back.remote(0)?).signaled()])?;
    a.expect("sent from memory without rights", 1, WcStatus::Success)?;
    same_bytes("message", &back.to_vec(..)?, &pattern(100, 5))?;
    a.qp.post_send(&[SendWr::read(2, &[out.slice(..)?], back.remote(0)?).signaled()])?;
    a.expect("read into it", 2, WcStatus::LocalProtectionError)?;
    Ok(Verdict::Passed)
}

/// A range past the last address: the kernel says no more than `EINVAL`. (Here it is refused before
/// the kernel is asked; no buffer that is one can be so.)
fn wraps() -> CaseResult {
    let (_spy, _context, session) = Spy::open("rxe0")?;
    let raw = Raw::new(session)?;
    let last_page = usize::MAX - 4095;
    for (address, length) in [(last_page, 8192), (last_page, u64::MAX), (4096, u64::MAX)] {
        let what = format!("{length:#x} bytes at {address:#x}");
        same(
            &what,
            raw.register(address, length, 1),
            Err(Some(Errno::EINVAL)),
        )?;
    }
    Ok(Verdict::Passed)
}

fn read_only() -> CaseResult {
    let (a, b) = pair()?;
    for access in [AccessFlags::empty(), AccessFlags::REMOTE_READ] {
        let region = b.pd.register(TEXT, access)?;
        same(
            "write_at",
            region.write_at(0, b"x"),
            Err(RangeError::ReadOnly),
        )?;
        same("store", region.store_u64(0, 1), Err(RangeError::ReadOnly))?;
        same_bytes("as before", &region.to_vec(..)?, TEXT)?;
    }
    for write in [
        AccessFlags::LOCAL_WRITE,
        AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE,
        // A window could let a peer write: the kernel wants the memory writable for it.
        AccessFlags::MW_BIND,
        all_access(),
    ] {
        let error =
            b.pd.register(TEXT, write)
                .err()
                .ok_or("read-only memory to be written")?;
        same("cause", error.cause, RegisterErrorCause::ReadOnly)?;
        let shared: Arc<[u8]> = Arc::from(vec![1; 64]);
        let error =
            b.pd.register(shared, write)
                .err()
                .ok_or("shared memory to be written")?;
        same("cause", error.cause, RegisterErrorCause::ReadOnly)?;
    }
    let (_spy, _context, session) = Spy::open("rxe0")?;
    let raw = Raw::new(session)?;
    let address = TEXT.as_ptr().addr();
    let len = TEXT.len() as u64;
    let fault = Err(Some(Errno::EFAULT));
    for access in [AccessFlags::LOCAL_WRITE, AccessFlags::MW_BIND] {
        same(
            "kernel, to be written",
            raw.register(address, len, access.bits()),
            fault,
        )?;
    }
    same("kernel, to be read", raw.register(address, len, 0), Ok(()))?;
    let region = b.pd.register(TEXT, AccessFlags::REMOTE_READ)?;
    same_bytes("read by a peer", &peek(&a, &region)?, TEXT)?;
    a.qp.post_send(&[SendWr::write_inline(3, b"x", region.remote(0)?)])?;
    a.expect("written by a peer", 3, WcStatus::RemoteAccessError)?;
    same_bytes("as before", TEXT, &region.to_vec(..)?)?;
    Ok(Verdict::Passed)
}

fn no_bytes() -> CaseResult {
    let (_, pd) = open("rxe0")?;
    let error = pd
        .register(Vec::with_capacity(33), all_access())
        .err()
        .ok_or("0 bytes")?;
    same(
        "vector",
        (error.cause, error.length),
        (RegisterErrorCause::Empty, 0),
    )?;
    let buffer = error.buffer.ok_or("the buffer is lost")?;
    same("given back", buffer.capacity(), 33)?;
    let error = pd.allocate(0, all_access()).err().ok_or("0 bytes")?;
    same("pages", error.cause, RegisterErrorCause::Empty)?;
    let nothing: &'static [u8] = &[];
    let error = pd
        .register(nothing, AccessFlags::empty())
        .err()
        .ok_or("0 bytes")?;
    same("static", error.cause, RegisterErrorCause::Empty)?;
    Ok(Verdict::Passed)
}

fn clones() -> CaseResult {
    let (a, b) = pair()?;
    let region = b.pd.register(vec![0u8; 64], all_access())?;
    let (second, third) = (region.clone(), region.clone());
    let error = region.into_inner().err().ok_or("taken from under others")?;
    same(
        "cause",
        error.cause,
        DeregisterErrorCause::Shared { others: 2 },
    )?;
    ensure(error.to_string().contains('2'), &error.to_string())?;
    let region = error.region;
    poke(&a, region.remote(0)?, b"still there")?;
    drop((second, third));
    same_bytes("vector", &region.into_inner()?[..11], b"still there")?;
    Ok(Verdict::Passed)
}

fn bounds() -> CaseResult {
    let (_, pd) = open("rxe0")?;
    let region = pd.allocate(100, all_access())?;
    for (sge, start, len) in [
        (region.slice(..), 0, 100),
        (region.slice(99..), 99, 1),
        (region.slice(..=0), 0, 1),
        (region.slice(100..), 100, 0),
        (region.slice(7..7), 7, 0),
        (region.slice(10..=19), 10, 10),
    ] {
        let sge = sge?;
        same(
            "address",
            (sge.addr(), sge.len()),
            (region.addr() + start, len),
        )?;
        same("key", sge.lkey(), region.lkey())?;
    }
    let (seven, huge) = (7, 1..usize::MAX);
    for (what, fails) in [
        ("..101", region.slice(..101).is_err()),
        ("..=100", region.slice(..=100).is_err()),
        ("101..", region.slice(101..).is_err()),
        ("8..7", region.slice(8..seven).is_err()),
        ("1..MAX", region.slice(huge).is_err()),
        ("..=MAX", region.slice(..=usize::MAX).is_err()),
        ("remote 101", region.remote(101).is_err()),
        ("write past the end", region.write_at(98, b"abc").is_err()),
        (
            "write far away",
            region.write_at(usize::MAX, b"abc").is_err(),
        ),
        ("read past the end", region.read_at(100, &mut [0]).is_err()),
        ("vector", region.to_vec(5..101).is_err()),
        ("word past the end", region.load_u64(96).is_err()),
        ("unaligned word", region.load_u64(4).is_err()),
        ("unaligned word", region.store_u64(1, 0).is_err()),
    ] {
        ensure(fails, &format!("{what} is taken"))?;
    }
    same_bytes("untouched", &region.to_vec(..)?, &[0; 100])?;
    same("past its end", region.write_at(100, b""), Ok(()))?;
    Ok(Verdict::Passed)
}

const LIMIT: u64 = 64 << 10;

/// Root is above the limit; another user is told of it, with both numbers.
fn memlock() -> CaseResult {
    setrlimit(Resource::RLIMIT_MEMLOCK, LIMIT, LIMIT)?;
    let (_, pd) = open("rxe0")?;
    pd.allocate(1 << 20, all_access())?;
    as_nobody(below_the_limit)?;
    Ok(Verdict::Passed)
}

fn below_the_limit() -> Result<(), Failure> {
    let (context, pd) = open("rxe0")?;
    let small = pd.allocate(60 << 10, all_access())?;
    for (len, pages) in [(5000, 2), (128 << 10, 32), (4096 + 1, 2)] {
        let error = pd
            .allocate(len, all_access())
            .err()
            .ok_or("above the limit")?;
        same(
            "length",
            (
                error.length,
                error.buffer.as_ref().map(|b| b.as_slice().len()),
            ),
            (len, Some(len)),
        )?;
        let RegisterErrorCause::Memlock {
            need,
            limit,
            source,
        } = error.cause
        else {
            return Err(format!("{len} bytes: {error}").into());
        };
        same("numbers", (need, limit), (pages * 4096, LIMIT))?;
        same("errno", source.errno(), Some(Errno::ENOMEM))?;
        let text = error.to_string();
        let said = text.contains(&need.to_string()) && text.contains("65536");
        ensure(said && text.contains("ulimit -l"), &text)?;
    }
    pd.allocate(4096, all_access())?;
    drop(small);
    pd.allocate(usize::try_from(LIMIT)?, all_access())?;
    same("leaked", context.leaked_bytes(), 0)
}

fn sizes_and_many() -> CaseResult {
    let (a, b) = pair()?;
    for len in [1, 2, 4095, 4096, 4097, 65_537, 1 << 20, 8 << 20] {
        let region = b.pd.allocate(len, all_access())?;
        poke(&a, region.remote(len - 1)?, b"z")?;
        same("last byte", region.to_vec(len - 1..)?, b"z".to_vec())?;
        a.qp.post_recv(&[])?;
    }
    let mut kept = Vec::new();
    for i in 0..200u8 {
        let region = b.pd.register(vec![0; 100], all_access())?;
        poke(&a, region.remote(usize::from(i % 100))?, &[i])?;
        kept.push(region);
    }
    for i in 0..1000usize {
        b.pd.allocate(1 + i % 9000, AccessFlags::empty())?;
    }
    for (i, region) in (0u8..).zip(kept) {
        let mut want = [0; 100];
        want[usize::from(i % 100)] = i;
        same_bytes("its own byte", &region.into_inner()?, &want)?;
    }
    same("leaked", b.context.leaked_bytes(), 0)?;
    Ok(Verdict::Passed)
}

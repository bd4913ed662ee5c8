//! Two connected queue pairs, `rxe0` to `rxe1`, and the waiting that cases share.
//!
//! Every wait has a deadline, and yields between polls: two busy pollers would starve the kernel's
//! own work on a small guest.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::seteuid;
use uverbs::abi::command::Value;
use uverbs::abi::sys::UverbsFd;
use uverbs::abi::{Command, Errno, Kernel, Mapping, Session};
use uverbs::{
    AccessFlags, CompletionChannel, CompletionQueue, ConnectOptions, Context, Endpoint,
    MemoryRegion, PathOptions, ProtectionDomain, QueuePair, QueuePairBuilder, Rc, Sge,
    SharedReceiveQueue, Wc, WcStatus,
};

/// What a case's own steps fail with.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How long anything that must happen may take in a slow guest.
pub const SOON: Duration = Duration::from_secs(20);

/// All rights that a registration can give.
pub fn all_access() -> AccessFlags {
    AccessFlags::LOCAL_WRITE
        | AccessFlags::REMOTE_WRITE
        | AccessFlags::REMOTE_READ
        | AccessFlags::REMOTE_ATOMIC
}

/// One end of a connection.
#[derive(Debug, Clone)]
pub struct End {
    /// The device.
    pub context: Context,
    /// Its protection domain.
    pub pd: ProtectionDomain,
    /// Both queues report here.
    pub cq: CompletionQueue,
    /// The queue pair.
    pub qp: QueuePair<Rc>,
    /// What the other end was told.
    pub endpoint: Endpoint,
}

/// How an end is to be made.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Completions that the completion queue holds.
    pub depth: u32,
    /// Requests that the send queue holds.
    pub send: u32,
    /// Requests that the receive queue holds.
    pub recv: u32,
    /// Elements of one request.
    pub sge: u32,
    /// Bytes of inline data.
    pub inline: u32,
    /// Whether every request makes a completion.
    pub signal_all: bool,
    /// Where receives come from, if shared.
    pub srq: Option<SharedReceiveQueue>,
    /// Where the completion queue tells of completions, if anywhere.
    pub channel: Option<CompletionChannel>,
    /// How the path is made.
    pub path: PathOptions,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            depth: 256,
            send: 64,
            recv: 64,
            sge: 4,
            inline: 128,
            signal_all: false,
            srq: None,
            channel: None,
            path: PathOptions::default(),
        }
    }
}

/// Opens a device and makes a protection domain on it.
pub fn open(device: &str) -> Result<(Context, ProtectionDomain), Failure> {
    let context = Context::open(device)?;
    let pd = context.alloc_pd()?;
    Ok((context, pd))
}

impl Shape {
    /// An end in INIT, on a domain that is there already.
    pub fn prepare(&self, pd: &ProtectionDomain) -> Result<End, Failure> {
        let context = pd.context().clone();
        let cq = context.create_cq(self.depth);
        let cq = match &self.channel {
            Some(channel) => cq.channel(channel, 0).build()?,
            None => cq.build()?,
        };
        let qp = self.builder(pd, &cq).build()?;
        let endpoint = qp.prepare(&self.path)?;
        Ok(End {
            context,
            pd: pd.clone(),
            cq,
            qp,
            endpoint,
        })
    }

    fn builder<'p>(
        &'p self,
        pd: &'p ProtectionDomain,
        cq: &'p CompletionQueue,
    ) -> QueuePairBuilder<'p, Rc> {
        let builder = pd
            .create_qp::<Rc>(cq, cq)
            .max_send_wr(self.send)
            .max_recv_wr(self.recv)
            .max_send_sge(self.sge)
            .max_recv_sge(self.sge)
            .max_inline_data(self.inline)
            .signal_all(self.signal_all);
        match &self.srq {
            Some(srq) => builder.srq(srq),
            None => builder,
        }
    }
}

/// Connects two ends that are in INIT.
pub fn connect(a: &End, b: &End, options: &ConnectOptions) -> Result<(), Failure> {
    a.qp.connect(&a.endpoint, &b.endpoint, options)?;
    b.qp.connect(&b.endpoint, &a.endpoint, options)?;
    Ok(())
}

/// `rxe0` and `rxe1`, connected over the wire.
pub fn pair() -> Result<(End, End), Failure> {
    shaped_pair(&Shape::default(), &ConnectOptions::default())
}

/// As [`pair`], made to measure.
pub fn shaped_pair(shape: &Shape, options: &ConnectOptions) -> Result<(End, End), Failure> {
    let a = shape.prepare(&open("rxe0")?.1)?;
    let b = shape.prepare(&open("rxe1")?.1)?;
    connect(&a, &b, options)?;
    Ok((a, b))
}

/// Waits until `ready` gives a value.
pub fn wait_for<T>(
    what: &str,
    mut ready: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(value) = ready()? {
            return Ok(value);
        }
        if Instant::now() > deadline {
            return Err(format!("{what}: did not happen within {} s", SOON.as_secs()).into());
        }
        thread::yield_now();
    }
}

impl End {
    /// Waits for exactly `count` completions, in order.
    pub fn completions(&self, count: usize) -> Result<Vec<Wc>, Failure> {
        let mut found = Vec::new();
        wait_for(&format!("{count} completions"), || {
            let mut room = [Wc::default(); 16];
            let want = room.len().min(count - found.len());
            let (room, _) = room.split_at_mut(want);
            found.extend_from_slice(self.cq.poll(room)?);
            Ok((found.len() == count).then_some(()))
        })?;
        Ok(found)
    }

    /// Waits for one completion.
    pub fn completion(&self) -> Result<Wc, Failure> {
        self.completions(1)?
            .first()
            .copied()
            .ok_or_else(|| "no completion".into())
    }

    /// Waits for one completion and wants it to be of this request and status.
    pub fn expect(&self, what: &str, wr_id: u64, status: WcStatus) -> Result<Wc, Failure> {
        let wc = self.completion().map_err(|e| format!("{what}: {e}"))?;
        same(what, (wc.wr_id, wc.status), (wr_id, status))?;
        same(&format!("{what}: queue pair"), wc.qp_num, self.qp.qp_num())?;
        Ok(wc)
    }

    /// Fails if a completion is there, or comes while the kernel gets the chance to make one.
    pub fn expect_none(&self, what: &str) -> Result<(), Failure> {
        for _ in 0..50 {
            let mut room = [Wc::default(); 1];
            if let Some(wc) = self.cq.poll(&mut room)?.first() {
                return Err(format!("{what}: a completion too many: {wc:?}").into());
            }
            thread::yield_now();
        }
        Ok(())
    }

    /// Registers memory with all rights, filled with a pattern that `seed` shifts.
    pub fn region(&self, len: usize, seed: u8) -> Result<MemoryRegion, Failure> {
        let region = self.pd.allocate(len, all_access())?;
        region.write_at(0, &pattern(len, seed))?;
        Ok(region)
    }
}

/// Bytes that are different from place to place and from seed to seed.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| {
            let [a, b, c, ..] = i.to_le_bytes();
            a.wrapping_mul(31) ^ b.wrapping_mul(7) ^ c ^ seed
        })
        .collect()
}

/// Fails with both values if they differ.
pub fn same<T: PartialEq + fmt::Debug>(what: &str, got: T, want: T) -> Result<(), Failure> {
    if got == want {
        Ok(())
    } else {
        Err(format!("{what}: got {got:?}, want {want:?}").into())
    }
}

/// Fails unless the condition holds.
pub fn ensure(holds: bool, what: &str) -> Result<(), Failure> {
    if holds {
        Ok(())
    } else {
        Err(what.to_owned().into())
    }
}

/// Fails at the first byte that differs.
pub fn same_bytes(what: &str, got: &[u8], want: &[u8]) -> Result<(), Failure> {
    same(&format!("{what}: length"), got.len(), want.len())?;
    match got.iter().zip(want).position(|(g, w)| g != w) {
        None => Ok(()),
        Some(at) => Err(format!("{what}: byte {at} differs").into()),
    }
}

/// Does something as a user without rights. The verdict of a case can only be left as root.
pub fn as_nobody<T>(run: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    seteuid(65534.into())?;
    let result = run();
    seteuid(0.into())?;
    result
}

/// What fills memory that must stay untouched.
pub const POISON: u8 = 0xE7;

/// Splits `total` bytes into `count` stretches of unequal, mostly odd lengths with gaps between
/// them, the first at an odd place: offset and length of each.
pub fn layout(total: usize, count: usize) -> Vec<(usize, usize)> {
    let weight = |i: usize| 1 + (i * 5 + 3) % 7;
    let share = total / (0..count).map(weight).sum::<usize>().max(1);
    let mut rest = total;
    let mut at = 5;
    (0..count)
        .map(|i| {
            let len = match i + 1 == count {
                true => rest,
                false => ((share * weight(i)) | 1).min(rest),
            };
            let stretch = (at, len);
            rest -= len;
            at += len + 3 + i % 3;
            stretch
        })
        .collect()
}

/// Poison with the message in its stretches, and poison after it.
pub fn scattered(stretches: &[(usize, usize)], message: &[u8]) -> Vec<u8> {
    let end = stretches.iter().map(|(at, len)| at + len).max();
    let mut image = vec![POISON; end.unwrap_or(0) + 67];
    let mut rest = message;
    for (at, len) in stretches {
        let (piece, tail) = rest.split_at(*len.min(&rest.len()));
        image[*at..at + piece.len()].copy_from_slice(piece);
        rest = tail;
    }
    image
}

/// The stretches as elements of a request.
pub fn elements(region: &MemoryRegion, stretches: &[(usize, usize)]) -> Result<Vec<Sge>, Failure> {
    stretches
        .iter()
        .map(|(at, len)| Ok(region.slice(*at..at + len)?))
        .collect()
}

/// Opens a device's node for commands by hand.
#[allow(unsafe_code, reason = "the cases vouch for the commands that they run")]
pub(super) fn raw_file(node: &std::path::Path) -> std::io::Result<UverbsFd> {
    // SAFETY: the commands that cases send by hand name no memory but what they pass by reference,
    // or register what outlives the case; and the spy carries out all that it is asked to.
    unsafe { UverbsFd::open(node, None) }
}

/// The real kernel with a note of what it was asked: a device can be opened on it, and commands of
/// a case's own can be sent to the same open file.
pub struct Spy {
    kernel: UverbsFd,
    commands: AtomicU32,
    doorbells: AtomicU32,
    created: Mutex<Vec<(&'static str, u32)>>,
}

impl Spy {
    /// Opens a device twice over one file: as a context, and for commands by hand.
    pub fn open(name: &str) -> Result<(Arc<Self>, Context, Session), Failure> {
        let devices = uverbs::devices()?;
        let device = devices.iter().find(|device| device.name() == name);
        let device = device.ok_or_else(|| format!("no device {name}"))?;
        let spy = Arc::new(Self {
            kernel: raw_file(device.node())?,
            commands: AtomicU32::new(0),
            doorbells: AtomicU32::new(0),
            created: Mutex::new(Vec::new()),
        });
        let kernel: Arc<dyn Kernel> = Arc::clone(&spy) as _;
        let context = Context::on_kernel(
            Arc::clone(&kernel),
            name,
            device.node(),
            device.driver_abi(),
        )?;
        let session = Session::new(kernel, context.driver().to_raw());
        Ok((spy, context, session))
    }

    /// Commands by `ioctl()` so far.
    pub fn commands(&self) -> u32 {
        self.commands.load(Ordering::SeqCst)
    }

    /// Commands by `write()` so far: doorbells.
    pub fn doorbells(&self) -> u32 {
        self.doorbells.load(Ordering::SeqCst)
    }

    /// The kernel's handle of what this command made last.
    pub fn last(&self, command: &str) -> Result<u32, Failure> {
        let created = self.created.lock().unwrap_or_else(PoisonError::into_inner);
        let found = created.iter().rev().find(|(name, _)| *name == command);
        Ok(found.ok_or("nothing was made")?.1)
    }
}

impl Kernel for Spy {
    fn ioctl(&self, driver: u32, command: &mut Command<'_>) -> Result<(), Errno> {
        self.commands.fetch_add(1, Ordering::SeqCst);
        self.kernel.ioctl(driver, command)?;
        for entry in command.entries() {
            if let Value::NewObject(Some(handle)) = entry.value {
                let mut created = self.created.lock().unwrap_or_else(PoisonError::into_inner);
                created.push((command.name(), handle));
            }
        }
        Ok(())
    }

    fn write(&self, frame: &mut [u8], response: &mut [u8]) -> Result<(), Errno> {
        self.doorbells.fetch_add(1, Ordering::SeqCst);
        self.kernel.write(frame, response)
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        self.kernel.map(offset, len)
    }
}

impl fmt::Debug for Spy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kernel.fmt(f)
    }
}

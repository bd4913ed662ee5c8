//! Two connected queue pairs, `rxe0` to `rxe1`, and the waiting that cases share.
//!
//! Every wait has a deadline, and yields between polls: two busy pollers would starve the kernel's
//! own work on a small guest.

use std::thread;
use std::time::{Duration, Instant};

use uverbs::{
    AccessFlags, CompletionQueue, ConnectOptions, Context, Endpoint, MemoryRegion, PathOptions,
    ProtectionDomain, QueuePair, QueuePairBuilder, Rc, SharedReceiveQueue, Wc,
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
        let cq = context.create_cq(self.depth).build()?;
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
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Result<(), Failure> {
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

//! What the tests on the fake kernel share: two devices of a fabric with a connected pair.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

pub mod channel;
pub mod life;
pub mod sources;

use uverbs::fake::{Fabric, FakeDevice};
use uverbs::{
    CompletionQueue, ConnectOptions, Context, Endpoint, PathOptions, ProtectionDomain, QueuePair,
    Rc, RnrTimer, SharedReceiveQueue, Wc, WcStatus,
};

/// One end of a connection.
pub struct End {
    pub device: FakeDevice,
    pub context: Context,
    pub pd: ProtectionDomain,
    pub cq: CompletionQueue,
    pub qp: QueuePair<Rc>,
    pub endpoint: Endpoint,
}

impl End {
    pub fn new(device: &FakeDevice) -> Self {
        let context = device.open().expect("opens");
        Self::on(device, &context, None)
    }

    pub fn with_srq(device: &FakeDevice, max_wr: u32) -> (Self, SharedReceiveQueue) {
        let context = device.open().expect("opens");
        let pd = context.alloc_pd().expect("a domain");
        let srq = pd.create_srq(max_wr).build().expect("a shared queue");
        (Self::on(device, &context, Some(&srq)), srq)
    }

    pub fn on(device: &FakeDevice, context: &Context, srq: Option<&SharedReceiveQueue>) -> Self {
        let pd = context.alloc_pd().expect("a domain");
        // Miri fills a queue slowly.
        let (depth, requests) = if cfg!(miri) { (8, 5) } else { (64, 64) };
        let cq = context
            .create_cq(depth)
            .build()
            .expect("a completion queue");
        let builder = pd
            .create_qp::<Rc>(&cq, &cq)
            .max_send_wr(requests)
            .max_recv_wr(requests)
            .max_send_sge(32)
            .max_recv_sge(32)
            .max_inline_data(128);
        let builder = match srq {
            Some(srq) => builder.srq(srq),
            None => builder,
        };
        let qp = builder.build().expect("a queue pair");
        let endpoint = qp.prepare(&PathOptions::default()).expect("INIT");
        Self {
            device: device.clone(),
            context: context.clone(),
            pd,
            cq,
            qp,
            endpoint,
        }
    }

    pub fn connect(&self, other: &Self, options: &ConnectOptions) {
        let connected = self.qp.connect(&self.endpoint, &other.endpoint, options);
        connected.expect("RTS");
    }

    /// The next completion, which must be there.
    pub fn completion(&self) -> Wc {
        let mut room = [Wc::default()];
        let found = self.cq.poll(&mut room).expect("polls");
        *found.first().expect("a completion")
    }

    /// The status of the next completion, which must be there.
    pub fn status(&self) -> (u64, WcStatus) {
        let wc = self.completion();
        (wc.wr_id, wc.status)
    }

    /// Everything that is there.
    pub fn completions(&self) -> Vec<(u64, WcStatus)> {
        let mut room = [Wc::default(); 64];
        let found = self.cq.poll(&mut room).expect("polls");
        found.iter().map(|wc| (wc.wr_id, wc.status)).collect()
    }

    pub fn nothing(&self) {
        assert_eq!(self.completions(), []);
    }
}

/// Two devices and a connection between them.
pub struct Pair {
    pub fabric: Fabric,
    pub a: End,
    pub b: End,
}

pub fn pair() -> Pair {
    pair_with(&ConnectOptions::default())
}

pub fn pair_with(options: &ConnectOptions) -> Pair {
    let fabric = Fabric::new();
    let (a, b) = (fabric.add_device("rxe0"), fabric.add_device("rxe1"));
    let (a, b) = (End::new(&a), End::new(&b));
    a.connect(&b, options);
    b.connect(&a, options);
    Pair { fabric, a, b }
}

/// Options with this many tries where there is no receive.
pub fn rnr_retry(rnr_retry: u8) -> ConnectOptions {
    ConnectOptions {
        rnr_retry,
        min_rnr_timer: RnrTimer::from_code(1),
        ..ConnectOptions::default()
    }
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    let mut state = u32::from(seed) << 1 | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

//! How to test a program that uses RDMA without a device: `cargo run --example on_the_fake --features
//! fake`, and the same as unit tests: `cargo test --example on_the_fake`.
//!
//! The program is `Counter`, which adds to a number in a peer's memory. It knows nothing of fakes: it
//! is handed a `Context`, and who opened that is the caller's business.

#![allow(clippy::print_stdout, reason = "an example is there to be looked at")]

use std::error::Error;

use uverbs::fake::{Fabric, FakeDevice};
use uverbs::{
    AccessFlags, CompletionQueue, ConnectOptions, Context, Endpoint, MemoryRegion, PathOptions,
    QueuePair, Rc, RemoteAddr, SendWr, Wc,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A number in a peer's memory. This is the program under test.
struct Counter {
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
    before: MemoryRegion,
    endpoint: Endpoint,
}

impl Counter {
    fn new(context: &Context) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(4).build()?;
        let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
        let endpoint = qp.prepare(&PathOptions::default())?;
        let before = pd.allocate(8, AccessFlags::LOCAL_WRITE)?;
        Ok(Self {
            qp,
            cq,
            before,
            endpoint,
        })
    }

    fn connect(&self, peer: &Endpoint) -> Result<()> {
        Ok(self
            .qp
            .connect(&self.endpoint, peer, &ConnectOptions::default())?)
    }

    /// Adds, and gives what the number was before.
    fn add(&self, number: RemoteAddr, add: u64) -> Result<u64> {
        let into = self.before.slice(..)?;
        self.qp
            .post_send(&[SendWr::fetch_add(1, into, number, add).signaled()])?;
        let mut room = [Wc::default()];
        loop {
            if let [completion] = self.cq.poll(&mut room)? {
                completion.ok()?;
                return Ok(self.before.load_u64(0)?);
            }
            std::thread::yield_now();
        }
    }
}

/// Two connected programs on two devices of one fabric, and a number of the second one's.
struct World {
    device: FakeDevice,
    ours: Counter,
    theirs: Counter,
    number: MemoryRegion,
}

fn world() -> Result<World> {
    let fabric = Fabric::new();
    let (device, other) = (fabric.add_device("rxe0"), fabric.add_device("rxe1"));
    let ours = Counter::new(&device.open()?)?;
    let theirs = Counter::new(&other.open()?)?;
    ours.connect(&theirs.endpoint)?;
    theirs.connect(&ours.endpoint)?;
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_ATOMIC;
    let number = theirs.qp.pd().allocate(8, access)?;
    Ok(World {
        device,
        ours,
        theirs,
        number,
    })
}

fn main() -> Result<()> {
    let world = world()?;
    for add in [40, 2] {
        let before = world.ours.add(world.number.remote(0)?, add)?;
        println!("{before} + {add} = {}", world.number.load_u64(0)?);
    }
    // A right that the peer does not give: the program finds a completion with a status.
    let secret = world.theirs.qp.pd().allocate(8, AccessFlags::empty())?;
    let error = world.ours.add(secret.remote(0)?, 1);
    println!("not ours to change: {}", error.expect_err("no right"));
    println!("calls to the kernel: {}", world.device.calls().len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use uverbs::{Errno, WcError, WcStatus};

    use super::{Counter, Fabric, world};

    #[test]
    fn it_adds() {
        let world = world().unwrap();
        let number = world.number.remote(0).unwrap();
        assert_eq!(world.ours.add(number, 40).unwrap(), 0);
        assert_eq!(world.ours.add(number, 2).unwrap(), 40);
        assert_eq!(world.number.load_u64(0).unwrap(), 42);
    }

    #[test]
    fn a_peer_that_goes_away_is_an_error_and_not_a_wait_without_end() {
        let world = world().unwrap();
        let number = world.number.remote(0).unwrap();
        drop(world.theirs);
        let error = world.ours.add(number, 1).unwrap_err();
        let status = error.downcast::<WcError>().unwrap().status;
        assert_eq!(status, WcStatus::RetryExceeded);
    }

    #[test]
    fn nothing_is_left_behind_when_memory_cannot_be_registered() {
        let device = Fabric::new().add_device("rxe0");
        let context = device.open().unwrap();
        let before = device.live();
        device.fail_next("REG_MR", Errno::EFAULT);
        assert!(Counter::new(&context).is_err());
        assert_eq!(device.live(), before);
    }
}

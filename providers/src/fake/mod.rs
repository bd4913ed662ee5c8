//! The other side, played in memory: uverbs and `rdma_rxe` for tests that need no device, no root
//! and no kernel module, and that run under Miri.
//!
//! ```text
//!   Fabric ── a network of devices; one lock over all of it
//!     └ FakeDevice ── GIDs, a port, faults
//!         └ kernel() ── one open file: an `Arc<dyn Kernel>` for the crate above
//!
//!   kernel        the calls as they come in       control query   device, ports, memory, destroy
//!   spec call     attributes, as the ioctl has it  queues modify  objects with queues, their states
//!   world         objects, handles, dependents     wire serve     a request here, and at the peer
//!   ring request  queues, and what slots say       complete       completions, flush
//!   memory        registered memory (UNSAFE ROOM)  events         files of events
//!   channel       which completion is told         bare           the provider of devices without queues
//!   device faults what a test has in its hands
//! ```
//!
//! Written from the kernel's sources and measurements, not from the provider: neither may call the
//! other's code for what a slot or an index means.
//!
//! Everything happens in the thread that makes a call, so a program on it does the same each time.
//! What is left out is listed in `docs/fake.md`.

mod bare;
mod call;
mod channel;
mod complete;
mod control;
mod device;
mod events;
mod faults;
mod kernel;
mod memory;
mod modify;
mod query;
mod queues;
mod request;
mod ring;
mod serve;
mod spec;
mod wire;
mod world;

pub use self::bare::Bare;
pub use self::device::{FakeDevice, Live};
pub use self::faults::Spoil;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use self::world::World;

/// The world, as fabric, devices and open files share it.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<World>>);

impl Shared {
    /// Poison is passed over: a test that panicked is about to end, and what it left is still torn
    /// down.
    fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A network of fake devices, which reach each other by their GIDs.
#[derive(Clone, Default)]
pub struct Fabric {
    world: Shared,
}

impl Fabric {
    /// A network without devices.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Plugs a device in. The n-th has the addresses `fe80::ff:fe00:n`, `10.0.0.n` and `fd00::n` and
    /// one port, which is up.
    #[must_use]
    pub fn add_device(&self, name: &str) -> FakeDevice {
        FakeDevice::new(&self.world, name, false)
    }

    /// Plugs in a device whose queues have no part in user space, and whose driver has no number and
    /// no provider of its own ([`Bare`] fits it): for what events alone can show. It has work queues,
    /// which rxe lacks, and registers no memory.
    #[must_use]
    pub fn add_bare_device(&self, name: &str) -> FakeDevice {
        FakeDevice::new(&self.world, name, true)
    }

    /// Lets one retry timer of every request that waits run out, the only way in which time passes.
    ///
    /// A send that finds no receive at its peer, or a peer that is not ready to receive, waits. It is
    /// tried again whenever anything is called in the fabric, which does not count as a try; each
    /// step does, so after more steps than its retry count it fails. An RNR retry count of 7 is
    /// without end. Posting a receive calls nothing, on rxe as here, so after it a step (or any
    /// command) moves what waited for it.
    pub fn step(&self) {
        self.world.lock().tick();
    }

    /// Steps again and again in a thread of its own, for programs whose threads wait for each other.
    /// Ends when the value is dropped. What a program then does no longer happens in one order.
    #[must_use = "it ends when it is dropped"]
    pub fn ticker(&self, interval: Duration) -> Ticker {
        let world = self.world.clone();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            use std::sync::mpsc::RecvTimeoutError::Timeout;
            while stopped.recv_timeout(interval) == Err(Timeout) {
                world.lock().tick();
            }
        });
        Ticker {
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Whether a send that finds no receive fails at once with "RNR retry exceeded", whatever its
    /// retry count. Off unless said.
    pub fn set_rnr_fails_at_once(&self, at_once: bool) {
        self.world.lock().rnr_fails_at_once = at_once;
    }

    /// How many queue pairs have a send that waits.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.world.lock().waiting.len()
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = {
            let world = self.world.lock();
            world
                .devices
                .iter()
                .map(|device| device.name.clone())
                .collect()
        };
        f.debug_struct("Fabric").field("devices", &names).finish()
    }
}

/// Steps a fabric until it is dropped. Made by `Fabric::ticker`.
#[derive(Debug)]
pub struct Ticker {
    stop: Option<std::sync::mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Ticker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported by its own thread.
            let _ = thread.join();
        }
    }
}

//! The test modules at work: raises any asynchronous event, and makes a device that moves no data.
//!
//! Ground truth: `tests/vm/modules`. They are loaded when a case first asks for them, and taken out
//! again before the next. Must never hide that an injection failed.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::modules;
use super::rdma::uverbs_node;

/// The device that [`FakeDevice::load`] makes.
pub const FAKE: &str = "fake0";

const INJECTOR: &str = "ibinject";
const FAKE_MODULE: &str = "ibfake";

/// What an event is about, by the kernel's own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The device.
    Device,
    /// A port.
    Port(u32),
    /// The queue pair of this number.
    Qp(u32),
    /// The completion queue of this place in the kernel's resource tracking.
    Cq(u32),
    /// The shared receive queue of this place there.
    Srq(u32),
    /// The work queue of this number; of [`FAKE`] only.
    Wq(u32),
}

/// Raises an event (a number of `enum ib_event_type`) `count` times on an object of a device.
pub fn inject(device: &str, target: Target, event: u32, count: u32) -> io::Result<()> {
    let (what, id) = match target {
        Target::Device => ("dev", 0),
        Target::Port(port) => ("port", port),
        Target::Qp(number) => ("qp", number),
        Target::Cq(id) => ("cq", id),
        Target::Srq(id) => ("srq", id),
        Target::Wq(number) => {
            return tell(FAKE_MODULE, &format!("wq {number} {event} {count}"));
        }
    };
    modules::load_test(INJECTOR)?;
    tell(INJECTOR, &format!("{device} {what} {id} {event} {count}"))
}

/// Says a line to a module; the answer is the write's.
pub fn tell(module: &str, line: &str) -> io::Result<()> {
    fs::write(format!("/dev/{module}"), line)
        .map_err(|e| io::Error::new(e.kind(), format!("{module}: {line:?}: {e}")))
}

/// The device that moves no data. Dropping it takes it away, from whoever has it open as well.
#[derive(Debug)]
pub struct FakeDevice(());

impl FakeDevice {
    /// Loads the module, which makes the device.
    pub fn load() -> io::Result<Self> {
        modules::load_test(FAKE_MODULE)?;
        let device = Self(());
        device.wait_for_node()?;
        Ok(device)
    }

    /// Takes the device away, as a card that is pulled: who has it open is told.
    pub fn unplug(&self) -> io::Result<()> {
        tell(FAKE_MODULE, "remove")
    }

    /// Brings it back.
    pub fn plug(&self) -> io::Result<()> {
        tell(FAKE_MODULE, "add")?;
        self.wait_for_node()
    }

    fn wait_for_node(&self) -> io::Result<()> {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(20) {
            if let Some(node) = uverbs_node(FAKE)?
                && Path::new("/dev/infiniband").join(node).exists()
            {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no node for {FAKE} after 20 s"),
        ))
    }
}

impl Drop for FakeDevice {
    fn drop(&mut self) {
        // What fails here is tried again, and told, before the next case.
        let _ = modules::unload(FAKE_MODULE);
    }
}

/// Takes both modules out, if a case before left them.
pub fn unload() -> io::Result<()> {
    for module in [FAKE_MODULE, INJECTOR] {
        if Path::new("/sys/module").join(module).exists() {
            modules::unload(module)?;
        }
    }
    Ok(())
}

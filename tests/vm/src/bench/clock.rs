//! What the guest's clock goes by, and so how many samples it takes to know a time.

use std::fmt;
use std::str::FromStr;

/// What the guest's clock goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The time of the host, as everybody's does.
    #[default]
    Host,
    /// One nanosecond for each instruction that the guest executes, the kernel's among them. Only an
    /// emulator can do that, with one processor.
    Instructions,
}

/// The environment variable that tells the controller.
pub const VARIABLE: &str = "UVERBS_BENCH_CLOCK";

impl Clock {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Instructions => "instructions",
        }
    }

    /// As the host has said; in the guest.
    pub fn here() -> Self {
        std::env::var(VARIABLE)
            .ok()
            .and_then(|name| name.parse().ok())
            .unwrap_or_default()
    }

    /// How many turns to take, where `noisy` are wanted against noise: by instructions, the fewest that
    /// give an interval with a value to spare at each end, each twin first in half of them.
    pub const fn turns(self, noisy: usize) -> usize {
        match self {
            Self::Instructions if noisy > 12 => 12,
            _ => noisy,
        }
    }

    /// How long a turn lasts, in milliseconds of this clock.
    pub const fn turn_ms(self) -> u64 {
        match self {
            Self::Host => 20,
            Self::Instructions => 2,
        }
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "times by the host's clock",
            Self::Instructions => {
                "times are instructions, the kernel's among them, at one a nanosecond"
            }
        })
    }
}

impl FromStr for Clock {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        [Self::Host, Self::Instructions]
            .into_iter()
            .find(|clock| clock.name() == name)
            .ok_or_else(|| format!("there is no clock {name}; there are host and instructions"))
    }
}

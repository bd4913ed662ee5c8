//! The two timers of a reliable queue pair, in units instead of codes.
//!
//! Ground truth: InfiniBand specification, § 9.7.6.1.3 (local ack timeout) and table 45 (RNR NAK
//! timer); `ibv_modify_qp(3)`.

use std::fmt;
use std::time::Duration;

/// How long to wait for an acknowledgement before sending again: 4.096 µs × 2ⁿ, n from 1 to 31, or
/// for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// No timer at all: a lost packet is waited for without end.
    pub const INFINITE: Self = Self(0);

    /// The shortest timeout that is at least `time`, or the longest there is (2.4 hours).
    #[must_use]
    pub fn at_least(time: Duration) -> Self {
        let longest = 31;
        let code = (1..longest).find(|code| Self(*code).nanoseconds() >= time.as_nanos());
        Self(code.unwrap_or(longest))
    }

    /// The timeout with this code; only its low 5 bits count.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        Self(code & 0x1F)
    }

    /// The code of the specification, 0 to 31.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time, or `None` for no timer.
    #[must_use]
    pub fn duration(self) -> Option<Duration> {
        let nanoseconds = u64::try_from(self.nanoseconds()).ok()?;
        (self.0 != 0).then(|| Duration::from_nanos(nanoseconds))
    }

    const fn nanoseconds(self) -> u128 {
        4096 << self.0
    }
}

/// The time, or `infinite`.
impl fmt::Display for AckTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.duration() {
            Some(time) => write!(f, "{time:?}"),
            None => f.write_str("infinite"),
        }
    }
}

/// How long the peer is to wait when no receive was posted for its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

/// The times of codes 0 to 31, in units of 10 µs. Code 0 is the longest of all.
const RNR_TIMES: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

impl RnrTimer {
    /// The shortest time that is at least `time`, or the longest there is (655.36 ms).
    #[must_use]
    pub fn at_least(time: Duration) -> Self {
        let code = (1..32u8).find(|code| Self(*code).duration() >= time);
        Self(code.unwrap_or(0))
    }

    /// The time with this code; only its low 5 bits count.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        Self(code & 0x1F)
    }

    /// The code of the specification, 0 to 31.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time.
    #[must_use]
    pub fn duration(self) -> Duration {
        let units = RNR_TIMES.get(usize::from(self.0)).copied().unwrap_or(65536);
        Duration::from_micros(u64::from(units) * 10)
    }
}

/// The time.
impl fmt::Display for RnrTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.duration())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ack_timeout_is_rounded_up_and_never_becomes_infinite() {
        assert_eq!(AckTimeout::at_least(Duration::ZERO).code(), 1);
        assert_eq!(AckTimeout::at_least(Duration::from_micros(8)).code(), 1);
        assert_eq!(AckTimeout::at_least(Duration::from_millis(67)).code(), 14);
        assert_eq!(AckTimeout::at_least(Duration::from_millis(68)).code(), 15);
        assert_eq!(AckTimeout::at_least(Duration::MAX).code(), 31);
        assert_eq!(
            AckTimeout::from_code(14).duration(),
            Some(Duration::from_nanos(67_108_864))
        );
        assert_eq!(AckTimeout::INFINITE.duration(), None);
    }

    #[test]
    fn every_rnr_code_comes_back_from_its_own_time() {
        for code in 0..32 {
            let timer = RnrTimer::from_code(code);
            assert_eq!(RnrTimer::at_least(timer.duration()), timer, "code {code}");
        }
        assert_eq!(
            RnrTimer::at_least(Duration::ZERO).code(),
            1,
            "0 would be the longest"
        );
        assert_eq!(RnrTimer::at_least(Duration::from_micros(641)).code(), 13);
        assert_eq!(
            RnrTimer::from_code(12).duration(),
            Duration::from_micros(640)
        );
        assert_eq!(RnrTimer::at_least(Duration::from_secs(1)).code(), 0);
    }
}

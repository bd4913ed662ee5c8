//! What is to go wrong: refusals, replies that lack a part, spoilt queues, completions that do not
//! come.
//!
//! Commands go by the names that the crate's errors use: `CQ_CREATE`, `REG_MR`, `POST_SEND` (the
//! doorbell, either way), `MMAP`, …

use std::collections::VecDeque;

use uverbs_abi::Errno;

/// What is wrong with a queue's header, or with the offer to map it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spoil {
    /// `log2_elem_size` says this.
    SlotSize(u32),
    /// `index_mask` says this.
    IndexMask(u32),
    /// `producer_index` says this.
    Producer(u32),
    /// `consumer_index` says this.
    Consumer(u32),
    /// The reply offers a queue of 0 bytes.
    NoQueue,
    /// The reply offers an offset at which nothing can be mapped.
    Unmappable,
}

#[derive(Clone, Copy, Debug)]
enum When {
    /// The call with this number, counted from the start.
    At(usize),
    /// The call of this name after so many more.
    After(&'static str, usize),
    /// Every call of this name.
    Always(&'static str),
}

/// The faults of one device.
#[derive(Debug, Default)]
pub(super) struct Faults {
    calls: Vec<&'static str>,
    refusals: Vec<(When, Errno)>,
    unanswered: Vec<&'static str>,
    pub(super) spoil_next: VecDeque<(usize, Spoil)>,
    pub(super) lose: u32,
    /// Before which call the device goes.
    pub(super) remove_at: Option<usize>,
    pub(super) hold: bool,
}

impl Faults {
    /// Whether the device is to go before the next call.
    pub(super) fn is_time_to_go(&self) -> bool {
        self.remove_at == Some(self.calls.len())
    }

    /// Counts a call, and says how it is to be refused.
    pub(super) fn call(&mut self, name: &'static str) -> Option<Errno> {
        let position = self.calls.len();
        self.calls.push(name);
        let mut due = None;
        self.refusals.retain_mut(|(when, errno)| {
            let (hit, keep) = match when {
                When::At(at) => (*at == position, *at > position),
                When::Always(command) => (*command == name, true),
                When::After(command, left) if *command == name => {
                    let hit = *left == 0;
                    *left = left.saturating_sub(1);
                    (hit, !hit)
                }
                When::After(..) => (false, true),
            };
            if hit {
                due.get_or_insert(*errno);
            }
            keep
        });
        due
    }

    pub(super) fn calls(&self) -> Vec<&'static str> {
        self.calls.clone()
    }

    pub(super) fn forget_calls(&mut self) {
        self.calls.clear();
    }

    pub(super) fn refuse_at(&mut self, position: usize, errno: Errno) {
        self.refusals.push((When::At(position), errno));
    }

    pub(super) fn refuse_nth(&mut self, command: &'static str, n: usize, errno: Errno) {
        let left = n.saturating_sub(1);
        self.refusals.push((When::After(command, left), errno));
    }

    pub(super) fn refuse_always(&mut self, command: &'static str, errno: Errno) {
        self.refusals.push((When::Always(command), errno));
    }

    pub(super) fn leave_unanswered(&mut self, command: &'static str) {
        self.unanswered.push(command);
    }

    /// Whether this reply is to lack its outputs; used up by asking.
    pub(super) fn is_unanswered(&mut self, name: &str) -> bool {
        let at = self.unanswered.iter().position(|command| *command == name);
        at.map(|at| self.unanswered.remove(at)).is_some()
    }

    /// What is wrong with the queue that is being offered.
    pub(super) fn spoil(&mut self) -> Option<Spoil> {
        let (skip, spoil) = self.spoil_next.front_mut()?;
        if let Some(left) = skip.checked_sub(1) {
            *skip = left;
            return None;
        }
        let spoil = *spoil;
        self.spoil_next.pop_front();
        Some(spoil)
    }

    /// Ends all of it; what was counted stays.
    pub(super) fn clear(&mut self) {
        let calls = std::mem::take(&mut self.calls);
        *self = Self {
            calls,
            ..Self::default()
        };
    }
}

//! Whose process is this? A mark that a forked child can tell from its parent's, at the price of
//! one load.
//!
//! A page with `MADV_WIPEONFORK` (Linux 4.14) holds a number that identifies the process; in a
//! child the kernel has zeroed it. Asking for the process id instead would be a system call on
//! every poll. Where the kernel knows no such page, the process id is what is compared.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapMut;
use nix::sys::mman::{MmapAdvise, madvise};

/// Identifies the process that made it.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    word: Option<&'static AtomicU64>,
    number: u64,
}

/// The word on the page, or `None` where there can be no such page.
static WORD: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
/// The next number to give out. A child inherits the value, so no number comes twice in one line of
/// descent.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Mark {
    /// The mark of the calling process.
    #[must_use]
    pub fn here() -> Self {
        let Some(word) = *WORD.get_or_init(wiped_on_fork) else {
            return Self {
                word: None,
                number: u64::from(std::process::id()),
            };
        };
        // Relaxed throughout: the number is all there is to learn, and threads of one process
        // either find it or race to set it, in which case the first wins.
        let mut number = word.load(Ordering::Relaxed);
        if number == 0 {
            let fresh = NEXT.fetch_add(1, Ordering::Relaxed);
            number = match word.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => fresh,
                Err(earlier) => earlier,
            };
        }
        Self {
            word: Some(word),
            number,
        }
    }

    /// Whether the calling process is the one that made this mark.
    #[inline]
    #[must_use]
    pub fn is_ours(&self) -> bool {
        match self.word {
            Some(word) => word.load(Ordering::Relaxed) == self.number,
            None => u64::from(std::process::id()) == self.number,
        }
    }
}

fn wiped_on_fork() -> Option<&'static AtomicU64> {
    if cfg!(miri) {
        return None;
    }
    // One page for the life of the process: an object may outlive everything but the process.
    let page = Box::leak(Box::new(MmapMut::map_anon(4096).ok()?));
    let base = std::ptr::NonNull::new(page.as_mut_ptr())?;
    // SAFETY: `base` and the length are those of the anonymous mapping just made, which is never
    // unmapped; the advice changes what a child sees, nothing in this process.
    unsafe { madvise(base.cast(), 4096, MmapAdvise::MADV_WIPEONFORK) }.ok()?;
    // SAFETY: the page is mapped, zeroed, page-aligned, leaked (so valid for 'static), and reached
    // through this atomic alone from here on.
    Some(unsafe { base.cast::<AtomicU64>().as_ref() })
}

#[cfg(test)]
mod tests {
    use super::Mark;

    #[test]
    fn a_process_knows_its_own_marks() {
        let (one, other) = (Mark::here(), Mark::here());
        assert!(one.is_ours() && other.is_ours());
        assert_eq!(one.number, other.number);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri cannot fork")]
    fn a_child_sees_the_parents_mark_as_foreign_and_has_its_own() {
        let parents = Mark::here();
        // SAFETY: the child calls nothing that could need a lock held by another thread at the
        // time of the fork: loads, stores and `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let own = Mark::here();
            let right = !parents.is_ours() && own.is_ours();
            // SAFETY: ends the child at once, running nothing of the parent's.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let status = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(child), None);
        assert!(
            matches!(status, Ok(nix::sys::wait::WaitStatus::Exited(_, 0))),
            "{status:?}"
        );
        assert!(parents.is_ours());
    }
}

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

/// Words of a page.
const WORDS: usize = 4096 / size_of::<AtomicU64>();

/// The page, or `None` where there can be no such page. The first word is the process's, the others
/// are given out as [`Life`].
static PAGE: OnceLock<Option<&'static [AtomicU64; WORDS]>> = OnceLock::new();
/// The next number to give out. A child inherits the value, so no number comes twice in one line of
/// descent.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Mark {
    /// The mark of the calling process.
    #[must_use]
    pub fn here() -> Self {
        let page = *PAGE.get_or_init(wiped_on_fork);
        let Some(word) = page.and_then(|page| page.first()) else {
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

/// Says of something that it belongs to this process and has not ended, at the price of one
/// comparison. It may also say no of what is alive, where the kernel has no such page or all of its
/// words are taken: a no has to be looked into, a yes is true.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    word: &'static AtomicU64,
    number: u64,
}

impl Life {
    /// A life that begins.
    #[must_use]
    pub fn begin() -> Self {
        static NOBODYS: AtomicU64 = AtomicU64::new(0);
        // Relaxed throughout: what is asked is whether the word still holds the number, and no other
        // memory hangs on it. Numbers are never given out twice, so a word that has gone to another
        // life says no to this one, also in a child, where every word begins anew at 0.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let page = *PAGE.get_or_init(wiped_on_fork);
        let free = |word: &&AtomicU64| {
            word.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        let words = page.into_iter().flatten().skip(1);
        Self {
            word: words.into_iter().find(free).unwrap_or(&NOBODYS),
            number,
        }
    }

    /// Whether it has surely not ended, and is of this process.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.word.load(Ordering::Relaxed) == self.number
    }

    /// Ends it, for all copies.
    pub fn end(&self) {
        // If the word is not (any more) of this life, it is somebody else's.
        let _ = self
            .word
            .compare_exchange(self.number, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// A page of this program's own, which it takes no call to make.
#[repr(C, align(4096))]
struct Page([AtomicU64; WORDS]);

static OWN: Page = Page([const { AtomicU64::new(0) }; WORDS]);

fn wiped_on_fork() -> Option<&'static [AtomicU64; WORDS]> {
    if cfg!(miri) {
        return None;
    }
    // Where pages can be larger, a fork would wipe what lies behind it as well.
    let own = cfg!(target_arch = "x86_64").then(|| wiped(&OWN)).flatten();
    // Where the static page is not memory that a fork can wipe, one is made.
    own.or_else(|| {
        // For the life of the process: an object may outlive everything but the process.
        let map = Box::leak(Box::new(MmapMut::map_anon(size_of::<Page>()).ok()?));
        let base = std::ptr::NonNull::new(map.as_mut_ptr())?;
        // SAFETY: the mapping is zeroed, page-aligned, as long as a `Page`, leaked (so valid for
        // 'static), and reached through these atomics alone from here on.
        wiped(unsafe { base.cast::<Page>().as_ref() })
    })
}

/// Has a fork wipe this page, which holds zeros so far.
fn wiped(page: &'static Page) -> Option<&'static [AtomicU64; WORDS]> {
    let base = std::ptr::NonNull::from(page);
    // SAFETY: the range is that of `page`, which stays mapped, and nothing else lies in what the kernel
    // makes whole pages of it: `OWN` is one, and comes here only where pages have its size, and a
    // mapping is whole pages. The advice changes what a child sees, nothing in this process, and in
    // the child the page is zeros, which atomics may be.
    unsafe { madvise(base.cast(), size_of::<Page>(), MmapAdvise::MADV_WIPEONFORK) }.ok()?;
    Some(&page.0)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::{Life, Mark, WORDS};

    /// Held by the tests that need words that are free.
    static FREE_WORDS: Mutex<()> = Mutex::new(());

    #[test]
    fn a_process_knows_its_own_marks() {
        let (one, other) = (Mark::here(), Mark::here());
        assert!(one.is_ours() && other.is_ours());
        assert_eq!(one.number, other.number);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no page that a fork wipes")]
    fn a_life_ends_once_and_for_all_copies() {
        let _turn = FREE_WORDS.lock().unwrap_or_else(PoisonError::into_inner);
        let (one, other) = (Life::begin(), Life::begin());
        let copy = one;
        assert!(one.is_on() && other.is_on() && copy.is_on());
        one.end();
        assert!(!one.is_on() && !copy.is_on() && other.is_on());
        // The word goes to another one, which the first can neither take part in nor end.
        let next = Life::begin();
        one.end();
        assert!(next.is_on() && !one.is_on());
        other.end();
        next.end();
    }

    #[test]
    fn more_lives_than_words_are_merely_unsure() {
        let _turn = FREE_WORDS.lock().unwrap_or_else(PoisonError::into_inner);
        let many: Vec<Life> = (0..WORDS + 10).map(|_| Life::begin()).collect();
        assert!(many.iter().any(|life| !life.is_on()));
        for life in &many {
            life.end();
        }
        assert!(many.iter().all(|life| !life.is_on()));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri cannot fork")]
    fn a_child_sees_the_parents_mark_as_foreign_and_has_its_own() {
        let _turn = FREE_WORDS.lock().unwrap_or_else(PoisonError::into_inner);
        let parents = Mark::here();
        let life = Life::begin();
        // SAFETY: the child calls nothing that could need a lock held by another thread at the
        // time of the fork: loads, stores and `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let own = Mark::here();
            let right = !parents.is_ours() && own.is_ours() && !life.is_on();
            // The word is free in the child, and what takes it is not what the parent began.
            let right = right && Life::begin().is_on() && !life.is_on();
            // SAFETY: ends the child at once, running nothing of the parent's.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let status = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(child), None);
        assert!(
            matches!(status, Ok(nix::sys::wait::WaitStatus::Exited(_, 0))),
            "{status:?}"
        );
        assert!(parents.is_ours() && life.is_on());
        life.end();
    }
}

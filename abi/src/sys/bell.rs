//! UNSAFE ROOM 1, continued: a doorbell straight into the kernel.
//!
//! Ground truth: `write(2)`, `syscall(2)`. A `write()` through the C library costs 7 to 33 instructions
//! beside the one that matters, by whose library it is: `errno`, and whether the thread is to be
//! cancelled, of which nothing here makes use. Where the call is not written out below it goes by the
//! C library.
//!
//! It must never interpret an error or retry.
#![allow(unsafe_code, reason = "the doorbell's system call")]

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::Errno;
use crate::legacy::{DOORBELL_LEN, Doorbell};

/// The file that the doorbells of a device are written to, if they are.
#[derive(Debug)]
pub(crate) struct Bell {
    /// The number of `file`, or [`NONE`].
    number: AtomicI32,
    /// Keeps the number taken.
    _file: Option<Arc<OwnedFd>>,
}

/// The number of no file.
const NONE: i32 = -1;

/// What came of a doorbell that was not taken, as it came, so that the way on from here is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unrung(i64);

/// Of a doorbell that is not rung this way.
const NOT_TRIED: i64 = i64::MIN;

impl Unrung {
    /// What the kernel said; `None` if it was not asked.
    pub(crate) fn errno(self) -> Option<Errno> {
        if self.0 == NOT_TRIED {
            return None;
        }
        Some(match i32::try_from(self.0) {
            Ok(refusal @ ..0) => Errno::from_raw(refusal),
            _ => Errno::EIO,
        })
    }
}

impl Bell {
    pub(crate) fn new(file: Option<&Arc<OwnedFd>>) -> Self {
        Self {
            number: AtomicI32::new(file.map_or(NONE, AsRawFd::as_raw_fd)),
            _file: file.cloned(),
        }
    }

    /// Rings, if that is how it is done.
    #[inline]
    pub(crate) fn ring(&self, doorbell: &Doorbell) -> Result<(), Unrung> {
        // Relaxed: whoever misses the switch learns it from the kernel, as the first one did.
        let number = self.number.load(Ordering::Relaxed);
        if number < 0 {
            return Err(Unrung(NOT_TRIED));
        }
        ring(number, doorbell)
    }

    /// Never rings this way again.
    pub(crate) fn give_up(&self) {
        self.number.store(NONE, Ordering::Relaxed);
    }
}

/// Writes a doorbell to the file with this number.
#[inline]
pub(super) fn ring(file: i32, doorbell: &Doorbell) -> Result<(), Unrung> {
    // SAFETY: the frame is valid for reading its whole length. The kernel takes it for a command, and
    // `Doorbell` makes nothing but an empty POST_SEND, whose one address is of 4 bytes that the
    // doorbell keeps, that outlive this call, and that are behind an atomic.
    let written = unsafe { write(file, doorbell.frame()) };
    if written == DOORBELL_LEN as i64 {
        Ok(())
    } else {
        Err(Unrung(written))
    }
}

/// `write(2)`: how many bytes were taken, or the error number, negative.
///
/// # Safety
/// Whatever the file makes of these bytes does no harm.
#[cfg(all(target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
#[inline]
unsafe fn write(file: i32, frame: &[u8; DOORBELL_LEN]) -> i64 {
    let result;
    // SAFETY: the call reads `frame`, which is borrowed for as long, and does what the caller vouches
    // for. The kernel leaves all registers alone but the three that are named, and the stack.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_write => result,
            in("rdi") file,
            in("rsi") frame.as_ptr(),
            in("rdx") frame.len(),
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack, preserves_flags),
        );
    }
    result
}

/// As above.
///
/// # Safety
/// As above.
#[cfg(all(target_arch = "aarch64", target_pointer_width = "64", not(miri)))]
#[inline]
unsafe fn write(file: i32, frame: &[u8; DOORBELL_LEN]) -> i64 {
    let result;
    // SAFETY: the call reads `frame`, which is borrowed for as long, and does what the caller vouches
    // for. The kernel keeps no less than a function does: of the long vectors it drops what a function
    // may drop.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") libc::SYS_write,
            inlateout("x0") i64::from(file) => result,
            in("x1") frame.as_ptr(),
            in("x2") frame.len(),
            clobber_abi("C"),
            options(nostack),
        );
    }
    result
}

/// As above, by the C library.
///
/// # Safety
/// As above.
#[cfg(any(
    miri,
    not(target_pointer_width = "64"),
    not(any(target_arch = "x86_64", target_arch = "aarch64"))
))]
unsafe fn write(file: i32, frame: &[u8; DOORBELL_LEN]) -> i64 {
    // SAFETY: as above.
    let written = unsafe { libc::write(file, frame.as_ptr().cast(), frame.len()) };
    if written < 0 {
        i64::from(Errno::last().raw().wrapping_neg())
    } else {
        written as i64
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use std::io::Read;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::sync::Arc;

    use super::{Bell, NONE, Unrung, ring};
    use crate::Errno;
    use crate::legacy::Doorbell;

    #[test]
    fn the_frame_arrives_as_it_is() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let file = Arc::new(OwnedFd::from(writer));
        let doorbell = Doorbell::new(7);
        let bell = Bell::new(Some(&file));
        assert_eq!(bell.ring(&doorbell), Ok(()));
        let mut arrived = [0; 33];
        assert_eq!(reader.read(&mut arrived).unwrap(), 32);
        assert_eq!(&arrived[..32], doorbell.frame());
        bell.give_up();
        assert_eq!(bell.ring(&doorbell).unwrap_err().errno(), None);
    }

    #[test]
    fn a_refusal_has_its_number() {
        // The reading end of a pipe takes nothing.
        let (reader, _writer) = std::io::pipe().unwrap();
        let doorbell = Doorbell::new(7);
        for number in [reader.as_raw_fd(), NONE] {
            let refusal = ring(number, &doorbell).unwrap_err();
            assert_eq!(refusal.errno(), Some(Errno::EBADF));
        }
        assert_eq!(Unrung(-13).errno(), Some(Errno::EACCES));
        assert_eq!(Unrung(31).errno(), Some(Errno::EIO));
        assert_eq!(Bell::new(None).ring(&doorbell).unwrap_err().errno(), None);
    }
}

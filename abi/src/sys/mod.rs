//! UNSAFE ROOM 1: the system calls on a uverbs file, and nothing else.
//!
//! Ground truth: `rdma_user_ioctl.h` for the ioctl; `uverbs_main.c` for what `write`, `mmap` and
//! `read` do. It must never interpret an error, retry, or use an address after a call returns.
#![allow(
    unsafe_code,
    reason = "the ioctl, and taking over descriptors that the kernel made"
)]

pub(crate) mod bell;
pub mod process;
pub(crate) mod wire;

pub use self::wire::Slice;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use memmap2::MmapOptions;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{Mode, fstat};

use crate::command::Command;
use crate::kernel::Kernel;
use crate::layout::ioctl::{RDMA_VERBS_IOCTL, ib_uverbs_attr, ib_uverbs_ioctl_hdr};
use crate::legacy::Doorbell;
use crate::{Errno, Mapping, legacy};

/// An open `/dev/infiniband/uverbsN`.
#[derive(Debug)]
pub struct UverbsFd {
    // Shared with the session, which writes doorbells to it itself.
    file: Arc<OwnedFd>,
}

impl UverbsFd {
    /// Opens a node for reading and writing, close-on-exec.
    ///
    /// # Safety
    /// Commands name memory by address: by registering it, or where a driver's part of a command
    /// holds an address. Whoever has the file, or a [`Session`](crate::Session) on it, must run only
    /// commands whose effect on this program's memory it vouches for, and must carry out what it is
    /// asked to carry out: if another [`Kernel`] stands before this one, it may not say that a
    /// region has been deregistered when it has not.
    ///
    /// # Errors
    /// What the kernel said; [`io::ErrorKind::NotFound`] with its own text if the node is there
    /// but is not, or no longer, the character device `expected` (as `st_rdev` has it).
    pub unsafe fn open(path: &Path, expected: Option<u64>) -> io::Result<Self> {
        // Not by `std::fs`: with musl that marks the file close-on-exec by a call of its own.
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let file = loop {
            match openat(AT_FDCWD, path, flags, Mode::empty()) {
                Err(nix::errno::Errno::EINTR) => {}
                other => break other?,
            }
        };
        let found = fstat(&file)?;
        let is_char = found.st_mode & libc::S_IFMT == libc::S_IFCHR;
        let is_wanted = expected.is_none_or(|dev| found.st_rdev == dev);
        if !is_char || !is_wanted {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the node does not belong to this device (any more)",
            ));
        }
        Ok(Self {
            file: Arc::new(file),
        })
    }
}

impl AsFd for UverbsFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A command as the kernel would get it, with `address` deciding what stands for each slice: for tests, and
/// for who counts what that costs. `reply_fd` is where the number of a descriptor goes that is a whole
/// response.
pub fn laid_out<'c>(
    command: &'c mut Command<'_>,
    driver: u32,
    reply_fd: &mut u32,
    address: impl FnMut(Slice<'_>) -> u64,
) -> (&'c ib_uverbs_ioctl_hdr, &'c [ib_uverbs_attr]) {
    let wire = command.wire_mut();
    wire.lay_out(driver, reply_fd, address);
    (wire.header(), wire.parts().0)
}

fn address_of(slice: Slice<'_>) -> u64 {
    let address = match slice {
        Slice::In(bytes) => bytes.as_ptr().expose_provenance(),
        Slice::Out(bytes) => bytes.as_mut_ptr().expose_provenance(),
    };
    address as u64
}

impl Kernel for UverbsFd {
    fn ioctl(&self, driver: u32, command: &mut Command<'_>) -> Result<(), Errno> {
        let mut reply_fd = u32::MAX;
        let wire = command.wire_mut();
        wire.lay_out(driver, &mut reply_fd, address_of);
        // SAFETY: `wire` is a header followed without a gap by the `num_attrs` attributes that it
        // announces, all of them written, and outlives the call. Where the kernel takes an attribute for
        // an address, one has just been put there of a slice that `command` borrows, writable where the
        // kernel writes, or of `reply_fd`; `len` is that slice's length, so the kernel stays inside; and
        // it uses none of them after it returns.
        let result =
            unsafe { libc::ioctl(self.file.as_raw_fd(), RDMA_VERBS_IOCTL as _, &raw mut *wire) };
        if result < 0 {
            return Err(Errno::last());
        }
        command.take_back(reply_fd, adopt);
        Ok(())
    }

    fn write(&self, frame: &mut [u8], response: &mut [u8]) -> Result<(), Errno> {
        // The kernel believes what a frame says of the response's length, and other commands carry
        // addresses of their own.
        if !legacy::is_doorbell(frame) || response.len() < legacy::DOORBELL_RESPONSE_LEN {
            return Err(Errno::EINVAL);
        }
        if let Some(slot) = frame.get_mut(8..16) {
            slot.copy_from_slice(&address_of(Slice::Out(response)).to_ne_bytes());
        }
        match nix::unistd::write(&*self.file, frame) {
            Ok(written) if written == frame.len() => Ok(()),
            Ok(_) => Err(Errno::EIO),
            Err(errno) => Err(errno.into()),
        }
    }

    fn doorbell(&self, doorbell: &Doorbell) -> Result<(), Errno> {
        bell::ring(self.file.as_raw_fd(), doorbell)
            .map_err(|unrung| unrung.errno().unwrap_or(Errno::EIO))
    }

    fn doorbell_file(&self) -> Option<&Arc<OwnedFd>> {
        Some(&self.file)
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        MmapOptions::new()
            .offset(offset)
            .len(len)
            .map_raw(&*self.file)
            .map(Mapping::Mmap)
            .map_err(|error| Errno::from(&error))
    }
}

/// Takes over a descriptor that the kernel has just made for us.
fn adopt(number: i64) -> Option<OwnedFd> {
    let fd = i32::try_from(number).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: called only for a command that succeeded, with the number that the kernel wrote for
    // the descriptor it installed for this call (uverbs installs it on success only); nobody else
    // has been told of it, so it is ours alone.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::ptr;

    use super::wire::Wire;
    use super::{address_of, adopt};
    use crate::Cause;
    use crate::command::Command;
    use crate::layout::ids::{Attr, attr, method, object};
    use crate::layout::ioctl::{UVERBS_ATTR_F_VALID_OUTPUT, ib_uverbs_attr, ib_uverbs_ioctl_hdr};

    /// What the kernel finds in an attribute, and may write back.
    type Answer<'k> = &'k mut dyn FnMut(&mut ib_uverbs_attr);

    /// Goes through the attributes by address, as the kernel does.
    fn play(command: &mut Command<'_>, answer: Answer<'_>) {
        let mut reply_fd = u32::MAX;
        let wire = command.wire_mut();
        wire.lay_out(14, &mut reply_fd, address_of);
        let wire: *mut Wire<'_> = &raw mut *wire;
        // SAFETY: it begins with its header.
        let header: ib_uverbs_ioctl_hdr = unsafe { wire.cast::<ib_uverbs_ioctl_hdr>().read() };
        let first = wire
            .wrapping_byte_add(size_of_val(&header))
            .cast::<ib_uverbs_attr>();
        for at in 0..usize::from(header.num_attrs) {
            // SAFETY: the header says that there are so many after it.
            answer(unsafe { &mut *first.wrapping_add(at) });
        }
        command.take_back(reply_fd, adopt);
    }

    fn read(attr: &ib_uverbs_attr) -> Vec<u8> {
        let len = usize::from(attr.len);
        if len <= 8 {
            return attr.data.to_ne_bytes()[..len].to_vec();
        }
        let from = ptr::with_exposed_provenance::<u8>(usize::try_from(attr.data).unwrap());
        // SAFETY: the attribute says that there are so many bytes.
        let byte = |at: usize| unsafe { from.wrapping_add(at).read() };
        (0..len).map(byte).collect()
    }

    fn write(attr: &mut ib_uverbs_attr, byte: u8) {
        let to = ptr::with_exposed_provenance_mut::<u8>(usize::try_from(attr.data).unwrap());
        // SAFETY: the attribute says that there is room for so many bytes.
        unsafe { to.write_bytes(byte, attr.len.into()) };
        attr.flags |= UVERBS_ATTR_F_VALID_OUTPUT;
    }

    #[test]
    fn what_is_written_where_sixteen_attributes_say_arrives() {
        let (eight, nine) = (0x0102_0304_0506_0708u64, *b"nine byte");
        let mut outputs: [Vec<u8>; 12] = std::array::from_fn(|len| vec![0xEE; len]);
        let mut command = Command::new("X", object::DEVICE, 0);
        command
            .new_object(Attr::new(0))
            .new_fd(Attr::new(1))
            .input(Attr::new(2), &eight)
            .input_bytes(Attr::new(3), &nine);
        for (id, output) in (4..).zip(&mut outputs) {
            command.output_bytes(Attr::new(id), output);
        }
        assert_eq!(command.check(), Ok(()));
        let file = File::open("/dev/null").unwrap();
        let made = file.try_clone().unwrap().into_raw_fd();
        play(&mut command, &mut |attr| match attr.attr_id {
            0 => attr.data = 77,
            1 => attr.data = i64::from(made).cast_unsigned(),
            2 => assert_eq!(read(attr), eight.to_ne_bytes()),
            3 => assert_eq!(read(attr), nine),
            id => write(attr, u8::try_from(id).unwrap()),
        });
        let reply = command.take_reply().unwrap();
        assert_eq!(reply.object(), Ok(77));
        assert_eq!(reply.into_fd().unwrap().as_raw_fd(), made);
        for (id, (len, output)) in (4..).zip(outputs.iter().enumerate()) {
            assert_eq!(*output, vec![id; len]);
        }
    }

    #[test]
    fn a_descriptor_is_taken_over_once_and_not_if_it_was_not_written() {
        let made = || File::open("/dev/null").unwrap().into_raw_fd();
        let out = attr::invoke_write::CORE_OUT;
        let new = || Command::new("X", object::DEVICE, method::device::INVOKE_WRITE);
        let reply_to = |attr: &ib_uverbs_attr, number: i32| {
            let to = ptr::with_exposed_provenance_mut::<i32>(usize::try_from(attr.data).unwrap());
            assert_eq!(attr.len, 4);
            // SAFETY: there is room for four bytes, as just seen.
            unsafe { to.write(number) };
        };
        // Written and said so; written alone; nothing.
        let number = made();
        let mut command = new();
        command.new_fd_in_reply(out);
        play(&mut command, &mut |attr| {
            reply_to(attr, number);
            attr.flags |= UVERBS_ATTR_F_VALID_OUTPUT;
        });
        let fd = command.take_reply().unwrap().into_fd().unwrap();
        assert_eq!(fd.as_raw_fd(), number);
        // Once more, to a kernel that says nothing this time: what it said before counts no more.
        for is_written in [true, false] {
            play(&mut command, &mut |attr| {
                if is_written {
                    reply_to(attr, number);
                }
            });
            let error = command.take_reply().unwrap_err();
            assert!(matches!(error.cause, Cause::BadReply(_)));
        }
        let mut command = new();
        command.new_fd(Attr::new(0));
        let number = made();
        play(&mut command, &mut |attr| {
            attr.data = i64::from(number).cast_unsigned();
        });
        drop(command.take_reply().unwrap());
        // The number is somebody else's by now.
        play(&mut command, &mut |_| {});
        assert!(
            command.take_reply().is_err(),
            "the number of the call before"
        );
    }
}

//! One ioctl command: typed attributes in, one reply out.
//!
//! Ground truth: `struct ib_uverbs_ioctl_hdr` and `struct ib_uverbs_attr` in `rdma_user_ioctl.h`,
//! and the rules of the kernel's `uverbs_ioctl.c`: a value of up to 8 bytes travels inside the
//! attribute, a longer one by address; outputs always travel by address; handles and descriptors
//! travel as numbers.
//!
//! A [`Command`] is built where it stays, in the kernel's own form, but that it keeps the slices that it
//! borrows and not their addresses. Only [`sys`](crate::sys) makes addresses of them, at the moment of
//! the call; a kernel played by a test reads the [entries](Command::entries) and
//! [answers](Command::answer) them. Building needs no `unsafe`, and cannot fail half-way: a mistake is
//! remembered and told by [`Session::run`](crate::Session::run) before anything is sent.

mod played;

pub use played::{Entry, Value};

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::layout::ids::{
    Attr, Const, Fd, Flags, In, InBytes, NewFd, NewObject, Object, Out, OutBytes, attr, method,
    object,
};
use crate::layout::ioctl::{
    UVERBS_ATTR_F_MANDATORY, UVERBS_ATTR_F_VALID_OUTPUT, UVERBS_ATTR_INLINE_MAX, UVERBS_ID_NS_SHIFT,
};
pub use crate::sys::wire::MAX_ATTRS;
use crate::sys::wire::{Load, REPLY_FD_LEN, Wire};
use crate::{Cause, CommandError};

/// A command under construction.
pub struct Command<'a> {
    name: &'static str,
    wire: Wire<'a>,
    /// Of each attribute's number the bits that tell it from the others, most often.
    seen: u64,
    /// Which attributes are outputs that the kernel has to say that it wrote.
    owed: u32,
    /// Which attribute is a new object's, and which a new descriptor's.
    new_object: Option<u8>,
    new_fd: Option<u8>,
    fault: Option<&'static str>,
    /// What the command has created.
    object: Option<u32>,
    fd: Option<OwnedFd>,
}

impl<'a> Command<'a> {
    // What adds an attribute is inlined: its number and its place are then known when compiling, and a few
    // stores are left of it.

    /// Starts a command; `name` is what errors call it.
    #[inline(always)]
    #[must_use]
    pub fn new(name: &'static str, object: u16, method: u16) -> Self {
        Self {
            name,
            wire: Wire::new(object, method),
            seen: 0,
            owed: 0,
            new_object: None,
            new_fd: None,
            fault: None,
            object: None,
            fd: None,
        }
    }

    /// Starts a command of the `write()` family, carried by the ioctl method INVOKE_WRITE.
    #[inline(always)]
    #[must_use]
    pub fn invoke_write(name: &'static str, number: u32) -> Self {
        let mut command = Self::new(name, object::DEVICE, method::device::INVOKE_WRITE);
        command.constant(attr::invoke_write::WRITE_CMD, number.into());
        command
    }

    /// Adds the request and the response of a `write()` command.
    #[inline(always)]
    pub fn core<Req, Resp>(&mut self, request: &'a Req, response: &'a mut Resp) -> &mut Self
    where
        Req: IntoBytes + Immutable,
        Resp: FromBytes + IntoBytes,
    {
        self.core_in(request)
            .output_bytes(attr::invoke_write::CORE_OUT, response.as_mut_bytes())
    }

    /// Adds the request of a `write()` command that has no response.
    #[inline(always)]
    pub fn core_in<Req: IntoBytes + Immutable>(&mut self, request: &'a Req) -> &mut Self {
        self.input_bytes(attr::invoke_write::CORE_IN, request.as_bytes())
    }

    /// Passes a value of the attribute's own type.
    #[inline(always)]
    pub fn input<T>(&mut self, attr: Attr<In<T>>, value: &'a T) -> &mut Self
    where
        T: IntoBytes + Immutable,
    {
        self.add_in(attr.id(), value.as_bytes())
    }

    /// Passes bytes whose length the attribute leaves open.
    #[inline(always)]
    pub fn input_bytes(&mut self, attr: Attr<InBytes>, bytes: &'a [u8]) -> &mut Self {
        self.add_in(attr.id(), bytes)
    }

    /// Passes a number of the attribute's fixed set.
    #[inline(always)]
    pub fn constant(&mut self, attr: Attr<Const>, value: u64) -> &mut Self {
        self.add(attr.id(), 8, value, Load::Inline)
    }

    /// Passes a set of flags; the kernel refuses bits that it does not know.
    #[inline(always)]
    pub fn flags(&mut self, attr: Attr<Flags>, bits: u32) -> &mut Self {
        self.add_inline(attr.id(), &bits.to_ne_bytes())
    }

    /// Names an existing object.
    #[inline(always)]
    pub fn object(&mut self, attr: Attr<Object>, handle: u32) -> &mut Self {
        self.add(attr.id(), 0, handle.into(), Load::Object)
    }

    /// Asks for a new object, one at most; its handle is in the [`Reply`].
    #[inline(always)]
    pub fn new_object(&mut self, attr: Attr<NewObject>) -> &mut Self {
        let at = self.place();
        if self.new_object.replace(at).is_some() {
            self.spoil("more than one new object");
        }
        self.add(attr.id(), 0, 0, Load::NewObject)
    }

    /// Passes an existing descriptor.
    #[inline(always)]
    pub fn fd(&mut self, attr: Attr<Fd>, fd: BorrowedFd<'a>) -> &mut Self {
        let number = i64::from(fd.as_raw_fd()).cast_unsigned();
        self.add(attr.id(), 0, number, Load::Fd(fd))
    }

    /// Asks for a new descriptor, one at most; it is in the [`Reply`].
    #[inline(always)]
    pub fn new_fd(&mut self, attr: Attr<NewFd>) -> &mut Self {
        self.add_new_fd();
        self.add(attr.id(), 0, 0, Load::NewFd)
    }

    /// Asks for a new descriptor whose number is the whole response of a `write()` command.
    #[inline(always)]
    pub fn new_fd_in_reply(&mut self, attr: Attr<OutBytes>) -> &mut Self {
        self.add_new_fd();
        self.add(attr.id(), REPLY_FD_LEN, 0, Load::NewFdInReply)
    }

    /// Receives a value of the attribute's own type.
    #[inline(always)]
    pub fn output<T>(&mut self, attr: Attr<Out<T>>, value: &'a mut T) -> &mut Self
    where
        T: FromBytes + IntoBytes,
    {
        self.add_out(attr.id(), value.as_mut_bytes())
    }

    /// Receives bytes whose length the attribute leaves open.
    #[inline(always)]
    pub fn output_bytes(&mut self, attr: Attr<OutBytes>, bytes: &'a mut [u8]) -> &mut Self {
        self.add_out(attr.id(), bytes)
    }

    /// Marks the attribute added last as one that an older kernel may ignore.
    pub fn optional(&mut self) -> &mut Self {
        let (attrs, _) = self.wire.parts_mut();
        if let Some((last, before)) = attrs.split_last_mut() {
            last.flags &= !UVERBS_ATTR_F_MANDATORY;
            self.owed &= !(1 << before.len());
        }
        self
    }

    /// What errors call the command.
    #[inline]
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The object type it is about.
    #[must_use]
    pub const fn object_id(&self) -> u16 {
        self.wire.header().object_id
    }

    /// The method of that object type.
    #[must_use]
    pub const fn method_id(&self) -> u16 {
        self.wire.header().method_id
    }

    /// Whether it was built without a mistake.
    ///
    /// # Errors
    /// [`Cause::Malformed`] with what is wrong.
    #[inline]
    pub fn check(&self) -> Result<(), CommandError> {
        match self.fault {
            None => Ok(()),
            Some(what) => Err(self.error(Cause::Malformed(what))),
        }
    }

    /// What the command created, once it has been carried out.
    ///
    /// # Errors
    /// [`Cause::BadReply`] if a mandatory output was left unwritten. What the command created is
    /// then given up: a descriptor is closed, a handle goes when the file is closed.
    #[inline]
    pub fn take_reply(&mut self) -> Result<Reply, CommandError> {
        let reply = Reply {
            command: self.name,
            object: self.object.take(),
            fd: self.fd.take(),
        };
        let no_object = self.new_object.is_some() && reply.object.is_none();
        let no_fd = self.new_fd.is_some() && reply.fd.is_none();
        if no_object || no_fd || !self.is_answered() {
            return Err(self.error(Cause::BadReply("an output was not written")));
        }
        Ok(reply)
    }

    /// Whether the kernel says of all outputs that it has to write that it wrote them.
    #[inline]
    fn is_answered(&self) -> bool {
        let (attrs, _) = self.wire.parts();
        let mut owed = self.owed;
        while owed != 0 {
            let at = owed.trailing_zeros() as usize;
            if attrs.get(at).is_none_or(|attr| !is_answered(attr.flags)) {
                return false;
            }
            owed &= owed - 1;
        }
        true
    }

    /// For the one that hands it to the kernel.
    #[inline]
    pub(crate) const fn wire_mut(&mut self) -> &mut Wire<'a> {
        &mut self.wire
    }

    /// After the kernel has carried it out: what it wrote back of new objects. `reply_fd` is what stands
    /// where a descriptor's number was to go that is a whole response; `adopt` takes one over.
    #[inline]
    pub(crate) fn take_back(&mut self, reply_fd: u32, adopt: impl Fn(i64) -> Option<OwnedFd>) {
        let (attrs, loads) = self.wire.parts();
        let find = |at: Option<u8>| {
            let at = usize::from(at?);
            Some((attrs.get(at)?, loads.get(at)?))
        };
        if let Some((attr, _)) = find(self.new_object) {
            self.object = u32::try_from(attr.data).ok();
        }
        self.fd = match find(self.new_fd) {
            Some((attr, Load::NewFd)) => adopt(attr.data.cast_signed()),
            Some((attr, _)) if is_answered(attr.flags) => adopt(reply_fd.into()),
            _ => None,
        };
    }

    fn error(&self, cause: Cause) -> CommandError {
        CommandError {
            command: self.name,
            cause,
        }
    }

    /// Remembers the first mistake.
    #[cold]
    fn spoil(&mut self, what: &'static str) {
        self.fault.get_or_insert(what);
    }

    /// Which attribute the next one is.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "at most 16")]
    const fn place(&self) -> u8 {
        self.wire.count() as u8
    }

    #[inline(always)]
    fn add_new_fd(&mut self) {
        let at = self.place();
        if self.new_fd.replace(at).is_some() {
            self.spoil("more than one new descriptor");
        }
    }

    /// Adds bytes for the kernel to read: in the attribute itself, if there is room.
    #[inline(always)]
    fn add_in(&mut self, id: u16, bytes: &'a [u8]) -> &mut Self {
        if bytes.len() <= UVERBS_ATTR_INLINE_MAX {
            return self.add_inline(id, bytes);
        }
        let len = self.len16(bytes.len());
        self.add(id, len, 0, Load::In(bytes))
    }

    #[inline(always)]
    fn add_inline(&mut self, id: u16, bytes: &[u8]) -> &mut Self {
        let mut data = [0; UVERBS_ATTR_INLINE_MAX];
        if let Some(start) = data.get_mut(..bytes.len()) {
            start.copy_from_slice(bytes);
        }
        let len = self.len16(bytes.len());
        self.add(id, len, u64::from_ne_bytes(data), Load::Inline)
    }

    #[inline(always)]
    fn add_out(&mut self, id: u16, bytes: &'a mut [u8]) -> &mut Self {
        let len = self.len16(bytes.len());
        self.owed |= 1 << self.place();
        self.add(id, len, 0, Load::Out(bytes))
    }

    /// A length as an attribute has it.
    #[inline(always)]
    fn len16(&mut self, len: usize) -> u16 {
        u16::try_from(len).unwrap_or_else(|_| {
            self.spoil("an attribute is longer than 65,535 bytes");
            0
        })
    }

    #[inline(always)]
    fn add(&mut self, id: u16, len: u16, data: u64, load: Load<'a>) -> &mut Self {
        let bit = bit(id);
        if self.seen & bit != 0 && self.has(id) {
            self.spoil("an attribute is given twice");
        }
        self.seen |= bit;
        if !self.wire.push(id, len, data, load) {
            self.spoil("more attributes than a command can carry");
        }
        self
    }

    #[cold]
    #[inline(never)]
    fn has(&self, id: u16) -> bool {
        let (attrs, _) = self.wire.parts();
        attrs.iter().any(|attr| attr.attr_id == id)
    }
}

/// One bit for each attribute of the core's, as far as they go, and one for each of the driver's.
#[inline(always)]
const fn bit(id: u16) -> u64 {
    1 << (id & 31 | (id >> UVERBS_ID_NS_SHIFT & 1) << 5)
}

#[inline]
const fn is_answered(flags: u16) -> bool {
    flags & UVERBS_ATTR_F_VALID_OUTPUT != 0
}

impl fmt::Debug for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(self.name)
            .field("object", &self.object_id())
            .field("method", &self.method_id())
            .field("attributes", &self.entries().collect::<Vec<_>>())
            .finish()
    }
}

/// What a command that succeeded created.
#[derive(Debug)]
pub struct Reply {
    command: &'static str,
    object: Option<u32>,
    fd: Option<OwnedFd>,
}

impl Reply {
    /// The handle of the object that the command created.
    ///
    /// # Errors
    /// [`Cause::BadReply`] if the command asked for none.
    pub fn object(&self) -> Result<u32, CommandError> {
        self.object.ok_or(CommandError {
            command: self.command,
            cause: Cause::BadReply("it creates no object"),
        })
    }

    /// The descriptor that the command created.
    ///
    /// # Errors
    /// [`Cause::BadReply`] if the command asked for none.
    pub fn into_fd(self) -> Result<OwnedFd, CommandError> {
        self.fd.ok_or(CommandError {
            command: self.command,
            cause: Cause::BadReply("it creates no descriptor"),
        })
    }
}

//! One ioctl command: typed attributes in, one reply out.
//!
//! Ground truth: `struct ib_uverbs_ioctl_hdr` and `struct ib_uverbs_attr` in `rdma_user_ioctl.h`,
//! and the rules of the kernel's `uverbs_ioctl.c`: a value of up to 8 bytes travels inside the
//! attribute, a longer one by address; outputs always travel by address; handles and descriptors
//! travel as numbers.
//!
//! A [`Command`] keeps the slices that it borrows, not their addresses. Only [`sys`](crate::sys)
//! makes addresses of them, at the moment of the call; a kernel played by a test reads and fills
//! the slices. Building needs no `unsafe`, and cannot fail half-way: a mistake is remembered and
//! told by [`Session::run`](crate::Session::run) before anything is sent.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::layout::ids::{
    Attr, Const, Fd, Flags, In, InBytes, NewFd, NewObject, Object, Out, OutBytes, attr, method,
    object,
};
use crate::{Cause, CommandError};

/// The most attributes that one command can carry.
pub const MAX_ATTRS: usize = 16;

/// What one attribute carries.
#[derive(Debug)]
#[non_exhaustive]
pub enum Value<'a> {
    /// Up to 8 bytes, as they lie in memory, in the attribute itself.
    Inline {
        /// How many of the 8 bytes count.
        len: u16,
        /// The bytes, in memory order, the rest zero.
        data: [u8; 8],
    },
    /// More than 8 bytes for the kernel to read.
    In(&'a [u8]),
    /// Bytes for the kernel to fill.
    Out(&'a mut [u8]),
    /// The handle of an existing object.
    Object(u32),
    /// Where the kernel leaves the handle of the object that the command creates.
    NewObject(Option<u32>),
    /// An existing descriptor.
    Fd(BorrowedFd<'a>),
    /// Where the kernel leaves the descriptor that the command creates.
    NewFd(Option<OwnedFd>),
    /// As [`Value::NewFd`], for a `write()` structure whose whole reply is the descriptor's number.
    NewFdInReply(Option<OwnedFd>),
}

/// One attribute of a command.
#[derive(Debug)]
pub struct Entry<'a> {
    /// Its number within the method.
    pub id: u16,
    /// Whether a kernel that does not know it must refuse the command.
    pub mandatory: bool,
    /// What it carries.
    pub value: Value<'a>,
    /// For outputs: whether the kernel says that it wrote it.
    pub answered: bool,
}

/// A command under construction.
pub struct Command<'a> {
    name: &'static str,
    object: u16,
    method: u16,
    entries: [Option<Entry<'a>>; MAX_ATTRS],
    len: usize,
    /// Of each attribute's number the last six bits: most often enough to know that it is a new one.
    seen: u64,
    fault: Option<&'static str>,
}

impl<'a> Command<'a> {
    /// Starts a command; `name` is what errors call it.
    #[inline]
    #[must_use]
    pub fn new(name: &'static str, object: u16, method: u16) -> Self {
        Self {
            name,
            object,
            method,
            entries: [const { None }; MAX_ATTRS],
            len: 0,
            seen: 0,
            fault: None,
        }
    }

    /// Starts a command of the `write()` family, carried by the ioctl method INVOKE_WRITE.
    #[inline]
    #[must_use]
    pub fn invoke_write(name: &'static str, number: u32) -> Self {
        let mut command = Self::new(name, object::DEVICE, method::device::INVOKE_WRITE);
        command.add(attr::invoke_write::WRITE_CMD.id(), constant(number.into()));
        command
    }

    /// Adds the request and the response of a `write()` command.
    #[inline]
    #[must_use]
    pub fn core<Req, Resp>(mut self, request: &'a Req, response: &'a mut Resp) -> Self
    where
        Req: IntoBytes + Immutable,
        Resp: FromBytes + IntoBytes,
    {
        // Both before it is moved.
        let request = in_bytes(request.as_bytes());
        self.add(attr::invoke_write::CORE_IN.id(), request);
        let response = Value::Out(response.as_mut_bytes());
        self.add(attr::invoke_write::CORE_OUT.id(), response);
        self
    }

    /// Adds the request of a `write()` command that has no response.
    #[inline]
    #[must_use]
    pub fn core_in<Req: IntoBytes + Immutable>(self, request: &'a Req) -> Self {
        self.input_bytes(attr::invoke_write::CORE_IN, request.as_bytes())
    }

    /// Passes a value of the attribute's own type.
    #[inline]
    #[must_use]
    pub fn input<T>(self, attr: Attr<In<T>>, value: &'a T) -> Self
    where
        T: IntoBytes + Immutable,
    {
        self.push_bytes(attr.id(), value.as_bytes())
    }

    /// Passes bytes whose length the attribute leaves open.
    #[inline]
    #[must_use]
    pub fn input_bytes(self, attr: Attr<InBytes>, bytes: &'a [u8]) -> Self {
        self.push_bytes(attr.id(), bytes)
    }

    /// Passes a number of the attribute's fixed set.
    #[inline]
    #[must_use]
    pub fn constant(self, attr: Attr<Const>, value: u64) -> Self {
        self.push(attr.id(), constant(value))
    }

    /// Passes a set of flags; the kernel refuses bits that it does not know.
    #[inline]
    #[must_use]
    pub fn flags(self, attr: Attr<Flags>, bits: u32) -> Self {
        let mut data = [0; 8];
        if let Some(low) = data.first_chunk_mut() {
            *low = bits.to_ne_bytes();
        }
        self.push(attr.id(), Value::Inline { len: 4, data })
    }

    /// Names an existing object.
    #[inline]
    #[must_use]
    pub fn object(self, attr: Attr<Object>, handle: u32) -> Self {
        self.push(attr.id(), Value::Object(handle))
    }

    /// Asks for a new object; its handle is in the [`Reply`].
    #[inline]
    #[must_use]
    pub fn new_object(self, attr: Attr<NewObject>) -> Self {
        self.push(attr.id(), Value::NewObject(None))
    }

    /// Passes an existing descriptor.
    #[inline]
    #[must_use]
    pub fn fd(self, attr: Attr<Fd>, fd: BorrowedFd<'a>) -> Self {
        self.push(attr.id(), Value::Fd(fd))
    }

    /// Asks for a new descriptor; it is in the [`Reply`].
    #[inline]
    #[must_use]
    pub fn new_fd(self, attr: Attr<NewFd>) -> Self {
        self.push(attr.id(), Value::NewFd(None))
    }

    /// Asks for a new descriptor whose number is the whole response of a `write()` command.
    #[inline]
    #[must_use]
    pub fn new_fd_in_reply(self, attr: Attr<OutBytes>) -> Self {
        self.push(attr.id(), Value::NewFdInReply(None))
    }

    /// Receives a value of the attribute's own type.
    #[inline]
    #[must_use]
    pub fn output<T>(self, attr: Attr<Out<T>>, value: &'a mut T) -> Self
    where
        T: FromBytes + IntoBytes,
    {
        self.push(attr.id(), Value::Out(value.as_mut_bytes()))
    }

    /// Receives bytes whose length the attribute leaves open.
    #[inline]
    #[must_use]
    pub fn output_bytes(self, attr: Attr<OutBytes>, bytes: &'a mut [u8]) -> Self {
        self.push(attr.id(), Value::Out(bytes))
    }

    /// Marks the attribute added last as one that an older kernel may ignore.
    #[inline]
    #[must_use]
    pub fn optional(mut self) -> Self {
        if let Some(Some(entry)) = self.entries.get_mut(self.len.wrapping_sub(1)) {
            entry.mandatory = false;
        }
        self
    }

    /// Lets a provider add its own part.
    #[inline]
    #[must_use]
    pub fn with(self, append: impl FnOnce(Self) -> Self) -> Self {
        append(self)
    }

    /// What errors call the command.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The object type it is about.
    #[must_use]
    pub const fn object_id(&self) -> u16 {
        self.object
    }

    /// The method of that object type.
    #[must_use]
    pub const fn method_id(&self) -> u16 {
        self.method
    }

    /// Its attributes, in the order in which they were added.
    pub fn entries(&self) -> impl Iterator<Item = &Entry<'a>> {
        self.entries.iter().take(self.len).flatten()
    }

    /// Its attributes, for whoever carries the command out.
    pub fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry<'a>> {
        self.entries.iter_mut().take(self.len).flatten()
    }

    /// Whether it was built without a mistake.
    ///
    /// # Errors
    /// [`Cause::Malformed`] with what is wrong.
    pub fn check(&self) -> Result<(), CommandError> {
        match self.fault {
            None => Ok(()),
            Some(what) => Err(self.error(Cause::Malformed(what))),
        }
    }

    /// Ends the borrows and keeps what the command created.
    ///
    /// # Errors
    /// [`Cause::BadReply`] if a mandatory output was left unwritten. What the command created is
    /// then given up: a descriptor is closed, a handle goes when the file is closed.
    pub fn into_reply(mut self) -> Result<Reply, CommandError> {
        self.take_reply()
    }

    /// As [`into_reply`](Self::into_reply), for whoever has the command only lent.
    pub(crate) fn take_reply(&mut self) -> Result<Reply, CommandError> {
        let command = self.name;
        let mut reply = Reply {
            command,
            object: None,
            fd: None,
        };
        let mut missing = false;
        for entry in self.entries_mut() {
            match &mut entry.value {
                Value::NewObject(handle) => {
                    reply.object = *handle;
                    missing |= handle.is_none();
                }
                Value::NewFd(fd) | Value::NewFdInReply(fd) => {
                    missing |= fd.is_none();
                    reply.fd = fd.take();
                }
                Value::Out(_) => missing |= entry.mandatory && !entry.answered,
                Value::Inline { .. } | Value::In(_) | Value::Object(_) | Value::Fd(_) => {}
            }
        }
        if missing {
            let cause = Cause::BadReply("an output was not written");
            Err(CommandError { command, cause })
        } else {
            Ok(reply)
        }
    }

    fn error(&self, cause: Cause) -> CommandError {
        CommandError {
            command: self.name,
            cause,
        }
    }

    #[inline]
    fn push_bytes(self, id: u16, bytes: &'a [u8]) -> Self {
        self.push(id, in_bytes(bytes))
    }

    // A command is some hundred bytes: what is inlined here keeps it from being moved with each
    // attribute.
    #[inline]
    fn push(mut self, id: u16, value: Value<'a>) -> Self {
        self.add(id, value);
        self
    }

    fn add(&mut self, id: u16, value: Value<'a>) {
        let too_long = match &value {
            Value::In(bytes) => bytes.len() > usize::from(u16::MAX),
            Value::Out(bytes) => bytes.len() > usize::from(u16::MAX),
            _ => false,
        };
        let bit = 1 << (id & 63);
        let may_be_there = self.seen & bit != 0;
        self.seen |= bit;
        if too_long {
            self.fault
                .get_or_insert("an attribute is longer than 65,535 bytes");
        } else if may_be_there && self.entries().any(|entry| entry.id == id) {
            self.fault.get_or_insert("an attribute is given twice");
        } else if let Some(free) = self.entries.get_mut(self.len) {
            *free = Some(Entry {
                id,
                mandatory: true,
                value,
                answered: false,
            });
            self.len += 1;
        } else {
            self.fault
                .get_or_insert("more attributes than a command can carry");
        }
    }
}

/// A number of 8 bytes.
#[inline]
const fn constant<'a>(value: u64) -> Value<'a> {
    Value::Inline {
        len: 8,
        data: value.to_ne_bytes(),
    }
}

/// Bytes for the kernel to read: in the attribute itself, if there is room.
#[inline]
fn in_bytes(bytes: &[u8]) -> Value<'_> {
    let mut data = [0; 8];
    match (data.get_mut(..bytes.len()), u16::try_from(bytes.len())) {
        (Some(start), Ok(len)) => {
            start.copy_from_slice(bytes);
            Value::Inline { len, data }
        }
        _ => Value::In(bytes),
    }
}

impl fmt::Debug for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(self.name)
            .field("object", &self.object)
            .field("method", &self.method)
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

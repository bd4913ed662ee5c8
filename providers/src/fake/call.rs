//! One ioctl as the kernel takes it apart: attributes checked against the method's table first, then
//! read and answered by number.
//!
//! Ground truth: the kernel's `uverbs_ioctl.c`.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use uverbs_abi::Errno;
use uverbs_abi::command::{Command, Value};
use uverbs_abi::layout::ids::attr::{invoke_write, uhw};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::spec::{Kind, Spec};

/// A command that is being carried out.
pub(super) struct Call<'c, 'a> {
    command: &'c mut Command<'a>,
}

impl<'c, 'a> Call<'c, 'a> {
    /// Checks the attributes.
    pub(super) fn new(command: &'c mut Command<'a>, specs: &[Spec]) -> Result<Self, Errno> {
        for entry in command.entries() {
            match specs.iter().find(|spec| spec.id == entry.id) {
                Some(spec) => check(entry.value, spec.kind)?,
                None if entry.mandatory => return Err(Errno::EPROTONOSUPPORT),
                None => {}
            }
        }
        for spec in specs.iter().filter(|spec| spec.required) {
            if !command.entries().any(|entry| entry.id == spec.id) {
                return Err(Errno::EINVAL);
            }
        }
        Ok(Self { command })
    }

    fn value(&self, id: u16) -> Option<Value<'_>> {
        self.command.entry(id).map(|entry| entry.value)
    }

    pub(super) fn has(&self, id: u16) -> bool {
        self.value(id).is_some()
    }

    /// An input, read; nothing if it is too short.
    fn read<T: FromBytes>(&self, id: u16) -> Option<T> {
        let value = self.value(id)?;
        let bytes = match &value {
            Value::Inline { len, data } => data.get(..usize::from(*len))?,
            Value::In(bytes) => bytes,
            _ => return None,
        };
        T::read_from_prefix(bytes).ok().map(|(read, _)| read)
    }

    /// An input of fixed form.
    pub(super) fn input<T: FromBytes>(&self, id: u16) -> Result<T, Errno> {
        self.read(id).ok_or(Errno::EINVAL)
    }

    /// The request of a write command: too short is "no space".
    pub(super) fn request<T: FromBytes>(&self) -> Result<T, Errno> {
        self.read(invoke_write::CORE_IN.id()).ok_or(Errno::ENOSPC)
    }

    /// Whether there is room for the response of a write command.
    pub(super) fn needs_room<T>(&self) -> Result<(), Errno> {
        if self.room(invoke_write::CORE_OUT.id()) < size_of::<T>() {
            return Err(Errno::ENOSPC);
        }
        Ok(())
    }

    /// The response of a write command.
    pub(super) fn respond<T: IntoBytes + Immutable>(&mut self, response: &T) {
        self.answer(invoke_write::CORE_OUT.id(), response);
    }

    /// Bytes of the driver's part of the request.
    pub(super) fn driver_in(&self) -> usize {
        match self.value(uhw::IN.id()) {
            Some(Value::Inline { len, .. }) => usize::from(len),
            Some(Value::In(bytes)) => bytes.len(),
            _ => 0,
        }
    }

    /// The driver's part of the response: too little room is an error, as each driver says itself.
    pub(super) fn needs_driver_room<T>(&self) -> Result<(), Errno> {
        if self.room(uhw::OUT.id()) < size_of::<T>() {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    pub(super) fn room(&self, id: u16) -> usize {
        match self.value(id) {
            Some(Value::Out(bytes)) => bytes.len(),
            Some(Value::NewFdInReply) => size_of::<u32>(),
            _ => 0,
        }
    }

    pub(super) fn handle(&self, id: u16) -> Option<u32> {
        match self.value(id) {
            Some(Value::Object(handle)) => Some(handle),
            _ => None,
        }
    }

    pub(super) fn fd(&self, id: u16) -> Option<RawFd> {
        match self.value(id) {
            Some(Value::Fd(fd)) => Some(fd.as_raw_fd()),
            _ => None,
        }
    }

    /// Fills an output, as far as there is room.
    pub(super) fn answer<T: IntoBytes + Immutable + ?Sized>(&mut self, id: u16, value: &T) {
        self.command.answer(id, value.as_bytes());
    }

    pub(super) fn created(&mut self, handle: u32) {
        self.command.create_object(handle);
    }

    pub(super) fn created_fd(&mut self, fd: OwnedFd) {
        self.command.create_fd(fd);
    }
}

fn check(value: Value<'_>, kind: Kind) -> Result<(), Errno> {
    let fits = match (value, kind) {
        (Value::Inline { len, .. }, Kind::In(want)) => usize::from(len) == want,
        (Value::In(bytes), Kind::In(want)) => bytes.len() == want,
        (Value::Inline { .. } | Value::In(_), Kind::InBytes) => true,
        (Value::Inline { len, .. }, Kind::Const) => len == 8,
        (Value::Inline { len: 4 | 8, data }, Kind::Flags(known)) => {
            u64::from_ne_bytes(data) & !u64::from(known) == 0
        }
        (Value::Out(bytes), Kind::Out(least)) => bytes.len() >= least,
        (Value::NewFdInReply, Kind::Out(least)) => size_of::<u32>() >= least,
        (Value::Object(_), Kind::Object)
        | (Value::NewObject(_), Kind::NewObject)
        | (Value::Fd(_), Kind::Fd)
        | (Value::NewFd, Kind::NewFd) => true,
        _ => false,
    };
    if fits { Ok(()) } else { Err(Errno::EINVAL) }
}

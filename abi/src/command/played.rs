//! A command as a kernel sees it that is played in the same process: what it carries, attribute by
//! attribute, and how it is answered.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::{Command, is_answered};
use crate::layout::ioctl::{UVERBS_ATTR_F_MANDATORY, UVERBS_ATTR_F_VALID_OUTPUT, ib_uverbs_attr};
use crate::sys::wire::Load;

/// What one attribute carries.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Value<'c> {
    /// Up to 8 bytes, as they lie in memory, in the attribute itself.
    Inline {
        /// How many of the 8 bytes count.
        len: u16,
        /// The bytes, in memory order, the rest zero.
        data: [u8; 8],
    },
    /// More than 8 bytes for the kernel to read.
    In(&'c [u8]),
    /// Bytes for the kernel to fill.
    Out(&'c [u8]),
    /// The handle of an existing object.
    Object(u32),
    /// The handle of the object that the command creates, once there is one.
    NewObject(Option<u32>),
    /// An existing descriptor.
    Fd(BorrowedFd<'c>),
    /// The descriptor that the command creates.
    NewFd,
    /// As [`Value::NewFd`], for a `write()` structure whose whole reply is the descriptor's number.
    NewFdInReply,
}

/// One attribute of a command.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'c> {
    /// Its number within the method.
    pub id: u16,
    /// Whether a kernel that does not know it must refuse the command.
    pub mandatory: bool,
    /// What it carries.
    pub value: Value<'c>,
    /// For outputs: whether the kernel says that it wrote it.
    pub answered: bool,
}

impl Command<'_> {
    /// Its attributes, in the order in which they were added.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let (attrs, loads) = self.wire.parts();
        let pairs = attrs.iter().zip(loads);
        pairs.map(|(attr, load)| self.entry_of(attr, load))
    }

    /// The attribute with this number, if there is one.
    #[must_use]
    pub fn entry(&self, id: u16) -> Option<Entry<'_>> {
        self.entries().find(|entry| entry.id == id)
    }

    fn entry_of<'c>(&'c self, attr: &ib_uverbs_attr, load: &'c Load<'_>) -> Entry<'c> {
        #[expect(clippy::cast_possible_truncation, reason = "made of a `u32`")]
        let value = match load {
            Load::Inline => Value::Inline {
                len: attr.len,
                data: attr.data.to_ne_bytes(),
            },
            Load::In(bytes) => Value::In(bytes),
            Load::Out(bytes) => Value::Out(bytes),
            Load::Object => Value::Object(attr.data as u32),
            Load::NewObject => Value::NewObject(self.object),
            Load::Fd(fd) => Value::Fd(*fd),
            Load::NewFd => Value::NewFd,
            Load::NewFdInReply => Value::NewFdInReply,
        };
        Entry {
            id: attr.attr_id,
            mandatory: attr.flags & UVERBS_ATTR_F_MANDATORY != 0,
            value,
            answered: is_answered(attr.flags),
        }
    }

    /// Fills the output with this number, as far as there is room, and says that it was written; false
    /// if there is none.
    pub fn answer(&mut self, id: u16, bytes: &[u8]) -> bool {
        let (attrs, loads) = self.wire.parts_mut();
        for (attr, load) in attrs.iter_mut().zip(loads) {
            if let Load::Out(out) = load
                && attr.attr_id == id
            {
                for (to, from) in out.iter_mut().zip(bytes) {
                    *to = *from;
                }
                attr.flags |= UVERBS_ATTR_F_VALID_OUTPUT;
                return true;
            }
        }
        false
    }

    /// Gives the handle of the object that the command creates; false if it creates none.
    pub const fn create_object(&mut self, handle: u32) -> bool {
        let is_wanted = self.new_object.is_some();
        if is_wanted {
            self.object = Some(handle);
        }
        is_wanted
    }

    /// Gives the descriptor that the command creates. It is closed if the command creates none.
    pub fn create_fd(&mut self, fd: OwnedFd) {
        if self.new_fd.is_some() {
            self.fd = Some(fd);
        }
    }

    /// Takes back what was answered, but for the handle of a new object: as if the kernel had done what
    /// it was told and left its answer out.
    pub fn unanswer(&mut self) {
        let (attrs, loads) = self.wire.parts_mut();
        for (attr, load) in attrs.iter_mut().zip(loads) {
            match load {
                Load::Out(out) => out.fill(0),
                Load::NewFdInReply => self.fd = None,
                _ => continue,
            }
            attr.flags &= !UVERBS_ATTR_F_VALID_OUTPUT;
        }
    }
}

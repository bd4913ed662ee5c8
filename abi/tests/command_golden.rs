//! Commands byte by byte, as the kernel gets them: header and attributes against arrays written by
//! hand from `rdma_user_ioctl.h`. Addresses are made up, so that the bytes are the same everywhere.

#![cfg(all(feature = "std", target_endian = "little"))]

use std::os::fd::{AsFd, AsRawFd};

use uverbs_abi::command::{Command, MAX_ATTRS, Value};
use uverbs_abi::layout::ids::{Attr, attr, method, object};
use uverbs_abi::sys::{Slice, laid_out};
use uverbs_abi::{Cause, Errno, Kernel, Mapping, Session};
use zerocopy::IntoBytes;

const RXE: u32 = 14;

/// The bytes that count, with 0x1000, 0x2000, … standing for the slices, in order.
fn bytes(command: &mut Command<'_>) -> Vec<u8> {
    let (mut next, mut fd) = (0u64, u32::MAX);
    let address = |_: Slice<'_>| {
        next += 0x1000;
        next
    };
    let (header, attrs) = laid_out(command, RXE, &mut fd, address);
    [header.as_bytes(), attrs.as_bytes()].concat()
}

#[test]
fn cq_create() {
    let (depth, token, vector, mut granted) = (500u32, 0x1122_3344_5566_7788u64, 1u32, 0u32);
    let mut driver_part = [0u8; 16];
    let event_file = std::fs::File::open("/dev/null").unwrap();
    let fd = u8::try_from(event_file.as_raw_fd()).unwrap();
    let mut command = Command::new("CQ_CREATE", object::CQ, method::cq::CREATE);
    command
        .new_object(attr::cq_create::HANDLE)
        .input(attr::cq_create::CQE, &depth)
        .input(attr::cq_create::USER_HANDLE, &token)
        .input(attr::cq_create::COMP_VECTOR, &vector)
        .fd(attr::cq_create::EVENT_FD, event_file.as_fd())
        .optional()
        .output(attr::cq_create::RESP_CQE, &mut granted)
        .output_bytes(attr::uhw::OUT, &mut driver_part);
    #[rustfmt::skip]
    let expected: Vec<u8> = vec![
        136, 0,  3, 0,  0, 0,  7, 0,        // length 24 + 7 × 16, object CQ, method CREATE, 7 attributes
        0, 0, 0, 0, 0, 0, 0, 0,             // reserved1
        14, 0, 0, 0,  0, 0, 0, 0,           // driver_id rxe, reserved2
        // id, len, flags (1: mandatory), elem_id and reserved, data
        0, 0,  0, 0,  1, 0,  0, 0,  0, 0, 0, 0, 0, 0, 0, 0,                                  // HANDLE, new
        1, 0,  4, 0,  1, 0,  0, 0,  0xF4, 1, 0, 0, 0, 0, 0, 0,                               // CQE, inline
        2, 0,  8, 0,  1, 0,  0, 0,  0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,          // USER_HANDLE
        4, 0,  4, 0,  1, 0,  0, 0,  1, 0, 0, 0, 0, 0, 0, 0,                                  // COMP_VECTOR
        7, 0,  0, 0,  0, 0,  0, 0,  fd, 0, 0, 0, 0, 0, 0, 0,                                 // EVENT_FD, optional
        6, 0,  4, 0,  1, 0,  0, 0,  0, 0x10, 0, 0, 0, 0, 0, 0,                               // RESP_CQE, by address
        1, 16, 16, 0, 1, 0,  0, 0,  0, 0x20, 0, 0, 0, 0, 0, 0,                               // UHW_OUT, by address
    ];
    assert_eq!(bytes(&mut command), expected);
}

#[test]
fn a_write_command_in_an_ioctl() {
    let (request, mut response) = ([7u8; 40], [0u8; 12]);
    let mut command = Command::invoke_write("REG_MR", 9);
    command
        .input_bytes(attr::invoke_write::CORE_IN, &request)
        .output_bytes(attr::invoke_write::CORE_OUT, &mut response);
    #[rustfmt::skip]
    let expected: Vec<u8> = vec![
        72, 0,  0, 0,  0, 0,  3, 0,         // length, object DEVICE, method INVOKE_WRITE, 3 attributes
        0, 0, 0, 0, 0, 0, 0, 0,
        14, 0, 0, 0,  0, 0, 0, 0,
        2, 0,  8, 0,  1, 0,  0, 0,  9, 0, 0, 0, 0, 0, 0, 0,          // WRITE_CMD, a constant: 8 bytes
        0, 0,  40, 0, 1, 0,  0, 0,  0, 0x10, 0, 0, 0, 0, 0, 0,       // CORE_IN, more than 8: by address
        1, 0,  12, 0, 1, 0,  0, 0,  0, 0x20, 0, 0, 0, 0, 0, 0,       // CORE_OUT
    ];
    assert_eq!(bytes(&mut command), expected);
}

#[test]
fn a_descriptor_that_nobody_makes_is_not_number_0() {
    let mut command = Command::new("ASYNC_EVENT_ALLOC", object::ASYNC_EVENT, 0);
    command.new_fd(attr::async_event_alloc::FD_HANDLE);
    let bytes = bytes(&mut command);
    assert_eq!(bytes[24..32], [0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(bytes[32..], [0xFF; 8]);
}

/// A kernel that answers with an error number, or does nothing and says that it went well.
#[derive(Debug)]
struct Scripted(Option<Errno>);

impl Kernel for Scripted {
    fn ioctl(&self, _: u32, _: &mut Command<'_>) -> Result<(), Errno> {
        self.0.map_or(Ok(()), Err)
    }

    fn write(&self, _: &mut [u8], _: &mut [u8]) -> Result<(), Errno> {
        self.0.map_or(Ok(()), Err)
    }

    fn map(&self, _: u64, _: usize) -> Result<Mapping, Errno> {
        Err(self.0.unwrap_or(Errno::EINVAL))
    }
}

fn session(answer: Option<Errno>) -> Session {
    Session::new(std::sync::Arc::new(Scripted(answer)), RXE)
}

#[test]
fn mistakes_are_told_before_anything_is_sent() {
    let value = 1u32;
    let mut twice = Command::new("CQ_CREATE", object::CQ, 0);
    twice.input(attr::cq_create::CQE, &value);
    twice.input(attr::cq_create::CQE, &value);
    // Told apart from each other by nothing but the whole number.
    let [mut alike, mut alike_twice] = [(); 2].map(|()| Command::new("CQ_CREATE", object::CQ, 0));
    for id in [3, 35, 67, 35] {
        alike_twice.input(Attr::new(id), &value);
    }
    for id in [3, 35, 67, 0x1003, 0x1023] {
        alike.input(Attr::new(id), &value);
    }
    assert_eq!(alike.check(), Ok(()));
    let long = vec![0u8; 65_536];
    let mut too_long = Command::invoke_write("REG_MR", 9);
    too_long.input_bytes(attr::invoke_write::CORE_IN, &long);
    let mut too_many = Command::new("CQ_CREATE", object::CQ, 0);
    for id in 0..=u16::try_from(MAX_ATTRS).unwrap() {
        assert_eq!(too_many.check(), Ok(()), "{id}");
        too_many.input(Attr::new(id), &value);
    }
    let mut two_objects = Command::new("CQ_CREATE", object::CQ, 0);
    two_objects
        .new_object(Attr::new(0))
        .new_object(Attr::new(1));
    let mut two_fds = Command::new("COMP_CHANNEL_CREATE", object::COMP_CHANNEL, 0);
    two_fds.new_fd(Attr::new(0)).new_fd_in_reply(Attr::new(1));
    let all = [twice, alike_twice, too_long, too_many, two_objects, two_fds];
    for mut command in all {
        let name = command.name();
        let error = session(None).run(&mut command).unwrap_err();
        assert_eq!(error.command, name);
        assert!(matches!(error.cause, Cause::Malformed(_)), "{error}");
    }
}

#[test]
fn a_reply_that_leaves_something_out_is_none() {
    let mut granted = 0u32;
    let mut command = Command::new("CQ_CREATE", object::CQ, 0);
    command.output(attr::cq_create::RESP_CQE, &mut granted);
    let error = session(None).run(&mut command).unwrap_err();
    assert!(matches!(error.cause, Cause::BadReply(_)), "{error}");
    let mut command = Command::new("CQ_CREATE", object::CQ, 0);
    command.new_object(attr::cq_create::HANDLE);
    assert!(matches!(
        session(None).run(&mut command).unwrap_err().cause,
        Cause::BadReply(_)
    ));
}

#[test]
fn what_a_kernel_cannot_do_is_told_from_what_it_refuses() {
    for (errno, unsupported) in [
        (Errno::ENOTTY, true),
        (Errno::EPROTONOSUPPORT, true),
        (Errno::EOPNOTSUPP, true),
        (Errno::EINVAL, false),
        (Errno::ENOMEM, false),
    ] {
        let error = session(Some(errno))
            .run(&mut Command::new("X", object::DEVICE, 0))
            .unwrap_err();
        assert_eq!(
            (error.is_unsupported(), error.errno()),
            (unsupported, Some(errno))
        );
    }
    // EIO, and EIO to the harmless question after it: the device is gone, and stays so.
    let session = session(Some(Errno::EIO));
    let error = session
        .run(&mut Command::new("X", object::DEVICE, 0))
        .unwrap_err();
    assert!(error.is_device_gone() && session.is_gone());
}

#[test]
fn entries_show_what_was_built() {
    let value = 5u32;
    let mut command = Command::new("CQ_CREATE", object::CQ, 0);
    command.input(attr::cq_create::CQE, &value).optional();
    let entries: Vec<_> = command.entries().collect();
    assert_eq!(entries.len(), 1);
    assert!(!entries[0].mandatory && matches!(entries[0].value, Value::Inline { len: 4, .. }));
}

#[test]
fn what_is_answered_arrives_and_is_in_the_reply() {
    let (mut granted, mut ignored) = (0u32, 7u64);
    let mut command = Command::new("CQ_CREATE", object::CQ, 0);
    command
        .new_object(attr::cq_create::HANDLE)
        .output(attr::cq_create::RESP_CQE, &mut granted)
        .output(Attr::new(40), &mut ignored)
        .optional();
    // As long as there is room, and only where there is an output.
    assert!(command.answer(attr::cq_create::RESP_CQE.id(), &[1, 2, 3, 4, 5]));
    assert!(!command.answer(attr::cq_create::HANDLE.id(), &[1]) && !command.answer(99, &[1]));
    assert!(command.create_object(9));
    assert_eq!(command.take_reply().unwrap().object(), Ok(9));
    assert!(command.take_reply().is_err(), "taken");
    // Laid out for another call it has not been answered.
    assert!(command.create_object(9));
    bytes(&mut command);
    assert!(
        command.take_reply().is_err(),
        "an answer to the call before"
    );
    assert_eq!((granted, ignored), (u32::from_le_bytes([1, 2, 3, 4]), 7));
}

#[test]
fn an_answer_that_is_taken_back_is_none() {
    let mut granted = 0u32;
    let mut command = Command::new("CQ_CREATE", object::CQ, 0);
    command.output(attr::cq_create::RESP_CQE, &mut granted);
    command.answer(attr::cq_create::RESP_CQE.id(), &[1; 4]);
    command.unanswer();
    assert!(command.take_reply().is_err());
    assert_eq!(granted, 0);
    let mut command = Command::new("X", object::DEVICE, 0);
    assert!(!command.create_object(1), "it asks for none");
    command.create_fd(std::fs::File::open("/dev/null").unwrap().into());
    assert!(command.take_reply().unwrap().into_fd().is_err());
}

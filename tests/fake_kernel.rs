//! The fake kernel itself, asked as the real one can be: the frame of a command, handles, mappings,
//! and the order of its checks. What is expected is what was read in, or measured on, Linux 6.12.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::path::Path;
use std::sync::Arc;

use uverbs::Context;
use uverbs::abi::layout::cmd::{ib_uverbs_alloc_pd, ib_uverbs_alloc_pd_resp};
use uverbs::abi::layout::ids::{Attr, In, attr, method, object};
use uverbs::abi::layout::rxe::{mminfo, rxe_create_cq_resp};
use uverbs::abi::{Command, Errno, Kernel, legacy};
use uverbs::fake::{Fabric, FakeDevice};
use zerocopy::IntoBytes;

const RXE: u32 = 14;

fn ask(kernel: &dyn Kernel, command: &mut Command<'_>) -> Result<(), Errno> {
    kernel.ioctl(RXE, command)
}

fn get_context() -> Command<'static> {
    Command::new("GET_CONTEXT", object::DEVICE, method::device::GET_CONTEXT)
}

fn destroy(name: &'static str, class: u16, method: u16, handle: u32) -> Command<'static> {
    let mut command = Command::new(name, class, method);
    command.object(attr::pd_destroy::HANDLE, handle);
    command
}

fn destroy_pd(handle: u32) -> Command<'static> {
    destroy("PD_DESTROY", object::PD, method::pd::DESTROY, handle)
}

/// An open file with a context.
fn open(device: &FakeDevice) -> Arc<dyn Kernel> {
    let kernel = device.kernel();
    ask(&*kernel, &mut get_context()).unwrap();
    kernel
}

fn alloc_pd(kernel: &dyn Kernel) -> u32 {
    let (request, mut response) = (
        ib_uverbs_alloc_pd::default(),
        ib_uverbs_alloc_pd_resp::default(),
    );
    ask(
        kernel,
        Command::invoke_write("ALLOC_PD", 3).core(&request, &mut response),
    )
    .unwrap();
    response.pd_handle
}

/// A completion queue: its handle and where it can be mapped.
fn create_cq(kernel: &dyn Kernel, depth: u32) -> Result<(u32, mminfo), Errno> {
    let (mut granted, mut reply) = (0u32, rxe_create_cq_resp::default());
    let (token, vector) = (7u64, 0u32);
    let mut command = Command::new("CQ_CREATE", object::CQ, method::cq::CREATE);
    command
        .new_object(attr::cq_create::HANDLE)
        .input(attr::cq_create::CQE, &depth)
        .input(attr::cq_create::USER_HANDLE, &token)
        .input(attr::cq_create::COMP_VECTOR, &vector)
        .output(attr::cq_create::RESP_CQE, &mut granted)
        .output_bytes(attr::uhw::OUT, reply.as_mut_bytes());
    kernel.ioctl(RXE, &mut command)?;
    let handle = command.take_reply().unwrap().object().unwrap();
    Ok((handle, reply.mi))
}

fn device() -> FakeDevice {
    Fabric::new().add_device("rxe0")
}

#[test]
fn the_driver_is_told_by_two_different_errors() {
    let kernel = device().kernel();
    let mut probe = Command::new("DRIVER_PROBE", object::DEVICE, 0x0FFF);
    assert_eq!(kernel.ioctl(13, &mut probe), Err(Errno::EINVAL));
    assert_eq!(kernel.ioctl(RXE, &mut probe), Err(Errno::EPROTONOSUPPORT));
}

#[test]
fn one_context_for_each_file_and_nothing_before_it() {
    let device = device();
    let kernel = device.kernel();
    let query = || {
        Command::new(
            "QUERY_CONTEXT",
            object::DEVICE,
            method::device::QUERY_CONTEXT,
        )
    };
    assert_eq!(ask(&*kernel, &mut query()), Err(Errno::EINVAL));
    let mut frame = legacy::doorbell_frame(0);
    assert_eq!(kernel.write(&mut frame, &mut [0; 4]), Err(Errno::EINVAL));
    ask(&*kernel, &mut get_context()).unwrap();
    assert_eq!(ask(&*kernel, &mut get_context()), Err(Errno::EINVAL));
    ask(&*kernel, &mut query()).unwrap();
    // Another open file is another context.
    open(&device);
    let error = Context::on_kernel(kernel, "rxe0", Path::new("/dev/null"), 2).unwrap_err();
    assert!(
        error.to_string().contains("GET_CONTEXT failed (EINVAL"),
        "{error}"
    );
}

#[test]
fn attributes_are_checked_before_anything_is_done() {
    const STRANGE: Attr<In<u32>> = Attr::new(99);
    let kernel = device().kernel();
    let value = 1u32;
    let mut strange = get_context();
    strange.input(STRANGE, &value);
    assert_eq!(ask(&*kernel, &mut strange), Err(Errno::EPROTONOSUPPORT));
    assert_eq!(ask(&*kernel, strange.optional()), Ok(()));
    let pd = alloc_pd(&*kernel);
    // Missing, too short, of the wrong sort.
    let mut bare = Command::new("PD_DESTROY", object::PD, method::pd::DESTROY);
    assert_eq!(ask(&*kernel, &mut bare), Err(Errno::EINVAL));
    let mut short = [0u8; 2];
    let mut port = Command::new("QUERY_PORT", object::DEVICE, method::device::QUERY_PORT);
    port.constant(attr::query_port::PORT_NUM, 1)
        .output(Attr::new(attr::query_port::RESP.id()), &mut short);
    assert_eq!(ask(&*kernel, &mut port), Err(Errno::EINVAL));
    let mut number = Command::new("PD_DESTROY", object::PD, method::pd::DESTROY);
    number.input(Attr::new(0), &pd);
    assert_eq!(ask(&*kernel, &mut number), Err(Errno::EINVAL));
    let mut flags = Command::new(
        "QUERY_GID_ENTRY",
        object::DEVICE,
        method::device::QUERY_GID_ENTRY,
    );
    flags.flags(attr::query_gid_entry::FLAGS, 1);
    assert_eq!(ask(&*kernel, &mut flags), Err(Errno::EINVAL));
    // Write commands: no such command, and no room for the response.
    assert_eq!(
        ask(&*kernel, &mut Command::invoke_write("PEEK_CQ", 22)),
        Err(Errno::EOPNOTSUPP)
    );
    let request = ib_uverbs_alloc_pd::default();
    let mut alloc = Command::invoke_write("ALLOC_PD", 3);
    assert_eq!(ask(&*kernel, alloc.core_in(&request)), Err(Errno::ENOSPC));
    ask(&*kernel, &mut destroy_pd(pd)).unwrap();
}

#[test]
fn handles_are_per_file_typed_and_given_out_again() {
    let device = device();
    let (kernel, other) = (open(&device), open(&device));
    let pd = alloc_pd(&*kernel);
    let (cq, _) = create_cq(&*kernel, 3).unwrap();
    assert_eq!((pd, cq), (0, 1));
    assert_eq!(alloc_pd(&*other), 0);
    // Of another type, and of nobody.
    assert_eq!(ask(&*kernel, &mut destroy_pd(cq)), Err(Errno::EINVAL));
    assert_eq!(ask(&*kernel, &mut destroy_pd(9)), Err(Errno::ENOENT));
    assert_eq!(ask(&*other, &mut destroy_pd(cq)), Err(Errno::ENOENT));
    ask(&*kernel, &mut destroy_pd(pd)).unwrap();
    assert_eq!(ask(&*kernel, &mut destroy_pd(pd)), Err(Errno::ENOENT));
    assert_eq!(alloc_pd(&*kernel), 0);
    drop(kernel);
    let live = device.live();
    assert_eq!((live.files, live.pds, live.cqs), (1, 1, 0));
}

#[test]
fn a_queue_is_mapped_once_under_its_own_offset_by_its_own_file() {
    let device = device();
    let (kernel, other) = (open(&device), open(&device));
    assert_eq!(create_cq(&*kernel, 0).unwrap_err(), Errno::EINVAL);
    assert_eq!(create_cq(&*kernel, 32_768).unwrap_err(), Errno::EINVAL);
    let (_, info) = create_cq(&*kernel, 4).unwrap();
    let size = info.size as usize;
    assert_eq!(size, 384 + 8 * 64);
    assert_eq!(
        kernel.map(info.offset + 8, size).unwrap_err(),
        Errno::EINVAL
    );
    assert_eq!(
        kernel.map(info.offset, size + 1).unwrap_err(),
        Errno::EINVAL
    );
    assert_eq!(other.map(info.offset, size).unwrap_err(), Errno::EINVAL);
    let mapping = kernel.map(info.offset, size).unwrap();
    assert_eq!(mapping.len(), size);
    assert_eq!(kernel.map(info.offset, size).unwrap_err(), Errno::EINVAL);
    let (_, next) = create_cq(&*kernel, 4).unwrap();
    assert!(next.offset > info.offset);
    // The mapping outlives the object, and the file.
    assert_eq!(device.live().maps, 1);
    drop(kernel);
    assert_eq!(device.live().maps, 1);
    drop(mapping);
    assert_eq!(device.live().maps, 0);
}

#[test]
fn a_write_that_is_no_doorbell_is_refused() {
    let device = device();
    let kernel = open(&device);
    let write = |change: fn(&mut [u8; 32]), room: usize| {
        let mut frame = legacy::doorbell_frame(0);
        change(&mut frame);
        kernel.write(&mut frame, &mut vec![0; room])
    };
    // No such queue pair.
    assert_eq!(write(|_| {}, 4), Err(Errno::EINVAL));
    assert_eq!(write(|frame| frame[0] = 3, 4), Err(Errno::EOPNOTSUPP));
    assert_eq!(write(|frame| frame[4] = 7, 4), Err(Errno::EINVAL));
    assert_eq!(write(|frame| frame[28] = 55, 4), Err(Errno::EINVAL));
    assert_eq!(write(|_| {}, 0), Err(Errno::ENOSPC));
    device.set_write_refused(true);
    assert_eq!(write(|_| {}, 4), Err(Errno::EACCES));
    device.set_write_refused(false);
    device.remove();
    assert_eq!(write(|_| {}, 4), Err(Errno::EIO));
}

#[test]
fn after_a_removal_what_is_left_is_destroyed_once() {
    let device = device();
    let kernel = open(&device);
    let pd = alloc_pd(&*kernel);
    let (_, info) = create_cq(&*kernel, 4).unwrap();
    device.remove();
    // The look-up of a method comes first.
    let mut unknown = Command::new("DRIVER_PROBE", object::DEVICE, 0x0FFF);
    assert_eq!(ask(&*kernel, &mut unknown), Err(Errno::EPROTONOSUPPORT));
    assert_eq!(create_cq(&*kernel, 4).unwrap_err(), Errno::EIO);
    assert_eq!(
        kernel.map(info.offset, info.size as usize).unwrap_err(),
        Errno::EIO
    );
    assert_eq!(ask(&*kernel, &mut destroy_pd(pd)), Ok(()));
    assert_eq!(ask(&*kernel, &mut destroy_pd(pd)), Err(Errno::ENOENT));
    assert_eq!(ask(&*device.kernel(), &mut get_context()), Err(Errno::EIO));
}

//! Opening a device, and asking about it and its ports.

use std::os::fd::OwnedFd;

use uverbs_abi::layout::cmd::{
    IB_USER_VERBS_CMD_FLAG_EXTENDED, IB_USER_VERBS_CMD_QUERY_DEVICE, ib_uverbs_ex_query_device,
    ib_uverbs_ex_query_device_resp,
};
use uverbs_abi::layout::driver::DriverId;
use uverbs_abi::layout::ids::{attr, method, object};
use uverbs_abi::layout::verbs::{ib_uverbs_gid_entry, ib_uverbs_query_port_resp_ex};
use uverbs_abi::{Command, CommandError, Errno, Kernel, Session};

/// A method number that no kernel has: with the right driver number the kernel says that it does
/// not know the method, with a wrong one that the driver number is invalid.
const NO_SUCH_METHOD: u16 = 0x0FFF;

/// The highest driver number to ask for; the newest kernel ends at 21.
const LAST_DRIVER: u32 = 40;

/// Finds out which kernel driver stands behind an open file. Needs no context. Each try is one
/// ioctl, so `likely` goes first.
///
/// # Errors
/// `ENOTTY` from a kernel without the ioctl interface, `EIO` from a removed device.
pub fn probe_driver(kernel: &dyn Kernel, likely: &[DriverId]) -> Result<DriverId, CommandError> {
    let likely = likely.iter().map(|driver| driver.to_raw());
    for driver in likely.chain(0..=LAST_DRIVER) {
        let mut probe = Command::new("DRIVER_PROBE", object::DEVICE, NO_SUCH_METHOD);
        match kernel.ioctl(driver, &mut probe) {
            Err(Errno::EINVAL) => {}
            Ok(()) | Err(Errno::EPROTONOSUPPORT) => return Ok(DriverId::from_raw(driver)),
            Err(errno) => return Err(CommandError::refused("DRIVER_PROBE", errno)),
        }
    }
    Ok(DriverId::Unknown)
}

/// What a new context says of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    /// Completion vectors of the device.
    pub num_comp_vectors: u32,
    /// `IB_UVERBS_CORE_SUPPORT_*`.
    pub core_support: u64,
}

/// GET_CONTEXT: makes the open file a context. Once for each file.
///
/// # Errors
/// The kernel's refusal.
pub fn get_context(session: &Session, uhw_out: &mut [u8]) -> Result<Context, CommandError> {
    let mut context = Context::default();
    let mut command = Command::new("GET_CONTEXT", object::DEVICE, method::device::GET_CONTEXT);
    command
        .output(
            attr::get_context::NUM_COMP_VECTORS,
            &mut context.num_comp_vectors,
        )
        .output(attr::get_context::CORE_SUPPORT, &mut context.core_support);
    if !uhw_out.is_empty() {
        // Some drivers write nothing here.
        command.output_bytes(attr::uhw::OUT, uhw_out).optional();
    }
    session.run(&mut command)?;
    Ok(context)
}

/// ASYNC_EVENT_ALLOC: a descriptor for asynchronous events. The first of a file becomes the default
/// for objects that name none.
///
/// # Errors
/// The kernel's refusal.
pub fn alloc_async_events(session: &Session) -> Result<OwnedFd, CommandError> {
    let mut command = Command::new(
        "ASYNC_EVENT_ALLOC",
        object::ASYNC_EVENT,
        method::async_event::ALLOC,
    );
    command.new_fd(attr::async_event_alloc::FD_HANDLE);
    session.run(&mut command)?.into_fd()
}

/// QUERY_DEVICE, extended.
///
/// # Errors
/// The kernel's refusal.
pub fn query_device(session: &Session) -> Result<ib_uverbs_ex_query_device_resp, CommandError> {
    let request = ib_uverbs_ex_query_device::default();
    let mut response = ib_uverbs_ex_query_device_resp::default();
    let number = IB_USER_VERBS_CMD_QUERY_DEVICE | IB_USER_VERBS_CMD_FLAG_EXTENDED;
    session.run(Command::invoke_write("QUERY_DEVICE", number).core(&request, &mut response))?;
    Ok(response)
}

/// QUERY_PORT.
///
/// # Errors
/// The kernel's refusal; `EINVAL` for a port that the device lacks.
pub fn query_port(
    session: &Session,
    port: u8,
) -> Result<ib_uverbs_query_port_resp_ex, CommandError> {
    let mut response = ib_uverbs_query_port_resp_ex::default();
    let mut command = Command::new("QUERY_PORT", object::DEVICE, method::device::QUERY_PORT);
    command
        .constant(attr::query_port::PORT_NUM, u64::from(port))
        .output(attr::query_port::RESP, &mut response);
    session.run(&mut command)?;
    Ok(response)
}

/// QUERY_GID_ENTRY: one entry of a port's GID table.
///
/// # Errors
/// The kernel's refusal; `ENODATA` for an empty entry, `EINVAL` past the table's end.
pub fn query_gid_entry(
    session: &Session,
    port: u32,
    index: u32,
) -> Result<ib_uverbs_gid_entry, CommandError> {
    let mut entry = ib_uverbs_gid_entry::default();
    let mut command = Command::new(
        "QUERY_GID_ENTRY",
        object::DEVICE,
        method::device::QUERY_GID_ENTRY,
    );
    command
        .constant(attr::query_gid_entry::PORT, u64::from(port))
        .constant(attr::query_gid_entry::GID_INDEX, u64::from(index))
        .flags(attr::query_gid_entry::FLAGS, 0)
        .output(attr::query_gid_entry::RESP_ENTRY, &mut entry);
    session.run(&mut command)?;
    Ok(entry)
}

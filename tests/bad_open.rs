//! What can be wrong with a device or its surroundings when it is opened, each with the message that tells it.

mod support;

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use uverbs::fake::{Fabric, FakeDevice};
use uverbs::{Context, DriverId, Errno, Explain, NoProviderReason, OpenError};

fn device() -> FakeDevice {
    Fabric::new().add_device("rxe0")
}

/// The message of an error.
fn told<T: std::fmt::Debug, E: Error>(result: Result<T, E>) -> String {
    result.expect_err("is refused").to_string()
}

#[test]
#[cfg_attr(miri, ignore = "reads sysfs")]
fn no_device_of_that_name() {
    let text = told(Context::open("no such device"));
    assert!(
        text.starts_with("no RDMA device is called \"no such device\"; there "),
        "{text}"
    );
}

#[test]
fn what_opening_can_run_into_has_a_next_step() {
    let nobody = OpenError::NoSuchDevice {
        name: "rxe0".to_owned(),
        present: Vec::new(),
        hints: Vec::new(),
    };
    assert_eq!(
        nobody.to_string(),
        "no RDMA device is called \"rxe0\"; there is none at all (is a driver such as rdma_rxe loaded, \
         and ib_uverbs?)"
    );
    let node = |errno: Errno| OpenError::Node {
        path: PathBuf::from("/dev/infiniband/uverbs0"),
        source: io::Error::from(errno),
    };
    let text = node(Errno::EACCES).to_string();
    assert!(
        text.contains("this process may not: look at the node's mode and group"),
        "{text}"
    );
    let text = node(Errno::ENOENT).to_string();
    assert!(text.contains("/dev has no node for it: run udev"), "{text}");
    let other = OpenError::KernelAbi {
        found: 7,
        wanted: 6,
    };
    assert_eq!(
        other.to_string(),
        "the kernel speaks uverbs ABI 7, this crate speaks 6; a newer version of this crate is needed"
    );

    let device = device();
    device.fail_next("DRIVER_PROBE", Errno::ENOTTY);
    let text = told(device.open());
    assert!(
        text.starts_with("cannot open rxe0: DRIVER_PROBE is not supported"),
        "{text}"
    );
    assert!(
        text.ends_with("; the oldest kernel that this crate was tried on is Linux 6.1"),
        "{text}"
    );
}

/// Every error of opening says in its long form more than in its short one.
#[test]
fn the_long_form_of_an_opening_that_failed_goes_on_from_the_short_one() {
    let path = || PathBuf::from("/dev/infiniband/uverbs0");
    let node = |errno: i32| OpenError::Node {
        path: path(),
        source: io::Error::from_raw_os_error(errno),
    };
    let missing = |present: &[&str]| OpenError::NoSuchDevice {
        name: "rxe0".to_owned(),
        present: present.iter().map(|name| (*name).to_owned()).collect(),
        hints: Vec::new(),
    };
    let replaced = OpenError::Replaced {
        device: "rxe0".to_owned(),
        uverbs: "uverbs0".to_owned(),
        now: None,
    };
    let odd = OpenError::OddKernelAbi {
        path: "/sys/class/infiniband_verbs/abi_version".into(),
        text: "six".to_owned(),
    };
    let elsewhere = OpenError::OtherNamespace {
        device: "rxe0".to_owned(),
        path: path(),
        source: io::Error::from_raw_os_error(libc::EPERM),
    };
    let stale = OpenError::StaleNode {
        path: path(),
        found: Some((231, 193)),
        wanted: (231, 192),
    };
    let other = OpenError::KernelAbi {
        found: 7,
        wanted: 6,
    };
    let events = OpenError::Events {
        device: "rxe0".to_owned(),
        source: io::Error::from_raw_os_error(libc::EMFILE),
    };
    let expected = [
        (
            missing(&[]),
            "next: `rdma link` shows",
            io::ErrorKind::NotFound,
        ),
        (
            missing(&["mlx5_0"]),
            "cause: a rule of udev",
            io::ErrorKind::NotFound,
        ),
        (
            node(libc::EACCES),
            "cause: the process is in no group",
            io::ErrorKind::PermissionDenied,
        ),
        (
            node(libc::ENOENT),
            "cause: udev is not running",
            io::ErrorKind::NotFound,
        ),
        (
            node(libc::ENXIO),
            "next: list the devices again",
            io::Error::from_raw_os_error(libc::ENXIO).kind(),
        ),
        (
            node(libc::ENFILE),
            "next: raise its limit: `sysctl fs.file-max`",
            io::Error::from_raw_os_error(libc::ENFILE).kind(),
        ),
        (
            events,
            "next: raise its limit: `ulimit -n`",
            io::Error::from_raw_os_error(libc::EMFILE).kind(),
        ),
        (
            stale,
            "next: compare `ls -l /dev/infiniband/uverbs0`",
            io::ErrorKind::NotFound,
        ),
        (replaced, "next: list again", io::ErrorKind::NotFound),
        (
            elsewhere,
            "next: run the program in the device's network namespace",
            io::ErrorKind::PermissionDenied,
        ),
        (
            other,
            "means: it is the version of the whole interface",
            io::ErrorKind::Unsupported,
        ),
        (
            odd,
            "next: `findmnt -T /sys/class/infiniband_verbs/abi_version`",
            io::ErrorKind::InvalidData,
        ),
    ];
    for (error, part, kind) in expected {
        let report = error.report();
        assert_eq!(report.head(), error.to_string());
        let text = report.to_string();
        assert!(text.contains(&format!("\n  {part}")), "{part}: {text}");
        for line in text.lines() {
            assert!(
                !line.ends_with('.') && !line.trim_start().contains("  "),
                "{line}"
            );
        }
        assert_eq!(io::Error::from(error).kind(), kind, "{text}");
    }
}

/// In a build with the provider, as the tests of the whole workspace are, only the text can be looked
/// at; `no_provider` has the build without.
#[test]
fn a_provider_that_is_not_built_in_names_its_feature() {
    let reason = NoProviderReason::NotBuiltIn {
        driver: DriverId::Rxe,
        feature: "rxe",
    };
    assert_eq!(
        reason.to_string(),
        "the provider for the device's driver, rxe, is not built in: build uverbs with its feature \
         `rxe`"
    );
}

#[test]
fn an_unknown_version_of_the_drivers_part_leaves_control_only() {
    let device = device();
    let open = Context::on_kernel(device.kernel(), "rxe0", Path::new("/dev/null"), 3).unwrap();
    assert_eq!((open.driver(), open.has_provider()), (DriverId::Rxe, false));
    open.query_device().unwrap();
    open.alloc_pd().unwrap();
    assert_eq!(
        told(open.create_cq(1).build()),
        "cannot make a completion queue: the driver rxe speaks version 3 of its own ABI, this crate \
         version 2: the kernel's driver is too new for it: queries, protection domains and events \
         work, queues do not"
    );
}

//! Which node is opened: the one with the device's number, whatever it is called.

use uverbs::OpenError;

use crate::machine::{Dev, Machine, NULL, error_of, only, was_opened};

fn machine() -> Machine {
    Machine::new(&[Dev::new(1, "rxe0", "uverbs0", NULL)])
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no openat(2)")]
fn under_the_kernels_name() {
    let machine = machine();
    machine.link("dev/infiniband/uverbs0", "/dev/null");
    for discovery in machine.both() {
        assert!(only(&discovery).node().ends_with("dev/infiniband/uverbs0"));
        assert!(was_opened(&error_of(discovery.open("rxe0")), "rxe0"));
        assert!(was_opened(&error_of(only(&discovery).open()), "rxe0"));
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no openat(2)")]
fn under_another_name_also_beside_a_stale_one() {
    for is_stale in [false, true] {
        let machine = machine();
        if is_stale {
            machine.link("dev/infiniband/uverbs0", "/dev/zero");
        }
        machine.link("dev/infiniband/issm0", "/dev/full");
        machine.link("dev/infiniband/by-ibdev/uverbs-rxe0", "/dev/null");
        for discovery in machine.both() {
            let device = only(&discovery);
            assert!(
                device.node().ends_with("by-ibdev/uverbs-rxe0"),
                "{device:?}"
            );
            assert!(was_opened(&error_of(device.open()), "rxe0"));
        }
        machine.link("dev/infiniband/verbs-a", "/dev/null");
        assert!(
            only(&machine.by_sysfs())
                .node()
                .ends_with("infiniband/verbs-a")
        );
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no openat(2)")]
fn by_its_number_in_dev_char() {
    let machine = machine();
    machine.link("dev/char/1:3", "/dev/null");
    for discovery in machine.both() {
        assert!(was_opened(&error_of(discovery.open("rxe0")), "rxe0"));
        assert_eq!(only(&discovery).node(), std::path::Path::new("/dev/null"));
    }
    // What is there under that number, and is another, is not believed.
    let machine = self::machine();
    machine.link("dev/char/1:3", "/dev/zero");
    let error = error_of(machine.by_sysfs().open("rxe0"));
    assert!(matches!(error, OpenError::Node { .. }), "{error}");
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no openat(2)")]
fn a_missing_node_and_a_stale_one_are_told_apart() {
    let machine = machine();
    let node = machine.path("dev/infiniband/uverbs0");
    for discovery in machine.both() {
        assert_eq!(only(&discovery).node(), node);
        assert_eq!(
            error_of(discovery.open("rxe0")).to_string(),
            format!(
                "cannot open {}: No such file or directory (os error 2); the kernel has the device, \
                 /dev has no node for it: run udev, or make the node (in a container: pass \
                 /dev/infiniband in)",
                node.display()
            )
        );
    }
    let stale = |what: &str| {
        format!(
            "cannot open {}: it is stale: it is {what}, the device has number 1:3; run udev, or make \
             the node anew (in a container: pass /dev/infiniband in again)",
            node.display()
        )
    };
    machine.link("dev/infiniband/uverbs0", "/dev/zero");
    for discovery in machine.both() {
        let error = error_of(discovery.open("rxe0"));
        assert_eq!(error.to_string(), stale("the node of 1:5"));
    }
    std::fs::remove_file(&node).unwrap();
    machine.write("dev/infiniband/uverbs0", "a file");
    for discovery in machine.both() {
        let error = error_of(discovery.open("rxe0"));
        assert_eq!(error.to_string(), stale("no character device"));
    }
}

/// The number is right, and there is nothing behind it.
#[test]
#[cfg_attr(miri, ignore = "Miri knows no openat(2)")]
fn a_node_that_is_left_over_from_a_device() {
    let machine = machine();
    machine.link("dev/infiniband/uverbs0", "/dev/null");
    for discovery in machine.both() {
        let device = only(&discovery);
        machine.devices.lock().unwrap().clear();
        let folder = machine.path("sys/class/infiniband_verbs/uverbs0");
        let aside = machine.path("aside");
        std::fs::rename(&folder, &aside).unwrap();
        assert_eq!(
            error_of(device.open()).to_string(),
            "the device that was listed as rxe0 is gone (there is no uverbs0 any more); list the \
             devices again"
        );
        std::fs::rename(&aside, &folder).unwrap();
        *machine.devices.lock().unwrap() = vec![Dev::new(1, "rxe0", "uverbs0", NULL)];
    }
}

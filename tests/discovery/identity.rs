//! A listed device stands for itself: renamed it is the same, and what has its name or its node later
//! is another.

use std::fs;

use uverbs::OpenError;

use crate::machine::{Dev, Machine, NULL, ZERO, error_of, only, was_opened};

const UVERBS0: &str = "sys/class/infiniband_verbs/uverbs0";

fn machine() -> Machine {
    let machine = Machine::new(&[Dev::new(1, "rxe0", "uverbs0", NULL)]);
    machine.link("dev/infiniband/uverbs0", "/dev/null");
    machine
}

/// Takes the device away and puts another in its place.
fn replace(machine: &Machine, new: Dev) {
    // Moved away, not deleted: the new folder is to have another inode.
    fs::rename(machine.path(UVERBS0), machine.path("gone")).unwrap();
    machine.add_to_sysfs(&new);
    *machine.devices.lock().unwrap() = vec![new];
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no openat(2)")]
fn renamed_it_is_the_same_device() {
    let machine = machine();
    let devices = machine.both().map(|discovery| only(&discovery));
    machine.devices.lock().unwrap()[0].name = "rocep0s3".to_owned();
    machine.write(&format!("{UVERBS0}/ibdev"), "rocep0s3\n");
    for device in devices {
        assert_eq!(device.name(), "rxe0");
        assert_eq!(device.present_name().as_deref(), Some("rocep0s3"));
        let error = error_of(device.open());
        assert!(was_opened(&error, "rocep0s3"), "{error}");
    }
    for discovery in machine.both() {
        let error = error_of(discovery.open("rxe0"));
        assert!(
            error.to_string().ends_with("there are: rocep0s3"),
            "{error}"
        );
        assert!(was_opened(
            &error_of(discovery.open("rocep0s3")),
            "rocep0s3"
        ));
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no openat(2)")]
fn added_again_under_its_name_it_is_another() {
    for way in [0, 1] {
        let machine = machine();
        let discovery = machine.both()[way].clone();
        let device = only(&discovery);
        replace(&machine, Dev::new(2, "rxe0", "uverbs0", NULL));
        let error = error_of(device.open());
        let text = "the device that was listed as rxe0 is gone (uverbs0 is rxe0's now); list the \
                    devices again";
        assert_eq!(error.to_string(), text);
        assert_eq!(device.present_name(), None);
        assert_ne!(only(&discovery), device);
        // By its name it is found, and so is what is listed now.
        assert!(was_opened(&error_of(discovery.open("rxe0")), "rxe0"));
        assert!(was_opened(&error_of(only(&discovery).open()), "rxe0"));
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no openat(2)")]
fn another_that_got_its_node_is_not_opened_for_it() {
    for way in [0, 1] {
        let machine = machine();
        let device = only(&machine.both()[way]);
        replace(&machine, Dev::new(2, "rxe7", "uverbs0", NULL));
        let error = error_of(device.open());
        let OpenError::Replaced {
            device,
            uverbs,
            now,
        } = &error
        else {
            panic!("{error}")
        };
        assert_eq!((device.as_str(), uverbs.as_str()), ("rxe0", "uverbs0"));
        assert_eq!(now.as_deref(), Some("rxe7"));
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no openat(2)")]
fn with_another_number_it_is_not_the_one_that_was_listed() {
    for way in [0, 1] {
        let machine = machine();
        let device = only(&machine.both()[way]);
        replace(&machine, Dev::new(2, "rxe0", "uverbs0", ZERO));
        fs::remove_file(machine.path("dev/infiniband/uverbs0")).unwrap();
        machine.link("dev/infiniband/uverbs0", "/dev/zero");
        let error = error_of(device.open());
        assert!(matches!(error, OpenError::Replaced { .. }), "{error}");
    }
}

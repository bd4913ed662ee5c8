//! Whoever is to be told that the device is gone is told, whenever the one is named and the other found.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use uverbs_abi::session::{Status, WhenGone};

#[derive(Debug, Default)]
struct Told(AtomicU32);

impl WhenGone for Told {
    fn device_gone(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Told {
    fn times(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn the_listener_is_told_whether_it_was_named_before_or_after() {
    for named_first in [true, false] {
        let (status, told) = (Status::new(), Arc::new(Told::default()));
        if named_first {
            status.tell_when_gone(Arc::clone(&told) as _);
            assert_eq!(told.times(), 0);
            status.mark_gone();
        } else {
            status.mark_gone();
            status.tell_when_gone(Arc::clone(&told) as _);
        }
        assert_eq!(told.times(), 1);
        status.mark_gone();
        assert_eq!(told.times(), 1, "marked a second time");
    }
}

#[test]
fn the_first_listener_stays() {
    let (status, told) = (Status::new(), [(); 2].map(|()| Arc::new(Told::default())));
    for listener in &told {
        status.tell_when_gone(Arc::clone(listener) as _);
    }
    status.mark_gone();
    assert_eq!(told.map(|told| told.times()), [1, 0]);
}

#[test]
fn the_listener_is_told_when_finding_and_naming_meet() {
    let rounds = if cfg!(miri) { 20 } else { 2_000 };
    for _ in 0..rounds {
        let (status, told) = (Status::new(), Arc::new(Told::default()));
        let both = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                status.mark_gone();
            });
            both.wait();
            status.tell_when_gone(Arc::clone(&told) as _);
        });
        assert!((1..=2).contains(&told.times()));
    }
}

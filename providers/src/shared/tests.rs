//! What is read, written and refused, over heap memory that looks like a queue.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uverbs_abi::Mapping;

use super::{SharedQueue, Slot};

fn words(bytes: usize, log2: u32, mask: u32) -> Arc<[AtomicU64]> {
    let words: Arc<[AtomicU64]> = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
    if let Some(first) = words.first() {
        let [a, b, c, d] = log2.to_ne_bytes();
        let [e, f, g, h] = mask.to_ne_bytes();
        first.store(
            u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            Ordering::Relaxed,
        );
    }
    words
}

fn queue(bytes: usize, log2: u32, mask: u32) -> Result<SharedQueue<48>, &'static str> {
    SharedQueue::new(Mapping::Heap(words(bytes, log2, mask)))
}

/// The words that are not zero, with their places, but for the first, in which the header begins.
fn written(memory: &[AtomicU64]) -> Vec<(usize, u64)> {
    let words = memory.iter().map(|word| word.load(Ordering::Relaxed));
    let words = words.enumerate().skip(1);
    words.filter(|(_, word)| *word != 0).collect()
}

#[test]
fn takes_what_fits_exactly_and_nothing_less() {
    let queue_of = |bytes| queue(bytes, 6, 3);
    let made = queue_of(384 + 4 * 64).unwrap();
    assert_eq!((made.mask(), made.slot_len()), (3, 64));
    assert!(queue_of(384 + 4 * 64 - 8).is_err());
    assert!(queue_of(384).is_err());
    assert!(queue_of(376).is_err());
    assert!(queue_of(0).is_err());
}

#[test]
fn refuses_headers_that_cannot_be() {
    for (log2, mask) in [
        (5, 3),
        (17, 3),
        (0, 3),
        (u32::MAX, 3),
        (6, 2),
        (6, 4),
        (6, u32::MAX),
        (16, 1),
    ] {
        assert!(queue(4096, log2, mask).is_err(), "log2 {log2}, mask {mask}");
    }
    let small = SharedQueue::<208>::new(Mapping::Heap(words(4096, 7, 3)));
    assert_eq!(small.unwrap_err(), "the slots are too small");
}

/// A word is read where the slot has one, and nowhere else.
#[test]
fn reads_inside_its_slot_only() {
    let memory = words(384 + 4 * 64, 6, 3);
    for (index, word) in memory.iter().enumerate().skip(384 / 8) {
        word.store(index as u64, Ordering::Relaxed);
    }
    let queue = SharedQueue::<48>::new(Mapping::Heap(memory)).unwrap();
    // 5 is slot 1 once more.
    let slot = queue.filled(5);
    let first = (384 + 64) / 8;
    for at in 0..64usize {
        let wanted = at.is_multiple_of(8).then_some(first + at as u64 / 8);
        assert_eq!(slot.word(at), wanted, "at {at}");
    }
    for at in [64, 72, usize::MAX - 7, usize::MAX] {
        assert_eq!(slot.word(at), None, "at {at}");
    }
}

#[test]
fn writes_inside_its_slot_only() {
    let memory = words(384 + 4 * 64, 6, 3);
    let mut queue = SharedQueue::<48>::new(Mapping::Heap(Arc::clone(&memory))).unwrap();
    // 6 is slot 2 once more.
    let mut slot = queue.slot_mut(6);
    slot.put::<0>(1);
    slot.put::<40>(2);
    let mut tail = slot.reborrow().tail();
    tail.push(3);
    tail.push(4);
    let found = written(&memory);
    let start = (384 + 2 * 64) / 8;
    assert_eq!(
        found,
        [(start, 1), (start + 5, 2), (start + 6, 3), (start + 7, 4)]
    );
    assert_eq!(queue.copy_out::<6>(2), [1, 0, 0, 0, 0, 2]);
}

#[test]
fn bytes_fill_whole_words_and_end_with_the_slot() {
    let memory = words(384 + 4 * 64, 6, 3);
    let mut queue = SharedQueue::<40>::new(Mapping::Heap(Arc::clone(&memory))).unwrap();
    let ten = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    for (slot, bytes) in [(3, &ten[..]), (2, &[0xff; 24]), (1, &[])] {
        assert!(queue.slot_mut(slot).put_bytes(bytes));
    }
    let tail = |slot: usize| -> Vec<u64> {
        let at = (384 + slot * 64 + 40) / 8;
        let words = memory.get(at..at + 3).unwrap();
        words.iter().map(|w| w.load(Ordering::Relaxed)).collect()
    };
    assert_eq!(
        tail(3),
        [0x0807_0605_0403_0201u64.to_le(), 0x0a09u64.to_le(), 0]
    );
    assert_eq!(tail(2), [u64::MAX; 3]);
    assert_eq!(tail(1), [0; 3]);
    assert!(!queue.slot_mut(0).put_bytes(&[0xff; 25]));
    assert_eq!(tail(0), [0; 3]);
    assert_eq!(queue.copy_out::<5>(1), [0; 5], "the next one is untouched");
}

#[test]
fn a_pair_follows_the_head() {
    let memory = words(384 + 4 * 64, 6, 3);
    let mut queue = SharedQueue::<40>::new(Mapping::Heap(Arc::clone(&memory))).unwrap();
    queue.slot_mut(1).put_pair(&[7, 8]);
    let found = written(&memory);
    let at = (384 + 64 + 40) / 8;
    assert_eq!(found, [(at, 7), (at + 1, 8)]);
}

#[test]
fn slots_come_one_after_another_and_round_again() {
    let memory = words(384 + 4 * 64, 6, 3);
    let mut queue = SharedQueue::<48>::new(Mapping::Heap(Arc::clone(&memory))).unwrap();
    let put = |n: &u64, mut slot: Slot<'_, 48>| {
        slot.put::<0>(*n);
        true
    };
    assert!(queue.fill(3, &[1, 2, 3], put));
    assert_eq!(queue.copy_out(3), [1]);
    assert_eq!(queue.copy_out(0), [2]);
    assert_eq!(queue.copy_out(1), [3]);
}

#[test]
fn no_slot_is_filled_twice_and_a_refusal_ends_it() {
    let memory = words(384 + 4 * 64, 6, 3);
    let mut queue = SharedQueue::<48>::new(Mapping::Heap(Arc::clone(&memory))).unwrap();
    for first in 0..9 {
        let mut taken = 0;
        let all = queue.fill(first, &[(); 5], |(), mut slot| {
            taken += 1;
            slot.put::<0>(taken);
            true
        });
        assert!(!all && taken == 4, "there are four slots");
        assert_eq!(queue.copy_out(first), [1]);
        assert_eq!(queue.copy_out(first + 3), [4]);
    }
    let mut asked = 0;
    let mut only_one = |_: &u8, _: Slot<'_, 48>| {
        asked += 1;
        asked < 2
    };
    assert!(!queue.fill(3, &[0; 4], &mut only_one));
    assert_eq!(asked, 2);
    assert!(queue.fill(0, &[], |_: &u8, _| false));
}

#[test]
fn straight_is_up_to_the_last_slot() {
    let memory = words(384 + 4 * 64, 6, 3);
    let mut queue = SharedQueue::<48>::new(Mapping::Heap(Arc::clone(&memory))).unwrap();
    for first in 0..9 {
        for n in 0..6 {
            let (straight, count) = (n <= 4 - first % 4, n as usize);
            assert_eq!(queue.is_straight(first, count), straight);
            let items = vec![u64::from(first) + 1; count];
            let mut taken = 0;
            let all = queue.fill_straight(first, &items, |item, mut slot| {
                slot.put::<40>(*item);
                taken += 1;
                true
            });
            assert_eq!((all, taken), (straight, if straight { count } else { 0 }));
            if straight && count > 0 {
                assert_eq!(
                    queue.view().copy_word::<40>(first + n - 1),
                    u64::from(first) + 1
                );
            }
        }
    }
    assert!(!queue.fill_straight(0, &[1, 2, 3], |item, _| *item < 2));
    for first in 0..4 {
        queue.slot_mut(first).put::<0>(1 << first);
        queue.slot_mut(first).put::<40>(u64::from(first));
    }
    for first in 0..9 {
        for n in 0..6 {
            let count = n as usize;
            let mut found = vec![9; count];
            let seen = queue.read_straight(first, &mut found, |[.., [_, last]]| last);
            let slots = first % 4..first % 4 + n;
            if queue.is_straight(first, count) {
                assert_eq!(seen, Some([slots.clone().map(|n| 1 << n).sum(), 0]));
                assert!(found.into_iter().eq(slots.map(u64::from)));
            } else {
                assert!(seen.is_none() && found.iter().all(|n| *n == 9));
            }
        }
    }
}

#[test]
fn many_are_read_from_slots_of_any_length() {
    for log2 in [6, 7, 9] {
        let memory = words(384 + (16 << log2), log2, 15);
        let mut queue = SharedQueue::<48>::new(Mapping::Heap(Arc::clone(&memory))).unwrap();
        for slot in 0..16 {
            queue.slot_mut(slot).put::<8>(1 << slot);
            queue.slot_mut(slot).put::<24>(u64::from(slot));
        }
        for count in 0..=16 {
            let mut found = vec![99; count];
            let seen = queue.read_straight(16, &mut found, |[_, [_, number], _]| number);
            assert_eq!(seen, Some([0, (1 << count) - 1]));
            assert!(found.into_iter().eq(0..count as u64));
        }
    }
}

#[test]
fn a_full_slot_takes_no_more() {
    let memory = words(384 + 4 * 64, 6, 3);
    let mut queue = SharedQueue::<48>::new(Mapping::Heap(Arc::clone(&memory))).unwrap();
    let mut slot = queue.slot_mut(0).tail();
    slot.push(1);
    slot.push(2);
    for _ in 0..3 {
        let wrote = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            slot.push(u64::MAX);
        }));
        assert_eq!(wrote.is_err(), cfg!(debug_assertions));
    }
    assert!(
        memory
            .iter()
            .all(|word| word.load(Ordering::Relaxed) != u64::MAX)
    );
}

#[test]
fn the_indices_are_where_the_kernel_has_them() {
    let memory = words(384 + 4 * 64, 6, 3);
    let queue = SharedQueue::<48>::new(Mapping::Heap(Arc::clone(&memory))).unwrap();
    queue.producer().store(u32::MAX, Ordering::Relaxed);
    queue.consumer().store(u32::MAX, Ordering::Relaxed);
    let at = |byte: usize| {
        memory
            .get(byte / 8)
            .unwrap()
            .load(Ordering::Relaxed)
            .to_ne_bytes()
    };
    assert_eq!(at(128), [255, 255, 255, 255, 0, 0, 0, 0]);
    assert_eq!(at(256), [255, 255, 255, 255, 0, 0, 0, 0]);
}

//! The index protocol against a queue of the standard library, in any order of calls, over the wrap
//! many times; and against a partner that puts anything into its index.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use uverbs_providers::ring::{Consumer, Masked, Producer};

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 512 },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Fill so many, and publish only the first few: a batch that is given up half-way.
    Produce { filled: u32, published: u32 },
    /// Look whether there are so many, and take so many of them: 0 is a poll that moves nothing.
    Consume { wanted: u32, taken: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..10u32, 0..10u32).prop_map(|(filled, published)| Step::Produce { filled, published }),
        (0..10u32, 0..10u32).prop_map(|(wanted, taken)| Step::Consume { wanted, taken }),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn behaves_as_a_queue(log2 in 0..5u32, start in any::<u32>(), steps in steps()) {
        let mask = (1 << log2) - 1;
        let start = start & mask;
        let (prod, cons) = (AtomicU32::new(start), AtomicU32::new(start));
        let rule = Masked::new(mask).unwrap();
        let mut producer = Producer::new(rule, &prod, &cons).unwrap();
        let mut consumer = Consumer::new(rule, &prod, &cons).unwrap();
        let mut slots = vec![None; mask as usize + 1];
        let mut model = VecDeque::new();
        let mut next = 0u64;
        for step in steps {
            match step {
                Step::Produce { filled, published } => {
                    let free = producer.free(&cons, filled).unwrap();
                    let really = mask - u32::try_from(model.len()).unwrap();
                    prop_assert!(free <= really, "never more than there is");
                    prop_assert!(free == really || free >= filled, "less only if it is enough");
                    let filled = filled.min(free);
                    let published = published.min(filled);
                    for ahead in 0..filled {
                        slots[producer.slot(ahead) as usize] = Some(next + u64::from(ahead));
                    }
                    producer.publish(&prod, published);
                    model.extend((0..published).map(|ahead| next + u64::from(ahead)));
                    next += u64::from(published);
                }
                Step::Consume { wanted, taken } => {
                    let before = cons.load(Ordering::Relaxed);
                    let ready = consumer.available(&prod, wanted).unwrap();
                    let really = u32::try_from(model.len()).unwrap();
                    prop_assert!(ready <= really, "never more than there is");
                    prop_assert!(ready == really || ready >= wanted, "less only if it is enough");
                    prop_assert_eq!(cons.load(Ordering::Relaxed), before, "looking moves nothing");
                    let taken = taken.min(ready);
                    for ahead in 0..taken {
                        prop_assert_eq!(slots[consumer.slot(ahead) as usize], model.pop_front());
                    }
                    consumer.release(&cons, taken);
                    prop_assert_eq!(cons.load(Ordering::Relaxed), (before + taken) & mask);
                }
            }
        }
    }

    #[test]
    fn any_index_of_the_kernel_is_harmless(
        log2 in 0..5u32,
        batches in prop::collection::vec((any::<bool>(), any::<u32>(), 0..10u32), 0..100),
    ) {
        let mask = (1 << log2) - 1;
        let (prod, cons) = (AtomicU32::new(0), AtomicU32::new(0));
        let rule = Masked::new(mask).unwrap();
        let mut producer = Producer::new(rule, &prod, &cons).unwrap();
        let (filled, emptied) = (AtomicU32::new(0), AtomicU32::new(0));
        let mut consumer = Consumer::new(rule, &filled, &emptied).unwrap();
        for (wild, index, wanted) in batches {
            let index = if wild { index } else { index & mask };
            cons.store(index, Ordering::Relaxed);
            if let Ok(free) = producer.free(&cons, wanted) {
                prop_assert!(free <= mask);
                for ahead in 0..free {
                    prop_assert!(producer.slot(ahead) <= mask);
                }
                producer.publish(&prod, free.min(wanted));
            }
            prop_assert!(prod.load(Ordering::Relaxed) <= mask);

            filled.store(index, Ordering::Relaxed);
            if let Ok(ready) = consumer.available(&filled, wanted) {
                prop_assert!(ready <= mask);
                for ahead in 0..ready {
                    prop_assert!(consumer.slot(ahead) <= mask);
                }
                consumer.release(&emptied, ready.min(wanted));
            }
            prop_assert!(emptied.load(Ordering::Relaxed) <= mask);
        }
    }
}

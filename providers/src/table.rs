//! A table of what is known by a number that the kernel gave out.
//!
//! Why not the standard library's: a `HashMap` hashes so that nobody can choose keys that collide, and
//! here nobody but the kernel chooses them; that is most of what a look-up costs. A `BTreeMap` is
//! several kilobytes of code for each type of value.
//!
//! Open addressing: an entry stands at its home or, where that is taken, in one of the places behind it
//! with no free one in between. There is always a free place.

/// Values by number.
#[derive(Debug)]
pub struct Table<V> {
    /// As many as a power of two, or none.
    places: Vec<Option<(u64, V)>>,
    len: usize,
}

/// Places at first.
const FEWEST: usize = 4;
/// With more of them, an empty table gives its memory back.
const KEPT: usize = 64;

impl<V> Table<V> {
    /// An empty one, without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            places: Vec::new(),
            len: 0,
        }
    }

    /// What has this number.
    #[must_use]
    pub fn get(&self, key: u64) -> Option<&V> {
        let place = self.places.get(self.find(key))?;
        place.as_ref().map(|(_, value)| value)
    }

    /// Enters something under a number; gives back what had it before.
    pub fn insert(&mut self, key: u64, value: V) -> Option<V> {
        if (self.len + 1) * 4 > self.places.len() * 3 {
            self.grow();
        }
        let place = self.find(key);
        let place = self.places.get_mut(place)?;
        let before = place.replace((key, value));
        self.len += usize::from(before.is_none());
        before.map(|(_, value)| value)
    }

    /// Takes what has this number out.
    pub fn remove(&mut self, key: u64) -> Option<V> {
        self.remove_if(key, |_| true)
    }

    /// Takes what has this number out, if it is what is meant.
    #[inline]
    pub fn remove_if(&mut self, key: u64, is_meant: impl FnOnce(&V) -> bool) -> Option<V> {
        let mut hole = self.find(key);
        let place = self.places.get_mut(hole)?;
        let (_, value) = place.take_if(|(_, value)| is_meant(value))?;
        self.len -= 1;
        if self.len == 0 && self.places.len() > KEPT {
            *self = Self::new();
            return Some(value);
        }
        // What stands behind it must not have a free place between its home and itself.
        let mut at = self.after(hole);
        while let Some(Some((key, _))) = self.places.get(at) {
            let from_home = at.wrapping_sub(home(*key)) & self.mask();
            let from_hole = at.wrapping_sub(hole) & self.mask();
            if from_home >= from_hole {
                self.places.swap(hole, at);
                hole = at;
            }
            at = self.after(at);
        }
        Some(value)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        let there = self.places.iter().flatten();
        there.map(|(key, value)| (*key, value))
    }

    const fn mask(&self) -> usize {
        self.places.len().wrapping_sub(1)
    }

    const fn after(&self, place: usize) -> usize {
        place.wrapping_add(1) & self.mask()
    }

    /// The place that has this number, or the free one where it would be.
    fn find(&self, key: u64) -> usize {
        let mut at = home(key) & self.mask();
        while let Some(Some((other, _))) = self.places.get(at)
            && *other != key
        {
            at = self.after(at);
        }
        at
    }

    #[cold]
    fn grow(&mut self) {
        let count = (self.places.len() * 2).max(FEWEST);
        let mut places = Vec::new();
        places.resize_with(count, || None);
        for (key, value) in std::mem::replace(&mut self.places, places)
            .into_iter()
            .flatten()
        {
            let place = self.find(key);
            if let Some(place) = self.places.get_mut(place) {
                *place = Some((key, value));
            }
        }
    }
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self::new()
    }
}

/// Where it would stand if there were places without end: neighbours far from one another, since
/// the kernel counts on.
const fn home(key: u64) -> usize {
    // The golden ratio, as a fraction of 2^64.
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{KEPT, Table};

    proptest! {
        /// Few numbers, so that they meet often, and few places.
        #[test]
        fn it_holds_what_a_map_holds(steps in prop::collection::vec((0..3, 0..48_u64), 0..400)) {
            let (mut table, mut map) = (Table::new(), BTreeMap::new());
            for (at, (what, key)) in steps.into_iter().enumerate() {
                let key = key << 20;
                match what {
                    0 => prop_assert_eq!(table.remove(key), map.remove(&key)),
                    _ => prop_assert_eq!(table.insert(key, at), map.insert(key, at)),
                }
                prop_assert_eq!(table.get(key), map.get(&key));
                prop_assert_eq!(table.iter().count(), map.len());
                for (key, value) in &map {
                    prop_assert_eq!(table.get(*key), Some(value));
                }
            }
        }
    }

    #[test]
    fn an_empty_table_has_no_great_memory() {
        let mut table = Table::new();
        assert_eq!(table.remove(7), None);
        assert_eq!(table.get(7), None::<&u64>);
        for key in 0..1000 {
            table.insert(key, key);
        }
        for key in 0..1000 {
            assert_eq!(table.remove(key), Some(key));
        }
        assert!(table.places.len() <= KEPT);
        assert_eq!(table.insert(7, 8), None);
        assert_eq!(table.get(7), Some(&8));
    }
}

//! Cutting a stretch of a region into elements, for work requests that take no more at once.
//!
//! Pure arithmetic on what the region has checked; must never name a byte outside it.

use std::iter::FusedIterator;
use std::ops::RangeBounds;

use uverbs_providers::sge::{MAX_MESSAGE, Sge};

use super::{MemoryRegion, PageBuf, StableBytes};
use crate::error::RangeError;

/// The elements of [`MemoryRegion::slices`], in order.
#[derive(Clone, Debug)]
pub struct Slices<'r, B: StableBytes = PageBuf> {
    region: &'r MemoryRegion<B>,
    cuts: Cuts,
}

impl<B: StableBytes> MemoryRegion<B> {
    /// Cuts a stretch of the region into elements of at most `max_len` bytes: one after the other,
    /// none empty, together the whole stretch. All but the last are as long as they may be. A
    /// stretch of 0 bytes has none.
    ///
    /// An element holds at most 2³¹ bytes; a larger `max_len` means that many.
    ///
    /// # Errors
    /// [`RangeError`] if the stretch is not inside the region, or if `max_len` is 0.
    ///
    /// # Examples
    /// ```
    /// # let context = uverbs::fake::Fabric::new().add_device("rxe0").open().unwrap();
    /// # let pd = context.alloc_pd().unwrap();
    /// let region = pd.allocate(10_000, uverbs::AccessFlags::empty()).unwrap();
    /// let lengths: Vec<_> = region.slices(..9_000, 4096).unwrap().map(|sge| sge.len()).collect();
    /// assert_eq!(lengths, [4096, 4096, 808]);
    /// ```
    pub fn slices(
        &self,
        range: impl RangeBounds<usize>,
        max_len: usize,
    ) -> Result<Slices<'_, B>, RangeError> {
        let (start, len) = self.bounds(range)?;
        let cuts = Cuts::new(start, len, max_len).ok_or(RangeError::ZeroMaximum)?;
        Ok(Slices { region: self, cuts })
    }
}

impl<B: StableBytes> Iterator for Slices<'_, B> {
    type Item = Sge;

    fn next(&mut self) -> Option<Sge> {
        let (start, len) = self.cuts.next()?;
        Some(self.region.inner.element(start, len))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.cuts.size_hint()
    }
}

impl<B: StableBytes> ExactSizeIterator for Slices<'_, B> {}
impl<B: StableBytes> FusedIterator for Slices<'_, B> {}

/// Where the elements lie: start and length. `next` never passes `end`.
#[derive(Clone, Debug)]
struct Cuts {
    next: usize,
    end: usize,
    step: u32,
}

impl Cuts {
    /// `None` for steps of 0 bytes. `start + len` is the end of something in memory.
    fn new(start: usize, len: usize, max_len: usize) -> Option<Self> {
        let step = u32::try_from(max_len).map_or(MAX_MESSAGE, |max| max.min(MAX_MESSAGE));
        (step != 0).then_some(Self {
            next: start,
            end: start + len,
            step,
        })
    }
}

impl Iterator for Cuts {
    type Item = (usize, u32);

    fn next(&mut self) -> Option<(usize, u32)> {
        let left = self.end - self.next;
        if left == 0 {
            return None;
        }
        let len = u32::try_from(left).map_or(self.step, |left| left.min(self.step));
        let start = self.next;
        self.next += len as usize;
        Some((start, len))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = (self.end - self.next).div_ceil(self.step as usize);
        (count, Some(count))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn an_element_holds_two_gibibytes_and_no_more() {
        let cuts: Vec<_> = Cuts::new(5, (5 << 30) + 1, usize::MAX).unwrap().collect();
        let starts = [5, 5 + (2 << 30), 5 + (4 << 30)];
        assert_eq!(cuts.iter().map(|cut| cut.0).collect::<Vec<_>>(), starts);
        let lengths = [1 << 31, 1 << 31, (1 << 30) + 1];
        assert_eq!(cuts.iter().map(|cut| cut.1).collect::<Vec<_>>(), lengths);
    }

    #[test]
    fn nothing_has_no_elements_and_steps_of_nothing_are_refused() {
        assert_eq!(Cuts::new(7, 0, 1).unwrap().next(), None);
        assert!(Cuts::new(7, 1, 0).is_none());
    }

    proptest! {
        /// In order, without a gap, complete, none empty, none over the maximum, all but the last
        /// full; and as many as were announced.
        #[test]
        fn the_elements_are_the_stretch(
            start in 0usize..1 << 20,
            len in prop_oneof![0usize..4096, 0usize..isize::MAX as usize >> 8],
            pieces in 1usize..64,
            slack in 0usize..3,
        ) {
            let max = (len / pieces + slack).max(1);
            // What is cut by 2³¹ instead stays countable.
            let len = len.min((MAX_MESSAGE as usize).saturating_mul(80));
            let cuts = Cuts::new(start, len, max).unwrap();
            let announced = cuts.size_hint();
            let cuts: Vec<_> = cuts.collect();
            prop_assert_eq!(announced, (cuts.len(), Some(cuts.len())));
            let mut at = start;
            for (index, (from, length)) in cuts.iter().enumerate() {
                let length = *length as usize;
                prop_assert_eq!(*from, at);
                prop_assert!(length > 0 && length <= max && length <= MAX_MESSAGE as usize);
                let is_full = length == max.min(MAX_MESSAGE as usize);
                prop_assert!(is_full || index + 1 == cuts.len());
                at += length;
            }
            prop_assert_eq!(at, start + len);
        }
    }
}

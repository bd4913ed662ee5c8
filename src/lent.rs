//! UNSAFE ROOM: a queue that one owner has until it is dropped, and that goes back then. An `Option` that is
//! taken out of at the end would be asked in every call whether that is so yet.
#![allow(unsafe_code, reason = "takes the queue out of what is being dropped")]

use std::fmt;
use std::mem::ManuallyDrop;

/// Where a queue of type `Q` comes from and goes back to.
pub(crate) trait Home<Q> {
    /// Puts it back.
    fn put_back(&self, queue: Q);
}

/// A queue away from home.
pub(crate) struct Lent<Q, H: Home<Q>> {
    queue: ManuallyDrop<Q>,
    home: H,
}

impl<Q, H: Home<Q>> Lent<Q, H> {
    pub(crate) const fn new(queue: Q, home: H) -> Self {
        Self {
            queue: ManuallyDrop::new(queue),
            home,
        }
    }

    #[inline]
    pub(crate) fn queue(&mut self) -> &mut Q {
        &mut self.queue
    }

    pub(crate) const fn home(&self) -> &H {
        &self.home
    }
}

impl<Q, H: Home<Q>> Drop for Lent<Q, H> {
    fn drop(&mut self) {
        // SAFETY: nobody else takes the queue out, and a value is dropped once; after this only the fields
        // are dropped, of which the queue's place drops nothing.
        let queue = unsafe { ManuallyDrop::take(&mut self.queue) };
        self.home.put_back(queue);
    }
}

impl<Q: fmt::Debug, H: Home<Q> + fmt::Debug> fmt::Debug for Lent<Q, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent")
            .field("queue", &self.queue)
            .field("home", &self.home)
            .finish()
    }
}

#[cfg(all(test, not(uverbs_loom)))]
mod tests {
    use std::cell::RefCell;

    use super::{Home, Lent};

    impl Home<String> for &RefCell<Vec<String>> {
        fn put_back(&self, queue: String) {
            self.borrow_mut().push(queue);
        }
    }

    #[test]
    fn what_is_lent_goes_home_once_as_it_is_then() {
        let home = RefCell::new(Vec::new());
        let mut lent = Lent::new("as it was".to_owned(), &home);
        assert!(format!("{lent:?}").contains("as it was"));
        lent.queue().push_str(", and more");
        assert!(lent.home().borrow().is_empty());
        drop(lent);
        assert_eq!(home.into_inner(), ["as it was, and more"]);
    }
}

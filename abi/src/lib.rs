//! uverbs.

//! Numbers about memory: access, regions, windows.

/// The device may write (and every local use that writes).
pub const IB_UVERBS_ACCESS_LOCAL_WRITE: u32 = 1 << 0;
/// A peer may write; needs local write.
pub const IB_UVERBS_ACCESS_REMOTE_WRITE: u32 = 1 << 1;
/// A peer may read.
pub const IB_UVERBS_ACCESS_REMOTE_READ: u32 = 1 << 2;
/// A peer may use atomics; needs local write.
pub const IB_UVERBS_ACCESS_REMOTE_ATOMIC: u32 = 1 << 3;
/// A memory window may be bound to the region.
pub const IB_UVERBS_ACCESS_MW_BIND: u32 = 1 << 4;
/// Addresses count from zero.
pub const IB_UVERBS_ACCESS_ZERO_BASED: u32 = 1 << 5;
/// Pages are brought in when used, not pinned.
pub const IB_UVERBS_ACCESS_ON_DEMAND: u32 = 1 << 6;
/// The memory is made of huge pages.
pub const IB_UVERBS_ACCESS_HUGETLB: u32 = 1 << 7;
/// A peer may flush to global visibility. Since 6.12.
pub const IB_UVERBS_ACCESS_FLUSH_GLOBAL: u32 = 1 << 8;
/// A peer may flush to persistence. Since 6.12.
pub const IB_UVERBS_ACCESS_FLUSH_PERSISTENT: u32 = 1 << 9;
/// Writes may be reordered on the bus; the first optional flag.
pub const IB_UVERBS_ACCESS_RELAXED_ORDERING: u32 = 1 << 20;
/// First flag that a kernel without it ignores.
pub const IB_UVERBS_ACCESS_OPTIONAL_FIRST: u32 = 1 << 20;
/// Last flag that a kernel without it ignores.
pub const IB_UVERBS_ACCESS_OPTIONAL_LAST: u32 = 1 << 29;
/// All flags that a kernel without them ignores.
pub const IB_UVERBS_ACCESS_OPTIONAL_RANGE: u32 = 0x3FF0_0000;

/// REREG_MR changes address and length.
pub const IB_MR_REREG_TRANS: u32 = 1 << 0;
/// REREG_MR changes the protection domain.
pub const IB_MR_REREG_PD: u32 = 1 << 1;
/// REREG_MR changes the access flags.
pub const IB_MR_REREG_ACCESS: u32 = 1 << 2;

/// Memory window bound by any QP of the domain.
pub const IB_MW_TYPE_1: u8 = 1;
/// Memory window bound by a work request, tied to its QP.
pub const IB_MW_TYPE_2: u8 = 2;

/// ADVISE_MR: bring the pages in for reading.
pub const IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH: u32 = 0;
/// ADVISE_MR: bring the pages in for writing.
pub const IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE: u32 = 1;
/// ADVISE_MR: only map what is in memory already.
pub const IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT: u32 = 2;
/// ADVISE_MR: return when it is done.
pub const IB_UVERBS_ADVISE_MR_FLAG_FLUSH: u32 = 1 << 0;

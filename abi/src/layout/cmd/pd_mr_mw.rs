//! Commands on protection domains, memory regions and memory windows.

kernel_struct! {
    /// Request of ALLOC_PD.
    pub struct ib_uverbs_alloc_pd, size 8, align 8 {
        /// Address of the response.
        [0] pub response: u64,
    }
}

kernel_struct! {
    /// Response of ALLOC_PD.
    pub struct ib_uverbs_alloc_pd_resp, size 4, align 4 {
        /// The new protection domain.
        [0] pub pd_handle: u32,
    }
}

kernel_struct! {
    /// Request of DEALLOC_PD; there is no response.
    pub struct ib_uverbs_dealloc_pd, size 4, align 4 {
        /// The protection domain.
        [0] pub pd_handle: u32,
    }
}

kernel_struct! {
    /// Request of REG_MR.
    pub struct ib_uverbs_reg_mr, size 40, align 8 {
        /// Address of the response.
        [0] pub response: u64,
        /// Address of the memory in this process.
        [8] pub start: u64,
        /// Bytes.
        [16] pub length: u64,
        /// Address by which the device shall know `start`.
        [24] pub hca_va: u64,
        /// Protection domain.
        [32] pub pd_handle: u32,
        /// `IB_UVERBS_ACCESS_…`.
        [36] pub access_flags: u32,
    }
}

kernel_struct! {
    /// Response of REG_MR.
    pub struct ib_uverbs_reg_mr_resp, size 12, align 4 {
        /// The new region.
        [0] pub mr_handle: u32,
        /// Local key.
        [4] pub lkey: u32,
        /// Remote key.
        [8] pub rkey: u32,
    }
}

kernel_struct! {
    /// Request of REREG_MR.
    pub struct ib_uverbs_rereg_mr, size 48, align 8 {
        /// Address of the response.
        [0] pub response: u64,
        /// The region.
        [8] pub mr_handle: u32,
        /// `IB_MR_REREG_…`: which of the following to change.
        [12] pub flags: u32,
        /// Address of the memory in this process.
        [16] pub start: u64,
        /// Bytes.
        [24] pub length: u64,
        /// Address by which the device shall know `start`.
        [32] pub hca_va: u64,
        /// Protection domain.
        [40] pub pd_handle: u32,
        /// `IB_UVERBS_ACCESS_…`.
        [44] pub access_flags: u32,
    }
}

kernel_struct! {
    /// Response of REREG_MR.
    pub struct ib_uverbs_rereg_mr_resp, size 8, align 8 {
        /// Local key.
        [0] pub lkey: u32,
        /// Remote key.
        [4] pub rkey: u32,
    }
}

kernel_struct! {
    /// Request of DEREG_MR; there is no response.
    pub struct ib_uverbs_dereg_mr, size 4, align 4 {
        /// The region.
        [0] pub mr_handle: u32,
    }
}

kernel_struct! {
    /// Request of ALLOC_MW.
    pub struct ib_uverbs_alloc_mw, size 16, align 8 {
        /// Address of the response.
        [0] pub response: u64,
        /// Protection domain.
        [8] pub pd_handle: u32,
        /// `IB_MW_TYPE_…`.
        [12] pub mw_type: u8,
        /// Zero.
        [13] pub reserved: [u8; 3],
    }
}

kernel_struct! {
    /// Response of ALLOC_MW.
    pub struct ib_uverbs_alloc_mw_resp, size 8, align 8 {
        /// The new window.
        [0] pub mw_handle: u32,
        /// Its key.
        [4] pub rkey: u32,
    }
}

kernel_struct! {
    /// Request of DEALLOC_MW; there is no response.
    pub struct ib_uverbs_dealloc_mw, size 4, align 4 {
        /// The window.
        [0] pub mw_handle: u32,
    }
}

//! Which driver stands behind a uverbs device.
//!
//! Ground truth: `enum rdma_driver_id` of `rdma/ib_user_ioctl_verbs.h`. Numbers only; what a driver
//! can do is not known here.

/// The kernel's number for a driver, as the ioctl header and netlink carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DriverId {
    /// 0: none given.
    Unknown,
    /// 1: `mlx5_ib`.
    Mlx5,
    /// 2: `mlx4_ib`.
    Mlx4,
    /// 3: `iw_cxgb3` (left the kernel).
    Cxgb3,
    /// 4: `iw_cxgb4`.
    Cxgb4,
    /// 5: `ib_mthca`.
    Mthca,
    /// 6: `bnxt_re`.
    BnxtRe,
    /// 7: `ocrdma`.
    Ocrdma,
    /// 8: `iw_nes` (left the kernel).
    Nes,
    /// 9: `irdma`, and `i40iw` before it.
    Irdma,
    /// 10: `vmw_pvrdma`.
    VmwPvrdma,
    /// 11: `qedr`.
    Qedr,
    /// 12: `hns_roce`.
    Hns,
    /// 13: `usnic_verbs`.
    Usnic,
    /// 14: `rdma_rxe`, RoCE in software.
    Rxe,
    /// 15: `hfi1`.
    Hfi1,
    /// 16: `ib_qib`.
    Qib,
    /// 17: `efa`.
    Efa,
    /// 18: `siw`, iWARP in software.
    Siw,
    /// 19: `erdma`.
    Erdma,
    /// 20: `mana_ib`. Since 6.12.
    Mana,
    /// 21: `ionic_rdma`. Since 7.3.
    Ionic,
    /// A number this crate has no name for.
    Other(u32),
}

impl DriverId {
    /// The driver with the kernel's number `raw`.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::Unknown,
            1 => Self::Mlx5,
            2 => Self::Mlx4,
            3 => Self::Cxgb3,
            4 => Self::Cxgb4,
            5 => Self::Mthca,
            6 => Self::BnxtRe,
            7 => Self::Ocrdma,
            8 => Self::Nes,
            9 => Self::Irdma,
            10 => Self::VmwPvrdma,
            11 => Self::Qedr,
            12 => Self::Hns,
            13 => Self::Usnic,
            14 => Self::Rxe,
            15 => Self::Hfi1,
            16 => Self::Qib,
            17 => Self::Efa,
            18 => Self::Siw,
            19 => Self::Erdma,
            20 => Self::Mana,
            21 => Self::Ionic,
            other => Self::Other(other),
        }
    }

    /// The kernel's number for the driver.
    #[must_use]
    pub const fn to_raw(self) -> u32 {
        match self {
            Self::Unknown => 0,
            Self::Mlx5 => 1,
            Self::Mlx4 => 2,
            Self::Cxgb3 => 3,
            Self::Cxgb4 => 4,
            Self::Mthca => 5,
            Self::BnxtRe => 6,
            Self::Ocrdma => 7,
            Self::Nes => 8,
            Self::Irdma => 9,
            Self::VmwPvrdma => 10,
            Self::Qedr => 11,
            Self::Hns => 12,
            Self::Usnic => 13,
            Self::Rxe => 14,
            Self::Hfi1 => 15,
            Self::Qib => 16,
            Self::Efa => 17,
            Self::Siw => 18,
            Self::Erdma => 19,
            Self::Mana => 20,
            Self::Ionic => 21,
            Self::Other(raw) => raw,
        }
    }

    /// A short name for people: `"rxe"`, `"mlx5"`; `"other"` for a number without one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Mlx5 => "mlx5",
            Self::Mlx4 => "mlx4",
            Self::Cxgb3 => "cxgb3",
            Self::Cxgb4 => "cxgb4",
            Self::Mthca => "mthca",
            Self::BnxtRe => "bnxt_re",
            Self::Ocrdma => "ocrdma",
            Self::Nes => "nes",
            Self::Irdma => "irdma",
            Self::VmwPvrdma => "vmw_pvrdma",
            Self::Qedr => "qedr",
            Self::Hns => "hns",
            Self::Usnic => "usnic",
            Self::Rxe => "rxe",
            Self::Hfi1 => "hfi1",
            Self::Qib => "qib",
            Self::Efa => "efa",
            Self::Siw => "siw",
            Self::Erdma => "erdma",
            Self::Mana => "mana",
            Self::Ionic => "ionic",
            Self::Other(_) => "other",
        }
    }
}

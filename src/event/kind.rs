//! What an asynchronous event says: the 21 types of the kernel, and room for those to come.
//!
//! Ground truth: `enum ib_event_type` of the kernel's `ib_verbs.h` for the numbers,
//! `ibv_event_type_str(3)` for the wording. It must never turn a number it does not know into one
//! it does.

use std::fmt;

use uverbs_abi::layout::event as raw;

/// What kind of thing an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// A completion queue.
    Cq,
    /// A queue pair.
    Qp,
    /// A shared receive queue.
    Srq,
    /// A work queue.
    Wq,
    /// One port of the device.
    Port,
    /// The whole device.
    Device,
    /// Not known, as the type is not.
    Unknown,
}

impl Class {
    /// Whether it is a kind of object that is created and destroyed.
    #[inline(always)]
    pub(super) const fn is_object(self) -> bool {
        matches!(self, Self::Cq | Self::Qp | Self::Srq | Self::Wq)
    }
}

macro_rules! kinds {
    ($(
        $(#[$meta:meta])*
        $variant:ident = $number:ident, $class:ident, $name:literal, $wording:literal;
    )*) => {
        /// What happened.
        ///
        /// Prints as the kernel's name without its prefix: `CQ_ERR`, `PORT_ACTIVE`.
        #[doc(alias = "ibv_event_type")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum AsyncEventKind {
            $($(#[$meta])* $variant,)*
            /// A type that this crate does not know; the number is the kernel's. The event's
            /// element is handed over as it came. Log it and go on.
            Unknown(u32),
        }

        impl AsyncEventKind {
            /// Every type known, in the order of the kernel's numbers.
            pub const ALL: [Self; 21] = [$(Self::$variant,)*];

            /// The type with the kernel's number `raw`.
            #[must_use]
            pub const fn from_raw(raw: u32) -> Self {
                match raw {
                    $(raw::$number => Self::$variant,)*
                    other => Self::Unknown(other),
                }
            }

            /// The kernel's number (`enum ib_event_type`).
            #[must_use]
            pub const fn raw(self) -> u32 {
                match self {
                    $(Self::$variant => raw::$number,)*
                    Self::Unknown(raw) => raw,
                }
            }

            /// What kind of thing an event of this type is about.
            #[must_use]
            pub const fn class(self) -> Class {
                match self {
                    $(Self::$variant => Class::$class,)*
                    Self::Unknown(_) => Class::Unknown,
                }
            }

            /// The name without a prefix: `CQ_ERR`; `UNKNOWN` for a type not known.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Unknown(_) => "UNKNOWN",
                }
            }

            /// The name in C: `IBV_EVENT_CQ_ERR`; `None` for a type not known.
            #[must_use]
            pub const fn c_name(self) -> Option<&'static str> {
                match self {
                    $(Self::$variant => Some(concat!("IBV_EVENT_", $name)),)*
                    Self::Unknown(_) => None,
                }
            }

            /// In words, as `ibv_event_type_str(3)` puts it: `CQ error`, `port active`.
            #[doc(alias = "ibv_event_type_str")]
            #[must_use]
            pub const fn description(self) -> &'static str {
                match self {
                    $(Self::$variant => $wording,)*
                    Self::Unknown(_) => "unknown",
                }
            }
        }
    };
}

kinds! {
    /// A completion queue overran, or broke: completions are lost and none will follow.
    ///
    /// Destroy the queue pairs that report to it, then the queue; create them anew, with more
    /// depth or with fewer signalled requests in flight.
    #[doc(alias = "IBV_EVENT_CQ_ERR")]
    CqErr = IB_EVENT_CQ_ERR, Cq, "CQ_ERR", "CQ error";

    /// A queue pair broke, and no completion can say so. It is in the error state.
    ///
    /// Poll what was flushed, destroy the queue pair, connect a new one.
    #[doc(alias = "IBV_EVENT_QP_FATAL")]
    QpFatal = IB_EVENT_QP_FATAL, Qp, "QP_FATAL", "local work queue catastrophic error";

    /// The peer sent a request that this side's queue pair could not accept: a wrong opcode, or
    /// more than the receive had room for. The queue pair is in the error state.
    ///
    /// The fault is mostly in the protocol between the two programs. Connect anew.
    #[doc(alias = "IBV_EVENT_QP_REQ_ERR")]
    QpReqErr = IB_EVENT_QP_REQ_ERR, Qp, "QP_REQ_ERR", "invalid request local work queue error";

    /// The peer asked for memory it has no right to: a wrong rkey, or outside of the region. The
    /// queue pair is in the error state. Some drivers and kernels say this only to the peer.
    ///
    /// A stale key, or an attack. Connect anew, with fresh keys.
    #[doc(alias = "IBV_EVENT_QP_ACCESS_ERR")]
    QpAccessErr = IB_EVENT_QP_ACCESS_ERR, Qp, "QP_ACCESS_ERR",
        "local access violation work queue error";

    /// The first packet arrived on a queue pair that is ready to receive but not yet to send.
    ///
    /// A connection manager may take it as the peer's "ready". Nothing has to be done.
    #[doc(alias = "IBV_EVENT_COMM_EST")]
    CommEst = IB_EVENT_COMM_EST, Qp, "COMM_EST", "communication established";

    /// After a move to SQD, the send queue has finished what it had begun.
    ///
    /// The attributes that may change only in SQD may now be changed.
    #[doc(alias = "IBV_EVENT_SQ_DRAINED")]
    SqDrained = IB_EVENT_SQ_DRAINED, Qp, "SQ_DRAINED", "send queue drained";

    /// The connection now uses its alternate path.
    ///
    /// Load a new alternate path, if there is one.
    #[doc(alias = "IBV_EVENT_PATH_MIG")]
    PathMig = IB_EVENT_PATH_MIG, Qp, "PATH_MIG", "path migrated";

    /// The connection could not move to its alternate path and stays where it is.
    ///
    /// Check the alternate path's attributes and load one that works.
    #[doc(alias = "IBV_EVENT_PATH_MIG_ERR")]
    PathMigErr = IB_EVENT_PATH_MIG_ERR, Qp, "PATH_MIG_ERR", "path migration request error";

    /// The device was removed, or broke beyond repair. The last event of its context. If a call finds
    /// out first, readers may end with "device gone" before it comes.
    ///
    /// Every call but a destroy now fails with "device gone". Destroy or drop everything, and
    /// open the device again should it come back.
    #[doc(alias = "IBV_EVENT_DEVICE_FATAL")]
    DeviceFatal = IB_EVENT_DEVICE_FATAL, Device, "DEVICE_FATAL", "local catastrophic error";

    /// The port went up.
    ///
    /// Query the port rather than believe the event: port events can overtake each other.
    #[doc(alias = "IBV_EVENT_PORT_ACTIVE")]
    PortActive = IB_EVENT_PORT_ACTIVE, Port, "PORT_ACTIVE", "port active";

    /// The port went down. Connections over it will run into their time-outs, or survive if it
    /// comes back in time.
    ///
    /// Query the port rather than believe the event.
    #[doc(alias = "IBV_EVENT_PORT_ERR")]
    PortErr = IB_EVENT_PORT_ERR, Port, "PORT_ERR", "port error";

    /// The port's local identifier changed (InfiniBand; a new hardware address with siw).
    ///
    /// Query the port, tell the peers, connect anew where the old address was in use.
    #[doc(alias = "IBV_EVENT_LID_CHANGE")]
    LidChange = IB_EVENT_LID_CHANGE, Port, "LID_CHANGE", "LID change";

    /// The port's table of partition keys changed.
    ///
    /// Read the table again: an index in use may hold another key now.
    #[doc(alias = "IBV_EVENT_PKEY_CHANGE")]
    PkeyChange = IB_EVENT_PKEY_CHANGE, Port, "PKEY_CHANGE", "P_Key change";

    /// The subnet has a new manager, or its manager a new address.
    ///
    /// Address handles to the manager have to be made anew.
    #[doc(alias = "IBV_EVENT_SM_CHANGE")]
    SmChange = IB_EVENT_SM_CHANGE, Port, "SM_CHANGE", "SM change";

    /// A shared receive queue broke: no receive is taken from it any more.
    ///
    /// Destroy the queue pairs that use it, then the queue; create them anew.
    #[doc(alias = "IBV_EVENT_SRQ_ERR")]
    SrqErr = IB_EVENT_SRQ_ERR, Srq, "SRQ_ERR", "SRQ catastrophic error";

    /// A shared receive queue holds fewer receives than the limit that was armed. The limit is
    /// disarmed by this.
    ///
    /// Post more receives, then arm the limit again.
    #[doc(alias = "IBV_EVENT_SRQ_LIMIT_REACHED")]
    SrqLimitReached = IB_EVENT_SRQ_LIMIT_REACHED, Srq, "SRQ_LIMIT_REACHED", "SRQ limit reached";

    /// A queue pair in the error state will take nothing more from its shared receive queue. It
    /// may be said more than once, and not every driver and kernel says it.
    ///
    /// Never wait for this alone before a destroy: give it a deadline.
    #[doc(alias = "IBV_EVENT_QP_LAST_WQE_REACHED")]
    QpLastWqeReached = IB_EVENT_QP_LAST_WQE_REACHED, Qp, "QP_LAST_WQE_REACHED",
        "last WQE reached";

    /// The subnet manager has forgotten what was registered with it.
    ///
    /// Join multicast groups and register services anew.
    #[doc(alias = "IBV_EVENT_CLIENT_REREGISTER")]
    ClientReregister = IB_EVENT_CLIENT_REREGISTER, Port, "CLIENT_REREGISTER",
        "client reregistration";

    /// The port's table of GIDs changed: with RoCE, whenever an address of the network interface
    /// comes, goes or changes.
    ///
    /// Read again the one entry in use; most often it is unchanged, and so are the connections.
    #[doc(alias = "IBV_EVENT_GID_CHANGE")]
    GidChange = IB_EVENT_GID_CHANGE, Port, "GID_CHANGE", "GID table change";

    /// A work queue broke.
    ///
    /// Destroy the queue pairs that use it, then the queue; create them anew.
    #[doc(alias = "IBV_EVENT_WQ_FATAL")]
    WqFatal = IB_EVENT_WQ_FATAL, Wq, "WQ_FATAL", "WQ fatal";

    /// The speed of one of the device's ports changed (Linux 7.x). It does not say which.
    ///
    /// Query the ports whose speed matters.
    #[doc(alias = "IBV_EVENT_DEVICE_SPEED_CHANGE")]
    DeviceSpeedChange = IB_EVENT_DEVICE_SPEED_CHANGE, Device, "DEVICE_SPEED_CHANGE",
        "device speed change";
}

impl fmt::Display for AsyncEventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(raw) => f.pad(&format!("UNKNOWN({raw})")),
            known => f.pad(known.name()),
        }
    }
}

#[cfg(all(test, not(uverbs_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_kernels_and_have_no_gap() {
        for (number, kind) in (0..).zip(AsyncEventKind::ALL) {
            assert_eq!(kind.raw(), number);
            assert_eq!(AsyncEventKind::from_raw(number), kind);
        }
        assert_eq!(AsyncEventKind::from_raw(21), AsyncEventKind::Unknown(21));
        assert_eq!(AsyncEventKind::Unknown(21).raw(), 21);
        assert_eq!(AsyncEventKind::Unknown(21).class(), Class::Unknown);
    }

    #[test]
    fn the_classes_are_those_of_the_manual_page() {
        let of = |class| {
            AsyncEventKind::ALL
                .iter()
                .filter(|kind| kind.class() == class)
                .count()
        };
        assert_eq!(of(Class::Cq), 1);
        assert_eq!(of(Class::Qp), 8);
        assert_eq!(of(Class::Srq), 2);
        assert_eq!(of(Class::Wq), 1);
        assert_eq!(of(Class::Port), 7);
        assert_eq!(of(Class::Device), 2);
        assert_eq!(AsyncEventKind::QpLastWqeReached.class(), Class::Qp);
        assert_eq!(AsyncEventKind::ClientReregister.class(), Class::Port);
    }

    #[test]
    fn each_type_prints_as_it_is_called_in_c_without_the_prefix() {
        for kind in AsyncEventKind::ALL {
            assert_eq!(kind.c_name(), Some(&*format!("IBV_EVENT_{kind}")));
            assert_eq!(kind.to_string(), kind.name());
        }
        assert_eq!(
            AsyncEventKind::SrqLimitReached.to_string(),
            "SRQ_LIMIT_REACHED"
        );
        assert_eq!(AsyncEventKind::Unknown(4711).to_string(), "UNKNOWN(4711)");
        assert_eq!(AsyncEventKind::Unknown(4711).c_name(), None);
        assert_eq!(format!("{:<12}|", AsyncEventKind::PortErr), "PORT_ERR    |");
    }

    #[test]
    fn the_wording_is_that_of_ibv_event_type_str() {
        // By number, as rdma-core 44 has them but for the last, which it does not know.
        let words = [
            "CQ error",
            "local work queue catastrophic error",
            "invalid request local work queue error",
            "local access violation work queue error",
            "communication established",
            "send queue drained",
            "path migrated",
            "path migration request error",
            "local catastrophic error",
            "port active",
            "port error",
            "LID change",
            "P_Key change",
            "SM change",
            "SRQ catastrophic error",
            "SRQ limit reached",
            "last WQE reached",
            "client reregistration",
            "GID table change",
            "WQ fatal",
            "device speed change",
        ];
        assert_eq!(AsyncEventKind::ALL.map(AsyncEventKind::description), words);
        assert_eq!(AsyncEventKind::Unknown(9999).description(), "unknown");
    }
}

//! Every error in its other forms: as a `std::io::Error`, whose kind a program can act on and in which
//! the kernel's number is still to be found; and as a long form that says more than the short one.

mod support;

use std::io::{self, ErrorKind};

use support::{End, pair};
use uverbs::event::EventError;
use uverbs::fake::Fabric;
use uverbs::{
    AccessFlags, Cause, CommandError, ConnectError, CreateError, CreateErrorCause,
    DestroyErrorCause, DriverId, EndpointError, Errno, Explain, Gid, ModifyErrorCause,
    NoProviderReason, ObjectError, ObjectErrorCause, PathOptions, PollError, PostCause, PostError,
    ProviderCreateError, QpAttr, QpNum, QpState, QueryError, QueueId, RangeError, Rc, RecvWr,
    RegisterErrorCause, Report, SendWr, TakeCause, TakeError, WaitError, WcStatus,
};

fn refused(errno: Errno) -> CommandError {
    CommandError::refused("ANY_COMMAND", errno)
}

const QUEUE: QueueId = QueueId::QueuePair(QpNum(17));

fn post(cause: PostCause) -> io::Error {
    PostError::new(QUEUE, 0, cause).into()
}

fn create(cause: CreateErrorCause) -> io::Error {
    CreateError {
        object: "queue pair",
        cause,
        limits: Vec::new(),
    }
    .into()
}

#[test]
fn a_program_can_act_on_the_kind_of_io_error() {
    let of = |errno| Some(errno);
    let gone = CommandError {
        command: "ANY_COMMAND",
        cause: Cause::DeviceGone,
    };
    let about = |cause: ObjectErrorCause| ObjectError { id: QUEUE, cause };
    let object = |errno| about(refused(errno).into());
    let rejected = |errno| CreateErrorCause::Refused(ProviderCreateError::Command(refused(errno)));
    let state = QpState::Init;
    let expected = [
        (post(PostCause::QueueFull), ErrorKind::WouldBlock, None),
        (
            post(PostCause::WrongState { state, needs: "" }),
            ErrorKind::NotConnected,
            None,
        ),
        (
            post(PostCause::TooManySge { given: 2, max: 1 }),
            ErrorKind::InvalidInput,
            None,
        ),
        (
            post(PostCause::InExclusiveUse),
            ErrorKind::ResourceBusy,
            None,
        ),
        (post(PostCause::DeviceGone), ErrorKind::NetworkDown, None),
        (
            post(PostCause::ForeignProcess),
            ErrorKind::PermissionDenied,
            None,
        ),
        (
            post(PostCause::Doorbell(refused(Errno::EINTR))),
            ErrorKind::Interrupted,
            of(Errno::EINTR),
        ),
        (
            PollError::InExclusiveUse.into(),
            ErrorKind::ResourceBusy,
            None,
        ),
        (PollError::DeviceGone.into(), ErrorKind::NetworkDown, None),
        (
            create(rejected(Errno::ENOMEM)),
            ErrorKind::OutOfMemory,
            of(Errno::ENOMEM),
        ),
        (
            create(rejected(Errno::EOPNOTSUPP)),
            ErrorKind::Unsupported,
            of(Errno::EOPNOTSUPP),
        ),
        (
            create(CreateErrorCause::Zero { what: "the depth" }),
            ErrorKind::InvalidInput,
            None,
        ),
        (
            create(CreateErrorCause::NoProvider {
                driver: DriverId::Mlx5,
                abi: 1,
                reason: NoProviderReason::Unknown {
                    driver: DriverId::Mlx5,
                },
            }),
            ErrorKind::Unsupported,
            None,
        ),
        (
            object(Errno::EBUSY).into(),
            ErrorKind::ResourceBusy,
            of(Errno::EBUSY),
        ),
        (
            about(gone.into()).into(),
            ErrorKind::NetworkDown,
            of(Errno::EIO),
        ),
        (
            QueryError::from(refused(Errno::EPERM)).into(),
            ErrorKind::PermissionDenied,
            of(Errno::EPERM),
        ),
        (EndpointError::Magic.into(), ErrorKind::InvalidData, None),
        (
            RangeError::ReadOnly.into(),
            ErrorKind::PermissionDenied,
            None,
        ),
        (
            RangeError::ZeroMaximum.into(),
            ErrorKind::InvalidInput,
            None,
        ),
        (
            ConnectError::NoGid { port: 1, gid: None }.into(),
            ErrorKind::AddrNotAvailable,
            None,
        ),
        (
            ConnectError::from(object(Errno::ENOMEM)).into(),
            ErrorKind::OutOfMemory,
            of(Errno::ENOMEM),
        ),
    ];
    for (error, kind, errno) in expected {
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(Errno::of(&error), errno, "{error}");
        assert_eq!(error.raw_os_error(), None, "it keeps the words: {error}");
        // In whatever it is boxed.
        let boxed: Box<dyn std::error::Error> = Box::new(io::Error::other(error));
        assert_eq!(Errno::of(&*boxed), errno);
    }
    let waits = [
        (WaitError::NoChannel, ErrorKind::InvalidInput),
        (WaitError::OtherChannel, ErrorKind::InvalidInput),
        (
            WaitError::from(PollError::InExclusiveUse),
            ErrorKind::ResourceBusy,
        ),
        (
            WaitError::Event(EventError::DeviceGone),
            ErrorKind::NetworkDown,
        ),
        (
            WaitError::Event(EventError::Stopped),
            ErrorKind::ConnectionAborted,
        ),
    ];
    for (error, kind) in waits {
        assert_eq!(io::Error::from(error).kind(), kind);
    }
    let os = io::Error::from(EventError::Os(Errno::EBADF));
    assert_eq!(Errno::of(&os), Some(Errno::EBADF));
    // One that is the kernel's own.
    let own = io::Error::from_raw_os_error(libc::EMFILE);
    assert_eq!(Errno::of(&own), Some(Errno::from_raw(libc::EMFILE)));
}

/// Those that only a call can make.
#[test]
fn the_number_is_found_behind_every_operation() {
    let device = Fabric::new().add_device("rxe0");
    let end = End::new(&device);
    let number = Errno::ENODEV;
    let mut seen: Vec<(&str, io::Error)> = Vec::new();
    device.fail_next("REG_MR", number);
    let error = end.pd.allocate(64, AccessFlags::empty()).unwrap_err();
    seen.push(("REG_MR", error.into()));
    let region = end.pd.allocate(64, AccessFlags::empty()).unwrap();
    device.fail_next("MR_DESTROY", number);
    seen.push(("MR_DESTROY", region.into_inner().unwrap_err().into()));
    device.fail_next("MODIFY_QP", number);
    let error = end
        .qp
        .modify(&QpAttr::to_state(QpState::Reset))
        .unwrap_err();
    assert!(matches!(error.cause, ModifyErrorCause::Refused { .. }));
    let io = io::Error::from(error);
    assert_eq!(io.kind(), ErrorKind::AddrNotAvailable);
    seen.push(("MODIFY_QP", io));
    device.fail_next("MODIFY_QP", number);
    let error = end.qp.prepare(&PathOptions::default()).unwrap_err();
    seen.push(("MODIFY_QP", error.into()));
    device.fail_next("PD_ALLOC", number);
    device.fail_next("ALLOC_PD", number);
    let error = end.context.alloc_pd().unwrap_err();
    seen.push(("PD", error.into()));
    device.fail_next("QP_DESTROY", number);
    let error = end.qp.clone().destroy().unwrap_err();
    assert_eq!(error.kind(), io::Error::from(number).kind());
    seen.push(("QP_DESTROY", error.into()));
    for (command, error) in seen {
        assert!(error.to_string().contains(command), "{error}");
        assert_eq!(Errno::of(&error), Some(number), "{error}");
    }
}

/// A report with nothing below its head teaches nothing.
#[test]
fn no_long_form_is_empty() {
    let command = refused(Errno::EINVAL);
    let driver = DriverId::Mlx5;
    let mut reports: Vec<Report> = Vec::new();
    let causes = [
        PostCause::QueueFull,
        PostCause::TooManySge { given: 2, max: 1 },
        PostCause::InlineTooLong { given: 2, max: 1 },
        PostCause::MessageTooLong { given: 2, max: 1 },
        PostCause::AtomicLength { given: 4 },
        PostCause::WrongState {
            state: QpState::Reset,
            needs: "",
        },
        PostCause::WrongState {
            state: QpState::Rtr,
            needs: "",
        },
        PostCause::NoReads,
        PostCause::UsesSharedReceiveQueue,
        PostCause::InExclusiveUse,
        PostCause::NoDataPath,
        PostCause::Destroyed,
        PostCause::ForeignProcess,
        PostCause::DeviceGone,
        PostCause::CorruptRing,
        PostCause::Doorbell(command),
    ];
    reports.extend(causes.map(|cause| PostError::new(QUEUE, 0, cause).report()));
    let takes = [
        TakeCause::InExclusiveUse,
        TakeCause::UsesSharedReceiveQueue,
        TakeCause::NoDataPath,
        TakeCause::Destroyed,
        TakeCause::ForeignProcess,
    ];
    reports.extend(takes.map(|cause| TakeError::new(QUEUE, cause).report()));
    let polls = [
        PollError::InExclusiveUse,
        PollError::NoDataPath,
        PollError::Destroyed,
        PollError::ForeignProcess,
        PollError::DeviceGone,
        PollError::CorruptRing,
    ];
    reports.extend(polls.map(|error| error.report()));
    let ranges = [
        RangeError::Outside {
            start: 1,
            end: 2,
            len: 1,
        },
        RangeError::PastEnd { start: 2, len: 1 },
        RangeError::Reversed { start: 2, end: 1 },
        RangeError::Endless { start: 1, len: 1 },
        RangeError::TooLong { given: 1 },
        RangeError::ZeroMaximum,
        RangeError::ReadOnly,
        RangeError::Unaligned { offset: 1 },
    ];
    reports.extend(ranges.map(|error| error.report()));
    let reasons = [
        NoProviderReason::Unknown { driver },
        NoProviderReason::NotBuiltIn {
            driver,
            feature: "mlx5",
        },
        NoProviderReason::LeftOut { driver },
        NoProviderReason::Abi {
            driver,
            found: 3,
            oldest: 1,
            newest: 2,
        },
    ];
    let creates = reasons.map(|reason| CreateErrorCause::NoProvider {
        driver,
        abi: 1,
        reason,
    });
    let creates = creates.into_iter().chain([
        CreateErrorCause::Zero { what: "max_wr" },
        CreateErrorCause::OtherContext { what: "queue" },
        CreateErrorCause::Destroyed { what: "queue" },
        CreateErrorCause::NoWakeFd(Errno::from_raw(libc::EMFILE)),
        CreateErrorCause::Refused(ProviderCreateError::Command(command)),
        CreateErrorCause::Refused(ProviderCreateError::BadQueue {
            command: "CQ_CREATE",
            what: "odd",
        }),
    ]);
    reports.extend(creates.map(|cause| {
        CreateError {
            object: "queue pair",
            cause,
            limits: Vec::new(),
        }
        .report()
    }));
    let destroys = [
        DestroyErrorCause::Outstanding { outstanding: 1 },
        DestroyErrorCause::StillHeld { outstanding: 1 },
        DestroyErrorCause::Destroyed,
        DestroyErrorCause::InExclusiveUse,
        DestroyErrorCause::Busy {
            users: "something",
            source: command,
        },
    ];
    reports.extend(destroys.map(|error| error.report()));
    let endpoints = [
        EndpointError::Length(1),
        EndpointError::Magic,
        EndpointError::Version(2),
        EndpointError::Field("PSN"),
        EndpointError::Reserved,
    ];
    reports.extend(endpoints.map(|error| error.report()));
    let qp_num = QpNum(17);
    let mut connects = vec![
        ConnectError::NoGid { port: 1, gid: None },
        ConnectError::NoGid {
            port: 1,
            gid: Some(Gid::default()),
        },
        ConnectError::GidIndex { index: 256 },
        ConnectError::NoMtu { port: 1 },
        ConnectError::OutOfRange {
            name: "sl",
            asked: 200,
            most: 15,
        },
        ConnectError::NotLocal {
            qp_num,
            given: QpNum(18),
            exchanged: false,
        },
    ];
    for state in (0..7).filter_map(QpState::from_raw) {
        connects.push(ConnectError::NotInInit {
            qp_num,
            state,
            peer: None,
        });
    }
    reports.extend(connects.iter().map(Explain::report));
    reports.push(ObjectErrorCause::Destroyed.report());
    let waits = [
        WaitError::NoChannel,
        WaitError::OtherChannel,
        WaitError::Destroyed,
        WaitError::Event(EventError::Stopped),
    ];
    reports.extend(waits.map(|error| error.report()));
    let events = [
        EventError::Stopped,
        EventError::ContextClosed,
        EventError::DeviceGone,
        EventError::ForeignProcess,
        EventError::BadRecord { len: 3 },
        EventError::RuntimeGone,
        EventError::Os(Errno::EBADF),
    ];
    reports.extend(events.map(|error| error.report()));
    for report in reports {
        assert!(!report.notes().is_empty(), "{report}");
        for line in report.to_string().lines() {
            let plain = !line.ends_with('.') && !line.trim_start().contains("  ");
            assert!(plain, "{line}");
        }
    }
}

/// The same of those that a program meets first, by what it did.
#[test]
fn the_first_mistakes_have_a_next_step() {
    let device = Fabric::new().add_device("rxe0");
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(4).build().unwrap();
    let qp = pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
    let region = pd.allocate(8, AccessFlags::empty()).unwrap();
    let sges = [region.slice(..).unwrap()];
    let clone = region.clone();
    let reports = [
        Report::from(qp.post_recv(&[RecvWr::new(1, &sges)]).unwrap_err()),
        Report::from(qp.post_send(&[SendWr::send(1, &sges)]).unwrap_err()),
        Report::from(region.slice(9..).unwrap_err()),
        Report::from(clone.into_inner().unwrap_err()),
        Report::from(pd.register(Vec::new(), AccessFlags::empty()).unwrap_err()),
        Report::from(pd.register(vec![0], AccessFlags::REMOTE_WRITE).unwrap_err()),
        Report::from(qp.modify(&QpAttr::to_state(QpState::Rts)).unwrap_err()),
        Report::from(qp.modify(&QpAttr::to_state(QpState::Init)).unwrap_err()),
    ];
    for report in reports {
        let text = format!("{report:?}");
        assert!(text.contains("\n  next: "), "{text}");
    }
    let causes = [RegisterErrorCause::Empty, RegisterErrorCause::ReadOnly];
    assert!(causes.iter().all(|cause| cause.errno().is_none()));
    let pair = pair();
    pair.b.qp.modify(&QpAttr::to_state(QpState::Err)).unwrap();
    pair.b.qp.post_recv(&[RecvWr::new(4, &[])]).unwrap();
    let flushed = pair.b.completion();
    assert_eq!(flushed.status, WcStatus::WrFlushed);
    let error = flushed.ok().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    let text = pair.b.qp.diagnose(&error).to_string();
    assert!(
        text.contains("if this is the first, check its elements"),
        "{text}"
    );
}

//! Whether an error names whose queue it is about, and how much or how many there is of what was asked
//! for. `teaching` has the causes.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use uverbs::fake::Fabric;
use uverbs::{Arm, ConnectOptions, Errno, Explain, PathOptions, QueuePair, Rc, RecvWr, SendWr};

#[test]
fn errors_of_posting_and_of_exclusive_use_name_whose_queue_it_is() {
    let device = Fabric::new().add_device("rxe0");
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(4).build().unwrap();
    let srq = pd.create_srq(1).build().unwrap();
    let qp: QueuePair<Rc> = pd.create_qp(&cq, &cq).build().unwrap();
    let sharing: QueuePair<Rc> = pd.create_qp(&cq, &cq).srq(&srq).build().unwrap();
    let name = format!("queue pair {}", qp.qp_num());
    let posted = "nothing was posted: ";
    let send = [SendWr::send_inline(1, b"x")];
    let receives = [RecvWr::new(1, &[]), RecvWr::new(2, &[])];
    let said = |error: &dyn std::error::Error, what: &str| {
        let text = error.to_string();
        assert!(text.starts_with(what), "{text} and not {what}");
    };

    said(
        &qp.post_send(&send).unwrap_err(),
        &format!("{name}: {posted}"),
    );
    said(
        &qp.post_recv(&receives).unwrap_err(),
        &format!("{name}: {posted}"),
    );
    let local = qp.prepare(&PathOptions::default()).unwrap();
    qp.connect(&local, &local, &ConnectOptions::default())
        .unwrap();
    {
        let (mut sends, mut receiving) =
            (qp.exclusive_send().unwrap(), qp.exclusive_recv().unwrap());
        said(
            &qp.post_send(&send).unwrap_err(),
            &format!("{name}: {posted}the queue is in exclusive"),
        );
        said(
            &qp.post_recv(&receives).unwrap_err(),
            &format!("{name}: {posted}the queue is in exclusive"),
        );
        // Nothing would have been posted, and nothing is said of it.
        let taken = format!("{name} cannot be had for exclusive use: it is in exclusive use");
        said(&qp.exclusive_send().unwrap_err(), &taken);
        said(&qp.exclusive_recv().unwrap_err(), &taken);
        said(
            &qp.clone().destroy().unwrap_err(),
            &format!("{name}: one of its queues is in exclusive use"),
        );
        // The handles themselves.
        let long = [0; 4096];
        let long = [SendWr::send_inline(1, &long)];
        said(
            &sends.post_send(&long).unwrap_err(),
            &format!("{name}: {posted}bytes of inline"),
        );
        let mut held = sends.hold_doorbell();
        said(
            &held.post_send(&long).unwrap_err(),
            &format!("{name}: {posted}bytes of inline"),
        );
        let room = qp.caps().max_recv_wr;
        let many = vec![RecvWr::new(1, &[]); room as usize + 1];
        let full = format!("{name}: {room} work requests were posted, then: the queue is full");
        said(&receiving.post_recv(&many).unwrap_err(), &full);
    }
    let full = format!(
        "shared receive queue {}: 1 work request was posted, then: ",
        srq.id()
    );
    said(&srq.post_recv(&receives).unwrap_err(), &full);
    let other = format!("queue pair {}", sharing.qp_num());
    said(
        &sharing.post_recv(&receives).unwrap_err(),
        &format!("{other}: {posted}"),
    );
    said(
        &sharing.exclusive_recv().unwrap_err(),
        &format!("{other} cannot be had for exclusive use: it has a shared receive queue"),
    );
    drop(sharing);
    srq.clone().destroy().unwrap();
    said(
        &srq.post_recv(&receives).unwrap_err(),
        &format!("shared receive queue {}: {posted}", srq.id()),
    );
    qp.clone().destroy().unwrap();
    said(
        &qp.post_send(&send).unwrap_err(),
        &format!("{name}: {posted}the object has been destroyed"),
    );
    said(
        &qp.exclusive_send().unwrap_err(),
        &format!("{name} cannot be had for exclusive use: it has been"),
    );
    said(
        &qp.destroy().unwrap_err(),
        &format!("{name}: it has been destroyed already"),
    );
}

#[test]
fn a_port_that_is_not_there_is_answered_with_those_that_are() {
    let context = Fabric::new().add_device("rxe0").open().unwrap();
    // Of a port that is there they are the fake's own, whatever devices the machine has.
    let table = context.query_port(1).unwrap().pkey_tbl_len;
    let keys = context.pkeys(1).unwrap();
    assert_eq!((keys.as_slice(), table), ([0xFFFF].as_slice(), 1));
    for (port, asked) in [(0, "port 0"), (9, "port 9")] {
        let error = context.query_port(port).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "cannot ask for {asked}: QUERY_PORT failed (EINVAL: invalid argument); the device has \
                 port 1 only"
            )
        );
        let report = error.report().to_string();
        assert!(
            report.contains("next: ports count from 1: name port 1"),
            "{report}"
        );
        assert!(!report.contains("gids"), "{report}");
        let entries = context.gids(port).unwrap_err();
        assert_eq!(entries.to_string(), error.to_string());
        let keys = context.pkeys(port).unwrap_err();
        assert_eq!(keys.to_string(), error.to_string());
    }
    let error = context.query_gid(1, 70_000).unwrap_err();
    let report = error.report().to_string();
    assert!(
        report.contains("`Context::gids` lists what is there"),
        "{report}"
    );
}

/// As on rxe, where bytes and elements share their place.
#[test]
fn inline_data_is_granted_in_whole_elements_and_that_much_goes() {
    let context = Fabric::new().add_device("rxe0").open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(4).build().unwrap();
    let qp: QueuePair<Rc> = pd.create_qp(&cq, &cq).max_inline_data(0).build().unwrap();
    assert_eq!(qp.caps().max_inline_data, 16);
    assert_eq!(qp.query().unwrap().caps.max_inline_data, 16);
    let local = qp.prepare(&PathOptions::default()).unwrap();
    qp.connect(&local, &local, &ConnectOptions::default())
        .unwrap();
    qp.post_send(&[SendWr::send_inline(1, b"10 bytes..")])
        .unwrap();
    let error = qp
        .post_send(&[SendWr::send_inline(1, &[0; 17])])
        .unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("the request has 17, the queue pair takes 16"),
        "{error}"
    );
}

#[test]
fn errors_of_commands_on_an_object_name_it() {
    let device = Fabric::new().add_device("rxe0");
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(4).build().unwrap();
    let srq = pd.create_srq(4).build().unwrap();
    let qp: QueuePair<Rc> = pd.create_qp(&cq, &cq).build().unwrap();
    let [of_cq, of_srq, of_qp] = [
        format!("completion queue {}", cq.id()),
        format!("shared receive queue {}", srq.id()),
        format!("queue pair {}", qp.qp_num()),
    ];
    let refuse = |command| device.fail_next(command, Errno::ENOMEM);
    let failed = |command: &str| format!(": {command} failed (ENOMEM: out of memory)");

    refuse("QUERY_QP");
    let text = qp.query().unwrap_err().to_string();
    assert_eq!(text, of_qp.clone() + &failed("QUERY_QP"));
    refuse("QUERY_QP");
    assert_eq!(qp.state().unwrap_err().to_string(), text);
    refuse("QUERY_SRQ");
    let text = srq.query().unwrap_err().to_string();
    assert_eq!(text, of_srq.clone() + &failed("QUERY_SRQ"));
    refuse("MODIFY_SRQ");
    let text = srq.set_limit(1).unwrap_err().to_string();
    assert_eq!(text, of_srq + &failed("MODIFY_SRQ"));
    refuse("REQ_NOTIFY_CQ");
    let text = cq.arm(Arm::Next).unwrap_err().to_string();
    assert_eq!(text, of_cq.clone() + &failed("REQ_NOTIFY_CQ"));

    let taken = cq.exclusive().unwrap();
    assert_eq!(
        cq.exclusive().unwrap_err().to_string(),
        format!(
            "{of_cq} cannot be had for exclusive use: it is in exclusive use; drop the handle that \
             has it first"
        )
    );
    let error = cq.clone().destroy().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{of_cq}: it is in exclusive use; drop the handle that has it first")
    );
    let report = error.report().to_string();
    assert!(
        report.contains("next: drop that handle, then destroy this again"),
        "{report}"
    );
    drop(taken);
    qp.clone().destroy().unwrap();
    let text = qp.state().unwrap_err().to_string();
    assert_eq!(text, of_qp + ": it has been destroyed");
    cq.clone().destroy().unwrap();
    let text = cq.arm(Arm::Next).unwrap_err().to_string();
    assert_eq!(text, of_cq + ": it has been destroyed");
}

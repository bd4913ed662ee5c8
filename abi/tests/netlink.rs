//! Netlink against a played kernel: whole answers, lists that change, refusals, and any bytes at all.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::VecDeque;
use std::io;

use proptest::prelude::*;
use uverbs_abi::Errno;
use uverbs_abi::layout::netlink::*;
use uverbs_abi::netlink::message::{HEADER, Message, attributes, parts};
use uverbs_abi::netlink::nldev::{self, Found};
use uverbs_abi::netlink::{Client, NetlinkError, Transport};
use zerocopy::{FromBytes, IntoBytes};

/// Answers each request with the datagrams that `answer` gives for its header.
struct Played<F> {
    answer: F,
    queue: VecDeque<Vec<u8>>,
}

impl<F: FnMut(nlmsghdr, &[u8]) -> Vec<Vec<u8>> + Send> Transport for Played<F> {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let (header, payload) = nlmsghdr::read_from_prefix(message).unwrap();
        assert_eq!(header.nlmsg_len as usize, message.len());
        let answer = (self.answer)(header, payload);
        self.queue.extend(answer);
        Ok(())
    }

    fn receive(&mut self, datagram: &mut Vec<u8>) -> io::Result<()> {
        *datagram = self.queue.pop_front().ok_or(io::ErrorKind::TimedOut)?;
        Ok(())
    }
}

fn played<F>(answer: F) -> Client<Played<F>>
where
    F: FnMut(nlmsghdr, &[u8]) -> Vec<Vec<u8>> + Send,
{
    let queue = VecDeque::new();
    Client::new(Played { answer, queue })
}

/// One message, padded.
fn message(seq: u32, kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let header = nlmsghdr {
        nlmsg_len: u32::try_from(HEADER + payload.len()).unwrap(),
        nlmsg_type: kind,
        nlmsg_flags: flags,
        nlmsg_seq: seq,
        nlmsg_pid: 7,
    };
    let mut bytes = [header.as_bytes(), payload].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The payload of a message under construction.
fn payload(message: Message) -> Vec<u8> {
    message.to_bytes(0).split_off(HEADER)
}

fn done(seq: u32) -> Vec<u8> {
    message(seq, NLMSG_DONE, NLM_F_MULTI, &[0; 4])
}

fn error(seq: u32, code: i32, flags: u16, rest: &[u8]) -> Vec<u8> {
    let msg = nlmsghdr {
        nlmsg_len: u32::try_from(HEADER + 4).unwrap(),
        ..Default::default()
    };
    let error = nlmsgerr { error: code, msg };
    message(seq, NLMSG_ERROR, flags, &[error.as_bytes(), rest].concat())
}

fn device(index: u32, name: &str) -> Vec<u8> {
    payload(
        Message::new(0, 0)
            .number(RDMA_NLDEV_ATTR_DEV_INDEX, index)
            .text(RDMA_NLDEV_ATTR_DEV_NAME, name),
    )
}

#[test]
fn a_list_is_collected_from_all_its_datagrams() {
    let mut client = played(|asked, _| {
        let seq = asked.nlmsg_seq;
        let part = |byte: u8| message(seq, 20, NLM_F_MULTI, &[byte]);
        let foreign = message(seq.wrapping_add(9), 20, NLM_F_MULTI, b"other");
        vec![
            foreign.clone(),
            [part(1), foreign, part(2)].concat(),
            [part(3), done(seq)].concat(),
        ]
    });
    for _ in 0..2 {
        let answer = client.ask(&Message::new(20, NLM_F_DUMP)).unwrap();
        assert!(answer.payloads().eq([[1], [2], [3]]));
        assert_eq!(answer.datagrams, 2);
    }
}

#[test]
fn an_ack_is_waited_for_and_a_single_answer_is_enough_without() {
    let mut client = played(|asked, _| {
        let seq = asked.nlmsg_seq;
        vec![message(seq, 20, 0, b"data"), error(seq, 0, 0, &[0; 4])]
    });
    let answer = client.ask(&Message::new(20, NLM_F_ACK)).unwrap();
    assert!(answer.payloads().eq([b"data"]));
    assert_eq!(answer.datagrams, 2);
    let answer = client.ask(&Message::new(20, 0)).unwrap();
    assert!(answer.payloads().eq([b"data"]));
    assert_eq!(answer.datagrams, 1);
}

#[test]
fn a_list_that_changed_is_asked_for_again_and_not_for_ever() {
    let mut asked = 0;
    let mut client = played(|header, _| {
        asked += 1;
        let flags = if asked < 3 { NLM_F_DUMP_INTR } else { 0 };
        let seq = header.nlmsg_seq;
        let part = message(seq, 20, NLM_F_MULTI | flags, &[asked]);
        vec![[part, done(seq)].concat()]
    });
    let answer = client.ask(&Message::new(20, NLM_F_DUMP)).unwrap();
    assert!(answer.payloads().eq([[3]]));
    drop(client);
    assert_eq!(asked, 3);

    let mut client = played(|header, _| {
        let flags = NLM_F_MULTI | NLM_F_DUMP_INTR;
        vec![message(header.nlmsg_seq, NLMSG_DONE, flags, &[0; 4])]
    });
    let error = client.ask(&Message::new(20, NLM_F_DUMP)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "netlink: the list changed each of 16 times"
    );
}

/// Loses the first answer of each request.
struct Forgetful {
    sent: u32,
    answer: Vec<u8>,
}

impl Transport for Forgetful {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let (header, _) = nlmsghdr::read_from_prefix(message).unwrap();
        self.sent += 1;
        self.answer = message_of(header.nlmsg_seq);
        Ok(())
    }

    fn receive(&mut self, datagram: &mut Vec<u8>) -> io::Result<()> {
        if self.sent == 1 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        *datagram = std::mem::take(&mut self.answer);
        Ok(())
    }
}

fn message_of(seq: u32) -> Vec<u8> {
    message(seq, 20, 0, b"data")
}

#[test]
fn a_question_whose_answer_was_lost_is_asked_again_and_an_order_is_not() {
    let forgetful = || {
        let (sent, answer) = (0, Vec::new());
        Client::new(Forgetful { sent, answer })
    };
    let mut client = forgetful();
    let answer = client.ask(&Message::new(20, 0)).unwrap();
    assert!(answer.payloads().eq([b"data"]));
    let error = forgetful().ask(&Message::new(20, NLM_F_ACK)).unwrap_err();
    assert!(matches!(error, NetlinkError::Io(e) if e.kind() == io::ErrorKind::Interrupted));
}

/// Whether it is there hangs on no machine: the loopback device, told of by more bytes than the socket
/// has room for at first.
#[test]
#[cfg_attr(miri, ignore = "Miri has no netlink")]
fn room_grows_with_the_datagrams() {
    const RTM_GETLINK: u16 = 18;
    let mut client = Client::open(uverbs_abi::netlink::Protocol::Route).unwrap();
    for _ in 0..2 {
        let request = Message::new(RTM_GETLINK, NLM_F_DUMP).body(&[0; 16]);
        let answer = client.ask(&request).unwrap();
        let names = answer.payloads().filter(|payload| {
            let attrs = payload.get(16..).unwrap_or_default();
            attributes(attrs).any(|(kind, value)| kind == 3 && value == b"lo\0")
        });
        assert_eq!(names.count(), 1);
        assert!(answer.payloads().map(<[u8]>::len).sum::<usize>() > 1024);
    }
}

#[test]
fn a_refusal_keeps_its_number_and_its_reason() {
    let reason = payload(
        Message::new(0, 0)
            .number(2, 5)
            .text(NLMSGERR_ATTR_MSG, "no such thing"),
    );
    let of = |flags: u16, rest: Vec<u8>| {
        let mut client =
            played(move |asked, _| vec![error(asked.nlmsg_seq, -libc::EINVAL, flags, &rest)]);
        client.ask(&Message::new(20, 0)).unwrap_err()
    };
    let plain = of(0, vec![0; 4]);
    assert_eq!(plain.errno(), Some(Errno::EINVAL));
    assert_eq!(
        plain.to_string(),
        "netlink refused: EINVAL: invalid argument"
    );
    let told = "netlink refused: EINVAL: invalid argument (no such thing)";
    let whole = [&[0; 4], &reason[..]].concat();
    assert_eq!(of(NLM_F_ACK_TLVS, whole).to_string(), told);
    let capped = NLM_F_ACK_TLVS | NLM_F_CAPPED;
    assert_eq!(of(capped, reason).to_string(), told);
    // Attributes that are not there are no reason, and no panic.
    assert_eq!(of(NLM_F_ACK_TLVS, vec![]).to_string(), plain.to_string());
    let number = io::Error::from(plain).raw_os_error();
    assert_eq!(number, Some(libc::EINVAL));
}

#[test]
fn a_list_that_fails_half_way_fails() {
    let mut client = played(|asked, _| {
        let seq = asked.nlmsg_seq;
        let end = message(
            seq,
            NLMSG_DONE,
            NLM_F_MULTI,
            &(-libc::EMSGSIZE).to_ne_bytes(),
        );
        vec![[message(seq, 20, NLM_F_MULTI, b"one"), end].concat()]
    });
    let error = client.ask(&Message::new(20, NLM_F_DUMP)).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::from_raw(libc::EMSGSIZE)));
}

#[test]
fn what_is_cut_short_or_endless_is_an_error() {
    let mut client = played(|asked, _| {
        let mut short = message(asked.nlmsg_seq, 20, 0, b"0123456789");
        short.truncate(20);
        vec![short]
    });
    let error = client.ask(&Message::new(20, 0)).unwrap_err();
    assert!(matches!(error, NetlinkError::Malformed(_)), "{error}");

    let foreign = message(99, 20, 0, &[0; 1 << 20]);
    let mut client = played(move |_, _| vec![foreign.clone(); 20]);
    let error = client.ask(&Message::new(20, 0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "netlink answered with an answer without an end"
    );

    let mut client = played(|_, _| vec![vec![]]);
    assert!(client.ask(&Message::new(20, 0)).is_err());
    let mut client = played(|_, _| vec![]);
    let error = client.ask(&Message::new(20, 0)).unwrap_err();
    assert!(matches!(error, NetlinkError::Io(e) if e.kind() == io::ErrorKind::TimedOut));
}

/// The kernel goes on by counting: what goes away between two datagrams makes it leave one out.
#[test]
fn a_long_list_is_read_until_two_readings_agree() {
    let mut asked = 0;
    let mut client = played(|header, _| {
        asked += 1;
        let seq = header.nlmsg_seq;
        let part = |index: u32| message(seq, 20, NLM_F_MULTI, &device(index, &format!("d{index}")));
        // The first time, 1 went after the first datagram, and 2 was left out for it.
        match asked {
            1 => vec![[part(0), part(1)].concat(), [part(3), done(seq)].concat()],
            _ => vec![[part(0), part(2)].concat(), [part(3), done(seq)].concat()],
        }
    });
    let found = nldev::devices(&mut client).unwrap();
    drop(client);
    assert_eq!(found.iter().map(|d| d.index).collect::<Vec<_>>(), [0, 2, 3]);
    assert_eq!(asked, 3);

    let mut count = 0u32;
    let mut client = played(|header, _| {
        count += 1;
        let seq = header.nlmsg_seq;
        let part = message(seq, 20, NLM_F_MULTI, &device(count, "new"));
        vec![part, done(seq)]
    });
    let error = nldev::devices(&mut client).unwrap_err();
    assert!(matches!(error, NetlinkError::Interrupted), "{error}");
}

#[test]
fn a_node_is_asked_for_by_number_and_kind() {
    let mut client = played(|header, asked| {
        assert_eq!(header.nlmsg_type, 0x140F);
        let asked: Vec<_> = attributes(asked).collect();
        assert_eq!(asked, [(1, &[5, 0, 0, 0][..]), (69, &b"uverbs\0"[..])]);
        let node = Message::new(0, 0)
            .attr(RDMA_NLDEV_ATTR_CHARDEV, &0xE7C2_u64.to_ne_bytes())
            .attr(RDMA_NLDEV_ATTR_CHARDEV_ABI, &2_u64.to_ne_bytes())
            .text(RDMA_NLDEV_ATTR_CHARDEV_NAME, "uverbs2")
            .number(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, 14);
        vec![message(header.nlmsg_seq, 0x140F, 0, &payload(node))]
    });
    let found = nldev::chardev(&mut client, 5).unwrap();
    let Found::Chardev(found) = found else {
        panic!("{found:?}")
    };
    assert_eq!(
        (found.name.as_str(), found.major, found.minor),
        ("uverbs2", 231, 194)
    );
    assert_eq!((found.abi, found.driver_id), (2, Some(14)));
}

#[test]
fn no_device_and_no_node_are_told_apart() {
    let of = |errno: i32| {
        let mut client = played(move |asked, _| vec![error(asked.nlmsg_seq, -errno, 0, &[])]);
        nldev::chardev(&mut client, 5)
    };
    assert_eq!(of(libc::EINVAL).unwrap(), Found::NoDevice);
    assert_eq!(of(libc::ENODEV).unwrap(), Found::NoDevice);
    assert_eq!(of(libc::EOPNOTSUPP).unwrap(), Found::NoUverbs);
    assert_eq!(of(libc::ENOMEM).unwrap_err().errno(), Some(Errno::ENOMEM));
}

#[test]
fn a_name_that_leads_elsewhere_is_no_nodes_name() {
    for name in ["", ".", "..", "../sda", "a/b"] {
        let node = Message::new(0, 0)
            .attr(RDMA_NLDEV_ATTR_CHARDEV, &1_u64.to_ne_bytes())
            .attr(RDMA_NLDEV_ATTR_CHARDEV_ABI, &2_u64.to_ne_bytes())
            .text(RDMA_NLDEV_ATTR_CHARDEV_NAME, name);
        let node = payload(node);
        let mut client = played(move |asked, _| vec![message(asked.nlmsg_seq, 1, 0, &node)]);
        assert!(nldev::chardev(&mut client, 5).is_err(), "{name:?}");
    }
}

/// A message with attributes, some of them nested.
fn content() -> impl Strategy<Value = Vec<(u16, Vec<u8>)>> {
    let value = proptest::collection::vec(any::<u8>(), 0..40);
    proptest::collection::vec((0u16..0x4000, value), 0..12)
}

fn filled(message: Message, content: &[(u16, Vec<u8>)]) -> Message {
    content
        .iter()
        .fold(message, |message, (kind, value)| message.attr(*kind, value))
}

fn taken(payload: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut all = attributes(payload);
    let taken = (&mut all)
        .map(|(kind, value)| (kind, value.to_vec()))
        .collect();
    assert_eq!(all.rest(), b"");
    taken
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn what_is_built_is_what_is_read(
        content in content(),
        kind: u16,
        flags: u16,
        seq: u32,
        outer in 0u16..0x4000,
    ) {
        let built = filled(Message::new(kind, flags), &content);
        let built = built.nest(outer, |inner| filled(inner, &content)).to_bytes(seq);
        // Two in a datagram.
        let datagram = [built.clone(), built].concat();
        let mut all = parts(&datagram);
        for _ in 0..2 {
            let part = all.next().unwrap();
            prop_assert_eq!(part.header.nlmsg_type, kind);
            prop_assert_eq!(part.header.nlmsg_flags, flags | NLM_F_REQUEST);
            prop_assert_eq!(part.header.nlmsg_seq, seq);
            let mut found = taken(part.payload);
            let (last, nested) = found.pop().unwrap();
            prop_assert_eq!(found, content.clone());
            prop_assert_eq!(last, outer);
            prop_assert_eq!(taken(&nested), content.clone());
        }
        prop_assert_eq!(all.next(), None);
        prop_assert_eq!(all.rest(), b"");
    }

    /// Whatever comes: an answer or an error, after a bounded time, and no panic.
    #[test]
    fn any_bytes_are_survived(
        datagrams in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..4),
        headers in proptest::collection::vec((0u32..80, 0u16..24, any::<u16>()), 4),
        is_mine: bool,
    ) {
        let mut client = played(move |asked, _| {
            let with_header = |(bytes, (len, kind, flags)): (&Vec<u8>, &(u32, u16, u16))| {
                let header = nlmsghdr {
                    nlmsg_len: *len,
                    nlmsg_type: *kind,
                    nlmsg_flags: *flags,
                    nlmsg_seq: asked.nlmsg_seq,
                    nlmsg_pid: 0,
                };
                if is_mine {
                    [header.as_bytes(), bytes].concat()
                } else {
                    bytes.clone()
                }
            };
            datagrams.iter().zip(&headers).map(with_header).collect()
        });
        let _ = nldev::devices(&mut client);
        let _ = nldev::device(&mut client, 1);
        let _ = nldev::chardev(&mut client, 1);
        let _ = nldev::shares_devices(&mut client);
        let _ = client.ask(&Message::new(20, NLM_F_ACK));
    }

    #[test]
    fn devices_come_back_as_they_were_sent(
        devices in proptest::collection::btree_map(0u32..1000, ("[a-z]{1,8}[0-9]{0,3}", any::<u8>(), any::<u64>()), 0..60),
        per_datagram in 1usize..40,
    ) {
        let sent = devices.clone();
        let mut client = played(move |asked, _| {
            let seq = asked.nlmsg_seq;
            let mut all: Vec<Vec<u8>> = sent.iter().map(|(index, (name, kind, guid))| {
                let device = Message::new(0, 0)
                    .number(RDMA_NLDEV_ATTR_DEV_INDEX, *index)
                    .text(RDMA_NLDEV_ATTR_DEV_NAME, name)
                    .attr(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, &[*kind])
                    .attr(RDMA_NLDEV_ATTR_NODE_GUID, &guid.to_ne_bytes());
                message(seq, 0x1401, NLM_F_MULTI, &payload(device))
            }).collect();
            all.push(done(seq));
            all.chunks(per_datagram).map(<[_]>::concat).collect()
        });
        let found = nldev::devices(&mut client).unwrap();
        let found: Vec<_> = found.into_iter()
            .map(|d| (d.index, (d.name, d.node_type.unwrap(), d.node_guid.unwrap())))
            .collect();
        prop_assert_eq!(found, devices.into_iter().collect::<Vec<_>>());
    }
}

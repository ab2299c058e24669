//! A lane whose node is the test, which says what it likes, in pieces of any size.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use proptest::prelude::*;

use super::*;
use crate::wire::{encode_answer, encode_read_answer, encode_welcome};
use crate::{Incarnation, RegionOffset};

const LENGTH: usize = LONG_BYTES + 77;
const AT: RegionOffset = RegionOffset::new(4096);

fn introduced() -> (Link, UnixStream) {
    let (here, mut node) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    let description = NodeDescription {
        incarnation: Incarnation(7),
        frames: 64,
        lease: Duration::from_secs(60),
        rack: None,
    };
    node.write_all(&encode_welcome(Ok(description))).unwrap();
    let client = ClientIdentity { space: 3, lane: 0 };
    let link = Link::introduce(Stream::plain(here.into()), client, soon()).unwrap();
    node.read_exact(&mut [0; INTRODUCTION_BYTES]).unwrap();
    (link, node)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn content(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7) as u8 ^ seed).collect()
}

fn read_of(length: usize) -> Request {
    Request::Read { at: AT, length_bytes: length as u32, buffer: vec![0xee; 3] }
}

fn answer(ticket: u64, bytes: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    encode_read_answer(Ticket(ticket), bytes.len() as u32, &mut message);
    message.extend_from_slice(bytes);
    message
}

fn look(link: &mut Link, into: &mut Vec<Completion>) {
    link.complete(into, Duration::ZERO).unwrap();
}

fn bytes_of(completion: &Completion) -> &[u8] {
    assert_eq!(completion.result, Ok(Answer::Read));
    let Request::Read { buffer, .. } = &completion.request else { panic!("{completion:?}") };
    buffer
}

#[test]
fn answers_that_came_before_the_node_went_count() {
    let (mut link, mut node) = introduced();
    link.submit(Ticket(1), read_of(LENGTH), soon()).unwrap();
    let mut done = Vec::new();
    look(&mut link, &mut done);
    node.write_all(&answer(1, &content(5, LENGTH))).unwrap();
    drop(node);
    link.submit(Ticket(2), Request::Statistics, soon()).unwrap();
    assert!(link.complete(&mut done, Duration::ZERO).is_err());
    assert_eq!(done.len(), 1);
    assert_eq!(bytes_of(&done[0]), content(5, LENGTH));
    assert!(matches!(link.take_unanswered()[..], [(Ticket(2), Request::Statistics)]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn answers_that_come_in_pieces_bring_what_was_read(
        lengths in prop::collection::vec(
            prop_oneof![Just(1), Just(4096), Just(LONG_BYTES), LONG_BYTES..3 * LONG_BYTES], 1..6),
        pieces in prop::collection::vec(prop_oneof![1_usize..40, 1_usize..50_000], 1..12),
    ) {
        let (mut link, mut node) = introduced();
        let mut said = Vec::new();
        for (ticket, length) in (1..).zip(&lengths) {
            link.submit(Ticket(ticket), read_of(*length), soon()).unwrap();
            said.extend(answer(ticket, &content(ticket as u8, *length)));
        }
        // A refusal among them, and something short at the end.
        let last = lengths.len() as u64 + 1;
        link.submit(Ticket(last), read_of(LENGTH), soon()).unwrap();
        encode_answer(Ticket(last), &Err(Refusal::NotGranted), &mut said);
        link.submit(Ticket(last + 1), Request::Statistics, soon()).unwrap();
        encode_answer(Ticket(last + 1), &Ok(Answer::Statistics(Default::default())), &mut said);

        let (mut done, mut rest, mut sizes) = (Vec::new(), &said[..], pieces.iter().cycle());
        while !rest.is_empty() {
            // Tiny pieces only as far as that ends soon.
            let size = (*sizes.next().unwrap()).max(rest.len() / 200).min(rest.len());
            node.write_all(&rest[..size]).unwrap();
            rest = &rest[size..];
            look(&mut link, &mut done);
        }

        prop_assert_eq!(done.len(), lengths.len() + 2);
        for ((completion, ticket), length) in done.iter().zip(1..).zip(&lengths) {
            prop_assert_eq!(completion.ticket, Ticket(ticket));
            prop_assert!(bytes_of(completion) == content(ticket as u8, *length));
        }
        prop_assert_eq!(&done[lengths.len()].result, &Err(Failure::Refused(Refusal::NotGranted)));
    }
}

#[test]
fn a_read_that_becomes_late_while_its_answer_comes_does_not_disturb_the_next_one() {
    let (mut link, mut node) = introduced();
    link.submit(Ticket(1), read_of(LENGTH), Instant::now() + Duration::from_millis(50)).unwrap();
    link.submit(Ticket(2), read_of(LENGTH), soon()).unwrap();
    let mut said = answer(1, &content(1, LENGTH));
    said.extend(answer(2, &content(2, LENGTH)));
    let mut done = Vec::new();
    node.write_all(&said[..500]).unwrap();
    look(&mut link, &mut done);
    assert!(done.is_empty());
    std::thread::sleep(Duration::from_millis(60));
    look(&mut link, &mut done);
    assert_eq!(done.remove(0).result, Err(Failure::Late));

    for piece in said[500..].chunks(999) {
        node.write_all(piece).unwrap();
        look(&mut link, &mut done);
    }

    assert_eq!(done.len(), 1);
    assert_eq!(done[0].ticket, Ticket(2));
    assert!(bytes_of(&done[0]) == content(2, LENGTH));
}

#[test]
fn a_read_whose_answer_ends_in_the_middle_is_handed_back() {
    let (mut link, mut node) = introduced();
    link.submit(Ticket(1), read_of(LENGTH), soon()).unwrap();
    let mut done = Vec::new();
    node.write_all(&answer(1, &content(1, LENGTH))[..LENGTH / 2]).unwrap();
    look(&mut link, &mut done);
    drop(node);

    assert!(matches!(link.complete(&mut done, Duration::ZERO), Err(LinkError::Closed)));
    assert!(done.is_empty());
    let unanswered = link.take_unanswered();
    assert!(matches!(unanswered[..], [(Ticket(1), Request::Read { .. })]), "{unanswered:?}");
}

/// Takes what the client sends, while it turns.
fn hear(link: &mut Link, node: &mut UnixStream, count: usize, done: &mut Vec<Completion>) -> Vec<u8> {
    node.set_nonblocking(true).unwrap();
    let (mut heard, mut part) = (Vec::new(), vec![0; 5000]);
    while heard.len() < count {
        look(link, done);
        if let Ok(come) = node.read(&mut part) {
            heard.extend_from_slice(&part[..come]);
        }
    }
    node.set_nonblocking(false).unwrap();
    heard
}

#[test]
fn writes_go_as_they_were_asked_for_also_those_that_became_late_in_the_middle() {
    const DATA: usize = 300 << 10;
    let (mut link, mut node) = introduced();
    let write = |seed| Request::Write { at: AT, data: content(seed, DATA) };
    let short = Request::Write { at: AT, data: content(9, 100) };
    let requests = [write(1), Request::Statistics, write(2), short, write(3)];
    let mut wanted = Vec::new();
    for (ticket, request) in (1..).zip(&requests) {
        let late = Instant::now() + Duration::from_millis(20);
        let deadline = if ticket == 5 { soon() } else { late };
        link.submit(Ticket(ticket), request.clone(), deadline).unwrap();
        encode_request(Ticket(ticket), request, &mut wanted);
    }
    // The socket takes less than the first one.
    let mut done = Vec::new();
    look(&mut link, &mut done);
    std::thread::sleep(Duration::from_millis(30));
    look(&mut link, &mut done);
    assert_eq!(done.len(), 4);
    assert!(done.iter().all(|completion| completion.result == Err(Failure::Late)));
    assert!(done[2].request == requests[2]);

    let heard = hear(&mut link, &mut node, wanted.len(), &mut done);

    assert!(heard == wanted);
    assert!(!link.waits_to_send());
}

#[test]
fn an_answer_to_a_write_that_has_not_gone_ends_the_link() {
    let (mut link, mut node) = introduced();
    link.submit(Ticket(1), Request::Write { at: AT, data: content(1, 1 << 20) }, soon()).unwrap();
    let mut said = Vec::new();
    encode_answer(Ticket(1), &Ok(Answer::Written), &mut said);
    node.write_all(&said).unwrap();
    let mut done = Vec::new();
    assert!(matches!(link.complete(&mut done, Duration::ZERO), Err(LinkError::Garbage(_))));
    assert_eq!(link.take_unanswered().len(), 1);
}

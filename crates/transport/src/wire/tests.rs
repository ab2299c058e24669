use std::time::Duration;

use super::header::{ANSWER, kind};
use super::*;
use crate::{
    Answer, Chunk, ClientIdentity, Endpoint, Frame, Incarnation, MOST_ORDER, Mailbox, NodeDescription,
    NodeStatistics, Order, Refusal, RegionOffset, RemoteKey, Request, Ticket,
};

const CLIENT: ClientIdentity = ClientIdentity { space: u128::MAX - 9, lane: 3 };
const NODE: NodeDescription = NodeDescription {
    incarnation: Incarnation(0x1234 << 100),
    frames: 1 << 32,
    lease: Duration::from_millis(30_000),
    rack: None,
};

const ENDPOINT: Endpoint =
    Endpoint { gid: [7; 16], lid: 3, number: 0xff_fff0, sequence: 77, mtu: 5, reads: 16 };

fn split(message: &[u8]) -> (Header, &[u8]) {
    let (header, body) = message.split_first_chunk().unwrap();
    (Header::decode(header).unwrap(), body)
}

fn requests() -> Vec<Request> {
    let chunk = |first, order| Chunk::new(Frame::new(first), Order::new(order).unwrap()).unwrap();
    let at = RegionOffset::new(4097);
    vec![
        Request::Grant { order: Order::MOST, count: 7 },
        Request::Release { chunks: vec![chunk(64, 6), chunk(3, 0), chunk(u32::MAX, 0)] },
        Request::Read { at, length_bytes: 9, buffer: vec![] },
        Request::Write { at, data: b"some page".to_vec() },
        Request::Renew,
        Request::Statistics,
        Request::Leave,
        Request::Attach { endpoint: ENDPOINT },
        Request::Keys { at, length_bytes: 4096 },
    ]
}

fn keys() -> Vec<RemoteKey> {
    // Bytes 4097 to 8192 lie in the second and the third frame.
    let key =
        |first, frames| RemoteKey { first: Frame::new(first), frames, address: 1 << 40, key: first + 9 };
    vec![key(0, 2), key(2, 64)]
}

fn answers() -> Vec<Answer> {
    let figures = NodeStatistics { frames: 9, clients: 3, free_chunks: [7; 11], ..Default::default() };
    vec![
        Answer::Granted(vec![Frame::new(1024), Frame::new(0)]),
        Answer::Released,
        Answer::Read,
        Answer::Written,
        Answer::Renewed,
        Answer::Statistics(figures),
        Answer::Left,
        Answer::Attached { endpoint: ENDPOINT, mailbox: Mailbox { address: 1 << 40, key: 7 } },
        Answer::Keys(keys()),
    ]
}

fn heard_as(request: &Request, heard: &Heard<'_>) -> bool {
    match (request, heard) {
        (Request::Grant { order, count }, Heard::Grant { order: o, count: c }) => (order, count) == (o, c),
        (Request::Release { chunks }, Heard::Release(heard)) => chunks == heard,
        (Request::Read { at, length_bytes, .. }, Heard::Read { at: a, length_bytes: l }) => {
            (at, length_bytes) == (a, l)
        }
        (Request::Write { at, data }, Heard::Write { at: a, data: d }) => at == a && data == d,
        (Request::Attach { endpoint }, Heard::Attach { endpoint: e }) => endpoint == e,
        (Request::Keys { at, length_bytes }, Heard::Keys { at: a, length_bytes: l }) => {
            (at, length_bytes) == (a, l)
        }
        (Request::Renew, Heard::Renew)
        | (Request::Statistics, Heard::Statistics)
        | (Request::Leave, Heard::Leave) => true,
        _ => false,
    }
}

#[test]
fn introductions_survive_their_encoding() {
    assert_eq!(decode_hello(&encode_hello(CLIENT)), Ok(CLIENT));
    assert_eq!(decode_welcome(&encode_welcome(Ok(NODE))), Ok(Ok(NODE)));
    for why in TurnedAway::ALL {
        assert_eq!(decode_welcome(&encode_welcome(Err(why))), Ok(Err(why)));
    }
}

#[test]
fn a_welcome_names_the_rack_and_builds_that_know_of_none_understand_each_other() {
    let named = NodeDescription { rack: Some("row-3/rack-12".parse().unwrap()), ..NODE };
    assert_eq!(decode_welcome(&encode_welcome(Ok(named))), Ok(Ok(named)));
    // An earlier build sends zeros there, and reads nothing of it.
    let (without, with) = (encode_welcome(Ok(NODE)), encode_welcome(Ok(named)));
    assert_eq!(without[40..60], [0; 20]);
    assert_eq!((&with[..40], &with[40..53]), (&without[..40], &b"row-3/rack-12"[..]));
    let mut nameless = with;
    nameless[41] = b' ';
    let word = check(&[&nameless[..60]]);
    nameless[60..].copy_from_slice(&word);
    assert_eq!(decode_welcome(&nameless), Err(Malformed::Range));
}

#[test]
fn an_introduction_with_a_wrong_bit_is_none() {
    for bit in 0..8 * INTRODUCTION_BYTES {
        let mut hello = encode_hello(CLIENT);
        hello[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_hello(&hello).is_err(), "bit {bit}");
    }
}

#[test]
fn another_version_is_named() {
    let mut hello = encode_hello(CLIENT);
    hello[8] = 99;
    let word = check(&[&hello[..60]]);
    put(&mut hello, 60, &word);
    assert_eq!(decode_hello(&hello), Err(Malformed::Version(99)));
}

#[test]
fn requests_survive_their_encoding() {
    for request in requests() {
        let mut message = Vec::new();
        encode_request(Ticket(77), &request, &mut message);
        let (header, body) = split(&message);
        assert_eq!(header.ticket(), Ticket(77));
        let heard = decode_request(&header, body).unwrap();
        assert!(heard_as(&request, &heard), "{request:?} {heard:?}");
        assert_eq!(request.is_change(), heard.is_change());
    }
}

#[test]
fn answers_survive_their_encoding() {
    for (mut request, answer) in requests().into_iter().zip(answers()) {
        let mut message = Vec::new();
        if answer == Answer::Read {
            encode_read_answer(Ticket(5), 9, &mut message);
            message.extend_from_slice(b"123456789");
        } else {
            encode_answer(Ticket(5), &Ok(answer.clone()), &mut message);
        }
        let (header, body) = split(&message);
        assert_eq!(decode_answer(&header, body, &mut request), Ok(Ok(answer)));
        if let Request::Read { buffer, .. } = request {
            assert_eq!(buffer, b"123456789");
        }
    }
}

#[test]
fn keys_that_leave_a_gap_are_none() {
    let mut request = Request::Keys { at: RegionOffset::new(4097), length_bytes: 4096 };
    let wrong: [&[RemoteKey]; 4] = [&keys()[..1], &keys()[1..], &[keys()[1], keys()[0]], &[]];
    for keys in wrong {
        let mut message = Vec::new();
        encode_answer(Ticket(5), &Ok(Answer::Keys(keys.to_vec())), &mut message);
        let (header, body) = split(&message);
        assert_eq!(decode_answer(&header, body, &mut request), Err(Malformed::Range));
    }
}

#[test]
fn refusals_survive_their_encoding() {
    for refusal in
        [Refusal::Full, Refusal::NotGranted, Refusal::Draining, Refusal::Forgotten, Refusal::NoRdma]
    {
        let mut message = Vec::new();
        encode_answer(Ticket(5), &Err(refusal), &mut message);
        let (header, body) = split(&message);
        assert_eq!(decode_answer(&header, body, &mut Request::Renew), Ok(Err(refusal)));
    }
}

#[test]
fn an_answer_to_something_else_is_none() {
    let mut message = Vec::new();
    encode_answer(Ticket(5), &Ok(Answer::Written), &mut message);
    let (header, body) = split(&message);
    assert_eq!(decode_answer(&header, body, &mut Request::Renew), Err(Malformed::Kind));
}

#[test]
fn a_wrong_bit_in_what_is_not_content_is_found() {
    for request in requests() {
        let mut message = Vec::new();
        encode_request(Ticket(5), &request, &mut message);
        let checked = if matches!(request, Request::Write { .. }) { HEADER_BYTES } else { message.len() };
        for bit in 0..8 * checked {
            let mut message = message.clone();
            message[bit / 8] ^= 1 << (bit % 8);
            let (header, body) = message.split_first_chunk().unwrap();
            let decoded = Header::decode(header).and_then(|header| decode_request(&header, body).map(|_| ()));
            assert!(decoded.is_err(), "bit {bit} of {request:?}");
        }
    }
}

#[test]
fn what_cannot_be_is_no_request() {
    let decode = |header: Header, body: &[u8]| {
        let mut message = Vec::new();
        header.append(body, &mut message);
        message.extend_from_slice(body);
        let (header, body) = message.split_first_chunk().unwrap();
        Header::decode(header).and_then(|header| decode_request(&header, body).map(|_| ()))
    };
    let new = |kind| Header::new(kind, Ticket(1));
    let order = MOST_ORDER + 1;
    assert_eq!(decode(Header { order, count: 1, ..new(kind::GRANT) }, &[]), Err(Malformed::Range));
    assert_eq!(decode(new(kind::GRANT), &[]), Err(Malformed::Range));
    assert_eq!(decode(Header { count: 1, ..new(kind::GRANT) }, &[1]), Err(Malformed::Length));
    assert_eq!(decode(new(kind::RELEASE), &[]), Err(Malformed::Length));
    assert_eq!(decode(new(kind::RELEASE), &[1, 0, 0, 0, 1, 0, 0, 0]), Err(Malformed::Range));
    assert_eq!(decode(new(kind::RELEASE), &[1, 0, 0, 0, 0, 0, 0]), Err(Malformed::Length));
    assert_eq!(decode(new(kind::WRITE), &[]), Err(Malformed::Range));
    let end = RegionOffset::END.get() - 1;
    assert_eq!(decode(Header { at: end, length: 2, ..new(kind::READ) }, &[]), Err(Malformed::Range));
    let length = MOST_TRANSFER_BYTES as u32 + 1;
    assert_eq!(decode(Header { length, ..new(kind::READ) }, &[]), Err(Malformed::Range));
    assert_eq!(decode(new(kind::WRITE), &vec![0; MOST_BODY_BYTES + 1]), Err(Malformed::Length));
    assert_eq!(decode(new(99), &[]), Err(Malformed::Kind));
    assert_eq!(decode(new(kind::RENEW | ANSWER), &[]), Err(Malformed::Kind));
}

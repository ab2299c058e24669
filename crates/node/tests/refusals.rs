//! Peers that are wrong, strange, slow or gone: each gets a clear answer or none, and nobody else notices.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use farmem_transport::wire::{
    HEADER_BYTES, Header, INTRODUCTION_BYTES, TurnedAway, decode_welcome, encode_hello, encode_request,
};
use farmem_transport::{
    Answer, ClientIdentity, Destination, LinkError, Request, Security, Ticket, Transport, connect,
};
use support::*;

fn error_of(node: &TestNode, security: &Security) -> LinkError {
    match connect(&node.address, client(1), security, PATIENCE) {
        Ok(_) => panic!("the client was let in"),
        Err(error) => error,
    }
}

/// A client that says what it likes.
fn raw(node: &TestNode) -> TcpStream {
    let Destination::Tcp { host, port } = &node.address else { panic!("{}", node.address) };
    let socket = TcpStream::connect((host.as_str(), *port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// One that has been let in.
fn introduced(node: &TestNode, client: ClientIdentity) -> TcpStream {
    let mut socket = raw(node);
    socket.write_all(&encode_hello(client)).unwrap();
    let mut welcome = [0; INTRODUCTION_BYTES];
    socket.read_exact(&mut welcome).unwrap();
    decode_welcome(&welcome).unwrap().unwrap();
    socket
}

fn message(ticket: u64, request: &Request) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_request(Ticket(ticket), request, &mut bytes);
    bytes
}

/// The node has closed the connection, and said nothing more.
fn assert_closed(mut socket: TcpStream) {
    let mut rest = Vec::new();
    match socket.read_to_end(&mut rest) {
        Ok(_) => assert!(rest.is_empty(), "{rest:?}"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
}

fn assert_serves(node: &TestNode) {
    let mut link = node.connect(client(99));
    assert_eq!(ask(&mut *link, 1, Request::Renew).result, Ok(Answer::Renewed));
}

#[test]
fn another_key_is_not_trusted() {
    let node = TestNode::start(&Wanted { security: new_key(), ..Wanted::default() });
    let error = error_of(&node, &new_key());
    assert!(matches!(&error, LinkError::Untrusted(why) if why.contains("another key")), "{error}");
    assert_serves(&node);
}

#[test]
fn without_a_key_nobody_is_let_in_where_there_is_one() {
    let node = TestNode::start(&Wanted { security: new_key(), ..Wanted::default() });
    let error = error_of(&node, &Security::Plain);
    assert!(matches!(error, LinkError::Garbage(_) | LinkError::Closed), "{error}");
    assert_serves(&node);
}

#[test]
fn a_node_without_a_key_is_not_trusted() {
    let node = TestNode::start(&Wanted::default());
    let error = error_of(&node, &new_key());
    assert!(matches!(error, LinkError::Untrusted(_) | LinkError::Closed), "{error}");
    assert_serves(&node);
}

#[test]
fn another_version_is_answered_and_turned_away() {
    let node = TestNode::start(&Wanted::default());
    let mut hello = encode_hello(client(1));
    hello[8] = 2;
    let check = xxhash_rust::xxh3::xxh3_64(&hello[..60]) as u32;
    hello[60..].copy_from_slice(&check.to_le_bytes());
    let mut socket = raw(&node);
    socket.write_all(&hello).unwrap();

    let mut welcome = [0; INTRODUCTION_BYTES];
    socket.read_exact(&mut welcome).unwrap();

    assert_eq!(decode_welcome(&welcome), Ok(Err(TurnedAway::Version)));
    assert_closed(socket);
    assert_serves(&node);
}

#[test]
fn what_is_no_introduction_ends_the_connection() {
    let node = TestNode::start(&Wanted::default());
    let mut socket = raw(&node);
    socket
        .write_all(b"GET / HTTP/1.1\r\nHost: somewhere\r\nAccept: text/html, application/xml\r\n\r\n")
        .unwrap();
    assert_closed(socket);
    assert_serves(&node);
}

#[test]
fn garbage_after_the_introduction_ends_the_connection() {
    let node = TestNode::start(&Wanted::default());
    for at in 0..HEADER_BYTES {
        let mut socket = introduced(&node, client(1));
        let mut bytes = message(1, &Request::Statistics);
        bytes[at] ^= 0x40;
        bytes.resize(2 * HEADER_BYTES, 0);
        socket.write_all(&bytes).unwrap();
        // A length that was changed may have the node wait for the rest.
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        assert_closed(socket);
    }
    assert_serves(&node);
}

#[test]
fn a_write_that_came_in_part_has_not_happened() {
    let node = TestNode::start(&Wanted::default());
    let mut link = node.connect(client(1));
    let at = slab(&mut *link, 1).first().offset();
    write(&mut *link, 2, at, b"whole").unwrap();
    drop(link);

    let mut socket = introduced(&node, client(1));
    let bytes = message(3, &Request::Write { at, data: content(1, 5000) });
    socket.write_all(&bytes[..bytes.len() - 1]).unwrap();
    drop(socket);

    let mut link = node.connect(client(1));
    assert_eq!(read(&mut *link, 4, at, 5).unwrap(), b"whole");
}

#[test]
fn a_new_connection_takes_the_place_of_the_old_one() {
    let node = TestNode::start(&Wanted::default());
    let mut old = introduced(&node, client(1));
    let mut new = node.connect(client(1));
    let at = slab(&mut *new, 1).first().offset();
    // What the old one still sends has no effect.
    let _ = old.write_all(&message(2, &Request::Write { at, data: b"late".to_vec() }));
    assert_closed(old);
    assert_eq!(read(&mut *new, 3, at, 4), Ok(vec![0; 4]));
}

#[test]
fn a_message_that_is_replayed_has_no_effect() {
    let node = TestNode::start(&Wanted::default());
    let mut link = node.connect(client(1));
    let at = slab(&mut *link, 1).first().offset();
    drop(link);
    let mut socket = introduced(&node, client(1));
    let first = message(2, &Request::Write { at, data: b"first".to_vec() });
    let later = message(3, &Request::Write { at, data: b"later".to_vec() });
    socket.write_all(&[&first[..], &later, &first].concat()).unwrap();
    let mut answers = [0; 3 * HEADER_BYTES];
    socket.read_exact(&mut answers).unwrap();
    let tickets: Vec<u64> =
        answers.as_chunks().0.iter().map(|header| Header::decode(header).unwrap().ticket().0).collect();
    assert_eq!(tickets, [2, 3, 2]);
    drop(socket);

    let mut link = node.connect(client(1));
    assert_eq!(read(&mut *link, 4, at, 5).unwrap(), b"later");
}

#[test]
fn a_client_that_is_killed_loses_its_frames_after_its_lease_and_no_sooner() {
    let lease = Duration::from_millis(400);
    let node = TestNode::start(&Wanted { lease, ..Wanted::default() });
    let mut killed = node.connect(client(1));
    let before = killed.node().incarnation;
    let at = slab(&mut *killed, 1).first().offset();
    write(&mut *killed, 2, at, b"mine").unwrap();
    let mut other = node.connect(client(2));
    let mut free = |ticket: u64| match ask(&mut *other, ticket, Request::Statistics).result {
        Ok(Answer::Statistics(figures)) => figures.free_frames,
        other => panic!("{other:?}"),
    };

    assert_eq!(free(1), 960);
    drop(killed);
    let (mut ticket, end) = (2, soon());
    while free(ticket) != 1024 {
        assert!(Instant::now() < end, "the frames have not come back");
        ticket += 1;
        std::thread::sleep(Duration::from_millis(20));
    }

    let mut again = node.connect(client(1));
    assert_ne!(again.node().incarnation, before, "it must not take the node for the one it left");
    assert_eq!(read(&mut *again, 3, at, 4), Err(NOT_GRANTED));
}

#[test]
fn a_link_that_is_looked_after_keeps_its_lease() {
    let lease = Duration::from_millis(400);
    let node = TestNode::start(&Wanted { lease, ..Wanted::default() });
    let mut link = node.connect(client(1));
    let at = slab(&mut *link, 1).first().offset();

    let (mut done, end) = (Vec::new(), Instant::now() + 4 * lease);
    while Instant::now() < end {
        link.complete(&mut done, lease / 8).unwrap();
    }

    assert!(done.is_empty(), "signs of life are nobody's requests");
    assert_eq!(read(&mut *link, 2, at, 1), Ok(vec![0]));
}

#[test]
fn a_client_that_does_not_listen_is_not_served_and_others_are() {
    let node = TestNode::start(&Wanted::default());
    let mut socket = introduced(&node, client(1));
    let at = farmem_transport::Frame::new(0).offset();
    let grant = message(1, &Request::Grant { order: farmem_transport::Order::MOST, count: 1 });
    socket.write_all(&grant).unwrap();
    socket.set_nonblocking(true).unwrap();
    let read = message(2, &Request::Read { at, length_bytes: 1 << 20, buffer: Vec::new() });
    // Far more answers than a node keeps for anybody.
    for _ in 0..2000 {
        if socket.write_all(&read).is_err() {
            break;
        }
    }
    assert_serves(&node);
}

#[test]
fn who_leaves_gives_everything_back_at_once() {
    let node = TestNode::start(&Wanted::default());
    let mut demand = node.connect(ClientIdentity { space: 1, lane: 0 });
    let mut writes = node.connect(ClientIdentity { space: 1, lane: 1 });
    slab(&mut *writes, 1);
    assert_eq!(ask(&mut *demand, 1, Request::Leave).result, Ok(Answer::Left));

    let mut done = Vec::new();
    writes.submit(Ticket(2), Request::Renew, soon()).unwrap();
    assert!(matches!(writes.complete(&mut done, PATIENCE), Err(LinkError::Closed)));
    let mut other = node.connect(client(2));
    let Ok(Answer::Statistics(figures)) = ask(&mut *other, 1, Request::Statistics).result else { panic!() };
    assert_eq!((figures.free_frames, figures.clients), (1024, 1));
}

#[test]
fn an_answer_to_nothing_ends_the_link_and_what_was_asked_is_handed_back() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let liar = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut hello = [0; INTRODUCTION_BYTES];
        socket.read_exact(&mut hello).unwrap();
        let node = farmem_transport::NodeDescription {
            incarnation: farmem_transport::Incarnation(1),
            frames: 1,
            lease: LEASE,
            rack: None,
        };
        socket.write_all(&farmem_transport::wire::encode_welcome(Ok(node))).unwrap();
        let mut answer = Vec::new();
        farmem_transport::wire::encode_answer(Ticket(7), &Ok(Answer::Written), &mut answer);
        socket.write_all(&answer).unwrap();
        let _ = socket.read(&mut [0; 1]);
    });
    let to = Destination::Tcp { host: "127.0.0.1".to_owned(), port };
    let mut link: Box<dyn Transport> = connect(&to, client(1), &Security::Plain, PATIENCE).unwrap();
    link.submit(Ticket(6), Request::Renew, soon()).unwrap();
    let error = link.complete(&mut Vec::new(), PATIENCE).unwrap_err();
    assert!(matches!(error, LinkError::Garbage(_)), "{error}");
    assert_eq!(link.take_unanswered(), [(Ticket(6), Request::Renew)]);
    drop(link);
    liar.join().unwrap();
}

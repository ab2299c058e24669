//! A client of version 0.2.0 of Farmem at a node of this one. Its messages are written out here from
//! docs/formats/node.md, and not by this build's encoder.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;

use farmem_transport::Destination;
use support::{LEASE, PATIENCE, TestNode, Wanted};
use xxhash_rust::xxh3::xxh3_64;

/// The version of node messages that 0.2.0 speaks.
const VERSION: u8 = 1;
const PAGE: [u8; 16] = *b"sixteen bytes of";

fn check_word(of: &[&[u8]]) -> [u8; 4] {
    (xxh3_64(&of.concat()) as u32).to_le_bytes()
}

fn hello() -> [u8; 64] {
    let mut hello = [0; 64];
    hello[..8].copy_from_slice(b"farmem-n");
    hello[8] = VERSION;
    hello[16..32].copy_from_slice(&[0x5a; 16]);
    let word = check_word(&[&hello[..60]]);
    hello[60..].copy_from_slice(&word);
    hello
}

/// The check word is of the header, and of a body that is no content of frames.
fn header(kind: u8, ticket: u64, offset: u64, bytes: u32) -> [u8; 32] {
    let mut header = [0; 32];
    header[0] = kind;
    header[8..16].copy_from_slice(&ticket.to_le_bytes());
    header[16..24].copy_from_slice(&offset.to_le_bytes());
    header[24..28].copy_from_slice(&bytes.to_le_bytes());
    header
}

fn sealed(mut header: [u8; 32]) -> [u8; 32] {
    let word = check_word(&[&header[..28]]);
    header[28..].copy_from_slice(&word);
    header
}

/// An answer's body, once its header is as it must be.
fn answer(socket: &mut TcpStream, kind: u8, ticket: u64, is_content: bool) -> Vec<u8> {
    let mut header = [0; 32];
    socket.read_exact(&mut header).unwrap();
    assert_eq!((header[0], &header[8..16]), (kind | 0x80, &ticket.to_le_bytes()[..]));
    let mut body = vec![0; u32::from_le_bytes(header[4..8].try_into().unwrap()) as usize];
    socket.read_exact(&mut body).unwrap();
    let checked: &[&[u8]] = if is_content { &[&header[..28]] } else { &[&header[..28], &body] };
    assert_eq!(header[28..], check_word(checked));
    body
}

#[test]
fn a_client_of_version_0_2_0_stores_a_page_and_reads_it_back() {
    let node = TestNode::start(&Wanted { frames: 1024, rack: "row-1/a".parse().ok(), ..Wanted::default() });
    let Destination::Tcp { host, port } = &node.address else { panic!("{}", node.address) };
    let mut socket = TcpStream::connect((host.as_str(), *port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();

    socket.write_all(&hello()).unwrap();
    let mut welcome = [0; 64];
    socket.read_exact(&mut welcome).unwrap();
    assert_eq!(&welcome[..11], b"farmem-n\x01\0\0");
    assert_eq!(u128::from(u32::from_le_bytes(welcome[12..16].try_into().unwrap())), LEASE.as_millis());
    assert_eq!(u64::from_le_bytes(welcome[32..40].try_into().unwrap()), 1024);
    assert_eq!(welcome[60..], check_word(&[&welcome[..60]]));

    // A chunk of 64 frames.
    let mut grant = header(1, 1, 0, 0);
    (grant[1], grant[2]) = (6, 1);
    socket.write_all(&sealed(grant)).unwrap();
    let granted = answer(&mut socket, 1, 1, false);
    let offset = u64::from(u32::from_le_bytes(granted[..].try_into().unwrap())) * 4096;

    let mut write = header(4, 2, offset, 0);
    write[4] = PAGE.len() as u8;
    socket.write_all(&sealed(write)).unwrap();
    socket.write_all(&PAGE).unwrap();
    assert!(answer(&mut socket, 4, 2, false).is_empty());

    socket.write_all(&sealed(header(3, 3, offset, PAGE.len() as u32))).unwrap();
    assert_eq!(answer(&mut socket, 3, 3, true), PAGE);

    socket.write_all(&sealed(header(6, 4, 0, 0))).unwrap();
    let statistics = answer(&mut socket, 6, 4, false);
    assert_eq!(statistics.len(), 19 * 8);
    let word = |nth: usize| u64::from_le_bytes(statistics[8 * nth..][..8].try_into().unwrap());
    assert_eq!([word(0), word(1), word(2), word(3)], [1024, 1024 - 64, 1, 64]);

    socket.write_all(&sealed(header(7, 5, 0, 0))).unwrap();
    assert!(answer(&mut socket, 7, 5, false).is_empty());
}

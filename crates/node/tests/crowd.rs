//! As many clients as a large installation has: a thousand, each with as many links as a machine of two
//! processors makes.

mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use farmem_transport::wire::{
    HEADER_BYTES, INTRODUCTION_BYTES, decode_welcome, encode_hello, encode_request,
};
use farmem_transport::{ClientIdentity, Destination, Request, Ticket};
use support::{TestNode, Wanted, at_socket};

const CLIENTS: usize = 1000;
/// 2 × processors + 3.
const LINKS: u8 = 7;
/// Descriptors of a test that are not links.
const OTHER_DESCRIPTORS: u64 = 500;

fn enter(node: &TestNode, client: ClientIdentity) -> UnixStream {
    let Destination::Unix(path) = &node.address else { panic!("a socket") };
    let mut link = UnixStream::connect(path).unwrap();
    link.write_all(&encode_hello(client)).unwrap();
    let mut welcome = [0; INTRODUCTION_BYTES];
    link.read_exact(&mut welcome).unwrap();
    decode_welcome(&welcome).unwrap().expect("it is let in");
    link
}

fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default().to_owned()
}

#[test]
fn a_thousand_clients_of_two_processors_are_let_in_and_all_are_served() {
    farmem_sys::descriptors::allow_most();
    // Both ends are in this process.
    let most =
        farmem_sys::descriptors::most().map_or(u64::MAX, |most| most.saturating_sub(OTHER_DESCRIPTORS));
    let clients = CLIENTS.min((most / (2 * u64::from(LINKS))) as usize);
    assert!(clients > 0);
    let node = TestNode::start(&Wanted { listen: at_socket, ..Wanted::default() });
    let before = resident();
    let mut links = Vec::new();
    for client in 0..clients {
        for lane in 0..LINKS {
            links.push(enter(&node, ClientIdentity { space: client as u128 + 1, lane }));
        }
    }
    let mut sign = Vec::new();
    encode_request(Ticket(0), &Request::Renew, &mut sign);
    for _ in 0..3 {
        links.iter_mut().for_each(|link| link.write_all(&sign).unwrap());
        for link in &mut links {
            link.read_exact(&mut [0; HEADER_BYTES]).unwrap();
        }
    }
    eprintln!("{} links of {clients} clients; before: {before}, now: {}", links.len(), resident());
}

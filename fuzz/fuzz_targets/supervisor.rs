//! Whatever comes to a supervisor or a pager is a packet or is refused: no panic. What was understood is
//! encoded to a packet that means the same.
#![no_main]

use farmem_wire::{Address, PACKET_BYTES, Reply, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(address) = Address::parse(bytes) {
        // What is written of an odd name is escaped, and so another name.
        let is_plain = address.name.iter().all(|byte| byte.is_ascii_graphic() && !b"\\'\"".contains(byte));
        if is_plain {
            let text = address.to_string();
            assert_eq!(Address::parse(text.as_bytes()), Some(address));
        }
    }
    understood(bytes);
    // The fuzzer doesn't guess the version: give it the right one.
    if let Ok(mut packet) = <[u8; PACKET_BYTES]>::try_from(bytes) {
        packet[4..8].copy_from_slice(&Request::Register.encode()[4..8]);
        understood(&packet);
    }
});

fn understood(packet: &[u8]) {
    let (request, reply) = (Request::decode(packet), Reply::decode(packet));
    assert!(request.is_none() || reply.is_none(), "a packet is from one side alone");
    if let Some(request) = request {
        assert_eq!(Request::decode(&request.encode()), Some(request));
    }
    if let Some(reply) = reply {
        assert_eq!(Reply::decode(&reply.encode()), Some(reply));
    }
}

//! Whatever comes over a connection is a message or is refused: no panic, and nothing out of its range. What
//! was understood is encoded to the same bytes again.
#![no_main]

use farmem_transport::wire::{
    HEADER_BYTES, Header, Heard, INTRODUCTION_BYTES, decode_answer, decode_hello, decode_request,
    decode_welcome, encode_hello, encode_request, encode_welcome,
};
use farmem_transport::{Endpoint, MOST_CHUNKS, MOST_TRANSFER_BYTES, Order, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(introduction) = bytes.first_chunk::<INTRODUCTION_BYTES>() {
        if let Ok(client) = decode_hello(introduction) {
            assert_eq!(decode_hello(&encode_hello(client)), Ok(client));
        }
        if let Ok(answer) = decode_welcome(introduction) {
            assert_eq!(decode_welcome(&encode_welcome(answer)), Ok(answer));
        }
    }
    let Some((first, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return };
    // The fuzzer doesn't guess a check word: give it the right one half of the time.
    let mut mended = *first;
    let body_bytes = u32::from_le_bytes([first[4], first[5], first[6], first[7]]) as usize;
    if let Some(body) = rest.get(..body_bytes) {
        let content = if first[0] == 4 || first[0] == 0x83 { &[] } else { body };
        let mut hash = xxhash_rust::xxh3::Xxh3Default::new();
        hash.update(&first[..28]);
        hash.update(content);
        mended[28..].copy_from_slice(&(hash.digest() as u32).to_le_bytes());
    }
    for first in [first, &mended] {
        let Ok(header) = Header::decode(first) else { continue };
        let Some(body) = rest.get(..header.body_bytes()) else { continue };
        if let Ok(heard) = decode_request(&header, body) {
            again(&header, &heard);
        }
        for mut request in asked() {
            let _ = decode_answer(&header, body, &mut request);
        }
    }
});

/// What was heard is a request that a client can make, and comes to the same when it is.
fn again(header: &Header, heard: &Heard<'_>) {
    let request = match heard.clone() {
        Heard::Grant { order, count } => Request::Grant { order, count },
        Heard::Release(chunks) => {
            assert!(chunks.len() <= MOST_CHUNKS);
            Request::Release { chunks }
        }
        Heard::Read { at, length_bytes } => Request::Read { at, length_bytes, buffer: Vec::new() },
        Heard::Write { at, data } => {
            assert!(data.len() <= MOST_TRANSFER_BYTES);
            Request::Write { at, data: data.to_vec() }
        }
        Heard::Renew => Request::Renew,
        Heard::Statistics => Request::Statistics,
        Heard::Leave => Request::Leave,
        Heard::Attach { endpoint } => Request::Attach { endpoint },
        Heard::Keys { at, length_bytes } => Request::Keys { at, length_bytes },
    };
    assert!(!request.is_malformed());
    let mut message = Vec::new();
    encode_request(header.ticket(), &request, &mut message);
    let (first, body) = message.split_first_chunk().expect("a message has a header");
    let header = Header::decode(first).expect("what was encoded is decoded");
    assert_eq!(decode_request(&header, body).as_ref(), Ok(heard));
}

/// Requests that an answer may belong to.
fn asked() -> [Request; 7] {
    let at = farmem_transport::RegionOffset::new(4096);
    [
        Request::Grant { order: Order::SLAB, count: 3 },
        Request::Read { at, length_bytes: 8, buffer: Vec::new() },
        Request::Write { at, data: vec![1] },
        Request::Statistics,
        Request::Leave,
        Request::Keys { at, length_bytes: 8192 },
        Request::Attach {
            endpoint: Endpoint { gid: [0; 16], lid: 0, number: 0, sequence: 0, mtu: 1, reads: 1 },
        },
    ]
}

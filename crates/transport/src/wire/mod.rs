//! The protocol's bytes; docs/formats/node.md describes them. Nothing here reads or writes a socket, and
//! nothing that a peer sent is used before it was checked: lengths against their bounds, numbers against
//! their ranges, and the header against its check word.

mod answer;
mod header;
mod introduction;
mod rdma;
mod request;
mod statistics;
#[cfg(test)]
mod tests;

use xxhash_rust::xxh3::Xxh3Default;

pub use self::answer::{brings_buffer, decode_answer, encode_answer, encode_read_answer};
pub use self::header::{HEADER_BYTES, Header};
pub use self::introduction::{
    INTRODUCTION_BYTES, TurnedAway, decode_hello, decode_welcome, encode_hello, encode_welcome,
};
pub use self::request::{Heard, decode_request, encode_request, encode_write};
use crate::MOST_TRANSFER_BYTES;

/// The longest body.
pub const MOST_BODY_BYTES: usize = MOST_TRANSFER_BYTES;

/// What came is no message of this protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// The introduction doesn't begin as one.
    #[error("it does not begin as an introduction does")]
    Magic,
    /// The check word is not that of the bytes.
    #[error("its check word is wrong")]
    Check,
    /// The peer speaks another version.
    #[error("it is of version {0} of the protocol")]
    Version(u16),
    /// There is no such kind of message, or it has no place there.
    #[error("its kind is unknown or has no place there")]
    Kind,
    /// The body is longer or shorter than the message says or may be.
    #[error("its length is wrong")]
    Length,
    /// A number is out of its range.
    #[error("a number in it is out of range")]
    Range,
}

/// Little-endian numbers at fixed places. Only called with places inside the array.
fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

/// The check word of some bytes, one part after the other.
fn check(parts: &[&[u8]]) -> [u8; 4] {
    let mut hash = Xxh3Default::new();
    parts.iter().for_each(|part| hash.update(part));
    (hash.digest() as u32).to_le_bytes()
}

//! What two peers say first: who they are, or why not.

use std::time::Duration;

use super::{Malformed, check, number, put};
use crate::request::VERSION;
use crate::{ClientIdentity, Incarnation, MOST_RACK_BYTES, NodeDescription, Rack};

/// Bytes that a client introduces itself by, and bytes that a node answers that by.
pub const INTRODUCTION_BYTES: usize = 64;

const MAGIC: [u8; 8] = *b"farmem-n";
/// Where a welcome names a rack, and where its check word is.
const RACK_AT: usize = 40;
const CHECK_AT: usize = 60;
const _: () = assert!(RACK_AT + MOST_RACK_BYTES <= CHECK_AT, "a name fits");

/// Why a node doesn't let a client in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TurnedAway {
    /// It speaks another version.
    #[error("it speaks another version of the protocol")]
    Version,
    /// It has as many clients as it can have.
    #[error("it has too many clients")]
    Crowded,
    /// Somebody else, by another certificate, has that identity.
    #[error("the identity belongs to somebody else")]
    Identity,
    /// It is about to end.
    #[error("it is about to end")]
    Draining,
}

impl TurnedAway {
    pub(super) const ALL: [Self; 4] = [Self::Version, Self::Crowded, Self::Identity, Self::Draining];

    /// The same as a sentence that lives for ever.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Version => "it speaks another version of the protocol",
            Self::Crowded => "it has too many clients",
            Self::Identity => "the identity belongs to somebody else",
            Self::Draining => "it is about to end",
        }
    }
}

fn introduction(fill: impl FnOnce(&mut [u8; INTRODUCTION_BYTES])) -> [u8; INTRODUCTION_BYTES] {
    let mut bytes = [0; INTRODUCTION_BYTES];
    put(&mut bytes, 0, &MAGIC);
    put(&mut bytes, 8, &VERSION.to_le_bytes());
    fill(&mut bytes);
    let word = check(&[&bytes[..CHECK_AT]]);
    put(&mut bytes, CHECK_AT, &word);
    bytes
}

/// The version that an introduction speaks, if it is one.
fn introduced(bytes: &[u8; INTRODUCTION_BYTES]) -> Result<u16, Malformed> {
    if bytes[..8] != MAGIC {
        return Err(Malformed::Magic);
    }
    if bytes[CHECK_AT..] != check(&[&bytes[..CHECK_AT]]) {
        return Err(Malformed::Check);
    }
    Ok(u16::from_le_bytes(number(bytes, 8)))
}

/// What a client says first.
pub fn encode_hello(client: ClientIdentity) -> [u8; INTRODUCTION_BYTES] {
    introduction(|bytes| {
        bytes[10] = client.lane;
        put(bytes, 16, &client.space.to_le_bytes());
    })
}

/// The identity that a client claims.
///
/// # Errors
/// It says something else.
pub fn decode_hello(bytes: &[u8; INTRODUCTION_BYTES]) -> Result<ClientIdentity, Malformed> {
    match introduced(bytes)? {
        VERSION => {}
        other => return Err(Malformed::Version(other)),
    }
    Ok(ClientIdentity { space: u128::from_le_bytes(number(bytes, 16)), lane: bytes[10] })
}

/// What a node answers to that: who it is, or why not.
pub fn encode_welcome(answer: Result<NodeDescription, TurnedAway>) -> [u8; INTRODUCTION_BYTES] {
    introduction(|bytes| match answer {
        Ok(node) => {
            put(bytes, 12, &(node.lease.as_millis().min(u128::from(u32::MAX)) as u32).to_le_bytes());
            put(bytes, 16, &node.incarnation.0.to_le_bytes());
            put(bytes, 32, &node.frames.to_le_bytes());
            put(bytes, RACK_AT, &Rack::encode(node.rack));
        }
        Err(why) => {
            bytes[10] = TurnedAway::ALL.iter().position(|other| *other == why).map_or(0, |at| at as u8 + 1)
        }
    })
}

/// The identity that a node claims, or why it doesn't let the client in.
///
/// # Errors
/// It says something else.
pub fn decode_welcome(
    bytes: &[u8; INTRODUCTION_BYTES],
) -> Result<Result<NodeDescription, TurnedAway>, Malformed> {
    let version = introduced(bytes)?;
    if version != VERSION {
        return Err(Malformed::Version(version));
    }
    if let Some(reason) = bytes[10].checked_sub(1) {
        return TurnedAway::ALL.get(usize::from(reason)).map(|why| Err(*why)).ok_or(Malformed::Range);
    }
    let lease_ms = u32::from_le_bytes(number(bytes, 12));
    let frames = u64::from_le_bytes(number(bytes, 32));
    if lease_ms == 0 || frames > 1 << 32 {
        return Err(Malformed::Range);
    }
    Ok(Ok(NodeDescription {
        incarnation: Incarnation(u128::from_le_bytes(number(bytes, 16))),
        frames,
        lease: Duration::from_millis(lease_ms.into()),
        rack: Rack::decode(number(bytes, RACK_AT)).map_err(|_| Malformed::Range)?,
    }))
}

//! What a client and a node tell each other so that their RDMA devices can do without them: ends of
//! connections, a mailbox, and keys.

use super::{Malformed, number, put};
use crate::{
    Answer, Endpoint, FRAME_BYTES, Frame, MAIL_BYTES, MOST_TRANSFER_BYTES, Mailbox, RegionOffset, RemoteKey,
};

/// Bytes of one end of a connection between RDMA devices.
const ENDPOINT_BYTES: usize = 28;
/// The same, and where a lane's mailbox is.
const ATTACHED_BYTES: usize = ENDPOINT_BYTES + 12;
/// Bytes of a key, and most keys in an answer: one for each slab that a transfer lies in, and as many again
/// where slabs are granted in parts.
const KEY_BYTES: usize = 24;
const MOST_KEYS: usize = 1 + MOST_TRANSFER_BYTES / FRAME_BYTES;

pub(super) fn endpoint_bytes(endpoint: &Endpoint) -> [u8; ENDPOINT_BYTES] {
    let mut bytes = [0; ENDPOINT_BYTES];
    put(&mut bytes, 0, &endpoint.gid);
    put(&mut bytes, 16, &endpoint.number.to_le_bytes());
    put(&mut bytes, 20, &endpoint.sequence.to_le_bytes());
    put(&mut bytes, 24, &endpoint.lid.to_le_bytes());
    put(&mut bytes, 26, &[endpoint.mtu, endpoint.reads]);
    bytes
}

pub(super) fn endpoint_of(body: &[u8]) -> Result<Endpoint, Malformed> {
    let body: &[u8; ENDPOINT_BYTES] = body.try_into().map_err(|_| Malformed::Length)?;
    let endpoint = Endpoint {
        gid: number(body, 0),
        number: u32::from_le_bytes(number(body, 16)),
        sequence: u32::from_le_bytes(number(body, 20)),
        lid: u16::from_le_bytes(number(body, 24)),
        mtu: body[26],
        reads: body[27],
    };
    let is_whole = endpoint.number < 1 << 24 && endpoint.sequence < 1 << 24;
    if !is_whole || !(1..=5).contains(&endpoint.mtu) || endpoint.reads == 0 {
        return Err(Malformed::Range);
    }
    Ok(endpoint)
}

pub(super) fn attached_bytes(endpoint: &Endpoint, mailbox: &Mailbox) -> [u8; ATTACHED_BYTES] {
    let mut bytes = [0; ATTACHED_BYTES];
    put(&mut bytes, 0, &endpoint_bytes(endpoint));
    put(&mut bytes, ENDPOINT_BYTES, &mailbox.key.to_le_bytes());
    put(&mut bytes, ENDPOINT_BYTES + 4, &mailbox.address.to_le_bytes());
    bytes
}

pub(super) fn attached(body: &[u8]) -> Result<Answer, Malformed> {
    let body: &[u8; ATTACHED_BYTES] = body.try_into().map_err(|_| Malformed::Length)?;
    let mailbox = Mailbox {
        key: u32::from_le_bytes(number(body, ENDPOINT_BYTES)),
        address: u64::from_le_bytes(number(body, ENDPOINT_BYTES + 4)),
    };
    if mailbox.address.checked_add(MAIL_BYTES as u64).is_none() {
        return Err(Malformed::Range);
    }
    Ok(Answer::Attached { endpoint: endpoint_of(&body[..ENDPOINT_BYTES])?, mailbox })
}

pub(super) fn keys_bytes(keys: &[RemoteKey]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(keys.len() * KEY_BYTES);
    for key in keys {
        bytes.extend_from_slice(&key.first.get().to_le_bytes());
        bytes.extend_from_slice(&key.frames.to_le_bytes());
        bytes.extend_from_slice(&key.address.to_le_bytes());
        bytes.extend_from_slice(&key.key.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
    }
    bytes
}

/// Keys that cover all that was asked for, without a gap.
pub(super) fn keys_of(body: &[u8], at: RegionOffset, length_bytes: u32) -> Result<Answer, Malformed> {
    let (parts, rest) = body.as_chunks::<KEY_BYTES>();
    let wanted = at.frames(length_bytes as usize).ok_or(Malformed::Range)?;
    if !rest.is_empty() || parts.len() > MOST_KEYS {
        return Err(Malformed::Length);
    }
    let (mut keys, mut next) = (Vec::with_capacity(parts.len()), wanted.start);
    for part in parts {
        let key = RemoteKey {
            first: Frame::new(u32::from_le_bytes(number(part, 0))),
            frames: u32::from_le_bytes(number(part, 4)),
            address: u64::from_le_bytes(number(part, 8)),
            key: u32::from_le_bytes(number(part, 16)),
        };
        let end = u64::from(key.first.get()) + u64::from(key.frames);
        let is_next = u64::from(key.first.get()) <= next && end > next && next < wanted.end;
        let length = u64::from(key.frames) * FRAME_BYTES as u64;
        if !is_next || key.address.checked_add(length).is_none() {
            return Err(Malformed::Range);
        }
        next = end;
        keys.push(key);
    }
    if next < wanted.end { Err(Malformed::Range) } else { Ok(Answer::Keys(keys)) }
}

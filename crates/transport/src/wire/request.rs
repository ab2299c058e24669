//! Requests, as a client writes them and a node hears them.

use super::header::{Header, kind};
use super::rdma::{endpoint_bytes, endpoint_of};
use super::{MOST_BODY_BYTES, Malformed, number};
use crate::{Chunk, Endpoint, Frame, MOST_CHUNKS, MOST_TRANSFER_BYTES, Order, RegionOffset, Request, Ticket};

/// Bytes of a chunk in a release.
const CHUNK_BYTES: usize = 8;

const _: () = assert!(MOST_CHUNKS * CHUNK_BYTES <= MOST_BODY_BYTES, "the longest list fits into a body");

/// A request as a node hears it: what it brings stays where it was received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard<'a> {
    /// See [`Request::Grant`].
    Grant {
        /// The order of the chunks.
        order: Order,
        /// How many.
        count: u16,
    },
    /// See [`Request::Release`].
    Release(Vec<Chunk>),
    /// See [`Request::Read`].
    Read {
        /// Where the bytes begin.
        at: RegionOffset,
        /// How many.
        length_bytes: u32,
    },
    /// See [`Request::Write`].
    Write {
        /// Where the bytes begin.
        at: RegionOffset,
        /// They.
        data: &'a [u8],
    },
    /// See [`Request::Renew`].
    Renew,
    /// See [`Request::Statistics`].
    Statistics,
    /// See [`Request::Leave`].
    Leave,
    /// See [`Request::Attach`].
    Attach {
        /// The client's end.
        endpoint: Endpoint,
    },
    /// See [`Request::Keys`].
    Keys {
        /// Where the frames begin.
        at: RegionOffset,
        /// How many bytes.
        length_bytes: u32,
    },
}

impl Heard<'_> {
    /// Whether it changes something on the node, so that its repetition must not be carried out.
    pub fn is_change(&self) -> bool {
        matches!(self, Self::Grant { .. } | Self::Release(_) | Self::Write { .. } | Self::Leave)
    }
}

/// Appends a request's message.
pub fn encode_request(ticket: Ticket, request: &Request, to: &mut Vec<u8>) {
    match request {
        Request::Grant { order, count } => {
            Header { order: order.get(), count: *count, ..Header::new(kind::GRANT, ticket) }.append(&[], to);
        }
        Request::Release { chunks } => {
            let mut body = Vec::with_capacity(chunks.len() * CHUNK_BYTES);
            for chunk in chunks {
                body.extend_from_slice(&chunk.first().get().to_le_bytes());
                body.extend_from_slice(&[chunk.order().get(), 0, 0, 0]);
            }
            Header::new(kind::RELEASE, ticket).append(&body, to);
            to.extend_from_slice(&body);
        }
        Request::Read { at, length_bytes, .. } => {
            Header { at: at.get(), length: *length_bytes, ..Header::new(kind::READ, ticket) }.append(&[], to);
        }
        Request::Write { at, data } => {
            encode_write(ticket, *at, data, to);
            to.extend_from_slice(data);
        }
        Request::Renew => Header::new(kind::RENEW, ticket).append(&[], to),
        Request::Statistics => Header::new(kind::STATISTICS, ticket).append(&[], to),
        Request::Leave => Header::new(kind::LEAVE, ticket).append(&[], to),
        Request::Attach { endpoint } => {
            let body = endpoint_bytes(endpoint);
            Header::new(kind::ATTACH, ticket).append(&body, to);
            to.extend_from_slice(&body);
        }
        Request::Keys { at, length_bytes } => {
            Header { at: at.get(), length: *length_bytes, ..Header::new(kind::KEYS, ticket) }.append(&[], to);
        }
    }
}

/// Appends the message of a write, up to where its content begins; the caller sends that.
pub fn encode_write(ticket: Ticket, at: RegionOffset, content: &[u8], to: &mut Vec<u8>) {
    Header { at: at.get(), ..Header::new(kind::WRITE, ticket) }.append(content, to);
}

/// The request of a message.
///
/// # Errors
/// It is none, or one that no client may send.
pub fn decode_request<'a>(header: &Header, body: &'a [u8]) -> Result<Heard<'a>, Malformed> {
    header.verify(body)?;
    let at = RegionOffset::new(header.at);
    let is_possible = |length: usize| length <= MOST_TRANSFER_BYTES && at.frames(length).is_some();
    let has_body = matches!(header.kind, kind::WRITE | kind::RELEASE | kind::ATTACH);
    if !has_body && !body.is_empty() {
        return Err(Malformed::Length);
    }
    Ok(match header.kind {
        kind::GRANT => Heard::Grant {
            order: Order::new(header.order).ok_or(Malformed::Range)?,
            count: Some(header.count)
                .filter(|count| (1..=MOST_CHUNKS).contains(&usize::from(*count)))
                .ok_or(Malformed::Range)?,
        },
        kind::RELEASE => Heard::Release(chunks_of(body)?),
        kind::READ if is_possible(header.length as usize) => Heard::Read { at, length_bytes: header.length },
        kind::WRITE if is_possible(body.len()) => Heard::Write { at, data: body },
        kind::KEYS if is_possible(header.length as usize) => Heard::Keys { at, length_bytes: header.length },
        kind::READ | kind::WRITE | kind::KEYS => return Err(Malformed::Range),
        kind::RENEW => Heard::Renew,
        kind::STATISTICS => Heard::Statistics,
        kind::LEAVE => Heard::Leave,
        kind::ATTACH => Heard::Attach { endpoint: endpoint_of(body)? },
        _ => return Err(Malformed::Kind),
    })
}

fn chunks_of(body: &[u8]) -> Result<Vec<Chunk>, Malformed> {
    let (chunks, rest) = body.as_chunks::<CHUNK_BYTES>();
    if !rest.is_empty() || !(1..=MOST_CHUNKS).contains(&chunks.len()) {
        return Err(Malformed::Length);
    }
    let chunk = |bytes: &[u8; CHUNK_BYTES]| {
        let order = Order::new(bytes[4]).filter(|_| bytes[5..] == [0; 3])?;
        Chunk::new(Frame::new(u32::from_le_bytes(number(bytes, 0))), order)
    };
    chunks.iter().map(|bytes| chunk(bytes).ok_or(Malformed::Range)).collect()
}

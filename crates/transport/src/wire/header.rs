//! What every message begins with.

use super::{MOST_BODY_BYTES, Malformed, check, number, put};
use crate::Ticket;

/// Bytes before the body of each message.
pub const HEADER_BYTES: usize = 32;
/// Bit 7 of an answer's kind.
pub(super) const ANSWER: u8 = 0x80;
pub(super) const REFUSED: u8 = 0xff;

/// What a message asks for, or answers.
pub(super) mod kind {
    pub(in crate::wire) const GRANT: u8 = 1;
    pub(in crate::wire) const RELEASE: u8 = 2;
    pub(in crate::wire) const READ: u8 = 3;
    pub(in crate::wire) const WRITE: u8 = 4;
    pub(in crate::wire) const RENEW: u8 = 5;
    pub(in crate::wire) const STATISTICS: u8 = 6;
    pub(in crate::wire) const LEAVE: u8 = 7;
    pub(in crate::wire) const ATTACH: u8 = 8;
    pub(in crate::wire) const KEYS: u8 = 9;
}

/// The first bytes of a message. Which fields mean something depends on the kind; the others are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub(super) kind: u8,
    pub(super) order: u8,
    pub(super) count: u16,
    pub(super) body_bytes: u32,
    pub(super) ticket: u64,
    pub(super) at: u64,
    pub(super) length: u32,
    pub(super) check: [u8; 4],
}

impl Header {
    pub(super) const fn new(kind: u8, ticket: Ticket) -> Self {
        Self { kind, order: 0, count: 0, body_bytes: 0, ticket: ticket.0, at: 0, length: 0, check: [0; 4] }
    }

    /// Takes the header apart, and sees that its body has a length that a body can have. The rest is checked
    /// with the body.
    ///
    /// # Errors
    /// The body is too long.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Malformed> {
        let header = Self {
            kind: bytes[0],
            order: bytes[1],
            count: u16::from_le_bytes(number(bytes, 2)),
            body_bytes: u32::from_le_bytes(number(bytes, 4)),
            ticket: u64::from_le_bytes(number(bytes, 8)),
            at: u64::from_le_bytes(number(bytes, 16)),
            length: u32::from_le_bytes(number(bytes, 24)),
            check: number(bytes, 28),
        };
        if header.body_bytes() > MOST_BODY_BYTES {
            return Err(Malformed::Length);
        }
        if header.is_content() && header.check != check(&[&header.plain()]) {
            return Err(Malformed::Check);
        }
        Ok(header)
    }

    /// How many bytes follow it, at most [`MOST_BODY_BYTES`].
    pub fn body_bytes(&self) -> usize {
        self.body_bytes as usize
    }

    /// The request that it belongs to, or is.
    pub fn ticket(&self) -> Ticket {
        Ticket(self.ticket)
    }

    /// Whether the body is the content of frames, which whoever reads it checks by its own fingerprints: then
    /// the check word is the header's alone.
    fn is_content(&self) -> bool {
        self.kind == kind::WRITE || self.kind == kind::READ | ANSWER
    }

    /// All but the check word.
    pub(super) fn plain(&self) -> [u8; HEADER_BYTES - 4] {
        let mut bytes = [0; HEADER_BYTES - 4];
        bytes[0] = self.kind;
        bytes[1] = self.order;
        put(&mut bytes, 2, &self.count.to_le_bytes());
        put(&mut bytes, 4, &self.body_bytes.to_le_bytes());
        put(&mut bytes, 8, &self.ticket.to_le_bytes());
        put(&mut bytes, 16, &self.at.to_le_bytes());
        put(&mut bytes, 24, &self.length.to_le_bytes());
        bytes
    }

    /// Appends the header, with the length and check word of `body`, which the caller appends.
    pub(super) fn append(mut self, body: &[u8], to: &mut Vec<u8>) {
        self.body_bytes = body.len() as u32;
        let plain = self.plain();
        let body = if self.is_content() { &[] } else { body };
        to.extend_from_slice(&plain);
        to.extend_from_slice(&check(&[&plain, body]));
    }

    pub(super) fn verify(&self, body: &[u8]) -> Result<(), Malformed> {
        if body.len() != self.body_bytes() {
            return Err(Malformed::Length);
        }
        if !self.is_content() && self.check != check(&[&self.plain(), body]) {
            return Err(Malformed::Check);
        }
        Ok(())
    }
}

//! The protocol's bytes; docs/formats/node.md describes them. Nothing here reads or writes a socket, and nothing that a peer sent is used before
//! it was checked: lengths against their bounds, numbers against their ranges, and the header against its check word.

use std::time::Duration;

use xxhash_rust::xxh3::Xxh3Default;

use crate::request::VERSION;
use crate::{
    Answer, Chunk, ClientIdentity, Endpoint, FRAME_BYTES, Frame, Incarnation, MAIL_BYTES, MOST_CHUNKS,
    MOST_ORDER, MOST_TRANSFER_BYTES, Mailbox, NodeDescription, NodeStatistics, Order, Refusal, RegionOffset,
    RemoteKey, Request, Ticket,
};

/// Bytes that a client introduces itself by, and bytes that a node answers that by.
pub const INTRODUCTION_BYTES: usize = 64;
/// Bytes before the body of each message.
pub const HEADER_BYTES: usize = 32;
/// Bytes of a chunk in a release.
const CHUNK_BYTES: usize = 8;
/// Bytes of a frame's number in an answer to a grant.
const FRAME_NUMBER_BYTES: usize = 4;
/// Bytes of a node's figures.
const STATISTICS_BYTES: usize = 8 * STATISTICS_WORDS;
const STATISTICS_WORDS: usize = 8 + MOST_ORDER as usize + 1;
/// Bytes of one end of a connection between RDMA devices.
const ENDPOINT_BYTES: usize = 28;
/// The same, and where a lane's mailbox is.
const ATTACHED_BYTES: usize = ENDPOINT_BYTES + 12;
/// Bytes of a key, and most keys in an answer: one for each slab that a transfer lies in, and as many again where slabs are granted in parts.
const KEY_BYTES: usize = 24;
const MOST_KEYS: usize = 1 + MOST_TRANSFER_BYTES / FRAME_BYTES;
/// The longest body.
pub const MOST_BODY_BYTES: usize = MOST_TRANSFER_BYTES;

const _: () = assert!(MOST_CHUNKS * CHUNK_BYTES <= MOST_BODY_BYTES, "the longest list fits into a body");

const MAGIC: [u8; 8] = *b"farmem-n";
/// Bit 7 of an answer's kind.
const ANSWER: u8 = 0x80;
const REFUSED: u8 = 0xff;

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
    const ALL: [Self; 4] = [Self::Version, Self::Crowded, Self::Identity, Self::Draining];

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

fn introduction(fill: impl FnOnce(&mut [u8; INTRODUCTION_BYTES])) -> [u8; INTRODUCTION_BYTES] {
    let mut bytes = [0; INTRODUCTION_BYTES];
    put(&mut bytes, 0, &MAGIC);
    put(&mut bytes, 8, &VERSION.to_le_bytes());
    fill(&mut bytes);
    let word = check(&[&bytes[..60]]);
    put(&mut bytes, 60, &word);
    bytes
}

/// The version that an introduction speaks, if it is one.
fn introduced(bytes: &[u8; INTRODUCTION_BYTES]) -> Result<u16, Malformed> {
    if bytes[..8] != MAGIC {
        return Err(Malformed::Magic);
    }
    if bytes[60..] != check(&[&bytes[..60]]) {
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

/// Who a client says that it is.
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
        }
        Err(why) => {
            bytes[10] = TurnedAway::ALL.iter().position(|other| *other == why).map_or(0, |at| at as u8 + 1)
        }
    })
}

/// Who a node says that it is, or why it doesn't let the client in.
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
    }))
}

/// The first bytes of a message. Which fields mean something depends on the kind; the others are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    kind: u8,
    order: u8,
    count: u16,
    body_bytes: u32,
    ticket: u64,
    at: u64,
    length: u32,
    check: [u8; 4],
}

impl Header {
    const fn new(kind: u8, ticket: Ticket) -> Self {
        Self { kind, order: 0, count: 0, body_bytes: 0, ticket: ticket.0, at: 0, length: 0, check: [0; 4] }
    }

    /// Takes the header apart, and sees that its body has a length that a body can have. The rest is checked with the body.
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

    /// Whether the body is the content of frames, which whoever reads it checks by its own fingerprints: then the check word is the header's alone.
    fn is_content(&self) -> bool {
        self.kind == kind::WRITE || self.kind == kind::READ | ANSWER
    }

    /// All but the check word.
    fn plain(&self) -> [u8; HEADER_BYTES - 4] {
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
    fn append(mut self, body: &[u8], to: &mut Vec<u8>) {
        self.body_bytes = body.len() as u32;
        let plain = self.plain();
        let body = if self.is_content() { &[] } else { body };
        to.extend_from_slice(&plain);
        to.extend_from_slice(&check(&[&plain, body]));
    }

    fn verify(&self, body: &[u8]) -> Result<(), Malformed> {
        if body.len() != self.body_bytes() {
            return Err(Malformed::Length);
        }
        if !self.is_content() && self.check != check(&[&self.plain(), body]) {
            return Err(Malformed::Check);
        }
        Ok(())
    }
}

mod kind {
    pub(super) const GRANT: u8 = 1;
    pub(super) const RELEASE: u8 = 2;
    pub(super) const READ: u8 = 3;
    pub(super) const WRITE: u8 = 4;
    pub(super) const RENEW: u8 = 5;
    pub(super) const STATISTICS: u8 = 6;
    pub(super) const LEAVE: u8 = 7;
    pub(super) const ATTACH: u8 = 8;
    pub(super) const KEYS: u8 = 9;
}

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
            Header { at: at.get(), ..Header::new(kind::WRITE, ticket) }.append(data, to);
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

fn endpoint_bytes(endpoint: &Endpoint) -> [u8; ENDPOINT_BYTES] {
    let mut bytes = [0; ENDPOINT_BYTES];
    put(&mut bytes, 0, &endpoint.gid);
    put(&mut bytes, 16, &endpoint.number.to_le_bytes());
    put(&mut bytes, 20, &endpoint.sequence.to_le_bytes());
    put(&mut bytes, 24, &endpoint.lid.to_le_bytes());
    put(&mut bytes, 26, &[endpoint.mtu, endpoint.reads]);
    bytes
}

fn endpoint_of(body: &[u8]) -> Result<Endpoint, Malformed> {
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

fn attached(body: &[u8]) -> Result<Answer, Malformed> {
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

fn keys_bytes(keys: &[RemoteKey]) -> Vec<u8> {
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
fn keys_of(body: &[u8], at: RegionOffset, length_bytes: u32) -> Result<Answer, Malformed> {
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

/// Appends the message that answers a read, up to where its `length_bytes` bytes begin; the caller appends these.
pub fn encode_read_answer(ticket: Ticket, length_bytes: u32, to: &mut Vec<u8>) {
    let header = Header { body_bytes: length_bytes, ..Header::new(kind::READ | ANSWER, ticket) };
    let plain = header.plain();
    to.extend_from_slice(&plain);
    to.extend_from_slice(&check(&[&plain]));
}

/// Appends the message of any other answer.
pub fn encode_answer(ticket: Ticket, result: &Result<Answer, Refusal>, to: &mut Vec<u8>) {
    let plain = |kind| Header::new(kind | ANSWER, ticket);
    match result {
        Ok(Answer::Granted(frames)) => {
            let body: Vec<u8> = frames.iter().flat_map(|frame| frame.get().to_le_bytes()).collect();
            plain(kind::GRANT).append(&body, to);
            to.extend_from_slice(&body);
        }
        Ok(Answer::Released) => plain(kind::RELEASE).append(&[], to),
        // Without its bytes there is nothing to say; `encode_read_answer` is meant.
        Ok(Answer::Read) => encode_read_answer(ticket, 0, to),
        Ok(Answer::Written) => plain(kind::WRITE).append(&[], to),
        Ok(Answer::Renewed) => plain(kind::RENEW).append(&[], to),
        Ok(Answer::Statistics(figures)) => {
            let body: Vec<u8> = words_of(figures).iter().flat_map(|word| word.to_le_bytes()).collect();
            plain(kind::STATISTICS).append(&body, to);
            to.extend_from_slice(&body);
        }
        Ok(Answer::Left) => plain(kind::LEAVE).append(&[], to),
        Ok(Answer::Attached { endpoint, mailbox }) => {
            let mut body = [0; ATTACHED_BYTES];
            put(&mut body, 0, &endpoint_bytes(endpoint));
            put(&mut body, ENDPOINT_BYTES, &mailbox.key.to_le_bytes());
            put(&mut body, ENDPOINT_BYTES + 4, &mailbox.address.to_le_bytes());
            plain(kind::ATTACH).append(&body, to);
            to.extend_from_slice(&body);
        }
        Ok(Answer::Keys(keys)) => {
            let body = keys_bytes(keys);
            plain(kind::KEYS).append(&body, to);
            to.extend_from_slice(&body);
        }
        Err(refusal) => Header { order: reason_of(*refusal), ..plain(REFUSED) }.append(&[], to),
    }
}

/// The answer to `request`, from its message. The bytes of a read go to the request's buffer.
///
/// # Errors
/// It is none, or doesn't answer that request.
pub fn decode_answer(
    header: &Header,
    body: &[u8],
    request: &mut Request,
) -> Result<Result<Answer, Refusal>, Malformed> {
    header.verify(body)?;
    if header.kind == REFUSED {
        let refusal = refusal_of(header.order).ok_or(Malformed::Range)?;
        return if body.is_empty() { Ok(Err(refusal)) } else { Err(Malformed::Length) };
    }
    let is = |kind: u8| header.kind == kind | ANSWER;
    let empty = |answer: Answer| if body.is_empty() { Ok(answer) } else { Err(Malformed::Length) };
    Ok(Ok(match request {
        Request::Grant { order, count } if is(kind::GRANT) => granted(body, *order, *count)?,
        Request::Release { .. } if is(kind::RELEASE) => empty(Answer::Released)?,
        Request::Read { length_bytes, buffer, .. } if is(kind::READ) => {
            if body.len() != *length_bytes as usize {
                return Err(Malformed::Length);
            }
            buffer.clear();
            buffer.extend_from_slice(body);
            Answer::Read
        }
        Request::Write { .. } if is(kind::WRITE) => empty(Answer::Written)?,
        Request::Renew if is(kind::RENEW) => empty(Answer::Renewed)?,
        Request::Statistics if is(kind::STATISTICS) => Answer::Statistics(statistics_of(body)?),
        Request::Leave if is(kind::LEAVE) => empty(Answer::Left)?,
        Request::Attach { .. } if is(kind::ATTACH) => attached(body)?,
        Request::Keys { at, length_bytes } if is(kind::KEYS) => keys_of(body, *at, *length_bytes)?,
        _ => return Err(Malformed::Kind),
    }))
}

fn granted(body: &[u8], order: Order, most: u16) -> Result<Answer, Malformed> {
    let (numbers, rest) = body.as_chunks::<FRAME_NUMBER_BYTES>();
    if !rest.is_empty() || !(1..=usize::from(most)).contains(&numbers.len()) {
        return Err(Malformed::Length);
    }
    let first = |bytes: &[u8; FRAME_NUMBER_BYTES]| {
        Chunk::new(Frame::new(u32::from_le_bytes(*bytes)), order).map(Chunk::first).ok_or(Malformed::Range)
    };
    Ok(Answer::Granted(numbers.iter().map(first).collect::<Result<_, _>>()?))
}

fn reason_of(refusal: Refusal) -> u8 {
    match refusal {
        Refusal::Full => 1,
        Refusal::NotGranted => 2,
        Refusal::Draining => 3,
        Refusal::Forgotten => 4,
        Refusal::NoRdma => 5,
    }
}

fn refusal_of(reason: u8) -> Option<Refusal> {
    [Refusal::Full, Refusal::NotGranted, Refusal::Draining, Refusal::Forgotten, Refusal::NoRdma]
        .into_iter()
        .find(|refusal| reason_of(*refusal) == reason)
}

fn words_of(figures: &NodeStatistics) -> [u64; STATISTICS_WORDS] {
    let NodeStatistics {
        frames,
        free_frames,
        free_chunks,
        clients,
        own_frames,
        requests,
        refused,
        read_bytes,
        written_bytes,
    } = *figures;
    let mut words = [0; STATISTICS_WORDS];
    let plain =
        [frames, free_frames, clients.into(), own_frames, requests, refused, read_bytes, written_bytes];
    words[..8].copy_from_slice(&plain);
    for (word, chunks) in words[8..].iter_mut().zip(free_chunks) {
        *word = chunks.into();
    }
    words
}

fn statistics_of(body: &[u8]) -> Result<NodeStatistics, Malformed> {
    let body: &[u8; STATISTICS_BYTES] = body.try_into().map_err(|_| Malformed::Length)?;
    let word = |at: usize| u64::from_le_bytes(number(body, 8 * at));
    let small = |at: usize| u32::try_from(word(at)).map_err(|_| Malformed::Range);
    let mut free_chunks = [0; MOST_ORDER as usize + 1];
    for (at, chunks) in free_chunks.iter_mut().enumerate() {
        *chunks = small(8 + at)?;
    }
    Ok(NodeStatistics {
        frames: word(0),
        free_frames: word(1),
        free_chunks,
        clients: small(2)?,
        own_frames: word(3),
        requests: word(4),
        refused: word(5),
        read_bytes: word(6),
        written_bytes: word(7),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientIdentity = ClientIdentity { space: u128::MAX - 9, lane: 3 };
    const NODE: NodeDescription = NodeDescription {
        incarnation: Incarnation(0x1234 << 100),
        frames: 1 << 32,
        lease: Duration::from_millis(30_000),
    };

    const ENDPOINT: Endpoint =
        Endpoint { gid: [7; 16], lid: 3, number: 0xff_fff0, sequence: 77, mtu: 5, reads: 16 };

    fn split(message: &[u8]) -> (Header, &[u8]) {
        let (header, body) = message.split_first_chunk().unwrap();
        (Header::decode(header).unwrap(), body)
    }

    fn requests() -> Vec<Request> {
        let chunk = |first, order| Chunk::new(Frame::new(first), Order::new(order).unwrap()).unwrap();
        let at = RegionOffset::new(4097);
        vec![
            Request::Grant { order: Order::MOST, count: 7 },
            Request::Release { chunks: vec![chunk(64, 6), chunk(3, 0), chunk(u32::MAX, 0)] },
            Request::Read { at, length_bytes: 9, buffer: vec![] },
            Request::Write { at, data: b"some page".to_vec() },
            Request::Renew,
            Request::Statistics,
            Request::Leave,
            Request::Attach { endpoint: ENDPOINT },
            Request::Keys { at, length_bytes: 4096 },
        ]
    }

    fn keys() -> Vec<RemoteKey> {
        // Bytes 4097 to 8192 lie in the second and the third frame.
        let key =
            |first, frames| RemoteKey { first: Frame::new(first), frames, address: 1 << 40, key: first + 9 };
        vec![key(0, 2), key(2, 64)]
    }

    fn answers() -> Vec<Answer> {
        let figures = NodeStatistics { frames: 9, clients: 3, free_chunks: [7; 11], ..Default::default() };
        vec![
            Answer::Granted(vec![Frame::new(1024), Frame::new(0)]),
            Answer::Released,
            Answer::Read,
            Answer::Written,
            Answer::Renewed,
            Answer::Statistics(figures),
            Answer::Left,
            Answer::Attached { endpoint: ENDPOINT, mailbox: Mailbox { address: 1 << 40, key: 7 } },
            Answer::Keys(keys()),
        ]
    }

    fn heard_as(request: &Request, heard: &Heard<'_>) -> bool {
        match (request, heard) {
            (Request::Grant { order, count }, Heard::Grant { order: o, count: c }) => {
                (order, count) == (o, c)
            }
            (Request::Release { chunks }, Heard::Release(heard)) => chunks == heard,
            (Request::Read { at, length_bytes, .. }, Heard::Read { at: a, length_bytes: l }) => {
                (at, length_bytes) == (a, l)
            }
            (Request::Write { at, data }, Heard::Write { at: a, data: d }) => at == a && data == d,
            (Request::Attach { endpoint }, Heard::Attach { endpoint: e }) => endpoint == e,
            (Request::Keys { at, length_bytes }, Heard::Keys { at: a, length_bytes: l }) => {
                (at, length_bytes) == (a, l)
            }
            (Request::Renew, Heard::Renew)
            | (Request::Statistics, Heard::Statistics)
            | (Request::Leave, Heard::Leave) => true,
            _ => false,
        }
    }

    #[test]
    fn introductions_survive_their_encoding() {
        assert_eq!(decode_hello(&encode_hello(CLIENT)), Ok(CLIENT));
        assert_eq!(decode_welcome(&encode_welcome(Ok(NODE))), Ok(Ok(NODE)));
        for why in TurnedAway::ALL {
            assert_eq!(decode_welcome(&encode_welcome(Err(why))), Ok(Err(why)));
        }
    }

    #[test]
    fn an_introduction_with_a_wrong_bit_is_none() {
        for bit in 0..8 * INTRODUCTION_BYTES {
            let mut hello = encode_hello(CLIENT);
            hello[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_hello(&hello).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut hello = encode_hello(CLIENT);
        hello[8] = 99;
        let word = check(&[&hello[..60]]);
        put(&mut hello, 60, &word);
        assert_eq!(decode_hello(&hello), Err(Malformed::Version(99)));
    }

    #[test]
    fn requests_survive_their_encoding() {
        for request in requests() {
            let mut message = Vec::new();
            encode_request(Ticket(77), &request, &mut message);
            let (header, body) = split(&message);
            assert_eq!(header.ticket(), Ticket(77));
            let heard = decode_request(&header, body).unwrap();
            assert!(heard_as(&request, &heard), "{request:?} {heard:?}");
            assert_eq!(request.is_change(), heard.is_change());
        }
    }

    #[test]
    fn answers_survive_their_encoding() {
        for (mut request, answer) in requests().into_iter().zip(answers()) {
            let mut message = Vec::new();
            if answer == Answer::Read {
                encode_read_answer(Ticket(5), 9, &mut message);
                message.extend_from_slice(b"123456789");
            } else {
                encode_answer(Ticket(5), &Ok(answer.clone()), &mut message);
            }
            let (header, body) = split(&message);
            assert_eq!(decode_answer(&header, body, &mut request), Ok(Ok(answer)));
            if let Request::Read { buffer, .. } = request {
                assert_eq!(buffer, b"123456789");
            }
        }
    }

    #[test]
    fn keys_that_leave_a_gap_are_none() {
        let mut request = Request::Keys { at: RegionOffset::new(4097), length_bytes: 4096 };
        let wrong: [&[RemoteKey]; 4] = [&keys()[..1], &keys()[1..], &[keys()[1], keys()[0]], &[]];
        for keys in wrong {
            let mut message = Vec::new();
            encode_answer(Ticket(5), &Ok(Answer::Keys(keys.to_vec())), &mut message);
            let (header, body) = split(&message);
            assert_eq!(decode_answer(&header, body, &mut request), Err(Malformed::Range));
        }
    }

    #[test]
    fn refusals_survive_their_encoding() {
        for refusal in
            [Refusal::Full, Refusal::NotGranted, Refusal::Draining, Refusal::Forgotten, Refusal::NoRdma]
        {
            let mut message = Vec::new();
            encode_answer(Ticket(5), &Err(refusal), &mut message);
            let (header, body) = split(&message);
            assert_eq!(decode_answer(&header, body, &mut Request::Renew), Ok(Err(refusal)));
        }
    }

    #[test]
    fn an_answer_to_something_else_is_none() {
        let mut message = Vec::new();
        encode_answer(Ticket(5), &Ok(Answer::Written), &mut message);
        let (header, body) = split(&message);
        assert_eq!(decode_answer(&header, body, &mut Request::Renew), Err(Malformed::Kind));
    }

    #[test]
    fn a_wrong_bit_in_what_is_not_content_is_found() {
        for request in requests() {
            let mut message = Vec::new();
            encode_request(Ticket(5), &request, &mut message);
            let checked = if matches!(request, Request::Write { .. }) { HEADER_BYTES } else { message.len() };
            for bit in 0..8 * checked {
                let mut message = message.clone();
                message[bit / 8] ^= 1 << (bit % 8);
                let (header, body) = message.split_first_chunk().unwrap();
                let decoded =
                    Header::decode(header).and_then(|header| decode_request(&header, body).map(|_| ()));
                assert!(decoded.is_err(), "bit {bit} of {request:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_no_request() {
        let decode = |header: Header, body: &[u8]| {
            let mut message = Vec::new();
            header.append(body, &mut message);
            message.extend_from_slice(body);
            let (header, body) = message.split_first_chunk().unwrap();
            Header::decode(header).and_then(|header| decode_request(&header, body).map(|_| ()))
        };
        let new = |kind| Header::new(kind, Ticket(1));
        let order = MOST_ORDER + 1;
        assert_eq!(decode(Header { order, count: 1, ..new(kind::GRANT) }, &[]), Err(Malformed::Range));
        assert_eq!(decode(new(kind::GRANT), &[]), Err(Malformed::Range));
        assert_eq!(decode(Header { count: 1, ..new(kind::GRANT) }, &[1]), Err(Malformed::Length));
        assert_eq!(decode(new(kind::RELEASE), &[]), Err(Malformed::Length));
        assert_eq!(decode(new(kind::RELEASE), &[1, 0, 0, 0, 1, 0, 0, 0]), Err(Malformed::Range));
        assert_eq!(decode(new(kind::RELEASE), &[1, 0, 0, 0, 0, 0, 0]), Err(Malformed::Length));
        assert_eq!(decode(new(kind::WRITE), &[]), Err(Malformed::Range));
        let end = RegionOffset::END.get() - 1;
        assert_eq!(decode(Header { at: end, length: 2, ..new(kind::READ) }, &[]), Err(Malformed::Range));
        let length = MOST_TRANSFER_BYTES as u32 + 1;
        assert_eq!(decode(Header { length, ..new(kind::READ) }, &[]), Err(Malformed::Range));
        assert_eq!(decode(new(kind::WRITE), &vec![0; MOST_BODY_BYTES + 1]), Err(Malformed::Length));
        assert_eq!(decode(new(99), &[]), Err(Malformed::Kind));
        assert_eq!(decode(new(kind::RENEW | ANSWER), &[]), Err(Malformed::Kind));
    }
}

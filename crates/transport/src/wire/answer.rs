//! Answers, as a node writes them and a client takes them.

use super::Malformed;
use super::check;
use super::header::{ANSWER, Header, REFUSED, kind};
use super::rdma::{attached, attached_bytes, keys_bytes, keys_of};
use super::statistics::{statistics_bytes, statistics_of};
use crate::{Answer, Chunk, Frame, Order, Refusal, Request, Ticket};

/// Bytes of a frame's number in an answer to a grant.
const FRAME_NUMBER_BYTES: usize = 4;

/// Appends the message that answers a read, up to where its `length_bytes` bytes begin; the caller appends
/// these.
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
            let body = statistics_bytes(figures);
            plain(kind::STATISTICS).append(&body, to);
            to.extend_from_slice(&body);
        }
        Ok(Answer::Left) => plain(kind::LEAVE).append(&[], to),
        Ok(Answer::Attached { endpoint, mailbox }) => {
            let body = attached_bytes(endpoint, mailbox);
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

/// Whether the body of the message with this header is what `request` reads, and nothing else about it is
/// left to check.
pub fn brings_buffer(header: &Header, request: &Request) -> bool {
    header.kind == kind::READ | ANSWER
        && matches!(request, Request::Read { length_bytes, .. } if *length_bytes == header.body_bytes)
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

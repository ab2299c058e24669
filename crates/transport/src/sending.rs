//! Messages of a client that wait to go. The contents of writes stay where they are, in the requests, and go
//! from there.
//!
//! Invariants:
//! 1. `contents` are in the order in which they go, and each begins behind the one before: so what waits is a
//!    sequence of bytes.
//! 2. A content is there, in its request or kept, until all of it has gone.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::LinkError;
use crate::stream::Stream;

/// Contents that go by one call, at most.
const MOST_CONTENTS: usize = 8;
/// So many bytes that have gone are kept in front of those that wait, and as many as wait, rather than move
/// these.
const MOST_GONE_BYTES: usize = 64 << 10;

/// Messages that are to go.
#[derive(Default)]
pub(crate) struct Sending {
    /// All but contents.
    bytes: Vec<u8>,
    start: usize,
    contents: VecDeque<Content>,
}

struct Content {
    /// Where among `bytes` it belongs.
    at: usize,
    /// Whose it is.
    number: u64,
    length: usize,
    sent: usize,
    /// It, when its request has gone meanwhile.
    kept: Option<Vec<u8>>,
}

impl Sending {
    /// Where to append more.
    pub(crate) fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends the content of a request.
    pub(crate) fn append_content(&mut self, number: u64, length: usize) {
        self.contents.push_back(Content { at: self.bytes.len(), number, length, sent: 0, kept: None });
    }

    /// The request is about to go: what has not been sent of its content is kept.
    pub(crate) fn keep(&mut self, number: u64, data: &[u8]) {
        if let Some(content) = self.contents.iter_mut().find(|content| content.number == number) {
            content.kept = Some(data.to_vec());
        }
    }

    /// Whether something of a request's content has not been sent.
    pub(crate) fn has_content_of(&self, number: u64) -> bool {
        self.contents.iter().any(|content| content.number == number)
    }

    /// Whether bytes wait, here or in the connection, for its descriptor to become writable.
    pub(crate) fn waits_for(&self, to: &Stream) -> bool {
        (!self.is_empty() || to.waits_to_send()) && !to.hears_of_room()
    }

    /// Sends as much as can be sent now; `data` is the content of a request.
    pub(crate) fn flush<'a>(
        &mut self,
        to: &mut Stream,
        data: impl Fn(u64) -> Option<&'a [u8]>,
    ) -> Result<(), LinkError> {
        while !self.is_empty() {
            match to.send_parts(&self.parts(&data))? {
                0 => {
                    self.forget_gone();
                    return Ok(());
                }
                count => self.advance(count),
            }
        }
        self.bytes.clear();
        self.start = 0;
        to.push()
    }

    fn is_empty(&self) -> bool {
        self.start == self.bytes.len() && self.contents.is_empty()
    }

    /// The first of what waits, in its order.
    fn parts<'a, 'b: 'a>(&'a self, data: impl Fn(u64) -> Option<&'b [u8]>) -> Vec<IoSlice<'a>> {
        let mut parts = Vec::with_capacity(2 * MOST_CONTENTS + 1);
        let mut start = self.start;
        for content in self.contents.iter().take(MOST_CONTENTS) {
            // Invariant 2.
            let whole = content.kept.as_deref().or_else(|| data(content.number));
            let Some(left) = whole.and_then(|whole| whole.get(content.sent..)) else { return parts };
            parts.push(IoSlice::new(&self.bytes[start..content.at]));
            parts.push(IoSlice::new(left));
            start = content.at;
        }
        if self.contents.len() <= MOST_CONTENTS {
            parts.push(IoSlice::new(&self.bytes[start..]));
        }
        parts
    }

    /// So many bytes have gone.
    fn advance(&mut self, mut count: usize) {
        while count > 0 {
            let end = self.contents.front().map_or(self.bytes.len(), |content| content.at);
            let step = count.min(end - self.start);
            self.start += step;
            count -= step;
            let Some(content) = self.contents.front_mut() else { return };
            let step = count.min(content.length - content.sent);
            content.sent += step;
            count -= step;
            if content.sent == content.length {
                self.contents.pop_front();
            }
        }
    }

    fn forget_gone(&mut self) {
        if self.start > MOST_GONE_BYTES.max(self.bytes.len() / 2) {
            let gone = std::mem::take(&mut self.start);
            self.bytes.drain(..gone);
            self.contents.iter_mut().for_each(|content| content.at -= gone);
        }
    }
}

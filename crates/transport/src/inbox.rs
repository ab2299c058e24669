//! Where bytes go that have come.

use std::io::IoSliceMut;

use crate::LinkError;
use crate::stream::{PORTION_BYTES, Stream};

/// What is asked for first, and how much more next, where all of it came at once.
const FIRST_PORTION_BYTES: usize = 4 << 10;
const PORTION_GROWTH: usize = 8;

/// Bytes that have come and were not looked at yet.
///
/// Invariant: they are those from `start` to `end` of `bytes`. What lies behind `end` held something before,
/// so that nothing is filled with zeros only to be overwritten.
pub struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// How much is asked for at once: little of a connection by which little comes, since what is asked for
    /// takes memory. There may be thousands of them.
    portion: usize,
}

impl Default for Inbox {
    fn default() -> Self {
        Self { bytes: Vec::new(), start: 0, end: 0, portion: FIRST_PORTION_BYTES }
    }
}

impl Inbox {
    /// Takes in what has come, up to a portion. Whether there may be more at once.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn fill(&mut self, from: &mut Stream) -> Result<bool, LinkError> {
        let is_more = self.fill_up_to(self.portion, from)?;
        if is_more {
            self.portion = (self.portion * PORTION_GROWTH).min(PORTION_BYTES);
        }
        Ok(is_more)
    }

    /// As [`Inbox::fill`], up to about so many bytes.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn fill_up_to(&mut self, most: usize, from: &mut Stream) -> Result<bool, LinkError> {
        from.receive(&mut Sink { body: &mut [], filled: 0, inbox: self, most })
    }

    /// Takes as little memory as when nothing had come yet, if all has been looked at.
    pub fn rest(&mut self) {
        if self.start == self.end && !self.bytes.is_empty() {
            *self = Self::default();
        }
    }

    /// All that is there.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The first so many bytes have been looked at.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "bytes that are not there were looked at");
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Room for so many bytes behind those that are there.
    fn room(&mut self, count: usize) -> &mut [u8] {
        if self.bytes.len() - self.end < count {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.bytes.len() - self.end < count {
                self.bytes.resize(self.end + count, 0);
            }
        }
        &mut self.bytes[self.end..self.end + count]
    }
}

/// Where bytes go that a connection brings: first to a body whose header came before, then to the inbox.
pub(crate) struct Sink<'a> {
    pub(crate) body: &'a mut [u8],
    /// Bytes of the body that are there.
    pub(crate) filled: usize,
    pub(crate) inbox: &'a mut Inbox,
    /// How many bytes are asked for beyond the body.
    pub(crate) most: usize,
}

impl Sink<'_> {
    /// How many bytes are asked for.
    pub(crate) fn wanted(&self) -> usize {
        self.body.len() - self.filled + self.most
    }

    /// Room for all that is asked for.
    pub(crate) fn all(&mut self) -> [IoSliceMut<'_>; 2] {
        [IoSliceMut::new(&mut self.body[self.filled..]), IoSliceMut::new(self.inbox.room(self.most))]
    }

    /// Room for some of so many bytes: for at least one, unless there are none.
    pub(crate) fn some(&mut self, count: usize) -> &mut [u8] {
        match self.body.len() - self.filled {
            0 => self.inbox.room(count),
            left => &mut self.body[self.filled..][..count.min(left)],
        }
    }

    /// So many bytes have been put there.
    pub(crate) fn add(&mut self, count: usize) {
        let to_body = count.min(self.body.len() - self.filled);
        self.filled += to_body;
        self.inbox.end += count - to_body;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn put(sink: &mut Sink<'_>, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = sink.some(bytes.len());
            let count = room.len();
            room.copy_from_slice(&bytes[..count]);
            sink.add(count);
            bytes = &bytes[count..];
        }
    }

    #[test]
    fn what_is_left_of_a_body_comes_first_and_the_rest_goes_to_the_inbox() {
        let (mut body, mut inbox) = ([0; 5], Inbox::default());
        let mut sink = Sink { body: &mut body, filled: 2, inbox: &mut inbox, most: 4 };
        assert_eq!(sink.wanted(), 7);
        put(&mut sink, b"abcde");
        assert_eq!((sink.filled, sink.inbox.bytes()), (5, &b"de"[..]));
        assert_eq!(body, *b"\0\0abc");
    }

    #[test]
    fn little_memory_is_taken_where_little_comes_and_given_back_afterwards() {
        let (mut here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        there.set_nonblocking(true).unwrap();
        let mut stream = Stream::plain(there.into());
        let mut inbox = Inbox::default();
        here.write_all(&[7; 64]).unwrap();
        assert!(!inbox.fill(&mut stream).unwrap());
        assert_eq!((inbox.bytes(), inbox.bytes.len()), (&[7; 64][..], FIRST_PORTION_BYTES));
        here.write_all(&[8; 100_000]).unwrap();
        while inbox.fill(&mut stream).unwrap() {}
        assert_eq!((inbox.bytes().len(), inbox.portion), (100_064, PORTION_BYTES));
        inbox.rest();
        assert_eq!(inbox.bytes().len(), 100_064, "it is still wanted");
        inbox.consume(100_064);
        inbox.rest();
        assert_eq!((inbox.bytes.capacity(), inbox.portion), (0, FIRST_PORTION_BYTES));
    }

    #[test]
    fn bytes_leave_in_the_order_in_which_they_came() {
        let mut inbox = Inbox::default();
        let all: Vec<u8> = (0..3000_u32).map(|at| (at * 7) as u8).collect();
        let (mut seen, mut step) = (Vec::new(), 0);
        for part in all.chunks(77) {
            put(&mut Sink { body: &mut [], filled: 0, inbox: &mut inbox, most: 1 }, part);
            step = (step + 31) % 90;
            let count = step.min(inbox.bytes().len());
            seen.extend_from_slice(&inbox.bytes()[..count]);
            inbox.consume(count);
        }
        seen.extend_from_slice(inbox.bytes());
        assert_eq!(seen, all);
    }
}

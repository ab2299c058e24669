//! Bytes that wait to go.

use farmem_sys::shared::SharedMemory;

use crate::LinkError;
use crate::stream::Stream;

/// A body so long goes from where it lies, or to where it belongs, rather than by way of the outbox or inbox:
/// shorter ones are cheaper to copy than to call the kernel for.
pub(crate) const LONG_BYTES: usize = 16 << 10;
/// So many bytes that have gone are kept in front of those that wait, rather than move these.
const MOST_GONE_BYTES: usize = 1 << 20;

/// Bytes that are to go.
#[derive(Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    start: usize,
    /// Whether the connection did not take all of what it was given last.
    is_stuck: bool,
}

impl Outbox {
    /// Where to append more.
    pub fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Whether bytes wait, here or in the connection, for its descriptor to become writable.
    pub fn waits_for(&self, to: &Stream) -> bool {
        (self.waiting() > 0 || to.waits_to_send()) && !to.hears_of_room()
    }

    /// How many bytes wait.
    pub fn waiting(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Sends as much as can be sent now.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn flush(&mut self, to: &mut Stream) -> Result<(), LinkError> {
        while self.start < self.bytes.len() {
            match to.send(&self.bytes[self.start..])? {
                0 => {
                    self.is_stuck = true;
                    self.forget_gone();
                    return Ok(());
                }
                sent => self.start += sent,
            }
        }
        self.clear();
        to.push()
    }

    /// Appends bytes of shared memory. With `to`, all that waits is sent, and they directly from where they
    /// lie: only what isn't taken at once is copied. False, and nothing appended, when they leave the memory.
    ///
    /// A connection that has ended is told of by the next [`Outbox::flush`].
    #[must_use]
    pub fn append(
        &mut self,
        memory: &SharedMemory,
        at: usize,
        length: usize,
        to: Option<&mut Stream>,
    ) -> bool {
        let mut sent = 0;
        if let Some(to) = to
            && to.is_plain()
            && length >= LONG_BYTES
            && !self.is_stuck
        {
            let waiting = self.waiting();
            let gone = to.send_shared(&self.bytes[self.start..], memory, at, length);
            self.is_stuck = gone < waiting + length;
            self.start += gone.min(waiting);
            sent = gone.saturating_sub(waiting);
            if self.start == self.bytes.len() {
                self.bytes.clear();
                self.start = 0;
            }
        }
        let start = self.bytes.len();
        self.bytes.resize(start + length - sent, 0);
        let is_done = memory.copy_out(at + sent, &mut self.bytes[start..]);
        if !is_done {
            self.bytes.truncate(start);
        }
        is_done
    }

    /// Forgets the second half of what waits, for those who die in the middle of a message.
    pub fn halve(&mut self) {
        let half = self.start + self.waiting() / 2;
        self.bytes.truncate(half);
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.start = 0;
        self.is_stuck = false;
    }

    fn forget_gone(&mut self) {
        if self.start > MOST_GONE_BYTES {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_is_appended_goes_as_it_was_then_whether_it_was_taken_at_once_or_not() {
        const LENGTH: usize = 64 << 10;
        let memory = SharedMemory::create(c"farmem-test", LENGTH).unwrap();
        let (here, mut there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        there.set_nonblocking(true).unwrap();
        let (mut stream, mut outbox) = (Stream::plain(here.into()), Outbox::default());
        let mut wanted = Vec::new();
        // Far more than the socket takes.
        for round in 0..20 {
            assert!(memory.copy_in(0, &[round; LENGTH]));
            outbox.end().extend_from_slice(b"head");
            assert!(outbox.append(&memory, 1, LENGTH - 1, Some(&mut stream)));
            wanted.extend_from_slice(b"head");
            wanted.extend_from_slice(&[round; LENGTH - 1]);
        }
        assert!(outbox.waiting() > 0 && outbox.waiting() < wanted.len());
        assert!(!outbox.append(&memory, 2, LENGTH - 1, Some(&mut stream)));

        let (mut come, mut part) = (Vec::new(), vec![0; LENGTH]);
        while come.len() < wanted.len() {
            if let Ok(count) = there.read(&mut part) {
                come.extend_from_slice(&part[..count]);
            }
            outbox.flush(&mut stream).unwrap();
        }
        assert!(come == wanted);
        assert_eq!(outbox.waiting(), 0);
    }
}

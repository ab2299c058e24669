//! Two rings of bytes in memory that both ends map, one for each direction: a connection on one machine,
//! without a copy through the kernel. The Unix socket at which it began stays: a byte on it wakes the other
//! end, and its closing tells that one end has gone.
//!
//! Invariants, for each ring:
//! 1. Its producer alone moves `head`, its consumer alone `tail`; both count bytes since the start, and each
//!    side believes its own copy. What the other side's says is checked: between them lie at most
//!    [`RING_BYTES`].
//! 2. A side that is about to sleep says so in a word, and then looks once more. A side that changes
//!    something looks into that word afterwards. So nobody sleeps through a change: one of the two sees the
//!    other's.
//! 3. Bells tell of bytes and of room alike, so whoever hears them looks for both afterwards. They are heard
//!    in one place, [`Rings::hear`], before anything is looked at: what changes later rings again, and that
//!    bell stays on the socket until the next call.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use farmem_sys::shared::{SharedMemory, SharedMemoryError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::LinkError;
use crate::inbox::Sink;
use crate::stream::PORTION_BYTES;

/// Bytes that a ring holds.
const RING_BYTES: usize = 1 << 20;
/// Bytes before the first ring: a line of the cache for each word that somebody writes.
const WORDS_BYTES: usize = 4096;
const LINE_WORDS: usize = 8;
const MEMORY_BYTES: usize = WORDS_BYTES + 2 * RING_BYTES;

const _: () =
    assert!(8 * LINE_WORDS * size_of::<u64>() <= WORDS_BYTES, "the words of both rings fit before them");
const _: () = assert!(PORTION_BYTES <= RING_BYTES, "a portion can come at once");

/// The words of a ring, each in a line of its own.
#[derive(Clone, Copy)]
enum Word {
    /// Bytes produced.
    Head,
    /// Bytes consumed.
    Tail,
    /// 1: the consumer sleeps until there are bytes.
    AwaitsBytes,
    /// 1: the producer sleeps until there is room.
    AwaitsRoom,
}

/// One end of a connection.
pub(crate) struct Rings {
    socket: OwnedFd,
    memory: SharedMemory,
    /// Which ring this end produces into: 0 or 1.
    own: usize,
    produced: u64,
    consumed: u64,
    /// Whether the other end has closed the socket. What it left in its ring still counts.
    has_ended: bool,
}

impl Rings {
    /// The node's end: makes the memory, and hands it to the client.
    pub(crate) fn offer(socket: OwnedFd) -> Result<Self, LinkError> {
        let memory = SharedMemory::create(c"farmem-rings", MEMORY_BYTES).map_err(kernel)?;
        let rings = Self::of(socket, memory, 0);
        // Nobody has looked yet: so the first bytes wake whoever they are for.
        for ring in [0, 1] {
            rings.word(ring, Word::AwaitsBytes)?.store(1, Ordering::Release);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let file = [rings.memory.file()];
        beside.push(SendAncillaryMessage::ScmRights(&file));
        sendmsg(&rings.socket, &[IoSlice::new(&[1])], &mut beside, SendFlags::NOSIGNAL).map_err(errno)?;
        Ok(rings)
    }

    /// The client's end: waits for the memory until `deadline`.
    pub(crate) fn accept(socket: OwnedFd, deadline: Instant) -> Result<Self, LinkError> {
        let file = loop {
            let left = deadline.checked_duration_since(Instant::now()).ok_or(LinkError::Silent)?;
            await_bytes(&socket, left)?;
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut beside = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0];
            match recvmsg(&socket, &mut [IoSliceMut::new(&mut byte)], &mut beside, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) if received.bytes == 0 => return Err(LinkError::Closed),
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::INTR) => continue,
                Err(error) => return Err(errno(error)),
            }
            let files = beside.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut files) => files.next(),
                _ => None,
            });
            break files.ok_or(LinkError::Garbage("it gives no memory"))?;
        };
        let memory = SharedMemory::attach(file, MEMORY_BYTES).map_err(kernel)?;
        Ok(Self::of(socket, memory, 1))
    }

    fn of(socket: OwnedFd, memory: SharedMemory, own: usize) -> Self {
        Self { socket, memory, own, produced: 0, consumed: 0, has_ended: false }
    }

    fn word(&self, ring: usize, word: Word) -> Result<&AtomicU64, LinkError> {
        let at = (4 * ring + word as usize) * LINE_WORDS * size_of::<u64>();
        let words = self.memory.atomics(at, 1).and_then(<[AtomicU64]>::first);
        words.ok_or(LinkError::Garbage("its memory is too small"))
    }

    /// Runs `copy` over the parts of a ring that `length` bytes from a count on lie in: the place in memory,
    /// and the place among the bytes.
    fn parts(
        ring: usize,
        count: u64,
        length: usize,
        mut copy: impl FnMut(usize, std::ops::Range<usize>) -> bool,
    ) -> bool {
        let base = WORDS_BYTES + ring * RING_BYTES;
        let at = (count % RING_BYTES as u64) as usize;
        let first = length.min(RING_BYTES - at);
        copy(base + at, 0..first) && (first == length || copy(base, first..length))
    }

    /// Takes in what has come, as much as is wanted. Less: there was no more, and a byte on the socket tells
    /// when there is.
    pub(crate) fn receive(&mut self, into: &mut Sink<'_>) -> Result<usize, LinkError> {
        let (ring, wanted) = (1 - self.own, into.wanted());
        let mut total = 0;
        while total < wanted {
            let head = self.word(ring, Word::Head)?.load(Ordering::Acquire);
            let length = head.wrapping_sub(self.consumed) as usize;
            if length > RING_BYTES {
                return Err(LinkError::Garbage("its ring holds more than it can"));
            }
            if length == 0 {
                self.word(ring, Word::AwaitsBytes)?.store(1, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                if self.word(ring, Word::Head)?.load(Ordering::Acquire) != head {
                    continue;
                }
                return if total == 0 && self.has_ended { Err(LinkError::Closed) } else { Ok(total) };
            }
            let out = into.some(length.min(wanted - total));
            let length = out.len();
            if !Self::parts(ring, self.consumed, length, |at, range| {
                self.memory.copy_out(at, &mut out[range])
            }) {
                return Err(LinkError::Garbage("its memory is too small"));
            }
            into.add(length);
            self.consumed += length as u64;
            total += length;
            self.word(ring, Word::Tail)?.store(self.consumed, Ordering::Release);
            self.ring_bell(ring, Word::AwaitsRoom)?;
        }
        Ok(total)
    }

    /// Sends as much as there is room for. Less than all: a byte on the socket tells when there is more.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
        let mut sent = 0;
        while sent < bytes.len() {
            let tail = self.word(self.own, Word::Tail)?.load(Ordering::Acquire);
            let filled = self.produced.wrapping_sub(tail) as usize;
            if filled > RING_BYTES {
                return Err(LinkError::Garbage("it took more from its ring than there was"));
            }
            let length = (RING_BYTES - filled).min(bytes.len() - sent);
            if length == 0 {
                self.word(self.own, Word::AwaitsRoom)?.store(1, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                if self.word(self.own, Word::Tail)?.load(Ordering::Acquire) != tail {
                    continue;
                }
                // Nobody makes room any more.
                return if self.has_ended { Err(LinkError::Closed) } else { Ok(sent) };
            }
            let part = &bytes[sent..sent + length];
            if !Self::parts(self.own, self.produced, length, |at, range| {
                self.memory.copy_in(at, &part[range])
            }) {
                return Err(LinkError::Garbage("its memory is too small"));
            }
            self.produced += length as u64;
            sent += length;
            self.word(self.own, Word::Head)?.store(self.produced, Ordering::Release);
            self.ring_bell(self.own, Word::AwaitsBytes)?;
        }
        Ok(sent)
    }

    /// Wakes the other end, if it said in this word that it sleeps.
    fn ring_bell(&self, ring: usize, word: Word) -> Result<(), LinkError> {
        fence(Ordering::SeqCst);
        let word = self.word(ring, word)?;
        if word.load(Ordering::Relaxed) == 0 || word.swap(0, Ordering::AcqRel) == 0 {
            return Ok(());
        }
        match rustix::net::send(&self.socket, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            // A socket that is full of bells wakes anybody.
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(errno(error)),
        }
    }

    /// Takes the bytes off the socket by which the other end has woken this one. Whether there were any, or
    /// the end: then look for bytes and for room before sleeping again.
    pub(crate) fn hear(&mut self) -> Result<bool, LinkError> {
        let mut bells = [0; 64];
        match rustix::net::recv(&self.socket, &mut bells, RecvFlags::DONTWAIT) {
            Ok((count, _)) => {
                self.has_ended |= count == 0;
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(Errno::CONNRESET) => {
                self.has_ended = true;
                Ok(true)
            }
            Err(error) => Err(errno(error)),
        }
    }
}

impl AsFd for Rings {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn await_bytes(socket: &OwnedFd, left: Duration) -> Result<(), LinkError> {
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(errno(error)),
    }
}

fn errno(error: Errno) -> LinkError {
    match error {
        Errno::CONNRESET | Errno::PIPE => LinkError::Closed,
        error => LinkError::Kernel(error.into()),
    }
}

fn kernel(error: SharedMemoryError) -> LinkError {
    LinkError::Kernel(io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::Inbox;
    use std::os::unix::net::UnixStream;

    fn pair() -> (Rings, Rings) {
        let (node, client) = UnixStream::pair().unwrap();
        let node = Rings::offer(node.into()).unwrap();
        let client = Rings::accept(client.into(), Instant::now() + Duration::from_secs(30)).unwrap();
        (node, client)
    }

    fn receive(rings: &mut Rings, inbox: &mut Inbox) -> Result<usize, LinkError> {
        rings.receive(&mut Sink { body: &mut [], filled: 0, inbox, most: PORTION_BYTES })
    }

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn bytes_come_in_the_order_in_which_they_went() {
        let (mut node, mut client) = pair();
        // Far more than the ring holds, from a thread that waits for room by trying.
        let all = bytes(2 * RING_BYTES + 77);
        let sent = all.clone();
        let sender = std::thread::spawn(move || {
            let mut rest = &sent[..];
            while !rest.is_empty() {
                rest = &rest[client.send(rest).unwrap()..];
                std::thread::yield_now();
            }
            client
        });
        let mut come = Inbox::default();
        while come.bytes().len() < all.len() {
            receive(&mut node, &mut come).unwrap();
        }
        assert!(come.bytes() == all);
        drop(sender.join().unwrap());
        // Bells may still lie before the end.
        let end = (0..RING_BYTES).find_map(|_| {
            node.hear().unwrap();
            receive(&mut node, &mut come).err()
        });
        assert!(matches!(end, Some(LinkError::Closed)), "{end:?}");
    }

    #[test]
    fn who_sleeps_is_woken() {
        let (mut node, mut client) = pair();
        let mut come = Inbox::default();
        assert_eq!(receive(&mut node, &mut come).unwrap(), 0);
        client.send(b"hello").unwrap();
        await_bytes(&node.socket, Duration::ZERO).unwrap();
        let mut places = [PollFd::new(&node.socket, PollFlags::IN)];
        assert_eq!(poll(&mut places, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1));
        assert!(node.hear().unwrap());
        assert_eq!(receive(&mut node, &mut come).unwrap(), 5);
        let mut places = [PollFd::new(&node.socket, PollFlags::IN)];
        assert_eq!(poll(&mut places, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0));
    }

    /// Sending used to hear bells too, and with the one for room it waited for took the one for bytes: both
    /// ends slept.
    #[test]
    fn who_waits_for_room_does_not_miss_the_bell_for_bytes() {
        let (mut node, mut client) = pair();
        let (mut come, all) = (Inbox::default(), bytes(RING_BYTES + 5));
        node.hear().unwrap();
        assert_eq!(receive(&mut node, &mut come).unwrap(), 0);
        assert_eq!(node.send(&all).unwrap(), RING_BYTES);
        client.hear().unwrap();
        receive(&mut client, &mut Inbox::default()).unwrap();
        node.hear().unwrap();
        assert_eq!(receive(&mut node, &mut come).unwrap(), 0);

        client.send(b"hello").unwrap();

        assert_eq!(node.send(&all[RING_BYTES..]).unwrap(), 5);
        let mut places = [PollFd::new(&node.socket, PollFlags::IN)];
        assert_eq!(poll(&mut places, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1));
        assert!(node.hear().unwrap());
        assert_eq!(receive(&mut node, &mut come).unwrap(), 5);
    }

    #[test]
    fn what_was_sent_before_the_end_comes() {
        let (mut node, mut client) = pair();
        client.send(b"farewell").unwrap();
        drop(client);
        let mut come = Inbox::default();
        while come.bytes().is_empty() {
            node.hear().unwrap();
            receive(&mut node, &mut come).unwrap();
        }
        assert_eq!(come.bytes(), b"farewell");
        node.hear().unwrap();
        assert!(matches!(receive(&mut node, &mut come), Err(LinkError::Closed)));
    }

    #[test]
    fn counts_that_cannot_be_are_refused() {
        let (mut node, client) = pair();
        client.word(1, Word::Head).unwrap().store(RING_BYTES as u64 + 1, Ordering::Release);
        assert!(matches!(receive(&mut node, &mut Inbox::default()), Err(LinkError::Garbage(_))));
        client.word(0, Word::Tail).unwrap().store(1, Ordering::Release);
        assert!(matches!(node.send(b"x"), Err(LinkError::Garbage(_))));
    }
}

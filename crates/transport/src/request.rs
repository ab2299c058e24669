//! What is asked of a node, and what comes of it.

use std::time::Duration;

use rustix::io::Errno;

use crate::{Chunk, Frame, Order, Rack, RegionOffset};

/// Most bytes that one read or write carries: four slabs.
pub const MOST_TRANSFER_BYTES: usize = 1 << 20;
/// Most chunks that one grant asks for, or one release gives back.
pub const MOST_CHUNKS: usize = 1024;
/// Most requests of a lane without an answer. The node remembers the answers of so many, for those who repeat
/// them.
pub const MOST_REQUESTS: usize = 256;
/// Most bytes of a lane's reads and writes without an answer.
pub const MOST_BYTES: usize = 8 << 20;

const _: () = assert!(MOST_BYTES >= MOST_TRANSFER_BYTES, "the largest request can be submitted at all");

/// Names a request of a lane: chosen by whoever submits it, rising from each new request to the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// Tells one incarnation of a node from the next: a random number, drawn at its start. What was on a node of
/// another incarnation is lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Incarnation(pub u128);

/// The client that asks. `space` is a random number that only this client and its nodes know: whoever has it
/// can reach the client's frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClientIdentity {
    /// The client, whose lanes share what is granted to any of them.
    pub space: u128,
    /// Which of its connections: a new one takes the place of an earlier one of the same number.
    pub lane: u8,
}

/// A node, as it introduces itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeDescription {
    /// Which incarnation of it.
    pub incarnation: Incarnation,
    /// Frames that it lends, to all clients together.
    pub frames: u64,
    /// What is granted to a client that has not been heard of for so long goes to others.
    pub lease: Duration,
    /// The rack that it says it is in.
    pub rack: Option<Rack>,
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// So many chunks of one order (1 to [`MOST_CHUNKS`]). Granted are as many as there are, none smaller;
    /// without any it is refused.
    Grant {
        /// Their order.
        order: Order,
        /// How many.
        count: u16,
    },
    /// Gives chunks back (1 to [`MOST_CHUNKS`]), or halves of them and so on; all, or if one isn't the
    /// client's, none.
    Release {
        /// Which.
        chunks: Vec<Chunk>,
    },
    /// Bytes of the region, which must all be granted to the client. A frame that was not written since it
    /// was granted reads as zeros.
    Read {
        /// Where they begin.
        at: RegionOffset,
        /// How many, 1 to [`MOST_TRANSFER_BYTES`].
        length_bytes: u32,
        /// Comes back with the bytes in it, and nothing else; what it held before is dropped, its memory
        /// used.
        buffer: Vec<u8>,
    },
    /// Bytes into the region, which must all be granted to the client.
    Write {
        /// Where they begin.
        at: RegionOffset,
        /// They, 1 to [`MOST_TRANSFER_BYTES`] of them.
        data: Vec<u8>,
    },
    /// Nothing but a sign of life.
    Renew,
    /// How the node is.
    Statistics,
    /// Gives back all that the client has been granted, by any lane. The client is forgotten, and its other
    /// lanes end.
    Leave,
    /// Connects a queue of the client's RDMA device with one of the node's, for as long as this connection
    /// lasts.
    Attach {
        /// The client's.
        endpoint: Endpoint,
    },
    /// Keys by which the client's device reaches frames that are granted to it.
    Keys {
        /// Where they begin.
        at: RegionOffset,
        /// How many bytes, 1 to [`MOST_TRANSFER_BYTES`].
        length_bytes: u32,
    },
}

/// One end of a connection between RDMA devices, as the other one needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The port's address.
    pub gid: [u8; 16],
    /// Its address within an InfiniBand subnet; 0 on Ethernet.
    pub lid: u16,
    /// The number of the queue pair, below 2^24.
    pub number: u32,
    /// The number of its first packet, below 2^24.
    pub sequence: u32,
    /// What a packet carries: 1 is 256 bytes, each step doubles that, up to 5.
    pub mtu: u8,
    /// Reads that the device has under way at most, at least 1.
    pub reads: u8,
}

/// Bytes of a mailbox.
pub const MAIL_BYTES: usize = 16;

/// Where a lane's device tells the node what it has moved, by a write: two words of 8 bytes, least byte
/// first, of bytes that were read and written since the queues were connected. The node's own processor sees
/// neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mailbox {
    /// Where it lies for the node's device.
    pub address: u64,
    /// The key that opens it.
    pub key: u32,
}

/// What a device has to show to reach some frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteKey {
    /// The first of them.
    pub first: Frame,
    /// How many.
    pub frames: u32,
    /// Where the first one lies for the node's device.
    pub address: u64,
    /// The key.
    pub key: u32,
}

impl Request {
    /// Bytes of content that it moves, in whichever direction.
    pub fn transfer_bytes(&self) -> usize {
        match self {
            Self::Read { length_bytes, .. } => *length_bytes as usize,
            Self::Write { data, .. } => data.len(),
            _ => 0,
        }
    }

    /// Whether it is what no node would take: nothing to move, or too much at a time.
    pub fn is_malformed(&self) -> bool {
        match self {
            Self::Grant { count, .. } => !(1..=MOST_CHUNKS).contains(&usize::from(*count)),
            Self::Release { chunks } => !(1..=MOST_CHUNKS).contains(&chunks.len()),
            Self::Read { at, .. } | Self::Write { at, .. } => {
                self.transfer_bytes() > MOST_TRANSFER_BYTES || at.frames(self.transfer_bytes()).is_none()
            }
            Self::Keys { at, length_bytes } => {
                *length_bytes as usize > MOST_TRANSFER_BYTES || at.frames(*length_bytes as usize).is_none()
            }
            Self::Renew | Self::Statistics | Self::Leave | Self::Attach { .. } => false,
        }
    }

    /// Whether it changes something on the node, so that its repetition must not be carried out.
    pub fn is_change(&self) -> bool {
        match self {
            Self::Grant { .. } | Self::Release { .. } | Self::Write { .. } | Self::Leave => true,
            Self::Read { .. } | Self::Renew | Self::Statistics => false,
            // Repeated on another connection they mean something else.
            Self::Attach { .. } | Self::Keys { .. } => false,
        }
    }
}

/// What a node answers when it does what was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// First frames of the chunks, all of the order that was asked for; at least one.
    Granted(Vec<Frame>),
    /// The chunks are the client's no more.
    Released,
    /// The bytes are in the request's buffer.
    Read,
    /// The bytes are in the region.
    Written,
    /// The node has heard.
    Renewed,
    /// How it is.
    Statistics(NodeStatistics),
    /// Nothing is granted any more.
    Left,
    /// The queues are connected.
    Attached {
        /// The node's.
        endpoint: Endpoint,
        /// The lane's.
        mailbox: Mailbox,
    },
    /// The keys of all frames that were asked for, in their order; they may cover more.
    Keys(Vec<RemoteKey>),
}

/// Why a node doesn't do what was asked. The link stays usable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// No chunk of that order is left.
    #[error("the node has no chunk of that size left")]
    Full,
    /// Some of the frames are not granted to this client.
    #[error("the node has not granted these frames")]
    NotGranted,
    /// The node is about to end, and grants nothing more.
    #[error("the node is about to end")]
    Draining,
    /// It was repeated too late: the node doesn't remember what came of it.
    #[error("the node doesn't remember the request")]
    Forgotten,
    /// It can't be had by RDMA: there is no device, or the device has no room.
    #[error("the node has no RDMA for this")]
    NoRdma,
}

/// Why a request wasn't carried out, or isn't known to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// The node says no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The deadline has passed. Whether it took effect is not known, and it must not be repeated; a later
    /// answer is dropped.
    #[error("the node didn't answer in time")]
    Late,
}

/// A request that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Which.
    pub ticket: Ticket,
    /// The request itself, with its buffers; after a read that succeeded, with the bytes.
    pub request: Request,
    /// What came of it.
    pub result: Result<Answer, Failure>,
}

/// How a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeStatistics {
    /// Frames that it lends, to all clients together.
    pub frames: u64,
    /// Of these, granted to nobody.
    pub free_frames: u64,
    /// Free chunks of each order, each counted once, as large as it is.
    pub free_chunks: [u32; crate::MOST_ORDER as usize + 1],
    /// Clients that hold a lease.
    pub clients: u32,
    /// Frames granted to the client that asks.
    pub own_frames: u64,
    /// Since its start: requests that were carried out.
    pub requests: u64,
    /// Since its start: requests that were refused.
    pub refused: u64,
    /// Since its start: bytes that clients have read.
    pub read_bytes: u64,
    /// Since its start: bytes that clients have written.
    pub written_bytes: u64,
}

/// Why a link doesn't take a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubmitError {
    /// [`MOST_REQUESTS`] or [`MOST_BYTES`] wait already: complete some first.
    #[error("too many requests wait for an answer")]
    Full,
    /// See [`Request::is_malformed`].
    #[error("the request is empty or too large")]
    Malformed,
    /// The ticket is not above that of the request before.
    #[error("the ticket is not a new one")]
    Ticket,
}

/// A request that wasn't taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{why}")]
pub struct Unsubmitted {
    /// Why.
    #[source]
    pub why: SubmitError,
    /// The request.
    pub request: Request,
}

/// Why a link has ended, or never began.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The node, or something on the way, has closed the connection.
    #[error("the connection was closed")]
    Closed,
    /// Nothing has been heard for too long, while requests waited or during the introduction.
    #[error("the node says nothing")]
    Silent,
    /// What came is no message of this protocol; or one that has no place there.
    #[error("the node sent an invalid message: {0}")]
    Garbage(&'static str),
    /// The node speaks another version of the protocol.
    #[error("the node speaks version {theirs} of the protocol, not {}", crate::request::VERSION)]
    Version {
        /// Its version.
        theirs: u16,
    },
    /// The node doesn't let this client in.
    #[error("the node refuses: {0}")]
    TurnedAway(&'static str),
    /// One of the two could not prove who it is to the other.
    #[error("the other end is not trusted: {0}")]
    Untrusted(String),
    /// Reads and writes can't go by RDMA, though that was wanted; or can't any more.
    #[error("RDMA failed: {0}")]
    Rdma(String),
    /// The kernel says so.
    #[error("the connection failed: {0}")]
    Kernel(#[from] std::io::Error),
}

impl LinkError {
    /// Whether it was this machine that lacked something, such as a descriptor: that says nothing about the
    /// node.
    pub fn is_lack(&self) -> bool {
        let Self::Kernel(error) = self else { return false };
        let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::AGAIN];
        Errno::from_io_error(error).is_some_and(|errno| lacks.contains(&errno))
    }
}

/// The protocol's version, told first of all.
pub const VERSION: u16 = 1;

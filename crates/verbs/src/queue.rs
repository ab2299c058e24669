//! A connection to one peer: what its card is to do, and what it has done.

use core::ptr::NonNull;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::raw::{
    Capacity, Channel, Completion, CompletionQueue, Path, Piece, QueuePair, QueuePairState, QueuePairWish,
    RELIABLE_CONNECTION, Route, Work, access, field, flag, operation, state,
};
use crate::{Domain, Registration, VerbsError};

/// The card waits 4.096 µs · 2^14 for an acknowledgement, and so often: a peer that has gone shows within
/// seconds.
const TIMEOUT: u8 = 14;
const RETRIES: u8 = 7;
/// Completions that are taken at a time.
const PORTION: usize = 32;
/// What [`Queue::post_message`] takes at most: every driver takes so much.
pub const MESSAGE_BYTES: usize = 32;

/// What a peer has to know of a queue to connect its own one with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The port's address.
    pub gid: [u8; 16],
    /// Within an InfiniBand subnet.
    pub lid: u16,
    /// The queue's number.
    pub number: u32,
    /// Its first packet's number, below 2^24.
    pub sequence: u32,
    /// See [`Place`](crate::Place).
    pub mtu: u8,
    /// See [`Place`](crate::Place).
    pub reads: u8,
}

/// In which direction bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From the peer's memory.
    Read,
    /// Into it.
    Write,
}

/// Bytes between this end's memory and the peer's.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// In which direction.
    pub way: Way,
    /// Comes back when it is done, if that is wanted.
    pub id: u64,
    /// Where they are in the queue's own memory.
    pub local_bytes: usize,
    /// How many.
    pub length_bytes: u32,
    /// Where they are in the peer's.
    pub remote_address: u64,
    /// What the peer gave for that.
    pub remote_key: u32,
    /// Whether it is to be told when it is done; then all before it are done too.
    pub is_signaled: bool,
    /// Whether it begins only when all reads before it are done.
    pub is_fenced: bool,
}

/// What a card has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Of which transfer.
    pub id: u64,
    /// 0, or why not; then nothing more goes over the queue.
    pub status: i32,
}

/// A queue pair that loses nothing, with completions of its own.
pub struct Queue {
    pair: NonNull<QueuePair>,
    completions: NonNull<CompletionQueue>,
    channel: NonNull<Channel>,
    domain: Arc<Domain>,
    own: Option<Arc<Registration>>,
    sequence: u32,
    depth: usize,
    works: Vec<Work>,
    pieces: Vec<Piece>,
}

// SAFETY: the library allows calls from any thread; vectors of pointers are filled and used within one call.
unsafe impl Send for Queue {}

impl Queue {
    /// One that is not connected. Transfers go between a peer's memory and `own`; without that, the peer
    /// alone transfers. It takes `depth` transfers at a time.
    ///
    /// # Errors
    /// The device has no room.
    pub fn new(
        domain: &Arc<Domain>,
        own: Option<Arc<Registration>>,
        depth: usize,
    ) -> Result<Self, VerbsError> {
        if own.as_ref().is_some_and(|own| !Arc::ptr_eq(&own.domain, domain)) {
            return Err(VerbsError::Unsuitable("memory of another domain"));
        }
        let library = domain.device.library;
        let context = domain.device.context.as_ptr();
        // SAFETY: the device is open. What was made is given back when the next thing can't be.
        unsafe {
            let channel = NonNull::new((library.make_channel)(context))
                .ok_or_else(|| VerbsError::last("making a channel of completions"))?;
            let made =
                (library.make_completions)(context, depth as i32, core::ptr::null_mut(), channel.as_ptr(), 0);
            let Some(completions) = NonNull::new(made) else {
                let error = VerbsError::last("making a queue of completions");
                (library.free_channel)(channel.as_ptr());
                return Err(error);
            };
            let mut wish = QueuePairWish {
                context: core::ptr::null_mut(),
                send_queue: completions.as_ptr(),
                receive_queue: completions.as_ptr(),
                shared_receive: core::ptr::null_mut(),
                capacity: Capacity {
                    send_works: depth as u32,
                    receive_works: 1,
                    send_pieces: 1,
                    receive_pieces: 1,
                    inline_bytes: if own.is_some() { MESSAGE_BYTES as u32 } else { 0 },
                },
                kind: RELIABLE_CONNECTION,
                signals_all: 0,
            };
            let Some(pair) = NonNull::new((library.make_queue)(domain.raw.as_ptr(), &raw mut wish)) else {
                let error = VerbsError::last("making a queue pair");
                (library.free_completions)(completions.as_ptr());
                (library.free_channel)(channel.as_ptr());
                return Err(error);
            };
            let queue = Self {
                pair,
                completions,
                channel,
                domain: Arc::clone(domain),
                own,
                sequence: random()?,
                depth,
                works: Vec::with_capacity(depth),
                pieces: Vec::with_capacity(depth),
            };
            queue.begin()?;
            Ok(queue)
        }
    }

    /// What a peer has to know.
    pub fn address(&self) -> Address {
        let place = self.domain.device.place();
        Address {
            gid: place.gid,
            lid: place.lid,
            // SAFETY: the library's value lives as long as this one, and this field doesn't change.
            number: unsafe { (*self.pair.as_ptr()).number },
            sequence: self.sequence,
            mtu: place.mtu,
            reads: place.reads,
        }
    }

    fn begin(&self) -> Result<(), VerbsError> {
        let flags = rustix::fs::fcntl_getfl(self.as_fd()).map_err(|error| kernel(error.into()))?;
        rustix::fs::fcntl_setfl(self.as_fd(), flags | OFlags::NONBLOCK)
            .map_err(|error| kernel(error.into()))?;
        // A peer reaches what is registered for it through the end that has no memory of its own, and nothing
        // through the other one.
        let may = if self.own.is_none() { access::REMOTE_READ | access::REMOTE_WRITE } else { 0 };
        let mut wanted = QueuePairState {
            state: state::INITIAL,
            port: self.domain.device.place().port,
            access: may as u32,
            ..QueuePairState::default()
        };
        self.change(&mut wanted, field::STATE | field::PARTITION | field::PORT | field::ACCESS)
    }

    /// Connects it with a peer's queue, which the peer connects with this one.
    ///
    /// # Errors
    /// The device refuses: there is no way to that address.
    pub fn connect(&mut self, peer: &Address) -> Result<(), VerbsError> {
        let place = self.domain.device.place();
        let reads = peer.reads.min(place.reads).max(1);
        let half = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&peer.gid[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        let mut receives = QueuePairState {
            state: state::RECEIVES,
            mtu: i32::from(peer.mtu.clamp(1, place.mtu)),
            peer_number: peer.number,
            receive_sequence: peer.sequence,
            most_peer_reads: reads,
            not_ready_timer: 12,
            path: Path {
                route: Route {
                    gid: [half(0), half(8)],
                    source_index: place.index,
                    hop_limit: 64,
                    ..Route::default()
                },
                lid: peer.lid,
                is_global: 1,
                port: place.port,
                ..Path::default()
            },
            ..QueuePairState::default()
        };
        let fields = field::STATE
            | field::PATH
            | field::MTU
            | field::PEER_NUMBER
            | field::RECEIVE_SEQUENCE
            | field::MOST_PEER_READS
            | field::NOT_READY_TIMER;
        self.change(&mut receives, fields)?;
        let mut sends = QueuePairState {
            state: state::SENDS,
            send_sequence: self.sequence,
            most_reads: reads,
            timeout: TIMEOUT,
            retries: RETRIES,
            not_ready_retries: RETRIES,
            ..QueuePairState::default()
        };
        let fields = field::STATE
            | field::TIMEOUT
            | field::RETRIES
            | field::NOT_READY_RETRIES
            | field::SEND_SEQUENCE
            | field::MOST_READS;
        self.change(&mut sends, fields)
    }

    fn change(&self, to: &mut QueuePairState, fields: i32) -> Result<(), VerbsError> {
        let library = self.domain.device.library;
        // SAFETY: the pair is there, and `to` is a whole value of the library's type.
        let changed = unsafe { (library.change_queue)(self.pair.as_ptr(), to, fields) };
        VerbsError::check("connecting a queue pair", changed)
    }

    /// Gives transfers to the card, all by one call: it is told once. Their bytes must not be touched before
    /// they are done.
    ///
    /// # Errors
    /// They are more than the queue takes, or leave its memory (nothing was given then); or the card refuses.
    pub fn post(&mut self, transfers: &[Transfer]) -> Result<(), VerbsError> {
        let Some(own) = &self.own else { return Err(VerbsError::Unsuitable("a queue without memory")) };
        if transfers.is_empty() {
            return Ok(());
        }
        if transfers.len() > self.depth {
            return Err(VerbsError::Unsuitable("more transfers than the queue takes"));
        }
        let fits = |transfer: &Transfer| {
            let end = transfer.local_bytes.checked_add(transfer.length_bytes as usize);
            transfer.length_bytes > 0 && end.is_some_and(|end| end <= own.length_bytes())
        };
        if !transfers.iter().all(fits) {
            return Err(VerbsError::Unsuitable("a transfer that leaves the queue's memory"));
        }
        self.works.clear();
        self.pieces.clear();
        let (base, local_key) = (own.remote_address(), own.local_key());
        for transfer in transfers {
            self.pieces.push(Piece {
                address: base + transfer.local_bytes as u64,
                length: transfer.length_bytes,
                local_key,
            });
            let mut flags = 0;
            flags |= if transfer.is_signaled { flag::SIGNALED } else { 0 };
            flags |= if transfer.is_fenced { flag::FENCE } else { 0 };
            self.works.push(Work {
                id: transfer.id,
                next: core::ptr::null_mut(),
                pieces: core::ptr::null_mut(),
                piece_count: 1,
                operation: match transfer.way {
                    Way::Read => operation::READ,
                    Way::Write => operation::WRITE,
                },
                flags,
                immediate: 0,
                remote_address: transfer.remote_address,
                remote_key: transfer.remote_key,
                padding: 0,
                others: [0; 9],
            });
        }
        let (works, pieces) = (self.works.as_mut_ptr(), self.pieces.as_mut_ptr());
        let mut bad = core::ptr::null_mut();
        // SAFETY: both vectors have one entry for each transfer and are not touched before the call returns,
        // when the library is done with them. Each piece lies in memory that is registered as long as this
        // queue lives, for it holds the registration. The context's table was filled by the library.
        let posted = unsafe {
            for at in 0..transfers.len() {
                let work = works.add(at);
                (*work).pieces = pieces.add(at);
                if at + 1 < transfers.len() {
                    (*work).next = works.add(at + 1);
                }
            }
            match (*self.domain.device.context.as_ptr()).operations.post {
                Some(post) => post(self.pair.as_ptr(), works, &raw mut bad),
                None => return Err(VerbsError::Unsuitable("a driver that can't post")),
            }
        };
        VerbsError::check("giving transfers to the card", posted)
    }

    /// Writes a few bytes into the peer's memory; the card takes them along with what it is told to do
    /// (inline), so that they need no registered memory and may be forgotten at once. It is told when that is
    /// done.
    ///
    /// # Errors
    /// They are none, or more than [`MESSAGE_BYTES`]; or the card refuses.
    pub fn post_message(
        &mut self,
        id: u64,
        message: &[u8],
        remote_address: u64,
        remote_key: u32,
    ) -> Result<(), VerbsError> {
        if self.own.is_none() || message.is_empty() || message.len() > MESSAGE_BYTES {
            return Err(VerbsError::Unsuitable("an invalid message"));
        }
        let mut piece = Piece {
            address: message.as_ptr().expose_provenance() as u64,
            length: message.len() as u32,
            local_key: 0,
        };
        let mut work = Work {
            id,
            next: core::ptr::null_mut(),
            pieces: &raw mut piece,
            piece_count: 1,
            operation: operation::WRITE,
            flags: flag::SIGNALED | flag::INLINE,
            immediate: 0,
            remote_address,
            remote_key,
            padding: 0,
            others: [0; 9],
        };
        let mut bad = core::ptr::null_mut();
        // SAFETY: work, piece and message are there until the call returns, and an inline message is copied
        // before that; its length is within what the queue was made for. The context's table was filled by
        // the library.
        let posted = unsafe {
            match (*self.domain.device.context.as_ptr()).operations.post {
                Some(post) => post(self.pair.as_ptr(), &raw mut work, &raw mut bad),
                None => return Err(VerbsError::Unsuitable("a driver that can't post")),
            }
        };
        VerbsError::check("giving a message to the card", posted)
    }

    /// Appends what is done. How much.
    ///
    /// # Errors
    /// The queue of completions has failed.
    pub fn poll(&mut self, into: &mut Vec<Done>) -> Result<usize, VerbsError> {
        let mut found = [Completion::default(); PORTION];
        // SAFETY: the queue is there, and the array has as many places as are named.
        let count = unsafe {
            match (*self.domain.device.context.as_ptr()).operations.poll {
                Some(poll) => poll(self.completions.as_ptr(), PORTION as i32, found.as_mut_ptr()),
                None => -1,
            }
        };
        let count =
            usize::try_from(count).map_err(|_| VerbsError::Unsuitable("completions can't be polled"))?;
        into.extend(found.iter().take(count).map(|done| Done { id: done.id, status: done.status }));
        Ok(count)
    }

    /// Asks for the descriptor to become readable with the next completion. Poll once more afterwards: what
    /// came before doesn't count.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn arm(&mut self) -> Result<(), VerbsError> {
        // SAFETY: the queue is there.
        let armed = unsafe {
            match (*self.domain.device.context.as_ptr()).operations.notify {
                Some(notify) => notify(self.completions.as_ptr(), 0),
                None => return Err(VerbsError::Unsuitable("a driver that can't notify")),
            }
        };
        VerbsError::check("asking for completions", armed)
    }

    /// Takes what has made the descriptor readable. Whether there was anything; then [`Queue::arm`] has to be
    /// called again.
    pub fn hear(&mut self) -> bool {
        let library = self.domain.device.library;
        let (mut queue, mut context) = (core::ptr::null_mut(), core::ptr::null_mut());
        // SAFETY: the channel is there and its descriptor doesn't block. Only this queue belongs to it, and
        // each event is acknowledged.
        unsafe {
            let is_event = (library.hear)(self.channel.as_ptr(), &raw mut queue, &raw mut context) == 0
                && !queue.is_null();
            if is_event {
                (library.acknowledge)(queue, 1);
            }
            is_event
        }
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as this value, and its descriptor with it.
        unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).descriptor) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let library = self.domain.device.library;
        // SAFETY: invariant 1 of the crate. Once the pair has gone the card does nothing more for it.
        unsafe {
            (library.free_queue)(self.pair.as_ptr());
            (library.free_completions)(self.completions.as_ptr());
            (library.free_channel)(self.channel.as_ptr());
        }
    }
}

fn kernel(error: std::io::Error) -> VerbsError {
    VerbsError::Kernel { what: "preparing a queue pair", error }
}

/// A number below 2^24 that nobody guesses.
fn random() -> Result<u32, VerbsError> {
    let mut bytes = [0; 4];
    getrandom(&mut bytes[..], GetRandomFlags::empty()).map_err(|error| kernel(error.into()))?;
    Ok(u32::from_le_bytes(bytes) & 0xff_ffff)
}

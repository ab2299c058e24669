//! A lane whose reads and writes go by RDMA.
//!
//! Invariants:
//! 1. `entries` are what was submitted and is neither completed nor handed to the connection, by tickets. The
//!    first `begun` of them have been posted, or have ended.
//! 2. Nothing is handed to the connection while anything is posted, and nothing is posted while a request
//!    that was handed on waits for its answer. So requests of both kinds take effect in the order of their
//!    tickets. Writes wait for reads before them (a fence); a device does all else in order.
//! 3. The last transfer of each batch is signaled, so whatever is posted is heard of.
//! 4. A place in the ring is given back when the device is done with it, late or not.
//! 5. At most one letter (what was moved, for the node's figures) is under way. It has no order with requests
//!    but those for figures, and the last one: these wait for it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farmem_sys::shared::SharedMemory;
use farmem_verbs::{
    Device, Domain, Done, MESSAGE_BYTES, Queue, Registration, Remote, Transfer, VerbsError, Wanted, Way,
};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::figures::{Count, add};
use super::keys::{Part, Space, Spaces};
use super::ring::{Place, Ring};
use super::{NoRdma, address, endpoint};
use crate::link::Link;
use crate::{
    Answer, Chunk, ClientIdentity, Completion, Failure, LinkError, MAIL_BYTES, MOST_BYTES, MOST_REQUESTS,
    MOST_TRANSFER_BYTES, Mailbox, NodeDescription, Order, Refusal, Request, SubmitError, Ticket, Transport,
    Unsubmitted,
};

/// Memory that the device reaches. What waits beyond that waits in its own buffer.
const ARENA_BYTES: usize = 4 << 20;
/// Transfers under way.
const DEPTH: usize = 512;
/// Tickets of the link's own requests begin here.
const OWN: u64 = 1 << 63;
/// The link's own requests end with the link.
const NEVER: Duration = Duration::from_secs(1 << 30);
/// Between two looks at the connection while the device has work.
const LOOK: Duration = Duration::from_millis(10);
/// Reads that threads wait for are awaited by looking for twice as long as they took lately, and at most so
/// long; by an event after that, as all else.
const MOST_SPIN: Duration = Duration::from_millis(1);
/// The node is told what was moved when it is so much.
const MOST_UNTOLD_BYTES: u64 = 4 << 20;
/// A letter's mark. No request has this ticket.
const LETTER: u64 = 0;
/// The first letter tries out whether anything comes through. A device gives up by itself some seconds after
/// the first packet.
const TRIAL: Duration = Duration::from_secs(3);
const TRIAL_PAUSE: Duration = Duration::from_micros(200);

const _: () =
    assert!(ARENA_BYTES >= 2 * MOST_TRANSFER_BYTES, "one transfer can be filled while another is under way");
const _: () =
    assert!(MAIL_BYTES <= MESSAGE_BYTES, "a letter is as small as what goes without registered memory");
const _: () = assert!(
    DEPTH > 2 + MOST_TRANSFER_BYTES / crate::FRAME_BYTES,
    "the longest transfer fits, whatever its parts"
);

enum State {
    Waiting,
    /// Not by RDMA: the node has no key for it.
    Detour,
    Posted {
        way: Way,
        place: Place,
        parts: usize,
        at: Instant,
    },
    Ended(Result<Answer, Failure>),
}

struct Entry {
    ticket: Ticket,
    /// `None` once it was completed as late.
    request: Option<Request>,
    transfer_bytes: usize,
    deadline: Instant,
    state: State,
}

/// Which end of what the link waits for.
const CONNECTION: u64 = 0;
const DEVICE: u64 = 1;

/// A lane.
pub(super) struct RdmaLink {
    control: Link,
    queue: Queue,
    memory: Arc<SharedMemory>,
    ring: Ring,
    space: Space,
    lane: u8,
    entries: VecDeque<Entry>,
    begun: usize,
    bytes: usize,
    last: Ticket,
    own_last: u64,
    /// The link's own requests that wait for an answer.
    own_pending: usize,
    /// For which request keys were asked, and by which of the link's own.
    asked: Option<(Ticket, Ticket)>,
    /// What goes to the device by the next call.
    batch: Vec<Transfer>,
    parts: Vec<Part>,
    /// Transfers and reads that the device has.
    posted: usize,
    posted_reads: usize,
    /// How long reads took lately.
    usual: Duration,
    is_armed: bool,
    looked_at: Instant,
    mailbox: Mailbox,
    /// Bytes that were read and written, and those of them that the node knows of.
    moved: [u64; 2],
    told: [u64; 2],
    is_letter_posted: bool,
    /// Whether threads wait for reads.
    is_awaited: bool,
    done: Vec<Done>,
    answers: Vec<Completion>,
    poll: OwnedFd,
    awaits_room: bool,
    has_ended: bool,
}

impl RdmaLink {
    pub(super) fn attach(
        mut control: Link,
        client: ClientIdentity,
        wanted: Option<&Wanted>,
        spaces: &Spaces,
        is_awaited: bool,
        deadline: Instant,
    ) -> Result<Self, (Box<dyn Transport>, NoRdma)> {
        let made = Self::prepare(&control, wanted)
            .map_err(NoRdma::from)
            .and_then(|made| Self::connect(&mut control, made, deadline));
        let (queue, memory, mailbox) = match made {
            Ok(made) => made,
            Err(why) => return Err((Box::new(control), why)),
        };
        let poll = match Self::watch(&control, &queue) {
            Ok(poll) => poll,
            Err(error) => return Err((Box::new(control), NoRdma::Link(LinkError::Kernel(error.into())))),
        };
        let space = spaces.of(client.space, control.node().incarnation);
        Ok(Self {
            control,
            queue,
            memory,
            ring: Ring::new(ARENA_BYTES),
            space,
            lane: client.lane,
            entries: VecDeque::new(),
            begun: 0,
            bytes: 0,
            last: Ticket(0),
            own_last: OWN,
            own_pending: 0,
            asked: None,
            batch: Vec::new(),
            parts: Vec::new(),
            posted: 0,
            posted_reads: 0,
            usual: MOST_SPIN / 8,
            is_armed: false,
            looked_at: Instant::now(),
            mailbox,
            moved: [0; 2],
            told: [0; 2],
            is_letter_posted: false,
            is_awaited,
            done: Vec::new(),
            answers: Vec::new(),
            poll,
            awaits_room: false,
            has_ended: false,
        })
    }

    fn prepare(control: &Link, wanted: Option<&Wanted>) -> Result<(Queue, Arc<SharedMemory>), VerbsError> {
        let device = Device::open(wanted, control.local_address())?;
        let domain = Domain::new(&device)?;
        let memory = SharedMemory::create(c"farmem-rdma", ARENA_BYTES)
            .map_err(|_| VerbsError::Unsuitable("there is no memory for transfers"))?;
        let memory = Arc::new(memory);
        let own = Registration::new(&domain, &memory, 0..ARENA_BYTES, Remote::Nobody)?;
        Ok((Queue::new(&domain, Some(Arc::new(own)), DEPTH)?, memory))
    }

    fn connect(
        control: &mut Link,
        (mut queue, memory): (Queue, Arc<SharedMemory>),
        deadline: Instant,
    ) -> Result<(Queue, Arc<SharedMemory>, Mailbox), NoRdma> {
        let request = Request::Attach { endpoint: endpoint(&queue.address()) };
        control.enqueue(Ticket(OWN), request, deadline);
        let mut answers = Vec::new();
        while answers.is_empty() {
            control.complete(&mut answers, deadline.saturating_duration_since(Instant::now()))?;
        }
        match answers.swap_remove(0).result {
            Ok(Answer::Attached { endpoint, mailbox }) => {
                queue.connect(&address(&endpoint))?;
                Self::try_out(&mut queue, mailbox)?;
                Ok((queue, memory, mailbox))
            }
            Err(Failure::Late) => Err(NoRdma::Link(LinkError::Silent)),
            _ => Err(NoRdma::There),
        }
    }

    /// Whether anything comes through: connecting two queues sends nothing.
    fn try_out(queue: &mut Queue, mailbox: Mailbox) -> Result<(), NoRdma> {
        queue.post_message(LETTER, &[0; MAIL_BYTES], mailbox.address, mailbox.key)?;
        let (mut done, end) = (Vec::new(), Instant::now() + TRIAL);
        while queue.poll(&mut done)? == 0 {
            if Instant::now() > end {
                return Err(NoRdma::Silent);
            }
            std::thread::sleep(TRIAL_PAUSE);
        }
        if done.iter().all(|done| done.status == 0) { Ok(()) } else { Err(NoRdma::Silent) }
    }

    fn watch(control: &Link, queue: &Queue) -> Result<OwnedFd, Errno> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        if let Some(connection) = control.as_fd() {
            epoll::add(&poll, connection, epoll::EventData::new_u64(CONNECTION), epoll::EventFlags::IN)?;
        }
        epoll::add(&poll, queue, epoll::EventData::new_u64(DEVICE), epoll::EventFlags::IN)?;
        Ok(poll)
    }

    /// A request of the link's own.
    fn ask(&mut self, request: Request) -> Ticket {
        self.own_last += 1;
        self.own_pending += 1;
        self.control.enqueue(Ticket(self.own_last), request, Instant::now() + NEVER);
        Ticket(self.own_last)
    }

    /// Whether requests that were handed to the connection wait for their answers.
    fn is_handing_on(&self) -> bool {
        self.control.pending() > self.own_pending
    }

    /// Begins what can be begun.
    fn advance(&mut self) -> Result<(), LinkError> {
        while let Some(entry) = self.entries.get(self.begun) {
            let is_begun = match (&entry.request, &entry.state) {
                (Some(Request::Read { .. } | Request::Write { .. }), State::Waiting) => self.begin(),
                (_, State::Ended(_)) => {
                    self.begun += 1;
                    true
                }
                _ => self.hand_on()?,
            };
            if !is_begun {
                break;
            }
        }
        self.flush()
    }

    /// Puts the next read or write into the batch. False: something has to come first.
    fn begin(&mut self) -> bool {
        if self.is_handing_on() {
            return false;
        }
        let Some(entry) = self.entries.get_mut(self.begun) else { return false };
        let (way, at, length) = match &entry.request {
            Some(Request::Read { at, length_bytes, .. }) => (Way::Read, *at, *length_bytes as usize),
            Some(Request::Write { at, data }) => (Way::Write, *at, data.len()),
            _ => return false,
        };
        self.parts.clear();
        {
            let known = self.space.lock();
            if way == Way::Write
                && let Some(outcome) = known.recall(self.lane, entry.ticket)
            {
                entry.state = State::Ended(outcome.map_err(Failure::from));
                return true;
            }
            if !known.parts(at, length, &mut self.parts) {
                drop(known);
                let wanted = entry.ticket;
                if self.asked.is_none() {
                    let ticket = self.ask(Request::Keys { at, length_bytes: length as u32 });
                    self.asked = Some((wanted, ticket));
                }
                return false;
            }
        }
        // One more is left for a letter.
        if self.posted + self.batch.len() + self.parts.len() >= DEPTH {
            return false;
        }
        let Some(place) = self.ring.take(length) else { return false };
        if let Some(Request::Write { data, .. }) = &entry.request {
            // Inside, for the ring is as large as the memory.
            let _ = self.memory.copy_in(place.at_bytes, data);
            add(Count::Copies, 1);
        }
        let is_fenced = way == Way::Write && self.posted_reads > 0;
        let mut local_bytes = place.at_bytes;
        for (nth, part) in self.parts.iter().enumerate() {
            self.batch.push(Transfer {
                way,
                id: entry.ticket.0,
                local_bytes,
                length_bytes: part.length_bytes,
                remote_address: part.address,
                remote_key: part.key,
                is_signaled: way == Way::Read && nth + 1 == self.parts.len(),
                is_fenced: is_fenced && nth == 0,
            });
            local_bytes += part.length_bytes as usize;
        }
        if way == Way::Read {
            self.posted_reads += 1;
            add(Count::Reads, self.parts.len());
        } else {
            add(Count::Writes, self.parts.len());
        }
        entry.state = State::Posted { way, place, parts: self.parts.len(), at: Instant::now() };
        self.begun += 1;
        true
    }

    /// Gives the batch to the device.
    fn flush(&mut self) -> Result<(), LinkError> {
        let Some(last) = self.batch.last_mut() else { return Ok(()) };
        last.is_signaled = true;
        self.queue.post(&self.batch).map_err(broken)?;
        add(Count::Doorbells, 1);
        self.posted += self.batch.len();
        self.batch.clear();
        Ok(())
    }

    /// Hands the next request to the connection. False: something has to come first.
    fn hand_on(&mut self) -> Result<bool, LinkError> {
        if self.posted > 0 || !self.batch.is_empty() || self.begun > 0 {
            return Ok(false);
        }
        let is_last_word =
            |entry: &Entry| matches!(entry.request, Some(Request::Statistics | Request::Leave));
        if self.entries.front().is_some_and(is_last_word) && self.tell()? {
            return Ok(false);
        }
        let Some(Entry { ticket, request, transfer_bytes, deadline, state }) = self.entries.pop_front()
        else {
            return Ok(false);
        };
        self.bytes -= transfer_bytes;
        let Some(request) = request else { return Ok(true) };
        match &request {
            Request::Release { chunks } => self.forget_keys(chunks),
            Request::Read { .. } | Request::Write { .. } => add(Count::Detours, 1),
            _ => {}
        }
        match self.control.submit(ticket, request, deadline) {
            Ok(()) => Ok(true),
            // There is room when answers have come.
            Err(Unsubmitted { request, .. }) => {
                self.bytes += transfer_bytes;
                self.entries.push_front(Entry {
                    ticket,
                    request: Some(request),
                    transfer_bytes,
                    deadline,
                    state,
                });
                Ok(false)
            }
        }
    }

    /// Tells the node what was moved, which it didn't see: by a few bytes into the lane's mailbox there.
    /// Whether that is under way now.
    fn tell(&mut self) -> Result<bool, LinkError> {
        if self.is_letter_posted || self.moved == self.told {
            return Ok(self.is_letter_posted);
        }
        let mut letter = [0; MAIL_BYTES];
        for (bytes, count) in letter.chunks_exact_mut(size_of::<u64>()).zip(self.moved) {
            bytes.copy_from_slice(&count.to_le_bytes());
        }
        self.queue.post_message(LETTER, &letter, self.mailbox.address, self.mailbox.key).map_err(broken)?;
        add(Count::Letters, 1);
        self.told = self.moved;
        self.is_letter_posted = true;
        self.posted += 1;
        Ok(true)
    }

    fn untold_bytes(&self) -> u64 {
        self.moved.iter().zip(self.told).map(|(moved, told)| moved - told).sum()
    }

    fn forget_keys(&self, chunks: &[Chunk]) {
        let mut known = self.space.lock();
        chunks.iter().for_each(|chunk| known.drop_keys(&chunk.frames()));
    }

    fn forget_posted_keys(&self) {
        let mut known = self.space.lock();
        for Entry { request, state, .. } in &self.entries {
            let frames = match (state, request) {
                (State::Posted { .. }, Some(Request::Read { at, length_bytes, .. })) => {
                    at.frames(*length_bytes as usize)
                }
                (State::Posted { .. }, Some(Request::Write { at, data })) => at.frames(data.len()),
                // Of one that was late it is not known any more where it was to go.
                (State::Posted { .. }, None) => Some(0..u64::MAX),
                _ => None,
            };
            frames.into_iter().for_each(|frames| known.drop_keys(&frames));
        }
    }

    /// Hears what the node has answered.
    fn pump(&mut self, into: &mut Vec<Completion>) -> Result<(), LinkError> {
        self.looked_at = Instant::now();
        if self.untold_bytes() > MOST_UNTOLD_BYTES && !self.is_handing_on() {
            self.tell()?;
        }
        let mut answers = std::mem::take(&mut self.answers);
        let heard = self.control.complete(&mut answers, Duration::ZERO);
        for completion in answers.drain(..) {
            if completion.ticket.0 >= OWN {
                self.own_pending = self.own_pending.saturating_sub(1);
                self.take_keys(&completion);
                continue;
            }
            match (&completion.request, &completion.result) {
                (Request::Release { chunks }, _) => self.forget_keys(chunks),
                (Request::Grant { order, .. }, Ok(Answer::Granted(frames))) => {
                    let chunk = |first, order: Order| Chunk::new(first, order);
                    let chunks: Vec<Chunk> =
                        frames.iter().filter_map(|first| chunk(*first, *order)).collect();
                    self.forget_keys(&chunks);
                }
                _ => {}
            }
            into.push(completion);
        }
        self.answers = answers;
        heard
    }

    fn take_keys(&mut self, completion: &Completion) {
        let Some((wanted, _)) = self.asked.filter(|(_, asked)| *asked == completion.ticket) else { return };
        self.asked = None;
        if let Ok(Answer::Keys(keys)) = &completion.result {
            add(Count::Keys, keys.len());
            return self.space.lock().learn(keys);
        }
        let Some(entry) = self.entries.get_mut(self.begun).filter(|entry| entry.ticket == wanted) else {
            return;
        };
        entry.state = match completion.result {
            Err(Failure::Refused(Refusal::NoRdma)) => State::Detour,
            Err(failure) => {
                if let Some(Request::Write { .. }) = &entry.request {
                    self.space.lock().remember(self.lane, entry.ticket, &Err(failure));
                }
                State::Ended(Err(failure))
            }
            // The link checks that an answer belongs to its request.
            Ok(_) => State::Detour,
        };
    }

    /// Completes what the device has done. Whether that was anything.
    fn reap(&mut self, into: &mut Vec<Completion>) -> Result<bool, LinkError> {
        let before = into.len();
        let mut done = std::mem::take(&mut self.done);
        done.clear();
        let count = if self.posted > 0 { self.queue.poll(&mut done).map_err(broken)? } else { 0 };
        add(Count::Completions, done.iter().filter(|done| done.id != LETTER).count());
        for Done { id, status } in &done {
            if *status != 0 {
                // A key that was right when it was given may be one of frames that another lane has given
                // back since. Whoever has it keeps it no longer.
                self.forget_posted_keys();
                return Err(LinkError::Rdma(format!("a transfer failed with status {status}")));
            }
            if *id == LETTER {
                self.posted -= 1;
                self.is_letter_posted = false;
                continue;
            }
            while let Some(Entry { ticket, state: State::Posted { .. } | State::Ended(_), .. }) =
                self.entries.front()
                && ticket.0 <= *id
            {
                self.finish_first(into);
            }
        }
        self.done = done;
        while let Some(Entry { state: State::Ended(_), .. }) = self.entries.front() {
            self.finish_first(into);
        }
        Ok(count > 0 || into.len() > before)
    }

    /// Completes the first entry, which the device has done or which has ended.
    fn finish_first(&mut self, into: &mut Vec<Completion>) {
        let Some(Entry { ticket, mut request, transfer_bytes, state, .. }) = self.entries.pop_front() else {
            return;
        };
        self.begun = self.begun.saturating_sub(1);
        self.bytes -= transfer_bytes;
        let result = match state {
            State::Posted { way, place, parts, at } => {
                self.posted -= parts;
                let result = self.take_content(place, request.as_mut());
                self.ring.free(place);
                if way == Way::Read {
                    self.posted_reads -= 1;
                    self.moved[0] += transfer_bytes as u64;
                    self.usual = (self.usual * 7 + at.elapsed().min(MOST_SPIN)) / 8;
                } else {
                    self.moved[1] += transfer_bytes as u64;
                    self.space.lock().remember(self.lane, ticket, &result);
                }
                result
            }
            State::Ended(result) => result,
            State::Waiting | State::Detour => return,
        };
        into.extend(request.map(|request| Completion { ticket, request, result }));
    }

    /// Copies what was read to where it is wanted.
    fn take_content(&self, place: Place, request: Option<&mut Request>) -> Result<Answer, Failure> {
        match request {
            Some(Request::Read { length_bytes, buffer, .. }) => {
                buffer.resize(*length_bytes as usize, 0);
                let _ = self.memory.copy_out(place.at_bytes, buffer);
                add(Count::Copies, 1);
                Ok(Answer::Read)
            }
            _ => Ok(Answer::Written),
        }
    }

    /// Completes what is past its deadline.
    fn expire(&mut self, now: Instant, into: &mut Vec<Completion>) {
        if !self.entries.iter().any(|entry| entry.deadline <= now && entry.request.is_some()) {
            return;
        }
        let late = |entry: &mut Entry| {
            entry.request.take().map(|request| Completion {
                ticket: entry.ticket,
                request,
                result: Err(Failure::Late),
            })
        };
        for at in (0..self.entries.len()).rev() {
            let entry = &mut self.entries[at];
            if entry.deadline > now || entry.request.is_none() {
                continue;
            }
            match entry.state {
                State::Ended(_) => {}
                State::Posted { .. } => into.extend(late(entry)),
                State::Waiting | State::Detour => {
                    into.extend(late(entry));
                    self.bytes -= entry.transfer_bytes;
                    self.entries.remove(at);
                }
            }
        }
    }

    /// Has the descriptor tell of what comes next. Whether something has come meanwhile.
    fn rest(&mut self, into: &mut Vec<Completion>) -> Result<bool, LinkError> {
        let awaits_room = self.control.waits_to_send();
        if awaits_room != self.awaits_room
            && let Some(connection) = self.control.as_fd()
        {
            let mut wanted = epoll::EventFlags::IN;
            wanted.set(epoll::EventFlags::OUT, awaits_room);
            epoll::modify(&self.poll, connection, epoll::EventData::new_u64(CONNECTION), wanted)
                .map_err(|error| LinkError::Kernel(error.into()))?;
            self.awaits_room = awaits_room;
        }
        if self.posted == 0 || self.is_armed {
            return Ok(false);
        }
        self.queue.arm().map_err(broken)?;
        self.is_armed = true;
        self.reap(into)
    }

    /// Sleeps until the node or the device has something to say.
    fn sleep(&mut self, timeout: Duration) -> Result<(), LinkError> {
        let mut events = Vec::with_capacity(2);
        let timeout =
            Timespec { tv_sec: timeout.as_secs().min(3600) as i64, tv_nsec: timeout.subsec_nanos().into() };
        match epoll::wait(&self.poll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(LinkError::Kernel(error.into())),
        }
    }

    fn turn(&mut self, into: &mut Vec<Completion>, timeout: Duration) -> Result<(), LinkError> {
        let (before, end) = (into.len(), Instant::now() + timeout);
        loop {
            while self.is_armed && self.queue.hear() {
                self.is_armed = false;
            }
            self.advance()?;
            if self.reap(into)? {
                self.advance()?;
            }
            let now = Instant::now();
            let is_device_busy = self.posted > 0 || into.len() > before;
            if !is_device_busy
                || (timeout.is_zero() && into.len() == before)
                || self.control.pending() > 0
                || now.saturating_duration_since(self.looked_at) > LOOK
            {
                self.pump(into)?;
                self.advance()?;
            }
            self.expire(now, into);
            if self.is_awaited && into.len() == before && self.posted_reads > 0 && now < end {
                self.look(into, end.min(now + 2 * self.usual))?;
            }
            if into.len() > before || Instant::now() >= end {
                self.rest(into)?;
                return Ok(());
            }
            if self.rest(into)? {
                continue;
            }
            let deadlines = self.entries.iter().filter(|entry| entry.request.is_some());
            let next = deadlines.map(|entry| entry.deadline).min().unwrap_or(end).min(end);
            let left = self.control.next_look(now, next);
            self.sleep(left)?;
            // It may be the connection that has something to say.
            self.pump(into)?;
        }
    }

    /// Looks at what the device has done until there is something.
    fn look(&mut self, into: &mut Vec<Completion>, until: Instant) -> Result<(), LinkError> {
        while !self.reap(into)? && Instant::now() < until {
            std::hint::spin_loop();
        }
        self.advance()
    }
}

fn broken(error: VerbsError) -> LinkError {
    LinkError::Rdma(error.to_string())
}

impl Transport for RdmaLink {
    fn node(&self) -> NodeDescription {
        self.control.node()
    }

    fn submit(&mut self, ticket: Ticket, request: Request, deadline: Instant) -> Result<(), Unsubmitted> {
        let transfer_bytes = request.transfer_bytes();
        let waiting = self.entries.len() + self.control.pending() - self.own_pending;
        let why = if request.is_malformed() {
            SubmitError::Malformed
        } else if ticket <= self.last || ticket.0 >= OWN {
            SubmitError::Ticket
        } else if waiting >= MOST_REQUESTS || self.bytes + transfer_bytes > MOST_BYTES {
            SubmitError::Full
        } else {
            self.last = ticket;
            self.bytes += transfer_bytes;
            let request = Some(request);
            self.entries.push_back(Entry {
                ticket,
                request,
                transfer_bytes,
                deadline,
                state: State::Waiting,
            });
            return Ok(());
        };
        Err(Unsubmitted { why, request })
    }

    fn complete(&mut self, into: &mut Vec<Completion>, timeout: Duration) -> Result<(), LinkError> {
        if self.has_ended {
            return Err(LinkError::Closed);
        }
        let result = self.turn(into, timeout);
        self.has_ended = result.is_err();
        result
    }

    fn take_unanswered(&mut self) -> Vec<(Ticket, Request)> {
        self.has_ended = true;
        let mut unanswered = self.control.take_unanswered();
        unanswered.retain(|(ticket, _)| ticket.0 < OWN);
        unanswered.extend(self.entries.drain(..).filter_map(|entry| Some((entry.ticket, entry.request?))));
        unanswered.sort_by_key(|(ticket, _)| *ticket);
        unanswered
    }

    fn pending(&self) -> usize {
        let own = self.entries.iter().filter(|entry| entry.request.is_some()).count();
        own + self.control.pending().saturating_sub(self.own_pending)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poll.as_fd())
    }

    fn waits_to_send(&self) -> bool {
        false
    }
}

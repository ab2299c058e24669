//! A node that is nothing but memory of this process, for tests of those who use nodes: it does what a real
//! one does, and fails when told to.
//!
//! Chunks are found by looking for them; nothing here is fast.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{
    Answer, Chunk, ClientIdentity, Completion, FRAME_BYTES, Failure, Frame, Incarnation, LinkError,
    MOST_BYTES, MOST_ORDER, MOST_REQUESTS, NodeDescription, NodeStatistics, Order, Rack, Refusal,
    RegionOffset, Request, SubmitError, Ticket, Transport, Unsubmitted,
};

/// What a real node grants for so long.
const LEASE: Duration = Duration::from_secs(30);
/// How often a link looks whether a node that was told to stall goes on.
const LOOK: Duration = Duration::from_millis(1);

/// A change, and what came of it.
type Done = (Ticket, Result<Answer, Refusal>);

/// A node in this process. Clones are the same node.
#[derive(Clone, Debug)]
pub struct MemoryNode(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    bytes: Vec<u8>,
    /// By frame: the space that it is granted to.
    owners: Vec<Option<u128>>,
    incarnation: u128,
    /// Grows when all links are cut.
    generation: u64,
    /// Lanes from this one on are answered nothing.
    stalled_from: Option<u8>,
    is_draining: bool,
    /// The lanes of links that nobody has closed, one for each link.
    lanes: Vec<u8>,
    /// Lanes by which something was read.
    readers: BTreeSet<u8>,
    /// What came of the latest changes of each lane.
    done: BTreeMap<(u128, u8), VecDeque<Done>>,
    figures: NodeStatistics,
    rack: Option<Rack>,
}

impl MemoryNode {
    /// A node with so many frames.
    pub fn new(frames: u32) -> Self {
        Self(Arc::new(Mutex::new(State {
            bytes: vec![0; frames as usize * FRAME_BYTES],
            owners: vec![None; frames as usize],
            incarnation: 1,
            generation: 0,
            stalled_from: None,
            is_draining: false,
            lanes: Vec::new(),
            readers: BTreeSet::new(),
            done: BTreeMap::new(),
            figures: NodeStatistics::default(),
            rack: None,
        })))
    }

    /// A link to it.
    pub fn connect(&self, client: ClientIdentity) -> MemoryLink {
        let mut state = self.state();
        state.lanes.push(client.lane);
        MemoryLink {
            node: self.clone(),
            client,
            description: state.description(),
            generation: state.generation,
            last: Ticket(0),
            waiting: VecDeque::new(),
        }
    }

    /// Ends all links; what is on the node stays.
    pub fn cut(&self) {
        self.state().generation += 1;
    }

    /// Ends all links and loses everything, as a node does that is killed and started again.
    pub fn restart(&self) {
        let mut state = self.state();
        state.generation += 1;
        state.incarnation += 1;
        state.bytes.fill(0);
        state.owners.fill(None);
        state.done.clear();
    }

    /// From now on answers nothing, or goes on.
    pub fn stall(&self, is_stalled: bool) {
        self.stall_from(is_stalled.then_some(0));
    }

    /// The same for lanes from that one on; the others are answered.
    pub fn stall_from(&self, lane: Option<u8>) {
        self.state().stalled_from = lane;
    }

    /// From now on grants nothing, or does so again.
    pub fn drain(&self, is_draining: bool) {
        self.state().is_draining = is_draining;
    }

    /// Takes all frames from a client that has said nothing for the time of its lease.
    pub fn end_lease(&self, space: u128) {
        self.state().forget(space);
    }

    /// From now on says that it is in this rack, or in none.
    pub fn put_in_rack(&self, rack: Option<Rack>) {
        self.state().rack = rack;
    }

    /// Changes one byte behind everybody's back.
    pub fn damage(&self, at: RegionOffset) {
        if let Some(byte) = self.state().bytes.get_mut(at.get() as usize) {
            *byte ^= 0x55;
        }
    }

    /// Frames that nobody holds.
    pub fn free_frames(&self) -> usize {
        self.state().owners.iter().filter(|owner| owner.is_none()).count()
    }

    /// The lanes that have a link here, whole or broken.
    pub fn lanes(&self) -> BTreeSet<u8> {
        self.state().lanes.iter().copied().collect()
    }

    /// The lanes by which something was read.
    pub fn readers(&self) -> BTreeSet<u8> {
        self.state().readers.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked is a test.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn description(&self) -> NodeDescription {
        NodeDescription {
            incarnation: Incarnation(self.incarnation),
            frames: self.owners.len() as u64,
            lease: LEASE,
            rack: self.rack,
        }
    }

    /// Does it, unless it has been done.
    fn obey(
        &mut self,
        client: ClientIdentity,
        ticket: Ticket,
        request: &mut Request,
    ) -> Result<Answer, Refusal> {
        let lane = (client.space, client.lane);
        if request.is_change()
            && let Some(done) = self.done.get(&lane)
            && done.back().is_some_and(|(last, _)| *last >= ticket)
        {
            let known = done.iter().find(|(known, _)| *known == ticket);
            return known.map_or(Err(Refusal::Forgotten), |(_, result)| result.clone());
        }
        if matches!(request, Request::Read { .. }) {
            self.readers.insert(client.lane);
        }
        let result = self.carry_out(client.space, request);
        match result {
            Ok(_) => self.figures.requests += 1,
            Err(_) => self.figures.refused += 1,
        }
        if request.is_change() && *request != Request::Leave {
            let done = self.done.entry(lane).or_default();
            done.push_back((ticket, result.clone()));
            if done.len() > MOST_REQUESTS {
                done.pop_front();
            }
        }
        result
    }

    fn carry_out(&mut self, space: u128, request: &mut Request) -> Result<Answer, Refusal> {
        match request {
            Request::Grant { order, count } => self.grant(space, *order, *count),
            Request::Release { chunks } => self.release(space, chunks),
            Request::Read { at, length_bytes, buffer } => {
                let range = self.granted(space, *at, *length_bytes as usize)?;
                buffer.clear();
                buffer.extend_from_slice(&self.bytes[range]);
                self.figures.read_bytes += u64::from(*length_bytes);
                Ok(Answer::Read)
            }
            Request::Write { at, data } => {
                let range = self.granted(space, *at, data.len())?;
                self.bytes[range].copy_from_slice(data);
                self.figures.written_bytes += data.len() as u64;
                Ok(Answer::Written)
            }
            Request::Renew => Ok(Answer::Renewed),
            Request::Statistics => Ok(Answer::Statistics(self.statistics(space))),
            Request::Leave => {
                self.forget(space);
                Ok(Answer::Left)
            }
            Request::Attach { .. } | Request::Keys { .. } => Err(Refusal::NoRdma),
        }
    }

    fn grant(&mut self, space: u128, order: Order, count: u16) -> Result<Answer, Refusal> {
        if self.is_draining {
            return Err(Refusal::Draining);
        }
        let mut granted = Vec::new();
        for (chunk, owners) in self.owners.chunks_exact_mut(order.frames() as usize).enumerate() {
            if granted.len() < usize::from(count) && owners.iter().all(Option::is_none) {
                owners.fill(Some(space));
                granted.push(Frame::new(chunk as u32 * order.frames()));
            }
        }
        if granted.is_empty() { Err(Refusal::Full) } else { Ok(Answer::Granted(granted)) }
    }

    fn release(&mut self, space: u128, chunks: &[Chunk]) -> Result<Answer, Refusal> {
        for (at, chunk) in chunks.iter().enumerate() {
            let is_twice = chunks[..at].iter().any(|other| {
                let (these, those) = (chunk.frames(), other.frames());
                these.start < those.end && those.start < these.end
            });
            if is_twice || !self.owns(space, chunk.frames()) {
                return Err(Refusal::NotGranted);
            }
        }
        for chunk in chunks {
            self.empty(chunk.frames());
        }
        Ok(Answer::Released)
    }

    fn owns(&self, space: u128, frames: Range<u64>) -> bool {
        let range = frames.start as usize..frames.end as usize;
        self.owners.get(range).is_some_and(|owners| owners.iter().all(|owner| *owner == Some(space)))
    }

    /// The bytes, if all of them are the client's.
    fn granted(&self, space: u128, at: RegionOffset, length: usize) -> Result<Range<usize>, Refusal> {
        let frames = at.frames(length).ok_or(Refusal::NotGranted)?;
        if !self.owns(space, frames) {
            return Err(Refusal::NotGranted);
        }
        Ok(at.get() as usize..at.get() as usize + length)
    }

    fn empty(&mut self, frames: Range<u64>) {
        for frame in frames.start as usize..frames.end as usize {
            self.owners[frame] = None;
            self.bytes[frame * FRAME_BYTES..][..FRAME_BYTES].fill(0);
        }
    }

    fn forget(&mut self, space: u128) {
        for frame in 0..self.owners.len() {
            if self.owners[frame] == Some(space) {
                self.empty(frame as u64..frame as u64 + 1);
            }
        }
        self.done.retain(|(owner, _), _| *owner != space);
    }

    fn statistics(&self, space: u128) -> NodeStatistics {
        let count =
            |wanted: Option<u128>| self.owners.iter().filter(|owner| **owner == wanted).count() as u64;
        let mut spaces: Vec<u128> = self.owners.iter().flatten().copied().collect();
        spaces.sort_unstable();
        spaces.dedup();
        NodeStatistics {
            frames: self.owners.len() as u64,
            free_frames: count(None),
            free_chunks: self.free_chunks(),
            clients: spaces.len() as u32,
            own_frames: count(Some(space)),
            ..self.figures
        }
    }

    /// The free frames in chunks as large as they can be.
    fn free_chunks(&self) -> [u32; MOST_ORDER as usize + 1] {
        let mut chunks = [0; MOST_ORDER as usize + 1];
        let mut frame = 0;
        while frame < self.owners.len() {
            let is_free = |order: &u8| {
                let frames = 1 << order;
                frame.is_multiple_of(frames)
                    && self
                        .owners
                        .get(frame..frame + frames)
                        .is_some_and(|all| all.iter().all(Option::is_none))
            };
            match (0..=MOST_ORDER).rev().find(is_free) {
                Some(order) => {
                    chunks[usize::from(order)] += 1;
                    frame += 1 << order;
                }
                None => frame += 1,
            }
        }
        chunks
    }
}

struct Waiting {
    ticket: Ticket,
    request: Request,
    deadline: Instant,
}

/// A link to a node in this process.
pub struct MemoryLink {
    node: MemoryNode,
    client: ClientIdentity,
    description: NodeDescription,
    generation: u64,
    last: Ticket,
    waiting: VecDeque<Waiting>,
}

impl MemoryLink {
    /// One look: the requests that the node carries out now, and those that are late.
    fn turn(&mut self, into: &mut Vec<Completion>) -> Result<(), LinkError> {
        let mut state = self.node.state();
        if state.generation != self.generation {
            return Err(LinkError::Closed);
        }
        if state.stalled_from.is_none_or(|from| self.client.lane < from) {
            for Waiting { ticket, mut request, .. } in self.waiting.drain(..) {
                let result = state.obey(self.client, ticket, &mut request).map_err(Failure::from);
                into.push(Completion { ticket, request, result });
            }
        }
        let now = Instant::now();
        let mut at = 0;
        while at < self.waiting.len() {
            if self.waiting[at].deadline > now {
                at += 1;
            } else if let Some(Waiting { ticket, request, .. }) = self.waiting.remove(at) {
                into.push(Completion { ticket, request, result: Err(Failure::Late) });
            }
        }
        Ok(())
    }
}

impl Drop for MemoryLink {
    fn drop(&mut self) {
        let lanes = &mut self.node.state().lanes;
        if let Some(at) = lanes.iter().position(|lane| *lane == self.client.lane) {
            lanes.swap_remove(at);
        }
    }
}

impl Transport for MemoryLink {
    fn node(&self) -> NodeDescription {
        self.description
    }

    fn submit(&mut self, ticket: Ticket, request: Request, deadline: Instant) -> Result<(), Unsubmitted> {
        let bytes: usize = self.waiting.iter().map(|waiting| waiting.request.transfer_bytes()).sum();
        let why = if request.is_malformed() {
            SubmitError::Malformed
        } else if ticket <= self.last {
            SubmitError::Ticket
        } else if self.waiting.len() >= MOST_REQUESTS || bytes + request.transfer_bytes() > MOST_BYTES {
            SubmitError::Full
        } else {
            self.last = ticket;
            self.waiting.push_back(Waiting { ticket, request, deadline });
            return Ok(());
        };
        Err(Unsubmitted { why, request })
    }

    fn complete(&mut self, into: &mut Vec<Completion>, timeout: Duration) -> Result<(), LinkError> {
        let (before, end) = (into.len(), Instant::now() + timeout);
        loop {
            self.turn(into)?;
            if into.len() > before || Instant::now() >= end {
                return Ok(());
            }
            std::thread::sleep(LOOK.min(timeout));
        }
    }

    fn take_unanswered(&mut self) -> Vec<(Ticket, Request)> {
        self.waiting.drain(..).map(|waiting| (waiting.ticket, waiting.request)).collect()
    }

    fn pending(&self) -> usize {
        self.waiting.len()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn waits_to_send(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientIdentity = ClientIdentity { space: 7, lane: 0 };
    const STRANGER: ClientIdentity = ClientIdentity { space: 8, lane: 0 };
    const AT_ONCE: Duration = Duration::ZERO;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    fn ask(link: &mut MemoryLink, ticket: u64, request: Request) -> Completion {
        let mut done = Vec::new();
        link.submit(Ticket(ticket), request, soon()).unwrap();
        link.complete(&mut done, AT_ONCE).unwrap();
        assert_eq!(done.len(), 1);
        done.remove(0)
    }

    fn granted(link: &mut MemoryLink, ticket: u64) -> Frame {
        match ask(link, ticket, Request::Grant { order: Order::SLAB, count: 1 }).result {
            Ok(Answer::Granted(frames)) => frames[0],
            other => panic!("{other:?}"),
        }
    }

    fn read(at: RegionOffset) -> Request {
        Request::Read { at, length_bytes: 5, buffer: Vec::new() }
    }

    #[test]
    fn what_was_written_is_read() {
        let mut link = MemoryNode::new(128).connect(CLIENT);
        let at = granted(&mut link, 1).offset().checked_add(4094).unwrap();

        ask(&mut link, 2, Request::Write { at, data: b"hello".to_vec() });
        let done = ask(&mut link, 3, read(at));

        assert_eq!(done.result, Ok(Answer::Read));
        assert!(matches!(done.request, Request::Read { buffer, .. } if buffer == b"hello"));
    }

    #[test]
    fn a_stranger_reaches_nothing() {
        let node = MemoryNode::new(128);
        let at = granted(&mut node.connect(CLIENT), 1).offset();

        assert_eq!(
            ask(&mut node.connect(STRANGER), 1, read(at)).result,
            Err(Failure::Refused(Refusal::NotGranted))
        );
    }

    #[test]
    fn a_repeated_write_is_not_applied_again() {
        let node = MemoryNode::new(64);
        let mut link = node.connect(CLIENT);
        let at = granted(&mut link, 1).offset();
        let write = |text: &[u8]| Request::Write { at, data: text.to_vec() };
        ask(&mut link, 2, write(b"first"));
        ask(&mut link, 3, write(b"later"));
        node.cut();

        let mut link = node.connect(CLIENT);
        assert_eq!(ask(&mut link, 2, write(b"first")).result, Ok(Answer::Written));
        let Request::Read { buffer, .. } = ask(&mut link, 4, read(at)).request else { panic!() };
        assert_eq!(buffer, b"later");
    }

    #[test]
    fn a_cut_link_hands_back_what_was_not_answered() {
        let node = MemoryNode::new(64);
        let mut link = node.connect(CLIENT);
        link.submit(Ticket(1), Request::Renew, soon()).unwrap();
        node.cut();

        assert!(link.complete(&mut Vec::new(), AT_ONCE).is_err());
        assert_eq!(link.take_unanswered(), [(Ticket(1), Request::Renew)]);
    }

    #[test]
    fn a_restarted_node_is_another_one() {
        let node = MemoryNode::new(64);
        let before = node.connect(CLIENT).node().incarnation;
        granted(&mut node.connect(CLIENT), 1);
        node.restart();

        assert_ne!(node.connect(CLIENT).node().incarnation, before);
        assert_eq!(node.free_frames(), 64);
    }

    #[test]
    fn a_stalled_node_is_late() {
        let node = MemoryNode::new(64);
        let mut link = node.connect(CLIENT);
        node.stall(true);
        link.submit(Ticket(1), Request::Renew, Instant::now()).unwrap();

        let mut done = Vec::new();
        link.complete(&mut done, AT_ONCE).unwrap();

        assert_eq!(done[0].result, Err(Failure::Late));
    }

    #[test]
    fn a_full_node_says_so() {
        let mut link = MemoryNode::new(64).connect(CLIENT);
        let first = granted(&mut link, 1);
        let again = Request::Grant { order: Order::SLAB, count: 1 };

        assert_eq!(ask(&mut link, 2, again).result, Err(Failure::Refused(Refusal::Full)));
        let chunks = vec![Chunk::new(first, Order::SLAB).unwrap()];
        assert_eq!(ask(&mut link, 3, Request::Release { chunks }).result, Ok(Answer::Released));
        assert_eq!(granted(&mut link, 4), first);
    }

    #[test]
    fn too_much_at_a_time_comes_back() {
        let mut link = MemoryNode::new(64).connect(CLIENT);
        for ticket in 1..=MOST_REQUESTS as u64 {
            link.submit(Ticket(ticket), Request::Renew, soon()).unwrap();
        }
        let back = link.submit(Ticket(9999), Request::Statistics, soon()).unwrap_err();
        assert_eq!(back, Unsubmitted { why: SubmitError::Full, request: Request::Statistics });
    }
}

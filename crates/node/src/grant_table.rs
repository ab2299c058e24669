//! What a node knows: which client has been granted which frames, until when, and what came of their latest
//! requests. No socket, no memory and no clock: time and requests come in, and what is to be emptied goes
//! out.
//!
//! Invariants:
//! 1. A frame is *free* (in the allocator), *granted* to one client, or *used* (given back, and not emptied
//!    yet); exactly one of them.
//! 2. Granted and used frames together are no more than the node lends. So no more memory is in use, for free
//!    frames have none.
//! 3. A client that is forgotten gets another number when it comes back, and so sees another incarnation: it
//!    can't take what it is granted then for what it had before.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use farmem_transport::wire::TurnedAway;
use farmem_transport::{
    Answer, Chunk, ClientIdentity, Frame, Incarnation, MOST_REQUESTS, NodeDescription, Order, Refusal, Ticket,
};

use crate::buddy::{Buddy, ORDERS, chunks};
use crate::ranges::Ranges;

/// Numbers of frames for each frame that is lent. A number without memory behind it costs nothing, and with
/// many to choose from there is nearly always a chunk of the size that is wanted, however scattered the
/// frames in use lie. See docs/adr/0024-spare-numbers.md.
pub const NUMBERS_PER_FRAME: u64 = 4;
/// Most clients at a time.
pub(crate) const MOST_CLIENTS: usize = 4096;

/// The identity that a client has proved, if the connection demands one: the fingerprint of its
/// certificate.
pub type Credential = Option<[u8; 32]>;

/// What came of a change.
pub type Outcome = Result<Answer, Refusal>;

struct Client {
    number: u32,
    credential: Credential,
    heard_at: Duration,
    held: Ranges,
    /// By lane: the latest changes, in the order of their tickets.
    done: HashMap<u8, VecDeque<(Ticket, Outcome)>>,
}

/// The table of grants.
pub struct GrantTable {
    incarnation: u128,
    lease: Duration,
    lent_frames: u64,
    granted_frames: u64,
    buddy: Buddy,
    used: Ranges,
    clients: HashMap<u128, Client>,
    next_number: u32,
    is_draining: bool,
}

impl GrantTable {
    /// An empty table for a node that lends so many frames. `incarnation` is a random number.
    pub fn new(incarnation: u128, lent_frames: u64, lease: Duration) -> Self {
        let lent_frames = lent_frames.min(1 << 32);
        Self {
            incarnation,
            lease,
            lent_frames,
            granted_frames: 0,
            buddy: Buddy::new(lent_frames.saturating_mul(NUMBERS_PER_FRAME)),
            used: Ranges::default(),
            clients: HashMap::new(),
            next_number: 1,
            is_draining: false,
        }
    }

    /// Numbers of frames that can be granted: those with memory behind them, and the spare ones.
    pub fn numbers(&self) -> u64 {
        self.buddy.frames()
    }

    /// A client comes, for the first time or again. What the node is for it.
    ///
    /// # Errors
    /// It can't be let in.
    pub fn introduce(
        &mut self,
        now: Duration,
        identity: ClientIdentity,
        credential: Credential,
    ) -> Result<NodeDescription, TurnedAway> {
        let known = self.clients.contains_key(&identity.space);
        if !known && self.is_draining {
            return Err(TurnedAway::Draining);
        }
        if !known && self.clients.len() >= MOST_CLIENTS {
            return Err(TurnedAway::Crowded);
        }
        let next = &mut self.next_number;
        let client = self.clients.entry(identity.space).or_insert_with(|| {
            let number = *next;
            *next = next.wrapping_add(1);
            Client { number, credential, heard_at: now, held: Ranges::default(), done: HashMap::new() }
        });
        if client.credential != credential {
            return Err(TurnedAway::Identity);
        }
        client.heard_at = now;
        Ok(NodeDescription {
            incarnation: Incarnation(self.incarnation >> 32 << 32 | u128::from(client.number)),
            frames: self.lent_frames,
            lease: self.lease,
            rack: None,
        })
    }

    /// A client has shown that it is alive. False when it has been forgotten.
    #[must_use]
    pub fn hear(&mut self, now: Duration, space: u128) -> bool {
        self.clients.get_mut(&space).map(|client| client.heard_at = now).is_some()
    }

    /// Whether all of these frames are granted to a client.
    pub fn is_granted(&self, space: u128, frames: &std::ops::Range<u64>) -> bool {
        self.clients.get(&space).is_some_and(|client| client.held.contains(frames))
    }

    /// What came of a change that a lane asks for, if it has asked before.
    pub fn recall(&self, client: ClientIdentity, ticket: Ticket) -> Option<Outcome> {
        let done = self.clients.get(&client.space)?.done.get(&client.lane)?;
        let (last, _) = done.back()?;
        if ticket > *last {
            return None;
        }
        let known = done.binary_search_by_key(&ticket, |(ticket, _)| *ticket);
        Some(known.map_or(Err(Refusal::Forgotten), |at| done[at].1.clone()))
    }

    /// Keeps what came of a change, for [`GrantTable::recall`].
    pub fn remember(&mut self, client: ClientIdentity, ticket: Ticket, outcome: &Outcome) {
        let Some(known) = self.clients.get_mut(&client.space) else { return };
        let done = known.done.entry(client.lane).or_default();
        done.push_back((ticket, outcome.clone()));
        if done.len() > MOST_REQUESTS {
            done.pop_front();
        }
    }

    /// Grants up to `count` chunks.
    ///
    /// # Errors
    /// There is none. If frames are to be emptied there may be some when they are.
    pub fn grant(&mut self, space: u128, order: Order, count: u16) -> Result<Vec<Frame>, Refusal> {
        if self.is_draining {
            return Err(Refusal::Draining);
        }
        let client = self.clients.get_mut(&space).ok_or(Refusal::NotGranted)?;
        let size = u64::from(order.frames());
        let mut granted = Vec::new();
        while granted.len() < usize::from(count)
            && self.granted_frames + self.used.count() + size <= self.lent_frames
            && let Some(chunk) = self.buddy.allocate(order)
        {
            client.held.insert(chunk.frames());
            self.granted_frames += size;
            granted.push(chunk.first());
        }
        if granted.is_empty() { Err(Refusal::Full) } else { Ok(granted) }
    }

    /// Takes chunks back, all or none. They are to be emptied.
    ///
    /// # Errors
    /// One of them is not the client's, or named twice.
    pub fn release(&mut self, space: u128, chunks: &[Chunk]) -> Result<(), Refusal> {
        let client = self.clients.get_mut(&space).ok_or(Refusal::NotGranted)?;
        for (at, chunk) in chunks.iter().enumerate() {
            if !client.held.remove(&chunk.frames()) {
                chunks[..at].iter().for_each(|taken| client.held.insert(taken.frames()));
                return Err(Refusal::NotGranted);
            }
        }
        for chunk in chunks {
            self.used.insert(chunk.frames());
            self.granted_frames -= u64::from(chunk.order().frames());
        }
        Ok(())
    }

    /// Forgets a client, and takes all from it. It is to be emptied.
    pub fn forget(&mut self, space: u128) {
        let Some(client) = self.clients.remove(&space) else { return };
        self.granted_frames -= client.held.count();
        client.held.into_iter().for_each(|frames| self.used.insert(frames));
    }

    /// Forgets the clients that have said nothing for the time of a lease, and says which they are.
    pub fn expire(&mut self, now: Duration) -> Vec<u128> {
        let is_over = |client: &Client| now.saturating_sub(client.heard_at) > self.lease;
        let over: Vec<u128> =
            self.clients.iter().filter(|(_, client)| is_over(client)).map(|(space, _)| *space).collect();
        over.iter().for_each(|space| self.forget(*space));
        over
    }

    /// Some of the frames that are to be emptied, at most `most`. When they are empty:
    /// [`GrantTable::emptied`].
    pub fn to_empty(&self, most: u64) -> Option<std::ops::Range<u64>> {
        self.used.first(most)
    }

    /// These frames, which [`GrantTable::to_empty`] named, are empty, and free for everybody.
    pub fn emptied(&mut self, frames: std::ops::Range<u64>) {
        if self.used.remove(&frames) {
            chunks(frames).for_each(|chunk| self.buddy.free(chunk));
        }
    }

    /// From now on nothing is granted, and nobody new is let in.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Clients that are known.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Frames of a client.
    pub fn held_by(&self, space: u128) -> u64 {
        self.clients.get(&space).map_or(0, |client| client.held.count())
    }

    /// Frames that could be granted, now or when what was given back is empty.
    pub fn free_frames(&self) -> u64 {
        self.lent_frames - self.granted_frames
    }

    /// Frames that are lent, to all clients together.
    pub fn lent_frames(&self) -> u64 {
        self.lent_frames
    }

    /// Free chunks of each order, by their numbers.
    pub fn free_chunks(&self) -> [u32; ORDERS] {
        self.buddy.free_chunks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEASE: Duration = Duration::from_secs(30);
    const START: Duration = Duration::ZERO;
    const CLIENT: ClientIdentity = ClientIdentity { space: 1, lane: 0 };

    fn grants(frames: u64) -> GrantTable {
        let mut grants = GrantTable::new(77 << 64, frames, LEASE);
        grants.introduce(START, CLIENT, None).unwrap();
        grants
    }

    fn empty_all(grants: &mut GrantTable) {
        while let Some(frames) = grants.to_empty(3) {
            grants.emptied(frames);
        }
    }

    #[test]
    fn no_more_is_granted_than_is_lent() {
        let mut grants = grants(100);
        assert_eq!(grants.grant(1, Order::SLAB, 5).map(|chunks| chunks.len()), Ok(1));
        assert_eq!(grants.grant(1, Order::SLAB, 1), Err(Refusal::Full));
        assert_eq!(grants.grant(1, Order::new(0).unwrap(), 100).map(|chunks| chunks.len()), Ok(36));
    }

    #[test]
    fn used_frames_are_granted_when_they_are_empty() {
        let mut grants = grants(64);
        let first = grants.grant(1, Order::SLAB, 1).unwrap()[0];
        grants.release(1, &[Chunk::new(first, Order::SLAB).unwrap()]).unwrap();
        assert_eq!(grants.grant(1, Order::SLAB, 1), Err(Refusal::Full));
        empty_all(&mut grants);
        assert_eq!(grants.grant(1, Order::SLAB, 1), Ok(vec![first]));
    }

    #[test]
    fn a_release_is_whole_or_nothing() {
        let mut grants = grants(64);
        let first = grants.grant(1, Order::SLAB, 1).unwrap()[0].get();
        let frame = |at| Chunk::new(Frame::new(first + at), Order::new(0).unwrap()).unwrap();
        for chunks in [vec![frame(0), frame(0)], vec![frame(1), frame(64)]] {
            assert_eq!(grants.release(1, &chunks), Err(Refusal::NotGranted));
            assert_eq!(grants.held_by(1), 64);
        }
        assert_eq!(grants.release(1, &[frame(5), frame(9)]), Ok(()));
        assert!(grants.is_granted(1, &(u64::from(first) + 6..u64::from(first) + 9)));
        assert!(!grants.is_granted(1, &(u64::from(first) + 5..u64::from(first) + 9)));
    }

    #[test]
    fn a_lease_ends_when_nothing_is_heard() {
        let mut grants = grants(64);
        let before = grants.introduce(START, CLIENT, None).unwrap().incarnation;
        grants.grant(1, Order::SLAB, 1).unwrap();
        assert!(grants.hear(LEASE, 1));
        assert_eq!(grants.expire(LEASE * 2), []);
        assert_eq!(grants.expire(LEASE * 2 + Duration::from_nanos(1)), [1]);
        assert_eq!(grants.free_frames(), 64);
        let after = grants.introduce(LEASE * 3, CLIENT, None).unwrap().incarnation;
        assert_ne!(before, after);
    }

    #[test]
    fn an_identity_goes_with_its_certificate() {
        let mut grants = grants(64);
        assert_eq!(grants.introduce(START, CLIENT, Some([1; 32])), Err(TurnedAway::Identity));
        assert!(grants.introduce(START, ClientIdentity { space: 1, lane: 9 }, None).is_ok());
    }

    #[test]
    fn repetitions_are_recalled_as_long_as_there_is_room() {
        let mut grants = grants(64);
        for ticket in (2..=2 * MOST_REQUESTS as u64 + 2).step_by(2) {
            assert_eq!(grants.recall(CLIENT, Ticket(ticket)), None);
            grants.remember(CLIENT, Ticket(ticket), &Ok(Answer::Written));
        }
        assert_eq!(grants.recall(CLIENT, Ticket(2)), Some(Err(Refusal::Forgotten)));
        assert_eq!(grants.recall(CLIENT, Ticket(4)), Some(Ok(Answer::Written)));
        assert_eq!(grants.recall(CLIENT, Ticket(5)), Some(Err(Refusal::Forgotten)));
        assert_eq!(grants.recall(ClientIdentity { lane: 1, ..CLIENT }, Ticket(4)), None);
    }

    #[test]
    fn a_draining_node_grants_nothing_and_keeps_what_is_there() {
        let mut grants = grants(128);
        let first = grants.grant(1, Order::SLAB, 1).unwrap()[0];
        grants.drain();
        assert_eq!(grants.grant(1, Order::SLAB, 1), Err(Refusal::Draining));
        assert!(grants.introduce(START, CLIENT, None).is_ok());
        assert_eq!(
            grants.introduce(START, ClientIdentity { space: 2, lane: 0 }, None),
            Err(TurnedAway::Draining)
        );
        assert!(grants.is_granted(1, &first.offset().frames(9).unwrap()));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Grant { space: u128, order: u8, count: u16 },
        Release { space: u128, which: prop::sample::Index },
        Forget { space: u128 },
        Empty { most: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let space = 1u128..4;
        let step = prop_oneof![
            4 => (space.clone(), 0u8..8, 1u16..4).prop_map(|(space, order, count)| Step::Grant { space, order, count }),
            3 => (space.clone(), any::<prop::sample::Index>()).prop_map(|(space, which)| Step::Release { space, which }),
            1 => space.prop_map(|space| Step::Forget { space }),
            3 => (1u64..100).prop_map(|most| Step::Empty { most }),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// Whatever clients do: frames have one owner, and never more are in use than are lent.
        #[test]
        fn every_frame_has_one_owner(steps in steps()) {
            let mut grants = GrantTable::new(0, 500, LEASE);
            let mut held: Vec<(u128, Chunk)> = Vec::new();
            for step in steps {
                match step {
                    Step::Grant { space, order, count } => {
                        grants.introduce(START, ClientIdentity { space, lane: 0 }, None).unwrap();
                        let order = Order::new(order).unwrap();
                        for first in grants.grant(space, order, count).unwrap_or_default() {
                            let chunk = Chunk::new(first, order).unwrap();
                            let overlaps = |other: &Chunk| {
                                other.frames().start < chunk.frames().end && chunk.frames().start < other.frames().end
                            };
                            prop_assert!(!held.iter().any(|(_, other)| overlaps(other)));
                            held.push((space, chunk));
                        }
                    }
                    Step::Release { space, which } if !held.is_empty() => {
                        let at = which.index(held.len());
                        let is_own = held[at].0 == space;
                        prop_assert_eq!(grants.release(space, &[held[at].1]).is_ok(), is_own);
                        if is_own {
                            held.swap_remove(at);
                        }
                    }
                    Step::Release { .. } => {}
                    Step::Forget { space } => {
                        grants.forget(space);
                        held.retain(|(owner, _)| *owner != space);
                    }
                    Step::Empty { most } => {
                        if let Some(frames) = grants.to_empty(most) {
                            grants.emptied(frames);
                        }
                    }
                }
                let in_use: u64 = held.iter().map(|(_, chunk)| u64::from(chunk.order().frames())).sum();
                prop_assert_eq!(grants.free_frames(), 500 - in_use);
                prop_assert!(in_use + grants.used.count() <= 500);
                for (space, chunk) in &held {
                    prop_assert!((1..4).all(|other| grants.is_granted(other, &chunk.frames()) == (other == *space)));
                }
            }
            (1..4).for_each(|space| grants.forget(space));
            empty_all(&mut grants);
            prop_assert_eq!(grants.free_chunks(), GrantTable::new(0, 500, LEASE).free_chunks());
        }
    }
}

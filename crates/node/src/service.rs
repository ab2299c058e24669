//! What a node does when it is asked: the grant table decides, the region holds, and the answer goes out as
//! bytes.

use std::net::IpAddr;
use std::time::Duration;

use farmem_sys::shared::SharedMemoryError;
use farmem_transport::stream::{Outbox, Stream};
use farmem_transport::wire::{Heard, TurnedAway, encode_answer, encode_read_answer};
use farmem_transport::{
    Answer, Chunk, ClientIdentity, FRAME_BYTES, NodeDescription, NodeStatistics, Rack, Refusal, RegionOffset,
    Ticket,
};

use crate::fault::{FaultPoint, Faults};
use crate::grant_table::{Credential, GrantTable, Outcome};
use crate::rdma::Rdma;
use crate::region::Region;

/// Frames that are emptied at a time, between requests: 64 MiB, some milliseconds.
const EMPTIED_AT_A_TIME: u64 = (64 << 20) / FRAME_BYTES as u64;

/// What becomes of the client that asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// It goes on.
    Stays,
    /// It has gone, and all its lanes with it.
    Left,
    /// It was forgotten before it asked: its link is worth nothing any more.
    Forgotten,
}

/// Where an answer goes.
pub(crate) struct Reply<'a> {
    pub(crate) outbox: &'a mut Outbox,
    /// Takes long answers as they are made, if it can.
    pub(crate) by: Option<&'a mut Stream>,
}

/// Grants and region.
pub(crate) struct Service {
    grants: GrantTable,
    region: Region,
    figures: NodeStatistics,
    rack: Option<Rack>,
    rdma: Rdma,
    pub(crate) faults: Faults,
}

impl Service {
    /// A node with all of its memory free.
    pub(crate) fn new(
        incarnation: u128,
        lent_frames: u64,
        lease: Duration,
        rack: Option<Rack>,
        rdma: Rdma,
        faults: Faults,
    ) -> Result<Self, SharedMemoryError> {
        let grants = GrantTable::new(incarnation, lent_frames, lease);
        let region = Region::new(grants.numbers())?;
        Ok(Self { grants, region, figures: NodeStatistics::default(), rack, rdma, faults })
    }

    /// Lets a client in.
    pub(crate) fn introduce(
        &mut self,
        now: Duration,
        client: ClientIdentity,
        credential: Credential,
    ) -> Result<NodeDescription, TurnedAway> {
        let node = self.grants.introduce(now, client, credential)?;
        Ok(NodeDescription { rack: self.rack, ..node })
    }

    /// Does what a client asks, unless it has been done before, and appends the answer.
    pub(crate) fn obey(
        &mut self,
        now: Duration,
        client: ClientIdentity,
        ticket: Ticket,
        heard: &Heard<'_>,
        local: Option<IpAddr>,
        reply: Reply<'_>,
    ) -> Standing {
        let Reply { outbox, by } = reply;
        if !self.grants.hear(now, client.space) {
            return Standing::Forgotten;
        }
        let outcome = match heard {
            Heard::Read { at, length_bytes } => {
                self.read(client, ticket, *at, *length_bytes, Reply { outbox, by })
            }
            heard if heard.is_change() => Some(self.change(client, ticket, heard)),
            Heard::Statistics => Some(Ok(Answer::Statistics(self.statistics(client.space)))),
            Heard::Attach { endpoint } => {
                let attached = self.rdma.attach(client, local, endpoint);
                self.faults.pass(FaultPoint::Attached);
                Some(attached.map(|(endpoint, mailbox)| Answer::Attached { endpoint, mailbox }))
            }
            Heard::Keys { at, length_bytes } => {
                let keys = self.keys(client, *at, *length_bytes as usize);
                self.faults.pass(FaultPoint::Registered);
                Some(keys)
            }
            _ => Some(Ok(Answer::Renewed)),
        };
        match &outcome {
            Some(Err(_)) => self.figures.refused += 1,
            Some(Ok(_)) | None => self.figures.requests += 1,
        }
        if let Some(outcome) = outcome {
            encode_answer(ticket, &outcome, outbox.end());
        }
        if *heard == Heard::Leave { Standing::Left } else { Standing::Stays }
    }

    /// Empties some of what was given back. Whether there is more.
    pub(crate) fn tidy(&mut self) -> bool {
        let Some(frames) = self.grants.to_empty(EMPTIED_AT_A_TIME) else { return false };
        self.faults.pass(FaultPoint::BeforeEmptying);
        self.region.empty(frames.clone());
        self.faults.pass(FaultPoint::Emptied);
        self.grants.emptied(frames);
        self.grants.to_empty(1).is_some()
    }

    /// Forgets clients that have said nothing for the time of a lease. How many.
    pub(crate) fn expire(&mut self, now: Duration) -> usize {
        let forgotten = self.grants.expire(now);
        forgotten.iter().for_each(|space| self.rdma.forget(*space));
        forgotten.len()
    }

    /// A connection of that lane has ended, or another one begins: what its device could reach it reaches no
    /// more.
    pub(crate) fn detach(&mut self, client: ClientIdentity) {
        self.rdma.detach(client);
    }

    fn keys(&mut self, client: ClientIdentity, at: RegionOffset, length: usize) -> Outcome {
        let frames = at.frames(length).ok_or(Refusal::NotGranted)?;
        let grants = &self.grants;
        if !grants.is_granted(client.space, &frames) {
            return Err(Refusal::NotGranted);
        }
        let is_granted = |frame: u64| grants.is_granted(client.space, &(frame..frame + 1));
        self.rdma.keys(client.space, &self.region, frames, is_granted).map(Answer::Keys)
    }

    /// See [`GrantTable::drain`].
    pub(crate) fn drain(&mut self) {
        self.grants.drain();
    }

    /// Clients that are known.
    pub(crate) fn clients(&self) -> usize {
        self.grants.clients()
    }

    /// How the node is, as one client sees it.
    pub(crate) fn statistics(&self, space: u128) -> NodeStatistics {
        let (read_bytes, written_bytes) = self.rdma.moved_bytes();
        NodeStatistics {
            read_bytes: self.figures.read_bytes.wrapping_add(read_bytes),
            written_bytes: self.figures.written_bytes.wrapping_add(written_bytes),
            frames: self.grants.lent_frames(),
            free_frames: self.grants.free_frames(),
            free_chunks: self.grants.free_chunks(),
            clients: self.grants.clients() as u32,
            own_frames: self.grants.held_by(space),
            ..self.figures
        }
    }

    /// Appends the whole answer; `None` when it did.
    fn read(
        &mut self,
        client: ClientIdentity,
        ticket: Ticket,
        at: RegionOffset,
        length_bytes: u32,
        Reply { outbox, by }: Reply<'_>,
    ) -> Option<Outcome> {
        let length = length_bytes as usize;
        if !self.is_granted(client, at, length) {
            return Some(Err(Refusal::NotGranted));
        }
        let start = outbox.end().len();
        encode_read_answer(ticket, length_bytes, outbox.end());
        if !self.region.read(at, length, outbox, by) {
            outbox.end().truncate(start);
            return Some(Err(Refusal::NotGranted));
        }
        self.figures.read_bytes += u64::from(length_bytes);
        None
    }

    fn change(&mut self, client: ClientIdentity, ticket: Ticket, heard: &Heard<'_>) -> Outcome {
        if let Some(outcome) = self.grants.recall(client, ticket) {
            return outcome;
        }
        self.faults.pass(FaultPoint::BeforeChange);
        let outcome = match heard {
            Heard::Grant { order, count } => {
                let mut granted = self.grants.grant(client.space, *order, *count);
                // What was given back and is not empty yet may be just what is wanted.
                while granted == Err(Refusal::Full) && self.grants.to_empty(1).is_some() {
                    self.tidy();
                    granted = self.grants.grant(client.space, *order, *count);
                }
                granted.map(Answer::Granted)
            }
            Heard::Release(chunks) => self.release(client, chunks),
            Heard::Write { at, data } => self.write(client, *at, data),
            _ => {
                self.rdma.forget(client.space);
                self.grants.forget(client.space);
                Ok(Answer::Left)
            }
        };
        self.grants.remember(client, ticket, &outcome);
        self.faults.pass(FaultPoint::Changed);
        outcome
    }

    fn release(&mut self, client: ClientIdentity, chunks: &[Chunk]) -> Outcome {
        self.grants.release(client.space, chunks)?;
        // Before anybody is granted them, or they are emptied.
        chunks.iter().for_each(|chunk| self.rdma.revoke(client.space, &chunk.frames()));
        self.faults.pass(FaultPoint::Revoked);
        Ok(Answer::Released)
    }

    fn write(&mut self, client: ClientIdentity, at: RegionOffset, data: &[u8]) -> Outcome {
        if !self.is_granted(client, at, data.len()) || !self.region.write(at, data) {
            return Err(Refusal::NotGranted);
        }
        self.figures.written_bytes += data.len() as u64;
        Ok(Answer::Written)
    }

    fn is_granted(&self, client: ClientIdentity, at: RegionOffset, length: usize) -> bool {
        at.frames(length).is_some_and(|frames| self.grants.is_granted(client.space, &frames))
    }
}

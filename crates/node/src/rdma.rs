//! What clients reach by RDMA, without a word from this process: each has a protection domain of its own, and
//! in it the frames that are granted to it, and nothing else.
//!
//! Invariants:
//! 1. A frame is registered in the domain of the client that holds it, or nowhere: registrations are made of
//!    frames that are granted, and are gone before a frame is given back, emptied, or granted to anybody
//!    else.
//! 2. What a client's devices have moved is in its mailboxes, one for each lane, or has been added up in
//!    `moved`; never in both.
//! 3. A lane has one queue; that of an earlier connection of the lane has gone before the next one is told of
//!    its own.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use farmem_sys::shared::SharedMemory;
use farmem_transport::{
    ClientIdentity, Endpoint, FRAME_BYTES, Frame, MAIL_BYTES, Mailbox, Order, Refusal, RemoteKey, rdma,
};
use farmem_verbs::{Device, Domain, Queue, Registration, Remote, VerbsError, Wanted};

use crate::region::Region;
use crate::server::WantedRdma;

/// A registration lies within an aligned piece of so many frames: a slab. With larger ones, giving one slab
/// back would take the keys of others.
const UNIT_FRAMES: u64 = Order::SLAB.frames() as u64;
/// Mailboxes of a client: one for each lane that there can be.
const MAILBOXES_BYTES: usize = MAIL_BYTES << u8::BITS;

/// Connecting two devices in vain holds up everybody, for the kernel looks for the other one while this
/// thread waits. So it is tried in vain no more than so many times in so long, whoever asks; until some of
/// that has passed, clients that ask go without RDMA.
const FAILURES: usize = 4;
const FAILURES_IN: Duration = Duration::from_secs(60);
/// What fails sooner holds up nobody.
const HOLDUP: Duration = Duration::from_millis(50);

/// Connections that failed, and took their time.
#[derive(Default)]
struct Failures(VecDeque<Instant>);

impl Failures {
    /// Whether another one may be tried.
    fn may_try(&mut self, now: Instant) -> bool {
        while self.0.front().is_some_and(|at| now.saturating_duration_since(*at) >= FAILURES_IN) {
            self.0.pop_front();
        }
        self.0.len() < FAILURES
    }

    /// One that began then has failed.
    fn note(&mut self, began: Instant, now: Instant) {
        if now.saturating_duration_since(began) >= HOLDUP {
            self.0.push_back(now);
        }
    }
}

struct Client {
    domain: Arc<Domain>,
    queues: HashMap<u8, Queue>,
    mailboxes: Registration,
    mail: Arc<SharedMemory>,
    /// By the number of the piece: registrations, and the frames of each.
    units: HashMap<u64, Vec<(Range<u64>, Registration)>>,
}

/// All of them.
pub(crate) struct Rdma {
    is_wanted: bool,
    wanted: Option<Wanted>,
    /// By this machine's address of the connection that asked. `None`: it was tried in vain.
    devices: HashMap<IpAddr, Option<Arc<Device>>>,
    clients: HashMap<u128, Client>,
    /// Bytes that were read and written by lanes that have gone.
    moved: [u64; 2],
    failures: Failures,
}

impl Client {
    fn new(device: &Arc<Device>) -> Result<Self, VerbsError> {
        let domain = Domain::new(device)?;
        let mail = SharedMemory::create(c"farmem-mail", MAILBOXES_BYTES)
            .map_err(|_| VerbsError::Unsuitable("there is no memory for mailboxes"))?;
        let mail = Arc::new(mail);
        let mailboxes = Registration::new(&domain, &mail, 0..MAILBOXES_BYTES, Remote::Peer)?;
        Ok(Self { domain, queues: HashMap::new(), mailboxes, mail, units: HashMap::new() })
    }

    fn mailbox(&self, lane: u8) -> Mailbox {
        let address = self.mailboxes.remote_address() + (usize::from(lane) * MAIL_BYTES) as u64;
        Mailbox { address, key: self.mailboxes.remote_key() }
    }

    /// What the client says that its devices have moved by these lanes. It may say anything: it counts, and
    /// nothing else follows from it.
    fn moved(&self, lanes: Range<usize>) -> [u64; 2] {
        let mut mail = [0; MAILBOXES_BYTES];
        // Inside, for it is as large as the memory.
        let _ = self.mail.copy_out(0, &mut mail);
        let (words, _) = mail.as_chunks::<8>();
        let sum = |which: usize| {
            let counts = words[2 * lanes.start..2 * lanes.end].iter().skip(which).step_by(2);
            counts.fold(0_u64, |sum, count| sum.wrapping_add(u64::from_le_bytes(*count)))
        };
        [sum(0), sum(1)]
    }

    fn empty_mailbox(&self, lane: u8) {
        let _ = self.mail.copy_in(usize::from(lane) * MAIL_BYTES, &[0; MAIL_BYTES]);
    }
}

impl Rdma {
    /// Nobody, yet. A device that is asked for by its name has to be there.
    pub(crate) fn new(wanted: &WantedRdma) -> Result<Self> {
        let (is_wanted, wanted) = match wanted {
            WantedRdma::None => (false, None),
            WantedRdma::Auto => (true, None),
            WantedRdma::Device(name) => (true, Some(name.parse::<Wanted>()?)),
        };
        if wanted.is_some() {
            can_register(&Device::open(wanted.as_ref(), None)?)?;
        }
        Ok(Self {
            is_wanted,
            wanted,
            devices: HashMap::new(),
            clients: HashMap::new(),
            moved: [0; 2],
            failures: Failures::default(),
        })
    }

    /// Connects a queue with that of a client's lane.
    pub(crate) fn attach(
        &mut self,
        client: ClientIdentity,
        local: Option<IpAddr>,
        theirs: &Endpoint,
    ) -> Result<(Endpoint, Mailbox), Refusal> {
        self.detach(client);
        let device = self.device(local.ok_or(Refusal::NoRdma)?).ok_or(Refusal::NoRdma)?;
        let began = Instant::now();
        if !self.failures.may_try(began) {
            tracing::debug!(
                space = format_args!("{:x}", client.space),
                "too many connections have failed: without RDMA"
            );
            return Err(Refusal::NoRdma);
        }
        self.connect(client, &device, theirs).map_err(|error| {
            self.failures.note(began, Instant::now());
            tracing::warn!(space = format_args!("{:x}", client.space), %error, "a client goes without RDMA");
            Refusal::NoRdma
        })
    }

    fn device(&mut self, local: IpAddr) -> Option<Arc<Device>> {
        if !self.is_wanted {
            return None;
        }
        let wanted = self.wanted.as_ref();
        let open = || match Device::open(wanted, Some(local))
            .and_then(|device| can_register(&device).map(|()| device))
        {
            Ok(device) => Some(device),
            Err(error) => {
                tracing::info!(address = %local, %error, "no RDMA at this address");
                None
            }
        };
        self.devices.entry(local).or_insert_with(open).clone()
    }

    fn connect(
        &mut self,
        client: ClientIdentity,
        device: &Arc<Device>,
        theirs: &Endpoint,
    ) -> Result<(Endpoint, Mailbox), VerbsError> {
        let known = match self.clients.entry(client.space) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => new.insert(Client::new(device)?),
        };
        if known.domain.device().place() != device.place() {
            return Err(VerbsError::Unsuitable("its other lanes come by another device"));
        }
        let mut queue = Queue::new(&known.domain, None, 1)?;
        queue.connect(&rdma::address(theirs))?;
        let own = rdma::endpoint(&queue.address());
        known.queues.insert(client.lane, queue);
        Ok((own, known.mailbox(client.lane)))
    }

    /// Keys of these frames, which are granted to the client, as are all of which `is_granted` says so.
    pub(crate) fn keys(
        &mut self,
        space: u128,
        region: &Region,
        frames: Range<u64>,
        is_granted: impl Fn(u64) -> bool,
    ) -> Result<Vec<RemoteKey>, Refusal> {
        let client = self.clients.get_mut(&space).ok_or(Refusal::NoRdma)?;
        let (mut keys, mut next) = (Vec::new(), frames.start);
        while next < frames.end {
            let unit = next / UNIT_FRAMES;
            let registered = client.units.entry(unit).or_default();
            if !registered.iter().any(|(held, _)| held.contains(&next)) {
                let held = around(next, unit, &is_granted);
                let bytes = held.start as usize * FRAME_BYTES..held.end as usize * FRAME_BYTES;
                let made = Registration::new(&client.domain, region.memory(), bytes, Remote::Peer);
                let made = made.map_err(|error| {
                    tracing::warn!(%error, "frames can't be reached by RDMA");
                    Refusal::NoRdma
                })?;
                registered.push((held, made));
            }
            let (held, registration) =
                registered.iter().find(|(held, _)| held.contains(&next)).ok_or(Refusal::NoRdma)?;
            keys.push(RemoteKey {
                first: Frame::new(held.start as u32),
                frames: (held.end - held.start) as u32,
                address: registration.remote_address(),
                key: registration.remote_key(),
            });
            next = held.end;
        }
        Ok(keys)
    }

    /// These frames are no longer the client's: from here on no device of it reaches them.
    pub(crate) fn revoke(&mut self, space: u128, frames: &Range<u64>) {
        let Some(client) = self.clients.get_mut(&space) else { return };
        for unit in frames.start / UNIT_FRAMES..frames.end.div_ceil(UNIT_FRAMES) {
            let Some(registered) = client.units.get_mut(&unit) else { continue };
            registered.retain(|(held, _)| held.end <= frames.start || frames.end <= held.start);
            if registered.is_empty() {
                client.units.remove(&unit);
            }
        }
    }

    /// The lane's connection has ended.
    pub(crate) fn detach(&mut self, client: ClientIdentity) {
        if let Some(known) = self.clients.get_mut(&client.space) {
            known.queues.remove(&client.lane);
            let lane = usize::from(client.lane);
            let moved = known.moved(lane..lane + 1);
            known.empty_mailbox(client.lane);
            self.add(moved);
        }
    }

    /// The client has gone, with all that it held.
    pub(crate) fn forget(&mut self, space: u128) {
        if let Some(gone) = self.clients.remove(&space) {
            self.add(gone.moved(0..1 << u8::BITS));
        }
    }

    fn add(&mut self, moved: [u64; 2]) {
        for (sum, moved) in self.moved.iter_mut().zip(moved) {
            *sum = sum.wrapping_add(moved);
        }
    }

    /// Bytes that clients say to have read and written by their devices.
    pub(crate) fn moved_bytes(&self) -> (u64, u64) {
        let all = self.clients.values().map(|client| client.moved(0..1 << u8::BITS));
        let [read, written] =
            all.fold(self.moved, |sum, moved| [sum[0].wrapping_add(moved[0]), sum[1].wrapping_add(moved[1])]);
        (read, written)
    }
}

/// Whether what a client writes could be registered at all: as much as a slab.
fn can_register(device: &Arc<Device>) -> Result<(), VerbsError> {
    let memory = SharedMemory::create(c"farmem-trial", Order::SLAB.bytes())
        .map_err(|_| VerbsError::Unsuitable("there is no memory for a slab"))?;
    Registration::new(&Domain::new(device)?, &Arc::new(memory), 0..Order::SLAB.bytes(), Remote::Peer)
        .map(drop)
}

/// The frames around one, without a gap, that are granted and lie in the same unit.
fn around(frame: u64, unit: u64, is_granted: &impl Fn(u64) -> bool) -> Range<u64> {
    let (first, end) = (unit * UNIT_FRAMES, (unit + 1) * UNIT_FRAMES);
    let before = (first..frame).rev().take_while(|other| is_granted(*other)).count() as u64;
    let behind = (frame + 1..end).take_while(|other| is_granted(*other)).count() as u64;
    frame - before..frame + 1 + behind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_connections_fail_slowly_in_a_minute_and_no_more() {
        let (mut failures, began) = (Failures::default(), Instant::now());
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        for second in 0..FAILURES as u64 {
            assert!(failures.may_try(at(second)));
            failures.note(at(second), at(second));
            assert!(failures.may_try(at(second)), "what fails at once is not counted");
            failures.note(at(second), at(second) + Duration::from_secs(1));
        }
        assert!(!failures.may_try(at(5)) && !failures.may_try(at(60)));
        assert!(failures.may_try(at(61)), "a minute after the first");
    }

    #[test]
    fn a_registration_ends_where_the_grant_or_the_unit_does() {
        assert_eq!(around(70, 1, &|_| true), 64..128);
        assert_eq!(around(70, 1, &|frame| frame != 68 && frame != 90), 69..90);
        assert_eq!(around(64, 1, &|frame| frame == 64), 64..65);
    }
}

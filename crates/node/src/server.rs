//! The node as a process: one thread, which waits for connections and for what they bring. So whatever a
//! request changes has changed before the next one is looked at, whoever sends it, and no lock says so.
//!
//! Nothing that comes in is believed: what is no message ends the connection that it came by, with a line on
//! standard error, and concerns nobody else. Nothing waits for a client: what its connection doesn't take
//! stays in its outbox, and until that is out nothing more is heard of it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result};
use farmem_log::BoundedLog;
use farmem_page::ByteCount;
use farmem_transport::stream::Stream;
use farmem_transport::{ClientIdentity, Destination, NodeStatistics, Rack, Security};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::clock::Clock;
use crate::connection::{Connection, End, Progress};
use crate::fault::{FaultPoint, Faults};
use crate::grant_table::MOST_CLIENTS;
use crate::listener::Listener;
use crate::rdma::Rdma;
use crate::service::Service;

/// Between two looks at the time.
const LOOK: Duration = Duration::from_millis(100);
/// A client that has connected identifies itself within this time.
const INTRODUCTION: Duration = Duration::from_secs(5);
/// Most connections at a time, however many descriptors there may be: as many clients as a node knows have 16
/// each. Connections that say nothing take little memory, and none is kept that doesn't say who it is.
const MOST_CONNECTIONS: usize = 16 * MOST_CLIENTS;
/// Descriptors that are left for everything else: listeners, memory, devices, a log, metrics. Where there are
/// few, a quarter.
const OTHER_DESCRIPTORS: u64 = 128;
const OTHER_SHARE: u64 = 4;
/// A connection by which nothing has come for so long gives back its buffers.
const IDLE: Duration = Duration::from_secs(1);
/// Connections that are accepted before those that are there have their turn.
const MOST_ACCEPTED: usize = 64;
/// Events that are looked at together.
const MOST_EVENTS: usize = 256;

/// What a node lends, and where it is found.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens; at least one address.
    pub listen: Vec<Destination>,
    /// What protects connections over networks.
    pub security: Security,
    /// Memory that it lends to all clients together.
    pub memory: ByteCount,
    /// What is granted to a client that says nothing for so long goes to others.
    pub lease: Duration,
    /// The rack that it is in, which clients are told.
    pub rack: Option<Rack>,
    /// Whether clients may reach their frames by RDMA.
    pub rdma: WantedRdma,
}

/// Whether, and through which device, clients reach their frames by RDMA.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum WantedRdma {
    /// Where there is a device with the address that a client has connected to.
    #[default]
    Auto,
    /// By this device: `NAME`, `NAME:PORT` or `NAME:PORT:GID`.
    Device(String),
    /// Not at all.
    None,
}

/// A node that listens.
pub struct Server {
    poll: OwnedFd,
    listeners: Vec<Listener>,
    security: Security,
    service: Service,
    lease: Duration,
    clock: Clock,
    connections: HashMap<u64, Place>,
    lanes: HashMap<ClientIdentity, u64>,
    /// Connections that have not said who they are, the oldest first.
    unidentified: BTreeSet<u64>,
    /// Connections that are to be called though nothing new has come, each of them once.
    unfinished: VecDeque<u64>,
    most_connections: usize,
    /// Whether nobody new is heard for now: there is no room for anybody.
    is_closed: bool,
    next: u64,
    looked_at: Duration,
    log: BoundedLog,
}

struct Place {
    connection: Connection,
    peer: String,
    interest: epoll::EventFlags,
    /// Whether it is among the unfinished.
    is_unfinished: bool,
}

/// The event of something that [`Server::turn`] was given to watch.
const OTHER: u64 = u64::MAX;
/// Events from here on, downwards from [`OTHER`], are those of listeners; those of connections count up from
/// 0.
const FIRST_LISTENER: u64 = u64::MAX - 1;

impl Server {
    /// Begins to listen. `other` is watched for the caller; see [`Server::turn`].
    ///
    /// # Errors
    /// A sentence: an address can't be listened at, or there is no memory for the tables.
    pub fn bind(options: &Options, other: Option<&impl AsFd>) -> Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot wait for clients")?;
        let listeners: Vec<Listener> = options.listen.iter().map(Listener::bind).collect::<Result<_>>()?;
        for (listener, event) in listeners.iter().zip((0..=FIRST_LISTENER).rev()) {
            epoll::add(&poll, listener, epoll::EventData::new_u64(event), epoll::EventFlags::IN)?;
        }
        if let Some(other) = other {
            epoll::add(&poll, other, epoll::EventData::new_u64(OTHER), epoll::EventFlags::IN)?;
        }
        let rdma = Rdma::new(&options.rdma)?;
        let service = Service::new(
            random()?,
            options.memory.pages().get(),
            options.lease,
            options.rack,
            rdma,
            Faults::ordered(),
        )
        .context("cannot make the memory that is to be lent")?;
        Ok(Self {
            poll,
            listeners,
            security: options.security.clone(),
            service,
            lease: options.lease,
            clock: Clock::start(),
            connections: HashMap::new(),
            lanes: HashMap::new(),
            unidentified: BTreeSet::new(),
            unfinished: VecDeque::new(),
            most_connections: most_connections(farmem_sys::descriptors::most()),
            is_closed: false,
            next: 0,
            looked_at: Duration::ZERO,
            log: BoundedLog::new("farmem node"),
        })
    }

    /// Where the node is found: the addresses that it was given, with the ports that it got.
    ///
    /// # Errors
    /// The kernel doesn't say.
    pub fn addresses(&self) -> Result<Vec<Destination>> {
        self.listeners.iter().map(Listener::address).collect()
    }

    /// How the node is.
    pub fn statistics(&self) -> NodeStatistics {
        self.service.statistics(0)
    }

    /// From now on grants nothing and lets nobody new in; clients that are there go on.
    pub fn drain(&mut self) {
        self.service.drain();
    }

    /// Whether any client is known.
    pub fn has_clients(&self) -> bool {
        self.service.clients() > 0
    }

    /// Waits until something comes, but not long, and deals with what has come. Whether the descriptor that
    /// [`Server::bind`] was given is ready.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn turn(&mut self) -> Result<bool> {
        let is_untidy = self.service.tidy();
        let is_busy = is_untidy || !self.unfinished.is_empty();
        let mut is_other = false;
        for event in self.wait(if is_busy { Duration::ZERO } else { LOOK })? {
            match event {
                OTHER => is_other = true,
                event => match self.listeners.get((FIRST_LISTENER - event) as usize) {
                    Some(_) => self.accept((FIRST_LISTENER - event) as usize),
                    None => self.wake(event),
                },
            }
        }
        for _ in 0..self.unfinished.len() {
            if let Some(id) = self.unfinished.pop_front() {
                self.resume(id);
            }
        }
        self.look();
        Ok(is_other)
    }

    fn wait(&self, timeout: Duration) -> Result<Vec<u64>> {
        let mut events = Vec::with_capacity(MOST_EVENTS);
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.as_nanos() as i64 };
        match epoll::wait(&self.poll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(events.iter().map(|event| event.data.u64()).collect()),
            Err(error) => Err(error).context("cannot wait for clients"),
        }
    }

    fn accept(&mut self, at: usize) {
        for _ in 0..MOST_ACCEPTED {
            let now = self.clock.now();
            match self.listeners[at].accept(&self.security) {
                Ok(Some((_, peer))) if self.connections.len() >= self.most_connections && !self.expel() => {
                    self.log.say(now, &format!("{peer} was turned away: there are too many connections"));
                }
                Ok(Some((stream, peer))) => self.welcome(stream, peer, now),
                Ok(None) => return,
                Err(error) => {
                    self.log.say(now, &format!("somebody could not be let in: {error}"));
                    if !error.is_lack() {
                        return;
                    }
                    if !self.expel() {
                        // A connection that waits is still there then, and the listener would be ready all
                        // the time.
                        return self.hear_listeners(false);
                    }
                }
            }
        }
    }

    /// Makes room for somebody new, at the cost of whoever has not said for longest who they are: known
    /// clients have memory here. Whether there was anybody.
    fn expel(&mut self) -> bool {
        let Some(oldest) = self.unidentified.first().copied() else { return false };
        self.close(oldest, &End::Crowded);
        true
    }

    fn hear_listeners(&mut self, is_open: bool) {
        let interest = if is_open { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        for (listener, event) in self.listeners.iter().zip((0..=FIRST_LISTENER).rev()) {
            // One that can't be changed is heard too often.
            let _ = epoll::modify(&self.poll, listener, epoll::EventData::new_u64(event), interest);
        }
        self.is_closed = !is_open;
    }

    fn welcome(&mut self, stream: Stream, peer: String, now: Duration) {
        self.service.faults.pass(FaultPoint::Accepted);
        let connection = Connection::new(stream, now);
        let interest = epoll::EventFlags::IN;
        let id = self.next;
        self.next += 1;
        if let Err(error) = epoll::add(&self.poll, &connection, epoll::EventData::new_u64(id), interest) {
            self.log.say(now, &format!("{peer} could not be let in: {error}"));
            return;
        }
        self.connections.insert(id, Place { connection, peer, interest, is_unfinished: false });
        self.unidentified.insert(id);
    }

    /// A connection is to be called again though nothing new may come.
    fn note_unfinished(&mut self, id: u64) {
        if let Some(place) = self.connections.get_mut(&id)
            && !std::mem::replace(&mut place.is_unfinished, true)
        {
            self.unfinished.push_back(id);
        }
    }

    /// Something has come, or can go. A connection that has a turn to come anyway waits for it: else whoever
    /// sends without pause would have two at a time.
    fn wake(&mut self, id: u64) {
        if self.connections.get(&id).is_some_and(|place| !place.is_unfinished) {
            self.call(id);
        }
    }

    /// The turn of a connection that is unfinished.
    fn resume(&mut self, id: u64) {
        if let Some(place) = self.connections.get_mut(&id) {
            place.is_unfinished = false;
            self.call(id);
        }
    }

    /// Lets a connection do what it has to do.
    fn call(&mut self, id: u64) {
        let now = self.clock.now();
        let Some(place) = self.connections.get_mut(&id) else { return };
        match place.connection.turn(now, &mut self.service) {
            Ok(Progress::Done) => {}
            Ok(Progress::More) => self.note_unfinished(id),
            Ok(Progress::Introduced(client)) => {
                self.unidentified.remove(&id);
                self.service.detach(client);
                tracing::info!(peer = place.peer, space = format_args!("{:x}", client.space), "client came");
                if let Some(earlier) = self.lanes.insert(client, id) {
                    self.close(earlier, &End::Replaced);
                }
                // Requests may have come with the introduction.
                self.note_unfinished(id);
            }
            Ok(Progress::Left(client)) => {
                tracing::info!(peer = place.peer, space = format_args!("{:x}", client.space), "client left");
                let other =
                    |(lane, _): &(&ClientIdentity, &u64)| lane.space == client.space && **lane != client;
                let others: Vec<u64> = self.lanes.iter().filter(other).map(|(_, id)| *id).collect();
                others.iter().for_each(|other| self.close(*other, &End::Left));
                self.note_unfinished(id);
            }
            Err(end) => return self.close(id, &end),
        }
        self.watch(id);
    }

    /// Has the kernel say what the connection wants to know.
    fn watch(&mut self, id: u64) {
        let Some(place) = self.connections.get_mut(&id) else { return };
        let mut interest = epoll::EventFlags::empty();
        interest.set(epoll::EventFlags::IN, place.connection.awaits_readable());
        interest.set(epoll::EventFlags::OUT, place.connection.awaits_writable());
        if interest == place.interest {
            return;
        }
        place.interest = interest;
        if let Err(error) =
            epoll::modify(&self.poll, &place.connection, epoll::EventData::new_u64(id), interest)
        {
            self.close(id, &End::Link(std::io::Error::from(error).into()));
        }
    }

    fn close(&mut self, id: u64, end: &End) {
        let Some(place) = self.connections.remove(&id) else { return };
        self.unidentified.remove(&id);
        let _ = epoll::delete(&self.poll, &place.connection);
        if let Some(client) = place.connection.client()
            && self.lanes.get(&client) == Some(&id)
        {
            self.lanes.remove(&client);
            self.service.detach(client);
        }
        if !matches!(end, End::Gone | End::Left | End::Replaced) {
            let now = self.clock.now();
            self.log.say(now, &format!("the connection of {} was closed: {end}", place.peer));
        }
    }

    /// What is due by the clock.
    fn look(&mut self) {
        let now = self.clock.now();
        if now.saturating_sub(self.looked_at) < LOOK {
            return;
        }
        self.looked_at = now;
        let forgotten = self.service.expire(now);
        if forgotten > 0 {
            self.log.say(
                now,
                &format!("{forgotten} clients said nothing for the time of a lease, and are forgotten"),
            );
        }
        let mut silent = Vec::new();
        for (&id, place) in &mut self.connections {
            let unheard = now.saturating_sub(place.connection.heard_at());
            let patience = if place.connection.client().is_some() { self.lease } else { INTRODUCTION };
            if unheard > patience {
                silent.push(id);
            } else if unheard > IDLE {
                place.connection.rest();
            }
        }
        silent.into_iter().for_each(|id| self.close(id, &End::Silent));
        if self.is_closed {
            self.hear_listeners(true);
        }
    }
}

/// How many connections there may be in a process that may have so many descriptors.
fn most_connections(descriptors: Option<u64>) -> usize {
    let left = descriptors.map_or(u64::MAX, |most| most - OTHER_DESCRIPTORS.min(most / OTHER_SHARE));
    usize::try_from(left).unwrap_or(usize::MAX).clamp(1, MOST_CONNECTIONS)
}

fn random() -> Result<u128> {
    let mut bytes = [0; 16];
    let count = getrandom(&mut bytes, GetRandomFlags::empty()).context("cannot draw a random number")?;
    anyhow::ensure!(count == bytes.len(), "the kernel gave too few random bytes");
    Ok(u128::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;

    use farmem_transport::wire::{encode_hello, encode_request};
    use farmem_transport::{Request, Ticket};

    use super::*;
    use crate::connection::TURN;

    #[test]
    fn there_may_be_as_many_connections_as_descriptors_but_for_a_few_and_never_without_bound() {
        assert_eq!(most_connections(Some(20_000)), 20_000 - 128);
        assert_eq!((most_connections(Some(40)), most_connections(Some(1))), (30, 1));
        assert_eq!(most_connections(None), 16 * 4096);
    }

    #[test]
    fn who_asks_without_pause_has_one_turn_in_each_of_the_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node");
        let options = Options {
            listen: vec![Destination::Unix(path.clone())],
            security: Security::Plain,
            memory: ByteCount::new(4 << 20),
            lease: Duration::from_secs(60),
            rack: None,
            rdma: WantedRdma::None,
        };
        let mut server = Server::bind(&options, None::<&File>).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        client.set_nonblocking(true).unwrap();
        let mut asked = encode_hello(ClientIdentity { space: 1, lane: 0 }).to_vec();
        (1..=100_000).for_each(|ticket| encode_request(Ticket(ticket), &Request::Renew, &mut asked));
        let (mut rest, mut room) = (&asked[..], vec![0; 1 << 20]);
        let would_block = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let mut served = 0;
        while served < 10_000 {
            client.write(rest).map_or_else(would_block, |count| rest = &rest[count..]);
            server.turn().unwrap();
            let now = server.statistics().requests;
            assert!(now - served <= TURN as u64, "{} at once", now - served);
            served = now;
            client.read(&mut room).map_or_else(would_block, |_| ());
        }
    }
}

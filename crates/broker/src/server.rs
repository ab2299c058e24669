//! The broker as a process: a socket, a connection for each space, and the lease table.
//!
//! Nothing that comes in is believed: a packet that is none, comes too often or can't be true ends the
//! connection it came by, with a line on standard error, and concerns nobody else. Nothing waits for a space:
//! a lease that its socket doesn't take is sent later.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use farmem_log::BoundedLog;
use farmem_page::{ByteCount, PageCount};
use farmem_sys::link::{Link, listen_on, remove_abandoned};
use farmem_sys::{Errno, OwnedFd};
use farmem_wire::host::{FromBroker, HOST_PACKET_BYTES, LEASED_SLAB_BYTES, MOST_SLABS, NAME_BYTES, ToBroker};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SocketFlags, accept_with};

use crate::lease_table::{Amounts, Lease, LeaseTable, Refusal, SpaceId, Violation};
use crate::link_schedule::{Direction, LINK_SLOTS, LinkSchedule, Shared};
use crate::nodes::Notice;

/// While an application runs that an earlier broker may have leased to, nothing is leased for so long. Spaces
/// look for a broker five times in that time.
const SETTLING: Duration = Duration::from_secs(1);
/// A process that has connected says what it wants within this time.
const INTRODUCTION: Duration = Duration::from_secs(2);
/// Between two looks at the time.
const LOOK: Duration = Duration::from_millis(100);
/// Most connections at a time, and most packets of one in a second: a space reports at most 250 times.
const MOST_CONNECTIONS: usize = 2048;
const MOST_PACKETS: u32 = 2000;

/// What a broker has to give, and where it is found.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file of its socket.
    pub socket: PathBuf,
    /// Memory for the pools of all spaces together.
    pub pool: ByteCount,
    /// Local memory of all spaces together; `None` for the sum of what they own.
    pub local: Option<ByteCount>,
    /// Whether applications run that an earlier broker may have leased to.
    pub is_successor: bool,
    /// What all spaces together read from nodes, in bytes per second; `None` for no limit.
    pub bandwidth_in: Option<ByteCount>,
    /// The same for what they write to nodes.
    pub bandwidth_out: Option<ByteCount>,
    /// Which memory nodes applications use that aren't told of any. The broker hands it on, and doesn't read
    /// it.
    pub nodes: Option<String>,
}

/// How a broker is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figures {
    /// Memory for pools that no space is charged with.
    pub pool_free: ByteCount,
    /// Local memory that no space is charged with.
    pub local_free: ByteCount,
    /// Spaces that hold leases.
    pub spaces: usize,
}

/// A broker that listens.
pub struct Server {
    listener: OwnedFd,
    socket: PathBuf,
    /// Held as long as the broker is there, so that there is one at a time.
    _lock: File,
    table: LeaseTable,
    schedule: LinkSchedule,
    nodes: Option<Notice>,
    began: Instant,
    connections: Vec<Connection>,
    log: BoundedLog,
}

struct Connection {
    link: Link,
    process: i32,
    space: Option<SpaceId>,
    name: String,
    came: Instant,
    /// The second it is in, and its packets in that second.
    packets: (u64, u32),
    /// The latest lease, until the socket has taken it.
    unsent: Option<Lease>,
    /// Its slot where links to nodes are shared.
    link_slot: Option<usize>,
    end: Option<End>,
}

/// Why a connection is closed.
enum End {
    Gone,
    Garbage,
    Flood,
    Silent,
    Untimely,
    Violation(Violation),
    Refused(Refusal),
    Kernel(Errno),
}

impl End {
    /// What is said of it; an end of its own accord is no news.
    fn reason(&self) -> Option<String> {
        Some(match self {
            Self::Gone => return None,
            Self::Garbage => "it sent an invalid message".to_owned(),
            Self::Flood => format!("it sent more than {MOST_PACKETS} packets in a second"),
            Self::Silent => "it never said what it wants".to_owned(),
            Self::Untimely => "it sent a message that has no place there".to_owned(),
            Self::Violation(violation) => violation.to_string(),
            Self::Refused(refusal) => {
                format!(
                    "there is not as much as it asks for; {:?} could be had of {:?}",
                    refusal.most, refusal.reason
                )
            }
            Self::Kernel(error) => format!("its connection failed: {error}"),
        })
    }
}

impl Server {
    /// Begins to listen. The folder of the socket is made if it isn't there.
    ///
    /// # Errors
    /// A sentence: another broker is there, or the file can't be made.
    pub fn bind(options: &Options) -> Result<Self> {
        let shown = options.socket.display();
        if let Some(folder) = options.socket.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        // Before the lock's file is made: a path that was meant for something else is left as it is.
        if options.socket.symlink_metadata().is_ok_and(|found| !found.file_type().is_socket()) {
            bail!("{shown} exists already and is not a socket; give another --socket");
        }
        let lock = lock(&options.socket)?;
        let path = CString::new(options.socket.as_os_str().as_bytes())?;
        // A broker that made it has ended: its lock is free. But it may be somebody else's.
        remove_abandoned(&path).map_err(|error| match error {
            Errno::ADDRINUSE => anyhow!("another process listens on {shown} already; give another --socket"),
            error => anyhow!("cannot remove {shown}, which an earlier broker has left: {error}"),
        })?;
        let listener = listen_on(&path).with_context(|| format!("cannot listen on {shown}"))?;
        std::fs::set_permissions(&options.socket, std::fs::Permissions::from_mode(0o600))
            .with_context(|| format!("cannot close {shown} to other users"))?;
        let schedule = Shared::create().context("cannot make the memory by which links are shared")?;
        let schedule = LinkSchedule::new(schedule);
        let limit = |bandwidth: Option<ByteCount>| bandwidth.map_or(0, ByteCount::get);
        schedule.set_rate(Direction::In, limit(options.bandwidth_in));
        schedule.set_rate(Direction::Out, limit(options.bandwidth_out));
        let nodes = options.nodes.as_deref().map(Notice::new).transpose()?;
        let slabs = (options.pool.get() / LEASED_SLAB_BYTES).min(MOST_SLABS);
        let settled_at = if options.is_successor { SETTLING } else { Duration::ZERO };
        Ok(Self {
            listener,
            socket: options.socket.clone(),
            _lock: lock,
            table: LeaseTable::new(slabs, options.local.map(|local| local.pages().get()), settled_at),
            schedule,
            nodes,
            began: Instant::now(),
            connections: Vec::new(),
            log: BoundedLog::new("farmem host"),
        })
    }

    /// How the broker is.
    pub fn figures(&self) -> Figures {
        let free = self.table.free();
        Figures {
            pool_free: ByteCount::new(free.slabs * LEASED_SLAB_BYTES),
            local_free: PageCount::new(free.pages).bytes(),
            spaces: self.connections.iter().filter(|connection| connection.space.is_some()).count(),
        }
    }

    /// Waits until something comes, on a connection or on `other`, but not long, and deals with what has
    /// come. Whether `other` is ready.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn turn(&mut self, other: Option<impl AsFd>) -> Result<bool> {
        let (ready, is_other, is_new) = self.wait(other)?;
        for at in ready {
            self.hear(at);
        }
        if is_new {
            self.accept();
        }
        self.expel();
        self.lease();
        self.close_ended();
        Ok(is_other)
    }

    fn wait(&self, other: Option<impl AsFd>) -> Result<(Vec<usize>, bool, bool)> {
        let mut set: Vec<PollFd<'_>> = self
            .connections
            .iter()
            .map(|connection| {
                let unsent = if connection.unsent.is_some() { PollFlags::OUT } else { PollFlags::empty() };
                PollFd::from_borrowed_fd(connection.link.as_fd(), PollFlags::IN | unsent)
            })
            .collect();
        set.push(PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN));
        set.extend(other.as_ref().map(|other| PollFd::from_borrowed_fd(other.as_fd(), PollFlags::IN)));
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as i64 };
        match poll(&mut set, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => bail!("cannot wait for spaces: {error}"),
        }
        let is_ready = |place: &PollFd<'_>| !place.revents().is_empty();
        let count = self.connections.len();
        let ready = (0..count).filter(|&at| is_ready(&set[at])).collect();
        Ok((ready, set.get(count + 1).is_some_and(is_ready), is_ready(&set[count])))
    }

    fn accept(&mut self) {
        while let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            // The number of a process is 0 where that process is not in the broker's PID namespace, which
            // rustix's kind of number can't be.
            let Ok(peer) = getsockopt(&socket, PeerCredentials) else { continue };
            // The file's mode says the same; but whoever has opened the folder to others may not have meant
            // this.
            let is_own = [0, rustix::process::geteuid().as_raw()].contains(&peer.uid());
            if !is_own || self.connections.len() >= MOST_CONNECTIONS {
                self.log.say(self.began.elapsed(), &format!("process {} was turned away", peer.pid()));
                continue;
            }
            self.connections.push(Connection {
                link: Link::from(socket),
                process: peer.pid(),
                space: None,
                name: String::new(),
                came: Instant::now(),
                packets: (0, 0),
                unsent: None,
                link_slot: None,
                end: None,
            });
        }
    }

    /// All that has come on one connection, up to a bound.
    fn hear(&mut self, at: usize) {
        let now = self.began.elapsed();
        let mut packet = [0; HOST_PACKET_BYTES + 1];
        while self.connections[at].end.is_none() {
            let connection = &mut self.connections[at];
            let length = match connection.link.receive(&mut packet) {
                Err(Errno::AGAIN) => return,
                Err(Errno::CONNRESET) | Ok((0, _)) => {
                    connection.end = Some(End::Gone);
                    return;
                }
                Err(error) => {
                    connection.end = Some(End::Kernel(error));
                    return;
                }
                Ok((length, _)) => length,
            };
            if connection.packets.0 != now.as_secs() {
                connection.packets = (now.as_secs(), 0);
            }
            connection.packets.1 += 1;
            let is_flood = connection.packets.1 > MOST_PACKETS;
            let end = match ToBroker::decode(&packet[..length]) {
                _ if is_flood => Some(End::Flood),
                None => Some(End::Garbage),
                Some(ToBroker::TakeLinkSlot) => self.link_slot(at).err(),
                Some(ToBroker::Ask) => self.tell_nodes(at).err(),
                Some(message) => obey(&mut self.table, connection, now, message).err(),
            };
            self.connections[at].end = end;
        }
    }

    /// Gives a space a slot in the link schedule, if one is left.
    fn link_slot(&mut self, at: usize) -> Result<(), End> {
        let is_taken =
            |link_slot: &usize| self.connections.iter().any(|other| other.link_slot == Some(*link_slot));
        let free = (0..LINK_SLOTS).find(|link_slot| !is_taken(link_slot));
        let connection = &mut self.connections[at];
        if connection.space.is_none() || connection.link_slot.is_some() {
            return Err(End::Untimely);
        }
        let Some(link_slot) = free else { return Ok(()) };
        self.schedule.clear(link_slot);
        let message = FromBroker::LinkSlot { number: link_slot as u64 }.encode();
        match connection.link.send(&message, &[self.schedule.memory().file()]) {
            Ok(()) => connection.link_slot = Some(link_slot),
            // It does not listen; it schedules its own transfers meanwhile.
            Err(Errno::AGAIN) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(End::Gone),
            Err(error) => return Err(End::Kernel(error)),
        }
        Ok(())
    }

    /// Says which memory nodes the host names.
    fn tell_nodes(&self, at: usize) -> Result<(), End> {
        let link = &self.connections[at].link;
        let sent = match &self.nodes {
            Some(notice) => {
                let message = FromBroker::Nodes { length_bytes: notice.length_bytes() };
                link.send(&message.encode(), &[notice.file()])
            }
            None => link.send(&FromBroker::Nodes { length_bytes: 0 }.encode(), &[]),
        };
        match sent {
            // A client that doesn't listen has not waited for the answer.
            Ok(()) | Err(Errno::AGAIN) => Ok(()),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(End::Gone),
            Err(error) => Err(End::Kernel(error)),
        }
    }

    /// Ends what has waited for too long.
    fn expel(&mut self) {
        let overdue = self.table.overdue(self.began.elapsed());
        for connection in &mut self.connections {
            if connection.end.is_none() {
                connection.end = match connection.space {
                    None => (connection.came.elapsed() > INTRODUCTION).then_some(End::Silent),
                    Some(id) => overdue.contains(&id).then_some(End::Violation(Violation::Overdue)),
                };
            }
        }
        self.close_ended();
    }

    fn lease(&mut self) {
        for (id, lease) in self.table.leases(self.began.elapsed()) {
            let of_space = |connection: &&mut Connection| connection.space == Some(id);
            if let Some(connection) = self.connections.iter_mut().find(of_space) {
                connection.unsent = Some(lease);
            }
        }
        for connection in &mut self.connections {
            connection.send_lease();
        }
    }

    fn close_ended(&mut self) {
        let now = self.began.elapsed();
        for connection in self.connections.extract_if(.., |connection| connection.end.is_some()) {
            if let Some(reason) = connection.end.as_ref().and_then(End::reason) {
                let Connection { process, name, .. } = &connection;
                self.log.say(now, &format!("process {process} {name:?} was dropped: {reason}"));
            }
            if let Some(id) = connection.space {
                tracing::info!(
                    application = connection.name,
                    process = connection.process,
                    "application left"
                );
                self.table.leave(id);
            }
            if let Some(link_slot) = connection.link_slot {
                self.schedule.clear(link_slot);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // So that `farmem run` doesn't look for a broker that isn't there. The lock's file stays: removing it
        // would make two locks possible.
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Connection {
    fn send(&mut self, message: FromBroker) -> Result<bool, End> {
        match self.link.send(&message.encode(), &[]) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(End::Gone),
            Err(error) => Err(End::Kernel(error)),
        }
    }

    fn send_lease(&mut self) {
        let Some(Lease { serial, amounts: Amounts { slabs, pages } }) = self.unsent else { return };
        match self.send(FromBroker::Lease { serial, pool_slabs: slabs, local_pages: pages }) {
            Ok(true) => self.unsent = None,
            Ok(false) => {}
            Err(end) => self.end = self.end.take().or(Some(end)),
        }
    }
}

/// Does what a message asks for.
fn obey(
    table: &mut LeaseTable,
    connection: &mut Connection,
    now: Duration,
    message: ToBroker,
) -> Result<(), End> {
    match (message, connection.space) {
        (ToBroker::Attach { terms, pool_held, pool_movable, local_held, name }, None) => {
            connection.name = shown(&name);
            let held = Amounts { slabs: pool_held, pages: local_held };
            match table.attach(now, terms, held, pool_movable) {
                Ok(id) => {
                    connection.space = Some(id);
                    tracing::info!(
                        application = connection.name,
                        process = connection.process,
                        weight = terms.weight,
                        guaranteed_slabs = terms.pool_guaranteed,
                        "application came"
                    );
                    connection.send(FromBroker::Accepted).map(drop)
                }
                Err(refusal) => {
                    let _ = connection.send(refused(refusal));
                    Err(End::Refused(refusal))
                }
            }
        }
        (ToBroker::Change { terms }, Some(id)) => {
            let answer = match table.change(id, terms) {
                Ok(()) => {
                    tracing::info!(
                        application = connection.name,
                        process = connection.process,
                        weight = terms.weight,
                        "limits changed"
                    );
                    FromBroker::Accepted
                }
                Err(refusal) => refused(refusal),
            };
            connection.send(answer).map(drop)
        }
        (ToBroker::Report { serial, holding, moved_pages }, Some(id)) => {
            table.report(now, id, serial, holding, moved_pages).map_err(End::Violation)
        }
        (ToBroker::Attach { .. }, Some(_)) | (ToBroker::Change { .. } | ToBroker::Report { .. }, None) => {
            Err(End::Untimely)
        }
        // The lease table gives neither slots for links nor the host's nodes.
        (ToBroker::TakeLinkSlot | ToBroker::Ask, _) => Ok(()),
    }
}

fn refused(Refusal { reason, most }: Refusal) -> FromBroker {
    FromBroker::Refused { reason, most }
}

fn shown(name: &[u8; NAME_BYTES]) -> String {
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
    String::from_utf8_lossy(&name[..length]).into_owned()
}

/// Whether a broker listens there.
pub fn is_listening(socket: &Path) -> bool {
    CString::new(socket.as_os_str().as_bytes()).is_ok_and(|path| Link::connect_to(&path).is_ok())
}

/// Takes the lock next to the socket, or says that another broker has it.
fn lock(socket: &Path) -> Result<File> {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .with_context(|| format!("cannot make {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            bail!("another broker listens on {}; end it, or give another --socket", socket.display())
        }
        Err(std::fs::TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

//! The application's processes: who is connected, whose stored pages are still needed by whom.
//!
//! A forked child reads entries that its ancestors stored. So the slabs of a process that has ended are kept until no
//! living process descends from it by forks alone, and a living process is told up to which fork its entries are frozen.
//! Living is what the kernel says, not what a connection says: see [`Silent`].

mod endings;
mod lineage;
pub(crate) mod notices;
pub(crate) mod shares;
pub(crate) mod silent;
pub(crate) mod stall;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use farmem_page::PageCount;
use farmem_store::OwnerId;
use farmem_sys::disk::DiskFile;
use farmem_sys::link::Link;
use farmem_sys::uffd::{FEATURES, Uffd, UffdError};
use farmem_sys::{AsFd, AsRawFd, BorrowedFd, Errno, OwnedFd};
use farmem_telemetry::{Counter, Header, MAX_PROCESSES, SlotState};
use farmem_wire::{HAS_DEVICE, HAS_DISK, PACKET_BYTES, Reply, Request};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::Pid;
use rustix::io::fcntl_dupfd_cloexec;

use crate::application::Application;
use crate::processes::endings::Ending;
use crate::processes::lineage::Lineage;
use crate::processes::notices::{Notice, Notices};
use crate::processes::silent::{Silent, has_messages};
use crate::queries::query::{Query, Question};
use crate::reporting::totals::Totals;

/// Any user of the machine may connect. Who hasn't said for so long who it is, is dropped, and so is who came first of more than so many.
const INTRODUCTION: Duration = Duration::from_secs(2);
pub(crate) const MOST_STRANGERS: usize = 64;
/// Descriptors that no new connection gets: for the userfaultfds of children whose parents are connected, and for files. At most a
/// quarter of all.
const KEPT_DESCRIPTORS: u64 = 64;

/// A connected process.
pub(crate) struct Process {
    link: Link,
    came: Instant,
    /// Its place in the ledger, once it has said who it is.
    slot: Option<usize>,
    /// Its number as this process sees it. In a PID namespace it has another one for itself.
    pub(crate) process: u32,
    /// Duplicates: while one exists, the process's memory can stall but never read as zeros.
    uffd: Option<Uffd>,
    lineage: Lineage,
    /// A request that can't be answered yet.
    waiting: Option<(usize, u64)>,
    /// Whether it belongs to who may change limits: this process's user, or root.
    may_set: bool,
}

/// All of them.
pub(crate) struct Processes {
    application: Application,
    connected: HashMap<u64, Process>,
    next_key: u64,
    /// In the order in which they were told of: of two children of one fork, the announced one comes first.
    silent: Vec<Silent>,
    /// Forks, by slot and epoch, that were told of without the child's userfaultfd: there was no descriptor left for it.
    lost: Vec<(usize, u64)>,
    /// Slots of processes that have ended but whose entries somebody reads.
    kept: Vec<usize>,
    totals: Totals,
    /// Processes that have ever connected or were forked.
    started: u64,
    /// Why processes were ended, with the process's number, until it is told.
    pub(crate) endings: Vec<(u32, Ending)>,
    /// The program's process, and whether it has reported in.
    program: u32,
    pub(crate) has_program_reported: bool,
    pub(crate) notices: Notices,
}

impl Processes {
    pub(crate) fn new(application: Application, program: u32) -> Self {
        Self {
            application,
            connected: HashMap::new(),
            next_key: 0,
            silent: Vec::new(),
            lost: Vec::new(),
            kept: Vec::new(),
            totals: Totals::new(),
            started: 0,
            endings: Vec::new(),
            program,
            has_program_reported: false,
            notices: Notices::default(),
        }
    }

    /// Takes a connection. Who can't be seen from here, from another PID namespace, can't be looked after.
    pub(crate) fn accept(&mut self, socket: OwnedFd) {
        let Ok(peer) = getsockopt(&socket, PeerCredentials) else { return };
        let Some(number) = u32::try_from(peer.pid()).ok().filter(|&number| number != 0) else { return };
        let Some(socket) = self.with_room_left(socket) else {
            self.notices.say(Notice::Crowded);
            return;
        };
        let process = Process {
            link: Link::from(socket),
            came: Instant::now(),
            slot: None,
            process: number,
            uffd: None,
            lineage: Lineage::default(),
            waiting: None,
            may_set: peer.uid() == 0 || peer.uid() == rustix::process::geteuid().as_raw(),
        };
        self.connected.insert(self.next_key, process);
        self.next_key += 1;
    }

    /// The connection, when enough descriptors are left beside it. Strangers give way for it, those of other users first: descriptors are
    /// short only when processes of the application have them.
    fn with_room_left(&mut self, mut socket: OwnedFd) -> Option<OwnedFd> {
        let mut strangers = None;
        while !leaves_descriptors(&socket) {
            let (_, _, key) = strangers.get_or_insert_with(|| self.strangers().into_iter()).next()?;
            self.connected.remove(&key);
            // What the stranger had is now perhaps the lowest that is free.
            socket = fcntl_dupfd_cloexec(&socket, 0).ok()?;
        }
        Some(socket)
    }

    /// Drops connections that say nothing.
    pub(crate) fn expel_strangers(&mut self) {
        let strangers = self.strangers();
        let excess = strangers.len().saturating_sub(MOST_STRANGERS);
        for (nth, (_, came, key)) in strangers.into_iter().enumerate() {
            if nth < excess || came.elapsed() > INTRODUCTION {
                self.connected.remove(&key);
            }
        }
    }

    /// Who has said nothing so far, in the order in which they are dropped: those of other users first, then who came first. With when
    /// each came, and its key.
    fn strangers(&self) -> Vec<(bool, Instant, u64)> {
        let is_silent = |process: &Process| {
            process.slot.is_none() && process.waiting.is_none() && !has_messages(&process.link)
        };
        let silent = self.connected.iter().filter(|(_, process)| is_silent(process));
        let mut strangers: Vec<(bool, Instant, u64)> =
            silent.map(|(&key, process)| (process.may_set, process.came, key)).collect();
        strangers.sort_unstable();
        strangers
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
        self.connected.iter().map(|(&key, process)| (key, process.link.as_fd()))
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = &Process> {
        self.connected.values()
    }

    /// Reads one packet of a process and answers it; forgets the process when it has gone or talks nonsense.
    pub(crate) fn hear(&mut self, key: u64) -> Option<Query> {
        let process = self.connected.get(&key)?;
        let mut packet = [0; PACKET_BYTES + 1];
        let request = match process.link.receive(&mut packet) {
            Ok((length, descriptors)) if length > 0 => {
                Request::decode(&packet[..length]).map(|request| (request, descriptors))
            }
            _ => None,
        };
        let Some((request, mut descriptors)) = request else {
            self.gone(key);
            return None;
        };
        let descriptor = descriptors[0].take();
        if let Some(question) = Question::of(request) {
            let asker = self.connected.remove(&key)?;
            return Some(Query::new(asker.link, question, asker.may_set));
        }
        if self.obey(key, request, descriptor).is_err() {
            self.gone(key);
        }
        None
    }

    fn obey(&mut self, key: u64, request: Request, descriptor: Option<OwnedFd>) -> Result<(), Errno> {
        match request {
            Request::Hello { token } => {
                self.admit(token)?;
                self.started += 1;
                self.welcome(key)
            }
            Request::Register => self.register(key, descriptor),
            Request::Forked { epoch } => {
                self.started += 1;
                self.expect(key, epoch, descriptor)
            }
            Request::Inherit { parent_slot, epoch, token } => {
                self.admit(token)?;
                let Some(child) = self.connected.get_mut(&key) else { return Ok(()) };
                child.waiting = Some((parent_slot as usize, epoch));
                self.hand_over();
                Ok(())
            }
            Request::Orphaned { token } => {
                self.admit(token)?;
                if let Some(child) = self.connected.get(&key) {
                    self.endings.push((child.process, Ending::Orphaned));
                }
                Ok(())
            }
            Request::Query | Request::Set { .. } | Request::Look { .. } => Ok(()),
        }
    }

    /// Strangers get nothing: ledger and pool are for the application's processes, which know its token.
    fn admit(&self, token: u64) -> Result<(), Errno> {
        if token == self.application.token { Ok(()) } else { Err(Errno::ACCESS) }
    }

    fn welcome(&mut self, key: u64) -> Result<(), Errno> {
        let Some(number) = self.connected.get(&key).map(|process| process.process) else { return Ok(()) };
        let slot = self.assign(number);
        let application = self.application;
        let Some(process) = self.connected.get_mut(&key) else { return Ok(()) };
        let Some(slot) = slot else {
            return process.link.send(&Reply::Refused { errno: 0 }.encode(), &[]);
        };
        process.slot = Some(slot);
        self.has_program_reported |= number == self.program;
        let mut descriptors = vec![application.ledger_memory.file(), application.pool_memory.file()];
        let mut flags = 0;
        if let Some(device) = application.device {
            flags |= HAS_DEVICE;
            descriptors.push(device.as_fd());
        }
        if let Some(disk) = application.disk {
            flags |= HAS_DISK;
            descriptors.push(disk.file());
        }
        let pool_bytes = application.pool_memory.length_bytes() as u64;
        process.link.send(&Reply::Welcome { slot: slot as u32, pool_bytes, flags }.encode(), &descriptors)
    }

    /// A slot that nobody has, and whose entries nobody reads.
    fn assign(&mut self, process: u32) -> Option<usize> {
        let ledger = self.application.ledger;
        let taken = |index: usize| {
            self.kept.contains(&index) || self.connected.values().any(|process| process.slot == Some(index))
        };
        let index = (0..MAX_PROCESSES).find(|&index| !taken(index))?;
        ledger.slot(index)?.assign(process);
        ledger.header(Header::SlotsUsed).fetch_max(index as u64 + 1, Ordering::AcqRel);
        Some(index)
    }

    fn register(&mut self, key: u64, descriptor: Option<OwnedFd>) -> Result<(), Errno> {
        let Some(process) = self.connected.get_mut(&key) else { return Ok(()) };
        let uffd = Uffd::from(descriptor.ok_or(Errno::INVAL)?);
        let reply = match uffd.handshake(FEATURES) {
            Ok(()) => Reply::Done,
            Err(UffdError::Denied) => Reply::Refused { errno: Errno::PERM.raw_os_error() as u32 },
            Err(_) => Reply::Refused { errno: Errno::INVAL.raw_os_error() as u32 },
        };
        if reply == Reply::Done {
            process.uffd = Some(uffd);
        } else {
            self.notices.say(Notice::Unmanaged { process: process.process, is_refused: true });
        }
        process.link.send(&reply.encode(), &[])
    }

    fn expect(&mut self, key: u64, epoch: u64, descriptor: Option<OwnedFd>) -> Result<(), Errno> {
        let Some(parent) = self.connected.get(&key) else { return Ok(()) };
        let Some(slot) = parent.slot else { return Ok(()) };
        let Some(descriptor) = descriptor else {
            // The kernel had no descriptor to give. The parent can't help that.
            self.lost.push((slot, epoch));
            self.hand_over();
            return Ok(());
        };
        let uffd = Uffd::from(descriptor);
        self.silent.push(Silent::new(uffd, parent.lineage.of_child(slot, epoch), None));
        self.freeze(slot);
        if let Some(view) = self.application.ledger.slot(slot) {
            view.note_heard_epoch(epoch);
            // At once: the process decides by it whether to go on watching what it shares.
            view.set_kin(view.kin().max(1));
        }
        self.hand_over();
        Ok(())
    }

    /// Gives children that have come what their parents have sent.
    fn hand_over(&mut self) {
        let asking: Vec<(u64, (usize, u64))> =
            self.connected.iter().filter_map(|(&key, child)| child.waiting.map(|fork| (key, fork))).collect();
        for (key, fork) in asking {
            let answered = match self.silent.iter().position(|silent| silent.lineage.fork() == Some(fork)) {
                Some(at) => {
                    let silent = self.silent.remove(at);
                    self.inherit(key, silent)
                }
                None if self.lost.contains(&fork) => {
                    self.end_lost(key);
                    continue;
                }
                None if self.is_connected(fork.0) => Ok(()),
                None => self.refuse(key),
            };
            if answered.is_err() {
                self.gone(key);
            }
        }
    }

    fn inherit(&mut self, key: u64, silent: Silent) -> Result<(), Errno> {
        let number = self.connected.get(&key).map_or(0, |child| child.process);
        let slot = self.assign(number);
        let application = self.application;
        let Some(child) = self.connected.get_mut(&key) else {
            self.silent.push(silent);
            return Ok(());
        };
        child.waiting = None;
        child.lineage = silent.lineage;
        child.slot = slot;
        let uffd = child.uffd.insert(silent.uffd);
        let Some(slot) = slot else { return child.link.send(&Reply::Refused { errno: 0 }.encode(), &[]) };
        let parent = child.lineage.fork().and_then(|(slot, _)| application.ledger.slot(slot));
        if let Some((parent, view)) = parent.zip(application.ledger.slot(slot)) {
            // All that a new child has it shares with its parent; whether it hears of writes to it, too. In this order, so that
            // it counts once at any moment.
            view.set_kin(1);
            let resident = parent.resident();
            if parent.is_protected() {
                view.set_shared(resident, view.separated());
                view.set_protected(true);
            }
            view.set(Counter::ResidentPages, resident.get());
        }
        let pool = application.pool_memory;
        let disk = application.disk.map(DiskFile::file);
        let flags = if disk.is_some() { HAS_DISK } else { 0 };
        let pool_bytes = pool.length_bytes() as u64;
        let reply = Reply::Inherited { slot: slot as u32, pool_bytes, flags };
        let descriptors: Vec<_> = [uffd.as_fd(), pool.file()].into_iter().chain(disk).collect();
        child.link.send(&reply.encode(), &descriptors)
    }

    /// Nobody beside the parent could serve that child, and from the parent's end on it would read zeros. While it waits for an answer its
    /// number is its own.
    fn end_lost(&mut self, key: u64) {
        let Some(child) = self.connected.remove(&key) else { return };
        self.endings.push((child.process, Ending::Crowded));
        let _ = kill(Pid::from_raw(child.process as i32), Signal::SIGKILL);
    }

    /// The parent has gone without having told of the child: nobody can hand its memory over.
    fn refuse(&mut self, key: u64) -> Result<(), Errno> {
        let Some(child) = self.connected.get_mut(&key) else { return Ok(()) };
        child.waiting = None;
        child.link.send(&Reply::Refused { errno: 0 }.encode(), &[])
    }

    /// Whether a process of the application lives.
    pub(crate) fn remain(&self) -> bool {
        self.connected.values().any(|process| process.slot.is_some() || process.waiting.is_some())
            || !self.silent.is_empty()
    }

    fn is_connected(&self, slot: usize) -> bool {
        self.connected.values().any(|process| process.slot == Some(slot))
    }

    /// Tells a process up to which fork its entries are still read by others.
    fn freeze(&self, slot: usize) {
        let epoch = self.lineages().map(|lineage| lineage.frozen_epoch(slot)).max().unwrap_or(0);
        if let Some(view) = self.application.ledger.slot(slot) {
            view.set_frozen_epoch(epoch);
        }
    }

    fn lineages(&self) -> impl Iterator<Item = &Lineage> {
        let connected = self.connected.values().map(|process| &process.lineage);
        connected.chain(self.silent.iter().map(|silent| &silent.lineage))
    }

    /// A process has ended that had `credit` pages counted with its kin. Those that only one of them still has are its own now.
    fn pass_on(&self, slot: usize, lineage: &Lineage, credit: i64) {
        let ledger = self.application.ledger;
        let kin: Vec<usize> = self.kin((Some(slot), lineage)).collect();
        match kin[..] {
            [] => {}
            [last] => {
                if let Some(view) = ledger.slot(last) {
                    view.set_shared(PageCount::ZERO, view.separated());
                }
            }
            // How many each has is known when they are measured.
            _ => {
                let inherited = credit.max(0) as u64 / kin.len() as u64;
                ledger.header(Header::Inherited).fetch_add(inherited, Ordering::Relaxed);
            }
        }
    }

    /// Slots of the connected processes that may share memory with that one, itself left out.
    fn kin(&self, one: (Option<usize>, &Lineage)) -> impl Iterator<Item = usize> {
        self.connected
            .values()
            .filter(move |other| other.slot != one.0 && Lineage::are_kin(one, (other.slot, &other.lineage)))
            .filter_map(|other| other.slot)
    }

    /// Whether there are processes that share memory, or have been told so.
    pub(crate) fn are_kin_about(&self) -> bool {
        let ledger = self.application.ledger;
        let is_told = |slot: usize| ledger.slot(slot).is_some_and(|view| view.kin() > 0);
        self.connected.values().any(|process| process.is_forked() || process.slot.is_some_and(is_told))
    }

    /// Whether a child of that process, or of its kin, is still on its way: what it shares belongs to nobody yet.
    pub(crate) fn awaits_kin(&self, process: &Process) -> bool {
        let one = (process.slot, &process.lineage);
        self.silent
            .iter()
            .any(|silent| silent.own.is_none() && Lineage::are_kin(one, (None, &silent.lineage)))
    }

    /// Tells each process how many others may share memory with it.
    pub(crate) fn count_kin(&self) {
        for process in self.connected.values() {
            let Some(view) = process.slot.and_then(|slot| self.application.ledger.slot(slot)) else {
                continue;
            };
            let one = (process.slot, &process.lineage);
            let silent =
                self.silent.iter().filter(|silent| Lineage::are_kin(one, (silent.own, &silent.lineage)));
            view.set_kin((self.kin(one).count() + silent.count()) as u64);
        }
    }

    /// A connection has closed: the process has ended, or runs another program now, or will shortly.
    fn gone(&mut self, key: u64) {
        let Some(process) = self.connected.remove(&key) else { return };
        if let Some(slot) = process.slot
            && let Some(view) = self.application.ledger.slot(slot)
        {
            self.totals.add(&view);
            self.pass_on(slot, &process.lineage, view.credit());
            if let Some(failure) = view.failure() {
                self.endings.push((view.process(), Ending::Failed(failure)));
            }
            view.set_state(SlotState::Free);
            self.kept.push(slot);
            self.lost.retain(|&(parent, _)| parent != slot);
            let number = process.process;
            if process.uffd.is_none() && Path::new(&format!("/proc/{number}")).exists() {
                self.notices.say(Notice::Unmanaged { process: number, is_refused: false });
            }
        }
        if let Some(uffd) = process.uffd {
            self.silent.push(Silent::new(uffd, process.lineage, process.slot));
        }
        self.forget_ended();
        // A child may have waited for what its parent can't send any more.
        self.hand_over();
    }

    /// Looks after processes without a connection. After a time in which nobody could look (`is_late`) their waits
    /// begin anew.
    pub(crate) fn look_after_silent(&mut self, is_late: bool) {
        self.forget_ended();
        let now = Instant::now();
        let mut orphans = Vec::new();
        for index in 0..self.silent.len() {
            let parent = self.silent[index].lineage.fork().map(|(slot, _)| slot);
            let is_served = parent.is_some_and(|slot| self.is_connected(slot));
            let silent = &mut self.silent[index];
            if is_served || is_late {
                silent.wait_anew();
                continue;
            }
            let own = silent.own.and_then(|slot| self.application.ledger.slot(slot));
            if silent.is_abandoned(now, own.map_or(0, |view| view.heartbeat())) {
                let (children, is_refused) = silent.give_up();
                orphans.extend(children);
                if is_refused {
                    self.notices.say(Notice::Abandoned);
                }
            }
        }
        self.silent.extend(orphans);
    }

    /// Forgets processes whose memory is gone, and gives back what they have stored and nobody reads.
    fn forget_ended(&mut self) {
        let (ended, living) = std::mem::take(&mut self.silent).into_iter().partition(Silent::has_ended);
        self.silent = living;
        let ended: Vec<Silent> = ended;
        ended.iter().flat_map(|silent| silent.lineage.slots()).for_each(|slot| self.freeze(slot));
        // At once, though what it has stored may be kept for its children for long: there are only so many calls.
        for slot in ended.iter().filter_map(|silent| silent.own) {
            self.application.pool.cancel_calls(OwnerId(slot as u16));
        }
        let kept = std::mem::take(&mut self.kept);
        let is_read = |&slot: &usize| {
            self.silent.iter().any(|silent| silent.reads(slot))
                || self.connected.values().any(|process| process.lineage.reads(slot))
        };
        let (kept, unread): (Vec<usize>, Vec<usize>) = kept.into_iter().partition(is_read);
        self.kept = kept;
        // Without the lock the packer could still store for a process that is gone. A packer that has panicked doesn't.
        let _at_rest = self.application.packing.lock();
        for slot in unread {
            self.application.pool.release_owner(OwnerId(slot as u16));
        }
    }

    /// Processes that the application has had, forked ones without a pager of their own included.
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    /// The application's figures with those of the processes that still live.
    pub(crate) fn sum(&self) -> Totals {
        let mut sum = self.totals.clone();
        for slot in self.application.ledger.slots().filter(|slot| slot.state() != SlotState::Free) {
            sum.add(&slot);
        }
        sum
    }
}

impl Process {
    pub(crate) fn slot(&self) -> Option<usize> {
        self.slot
    }

    pub(crate) fn uffd(&self) -> Option<&Uffd> {
        self.uffd.as_ref()
    }

    fn is_forked(&self) -> bool {
        self.lineage.fork().is_some()
    }
}

/// Whether a connection that was just taken leaves enough descriptors for those who are there. The kernel gives the lowest that is free.
fn leaves_descriptors(socket: &OwnedFd) -> bool {
    let Ok((most, _)) = getrlimit(Resource::RLIMIT_NOFILE) else { return true };
    (socket.as_raw_fd() as u64) < most - KEPT_DESCRIPTORS.min(most / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    struct Peer {
        key: u64,
        link: Link,
    }

    /// A process that connects.
    fn connect(processes: &mut Processes) -> Peer {
        let flags = SocketFlags::CLOEXEC;
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        processes.accept(near);
        Peer { key: processes.next_key - 1, link: Link::from(far) }
    }

    impl Peer {
        fn ask(&self, processes: &mut Processes, request: Request, descriptors: &[BorrowedFd<'_>]) {
            self.link.send(&request.encode(), descriptors).unwrap();
            processes.hear(self.key);
        }

        fn hear(&self) -> Option<Reply> {
            let mut packet = [0; PACKET_BYTES];
            let (length, _) = self.link.receive(&mut packet).unwrap();
            Reply::decode(&packet[..length])
        }
    }

    fn processes() -> Processes {
        // Both ends of the connections are this process's.
        Processes::new(Application::for_test(), std::process::id())
    }

    /// A program that has said who it is; its slot.
    fn begin(processes: &mut Processes) -> (Peer, usize) {
        let peer = connect(processes);
        let token = processes.application.token;
        peer.ask(processes, Request::Hello { token }, &[]);
        let Some(Reply::Welcome { slot, .. }) = peer.hear() else { panic!("not welcome") };
        (peer, slot as usize)
    }

    /// Any descriptor stands for a userfaultfd whose memory has not ended.
    fn fork(processes: &mut Processes, parent: &Peer, epoch: u64) {
        let memory = processes.application.ledger_memory;
        parent.ask(processes, Request::Forked { epoch }, &[memory.file()]);
    }

    fn inherit(processes: &mut Processes, parent_slot: usize, epoch: u64) -> Peer {
        let child = connect(processes);
        let token = processes.application.token;
        let request = Request::Inherit { parent_slot: parent_slot as u32, epoch, token };
        child.ask(processes, request, &[]);
        child
    }

    #[test]
    fn who_does_not_know_the_token_gets_nothing_and_is_dropped() {
        let mut processes = processes();
        let token = !processes.application.token;
        for request in [Request::Hello { token }, Request::Inherit { parent_slot: 0, epoch: 1, token }] {
            let stranger = connect(&mut processes);
            stranger.ask(&mut processes, request, &[]);
            assert_eq!(stranger.hear(), None);
        }
        assert!(processes.connected.is_empty() && !processes.has_program_reported);
    }

    #[test]
    fn of_many_who_say_nothing_the_first_are_dropped_and_nobody_who_has_said_something() {
        let mut processes = processes();
        let (_program, slot) = begin(&mut processes);
        let waiting = connect(&mut processes);
        let token = processes.application.token;
        // On its way when the others come.
        waiting.link.send(&Request::Hello { token }.encode(), &[]).unwrap();
        let strangers: Vec<Peer> = (0..2 * MOST_STRANGERS).map(|_| connect(&mut processes)).collect();

        processes.expel_strangers();

        assert!(processes.is_connected(slot) && processes.connected.contains_key(&waiting.key));
        let (dropped, kept) = strangers.split_at(MOST_STRANGERS);
        assert!(dropped.iter().all(|stranger| stranger.link.is_cut()));
        assert!(kept.iter().all(|stranger| processes.connected.contains_key(&stranger.key)));
    }

    #[test]
    fn a_stranger_that_says_nothing_is_dropped_after_a_while() {
        let mut processes = processes();
        let stranger = connect(&mut processes);
        processes.connected.get_mut(&stranger.key).unwrap().came = Instant::now() - 2 * INTRODUCTION;

        processes.expel_strangers();

        assert!(stranger.link.is_cut());
    }

    #[test]
    fn a_parent_stays_when_there_is_no_descriptor_for_its_child() {
        let mut processes = processes();
        let (parent, slot) = begin(&mut processes);

        parent.ask(&mut processes, Request::Forked { epoch: 1 }, &[]);
        fork(&mut processes, &parent, 2);
        let child = inherit(&mut processes, slot, 2);

        assert!(processes.is_connected(slot));
        assert_eq!(processes.lost, [(slot, 1)]);
        assert!(matches!(child.hear(), Some(Reply::Inherited { .. })));
    }

    #[test]
    fn the_program_is_welcome_and_counts_as_reported() {
        let mut processes = processes();
        let (_program, slot) = begin(&mut processes);
        assert_eq!(slot, 0);
        assert!(processes.has_program_reported);
        let view = processes.application.ledger.slot(slot).unwrap();
        assert_eq!(view.process(), std::process::id(), "the kernel's word counts");
    }

    #[test]
    fn a_child_inherits_after_its_parent_has_gone() {
        let mut processes = processes();
        let (parent, slot) = begin(&mut processes);
        fork(&mut processes, &parent, 1);
        processes.gone(parent.key);

        let child = inherit(&mut processes, slot, 1);

        let Some(Reply::Inherited { slot: own, .. }) = child.hear() else { panic!("nothing inherited") };
        assert_ne!(own as usize, slot);
        assert_eq!(processes.kept, [slot]);
    }

    #[test]
    fn a_child_that_comes_before_its_parents_word_waits_for_it() {
        let mut processes = processes();
        let (parent, slot) = begin(&mut processes);

        let child = inherit(&mut processes, slot, 1);
        fork(&mut processes, &parent, 1);

        assert!(matches!(child.hear(), Some(Reply::Inherited { .. })));
    }

    #[test]
    fn a_child_of_which_its_parent_never_told_is_refused_when_the_parent_goes() {
        let mut processes = processes();
        let (parent, slot) = begin(&mut processes);

        let child = inherit(&mut processes, slot, 1);
        processes.gone(parent.key);

        assert_eq!(child.hear(), Some(Reply::Refused { errno: 0 }));
    }

    #[test]
    fn a_child_that_never_comes_keeps_its_parents_entries_frozen() {
        let mut processes = processes();
        let (parent, slot) = begin(&mut processes);
        let view = processes.application.ledger.slot(slot).unwrap();

        fork(&mut processes, &parent, 3);

        assert_eq!((view.frozen_epoch(), view.heard_epoch()), (3, 3));
    }

    #[test]
    fn what_was_heard_of_a_fork_stays_so_when_a_kept_child_forks() {
        let mut processes = processes();
        let (parent, slot) = begin(&mut processes);
        fork(&mut processes, &parent, 1);
        fork(&mut processes, &parent, 2);

        fork(&mut processes, &parent, 1);

        let view = processes.application.ledger.slot(slot).unwrap();
        assert_eq!((view.frozen_epoch(), view.heard_epoch()), (2, 2));
    }

    #[test]
    fn an_orphan_is_a_failure_only_if_it_knows_the_token() {
        let mut processes = processes();
        let token = processes.application.token;
        let (stranger, orphan) = (connect(&mut processes), connect(&mut processes));

        stranger.ask(&mut processes, Request::Orphaned { token: !token }, &[]);
        orphan.ask(&mut processes, Request::Orphaned { token }, &[]);

        assert_eq!(processes.endings, [(std::process::id(), Ending::Orphaned)]);
    }

    #[test]
    fn a_parent_outlives_the_sudden_end_of_its_child() {
        let mut processes = processes();
        let (parent, slot) = begin(&mut processes);
        let child = inherit(&mut processes, slot, 1);
        drop(child);

        fork(&mut processes, &parent, 1);

        assert!(processes.is_connected(slot));
    }
}

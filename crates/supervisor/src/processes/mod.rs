//! The application's processes: which are connected, and which need whose stored pages.
//!
//! A forked child reads entries that its ancestors stored. So the slabs of a process that has ended are kept
//! until no living process descends from it by forks alone, and a living process is told up to which fork its
//! entries are frozen. Living is what the kernel says, not what a connection says: see [`Silent`].
//!
//! Here belongs what the supervisor knows of each process, how they come, fork, share, stall and go, and why
//! one was ended. It speaks with them by `farmem-wire`, and writes their slots in the ledger; of the pool it
//! knows only that a slot's entries are released.

pub(crate) mod attacher;
pub(crate) mod door;
mod endings;
pub(crate) mod family;
mod forks;
pub(crate) mod group;
mod lineage;
mod newcomers;
pub(crate) mod notices;
mod relatives;
mod rest;
mod shared;
pub(crate) mod shares;
pub(crate) mod silent;
pub(crate) mod stall;
#[cfg(test)]
mod tests;
mod unidentified;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Result;
use farmem_page::PageCount;
use farmem_store::OwnerId;
use farmem_sys::link::Link;
use farmem_sys::uffd::{FEATURES, Uffd, UffdError};
use farmem_sys::{AsFd, BorrowedFd, Errno, OwnedFd};
use farmem_telemetry::{Counter, Header, MAX_PROCESSES, ProcessSlot, SlotState};
use farmem_wire::{HAS_DISK, PACKET_BYTES, Reply, Request};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::Pid;

use crate::application::Application;
use crate::processes::endings::Ending;
use crate::processes::forks::Heir;
use crate::processes::lineage::{Lineage, layout};
use crate::processes::notices::{Notice, Notices};
use crate::processes::silent::Silent;
use crate::queries::query::{Query, Question};
use crate::reporting::totals::Totals;

/// Of so many processes that map shared memory, those that have ended are forgotten.
const FORGOTTEN_EVERY: usize = 64;

/// A connected process.
pub(crate) struct Process {
    link: Link,
    came: Instant,
    /// Its place in the ledger, once it has said who it is.
    slot: Option<usize>,
    /// Its number as this process sees it. In a PID namespace it has another one for itself.
    pub(crate) process: u32,
    /// The number of the process that its pager is in: the same, or another one next to it.
    pub(crate) pager: u32,
    /// Duplicates: while one exists, the process's memory can stall but never read as zeros.
    uffd: Option<Uffd>,
    /// The same of processes that map memory which its pager manages, where it is the pager of what processes
    /// share.
    mappers: Vec<Uffd>,
    lineage: Lineage,
    /// A request that can't be answered yet.
    waiting: Option<Heir>,
    /// Whether it belongs to somebody who may change limits: this process's user, or root.
    may_set: bool,
}

/// All of them.
pub(crate) struct Processes {
    application: Application,
    connected: HashMap<u64, Process>,
    next_key: u64,
    /// In the order in which they were told of: of two children of one fork, the announced one comes first.
    silent: Vec<Silent>,
    /// Forks, by slot and epoch, that were told of without the child's userfaultfd: there was no descriptor
    /// left for it.
    lost: Vec<(usize, u64)>,
    /// Slots of processes that have ended but whose entries somebody reads.
    kept: Vec<usize>,
    /// Pagers in processes of their own that have managed something and have gone, until their end is told.
    gone_pagers: HashSet<u32>,
    totals: Totals,
    /// Processes that have ever connected or were forked.
    started: u64,
    /// Why processes were ended, with the process's number, until it is told.
    pub(crate) endings: Vec<(u32, Ending)>,
    pub(crate) notices: Notices,
}

impl Processes {
    pub(crate) fn new(application: Application) -> Self {
        Self {
            application,
            connected: HashMap::new(),
            next_key: 0,
            silent: Vec::new(),
            lost: Vec::new(),
            kept: Vec::new(),
            gone_pagers: HashSet::new(),
            totals: Totals::new(),
            started: 0,
            endings: Vec::new(),
            notices: Notices::default(),
        }
    }

    /// Takes a connection. A process of another PID namespace that can't be seen from here can't be looked
    /// after.
    fn accept(&mut self, socket: OwnedFd) {
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
            pager: number,
            uffd: None,
            mappers: Vec::new(),
            lineage: Lineage::default(),
            waiting: None,
            may_set: peer.uid() == 0 || peer.uid() == rustix::process::geteuid().as_raw(),
        };
        self.connected.insert(self.next_key, process);
        self.next_key += 1;
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
            Request::Hello { token, process } => {
                self.admit(token)?;
                self.speak_for(key, process)?;
                self.started += 1;
                self.welcome(key)
            }
            Request::Register => self.register(key, descriptor),
            Request::Keep => self.keep_mapper(key, descriptor),
            Request::Forked { epoch } => {
                self.started += 1;
                self.expect(key, epoch, descriptor)
            }
            Request::Inherit { parent_slot, epoch, token, process, shared_pages, own_pages } => {
                self.admit(token)?;
                self.speak_for(key, process)?;
                let Some(child) = self.connected.get_mut(&key) else { return Ok(()) };
                let (shared, own) = (PageCount::new(shared_pages), PageCount::new(own_pages));
                child.waiting = Some(Heir { fork: (parent_slot as usize, epoch), shared, own });
                self.hand_over();
                Ok(())
            }
            Request::Query
            | Request::Set { .. }
            | Request::Look { .. }
            | Request::Withdraw
            | Request::Holds { .. }
            | Request::Resize { .. } => Ok(()),
        }
    }

    /// Other connections get nothing: ledger and pool are for the application's processes, which know its
    /// token.
    fn admit(&self, token: u64) -> Result<(), Errno> {
        if token == self.application.token { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// A pager in a process of its own speaks for that; only somebody who might end the program may.
    fn speak_for(&mut self, key: u64, number: u32) -> Result<(), Errno> {
        let Some(process) = self.connected.get_mut(&key) else { return Ok(()) };
        if number == 0 {
            return Ok(());
        }
        if !process.may_set {
            return Err(Errno::PERM);
        }
        process.process = number;
        process.lineage = Lineage::of_program(layout(number));
        Ok(())
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
        self.introduce(slot, key);
        let Some(process) = self.connected.get_mut(&key) else { return Ok(()) };
        let mut descriptors = vec![application.ledger_memory.file(), application.pool_memory.file()];
        let mut flags = 0;
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
            self.notices.say(Notice::Unmanaged(process.process));
        }
        process.link.send(&reply.encode(), &[])
    }

    /// A process maps memory that this pager of shared memory manages: without its userfaultfd it would find
    /// zeros once the pager has ended.
    fn keep_mapper(&mut self, key: u64, descriptor: Option<OwnedFd>) -> Result<(), Errno> {
        let Some(pager) = self.connected.get_mut(&key) else { return Ok(()) };
        if pager.mappers.len() % FORGOTTEN_EVERY == FORGOTTEN_EVERY - 1 {
            pager.mappers.retain(|uffd| !uffd.has_ended());
        }
        // The kernel had no descriptor to give: then the pager's own is all there is.
        pager.mappers.extend(descriptor.map(Uffd::from));
        Ok(())
    }

    /// Whether a process of the application lives.
    pub(crate) fn remain(&self) -> bool {
        self.connected.values().any(|process| process.slot.is_some() || process.waiting.is_some())
            || !self.silent.is_empty()
    }

    fn is_connected(&self, slot: usize) -> bool {
        self.connected.values().any(|process| process.slot == Some(slot))
    }

    /// A pager in a process of its own has ended: whether it had managed anything.
    pub(crate) fn had_managed(&mut self, pager: u32) -> bool {
        // The end of its connection may be noticed later.
        let is_meant = |process: &&Process| process.pager == pager;
        let connected = self.connected.values().find(is_meant);
        let slot =
            connected.and_then(|process| Some((process, self.application.ledger.slot(process.slot?)?)));
        let is_managing = slot.is_some_and(|(process, slot)| has_managed(slot.state(), &process.lineage));
        self.gone_pagers.remove(&pager) || is_managing
    }

    /// A connection has closed: the process has ended, or runs another program now, or will shortly.
    fn gone(&mut self, key: u64) {
        let Some(process) = self.connected.remove(&key) else { return };
        let mut is_explained = false;
        let mut has_withdrawn = false;
        let is_beside = process.is_beside();
        if let Some(slot) = process.slot
            && let Some(view) = self.application.ledger.slot(slot)
        {
            self.totals.add(&view);
            self.pass_on(slot, &process.lineage, view.credit());
            if let Some(failure) = view.failure() {
                self.endings.push((view.process(), Ending::Failed(failure)));
                is_explained = true;
            }
            is_explained |= view.state() == SlotState::Left;
            // Of a pager that went before it managed anything nothing is missing.
            let is_untouched = !has_managed(view.state(), &process.lineage);
            has_withdrawn = view.state() == SlotState::Withdrawn || is_untouched && is_beside;
            if is_beside && !is_untouched {
                self.gone_pagers.insert(process.pager);
            }
            view.set_state(SlotState::Free);
            self.kept.push(slot);
            self.lost.retain(|&(parent, _)| parent != slot);
        }
        if has_withdrawn && let Some(slot) = process.slot {
            // Its memory lives on, and nobody watches it any more: with the last descriptor the kernel
            // forgets that it was managed.
            self.application.pool.cancel_calls(OwnerId(slot as u16));
        } else if let Some(uffd) = process.uffd {
            let silent = Silent::new(uffd, process.lineage, process.slot);
            // A pager in a process of its own ends when the program's memory has gone, and never before.
            // Whoever reads about a process in `/proc` keeps its memory for that moment, so the pager's word
            // decides.
            if is_beside && !is_explained && !silent.has_ended() {
                self.endings.push((process.process, Ending::Deserted));
                let _ = kill(Pid::from_raw(process.process as i32), Signal::SIGKILL);
            }
            self.silent.push(silent);
        }
        if !has_withdrawn {
            // What those share and isn't there any more nobody can give them.
            let mappers = process.mappers.into_iter();
            self.silent.extend(mappers.map(|uffd| Silent::new(uffd, Lineage::default(), process.slot)));
        }
        self.forget_ended();
        // A child may have waited for what its parent can't send any more.
        self.hand_over();
    }

    /// Looks after processes without a connection. After a time in which nobody could look (`is_late`) their
    /// waits begin again.
    pub(crate) fn look_after_silent(&mut self, is_late: bool) {
        self.forget_ended();
        self.say_who_is_stuck();
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

    fn say_who_is_stuck(&mut self) {
        let is_stuck =
            |slot: &ProcessSlot<'_>| slot.get(Counter::Stuck) > 0 && slot.state() == SlotState::Managing;
        if let Some(slot) = self.application.ledger.slots().find(is_stuck) {
            self.notices.say(Notice::Stuck(slot.process()));
        }
    }

    /// Forgets processes whose memory is gone, and gives back what they have stored and nobody reads.
    fn forget_ended(&mut self) {
        let (ended, living) = std::mem::take(&mut self.silent).into_iter().partition(Silent::has_ended);
        self.silent = living;
        let ended: Vec<Silent> = ended;
        ended.iter().flat_map(|silent| silent.lineage.slots()).for_each(|slot| self.freeze(slot));
        // At once, though what it has stored may be kept for its children for long: there are only so many
        // calls.
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
        // Without the lock the packer could still store for a process that is gone. A packer that has
        // panicked doesn't.
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

/// Whether a pager in that state has managed something. What was inherited has been managed before.
fn has_managed(state: SlotState, lineage: &Lineage) -> bool {
    state != SlotState::Connected || lineage.fork().is_some()
}

impl Process {
    pub(crate) fn slot(&self) -> Option<usize> {
        self.slot
    }

    pub(crate) fn uffd(&self) -> Option<&Uffd> {
        self.uffd.as_ref()
    }

    /// Whether its pager is a process of its own next to it. Otherwise it is the pager of what processes
    /// share.
    fn is_beside(&self) -> bool {
        self.pager != self.process
    }

    fn is_forked(&self) -> bool {
        self.lineage.fork().is_some()
    }
}

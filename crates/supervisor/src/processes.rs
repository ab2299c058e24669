//! The application's processes: who is connected, whose stored pages are still needed by whom.
//!
//! A forked child reads entries that its ancestors stored. So the slabs of a process that has ended are kept until no
//! living process descends from it by forks alone, and a living process is told up to which fork its entries are frozen.

use std::collections::HashMap;

use anyhow::Result;
use farmem_store::OwnerId;
use farmem_sys::disk::DiskFile;
use farmem_sys::link::Link;
use farmem_sys::uffd::{FEATURES, Uffd, UffdError};
use farmem_sys::{AsFd, BorrowedFd, Errno, OwnedFd};
use farmem_telemetry::{Header, MAX_PROCESSES, SlotState};
use farmem_wire::{HAS_DEVICE, HAS_DISK, PACKET_BYTES, Reply, Request};

use crate::application::Application;
use crate::report::Totals;

/// A connected process.
pub(crate) struct Process {
    link: Link,
    /// Its place in the ledger, once it has said who it is.
    slot: Option<usize>,
    pub(crate) process: u32,
    /// Duplicates: while one exists, the process's memory can stall but never read as zeros.
    uffd: Option<Uffd>,
    /// Processes whose entries this one reads, each with the epoch that the fork ended.
    ancestors: Vec<(usize, u64)>,
    /// A request that can't be answered yet.
    waiting: Option<(usize, u64)>,
}

/// A child whose parent has announced it and which has not come yet.
struct Expected {
    parent_slot: usize,
    epoch: u64,
    uffd: Uffd,
}

/// All of them.
pub(crate) struct Processes {
    application: Application,
    connected: HashMap<u64, Process>,
    next_key: u64,
    expected: Vec<Expected>,
    /// Slots of processes that have ended but whose entries somebody reads.
    kept: Vec<usize>,
    totals: Totals,
    /// Codes of failures that processes have left, with the process's number.
    pub(crate) failures: Vec<(u32, u64)>,
}

impl Processes {
    pub(crate) fn new(application: Application) -> Self {
        Self {
            application,
            connected: HashMap::new(),
            next_key: 0,
            expected: Vec::new(),
            kept: Vec::new(),
            totals: Totals::new(),
            failures: Vec::new(),
        }
    }

    pub(crate) fn accept(&mut self, socket: OwnedFd) {
        let process = Process {
            link: Link::from(socket),
            slot: None,
            process: 0,
            uffd: None,
            ancestors: Vec::new(),
            waiting: None,
        };
        self.connected.insert(self.next_key, process);
        self.next_key += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.connected.is_empty()
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
        self.connected.iter().map(|(&key, process)| (key, process.link.as_fd()))
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = &Process> {
        self.connected.values()
    }

    pub(crate) fn totals(&self) -> &Totals {
        &self.totals
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
        if request == Request::Query {
            return self.connected.remove(&key).map(|process| Query { link: process.link });
        }
        if self.obey(key, request, descriptor).is_err() {
            self.gone(key);
        }
        None
    }

    fn obey(&mut self, key: u64, request: Request, descriptor: Option<OwnedFd>) -> Result<(), Errno> {
        match request {
            Request::Hello { process, token } => {
                self.admit(token)?;
                self.welcome(key, process)
            }
            Request::Register => self.register(key, descriptor),
            Request::Forked { epoch } => self.expect(key, epoch, descriptor),
            Request::Inherit { process, parent_slot, epoch, token } => {
                self.admit(token)?;
                let Some(child) = self.connected.get_mut(&key) else { return Ok(()) };
                child.process = process;
                child.waiting = Some((parent_slot as usize, epoch));
                self.hand_over()
            }
            Request::Query => Ok(()),
        }
    }

    /// Strangers get nothing: ledger and pool are for the application's processes, which know its token.
    fn admit(&self, token: u64) -> Result<(), Errno> {
        if token == self.application.token { Ok(()) } else { Err(Errno::ACCESS) }
    }

    fn welcome(&mut self, key: u64, number: u32) -> Result<(), Errno> {
        let slot = self.assign(number);
        let application = self.application;
        let Some(process) = self.connected.get_mut(&key) else { return Ok(()) };
        let Some(slot) = slot else {
            return process.link.send(&Reply::Refused { errno: 0 }.encode(), &[]);
        };
        process.slot = Some(slot);
        process.process = number;
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
        ledger.header(Header::SlotsUsed).fetch_max(index as u64 + 1, std::sync::atomic::Ordering::AcqRel);
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
        process.uffd = Some(uffd);
        process.link.send(&reply.encode(), &[])
    }

    fn expect(&mut self, key: u64, epoch: u64, descriptor: Option<OwnedFd>) -> Result<(), Errno> {
        let Some(parent_slot) = self.connected.get(&key).and_then(|process| process.slot) else {
            return Ok(());
        };
        let uffd = Uffd::from(descriptor.ok_or(Errno::INVAL)?);
        self.expected.push(Expected { parent_slot, epoch, uffd });
        self.freeze(parent_slot);
        if let Some(slot) = self.application.ledger.slot(parent_slot) {
            slot.set_heard_epoch(epoch);
        }
        self.hand_over()
    }

    /// Gives children that have come what their parents have sent.
    fn hand_over(&mut self) -> Result<(), Errno> {
        let ready: Vec<(u64, usize)> =
            self.connected
                .iter()
                .filter_map(|(&key, child)| {
                    let (parent_slot, epoch) = child.waiting?;
                    let at = self.expected.iter().position(|expected| {
                        expected.parent_slot == parent_slot && expected.epoch == epoch
                    })?;
                    Some((key, at))
                })
                .take(1)
                .collect();
        for (key, at) in ready {
            let Expected { parent_slot, epoch, uffd } = self.expected.swap_remove(at);
            let parent = self.connected.values().find(|process| process.slot == Some(parent_slot));
            let mut ancestors = parent.map_or_else(Vec::new, |parent| parent.ancestors.clone());
            ancestors.push((parent_slot, epoch));
            let number = self.connected.get(&key).map_or(0, |child| child.process);
            let slot = self.assign(number);
            let Some(child) = self.connected.get_mut(&key) else { continue };
            child.waiting = None;
            child.ancestors = ancestors;
            match slot {
                Some(slot) => {
                    child.slot = Some(slot);
                    let pool = self.application.pool_memory;
                    let disk = self.application.disk.map(DiskFile::file);
                    let flags = if disk.is_some() { HAS_DISK } else { 0 };
                    let pool_bytes = pool.length_bytes() as u64;
                    let reply = Reply::Inherited { slot: slot as u32, pool_bytes, flags };
                    let descriptors: Vec<_> = [uffd.as_fd(), pool.file()].into_iter().chain(disk).collect();
                    child.link.send(&reply.encode(), &descriptors)?;
                }
                None => child.link.send(&Reply::Refused { errno: 0 }.encode(), &[])?,
            }
            child.uffd = Some(uffd);
        }
        Ok(())
    }

    /// Tells a process up to which fork its entries are still read by others.
    fn freeze(&self, slot: usize) {
        let by_living = self
            .connected
            .values()
            .flat_map(|process| &process.ancestors)
            .filter(|(ancestor, _)| *ancestor == slot)
            .map(|(_, epoch)| *epoch);
        let by_expected = self
            .expected
            .iter()
            .filter(|expected| expected.parent_slot == slot)
            .map(|expected| expected.epoch);
        if let Some(view) = self.application.ledger.slot(slot) {
            view.set_frozen_epoch(by_living.chain(by_expected).max().unwrap_or(0));
        }
    }

    /// A process has ended, or runs another program now.
    fn gone(&mut self, key: u64) {
        let Some(process) = self.connected.remove(&key) else { return };
        let ancestors: Vec<usize> = process.ancestors.iter().map(|(slot, _)| *slot).collect();
        if let Some(slot) = process.slot
            && let Some(view) = self.application.ledger.slot(slot)
        {
            self.totals.add(&view);
            if view.failure() != 0 {
                self.failures.push((view.process(), view.failure()));
            }
            view.set_state(SlotState::Free);
            // Children that it announced and that never came are gone with it.
            self.expected.retain(|expected| expected.parent_slot != slot);
            self.kept.push(slot);
        }
        ancestors.into_iter().for_each(|slot| self.freeze(slot));
        self.release_unread();
    }

    /// Gives back what ended processes have stored and nobody reads.
    fn release_unread(&mut self) {
        let pool = self.application.pool;
        let connected = &self.connected;
        self.kept.retain(|&slot| {
            let is_read = connected
                .values()
                .any(|process| process.ancestors.iter().any(|(ancestor, _)| *ancestor == slot));
            if !is_read {
                pool.release_owner(OwnerId(slot as u16));
            }
            is_read
        });
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

    /// Whether it may share memory with another process of the application.
    pub(crate) fn is_forked(&self) -> bool {
        !self.ancestors.is_empty()
    }

    pub(crate) fn ancestors(&self) -> impl Iterator<Item = usize> {
        self.ancestors.iter().map(|(slot, _)| *slot)
    }
}

/// Somebody asks how the application is.
pub(crate) struct Query {
    link: Link,
}

impl Query {
    pub(crate) fn answer(&self, text: &str) {
        // Who has gone meanwhile needs no answer.
        let _ = self.link.send(text.as_bytes(), &[]);
    }
}

//! Forks: what a parent says and sends of its child, and the child that comes for it.
//!
//! The two come in any order, and either may never come. What nobody has come for yet is a [`Silent`].

use farmem_page::PageCount;
use farmem_sys::disk::DiskFile;
use farmem_sys::uffd::Uffd;
use farmem_sys::{AsFd, Errno, OwnedFd};
use farmem_telemetry::Counter;
use farmem_wire::{HAS_DISK, Reply};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::processes::Processes;
use crate::processes::endings::Ending;
use crate::processes::lineage::Lineage;
use crate::processes::silent::Silent;

/// A forked child that asks for its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heir {
    /// Its parent's slot, and the parent's count of forks.
    pub(super) fork: (usize, u64),
    /// Pages that count with its parent.
    pub(super) shared: PageCount,
    /// Pages that it has made its own.
    pub(super) own: PageCount,
}

impl Processes {
    /// A process has forked: what it has sent is kept for the child.
    pub(super) fn expect(&mut self, key: u64, epoch: u64, descriptor: Option<OwnedFd>) -> Result<(), Errno> {
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
            view.expect_relative();
        }
        self.hand_over();
        Ok(())
    }

    /// Gives children that have come what their parents have sent.
    pub(super) fn hand_over(&mut self) {
        let asking: Vec<(u64, Heir)> =
            self.connected.iter().filter_map(|(&key, child)| child.waiting.map(|heir| (key, heir))).collect();
        for (key, heir) in asking {
            let fork = heir.fork;
            let answered = match self.silent.iter().position(|silent| silent.lineage.fork() == Some(fork)) {
                Some(at) => {
                    let silent = self.silent.remove(at);
                    self.inherit(key, heir, silent)
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

    fn inherit(&mut self, key: u64, heir: Heir, silent: Silent) -> Result<(), Errno> {
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
        child.uffd = Some(silent.uffd);
        let Some(slot) = slot else { return child.link.send(&Reply::Refused { errno: 0 }.encode(), &[]) };
        let parent = child.lineage.fork().and_then(|(slot, _)| application.ledger.slot(slot));
        if let Some((parent, view)) = parent.zip(application.ledger.slot(slot)) {
            // A new child hears of writes to what it shares if its parent does. In this order, so that what
            // it shares counts once at any moment.
            view.set_relatives(1);
            if parent.is_protected() {
                view.set_shared(heir.shared, view.separated());
                view.set_protected(true);
            }
            view.set(Counter::ResidentPages, heir.shared.get().saturating_add(heir.own.get()));
            if !parent.is_protected() {
                self.introduce(slot, key);
            }
        }
        let pool = application.pool_memory;
        let disk = application.disk.map(DiskFile::file);
        let flags = if disk.is_some() { HAS_DISK } else { 0 };
        let pool_bytes = pool.length_bytes() as u64;
        let reply = Reply::Inherited { slot: slot as u32, pool_bytes, flags };
        let Some(child) = self.connected.get(&key) else { return Ok(()) };
        let uffd = child.uffd.as_ref().map(Uffd::as_fd);
        let descriptors: Vec<_> = uffd.into_iter().chain([pool.file()]).chain(disk).collect();
        child.link.send(&reply.encode(), &descriptors)
    }

    /// Nobody but the parent could serve that child, and from the parent's end on it would read zeros.
    /// While it waits for an answer its number is its own.
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

    /// Tells a process up to which fork its entries are still read by others.
    pub(super) fn freeze(&self, slot: usize) {
        let epoch = self.lineages().map(|lineage| lineage.frozen_epoch(slot)).max().unwrap_or(0);
        if let Some(view) = self.application.ledger.slot(slot) {
            view.set_frozen_epoch(epoch);
        }
    }

    fn lineages(&self) -> impl Iterator<Item = &Lineage> {
        let connected = self.connected.values().map(|process| &process.lineage);
        connected.chain(self.silent.iter().map(|silent| &silent.lineage))
    }
}

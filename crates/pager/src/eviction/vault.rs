//! The pager's side of the pool: entries, who may change them, and when they may be freed.
//!
//! A forked child reads the entries that its parent had at that moment. So the parent counts its forks:
//! entries carry the count at which they were stored, and those up to the latest fork whose child lives are
//! *frozen*: neither changed nor freed. What should have been freed is kept in a list until the child has
//! gone.

use core::cell::Cell;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use farmem_page::{ByteCount, PageBytes, PageIndex, Place};
use farmem_policy::Partition;
use farmem_policy::links::timeliness;
use farmem_store::{
    BlockError, BlockFile, Call, Caller, Epoch, FreeOutcome, LoadError, Origin, OwnerId, Packed, Packing,
    Pool, Posted, Reader, Standing, StoreError, Update, Urgency, WINDOW_BYTES, Writer,
};
use farmem_sys::disk::DiskFile;
use farmem_sys::guard::{self, Guard};
use farmem_sys::link::Link;
use farmem_sys::lock::Lock;
use farmem_sys::shared::SharedMemory;
use farmem_sys::uffd::Uffd;
use farmem_sys::{Errno, memory, thread};
use farmem_telemetry::ProcessSlot;

use crate::address_space::table::Watch;
use crate::engine::BATCH_PAGES;
use crate::gate::Gate;

/// Entries that can wait to be freed. Those beyond are freed when the process ends.
const DEFERRED: usize = 1 << 18;
/// Entries that are tried in one round, so that a round stays short.
const TRIED_AT_ONCE: usize = 4096;
/// How often a disk that fails is asked for a page before the page counts as lost.
const READ_ATTEMPTS: u32 = 3;
/// How long a page on a memory node is waited for. The supervisor gives an answer much sooner, whatever the
/// node does.
const NODE_PATIENCE_NS: u64 = 30_000_000_000;

/// The disk below the pool, if there is one.
#[derive(Clone, Copy)]
pub(crate) struct DiskTier {
    pub(crate) file: Option<&'static DiskFile>,
    /// Whether the tests have ordered that reads fail.
    pub(crate) is_failing: bool,
}

impl BlockFile for DiskTier {
    fn read_at(&self, offset_bytes: u64, out: &mut [u8]) -> Result<(), BlockError> {
        self.file
            .filter(|_| !self.is_failing)
            .map_or(Err(BlockError::Failed), |file| BlockFile::read_at(file, offset_bytes, out))
    }
    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.file.map_or(Err(BlockError::Full), |file| BlockFile::write_at(file, offset_bytes, bytes))
    }
}

/// The pool as this process sees it.
pub(crate) type SharedPool = Pool<&'static SharedMemory>;
/// Reads pages back, for one thread.
pub(crate) type PageReader = Reader<DiskTier, NodeCaller>;

/// Asks the supervisor for what is on memory nodes, for as long as there is a supervisor.
pub(crate) struct NodeCaller {
    owner: OwnerId,
    supervisor: &'static Link,
    uffd: &'static Uffd,
    gate: &'static Gate,
    ahead: Ahead,
}

impl NodeCaller {
    /// What is fetched while nobody waits for it.
    pub(crate) fn ahead(&self) -> &Ahead {
        &self.ahead
    }
}

/// The pages that are fetched while nobody waits for them.
pub(crate) struct Ahead {
    watches: [Cell<Option<Watch>>; BATCH_PAGES],
    since_ns: Cell<u64>,
    /// When somebody was first seen to wait for one of them.
    awaited_ns: Cell<Option<u64>>,
}

impl Ahead {
    const fn new() -> Self {
        Self {
            watches: [const { Cell::new(None) }; BATCH_PAGES],
            since_ns: Cell::new(0),
            awaited_ns: Cell::new(None),
        }
    }

    /// From now on these.
    pub(crate) fn begin(&self, pages: impl Iterator<Item = Watch>) {
        let pages = pages.map(Some).chain(core::iter::repeat(None));
        self.watches.iter().zip(pages).for_each(|(watch, page)| watch.set(page));
        self.since_ns.set(thread::now_ns());
        self.awaited_ns.set(None);
    }

    /// When that was.
    pub(crate) fn since_ns(&self) -> u64 {
        self.since_ns.get()
    }

    /// How long after that somebody came to wait for one of them, as far as it was seen.
    pub(crate) fn awaited_after_ns(&self) -> Option<u64> {
        Some(self.awaited_ns.get()?.saturating_sub(self.since_ns.get()))
    }

    fn is_awaited(&self) -> bool {
        if self.awaited_ns.get().is_some() {
            return true;
        }
        let is_awaited = self.watches.iter().map_while(Cell::get).any(Watch::is_waited);
        if is_awaited {
            self.awaited_ns.set(Some(thread::now_ns()));
        }
        is_awaited
    }
}

impl Caller for NodeCaller {
    fn owner(&self) -> OwnerId {
        self.owner
    }
    fn processor(&self) -> usize {
        thread::processor()
    }
    fn now_ns(&self) -> u64 {
        thread::now_ns()
    }
    fn is_patient(&self, waited_ns: u64) -> bool {
        waited_ns < NODE_PATIENCE_NS && !self.supervisor.is_cut()
    }
    fn is_awaited(&self) -> bool {
        // Other threads wait for this one, too.
        self.ahead.is_awaited() || self.uffd.has_message() || self.gate.is_settling()
    }
}

/// Entries of one process.
pub(crate) struct Vault {
    pool: &'static SharedPool,
    disk: DiskTier,
    supervisor: &'static Link,
    owner: OwnerId,
    slot: ProcessSlot<'static>,
    /// The count of forks, plus one: 0 is the epoch of no entry.
    epoch: AtomicU32,
    /// The epoch that the latest fork has ended, until the supervisor has heard of it.
    unheard: AtomicU32,
    deferred: Lock<Deferred>,
    /// Whether there is so little room left that pages must not be stored raw, not even for a while.
    is_short: AtomicBool,
}

/// What became of a page that was to be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stowed {
    /// It hadn't changed; nothing was written.
    Clean(Place),
    /// It was written into the entry that it had.
    Rewritten(Place),
    /// It has a new entry.
    Placed(Place),
    /// There is no room.
    Full,
}

/// Why a page can't be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoadFailure {
    /// For good: damaged, or the disk has failed, or nodes are lost.
    Lost,
    /// It is on a node, and was to be read without asking one; or it would have come too late.
    Later,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault")
            .field("owner", &self.owner)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

impl Vault {
    pub(crate) fn new(
        pool: &'static SharedPool,
        disk: DiskTier,
        supervisor: &'static Link,
        slot: ProcessSlot<'static>,
    ) -> Result<Self, Errno> {
        let owner = OwnerId(slot.index() as u16);
        Ok(Self {
            pool,
            disk,
            supervisor,
            owner,
            slot,
            epoch: AtomicU32::new(1),
            unheard: AtomicU32::new(0),
            deferred: Lock::new(Deferred::new(memory::table(DEFERRED)?)),
            is_short: AtomicBool::new(false),
        })
    }

    /// The pool's memory.
    pub(crate) fn memory(&self) -> &'static SharedMemory {
        self.pool.memory()
    }

    pub(crate) fn writer(&self) -> Writer {
        Writer::new(self.owner)
    }

    pub(crate) fn reader(&self, uffd: &'static Uffd, gate: &'static Gate) -> PageReader {
        let (owner, supervisor) = (self.owner, self.supervisor);
        let nodes = NodeCaller { owner, supervisor, uffd, gate, ahead: Ahead::new() };
        let reader = Reader::with_nodes(self.disk, nodes);
        // Without that memory it only reads less at a time.
        match self.disk.file.and_then(|_| memory::table_mut(WINDOW_BYTES).ok()) {
            Some(buffer) => reader.with_window(buffer),
            None => reader,
        }
    }

    /// A fork: everything stored so far is frozen. The epoch that ends with it.
    pub(crate) fn end_epoch(&self) -> u64 {
        let ended = self.epoch.fetch_add(1, Ordering::AcqRel);
        self.unheard.store(ended, Ordering::Release);
        u64::from(ended)
    }

    fn frozen(&self) -> Epoch {
        if !guard::stands(Guard::ForkFreezesEntries) {
            return Epoch::NONE;
        }
        let unheard = self.unheard.load(Ordering::Acquire);
        // In this order: a thread that has heard of a fork has counted it among the frozen ones before.
        let is_heard = unheard == 0 || self.slot.heard_epoch() >= u64::from(unheard);
        let by_children = self.slot.frozen_epoch() as u32;
        Epoch(if is_heard { by_children } else { unheard.max(by_children) })
    }

    /// The bytes that the page at `place` takes in the pool; `None` where it takes no room of its own.
    pub(crate) fn stored_bytes(&self, place: Place) -> Option<u64> {
        self.pool.stored_bytes(place)
    }

    /// Whether what is at `place` is not in memory now, and has to be waited for.
    pub(crate) fn is_away(&self, place: Place) -> bool {
        self.pool.is_away(place)
    }

    /// Hints that the page at `place` will be read soon.
    pub(crate) fn prefetch(&self, place: Place) {
        self.pool.prefetch(place);
    }

    /// A glance at what is stored at `place`: see [`Reader::glance`].
    pub(crate) fn glance(&self, reader: &mut PageReader, place: Place, page: &mut PageBytes) -> bool {
        reader.glance(self.pool, place, page)
    }

    /// A page of a node was used so long after it had been asked for ahead.
    pub(crate) fn note_use(&self, after_ns: u64) {
        self.pool.note_use(timeliness::bucket_of(after_ns));
    }

    /// Reads a page back and checks it; where it was. [`LoadFailure::Later`] only where nobody waits for it.
    pub(crate) fn load(
        &self,
        reader: &mut PageReader,
        place: Place,
        page: &mut PageBytes,
        urgency: Urgency,
    ) -> Result<Origin, LoadFailure> {
        for _ in 0..READ_ATTEMPTS {
            match reader.load_for(self.pool, place, page, urgency) {
                Ok(origin) => return Ok(origin),
                Err(LoadError::Io) => {}
                Err(LoadError::Later) => return Err(LoadFailure::Later),
                Err(LoadError::Corrupt | LoadError::Lost | LoadError::Gone) => break,
            }
        }
        Err(LoadFailure::Lost)
    }

    /// Asks nodes for the page at `place`, without waiting: what was asked, and the call. `None` where no
    /// node has it, or no call is free.
    pub(crate) fn post(&self, reader: &PageReader, place: Place, is_ahead: bool) -> Option<(Call, Posted)> {
        let call = self.pool.call_for(place)?;
        Some((call, self.pool.post(reader.caller(), call, is_ahead)?))
    }

    /// How a posted call stands.
    pub(crate) fn standing(&self, posted: &Posted) -> Standing {
        self.pool.standing(posted)
    }

    /// What changes when a posted call that waits is answered: where it is in the pool's memory, and what it
    /// is now.
    pub(crate) fn waits(&self, posted: &Posted) -> Option<(usize, u32)> {
        self.pool.waits(posted)
    }

    /// Takes a posted call back.
    pub(crate) fn withdraw(&self, posted: &Posted) {
        self.pool.withdraw(posted);
    }

    /// Whether pages may be on nodes at all.
    pub(crate) fn has_nodes(&self) -> bool {
        self.pool.lanes() > 0
    }

    /// Whether an answer that has not come after so long will hardly come.
    pub(crate) fn is_hopeless(&self, waited_ns: u64) -> bool {
        waited_ns >= NODE_PATIENCE_NS || self.supervisor.is_cut()
    }

    /// Stores the content of `page`, which leaves and whose entry was `old`: raw if somebody else packs it
    /// afterwards. One thread at a time.
    pub(crate) fn stow(
        &self,
        writer: &mut Writer,
        page: PageIndex,
        old: Option<Place>,
        content: &PageBytes,
    ) -> Stowed {
        if self.pool.is_raw() {
            writer.set_packing(Packing::Never);
            return self.write(writer, old, content);
        }
        if !self.is_short.load(Ordering::Relaxed) && self.pool.is_packing_later(self.owner) {
            writer.set_packing(Packing::Later);
            let stowed = self.write(writer, old, content);
            if let Stowed::Rewritten(place @ Place::Slot(_)) | Stowed::Placed(place @ Place::Slot(_)) = stowed
            {
                // There is room in the queue: nobody else asks. A page that isn't packed after all is stored
                // as well.
                let _ = self.pool.ask_to_pack(self.owner, page, place);
            }
            if stowed != Stowed::Full {
                return stowed;
            }
        }
        writer.set_packing(Packing::Now);
        self.write(writer, old, content)
    }

    fn write(&self, writer: &mut Writer, old: Option<Place>, page: &PageBytes) -> Stowed {
        let epoch = Epoch(self.epoch.load(Ordering::Acquire));
        // Otherwise what it had is given up once it has another one.
        let kept = old.filter(|&old| !self.pool.is_renewing() && !self.is_out_of_reach(old));
        let result = match kept {
            Some(old) => writer.update(self.pool, old, page, epoch, self.frozen()),
            None => writer.store(self.pool, page, epoch).map(|new| Update::Moved { new }),
        };
        match (result, old) {
            (Ok(Update::Clean), Some(old)) => Stowed::Clean(old),
            (Ok(Update::InPlace(place)), _) => Stowed::Rewritten(place),
            (Ok(Update::Moved { new }), old) => {
                if let Some(old) = old {
                    self.free(old);
                }
                Stowed::Placed(new)
            }
            (Ok(Update::Clean), None) | (Err(StoreError::Full), _) => Stowed::Full,
        }
    }

    /// Whether what is stored at `place` can't be had any more, though nobody has lost it: nobody asks nodes
    /// without a supervisor.
    fn is_out_of_reach(&self, place: Place) -> bool {
        self.pool.is_on_nodes_alone(place) && self.supervisor.is_cut()
    }

    /// The oldest page that has been packed and not got its entry yet. One thread at a time.
    pub(crate) fn next_packed(&self) -> Option<Packed> {
        self.pool.next_packed(self.owner)
    }

    /// Forgets the page that [`Vault::next_packed`] shows.
    pub(crate) fn settle_packed(&self) {
        self.pool.settle_packed(self.owner);
    }

    /// Whether two entries, which nobody changes meanwhile, hold the same page.
    pub(crate) fn is_same(&self, one: Place, other: Place) -> bool {
        self.pool.is_same(one, other)
    }

    /// Frees an entry that no page of this process has any more.
    pub(crate) fn free(&self, place: Place) {
        let frozen = self.frozen();
        if self.pool.free(place, self.owner, frozen) == FreeOutcome::Frozen {
            self.deferred.lock().push(place, frozen);
        }
    }

    /// Whether [`Vault::free`] would make room at once: the entry is this process's, and no forked child
    /// reads it.
    pub(crate) fn is_freeable(&self, place: Place) -> bool {
        self.pool.is_freeable(place, self.owner, self.frozen())
    }

    /// Says whether room is short: then no page is stored raw to be packed later.
    pub(crate) fn set_short(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::Relaxed);
    }

    /// What pool, nodes and disk hold, for all processes of the application. Takes time: see [`Pool::usage`].
    pub(crate) fn partition(&self) -> Partition {
        let usage = self.pool.usage();
        Partition {
            stored: usage.stored_bytes,
            stored_pages: usage.stored_pages,
            limit: ByteCount::new(usage.limit.get() + usage.disk_limit.get() + usage.node_limit.get())
                .min(usage.partition),
        }
    }

    /// Frees what had to wait for a child that has gone meanwhile. One thread at a time.
    pub(crate) fn free_deferred(&self) {
        let frozen = self.frozen();
        for _ in 0..TRIED_AT_ONCE {
            let Some(place) = self.deferred.lock().next(frozen) else { return };
            let outcome = self.pool.free(place, self.owner, frozen);
            self.deferred.lock().settle(outcome, frozen);
        }
    }
}

/// Entries that wait to be freed, of several epochs in any order: some may be freed long before others. They
/// are looked at one after the other, from the last to the first, once what is frozen has become less.
struct Deferred {
    places: &'static [AtomicU64],
    count: usize,
    /// Those that have not been looked at this time; none while none need be.
    left: usize,
    /// The highest epoch that was frozen when one of the others was found to be.
    frozen: Epoch,
}

impl Deferred {
    const fn new(places: &'static [AtomicU64]) -> Self {
        Self { places, count: 0, left: 0, frozen: Epoch::NONE }
    }

    fn push(&mut self, place: Place, frozen: Epoch) {
        if let Some(word) = self.places.get(self.count) {
            word.store(place.encode(), Ordering::Relaxed);
            self.count += 1;
            self.frozen = self.frozen.max(frozen);
        }
    }

    /// The entry to try now. It stays in the list until it is settled.
    fn next(&mut self, frozen: Epoch) -> Option<Place> {
        if self.left == 0 && frozen < self.frozen {
            self.left = self.count;
            self.frozen = Epoch::NONE;
        }
        Place::decode(self.places[self.left.checked_sub(1)?].load(Ordering::Relaxed))
    }

    /// What came of that entry: one that is frozen still waits on.
    fn settle(&mut self, outcome: FreeOutcome, frozen: Epoch) {
        self.left -= 1;
        if outcome == FreeOutcome::Frozen {
            self.frozen = self.frozen.max(frozen);
        } else {
            // The last one takes its place: that has been looked at, or came later.
            self.count -= 1;
            let last = self.places[self.count].load(Ordering::Relaxed);
            self.places[self.left].store(last, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farmem_page::PAGE_BYTES;
    use farmem_store::{Mover, NodeBlock, Nodes, NodesConfig, NullFile, PoolConfig, SLAB_BYTES, StepOutcome};
    use farmem_sys::OwnedFd;
    use farmem_sys::link::listen_at;
    use farmem_telemetry::{LEDGER_BYTES, Ledger};
    use std::boxed::Box;
    use std::vec::Vec;

    /// A vault in a pool of two slabs and more on nodes, and the supervisor's end of its connection.
    fn vault(name: &str) -> (Vault, OwnedFd) {
        let slabs = |count: usize| ByteCount::new((count * SLAB_BYTES) as u64);
        let config = PoolConfig {
            limit: slabs(2),
            capacity: ByteCount::ZERO,
            disk: ByteCount::ZERO,
            nodes: NodesConfig { alone: slabs(3), lanes: 1, entries: 1, ..NodesConfig::default() },
            owners: 1,
            seed: 1,
        };
        let bytes = config.memory_bytes().unwrap();
        let memory = Box::leak(Box::new(SharedMemory::create(c"farmem-test-pool", bytes).unwrap()));
        let pool = Box::leak(Box::new(Pool::create(&*memory, &config).unwrap()));
        let words: Vec<AtomicU64> = (0..LEDGER_BYTES / 8).map(|_| AtomicU64::new(0)).collect();
        let slot = Ledger::new(words.leak()).unwrap().slot(0).unwrap();
        let name = std::format!("farmem-test-vault-{name}-{}", std::process::id());
        let supervisor = listen_at(name.as_bytes()).unwrap();
        let link = Box::leak(Box::new(Link::connect(name.as_bytes()).unwrap()));
        let disk = DiskTier { file: None, is_failing: false };
        (Vault::new(pool, disk, link, slot).unwrap(), supervisor)
    }

    /// The epoch that the latest fork has ended.
    fn ended_epoch(vault: &Vault) -> u64 {
        u64::from(vault.epoch.load(Ordering::Acquire) - 1)
    }

    /// A page that no compressor shortens.
    fn page(number: u64) -> PageBytes {
        let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut page = [0; PAGE_BYTES];
        for word in page.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        page
    }

    fn store(vault: &Vault, writer: &mut Writer, number: u64) -> Place {
        let Stowed::Placed(place) = vault.stow(writer, PageIndex::new(number), None, &page(number)) else {
            panic!("page {number} has no place")
        };
        place
    }

    /// Nodes that take all there is.
    struct Taking;

    impl Nodes for Taking {
        fn room(&self) -> usize {
            3
        }
        fn write(&mut self, _: &[NodeBlock], _: &[u8], kept: &mut [bool]) {
            kept.fill(true);
        }
        fn has(&self, _: usize) -> bool {
            true
        }
        fn read(&mut self, _: usize, _: &mut [u8; SLAB_BYTES]) -> Result<(), BlockError> {
            Err(BlockError::Failed)
        }
    }

    #[test]
    fn an_entry_is_freed_when_its_own_child_has_gone_though_another_child_lives_on() {
        let (vault, _supervisor) = vault("children");
        let mut writer = Box::new(vault.writer());
        let tell = |frozen: u64| {
            vault.slot.set_frozen_epoch(frozen);
            vault.slot.note_heard_epoch(ended_epoch(&vault));
        };
        let first = store(&vault, &mut writer, 1);
        let lives_on = vault.end_epoch();
        tell(lives_on);
        let second = store(&vault, &mut writer, 2);
        tell(vault.end_epoch());
        // What the child that lives on reads comes last, so that it is looked at first.
        vault.free(second);
        vault.free(first);
        vault.free_deferred();
        let stored = || vault.pool.usage().stored_pages.get();
        assert_eq!(stored(), 2, "both children live");
        tell(lives_on);
        vault.free_deferred();
        assert_eq!((stored(), vault.is_freeable(first)), (1, false));
        tell(0);
        vault.free_deferred();
        assert_eq!((stored(), vault.deferred.lock().count), (0, 0));
    }

    #[test]
    fn an_entry_that_came_while_others_were_looked_at_is_freed_as_well() {
        let (vault, _supervisor) = vault("pass");
        let mut writer = Box::new(vault.writer());
        let places: Vec<Place> = (0..4).map(|number| store(&vault, &mut writer, number)).collect();
        vault.end_epoch();
        let frozen = vault.frozen();
        places[..3].iter().for_each(|&place| vault.free(place));
        // The child has gone: one is looked at before another fork comes, which defers the last one.
        let tried = vault.deferred.lock().next(Epoch::NONE).unwrap();
        assert_eq!(tried, places[2]);
        let outcome = vault.pool.free(tried, vault.owner, Epoch::NONE);
        vault.free(places[3]);
        vault.deferred.lock().settle(outcome, Epoch::NONE);
        let waiting = |vault: &Vault| {
            let deferred = vault.deferred.lock();
            (deferred.count, deferred.frozen)
        };
        assert_eq!(waiting(&vault), (3, frozen));
        vault.slot.note_heard_epoch(ended_epoch(&vault));
        vault.free_deferred();
        assert_eq!((vault.pool.usage().stored_pages.get(), waiting(&vault).0), (0, 0));
    }

    #[test]
    fn without_a_supervisor_a_page_that_nodes_alone_have_is_stored_anew() {
        let (vault, supervisor) = vault("cut");
        let mut writer = Box::new(vault.writer());
        let places: Vec<Place> = (0..66).map(|number| store(&vault, &mut writer, number)).collect();
        let moved = Mover::new(vault.pool).step(vault.pool, &NullFile, &mut Taking);
        assert!(matches!(moved, StepOutcome::Moved { slabs: 1, .. }), "{moved:?}");
        let mut stow_again = || vault.stow(&mut writer, PageIndex::new(0), Some(places[0]), &page(0));
        assert_eq!(stow_again(), Stowed::Clean(places[0]));
        drop(supervisor);
        assert!(matches!(stow_again(), Stowed::Placed(place) if !vault.pool.is_on_nodes_alone(place)));
    }
}

//! The pool against a reference: reads operations from bytes, does them on a pool and on plain maps, and
//! compares every byte. The same for fixed seeds, for property tests and for the fuzzer.

use super::{MemoryFile, Random, config, page};
use farmem_page::{PAGE_BYTES, PageBytes, Place};
use farmem_store::{
    Epoch, FreeOutcome, LoadError, Mover, NoNodes, OwnerId, Pool, Reader, SLAB_BYTES, StoreError, Update,
    Writer,
};
use farmem_sys::shared::SharedMemory;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

const OWNERS: usize = 3;
const FRAMES: usize = 24;
const BLOCKS: usize = 24;

/// How operations are read.
pub struct Script<'a> {
    bytes: &'a [u8],
    /// Whether the mover may die in the middle of a move, which takes a panic.
    pub may_panic: bool,
}

impl<'a> Script<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, may_panic: true }
    }
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }
}

/// Bytes of a script, made from a seed.
pub fn script_bytes(seed: u64, operations: usize) -> Vec<u8> {
    let mut random = Random(seed);
    (0..operations * 4).map(|_| random.next() as u8).collect()
}

/// Content of a page, small enough to compare and shrink.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Content {
    number: u64,
    noisy_bytes: usize,
}

impl Content {
    fn bytes(self) -> PageBytes {
        match self.noisy_bytes {
            0 => {
                let mut page = [0; PAGE_BYTES];
                page.chunks_mut(8).for_each(|word| word.copy_from_slice(&self.number.to_le_bytes()));
                page
            }
            noisy_bytes => page(self.number, noisy_bytes),
        }
    }
}

/// One process: what it stored, what its forked children may still read, what it must free later.
struct Process {
    id: OwnerId,
    writer: Box<Writer>,
    epoch: Epoch,
    pages: BTreeMap<u8, (Place, Content)>,
    /// For each living child: the epoch that its fork ended, and what it sees.
    children: Vec<(Epoch, Vec<(Place, Content)>)>,
    deferred: Vec<(Place, Content)>,
}

impl Process {
    fn new(number: usize) -> Self {
        let id = OwnerId(number as u16);
        Self {
            id,
            writer: Box::new(Writer::new(id)),
            epoch: Epoch::FIRST,
            pages: BTreeMap::new(),
            children: Vec::new(),
            deferred: Vec::new(),
        }
    }
    fn frozen(&self) -> Epoch {
        self.children.iter().map(|(epoch, _)| *epoch).max().unwrap_or(Epoch::NONE)
    }
    fn free(&mut self, pool: &Pool<SharedMemory>, place: Place, content: Content) {
        match (pool.free(place, self.id, self.frozen()), place) {
            (FreeOutcome::Freed, Place::Slot(_)) | (FreeOutcome::NoSlot, Place::Zero | Place::Pattern(_)) => {
            }
            (FreeOutcome::Frozen, Place::Slot(_)) if !self.children.is_empty() => {
                self.deferred.push((place, content));
            }
            (outcome, _) => panic!("freeing {place:?} gave {outcome:?}"),
        }
    }
    /// Everything that must still be there.
    fn entries(&self) -> impl Iterator<Item = (Place, Content)> {
        let pages = self.pages.values().copied();
        pages
            .chain(self.deferred.iter().copied())
            .chain(self.children.iter().flat_map(|(_, seen)| seen.iter().copied()))
    }
}

struct World {
    pool: Pool<SharedMemory>,
    file: MemoryFile,
    mover: Mover,
    processes: Vec<Process>,
    /// What was never stored before gets the next number.
    contents: u64,
}

/// Runs a script to its end. Panics when the pool and the reference disagree.
pub fn run(mut script: Script<'_>) {
    let config = config(FRAMES, BLOCKS);
    let memory = SharedMemory::create(c"farmem-test-pool", config.memory_bytes().unwrap()).unwrap();
    let pool = Pool::create(memory, &config).unwrap();
    let mover = Mover::new(&pool);
    let processes = (0..OWNERS).map(Process::new).collect();
    let mut world = World { pool, file: MemoryFile::new(BLOCKS), mover, processes, contents: 0 };
    while world.one(&mut script).is_some() {}
    world.check_all();
    world.empty();
}

impl World {
    fn one(&mut self, script: &mut Script<'_>) -> Option<()> {
        let code = script.next()?;
        let who = usize::from(script.next()?) % OWNERS;
        let which = script.next()?;
        let detail = script.next()?;
        match code % 32 {
            0..=7 => self.store_many(who, which, detail),
            8..=12 => self.write_back(who, which, detail),
            13..=15 => self.load(who, which),
            16..=19 => self.free_many(who, which, detail),
            20 => self.fork(who),
            21 | 22 => self.child_exits(who, detail),
            23 => self.die(who, detail),
            24..=26 => {
                self.mover.step(&self.pool, &self.file, &mut NoNodes);
            }
            27 => {
                self.mover.raise(&self.pool, &self.file, &mut NoNodes);
                self.mover.raise_unread(&self.pool, &self.file, &mut NoNodes);
            }
            28 => self.file.fails_in.set(i64::from(detail % 8) - 1),
            29 => self.file.fails_in.set(-1),
            30 if script.may_panic => self.mover_dies(),
            _ => self.check_all(),
        }
        Some(())
    }

    fn new_content(&mut self, detail: u8) -> Content {
        self.contents += 1;
        let noisy_bytes = usize::from(detail) * 18;
        let number = if noisy_bytes == 0 { self.contents % 3 } else { self.contents };
        Content { number, noisy_bytes }
    }

    fn store_many(&mut self, who: usize, which: u8, detail: u8) {
        for step in 0..=detail % 24 {
            let which = which.wrapping_add(step);
            let content = self.new_content(detail);
            let process = &mut self.processes[who];
            if process.pages.contains_key(&which) {
                self.write_back(who, which, detail.wrapping_add(step));
                continue;
            }
            match process.writer.store(&self.pool, &content.bytes(), process.epoch) {
                Ok(place) => {
                    process.pages.insert(which, (place, content));
                }
                Err(StoreError::Full) => assert_eq!(self.pool.usage().frames_free, 0),
            }
        }
    }

    fn write_back(&mut self, who: usize, which: u8, detail: u8) {
        let new = if detail.is_multiple_of(4) { None } else { Some(self.new_content(detail)) };
        let process = &mut self.processes[who];
        let Some((old_place, old)) = process.pages.get(&which).copied() else { return };
        let content = new.unwrap_or(old);
        let frozen = process.frozen();
        match process.writer.update(&self.pool, old_place, &content.bytes(), process.epoch, frozen) {
            Ok(Update::Clean) => assert_eq!(content, old, "a changed page was taken for clean"),
            Ok(Update::InPlace(place)) => {
                assert_eq!(place, old_place);
                let shared =
                    process.children.iter().flat_map(|(_, seen)| seen).any(|(seen, _)| *seen == place);
                assert!(!shared, "a slot that a child reads was overwritten");
                process.pages.insert(which, (place, content));
            }
            Ok(Update::Moved { new }) => {
                assert!(new != old_place && content != old);
                process.pages.insert(which, (new, content));
                process.free(&self.pool, old_place, old);
            }
            Err(StoreError::Full) => assert_eq!(self.pool.usage().frames_free, 0),
        }
    }

    fn load(&mut self, who: usize, which: u8) {
        if let Some((place, content)) = self.processes[who].pages.get(&which).copied() {
            self.check(place, content);
        }
    }

    fn free_many(&mut self, who: usize, which: u8, detail: u8) {
        for step in 0..=detail % 48 {
            let process = &mut self.processes[who];
            if let Some((place, content)) = process.pages.remove(&which.wrapping_add(step)) {
                process.free(&self.pool, place, content);
            }
        }
    }

    fn fork(&mut self, who: usize) {
        let process = &mut self.processes[who];
        let seen = process.pages.values().copied().collect();
        process.children.push((process.epoch, seen));
        process.epoch = process.epoch.next();
    }

    fn child_exits(&mut self, who: usize, detail: u8) {
        let process = &mut self.processes[who];
        if process.children.is_empty() {
            return;
        }
        process.children.swap_remove(usize::from(detail) % process.children.len());
        for (place, content) in std::mem::take(&mut process.deferred) {
            process.free(&self.pool, place, content);
        }
    }

    fn die(&mut self, who: usize, detail: u8) {
        // Rarely, so that pools get full.
        if detail < 128 {
            return;
        }
        self.pool.release_owner(self.processes[who].id);
        self.processes[who] = Process::new(who);
        self.check_counts();
    }

    fn mover_dies(&mut self) {
        self.file.dies.set(true);
        let step = AssertUnwindSafe(|| {
            self.mover.raise(&self.pool, &self.file, &mut NoNodes);
            self.mover.step(&self.pool, &self.file, &mut NoNodes);
        });
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let died = catch_unwind(step).is_err();
        std::panic::set_hook(hook);
        self.file.dies.set(false);
        if died {
            self.check_all();
            self.mover = Mover::new(&self.pool);
        }
    }

    fn check(&self, place: Place, content: Content) {
        let mut out = [0xee; PAGE_BYTES];
        match Reader::new(&self.file).load(&self.pool, place, &mut out) {
            Ok(_) => assert!(out == content.bytes(), "{place:?} should hold {content:?}"),
            Err(LoadError::Io) => assert!(self.file.fails_in.get() == 0, "the disk doesn't fail"),
            Err(error) => panic!("{place:?} should hold {content:?}: {error}"),
        }
    }

    fn check_counts(&self) {
        let usage = self.pool.usage();
        let mut slots: Vec<u64> = self
            .processes
            .iter()
            .flat_map(Process::entries)
            .filter(|(place, _)| matches!(place, Place::Slot(_)))
            .map(|(place, _)| place.encode())
            .collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(usage.stored_pages.get(), slots.len() as u64);
        assert!(usage.stored_bytes.get() <= usage.slab_bytes_in_memory.get() + usage.disk_bytes.get());
        assert!(usage.slab_bytes_in_memory <= usage.limit && usage.disk_bytes <= usage.disk_limit);
    }

    fn check_all(&self) {
        self.check_counts();
        let fault = self.file.fails_in.replace(-1);
        for (place, content) in self.processes.iter().flat_map(Process::entries) {
            self.check(place, content);
        }
        self.file.fails_in.set(fault);
    }

    /// Frees everything and checks that nothing is left: no page, no frame but those being filled, no block.
    fn empty(&mut self) {
        for process in &mut self.processes {
            process.children.clear();
            for (place, content) in std::mem::take(&mut process.deferred) {
                process.free(&self.pool, place, content);
            }
            for (place, content) in std::mem::take(&mut process.pages).into_values() {
                process.free(&self.pool, place, content);
            }
        }
        let usage = self.pool.usage();
        assert_eq!((usage.stored_pages.get(), usage.stored_bytes.get(), usage.disk_bytes.get()), (0, 0, 0));
        for process in &self.processes {
            self.pool.release_owner(process.id);
        }
        assert_eq!(self.pool.usage().slab_bytes_in_memory.get() / SLAB_BYTES as u64, 0);
    }
}

//! What the pager's threads share.

use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use farmem_page::{PageBytes, PageCount, PageIndex, PageRange};
use farmem_policy::{
    ChosenPrefetcher, Found, PrefetchPolicy, Prefetcher, Probes, Run, Streams, VictimPolicy, Victims,
};
use farmem_sys::link::Link;
use farmem_sys::lock::Lock;
use farmem_sys::maps::{Flags, Maps};
use farmem_sys::pagemap::{Pagemap, Runs};
use farmem_sys::process::{Statm, Threads};
use farmem_sys::uffd::Uffd;
use farmem_sys::{Errno, memory, sparse, subject, thread};
use farmem_telemetry::{Counter, Failure, Header, Ledger, ProcessSlot, Refusal, SlotState, Step};

use crate::address_space::regions::Regions;
use crate::address_space::scan::windows;
use crate::address_space::table::PageTable;
use crate::address_space::zeros::OpenZeros;
use crate::bell::Bell;
use crate::eviction::evict::{Evictor, LEAST_TOLERATED_PAGES, TOLERATED_PAGES};
use crate::eviction::vault::Vault;
use crate::fault::asked::Asked;
use crate::fault::flights::Flights;
use crate::fault::references::References;
use crate::fault::room::Unmovable;
use crate::forks::children::{Children, PartedChild, has_ended};
use crate::forks::fork::Teller;
use crate::forks::sharing::Sharing;
use crate::gate::Gate;
use crate::hints::Hints;
use crate::hints::mailboxes::Mailboxes;
use crate::reporting::trace::Tracing;

/// Pages that one answer to a fault may bring in: the faulted one and a window of readahead.
pub(crate) const BATCH_PAGES: usize = 1 + WINDOW_PAGES as usize;
pub(crate) const WINDOW_PAGES: u32 = 64;

/// The kernel's files about the program.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) maps: Maps,
    pub(crate) flags: Flags,
    pub(crate) pagemap: Pagemap,
    /// Of the process that the pager is in.
    pub(crate) own_pagemap: Pagemap,
    pub(crate) statm: Statm,
    pub(crate) threads: Threads,
}

/// What a pager is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) uffd: Uffd,
    pub(crate) ledger: Ledger<'static>,
    pub(crate) slot: ProcessSlot<'static>,
    pub(crate) vault: Vault,
    pub(crate) link: Link,
}

/// The pager of one process.
#[derive(Debug)]
pub struct Engine {
    pub(crate) uffd: Uffd,
    pub(crate) table: PageTable,
    pub(crate) regions: Regions,
    pub(crate) gate: Gate,
    pub(crate) ledger: Ledger<'static>,
    pub(crate) slot: ProcessSlot<'static>,
    pub(crate) vault: Vault,
    pub(crate) victims: Victims,
    /// Which stored pages will be wanted, by the policy that the application was started with.
    pub(crate) fetch_ahead: Lock<ChosenPrefetcher>,
    /// A sample of the pages that it fetches, which stay behind.
    pub(crate) probes: Lock<Probes>,
    /// Which stored pages words refer to.
    pub(crate) references: References,
    /// Which pages will be touched for the first time.
    pub(crate) touch_ahead: Lock<Streams>,
    /// There from when the process begins to be managed.
    pub(crate) evictor: Lock<Option<Evictor>>,
    /// The kernel's files about this process, opened by the bookkeeper before the program can forbid it.
    pub(crate) files: &'static Files,
    pub(crate) children: Children,
    pub(crate) teller: Teller,
    pub(crate) sharing: Sharing,
    pub(crate) bell: Bell,
    pub(crate) hints: Hints,
    /// Of the program that the pager is beside.
    pub(crate) mailboxes: Mailboxes,
    pub(crate) tracing: Tracing,
    /// Resident pages: the kernel's figure when it was last asked, and what was brought in and taken away since.
    resident: AtomicI64,
    unnoticed: AtomicI64,
    /// Pages that the words of the page table fill, and those of served children's, when the kernel was last asked.
    pub(crate) table_pages: AtomicU64,
    pub(crate) open_zeros: OpenZeros,
    pub(crate) unmovable: Unmovable,
    limit: AtomicI64,
    /// How far above that limit it may get before its faults wait for room.
    tolerated: AtomicI64,
    /// Frames in the staging area: resident, but no longer the program's.
    pub(crate) staged: AtomicU64,
    /// Whether moved pages wait to be put back.
    pub(crate) are_stranded: AtomicBool,
    /// Whether the pager leaves the program, which goes on without one: then nothing is evicted any more.
    pub(crate) is_leaving: AtomicBool,
    /// Handlers that may take faults at this moment: those with a smaller number.
    pub(crate) armed: AtomicU32,
    /// As many are armed at least: 1, or 2 when the first handler can't be had back from the idle class.
    pub(crate) least_armed: AtomicU32,
    /// The first handler's thread, once it runs.
    pub(crate) first_handler: AtomicU32,
    /// Whether that is of the idle class, as the bookkeeper's look has made it, and nobody has taken it out since.
    pub(crate) is_handler_idle: AtomicBool,
    /// The processor that the first handler stays on, plus one; 0 while it stays nowhere.
    pub(crate) processor: AtomicU32,
    /// A bit for each thread that has faulted lately, by its number's lowest bits.
    pub(crate) faulting: AtomicU64,
    pub(crate) is_managing: AtomicBool,
    pub(crate) has_withdrawn: AtomicBool,
    pub(crate) zeros: &'static [PageBytes],
    pub(crate) asked: Asked,
    /// Pages on their way from nodes.
    pub(crate) flights: Flights,
}

impl Engine {
    /// A pager that manages nothing yet.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn new(parts: Parts) -> Result<&'static Engine, Errno> {
        let engine = Self::assemble(parts, PageTable::new()?, Regions::new()?, false)?;
        // The process's slot may have been another one's.
        engine.trace_discard(PageRange::new(PageIndex::new(0), PageIndex::new(1 << 52)));
        Ok(engine)
    }

    /// In a pager that was forked for a forked child: the pager of that child, with the words that the parent's pager has kept for it.
    ///
    /// # Errors
    /// No memory, or the kernel doesn't say what the child has.
    pub(crate) fn adopt_as_own(&self, parts: Parts, child: PartedChild) -> Result<&'static Engine, Errno> {
        let PartedChild { table, is_protected, .. } = child;
        if !is_protected {
            // Then its parent, which the supervisor has taken it to be like, was protected after the fork, or not wholly.
            parts.slot.set_protected(false);
        }
        let regions = registered(&parts.uffd)?;
        let far = settle(&table, &regions)?;
        let engine = Self::assemble(parts, table, regions, is_protected)?;
        engine.slot.set(Counter::FarPages, far);
        Ok(engine)
    }

    fn assemble(
        parts: Parts,
        table: PageTable,
        regions: Regions,
        is_protected: bool,
    ) -> Result<&'static Engine, Errno> {
        let budget = parts.ledger.budget();
        let policy =
            PrefetchPolicy::from_number(parts.ledger.header(Header::Prefetch).load(Ordering::Relaxed));
        let engine = memory::leak(Engine {
            uffd: parts.uffd,
            table,
            regions,
            gate: Gate::new(),
            ledger: parts.ledger,
            slot: parts.slot,
            vault: parts.vault,
            victims: Victims::new(budget),
            fetch_ahead: Lock::new(ChosenPrefetcher::new(policy, WINDOW_PAGES)),
            probes: Lock::new(Probes::new()),
            references: References::new(policy)?,
            touch_ahead: Lock::new(Streams::new(WINDOW_PAGES)),
            evictor: Lock::new(None),
            files: memory::leak(Files {
                maps: Maps::open()?,
                flags: Flags::open()?,
                pagemap: Pagemap::open()?,
                own_pagemap: Pagemap::open_own()?,
                statm: Statm::open()?,
                threads: Threads::open()?,
            })?,
            children: Children::new(),
            teller: Teller::new(parts.link),
            sharing: Sharing::new(is_protected),
            bell: Bell::new(),
            hints: Hints::new()?,
            mailboxes: Mailboxes::new()?,
            tracing: Tracing::new(parts.ledger),
            resident: AtomicI64::new(0),
            limit: AtomicI64::new(i64::MAX),
            unnoticed: AtomicI64::new(0),
            unmovable: Unmovable::new(),
            table_pages: AtomicU64::new(0),
            open_zeros: OpenZeros::default(),
            tolerated: AtomicI64::new(TOLERATED_PAGES),
            staged: AtomicU64::new(0),
            are_stranded: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            armed: AtomicU32::new(1),
            least_armed: AtomicU32::new(1),
            first_handler: AtomicU32::new(0),
            is_handler_idle: AtomicBool::new(false),
            processor: AtomicU32::new(0),
            faulting: AtomicU64::new(0),
            is_managing: AtomicBool::new(false),
            has_withdrawn: AtomicBool::new(false),
            zeros: memory::table(BATCH_PAGES)?,
            asked: Asked::new()?,
            flights: Flights::new(),
        })?;
        Ok(engine)
    }

    /// Whether nothing is to leave any more.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }

    /// Whether the process's memory is under management.
    pub fn is_managing(&self) -> bool {
        self.is_managing.load(Ordering::Acquire)
    }

    /// Pages above the limit when `more` pages have come in; negative when there is room.
    pub(crate) fn excess(&self, more: usize) -> i64 {
        self.resident.load(Ordering::Relaxed) + more as i64 - self.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn came_in(&self, count: u64) {
        self.resident.fetch_add(count as i64, Ordering::Relaxed);
    }

    pub(crate) fn went_out(&self, count: u64) {
        self.resident.fetch_sub(count as i64, Ordering::Relaxed);
    }

    /// Asks the kernel how many pages of the program are resident, and goes on from there. `None` when the kernel doesn't say.
    pub(crate) fn sync_resident(&self) -> Option<PageCount> {
        let resident = self.files.statm.resident_anonymous().ok()?;
        let staged = PageCount::new(self.staged.load(Ordering::Relaxed));
        let resident = resident.saturating_sub(staged);
        let before = self.resident.swap(resident.get() as i64, Ordering::Relaxed);
        let unnoticed = resident.get() as i64 - before;
        self.unnoticed.fetch_add(unnoticed, Ordering::Relaxed);
        self.slot.separate(self.sharing.let_go(unnoticed.min(0).unsigned_abs()));
        self.slot.set(Counter::ResidentPages, resident.get());
        Some(resident)
    }

    /// Pages that have come without the pager's help since this was asked before, less those that have gone so.
    pub(crate) fn take_unnoticed(&self) -> i64 {
        self.unnoticed.swap(0, Ordering::Relaxed)
    }

    /// Pages that the process may have resident.
    pub(crate) fn limit(&self) -> PageCount {
        PageCount::new(self.limit.load(Ordering::Relaxed).max(0) as u64)
    }

    /// Pages by which the process may pass its limit before its faults wait for room.
    pub(crate) fn tolerated(&self) -> i64 {
        self.tolerated.load(Ordering::Relaxed)
    }

    /// Changes the limit, of one of `processes` that have one. What they may pass them by is shared, too.
    pub(crate) fn set_limit(&self, limit: PageCount, processes: i64) {
        self.tolerated.store((TOLERATED_PAGES / processes).max(LEAST_TOLERATED_PAGES), Ordering::Relaxed);
        self.limit.store(limit.get() as i64, Ordering::Relaxed);
        self.slot.set_limit(limit);
        self.victims.set_budget(limit);
    }

    /// Counts the pages of a settled piece of advice. At any time, with or without a `Change`: a word that somebody changes meanwhile
    /// stays as they left it.
    pub(crate) fn settle(&self, run: Option<Run>, is_used: bool) {
        let Some(run) = run else { return };
        self.settle_pages(run.pages(), Some(is_used));
        self.settle_probes(|page| run.contains(page), is_used);
    }

    /// The same of any pages; `None` where it can't be told whether they were used. What was left behind of them isn't settled.
    pub(crate) fn settle_pages(&self, pages: impl Iterator<Item = PageIndex>, is_used: Option<bool>) {
        let settled = pages.filter(|&page| self.settle_page(page, is_used)).count() as u64;
        let counter = if is_used == Some(true) { Counter::PrefetchUsed } else { Counter::PrefetchDoubtful };
        self.slot.add(counter, settled);
    }

    /// Settles what was left behind of pages.
    pub(crate) fn settle_probes(&self, holds: impl Fn(PageIndex) -> bool, is_used: bool) {
        if let Some(mut probes) = self.probes.try_lock() {
            self.count_probes(probes.settle(holds, is_used));
        }
    }

    /// What has become known of pages that were left behind.
    pub(crate) fn count_probes(&self, found: Found) {
        if found != Found::default() {
            self.slot.add(Counter::PrefetchProbes, found.probes.into());
            self.slot.add(Counter::PrefetchProbesUsed, found.used.into());
        }
    }

    /// [`Engine::settle`] of one page; whether it was one that came ahead and of which nothing was known.
    fn settle_page(&self, page: PageIndex, is_used: Option<bool>) -> bool {
        let word = self.table.word(page);
        if !word.is_prefetched() || word.is_busy() {
            return false;
        }
        let settled = word.with_prefetched(false);
        let settled = if is_used == Some(false) { self.victims.on_unused(settled) } else { settled };
        self.table.replace(page, word, settled);
        if is_used == Some(true)
            && let Some(after_ns) = self.asked.used_after_ns(page, thread::now_ns)
        {
            self.vault.note_use(after_ns);
        }
        true
    }

    /// Advice about pages that are gone is settled neither way.
    pub(crate) fn forget_advice(&self, range: PageRange) {
        self.fetch_ahead.lock().forget(range);
        self.probes.lock().forget(range);
        self.touch_ahead.lock().forget(range);
        self.sharing.forget(range);
    }

    /// Whether the program needs its pager no more: nothing of it is far, and nothing will be.
    pub fn has_withdrawn(&self) -> bool {
        self.has_withdrawn.load(Ordering::Acquire)
    }

    /// The pager ends, and the program goes on without one. Only when [`Engine::has_withdrawn`].
    pub fn note_withdrawn(&self) {
        self.slot.set_state(SlotState::Withdrawn);
    }

    /// The program has ended, or is another one by now, and the process of the pager ends. Without that word the supervisor takes the pager's end for a failure.
    pub fn note_end(&self) {
        self.slot.set_state(SlotState::Left);
    }

    /// Says that the pager can't go on, and ends the process as an out-of-memory kill would. The supervisor explains.
    pub fn fail(&self, failure: Failure) -> ! {
        self.slot.set_failure(failure);
        subject::end()
    }

    /// [`Engine::fail`], of what the kernel must not refuse.
    pub(crate) fn refused(&self, step: Step, error: impl Into<Errno>) -> ! {
        // The memory goes a moment before the process has ended.
        if subject::has_ended() || has_ended(&self.uffd) {
            // What can't be done to it needn't be done any more.
            self.note_end();
            subject::leave();
        }
        let error = error.into().raw_os_error();
        self.fail(Failure::Kernel(Refusal { step, error: u16::try_from(error).unwrap_or(u16::MAX) }))
    }
}

/// Brings the words of a child that was served from elsewhere up to date with its page table; how many pages are far.
fn settle(table: &PageTable, regions: &Regions) -> Result<u64, Errno> {
    let pagemap = Pagemap::open()?;
    let mut runs = Runs::empty();
    let mut far = 0;
    for window in regions.iter().flat_map(windows) {
        pagemap.present(window, &mut runs)?;
        far += table.settle_in(window, |page| runs.hold(page));
    }
    Ok(far)
}

/// What of the program's memory is registered with its userfaultfd.
fn registered(uffd: &Uffd) -> Result<Regions, Errno> {
    let regions = Regions::new()?;
    let maps = Maps::open()?;
    let mut from = PageIndex::new(0);
    while let Some(mapping) = maps.next(from.addr())? {
        from = mapping.range.end;
        // What can't be asked because an event waits is the scanner's to find.
        if mapping.anonymous && from <= sparse::END && uffd.is_registered(mapping.range.start) == Some(true) {
            regions.insert(mapping.range);
        }
    }
    Ok(regions)
}

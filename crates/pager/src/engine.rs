//! What the pager's threads share.

use core::sync::atomic::{AtomicBool, Ordering};

use farmem_page::{PageCount, PageIndex, PageRange};
use farmem_policy::{PrefetchPolicy, VictimPolicy};
use farmem_sys::link::Link;
use farmem_sys::uffd::Uffd;
use farmem_sys::{Errno, memory, subject};
use farmem_telemetry::{Counter, Failure, Header, Ledger, ProcessSlot, Refusal, SlotState, Step};

use crate::address_space::pages::{Pages, registered, settle};
use crate::address_space::regions::Regions;
use crate::address_space::table::PageTable;
use crate::bell::Bell;
use crate::eviction::Eviction;
use crate::eviction::residency::Residency;
use crate::eviction::vault::Vault;
use crate::fault::flights::Flights;
use crate::fault::foresight::Foresight;
use crate::fault::handlers::Handlers;
use crate::forks::children::PartedChild;
use crate::forks::family::Family;
use crate::hints::Hints;
use crate::hints::mailboxes::Mailboxes;
use crate::reporting::trace::Tracing;

/// Pages that one answer to a fault may bring in: the faulted one and a window of readahead.
pub(crate) const BATCH_PAGES: usize = 1 + WINDOW_PAGES as usize;
pub(crate) const WINDOW_PAGES: u32 = 64;

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
    pub(crate) pages: Pages,
    pub(crate) residency: Residency,
    pub(crate) eviction: Eviction,
    pub(crate) vault: Vault,
    pub(crate) handlers: Handlers,
    /// Pages on their way from nodes.
    pub(crate) flights: Flights,
    pub(crate) foresight: Foresight,
    pub(crate) hints: Hints,
    /// Of the program that the pager belongs to.
    pub(crate) mailboxes: Mailboxes,
    pub(crate) family: Family,
    pub(crate) bell: Bell,
    /// Of the application.
    pub(crate) ledger: Ledger<'static>,
    /// The part of it that is this process's.
    pub(crate) slot: ProcessSlot<'static>,
    pub(crate) tracing: Tracing,
    pub(crate) is_managing: AtomicBool,
    pub(crate) has_withdrawn: AtomicBool,
    /// Whether the pager is needed for something else than memory.
    pub(crate) is_needed: AtomicBool,
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

    /// In a pager that was forked for a forked child: the pager of that child, with the words that the
    /// parent's pager has kept for it.
    ///
    /// # Errors
    /// No memory, or the kernel doesn't say what the child has.
    pub(crate) fn adopt_as_own(&self, parts: Parts, child: PartedChild) -> Result<&'static Engine, Errno> {
        let PartedChild { table, is_protected, .. } = child;
        if !is_protected {
            // Then its parent, which the supervisor has taken it to be like, was protected after the fork, or
            // not wholly.
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
        memory::leak(Engine {
            pages: Pages::new(parts.uffd, table, regions)?,
            residency: Residency::new(),
            eviction: Eviction::new(budget),
            vault: parts.vault,
            handlers: Handlers::new(),
            flights: Flights::new(),
            foresight: Foresight::new(policy)?,
            hints: Hints::new()?,
            mailboxes: Mailboxes::new()?,
            family: Family::new(parts.link, is_protected),
            bell: Bell::new(),
            ledger: parts.ledger,
            slot: parts.slot,
            tracing: Tracing::new(parts.ledger),
            is_managing: AtomicBool::new(false),
            has_withdrawn: AtomicBool::new(false),
            is_needed: AtomicBool::new(false),
        })
        .map(|engine| &*engine)
    }

    /// Whether the process's memory is under management.
    pub fn is_managing(&self) -> bool {
        self.is_managing.load(Ordering::Acquire)
    }

    /// Asks the kernel how many pages of the program are resident, and goes on from there. `None` when the
    /// kernel doesn't say.
    pub(crate) fn sync_resident(&self) -> Option<PageCount> {
        let counted = self.pages.files.statm.resident_anonymous().ok()?;
        let (resident, unnoticed) = self.residency.sync(counted);
        self.slot.separate(self.family.sharing.let_go(unnoticed.min(0).unsigned_abs()));
        self.slot.set(Counter::ResidentPages, resident.get());
        Some(resident)
    }

    /// Changes the limit, of one of `processes` that have one. What they may pass them by is shared, too.
    pub(crate) fn set_limit(&self, limit: PageCount, processes: i64) {
        self.residency.set_limit(limit, processes);
        self.slot.set_limit(limit);
        self.eviction.victims.set_budget(limit);
    }

    /// Whether the pager is to leave the program, which goes on.
    pub fn is_withdrawing(&self) -> bool {
        self.ledger.is_withdrawing()
    }

    /// Whether the pager is needed for something else than memory. As long as it is, it doesn't leave.
    pub fn set_needed(&self, is_needed: bool) {
        self.is_needed.store(is_needed, Ordering::Release);
    }

    /// Whether the program needs its pager no more: nothing of it is far, and nothing will be.
    pub fn has_withdrawn(&self) -> bool {
        self.has_withdrawn.load(Ordering::Acquire)
    }

    /// The pager ends, and the program goes on without one. Only when [`Engine::has_withdrawn`].
    pub fn note_withdrawn(&self) {
        self.slot.set_state(SlotState::Withdrawn);
    }

    /// Nothing more of the program's memory can leave. The supervisor says so.
    pub fn note_stuck(&self) {
        self.slot.add(Counter::Stuck, 1);
    }

    /// The program has ended, or is another one by now, and the process of the pager ends. Without that word
    /// the supervisor takes the pager's end for a failure.
    pub fn note_end(&self) {
        self.slot.set_state(SlotState::Left);
    }

    /// Says that the pager can't go on, and ends the process as an out-of-memory kill would. The supervisor
    /// explains.
    pub fn fail(&self, failure: Failure) -> ! {
        self.slot.set_failure(failure);
        subject::end()
    }

    /// [`Engine::fail`], of what the kernel must not refuse.
    pub(crate) fn refused(&self, step: Step, error: impl Into<Errno>) -> ! {
        // The memory goes a moment before the process has ended.
        if subject::has_ended() || self.pages.uffd.has_ended() {
            // What can't be done to it needn't be done any more.
            self.note_end();
            subject::leave();
        }
        let error = error.into().raw_os_error();
        self.fail(Failure::Kernel(Refusal { step, error: u16::try_from(error).unwrap_or(u16::MAX) }))
    }
}

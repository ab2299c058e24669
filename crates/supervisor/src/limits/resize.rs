//! Makes the application small and large again: what is agreed, the budget, and what it follows the program
//! by, all together.

use std::time::Instant;

use farmem_client::Limits;
use farmem_page::{PageCount, mebibytes};
use farmem_store::PoolUsage;
use farmem_wire::host::{LEASED_SLAB_BYTES, Terms};

use crate::application::Application;
use crate::limits::lease_client::LeaseClient;
use crate::limits::set::apply;
use crate::limits::shrink::{Before, Shrunk, Step, least};
use crate::limits::sizing::Sizing;

/// A pool that has no more slabs free than these is full: those that are open for one size have no room for
/// another.
const FULL_SLABS: u64 = 4;

/// Why one that was not shrunk doesn't grow.
const NOT_SHRUNK: &str = "it was not shrunk; say how large it is to be: `farmem grow NAME --to SIZE`";

/// What the application has at this moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Condition {
    /// Its processes, with a pager or without.
    pub(crate) processes: usize,
    /// What of them is resident.
    pub(crate) resident: PageCount,
    /// Pages that have ever left.
    pub(crate) evicted: u64,
    /// Why one has no pager.
    pub(crate) refusal: Option<String>,
}

/// Whether the application was shrunk, and how it was before.
pub(super) struct Resize {
    application: Application,
    shrunk: Option<Shrunk>,
}

impl Resize {
    pub(super) fn new(application: Application) -> Self {
        Self { application, shrunk: None }
    }

    /// Makes it so small, or as small as is sensible, and remembers how it was.
    ///
    /// # Errors
    /// A sentence that says why not; then all is as it was.
    pub(super) fn shrink(
        &mut self,
        to: Option<PageCount>,
        condition: &Condition,
        lease_client: &mut LeaseClient,
        sizing: &mut Option<Sizing>,
    ) -> Result<(), String> {
        let ledger = self.application.ledger;
        let agreed = self.agreed(lease_client);
        let wanted = to.unwrap_or_else(|| least(condition.processes).min(agreed));
        if wanted > agreed {
            return Err(format!(
                "its budget is {} already, which is less; give a smaller size, or use `farmem grow`",
                mib(agreed)
            ));
        }
        // Only from here on does the budget follow what leaves.
        let start = ledger.budget().min(condition.resident).max(wanted);
        let (own, is_budget_leased) = (lease_client.terms(), lease_client.is_budget_leased());
        let cushion = lease_client.hold_up(start);
        let terms = Terms { local_own: wanted.get(), borrows: false, ..own };
        if let Err(reason) = lease_client.change(terms, true) {
            lease_client.hold_up(cushion);
            return Err(reason);
        }
        ledger.set_budget(start);
        let before = self.shrunk.take().map(|shrunk| shrunk.before).unwrap_or_else(|| Before {
            budget: agreed,
            local_own: own.local_own,
            borrows: own.borrows,
            is_budget_leased,
            sizing: sizing.take(),
        });
        self.shrunk = Some(Shrunk::begin(before, wanted, start, condition.evicted));
        Ok(())
    }

    /// Lets it be so large, or as large as it was before it was shrunk.
    ///
    /// # Errors
    /// A sentence that says why not; then all is as it was.
    pub(super) fn grow(
        &mut self,
        to: Option<PageCount>,
        lease_client: &mut LeaseClient,
        sizing: &mut Option<Sizing>,
    ) -> Result<(), String> {
        let agreed = self.agreed(lease_client);
        let before = self.shrunk.as_ref().map(|shrunk| &shrunk.before);
        let Some(wanted) = to.or(before.map(|before| before.budget)) else {
            return Err(NOT_SHRUNK.to_owned());
        };
        if wanted < agreed {
            return Err(format!(
                "its budget is {} already, which is more; give a larger size, or use `farmem shrink`",
                mib(agreed)
            ));
        }
        let is_whole = before.is_none_or(|before| wanted >= before.budget);
        let own = lease_client.terms();
        let (terms, is_budget_leased) = match (before, to) {
            (Some(before), None) => (
                Terms { local_own: before.local_own, borrows: before.borrows, ..own },
                before.is_budget_leased,
            ),
            (Some(before), Some(to)) => {
                (Terms { local_own: to.get(), borrows: is_whole && before.borrows, ..own }, true)
            }
            (None, _) => (Terms { local_own: wanted.get(), ..own }, true),
        };
        let cushion = lease_client.hold_up(PageCount::ZERO);
        if let Err(reason) = lease_client.agree(terms, is_budget_leased) {
            lease_client.hold_up(cushion);
            return Err(reason);
        }
        let Some(mut shrunk) = self.shrunk.take() else {
            *sizing = None;
            return Ok(());
        };
        if !is_whole {
            shrunk.settle(wanted);
            self.shrunk = Some(shrunk);
        } else if to.is_none() {
            if !is_budget_leased {
                self.application.ledger.set_budget(wanted);
            }
            *sizing = shrunk.before.sizing;
        }
        Ok(())
    }

    /// Changes limits: all of them or none. Whoever says what the budget is to be says so of an application
    /// that was shrunk, too.
    ///
    /// # Errors
    /// A sentence that says why they can't be set.
    pub(super) fn set(&mut self, limits: Limits, lease_client: &mut LeaseClient) -> Result<(), String> {
        let Some(shrunk) = self.shrunk.as_ref().filter(|_| limits.local.is_some()) else {
            return apply(limits, &self.application, lease_client);
        };
        let borrows = shrunk.before.borrows;
        let cushion = lease_client.hold_up(PageCount::ZERO);
        if let Err(reason) = apply(limits, &self.application, lease_client) {
            lease_client.hold_up(cushion);
            return Err(reason);
        }
        self.shrunk = None;
        // A host that refuses this lends nothing.
        let _ = lease_client.change(Terms { borrows, ..lease_client.terms() }, true);
        Ok(())
    }

    /// A step on the way to a smaller size, or back where nothing more leaves.
    pub(super) fn follow(&mut self, condition: &Condition, lease_client: &mut LeaseClient) {
        let Some(shrunk) = &mut self.shrunk else { return };
        let Application { ledger, pool, .. } = self.application;
        let is_pausing = ledger.is_storage_pausing(farmem_sys::thread::now_ns());
        match shrunk.step(Instant::now(), condition.resident, condition.evicted, is_pausing) {
            Step::None => {}
            Step::Fall(budget) => {
                lease_client.hold_up(budget);
                ledger.set_budget(budget);
            }
            Step::Raise(budget) => {
                lease_client.hold_up(budget);
                let terms = Terms { local_own: budget.get(), ..lease_client.terms() };
                // To a host that has no more, it owes what it has.
                let _ = lease_client.change(terms, true);
                ledger.set_budget(budget);
                shrunk.explain(why_it_stays(&pool.usage(), condition.refusal.clone()));
            }
        }
    }

    /// It is left: nothing of this counts any more.
    pub(super) fn forget(&mut self) {
        self.shrunk = None;
    }

    /// What it was shrunk to, if it was.
    pub(super) fn shrunk(&self) -> Option<&Shrunk> {
        self.shrunk.as_ref()
    }

    /// Whether its budget is on its way down.
    pub(super) fn is_falling(&self) -> bool {
        self.shrunk.as_ref().is_some_and(Shrunk::is_falling)
    }

    /// The budget that it is to have: as agreed, or as it follows the program at this moment.
    pub(super) fn agreed(&self, lease_client: &LeaseClient) -> PageCount {
        match (&self.shrunk, lease_client.is_budget_leased()) {
            (None, false) => self.application.ledger.budget(),
            _ => PageCount::new(lease_client.terms().local_own),
        }
    }
}

/// Why no more of an application leaves.
fn why_it_stays(usage: &PoolUsage, refusal: Option<String>) -> String {
    let is_full = usage.slab_bytes_in_memory.get() + FULL_SLABS * LEASED_SLAB_BYTES > usage.limit.get();
    match refusal {
        _ if is_full => format!(
            "its pool of {} is full, with no room below it; raise it (`farmem set NAME pool=SIZE`), and shrink again",
            mib(usage.limit.pages())
        ),
        Some(refusal) => refusal,
        None => "the rest is locked, pinned or of a kind that can't be managed, or its processes are frozen"
            .to_owned(),
    }
}

/// For a person.
fn mib(pages: PageCount) -> String {
    format!("{:.1} MiB", mebibytes(pages.bytes().get()))
}

//! The swap cache of the process: how much may be fetched ahead and not used yet, and how much is.

use farmem_page::PageCount;
use farmem_policy::{MOST_WINDOWS, Prefetcher, Run};
use farmem_telemetry::Counter;

use crate::engine::Engine;

/// The cache is at most this part of what the process may have local.
const PART_OF_LIMIT: u64 = 4;

impl Engine {
    /// Keeps the cache within the limit of it that the application has, shared by its `processes`, and within
    /// its part of `limit`, the process's own. What was fetched longest ago is given up where that is less
    /// than before: nobody has asked for it, and it becomes one of the first to leave.
    pub(crate) fn keep_cache(&self, limit: PageCount, processes: u64) {
        let share = self.ledger.cache().get() / processes.max(1);
        let most = share.min(limit.get() / PART_OF_LIMIT);
        // Else a handler learns from a fault at this moment, or an event makes it forget: in the next round,
        // then.
        let Some(mut policy) = self.foresight.fetch_ahead.try_lock() else { return };
        policy.set_cache(u32::try_from(most).unwrap_or(u32::MAX));
        let given_up: [Option<Run>; MOST_WINDOWS] = core::array::from_fn(|_| policy.shrink());
        let held = policy.unsettled_pages();
        drop(policy);
        given_up.into_iter().for_each(|run| self.settle(run, false));
        // What streams leave is the references'.
        let rest = u32::try_from(most).unwrap_or(u32::MAX).saturating_sub(held);
        self.foresight.references.set_cache(rest);
        self.slot.set(Counter::CachedPages, u64::from(held + self.foresight.references.unsettled_pages()));
    }
}

//! A budget that follows the program (`--local auto`): what the pagers' figures say goes to the policy, and
//! what that says becomes the application's budget.

use std::time::{Duration, Instant};

use farmem_page::ByteCount;
use farmem_policy::RightSizing;
use farmem_telemetry::Ledger;

/// Between two steps. Pages that were missed show within one.
const PERIOD: Duration = Duration::from_millis(250);

/// What a budget that follows the program is asked to keep to. Its upper bound is the run's local budget.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SizingOptions {
    /// It never becomes smaller.
    pub least: ByteCount,
    /// The part of its time for which the program may wait for pages.
    pub stall_share: f64,
}

/// The controller.
pub(super) struct Sizing {
    policy: RightSizing,
    last: Instant,
    stall_ns: u64,
}

impl Sizing {
    pub(super) fn new(options: SizingOptions, most: ByteCount) -> Self {
        let policy = RightSizing::new(options.stall_share, options.least.pages(), most.pages());
        Self { policy, last: Instant::now(), stall_ns: 0 }
    }

    pub(super) fn is_due(&self) -> bool {
        self.last.elapsed() >= PERIOD
    }

    /// One step. `stall_ns` is for how long threads of the application have waited since its start.
    pub(super) fn step(&mut self, ledger: Ledger<'_>, stall_ns: u64) {
        let passed = self.last.elapsed();
        self.last = Instant::now();
        let stalled = Duration::from_nanos(stall_ns.saturating_sub(self.stall_ns));
        self.stall_ns = stall_ns;
        let share = stalled.as_secs_f64() / passed.as_secs_f64();
        let budget = self.policy.next(ledger.budget(), ledger.resident(), share);
        ledger.set_budget(budget);
    }
}

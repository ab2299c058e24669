//! Model checking: the gate, the lock and the page table, compiled from the pager's own source files against
//! primitives whose every step a scheduler chooses. A thread that nobody wakes ends a run with "deadlock".
//!
//! Sequential consistency only; what rests on weaker orderings is in `tests/weak_memory`.

#[path = "../../src/gate.rs"]
#[allow(dead_code, reason = "the pager uses more of it than a model needs")]
mod gate;
#[path = "../../../sys/src/lock.rs"]
#[allow(dead_code, unreachable_pub, reason = "as above; and it is public where it belongs")]
mod lock;
mod primitives;
#[path = "../../src/address_space/table.rs"]
#[allow(dead_code, reason = "as above")]
mod table;

mod gates;
mod locks;
mod pages;

/// The facade of the checked files.
mod sync {
    pub(crate) use crate::primitives::{Errno, SparseWords, wait};
    pub(crate) use farmem_sys::guard::{self, Guard};
    pub(crate) use shuttle::hint::spin_loop;
    pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// One look before sleeping: enough to have both ways.
    pub(crate) const SPINS: u32 = 1;
    pub(crate) const CHANGE_SPINS: u32 = 1;
}

/// Runs `body` under many schedules: random ones, and such with few preemptions at the worst moments.
fn check(body: fn()) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    const SCHEDULES: usize = 3000;
    const PREEMPTIONS: usize = 3;
    let config = || {
        let mut config = shuttle::Config::new();
        config.failure_persistence = shuttle::FailurePersistence::Print;
        config
    };
    shuttle::Runner::new(RandomScheduler::new(SCHEDULES), config()).run(body);
    shuttle::Runner::new(PctScheduler::new(PREEMPTIONS, SCHEDULES), config()).run(body);
}

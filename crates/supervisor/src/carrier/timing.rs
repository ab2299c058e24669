//! What a lane knows of when what is fetched ahead is wanted, and of how long reads take: what would come too
//! late is not read (Canvas §5.3).

use std::time::{Duration, Instant};

use farmem_policy::links::Latency;
use farmem_policy::links::timeliness::{BUCKETS, PROBE_EVERY, Recent, is_too_late};
use farmem_store::USE_BUCKETS;

use crate::application::SharedPool;

const _: () = assert!(USE_BUCKETS == BUCKETS, "the pool has a word for each bucket");

/// Between two looks at when pages were used.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Timing {
    uses: Recent,
    looked_at: Option<Instant>,
    /// Of reads that threads wait for, and of the others, from when their turn came.
    took: [Latency; 2],
    dropped: u32,
}

impl Timing {
    /// Looks at when pages were used, if that is due.
    pub(super) fn look(&mut self, pool: &SharedPool, now: Instant) {
        if self.looked_at.is_none_or(|at| now.saturating_duration_since(at) >= LOOK) {
            self.looked_at = Some(now);
            self.uses.look(pool.uses());
        }
    }

    /// A read has taken so long.
    pub(super) fn took(&mut self, is_ahead: bool, took: Duration) {
        self.took[usize::from(is_ahead)].note(nanoseconds(took));
    }

    /// Whether what was asked for ahead so long ago, and waits for its turn still, is to be dropped. Not all
    /// of it: how soon pages are used shows only in those that come.
    pub(super) fn drops(&mut self, age: Duration) -> bool {
        if !is_too_late(self.uses.threshold_ns(), nanoseconds(age), &self.took[1]) {
            return false;
        }
        self.dropped = self.dropped.wrapping_add(1);
        !self.dropped.is_multiple_of(PROBE_EVERY)
    }

    /// Whether a read ahead has been under way for longer than a thread would have to wait for another one.
    pub(super) fn is_overdue(&self, under_way: Duration) -> bool {
        let [awaited, ahead] = &self.took;
        let overdue_ns = awaited.overdue_ns().or(ahead.overdue_ns());
        overdue_ns.is_some_and(|overdue_ns| nanoseconds(under_way) > overdue_ns)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

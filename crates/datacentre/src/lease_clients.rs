//! The applications of one machine, among which the host's broker divides its local memory: what exceeds an
//! application's lease is far.

use std::time::Duration;

use farmem_broker::{LEAST_SLABS, LeaseTable, SpaceId};
use farmem_page::PAGE_BYTES;
use farmem_wire::host::{Holding, Terms};

use crate::cost::{Costs, Decision};

/// Applications of a machine.
pub(crate) const SPACES: usize = 2;
/// Local memory of a machine. How much it is only decides how large leases are: what is far is what the
/// machine lacks.
pub(crate) const LOCAL_BYTES: f64 = 4_294_967_296.0;
const LOCAL_PAGES: u64 = LOCAL_BYTES as u64 / PAGE_BYTES as u64;
/// What an application keeps free of its local memory (`LEAST_MARGIN_PAGES` of the supervisor's demand).
const MARGIN_PAGES: u64 = 1024;
/// An application gives back in one round what another one gets in the next.
const ROUNDS: usize = 2;

struct Space {
    id: SpaceId,
    serial: u64,
    pages: u64,
    moved: u64,
}

pub(crate) struct LeaseClients {
    lease_table: LeaseTable,
    spaces: Vec<Space>,
}

impl LeaseClients {
    pub(crate) fn new() -> Self {
        let pool_slabs = 1 << 12;
        let mut lease_table = LeaseTable::new(pool_slabs, Some(LOCAL_PAGES), Duration::ZERO);
        let own = LOCAL_PAGES / SPACES as u64;
        let terms = Terms {
            weight: 1,
            pool_guaranteed: LEAST_SLABS,
            pool_most: pool_slabs,
            local_own: own,
            borrows: true,
        };
        let held = farmem_broker::Amounts { slabs: LEAST_SLABS, pages: own };
        let attach = |_| lease_table.attach(Duration::ZERO, terms, held, pool_slabs).ok();
        let spaces: Vec<Space> =
            (0..SPACES).filter_map(attach).map(|id| Space { id, serial: 0, pages: own, moved: 0 }).collect();
        Self { lease_table, spaces }
    }

    /// Pages of each application that are far, when these want so many bytes.
    pub(crate) fn far(&mut self, costs: &mut Costs, now: Duration, wanted: [f64; SPACES]) -> [u64; SPACES] {
        let wanted = wanted.map(|bytes| (bytes / PAGE_BYTES as f64) as u64);
        for _ in 0..ROUNDS {
            for (space, wanted) in self.spaces.iter_mut().zip(wanted) {
                let resident = wanted.min(space.pages);
                // Pages of it come and go all the time.
                space.moved += 1;
                let local_wanted = wanted + MARGIN_PAGES;
                let holding = Holding {
                    pool_held: LEAST_SLABS,
                    pool_used: LEAST_SLABS,
                    pool_needed: LEAST_SLABS,
                    pool_wanted: LEAST_SLABS,
                    pool_movable: LEAST_SLABS,
                    local_held: space.pages,
                    local_needed: (resident + MARGIN_PAGES).min(local_wanted),
                    local_wanted,
                };
                // A client that reports the truth is not refused.
                let _ = self.lease_table.report(now, space.id, space.serial, holding, space.moved);
            }
            let lease_table = &mut self.lease_table;
            let leases = costs.of(Decision::Lease, || (lease_table.leases(now), SPACES as u64));
            for (id, lease) in leases {
                for space in self.spaces.iter_mut().filter(|space| space.id == id) {
                    (space.serial, space.pages) = (lease.serial, lease.amounts.pages);
                }
            }
        }
        let mut far = [0; SPACES];
        for ((far, space), wanted) in far.iter_mut().zip(&self.spaces).zip(wanted) {
            *far = wanted.saturating_sub(space.pages);
        }
        far
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_machine_lacks_is_far_and_no_more() {
        let (mut lease_clients, mut costs) = (LeaseClients::new(), Costs::default());
        let lacking = 262_144.0 * PAGE_BYTES as f64;
        let wanted = [LOCAL_BYTES * 0.3 + lacking / 2.0, LOCAL_BYTES * 0.7 + lacking / 2.0];
        let mut far = [0; SPACES];
        for second in 1..20 {
            far = lease_clients.far(&mut costs, Duration::from_secs(second), wanted);
        }
        let all: u64 = far.iter().sum();
        assert!((262_000..263_500 + 2 * MARGIN_PAGES).contains(&all), "{far:?}");
    }
}

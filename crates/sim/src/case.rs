//! A case: everything that a seed decides beforehand.

use std::fmt;

use farmem_simulated_kernel::world::Plan;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::operations::{Habits, Operation};

/// Calls after which a run counts as endless.
const MOST_STEPS: u64 = 400_000;

/// A case.
#[derive(Clone, Debug)]
pub struct Case {
    /// The seed of whose turn it is.
    pub seed: u64,
    /// How the world behaves.
    pub plan: Plan,
    /// What each thread of the program does.
    pub threads: Vec<Vec<Operation>>,
    /// Pages that the program may have local.
    pub budget_pages: u64,
    /// Slabs of the pool.
    pub slabs: u64,
    /// Whether a packer in the supervisor compresses.
    pub is_packing: bool,
}

impl Case {
    /// The case of a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed ^ 0x5eed);
        let pick = |random: &mut SmallRng, from: &[u32]| from[random.random_range(0..from.len())];
        let threads = random.random_range(1..=4);
        let operations = random.random_range(8..=120);
        let habits = Habits::draw(&mut random);
        let plan = Plan {
            processors: random.random_range(1..=4),
            step_ns: u64::from(pick(&mut random, &[500, 5000, 20_000])),
            switch_one_in: pick(&mut random, &[1, 2, 4, 16, 64]),
            late_one_in: pick(&mut random, &[0, 50, 500]),
            late_ns: 3_000_000,
            stop_one_in: pick(&mut random, &[0, 4, 32]),
            busy_one_in: pick(&mut random, &[0, 0, 8]),
            most_steps: MOST_STEPS,
            without: None,
            watched: None,
        };
        Self {
            seed,
            plan,
            threads: (0..threads)
                .map(|_| (0..operations).map(|_| Operation::draw(&mut random, habits)).collect())
                .collect(),
            budget_pages: u64::from(pick(&mut random, &[4, 16, 32, 64])),
            slabs: u64::from(pick(&mut random, &[1, 2, 4, 16])),
            is_packing: false,
        }
    }

    /// Operations of all threads.
    pub fn operations(&self) -> usize {
        self.threads.iter().map(Vec::len).sum()
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, plan, budget_pages, slabs, .. } = self;
        writeln!(f, "seed {seed}, {budget_pages} pages local, {slabs} slabs, {plan:?}")?;
        let threads = self.threads.iter().enumerate().filter(|(_, operations)| !operations.is_empty());
        threads
            .into_iter()
            .try_for_each(|(thread, operations)| writeln!(f, "thread {thread}: {operations:?}"))
    }
}

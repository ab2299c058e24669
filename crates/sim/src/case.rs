//! A case: everything that a seed decides beforehand.

use std::fmt;

use farmem_simulated_kernel::world::Plan;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::far::Far;
use crate::operations::{Habits, Operation};
use crate::supervisor::{MOST_ENTRIES, MOST_SLABS};

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
    /// Pages of each of the program's first mappings, all of which are written before anything else where
    /// there is something below the pool.
    pub first_pages: u64,
    /// Slabs of the pool.
    pub slabs: u64,
    /// What there is below the pool.
    pub far: Far,
}

impl Case {
    /// The case of a seed.
    pub fn of(seed: u64) -> Self {
        Self::draw(seed, |habits| habits)
    }

    /// The case of a seed in which every other operation changes the address space: what most guards are
    /// there for.
    pub fn restless(seed: u64) -> Self {
        Self::draw(seed, |habits| Habits { changes: 50, ..habits })
    }

    /// The case of a seed in which each thread is a process, and all map one object.
    pub fn shared(seed: u64) -> Self {
        let mut case = Self::of(seed);
        let mut random = SmallRng::seed_from_u64(seed ^ 0x54a7);
        case.budget_pages = [4, 8, 16][random.random_range(0..3)];
        case.plan.executable_one_in = 0;
        for operations in &mut case.threads {
            operations.truncate(60);
        }
        case
    }

    /// The same where pages come from nodes, slowly: more happens to them while they are on their way.
    pub fn restless_on_nodes(seed: u64) -> Self {
        let mut case = Self::restless(seed);
        case.far = Far {
            node_slabs: MOST_SLABS,
            has_nodes: true,
            entries: MOST_ENTRIES,
            answer_ns: 2_000_000,
            ..Far::default()
        };
        (case.first_pages, case.slabs) = (120, 2);
        case
    }

    fn draw(seed: u64, habits: impl Fn(Habits) -> Habits) -> Self {
        let mut random = SmallRng::seed_from_u64(seed ^ 0x5eed);
        let pick = |random: &mut SmallRng, from: &[u32]| from[random.random_range(0..from.len())];
        let threads = random.random_range(1..=4);
        let operations = random.random_range(8..=120);
        let habits = habits(Habits::draw(&mut random));
        let far = draw_far(&mut random);
        let plan = Plan {
            processors: random.random_range(1..=4),
            step_ns: u64::from(pick(&mut random, &[500, 5000, 20_000])),
            switch_one_in: pick(&mut random, &[1, 2, 4, 16, 64]),
            late_one_in: pick(&mut random, &[0, 50, 500]),
            late_ns: 3_000_000,
            stop_one_in: pick(&mut random, &[0, 4, 32]),
            busy_one_in: pick(&mut random, &[0, 0, 8]),
            executable_one_in: pick(&mut SmallRng::seed_from_u64(seed ^ 0xc0de), &[0, 0, 0, 2]),
            disk_ns: u64::from(pick(&mut random, &[0, 100_000, 3_000_000])),
            // Of two copies one is always left.
            disk_full_one_in: if far.lost_after_ns > 0 { 0 } else { pick(&mut random, &[0, 0, 4]) },
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
            first_pages: if far == Far::default() { 24 } else { 120 },
            slabs: u64::from(pick(&mut random, if far == Far::default() { &[1, 2, 4, 16] } else { &[2, 3] })),
            far,
        }
    }

    /// The case of a seed in which more threads want pages of nodes than may be under way, or than a handler
    /// defers one by one, while some change the address space. Little else happens. In every other one there
    /// are more processors than handlers that are armed because threads fault, and a slow disk instead of
    /// nodes.
    pub fn crowd(seed: u64) -> Self {
        /// A thread that changes the address space does so this often.
        const CHANGES: usize = 40;
        let mut case = Self::of(seed);
        let mut random = SmallRng::seed_from_u64(seed ^ 0xc0de);
        let readers = [40, 300][random.random_range(0..2)];
        let reader = Habits { hot: 0, changes: 0, forks: false };
        let changer = Habits { hot: 0, changes: 100, forks: false };
        let mut draw = |count: usize, habits, operations| {
            (0..count)
                .map(|_| (0..operations).map(|_| Operation::draw(&mut random, habits)).collect())
                .collect::<Vec<_>>()
        };
        case.threads = draw(readers, reader, 12);
        case.threads.extend(draw(3, changer, CHANGES));
        case.first_pages = 480 / readers as u64;
        case.budget_pages = 16;
        case.slabs = 2;
        case.plan.switch_one_in = 2;
        case.plan.most_steps = 10 * MOST_STEPS;
        case.far =
            Far { node_slabs: MOST_SLABS, has_nodes: true, entries: 1, answer_ns: 20_000, ..Far::default() };
        if seed % 2 == 1 {
            case.far = Far { disk_slabs: MOST_SLABS, ..Far::default() };
            (case.plan.processors, case.plan.disk_ns, case.plan.disk_full_one_in) = (12, 3_000_000, 0);
        }
        case
    }

    /// Operations of all threads.
    pub fn operations(&self) -> usize {
        self.threads.iter().map(Vec::len).sum()
    }
}

/// In half of all cases there is nothing below the pool.
fn draw_far(random: &mut SmallRng) -> Far {
    let kind = random.random_range(0..8);
    let slabs = random.random_range(2..=MOST_SLABS);
    let loses = random.random_ratio(1, 2);
    let mut pick = |from: &[u32]| from[random.random_range(0..from.len())];
    let nodes = Far {
        has_nodes: true,
        entries: pick(&[1, 2, MOST_ENTRIES.into()]) as u16,
        answer_ns: u64::from(pick(&[20_000, 200_000, 2_000_000])),
        silent_one_in: pick(&[0, 0, 16]),
        lie_one_in: pick(&[0, 0, 8]),
        twice_one_in: pick(&[0, 4]),
        ..Far::default()
    };
    match kind {
        0..4 => Far::default(),
        4 => Far { disk_slabs: slabs, ..Far::default() },
        5 | 6 => Far { node_slabs: slabs, ..nodes },
        _ => Far { disk_slabs: slabs, lost_after_ns: if loses { 5_000_000 } else { 0 }, ..nodes },
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, plan, budget_pages, slabs, far, .. } = self;
        writeln!(f, "seed {seed}, {budget_pages} pages local, {slabs} slabs, {far:?}, {plan:?}")?;
        let mut threads = self.threads.iter().enumerate().filter(|(_, operations)| !operations.is_empty());
        threads.try_for_each(|(thread, operations)| writeln!(f, "thread {thread}: {operations:?}"))
    }
}

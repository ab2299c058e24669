//! Smaller cases that fail, too.

use crate::case::Case;
use crate::run::run;
use crate::shared::run_shared;
use farmem_simulated_kernel::schedule::Outcome;

/// Cases that are tried for each failing one.
const MOST_TRIES: usize = 400;
/// Schedules that are tried for each smaller program.
const SCHEDULES: u64 = 4;

/// Leaves out threads and operations as long as what is left fails under some schedule.
pub fn shrink(case: &Case) -> Case {
    shrink_with(case, run)
}

/// The same of a case of shared memory.
pub fn shrink_shared(case: &Case) -> Case {
    shrink_with(case, run_shared)
}

fn shrink_with(case: &Case, run: fn(&Case) -> Outcome) -> Case {
    let mut best = case.clone();
    let mut tries = 0;
    let mut part = case.operations().div_ceil(2).max(1);
    loop {
        let mut has_shrunk = false;
        for thread in 0..best.threads.len() {
            let mut at = 0;
            while at < best.threads[thread].len() && tries < MOST_TRIES {
                let mut smaller = best.clone();
                let end = (at + part).min(smaller.threads[thread].len());
                smaller.threads[thread].drain(at..end);
                let failing = (0..SCHEDULES).find_map(|step| {
                    tries += 1;
                    let mut candidate = smaller.clone();
                    candidate.seed = case.seed.wrapping_add(step << 40);
                    run(&candidate).failure.is_some().then_some(candidate)
                });
                match failing {
                    Some(candidate) => {
                        best = candidate;
                        has_shrunk = true;
                    }
                    None => at += part,
                }
            }
        }
        if tries >= MOST_TRIES || part == 1 && !has_shrunk {
            return best;
        }
        part = (part / 2).max(1);
    }
}

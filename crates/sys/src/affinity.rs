//! On which processors a thread runs.

use rustix::thread::{CpuSet, sched_setaffinity};

/// Keeps the calling thread on `processor`; ignored when the process may not run there.
pub fn stay_on(processor: u32) {
    let mut set = CpuSet::new();
    set.set(processor as usize);
    let _ = sched_setaffinity(None, &set);
}

/// The processor that is the `nth` among those that the calling thread may use.
pub fn nth_allowed(nth: u32) -> Option<u32> {
    let set = rustix::thread::sched_getaffinity(None).ok()?;
    (0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).nth(nth as usize).map(|it| it as u32)
}

/// How many processors the calling thread may use, at least one.
pub fn allowed() -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count().max(1))
}

//! On which processors a thread runs.

use rustix::thread::{CpuSet, sched_setaffinity};

/// Keeps the calling thread on `processor`; ignored when the process may not run there.
pub fn stay_on(processor: u32) {
    let mut set = CpuSet::new();
    set.set(processor as usize);
    let _ = sched_setaffinity(None, &set);
}

/// Keeps another process, of one thread, on `processor`; ignored when it may not run there.
pub(crate) fn keep_on(process: u32, processor: u32) {
    let mut set = CpuSet::new();
    set.set(processor as usize);
    if let Some(process) = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = sched_setaffinity(Some(process), &set);
    }
}

/// The processors that a thread may use.
#[derive(Clone, Copy, Debug)]
pub struct Allowed(CpuSet);

impl Allowed {
    /// Those of the calling thread now. `None` when the kernel doesn't say.
    pub fn now() -> Option<Self> {
        rustix::thread::sched_getaffinity(None).ok().map(Self)
    }

    /// Lets the calling thread run on all of them again.
    pub fn restore(&self) {
        let _ = sched_setaffinity(None, &self.0);
    }

    /// How many.
    pub fn count(&self) -> u32 {
        self.0.count()
    }

    /// The `nth` of them.
    pub fn nth(&self, nth: u32) -> Option<u32> {
        (0..CpuSet::MAX_CPU)
            .filter(|&processor| self.0.is_set(processor))
            .nth(nth as usize)
            .map(|it| it as u32)
    }
}

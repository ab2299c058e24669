//! On which processors a thread runs: on any. Their number says how many handlers there are.

use crate::world;

/// Does nothing.
pub fn stay_on(_processor: u32) {}

/// The processors that a thread may use.
#[derive(Clone, Copy, Debug)]
pub struct Allowed(u32);

impl Allowed {
    /// Those of the simulated machine.
    pub fn now() -> Option<Self> {
        Some(Self(world::with(|world| world.plan.processors)))
    }

    /// Does nothing.
    pub fn restore(&self) {}

    /// How many.
    pub fn count(&self) -> u32 {
        self.0
    }

    /// The `nth` of them.
    pub fn nth(&self, nth: u32) -> Option<u32> {
        (nth < self.0).then_some(nth)
    }
}

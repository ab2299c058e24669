//! Processor time that the host of a virtual machine gave to others.
//!
//! It makes a run slow by no fault of the pager, and makes it slowest where a processor is woken often. So
//! runs that lost much are repeated, whoever's they are.

use procfs::{CurrentSI, KernelStats};

/// Runs that lost more of their processor time than this to the machine's host are repeated.
pub(crate) const TOLERATED: f64 = 0.03;
/// Runs are tried so often at most.
pub(crate) const ATTEMPTS: u32 = 3;

/// Busy and stolen time of all processors since the machine started, in ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Times {
    busy: u64,
    stolen: u64,
}

impl Times {
    /// Now; zeros where the kernel doesn't tell.
    pub(crate) fn now() -> Self {
        let Ok(stats) = KernelStats::current() else { return Self::default() };
        let total = stats.total;
        let busy =
            total.user + total.nice + total.system + total.irq.unwrap_or(0) + total.softirq.unwrap_or(0);
        Self { busy, stolen: total.steal.unwrap_or(0) }
    }

    /// The part of the time since `earlier`, in which there was something to do, that the host took.
    pub(crate) fn stolen_share_since(self, earlier: Self) -> f64 {
        let stolen = self.stolen.saturating_sub(earlier.stolen) as f64;
        let busy = self.busy.saturating_sub(earlier.busy) as f64;
        if stolen + busy > 0.0 { stolen / (stolen + busy) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_the_time_in_which_there_was_something_to_do() {
        let earlier = Times { busy: 100, stolen: 50 };
        assert_eq!(Times { busy: 175, stolen: 75 }.stolen_share_since(earlier), 0.25);
        assert_eq!(earlier.stolen_share_since(earlier), 0.0);
    }
}

//! How often the application's processes are looked at: the more often the nearer the application is to its
//! budget, and the more rarely the more a look costs.

use std::time::Duration;

use farmem_sys::thread;

/// Between two looks, while memory is far from short, and while it is near.
pub(super) const LONGEST: Duration = Duration::from_millis(50);
pub(super) const SHORTEST: Duration = Duration::from_millis(2);
/// The same between two at processes without a pager alone.
pub(super) const BRIEFEST: Duration = Duration::from_millis(1);
/// Between two looks at least while every process has a pager: what forks of them is served from its first
/// page, and what begins another program is told of.
pub(super) const CALM: Duration = LONGEST;
/// Between two looks at the whole family at most, however little its processes do.
pub(super) const QUIET: Duration = Duration::from_secs(1);
/// At most one part of the time in so many goes into looking; half as much where that is more than
/// [`LONGEST`] apart, as with hundreds of processes, as long as looks come so often at least.
pub(super) const LOOK_SHARE: u32 = 100;
pub(super) const RARE_SHARE: u32 = 200;
pub(super) const RAREST: Duration = Duration::from_millis(400);
/// The same for looks at processes without a pager: while they grow, which they do only until they have one,
/// and while they don't.
pub(super) const GLANCE_SHARE: u32 = 20;
pub(super) const QUIET_SHARE: u32 = 100;

/// The processor time that the calling thread has taken since it had taken so much: waiting for a processor
/// costs nobody anything.
pub(super) fn since(began_ns: u64) -> Duration {
    Duration::from_nanos(thread::cpu_ns().saturating_sub(began_ns))
}

/// Between two looks, by what one costs.
pub(super) fn least_pause(cost: Duration) -> Duration {
    let pause = cost * LOOK_SHARE;
    if pause <= LONGEST { pause } else { (cost * RARE_SHARE).min(RAREST) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_rarer_the_more_they_cost_and_come_all_the_same() {
        let micros = Duration::from_micros;
        assert_eq!(least_pause(micros(100)), micros(10_000));
        assert_eq!(least_pause(micros(500)), LONGEST);
        assert_eq!(least_pause(micros(1500)), micros(300_000));
        assert_eq!(least_pause(micros(50_000)), RAREST);
    }
}

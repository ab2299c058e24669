//! How often a test looks at what it watches, which is to have the processors.

use std::thread;
use std::time::{Duration, Instant};

/// The least time between two looks for what is waited for.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// A pause is at least so many times as long as the look before it. `farmem stat` is a process of its own,
/// and the looks of one test would take more of a processor than the programs that it watches.
const SHARE: u32 = 6;

/// Waits after a look that began then, at least for `least`.
pub(crate) fn pause_after(began: Instant, least: Duration) {
    thread::sleep(least.max(began.elapsed() * SHARE));
}

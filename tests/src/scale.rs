//! How much data the programs get, and how much time.

use std::time::Duration;

/// How long anything may take before it counts as stuck, at the small scale. Many times what it takes: the
/// machine may be slow, and busy with something else. Above it lies nextest's own bound, for a test that has
/// got stuck itself.
const PATIENCE: Duration = Duration::from_secs(300);

/// True when `FARMEM_TEST_SCALE=large` asks for data of a real size.
#[must_use]
pub fn is_large() -> bool {
    std::env::var_os("FARMEM_TEST_SCALE").is_some_and(|scale| scale == "large")
}

/// The `small` count, or ten times as much at the large scale.
#[must_use]
pub fn scaled(small: u64) -> u64 {
    if is_large() { small * 10 } else { small }
}

/// How long anything may take before it counts as stuck.
pub(crate) fn patience() -> Duration {
    if is_large() { PATIENCE * 10 } else { PATIENCE }
}

//! The supervisors of applications, as seen from outside.

use std::time::{Duration, Instant};
use std::{fs, thread};

/// For a supervisor whose program has ended.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// The supervisor of an application, which is a copy of the process that was called, and keeps its words.
pub(crate) fn supervisor(name: &str) -> Option<u32> {
    processes().find(|&process| {
        let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let mut words = words.split(|&byte| byte == 0);
        let is_command = words.nth(1).is_some_and(|word| word == b"run" || word == b"attach");
        is_command && words.any(|word| word == name.as_bytes())
    })
}

/// Waits until an application whose program has ended has no supervisor either, within bounds. It ends a
/// moment after its program.
pub(crate) fn wait_for_end(name: &str) {
    let began = Instant::now();
    while supervisor(name).is_some() && began.elapsed() < PATIENCE {
        thread::sleep(PAUSE);
    }
}

/// All processes that can be seen.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

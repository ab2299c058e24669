//! Transparent huge pages of the program, whatever its mappings ask for.

use crate::subject;

/// Whether it gets none.
pub fn are_off() -> bool {
    rustix::thread::transparent_huge_pages_are_disabled().unwrap_or(false)
}

/// From now on, and in programs that it becomes and processes that it forks, touched memory comes in single pages, or in huge ones again. Where the kernel
/// refuses, all stays as it is.
pub fn turn_off(is_off: bool) {
    if let Some(attached) = subject::attached() {
        const DISABLE: u64 = 41;
        // Of the address space, which the puppet shares.
        let _ = attached.puppet.make(linux_raw_sys::general::__NR_prctl, [DISABLE, is_off.into(), 0, 0, 0, 0]);
        return;
    }
    let _ = rustix::thread::disable_transparent_huge_pages(is_off);
}

//! Transparent huge pages of the program, whatever its mappings ask for.

use crate::subject;

/// Whether it gets none.
pub fn are_off() -> bool {
    rustix::thread::transparent_huge_pages_are_disabled().unwrap_or(false)
}

/// From now on, and in programs that it becomes and processes that it forks, touched memory comes in single pages, or in huge ones again. Where the kernel
/// refuses, all stays as it is.
pub fn turn_off(is_off: bool) {
    // A program would keep it beyond `exec`, and could see it.
    if subject::attached().is_some() {
        return;
    }
    let _ = rustix::thread::disable_transparent_huge_pages(is_off);
}

//! The program whose memory is managed: here always that of the calling process.

use crate::{process, thread};

#[path = "../../../sys/src/subject/objects.rs"]
pub mod objects;
mod punched;

/// Another process, which this one's pager is attached to: none is.
#[derive(Debug)]
pub struct Attached {
    /// Its number.
    pub process: u32,
}

/// The other process.
pub fn attached() -> Option<&'static Attached> {
    None
}

/// Whether the program has ended.
pub fn has_ended() -> bool {
    false
}

/// Ends the program at once.
pub fn end() -> ! {
    process::kill_self()
}

/// Ends the calling process, and leaves the program alone.
pub fn leave() -> ! {
    process::kill_self()
}

/// The number of the program's process.
pub fn number() -> u32 {
    process::own_number()
}

/// Processor time that the program has used, in nanoseconds.
pub fn cpu_ns() -> u64 {
    if let Some(objects) = objects::objects() {
        return objects.cpu_ns();
    }
    thread::process_cpu_ns().saturating_sub(thread::cpu_ns())
}

/// As if each process had used some.
pub(crate) fn cpu_ns_of(_process: u32) -> u64 {
    thread::cpu_ns()
}

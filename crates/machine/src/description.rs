//! A machine in a few words, to stand next to figures that were measured on it.

use std::fs;
use std::num::NonZero;
use std::thread;

use procfs::{CpuInfo, Current};
use serde::{Deserialize, Serialize};

use crate::Memory;

/// What figures depend on. `unknown` stands for what the machine doesn't tell.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Description {
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Instruction set, as Rust names it.
    pub architecture: String,
    /// The processor's name.
    pub processor: String,
    /// Processors that this process may run on.
    pub cores: usize,
    /// Whether the processor says that it is a virtual one.
    pub is_virtual: bool,
    /// Memory that this process may use, in bytes.
    pub memory_bytes: u64,
    /// The mode of transparent huge pages.
    pub huge_pages: String,
}

impl Description {
    /// Describes this machine.
    pub fn current() -> Self {
        let processors = CpuInfo::current().ok();
        let field = |name: &str| {
            processors.as_ref().and_then(|cpus| cpus.get_field(0, name)).unwrap_or("unknown").to_owned()
        };
        Self {
            kernel: read("/proc/sys/kernel/osrelease"),
            architecture: std::env::consts::ARCH.to_owned(),
            processor: field("model name"),
            cores: thread::available_parallelism().map_or(1, NonZero::get),
            is_virtual: field("flags").split_whitespace().any(|flag| flag == "hypervisor"),
            memory_bytes: Memory::current().map_or(0, |memory| memory.usable().get()),
            huge_pages: selected(&read("/sys/kernel/mm/transparent_hugepage/enabled")).to_owned(),
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// The choice in brackets, in files of `/sys` that list all choices.
fn selected(choices: &str) -> &str {
    choices.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(choices, |(chosen, _)| chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_in_brackets_is_the_selected_one() {
        assert_eq!(selected("always [madvise] never"), "madvise");
        assert_eq!(selected("unknown"), "unknown");
    }

    #[test]
    fn this_machine_can_be_described() {
        let description = Description::current();

        assert!(description.cores >= 1);
        assert_ne!(description.kernel, "unknown");
    }
}

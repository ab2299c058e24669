//! Memory, and what the kernel does with it by itself.

use farmem_machine::Memory;

use super::{Check, read};
use crate::amount::Readable;

pub(super) fn checks() -> Vec<Check> {
    vec![amount(), group_limit(), huge_pages(), overcommit(), swap(), zswap()]
}

fn amount() -> Check {
    const NAME: &str = "memory";
    const MEANING: &str = "budgets and the pool come from it; percentages are of what this user may use";
    match Memory::current() {
        Ok(memory) => {
            let found = format!(
                "{}, {} of it available; this user may use {}",
                Readable(memory.total),
                Readable(memory.available),
                Readable(memory.usable())
            );
            Check::ok(NAME, found, MEANING)
        }
        Err(error) => Check::unknown(NAME, error.to_string(), MEANING),
    }
}

fn group_limit() -> Check {
    const NAME: &str = "control group";
    const MEANING: &str = "both the pool and the budget count towards the group's limit";
    match Memory::current() {
        Ok(memory) => {
            let found = memory
                .group_limit
                .map_or_else(|| "no limit".to_owned(), |limit| format!("limited to {}", Readable(limit)));
            Check::ok(NAME, found, MEANING)
        }
        Err(error) => Check::unknown(NAME, error.to_string(), MEANING),
    }
}

fn huge_pages() -> Check {
    const NAME: &str = "huge pages";
    const MEANING: &str = "huge pages are split before they leave, which costs time; `madvise` gives them only to programs that ask";
    match read("/sys/kernel/mm/transparent_hugepage/enabled") {
        Some(mode) => {
            let fine = !mode.contains("[always]");
            Check::ok(NAME, mode, MEANING)
                .gap_unless(fine, "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled")
        }
        None => Check::ok(NAME, "not in this kernel", MEANING),
    }
}

fn overcommit() -> Check {
    const NAME: &str = "overcommit";
    const MEANING: &str = "how much memory a program may ask for; 0 refuses single requests larger than the machine, \
                           1 none, 2 counts all of them";
    const MEND: &str = "sudo sysctl vm.overcommit_memory=1";
    match read("/proc/sys/vm/overcommit_memory") {
        Some(mode) => {
            let fine = mode != "2";
            Check::ok(NAME, mode, MEANING).gap_unless(fine, MEND)
        }
        None => Check::unknown(NAME, "the kernel doesn't say", MEANING),
    }
}

fn swap() -> Check {
    const NAME: &str = "kernel swap";
    const MEANING: &str = "if it is on, the kernel may swap out what Farmem keeps local, and the pool";
    match Memory::current() {
        Ok(memory) => {
            let off = memory.swap.get() == 0;
            let found = if off { "off".to_owned() } else { format!("{} on", Readable(memory.swap)) };
            Check::ok(NAME, found, MEANING).gap_unless(off, "sudo swapoff -a")
        }
        Err(error) => Check::unknown(NAME, error.to_string(), MEANING),
    }
}

fn zswap() -> Check {
    const NAME: &str = "zswap";
    const MEANING: &str = "compresses what the kernel swaps; idle while kernel swap is off";
    match read("/sys/module/zswap/parameters/enabled").as_deref() {
        Some("Y") => Check::ok(NAME, "enabled", MEANING),
        Some(_) => Check::ok(NAME, "disabled", MEANING),
        None => Check::ok(NAME, "not in this kernel", MEANING),
    }
}

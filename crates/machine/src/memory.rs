//! How much memory there is to use.

use farmem_page::ByteCount;
use procfs::{Current, Meminfo};

use crate::control_group::MemoryController;

/// Parts of what there is in all that [`Memory::spare`] leaves alone.
const LEFT_SHARE: u64 = 10;

/// The machine's memory could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read /proc/meminfo: {0}")]
pub struct MemoryError(#[from] procfs::ProcError);

/// The machine's memory, and the part that this process may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// All memory of the machine.
    pub total: ByteCount,
    /// What could be used now without pushing out anything else.
    pub available: ByteCount,
    /// The limit of this process's control group, where there is one.
    pub group_limit: Option<ByteCount>,
    /// What the control group may still take, where it has a limit.
    pub group_room: Option<ByteCount>,
    /// Swap space of the kernel, on now.
    pub swap: ByteCount,
}

impl Memory {
    /// Asks the kernel.
    ///
    /// # Errors
    /// When `/proc` is not mounted or can't be read.
    pub fn current() -> Result<Self, MemoryError> {
        let info = Meminfo::current()?;
        let controller = MemoryController::find();
        Ok(Self {
            total: ByteCount::new(info.mem_total),
            available: ByteCount::new(info.mem_available.unwrap_or(info.mem_free)),
            group_limit: controller.as_ref().and_then(MemoryController::limit),
            group_room: controller.as_ref().and_then(MemoryController::room),
            swap: ByteCount::new(info.swap_total),
        })
    }

    /// What can be spared for a pool in addition to a budget of `local`: what is free now, of the machine and
    /// within the control group's limit, less the budget and a tenth of all.
    pub fn spare(&self, local: ByteCount) -> ByteCount {
        let left = |free: ByteCount, all: ByteCount| {
            free.get().saturating_sub(local.get()).saturating_sub(all.get() / LEFT_SHARE)
        };
        let of_machine = left(self.available, self.total);
        let of_group = self.group_limit.zip(self.group_room).map(|(limit, room)| left(room, limit));
        ByteCount::new(of_group.map_or(of_machine, |of_group| of_group.min(of_machine)))
    }

    /// What this user can have at most: all memory, or the control group's limit where that is smaller.
    /// Percentages are of this.
    pub fn usable(&self) -> ByteCount {
        self.group_limit.map_or(self.total, |limit| limit.min(self.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(group_limit: Option<u64>) -> Memory {
        Memory {
            total: ByteCount::new(1000),
            available: ByteCount::new(900),
            group_limit: group_limit.map(ByteCount::new),
            group_room: group_limit.map(|limit| ByteCount::new(limit / 2)),
            swap: ByteCount::ZERO,
        }
    }

    #[test]
    fn a_group_limit_below_the_machine_is_what_can_be_used() {
        assert_eq!(memory(Some(300)).usable(), ByteCount::new(300));
    }

    #[test]
    fn a_group_limit_above_the_machine_changes_nothing() {
        assert_eq!(memory(Some(3000)).usable(), ByteCount::new(1000));
        assert_eq!(memory(None).usable(), ByteCount::new(1000));
    }

    #[test]
    fn what_is_spared_keeps_to_the_tighter_of_machine_and_group() {
        let spare = |group_limit, local| memory(group_limit).spare(ByteCount::new(local)).get();
        assert_eq!(spare(None, 200), 900 - 200 - 100);
        assert_eq!(spare(Some(600), 200), 300 - 200 - 60);
        assert_eq!(spare(Some(100_000), 200), 900 - 200 - 100);
        assert_eq!(spare(Some(600), 290), 0);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(Memory::current().unwrap().usable() > ByteCount::new(1 << 20));
    }
}

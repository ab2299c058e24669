//! Whether there is memory for all that is far to come back.

use std::collections::HashMap;
use std::path::PathBuf;

use farmem_machine::Memory;
use farmem_machine::control_group::MemoryController;
use farmem_page::{ByteCount, mebibytes_up};
use farmem_telemetry::{Counter, Ledger, SlotState};

/// Why it can't come back, and what to do; `None` when it can. With `is_full` as if there were no memory, for
/// tests.
///
/// What the pool takes counts as taken: pages that come back may keep their entries there.
pub(crate) fn refusal(ledger: Ledger<'_>, is_full: bool) -> Option<String> {
    let mut far = 0;
    let mut by_group: HashMap<PathBuf, (u64, Option<u64>, u32)> = HashMap::new();
    for slot in ledger.slots().filter(|slot| slot.state() != SlotState::Free) {
        let own = slot.get(Counter::FarPages).saturating_mul(farmem_page::PAGE_BYTES as u64);
        far += own;
        if own > 0
            && let Some(controller) = MemoryController::find_of(slot.process())
        {
            let entry = by_group
                .entry(controller.group.clone())
                .or_insert_with(|| (0, controller.room().map(ByteCount::get), slot.process()));
            entry.0 += own;
        }
    }
    let available = Memory::current().map_or(u64::MAX, |memory| memory.available.get());
    let available = if is_full { 0 } else { available };
    if far > available {
        return Some(format!(
            "{} MiB are far and {} MiB of memory are free; free {} MiB more, and detach again",
            mebibytes_up(far),
            available >> 20,
            mebibytes_up(far - available)
        ));
    }
    by_group.into_values().find_map(|(far, room, process)| {
        let room = room.filter(|&room| far > room)?;
        Some(format!(
            "{} MiB are far and the control group of process {process} has room for {} MiB; raise its memory limit by {} MiB, and \
             detach again",
            mebibytes_up(far),
            room >> 20,
            mebibytes_up(far - room)
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::Application;

    #[test]
    fn nothing_far_needs_no_room_and_what_is_far_is_told_in_numbers() {
        let application = Application::for_test();
        assert_eq!(refusal(application.ledger, true), None);
        let slot = application.ledger.slot(0).expect("there is a first slot");
        slot.assign(std::process::id());
        application
            .ledger
            .header(farmem_telemetry::Header::SlotsUsed)
            .store(1, std::sync::atomic::Ordering::Release);
        slot.set(Counter::FarPages, 257);
        let refused = refusal(application.ledger, true).expect("there is none");
        assert!(refused.starts_with("2 MiB are far and 0 MiB of memory are free; free 2 MiB"), "{refused}");
        assert_eq!(refusal(application.ledger, false), None);
    }
}

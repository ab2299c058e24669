//! Pages that can't be read back.

use farmem_page::{PageCount, PageIndex, PageRange, Place};
use farmem_sys::uffd::{Progress, Uffd};
use farmem_telemetry::{Counter, LostPage};

use crate::address_space::table::Taken;
use crate::engine::Engine;
use crate::gate::Holding;

impl Engine {
    /// A page that can't be read back: whoever touches it gets a SIGBUS, for this page alone.
    pub(super) fn lose(&self, holding: &Holding<'_>, taken: Taken) {
        let page = taken.page;
        let change = self.change(holding);
        let word = taken.word;
        let is_poisoned = change.is_some()
            && !taken.is_overtaken()
            && self.poison(&self.pages.uffd, page).stopped.is_none();
        let word = if is_poisoned { word.with_place(Some(Place::Lost)).with_far(false) } else { word };
        self.let_go_and_wake(taken, word);
    }

    /// Poisons a page of this process or of a child of it, and leaves word which it was. That must be there
    /// before: as soon as the page is poisoned its thread goes on, and may end the process.
    pub(crate) fn poison(&self, uffd: &Uffd, page: PageIndex) -> Progress {
        self.slot.add(Counter::Lost, 1);
        self.ledger.name_lost(LostPage { process: self.slot.process(), page });
        let progress = uffd.poison(PageRange::at(page, PageCount::new(1)));
        if progress.stopped.is_some() {
            // It is tried again, or gone.
            self.slot.subtract(Counter::Lost, 1);
        }
        progress
    }
}

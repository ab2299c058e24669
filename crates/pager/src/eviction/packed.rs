//! Pages that were stored raw in a hurry get the entries that the packer has made for them.

use farmem_store::Packed;

use crate::engine::Engine;

/// Pages at a time: while some are given entries, no message is read.
const BATCH: usize = 32;
/// Batches of a round, so that it stays short: as many as a whole queue has.
const BATCHES: usize = 32;

impl Engine {
    /// Deals with what has been packed since the last time. Whether there was anything.
    pub(crate) fn take_packed(&self) -> bool {
        let is_any = self.vault.next_packed().is_some();
        self.give_entries();
        is_any
    }

    fn give_entries(&self) {
        for _ in 0..BATCHES {
            if self.vault.next_packed().is_none() {
                return;
            }
            let _change = self.change_as_bookkeeper();
            // A fork waits for the holder of this lock, and nobody begins to work under it while one is under
            // way.
            let Some(_evictor) = self.eviction.evictor.try_lock() else { return };
            if self.eviction.is_leaving() {
                return;
            }
            for _ in 0..BATCH {
                let Some(packed) = self.vault.next_packed() else { return };
                if !self.give_entry(packed) {
                    return;
                }
                self.vault.settle_packed();
            }
        }
    }

    /// Gives a page its packed entry, if it still is what was packed. `false` while somebody holds the page:
    /// later, then.
    fn give_entry(&self, Packed { page, raw, packed }: Packed) -> bool {
        let Some(packed) = packed else { return true };
        let Some(taken) = self.pages.table.take_if(page, |word| word.place() == Some(raw)) else {
            let word = self.pages.table.word(page);
            if word.is_busy() && word.place() == Some(raw) {
                return false;
            }
            self.vault.free(packed);
            return true;
        };
        // The page may have been written and stored in the same slot again.
        let is_same = self.vault.is_same(raw, packed);
        let (kept, spare) = if is_same { (packed, raw) } else { (raw, packed) };
        let word = taken.word.with_place(Some(kept));
        self.let_go(taken, word);
        self.vault.free(spare);
        true
    }
}

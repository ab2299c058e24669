//! Letting go of pages that are held, also of those that the program has given up meanwhile: what is theirs
//! goes with them.

use farmem_page::PageWord;
use farmem_telemetry::Counter;

use crate::address_space::table::Taken;
use crate::engine::Engine;

impl Engine {
    /// Lets the page go with what `word` says, which the counters know of already; whether a thread waits for
    /// it, which must be woken.
    fn release(&self, taken: Taken, word: PageWord) -> bool {
        let released = taken.release(word);
        if released.is_dropped {
            if word.is_far() {
                self.slot.subtract(Counter::FarPages, 1);
            }
            if let Some(place) = word.place() {
                self.vault.free(place);
            }
        }
        released.is_waited
    }

    /// Lets the page go with what `word` says, which the counters know of already. Whoever waits for it
    /// faults again.
    pub(crate) fn let_go(&self, taken: Taken, word: PageWord) {
        let page = taken.page;
        if self.release(taken, word) {
            self.wake_page(page);
        }
    }

    /// The same where somebody may wait of whom the word doesn't know: the thread whose fault is being
    /// served.
    pub(crate) fn let_go_and_wake(&self, taken: Taken, word: PageWord) {
        let page = taken.page;
        let _ = self.release(taken, word);
        self.wake_page(page);
    }

    /// A page that stays, as it was.
    pub(crate) fn give_back(&self, taken: Taken) {
        let word = taken.word;
        self.let_go(taken, word);
    }

    /// A page that stays where it is. Whoever waits for it faults again, whether the word says that somebody
    /// does or not.
    pub(crate) fn let_try_again(&self, taken: Taken) {
        let word = taken.word;
        self.let_go_and_wake(taken, word);
    }
}

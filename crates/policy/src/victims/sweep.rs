//! Every page that the hand meets.

use farmem_page::{AgeStamp, PageCount, PageWord};

use super::{Verdict, VictimPolicy};

/// First come, first out, by the order of addresses: the baseline.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sweep;

impl VictimPolicy for Sweep {
    fn on_first_touch(&self, word: PageWord) -> PageWord {
        word
    }
    fn on_refault(&self, word: PageWord) -> PageWord {
        word
    }
    fn on_hinted(&self, word: PageWord) -> PageWord {
        word
    }
    fn on_return(&self, word: PageWord) -> PageWord {
        word
    }
    fn absence(&self, _word: PageWord) -> u64 {
        0
    }
    fn on_unused(&self, word: PageWord) -> PageWord {
        word
    }
    fn on_cold(&self, word: PageWord) -> PageWord {
        word
    }
    fn visit(&self, _word: PageWord) -> Verdict {
        Verdict::Evict
    }
    fn now(&self) -> AgeStamp {
        AgeStamp::default()
    }
    fn is_hot(&self, _word: PageWord, _since: AgeStamp) -> bool {
        false
    }
    fn came_soon(&self, _word: PageWord) -> bool {
        false
    }
    fn on_evict(&self, word: PageWord) -> PageWord {
        word
    }
    fn on_evicted(&self, _count: PageCount) {}
    fn set_budget(&self, _budget: PageCount) {}
}

//! Victims: which resident pages leave. One policy per file.

mod refault;
mod sweep;

pub use refault::{TICKS_PER_BUDGET, Victims};
pub use sweep::Sweep;

use farmem_page::{AgeStamp, PageCount, PageWord};

/// What the eviction hand does with a resident page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Let it go.
    Evict,
    /// Leave it; this is its new word.
    Keep(PageWord),
}

/// Chooses victims. The *hand* walks all resident pages again and again, and asks at each.
///
/// A policy only changes the level and the age stamp of a word; while a page is resident, both are the
/// policy's to use as it likes. All methods take `&self` and may be called from several threads at once.
pub trait VictimPolicy {
    /// The word of a page that is touched for the first time, or found resident when its region came under
    /// management.
    fn on_first_touch(&self, word: PageWord) -> PageWord;

    /// The word of a page that comes back, on demand or ahead of it.
    fn on_refault(&self, word: PageWord) -> PageWord;

    /// The word of a page that comes back because the program has said that it will want it.
    fn on_hinted(&self, word: PageWord) -> PageWord;

    /// The word of a page that comes back because there was room for it: nobody asked, so it says nothing of
    /// the page.
    fn on_return(&self, word: PageWord) -> PageWord;

    /// Ticks of the policy's clock since an absent page left, at most 1023.
    fn absence(&self, word: PageWord) -> u64;

    /// The word of a page that was prefetched and turned out not to be used.
    fn on_unused(&self, word: PageWord) -> PageWord;

    /// The word of a resident page that the program won't want for long: the hand is to let it go when it
    /// comes to it.
    fn on_cold(&self, word: PageWord) -> PageWord;

    /// What to do with a resident page that the hand has come to.
    fn visit(&self, word: PageWord) -> Verdict;

    /// The policy's clock, for [`VictimPolicy::is_hot`].
    fn now(&self) -> AgeStamp;

    /// Whether a resident page is hot, and has been resident since before `since`: it is likely to stay for
    /// long.
    fn is_hot(&self, word: PageWord, since: AgeStamp) -> bool;

    /// Whether a page came back soon after it had last left, as far as is known.
    fn came_soon(&self, word: PageWord) -> bool;

    /// The word of a page that leaves now. Called for each page that leaves, also for one that was not chosen
    /// by [`VictimPolicy::visit`].
    fn on_evict(&self, word: PageWord) -> PageWord;

    /// The hand has met every page and none was to leave, but some must.
    fn on_want(&self) {}

    /// `count` pages have left: the policy's clock.
    fn on_evicted(&self, count: PageCount);

    /// The number of pages that may be resident.
    fn set_budget(&self, budget: PageCount);
}

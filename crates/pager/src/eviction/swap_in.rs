//! Bringing pages back without being asked, when the process has room again: its budget was raised, another
//! process of the application has gone, or the program has freed memory (FastSwap §V).
//!
//! In two passes over the regions: a survey of what is absent and since when, then the return of what fits,
//! in the order of addresses, so that neighbours come in one call. Either goes a step at a time between the
//! bookkeeper's other duties.

use farmem_page::{PageCount, PageIndex, PageWord, Place};
use farmem_policy::VictimPolicy;
use farmem_policy::swap_in::{Room, Survey};
use farmem_sys::{Errno, memory, thread};
use farmem_telemetry::Counter;

use crate::engine::{BATCH_PAGES, Engine};
use crate::fault::serve::{Cause, ServeBuffers};

/// A step of the return ends after this time: meanwhile nobody watches the budget.
const STEP_NS: u64 = 2_000_000;
/// What a batch should take at most: a move or a fork waits for its end. From memory that is some fifty
/// pages, from a disk two or three.
const BATCH_NS: u64 = 250_000;
/// Words that a step of the survey looks at.
const SURVEYED: usize = 1 << 16;
/// Words that are looked at for one batch.
const LOOKED_AT: usize = 1 << 12;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pass {
    None,
    Survey,
    Return {
        /// The longest absence from which pages come back.
        longest: u64,
    },
}

/// What the bookkeeper needs for it.
pub(crate) struct SwapIn {
    survey: &'static mut Survey,
    room: Room,
    pass: Pass,
    /// Pages of a batch, as many as keep within [`BATCH_NS`].
    at_once: usize,
    /// Where the pass goes on.
    hand: PageIndex,
    /// Pages that it has brought back.
    returned: usize,
    /// Evictions when a pass last found nothing: until there are more, nothing else will be found.
    exhausted_at: Option<u64>,
}

impl SwapIn {
    /// # Errors
    /// No memory.
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            survey: memory::leak(Survey::new())?,
            room: Room::default(),
            pass: Pass::None,
            at_once: BATCH_PAGES,
            hand: PageIndex::new(0),
            returned: 0,
            exhausted_at: None,
        })
    }

    /// One step, if there is room. Whether there is more to do.
    pub(crate) fn step(&mut self, engine: &Engine, buffers: &mut ServeBuffers) -> bool {
        let room = self.room.look(-engine.residency.excess(0), engine.ledger.budget(), thread::now_ns());
        let evicted = engine.slot.get(Counter::Evicted);
        if room == PageCount::ZERO
            || self.exhausted_at == Some(evicted)
            || engine.slot.get(Counter::FarPages) == 0
        {
            self.pass = Pass::None;
            return false;
        }
        let pass = self.pass;
        self.pass = match pass {
            Pass::None => {
                self.survey.clear();
                self.hand = PageIndex::new(0);
                Pass::Survey
            }
            Pass::Survey => {
                if self.count(engine) {
                    pass
                } else {
                    (self.hand, self.returned) = (PageIndex::new(0), 0);
                    self.survey.longest_absence(room).map_or(Pass::None, |longest| Pass::Return { longest })
                }
            }
            Pass::Return { longest } => {
                if self.bring_back(engine, buffers, longest, room) {
                    pass
                } else {
                    Pass::None
                }
            }
        };
        if self.pass == Pass::None && self.returned == 0 {
            self.exhausted_at = Some(evicted);
        }
        self.pass != Pass::None
    }

    /// A step of the survey. Whether it goes on.
    fn count(&mut self, engine: &Engine) -> bool {
        let mut left = SURVEYED;
        while let Some(region) = engine.pages.regions.from(self.hand) {
            self.hand = self.hand.max(region.start);
            while self.hand < region.end {
                let Some(rest) = left.checked_sub(1) else { return true };
                left = rest;
                let word = engine.pages.table.word(self.hand);
                if is_wanted(word) {
                    self.survey.add(engine.eviction.victims.absence(word));
                }
                self.hand = PageIndex::new(self.hand.get() + 1);
            }
        }
        false
    }

    /// A step of the return. Whether it goes on.
    fn bring_back(
        &mut self,
        engine: &Engine,
        buffers: &mut ServeBuffers,
        longest: u64,
        room: PageCount,
    ) -> bool {
        let began_ns = thread::now_ns();
        let mut left = room.get() as usize;
        while left > 0 {
            let mut search = Search { engine, hand: self.hand, longest, looked_at: 0, is_over: false };
            // Moves and forks go on between two batches.
            let holding = engine.hold_as_bookkeeper();
            let batch_began_ns = thread::now_ns();
            let most = self.at_once.min(left);
            let returned = engine.return_pages(&holding, buffers, search.by_ref().take(most), Cause::Room);
            self.returned += returned;
            left -= returned.min(left);
            self.hand = search.hand;
            if search.is_over {
                return false;
            }
            drop(holding);
            let now_ns = thread::now_ns();
            let is_long = now_ns - batch_began_ns > BATCH_NS;
            let next = if is_long { self.at_once / 2 } else { self.at_once + self.at_once / 4 + 1 };
            self.at_once = next.clamp(1, BATCH_PAGES);
            if now_ns - began_ns > STEP_NS {
                return true;
            }
        }
        true
    }
}

/// Whether the page is in far memory, and takes room there: pages of zeros come from nowhere just as fast.
fn is_wanted(word: PageWord) -> bool {
    word.is_far() && !word.is_busy() && matches!(word.place(), Some(Place::Slot(_) | Place::Pattern(_)))
}

/// The pages that have been away for no longer than `longest`, from `hand` on.
struct Search<'a> {
    engine: &'a Engine,
    hand: PageIndex,
    longest: u64,
    looked_at: usize,
    is_over: bool,
}

impl Iterator for Search<'_> {
    type Item = PageIndex;

    fn next(&mut self) -> Option<PageIndex> {
        while self.looked_at < LOOKED_AT {
            let Some(region) = self.engine.pages.regions.from(self.hand) else {
                self.is_over = true;
                return None;
            };
            let page = region.start.max(self.hand);
            self.hand = PageIndex::new(page.get() + 1);
            self.looked_at += 1;
            let word = self.engine.pages.table.word(page);
            if is_wanted(word) && self.engine.eviction.victims.absence(word) <= self.longest {
                return Some(page);
            }
        }
        None
    }
}

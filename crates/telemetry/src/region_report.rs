//! The region report: what one process reports of its memory, region by region, when somebody asks.
//!
//! There is one report for all processes of an application, so only one is asked at a time. Nothing is
//! gathered, and nothing written, unless somebody asks.
//!
//! Invariants:
//! 1. The word of state holds the number of a question and how far it is. The supervisor alone asks, and only
//!    where nobody writes.
//! 2. The process that is asked writes between `Writing` and `Told`, which it reaches only from `Asked`: a
//!    question that was taken back finds no writer.

use core::sync::atomic::{AtomicU64, Ordering};

use farmem_page::{PageIndex, PageRange};

/// Regions that are told one by one.
pub const REPORTED_REGIONS: usize = 40;
/// Spans of absence by which far pages are told apart.
pub const ABSENCE_SPANS: usize = 4;
/// Where the spans but the last end, in ticks of the policy's clock: so much of a budget has left since in
/// sixty-fourths.
pub const ABSENCE_ENDS: [u64; ABSENCE_SPANS - 1] = [16, 64, 256];

const STATE: usize = 0;
const SLOT: usize = 1;
const TOLD: usize = 2;
const ALL: usize = 3;
const HEADER_WORDS: usize = 8;
const RECORD_WORDS: usize = 12;
/// One more record: the regions that are not told one by one, together.
pub(crate) const REGION_REPORT_WORDS: usize = HEADER_WORDS + (REPORTED_REGIONS + 1) * RECORD_WORDS;

const PHASE_BITS: u32 = 2;

/// How far a question is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
enum Phase {
    /// Nobody asks.
    Idle = 0,
    /// The process is to tell.
    Asked,
    /// It does.
    Writing,
    /// It has.
    Told,
}

impl Phase {
    const fn word(self, question: u64) -> u64 {
        question << PHASE_BITS | self as u64
    }
}

/// A region of a process's memory, in figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionFigures {
    /// Where it is.
    pub range: PageRange,
    /// Pages that are local.
    pub resident: u64,
    /// Of these, those that came back soon after they had last left.
    pub hot: u64,
    /// Pages that are in far memory.
    pub far: u64,
    /// Of these, those that take room in the pool; the others are zeros, or one word repeated.
    pub stored: u64,
    /// The bytes that they take there.
    pub stored_bytes: u64,
    /// Far pages by how long they have been away: see [`ABSENCE_ENDS`].
    pub absences: [u64; ABSENCE_SPANS],
}

impl RegionFigures {
    /// A region of which nothing is known yet.
    pub const fn new(range: PageRange) -> Self {
        Self { range, resident: 0, hot: 0, far: 0, stored: 0, stored_bytes: 0, absences: [0; ABSENCE_SPANS] }
    }

    /// Of several regions that are told together, with no place of their own.
    pub const NONE: Self = Self::new(PageRange { start: PageIndex::new(0), end: PageIndex::new(0) });

    /// Counts a far page that has been away for so many ticks; `stored_bytes` is what it takes in the pool,
    /// if anything.
    pub fn add_far(&mut self, absence: u64, stored_bytes: Option<u64>) {
        self.far += 1;
        let span = ABSENCE_ENDS.iter().position(|&end| absence < end).unwrap_or(ABSENCE_SPANS - 1);
        self.absences[span] += 1;
        if let Some(bytes) = stored_bytes {
            self.stored += 1;
            self.stored_bytes += bytes;
        }
    }

    /// Pages that hold something.
    pub const fn weight(&self) -> u64 {
        self.resident.saturating_add(self.far)
    }

    /// Counts the pages of another one with its own.
    pub fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.resident, other.resident),
            (&mut self.hot, other.hot),
            (&mut self.far, other.far),
            (&mut self.stored, other.stored),
            (&mut self.stored_bytes, other.stored_bytes),
        ];
        let spans = self.absences.iter_mut().zip(other.absences);
        for (sum, more) in sums.into_iter().chain(spans) {
            *sum = sum.saturating_add(more);
        }
    }

    fn words(&self) -> [u64; RECORD_WORDS] {
        let [first, second, third, fourth] = self.absences;
        let (start, end) = (self.range.start.get(), self.range.end.get());
        let Self { resident, hot, far, stored, stored_bytes, .. } = *self;
        [start, end, resident, hot, far, stored, stored_bytes, first, second, third, fourth, 0]
    }

    fn from_words(words: [u64; RECORD_WORDS]) -> Self {
        let [start, end, resident, hot, far, stored, stored_bytes, first, second, third, fourth, _] = words;
        let range = PageRange { start: PageIndex::new(start), end: PageIndex::new(end.max(start)) };
        let absences = [first, second, third, fourth];
        Self { range, resident, hot, far, stored, stored_bytes, absences }
    }
}

/// What a process has gathered: its regions with most pages, and the rest of them together.
#[derive(Clone, Debug)]
pub struct Gathered {
    regions: [RegionFigures; REPORTED_REGIONS],
    told: usize,
    all: usize,
    rest: RegionFigures,
}

impl Gathered {
    /// Nothing yet.
    pub const fn new() -> Self {
        let none = RegionFigures::NONE;
        Self { regions: [none; REPORTED_REGIONS], told: 0, all: 0, rest: none }
    }

    /// Begins again.
    pub fn clear(&mut self) {
        (self.told, self.all, self.rest) = (0, 0, RegionFigures::NONE);
    }

    /// Adds a region. Where there are too many, the one with the fewest pages goes to the rest.
    pub fn add(&mut self, region: RegionFigures) {
        self.all += 1;
        if let Some(place) = self.regions.get_mut(self.told) {
            *place = region;
            self.told += 1;
            return;
        }
        let mut least = region;
        if let Some(place) = self.regions.iter_mut().min_by_key(|place| place.weight())
            && place.weight() < region.weight()
        {
            least = core::mem::replace(place, region);
        }
        self.rest.add(&least);
    }

    /// The regions that are told one by one, in no order.
    pub fn regions(&self) -> &[RegionFigures] {
        &self.regions[..self.told]
    }

    /// The others together.
    pub fn rest(&self) -> &RegionFigures {
        &self.rest
    }

    /// How many regions there are in all.
    pub fn count(&self) -> usize {
        self.all
    }
}

impl Default for Gathered {
    fn default() -> Self {
        Self::new()
    }
}

/// A view of the report in the ledger.
#[derive(Clone, Copy, Debug)]
pub struct RegionReport<'a> {
    pub(crate) words: &'a [AtomicU64],
}

impl RegionReport<'_> {
    /// Asks the process in that slot (supervisor). The question's number; `None` while somebody writes.
    pub fn ask(&self, slot: usize) -> Option<u64> {
        let state = self.words[STATE].load(Ordering::Acquire);
        let (question, phase) = (state >> PHASE_BITS, state & ((1 << PHASE_BITS) - 1));
        if phase == Phase::Writing as u64 || phase == Phase::Asked as u64 {
            return None;
        }
        let next = (question + 1) & (u64::MAX >> PHASE_BITS);
        self.words[SLOT].store(slot as u64, Ordering::Relaxed);
        self.words[STATE].store(Phase::Asked.word(next), Ordering::Release);
        Some(next)
    }

    /// The question that the process in that slot is asked, if it is (the process).
    pub fn question(&self, slot: usize) -> Option<u64> {
        let state = self.words[STATE].load(Ordering::Acquire);
        let is_asked = state & ((1 << PHASE_BITS) - 1) == Phase::Asked as u64;
        (is_asked && self.words[SLOT].load(Ordering::Relaxed) == slot as u64).then_some(state >> PHASE_BITS)
    }

    /// Answers a question (the process). `false` when it was taken back.
    pub fn tell(&self, question: u64, gathered: &Gathered) -> bool {
        let advance = |from: Phase, to: Phase| {
            let (from, to) = (from.word(question), to.word(question));
            self.words[STATE].compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        if !advance(Phase::Asked, Phase::Writing) {
            return false;
        }
        self.words[TOLD].store(gathered.told as u64, Ordering::Relaxed);
        self.words[ALL].store(gathered.all as u64, Ordering::Relaxed);
        for (nth, region) in gathered.regions().iter().enumerate() {
            self.write(nth, region);
        }
        self.write(REPORTED_REGIONS, &gathered.rest);
        advance(Phase::Writing, Phase::Told)
    }

    /// The answer to a question, as soon as it is there (supervisor). Numbers are what the process says; only
    /// how many regions it tells is bounded.
    pub fn answer(&self, question: u64) -> Option<Gathered> {
        if self.words[STATE].load(Ordering::Acquire) != Phase::Told.word(question) {
            return None;
        }
        let mut gathered = Gathered::new();
        gathered.told = (self.words[TOLD].load(Ordering::Relaxed) as usize).min(REPORTED_REGIONS);
        gathered.all = (self.words[ALL].load(Ordering::Relaxed) as usize).max(gathered.told);
        for nth in 0..gathered.told {
            gathered.regions[nth] = self.read(nth);
        }
        gathered.rest = self.read(REPORTED_REGIONS);
        Some(gathered)
    }

    /// Takes a question back that was not answered (supervisor). `has_gone` says that the process that was
    /// asked has ended, and so writes no more. `false` while it writes.
    pub fn take_back(&self, question: u64, has_gone: bool) -> bool {
        let idle = Phase::Idle.word(question);
        let take = |phase: Phase| {
            let word = phase.word(question);
            self.words[STATE].compare_exchange(word, idle, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        take(Phase::Asked) || take(Phase::Told) || has_gone && take(Phase::Writing)
    }

    fn write(&self, nth: usize, region: &RegionFigures) {
        for (place, word) in self.record(nth).iter().zip(region.words()) {
            place.store(word, Ordering::Relaxed);
        }
    }

    fn read(&self, nth: usize) -> RegionFigures {
        let record = self.record(nth);
        RegionFigures::from_words(core::array::from_fn(|word| record[word].load(Ordering::Relaxed)))
    }

    fn record(&self, nth: usize) -> &[AtomicU64] {
        let at = HEADER_WORDS + nth * RECORD_WORDS;
        &self.words[at..at + RECORD_WORDS]
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn words() -> Vec<AtomicU64> {
        (0..REGION_REPORT_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn region(start: u64, pages: u64) -> RegionFigures {
        let range = PageRange { start: PageIndex::new(start), end: PageIndex::new(start + pages) };
        RegionFigures { resident: pages, ..RegionFigures::new(range) }
    }

    #[test]
    fn who_is_asked_tells_and_nobody_else() {
        let words = words();
        let report = RegionReport { words: &words };
        let question = report.ask(3).unwrap();
        assert_eq!((report.question(3), report.question(2)), (Some(question), None));
        assert_eq!(report.ask(4), None, "one at a time");
        let mut gathered = Gathered::new();
        let mut far = region(8, 2);
        far.add_far(70, Some(512));
        far.add_far(0, None);
        gathered.add(far);

        assert!(report.answer(question).is_none());
        assert!(report.tell(question, &gathered));

        let told = report.answer(question).unwrap();
        assert_eq!((told.regions(), told.count()), (&[far][..], 1));
        assert_eq!((far.far, far.stored, far.stored_bytes, far.absences), (2, 1, 512, [1, 0, 1, 0]));
        assert!(report.ask(4).is_some());
    }

    #[test]
    fn a_question_that_was_taken_back_is_not_answered() {
        let words = words();
        let report = RegionReport { words: &words };
        let question = report.ask(3).unwrap();
        assert!(report.take_back(question, false));
        assert!(!report.tell(question, &Gathered::new()));
        let next = report.ask(3).unwrap();
        assert_ne!(next, question);
        words[STATE].store(Phase::Writing.word(next), Ordering::Relaxed);
        assert!(!report.take_back(next, false) && report.take_back(next, true));
    }

    #[test]
    fn the_regions_with_most_pages_are_told_and_the_others_together() {
        let mut gathered = Gathered::new();
        for nth in 0..REPORTED_REGIONS as u64 + 3 {
            gathered.add(region(1000 * nth, nth + 1));
        }
        assert_eq!((gathered.regions().len(), gathered.count()), (REPORTED_REGIONS, REPORTED_REGIONS + 3));
        assert_eq!(gathered.rest().resident, 1 + 2 + 3);
        assert!(gathered.regions().iter().all(|region| region.resident > 3));
    }

    #[test]
    fn nonsense_on_the_board_is_bounded() {
        let words: Vec<AtomicU64> = (0..REGION_REPORT_WORDS).map(|_| AtomicU64::new(u64::MAX)).collect();
        let report = RegionReport { words: &words };
        words[STATE].store(Phase::Told.word(7), Ordering::Relaxed);
        let told = report.answer(7).unwrap();
        assert_eq!(told.regions().len(), REPORTED_REGIONS);
        assert_eq!(told.rest().weight(), u64::MAX);
    }
}

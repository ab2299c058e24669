//! The ledger's layout: a header, then one slot of words for each process.

use core::sync::atomic::{AtomicU64, Ordering};

use farmem_page::{PageCount, PageIndex};

use crate::region_report::{REGION_REPORT_WORDS, RegionReport};
use crate::trace::{TRACE_WORDS, TraceRing};
use crate::{BUCKETS, Counter, Failure, Histogram};

/// Most processes of one application at a time.
pub const MAX_PROCESSES: usize = 1024;
/// Most threads of one process that serve faults.
pub const MAX_HANDLERS: usize = 32;
/// Buckets by which pages that came back are counted: how long they had been away, as the victim policy
/// divides that.
pub const RETURN_BUCKETS: usize = 36;

const HEADER_WORDS: usize = 64;
const COUNTER_WORDS: usize = 48;
const COUNTERS_AT: usize = 16;
const HISTOGRAM_AT: usize = COUNTERS_AT + COUNTER_WORDS;
/// On a cache line of its own.
const WORK_AT: usize = HISTOGRAM_AT + BUCKETS.next_multiple_of(16);
const RETURNS_AT: usize = WORK_AT + MAX_HANDLERS;
/// Whole cache lines.
const SLOT_WORDS: usize = (RETURNS_AT + RETURN_BUCKETS).next_multiple_of(8);

/// Bytes of a ledger.
pub const LEDGER_BYTES: usize = (REGION_REPORT_AT + REGION_REPORT_WORDS) * 8;

const TRACE_AT: usize = HEADER_WORDS + MAX_PROCESSES * SLOT_WORDS;
const REGION_REPORT_AT: usize = TRACE_AT + TRACE_WORDS;

const _: () = assert!(crate::COUNTERS.len() <= COUNTER_WORDS, "every counter has a word");

/// Words that belong to the application as a whole. Written by the supervisor unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Header {
    /// Says that this is a ledger, and of which version.
    Magic = 0,
    /// The application's local budget, in pages.
    BudgetPages,
    /// Largest sum of resident pages seen.
    ResidentPeakPages,
    /// Largest sum of managed pages seen.
    ManagedPeakPages,
    /// Which fault to inject (tests only; 0 is none).
    Inject,
    /// One more than the highest slot ever given out.
    SlotsUsed,
    /// Lost pages that were named, or would have been with more room. Written by processes.
    LostNamed,
    /// Pages that living processes shared with ended ones and may now have to themselves; until they are
    /// measured again.
    Inherited,
    /// Which policy decides what is fetched ahead, by its number.
    Prefetch,
    /// Whether processes write what happens to their pages to the ring: 1, or 0.
    IsTraced,
    /// Records that were ever claimed in the ring. Written by processes.
    TraceHead,
    /// Pages that may be fetched ahead and not used yet, all processes together.
    CachePages,
    /// Whether pagers are to leave their programs: 1, or 0.
    IsWithdrawing,
    /// Pages of processes that have no pager yet: the others make room for them, as far as this says.
    ComingPages,
    /// Since when slabs are on their way out of memory, by the monotonic clock, nanoseconds; 0 while none
    /// are.
    MovingSinceNs,
}

/// Lost pages that are named; of those beyond only their number is known.
pub const LOST_NAMED: usize = 16;
/// Where their names begin, two words each.
const LOST_AT: usize = 16;
const _: () = assert!(LOST_AT + 2 * LOST_NAMED <= HEADER_WORDS, "the names of lost pages stay in the header");

/// A page that could not be read back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostPage {
    /// The process that it belonged to.
    pub process: u32,
    /// Which page.
    pub page: PageIndex,
}

/// Words of a slot that are not counters.
#[derive(Clone, Copy)]
#[repr(usize)]
enum SlotWord {
    State = 0,
    Process,
    LimitPages,
    SharedPages,
    FrozenEpoch,
    Failure,
    Heartbeat,
    HeardEpoch,
    Separated,
    IsProtected,
    Relatives,
    ChildrenPages,
    ToldEpoch,
    Rest,
}

/// The one that notices when a process that does nothing begins to do something. Values of
/// [`ProcessSlot::rest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Rest {
    /// Its own pager. The process runs, or its pager has been called.
    None = 0,
    /// Its own pager, which asks the supervisor to.
    Asked,
    /// The supervisor, which calls the pager by changing the word to [`Rest::None`].
    Watched,
}

/// What a slot is used for at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum SlotState {
    /// Nobody's.
    Free = 0,
    /// A process has connected; its memory is its own so far.
    Connected,
    /// The process's memory is under management.
    Managing,
    /// That memory has gone, and the pager of the process is about to.
    Left,
    /// All of that memory is local and nobody's but the process's own; the pager of the process is about to
    /// go.
    Withdrawn,
}

/// A view over a whole ledger.
#[derive(Clone, Copy, Debug)]
pub struct Ledger<'a> {
    words: &'a [AtomicU64],
}

/// A view over one process's slot.
#[derive(Clone, Copy, Debug)]
pub struct ProcessSlot<'a> {
    index: usize,
    words: &'a [AtomicU64],
}

/// "farmem" and the layout's version.
const MAGIC: u64 = 0x6661_726d_656d_000a;

impl<'a> Ledger<'a> {
    /// A view over the words of a ledger; `None` when they are too few.
    pub fn new(words: &'a [AtomicU64]) -> Option<Self> {
        (words.len() >= LEDGER_BYTES / 8).then_some(Self { words })
    }

    /// Marks fresh memory as a ledger of this version.
    pub fn format(&self) {
        self.header(Header::Magic).store(MAGIC, Ordering::Release);
    }

    /// Whether the memory holds a ledger of this version.
    pub fn is_valid(&self) -> bool {
        self.header(Header::Magic).load(Ordering::Acquire) == MAGIC
    }

    /// A word of the header.
    pub fn header(&self, word: Header) -> &'a AtomicU64 {
        &self.words[word as usize]
    }

    /// Whether pagers are to bring back all that is far, and leave. It is said once, for good.
    pub fn is_withdrawing(&self) -> bool {
        self.header(Header::IsWithdrawing).load(Ordering::Acquire) != 0
    }

    /// Says so (supervisor).
    pub fn withdraw(&self) {
        self.header(Header::IsWithdrawing).store(1, Ordering::Release);
    }

    /// The application's local budget.
    pub fn budget(&self) -> PageCount {
        PageCount::new(self.header(Header::BudgetPages).load(Ordering::Relaxed))
    }

    /// Changes it (supervisor). At least one page: a budget of none could never be kept.
    pub fn set_budget(&self, budget: PageCount) {
        self.header(Header::BudgetPages).store(budget.get().max(1), Ordering::Release);
    }

    /// Pages for which the processes with a pager make room: their own, those that [`Header::ComingPages`]
    /// names, and those of forked children that have no pager yet, of which at most half of the budget
    /// counts.
    pub fn wanted(&self) -> PageCount {
        let children = PageCount::new(self.slots().map(|slot| slot.children_pages().get()).sum());
        let coming = PageCount::new(self.header(Header::ComingPages).load(Ordering::Relaxed));
        self.resident() + coming + self.at_most_half(children)
    }

    /// As many of these pages of processes without a pager as others make room for: a process that is never
    /// managed must not drive all of them out.
    fn at_most_half(&self, pages: PageCount) -> PageCount {
        pages.min(PageCount::new(self.budget().get() / 2))
    }

    /// Says how many pages processes have that have no pager yet (supervisor). At most half of the budget
    /// counts.
    pub fn set_coming(&self, pages: PageCount) {
        self.header(Header::ComingPages).store(self.at_most_half(pages).get(), Ordering::Release);
    }

    /// Says that slabs are on their way out of memory from then on, or, by 0, that none are any more
    /// (supervisor).
    pub fn set_moving(&self, since_ns: u64) {
        self.header(Header::MovingSinceNs).store(since_ns, Ordering::Release);
    }

    /// Whether the storage that slabs are on their way to has made no progress for long, at that time: then a
    /// pool that is full says nothing. One batch takes milliseconds.
    pub fn is_storage_pausing(&self, now_ns: u64) -> bool {
        const PAUSING_NS: u64 = 1_000_000_000;
        let since_ns = self.header(Header::MovingSinceNs).load(Ordering::Acquire);
        since_ns != 0 && now_ns.saturating_sub(since_ns) > PAUSING_NS
    }

    /// The application's swap cache: pages that may be fetched ahead and not used yet, of all its processes
    /// together.
    pub fn cache(&self) -> PageCount {
        PageCount::new(self.header(Header::CachePages).load(Ordering::Relaxed))
    }

    /// Changes it (supervisor).
    pub fn set_cache(&self, cache: PageCount) {
        self.header(Header::CachePages).store(cache.get(), Ordering::Release);
    }

    /// The slot of that number; `None` beyond the last.
    pub fn slot(&self, index: usize) -> Option<ProcessSlot<'a>> {
        let start = HEADER_WORDS + index * SLOT_WORDS;
        let words = self.words.get(start..start + SLOT_WORDS)?;
        (index < MAX_PROCESSES).then_some(ProcessSlot { index, words })
    }

    /// The slots that have ever been given out.
    pub fn slots(&self) -> impl Iterator<Item = ProcessSlot<'a>> + use<'a> {
        let ledger = *self;
        let used = (self.header(Header::SlotsUsed).load(Ordering::Acquire) as usize).min(MAX_PROCESSES);
        (0..used).filter_map(move |index| ledger.slot(index))
    }

    /// The ring of what happens to pages.
    pub fn trace(&self) -> TraceRing<'a> {
        TraceRing {
            head: self.header(Header::TraceHead),
            words: &self.words[TRACE_AT..TRACE_AT + TRACE_WORDS],
        }
    }

    /// Where one process reports its regions.
    pub fn region_report(&self) -> RegionReport<'a> {
        RegionReport { words: &self.words[REGION_REPORT_AT..REGION_REPORT_AT + REGION_REPORT_WORDS] }
    }

    /// Names a page that could not be read back, once. May be called by several processes at once.
    pub fn name_lost(&self, lost: LostPage) {
        if self.lost().any(|named| named == lost) {
            return;
        }
        let nth = self.header(Header::LostNamed).fetch_add(1, Ordering::Relaxed) as usize;
        if nth < LOST_NAMED {
            let [process, page] = self.lost_words(nth);
            page.store(lost.page.get(), Ordering::Relaxed);
            // Last: a name counts from when its process, which is never 0, is there.
            process.store(u64::from(lost.process), Ordering::Release);
        }
    }

    /// The first [`LOST_NAMED`] pages that could not be read back.
    pub fn lost(&self) -> impl Iterator<Item = LostPage> + use<'a> {
        let ledger = *self;
        (0..LOST_NAMED).filter_map(move |nth| {
            let [process, page] = ledger.lost_words(nth);
            let process = process.load(Ordering::Acquire) as u32;
            (process != 0).then(|| LostPage { process, page: PageIndex::new(page.load(Ordering::Relaxed)) })
        })
    }

    fn lost_words(&self, nth: usize) -> [&'a AtomicU64; 2] {
        [&self.words[LOST_AT + 2 * nth], &self.words[LOST_AT + 2 * nth + 1]]
    }

    /// The application was seen to have so many pages in local memory.
    pub fn note_resident_peak(&self, resident: PageCount) {
        self.header(Header::ResidentPeakPages).fetch_max(resident.get(), Ordering::Relaxed);
    }

    /// Pages that the application has in local memory: the sum over its processes, memory that forked
    /// processes share counted once where it is protected. Never too low but for what changed while it was
    /// measured; too high by what several processes have separated from since, until it is measured again.
    pub fn resident(&self) -> PageCount {
        let inherited = self.header(Header::Inherited).load(Ordering::Relaxed) as i64;
        let credit = self.slots().map(|slot| slot.credit()).sum::<i64>() - inherited;
        self.resident_in_full().saturating_sub(PageCount::new(credit.max(0) as u64))
    }

    /// The same sum, memory that forked processes share counted for each of them: what the application would
    /// have if all of it were written.
    pub fn resident_in_full(&self) -> PageCount {
        PageCount::new(self.slots().map(|slot| slot.resident().get()).sum())
    }
}

impl<'a> ProcessSlot<'a> {
    /// Which slot.
    pub fn index(&self) -> usize {
        self.index
    }

    fn word(&self, word: SlotWord) -> &'a AtomicU64 {
        &self.words[word as usize]
    }

    /// What the slot is used for.
    pub fn state(&self) -> SlotState {
        match self.word(SlotWord::State).load(Ordering::Acquire) {
            1 => SlotState::Connected,
            2 => SlotState::Managing,
            3 => SlotState::Left,
            4 => SlotState::Withdrawn,
            _ => SlotState::Free,
        }
    }

    /// Changes what the slot is used for.
    pub fn set_state(&self, state: SlotState) {
        self.word(SlotWord::State).store(state as u64, Ordering::Release);
    }

    /// The word of a [`Rest`], on which a pager that is watched sleeps.
    pub fn rest(&self) -> &'a AtomicU64 {
        self.word(SlotWord::Rest)
    }

    /// The process does nothing: asks for a watch (its pager). Whether there is one already.
    pub fn ask_for_watch(&self) -> bool {
        let (none, asked) = (Rest::None as u64, Rest::Asked as u64);
        let before = self.rest().compare_exchange(none, asked, Ordering::AcqRel, Ordering::Acquire);
        before == Err(Rest::Watched as u64)
    }

    /// The process does something: it needs no watch (its pager).
    pub fn end_watch(&self) {
        if self.rest().load(Ordering::Relaxed) != Rest::None as u64 {
            self.rest().store(Rest::None as u64, Ordering::Release);
        }
    }

    /// Whether its pager asks for a watch, or has one (supervisor).
    pub fn rests(&self) -> bool {
        self.rest().load(Ordering::Acquire) != Rest::None as u64
    }

    /// Takes on the watch that the pager asks for (supervisor).
    pub fn watch(&self) {
        let (asked, watched) = (Rest::Asked as u64, Rest::Watched as u64);
        let _ = self.rest().compare_exchange(asked, watched, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The process's number.
    pub fn process(&self) -> u32 {
        self.word(SlotWord::Process).load(Ordering::Relaxed) as u32
    }

    /// Gives the slot to a process, all figures at zero.
    pub fn assign(&self, process: u32) {
        for word in self.words {
            word.store(0, Ordering::Relaxed);
        }
        self.word(SlotWord::Process).store(u64::from(process), Ordering::Relaxed);
        self.set_state(SlotState::Connected);
    }

    /// Pages that this process may have in local memory.
    pub fn limit(&self) -> PageCount {
        PageCount::new(self.word(SlotWord::LimitPages).load(Ordering::Relaxed))
    }

    /// Changes that limit.
    pub fn set_limit(&self, limit: PageCount) {
        self.word(SlotWord::LimitPages).store(limit.get(), Ordering::Relaxed);
    }

    /// Resident pages of this process, those that it shares counted in full.
    pub fn resident(&self) -> PageCount {
        match self.state() {
            SlotState::Free => PageCount::ZERO,
            _ => PageCount::new(self.get(Counter::ResidentPages)),
        }
    }

    /// Of the resident pages, those that count with other processes, since a fork left them shared. Memory
    /// that isn't protected can cease to be shared at any moment and unnoticed, so it counts in full. Below
    /// zero when more was separated from than was known to be shared.
    pub fn credit(&self) -> i64 {
        if self.state() == SlotState::Free || !self.is_protected() {
            return 0;
        }
        self.word(SlotWord::SharedPages).load(Ordering::Relaxed).wrapping_sub(self.separated()) as i64
    }

    /// Says that `shared` pages counted with other processes when [`ProcessSlot::separated`] was `separated`
    /// (supervisor; in a new child the process itself). What was separated from since then is taken off.
    pub fn set_shared(&self, shared: PageCount, separated: u64) {
        self.word(SlotWord::SharedPages).store(separated.wrapping_add(shared.get()), Ordering::Relaxed);
    }

    /// Shared pages that the process has made its own or has left, since it began.
    pub fn separated(&self) -> u64 {
        self.word(SlotWord::Separated).load(Ordering::Relaxed)
    }

    /// Counts such pages; at the latest when they are (the process itself).
    pub fn separate(&self, count: PageCount) {
        self.word(SlotWord::Separated).fetch_add(count.get(), Ordering::Relaxed);
    }

    /// Whether the process hears of writes to memory that forks have left shared before they happen.
    pub fn is_protected(&self) -> bool {
        self.word(SlotWord::IsProtected).load(Ordering::Acquire) != 0
    }

    /// Changes that (the process itself).
    pub fn set_protected(&self, is_protected: bool) {
        self.word(SlotWord::IsProtected).store(u64::from(is_protected), Ordering::Release);
    }

    /// Pages that forked children have made their own while this process's pager serves them.
    pub fn children_pages(&self) -> PageCount {
        match self.state() {
            SlotState::Free => PageCount::ZERO,
            _ => PageCount::new(self.word(SlotWord::ChildrenPages).load(Ordering::Relaxed)),
        }
    }

    /// Says how many those are (the process itself).
    pub fn set_children_pages(&self, pages: PageCount) {
        self.word(SlotWord::ChildrenPages).store(pages.get(), Ordering::Relaxed);
    }

    /// Living processes that it may share memory with since a fork.
    pub fn relatives(&self) -> u64 {
        self.word(SlotWord::Relatives).load(Ordering::Acquire)
    }

    /// Changes that figure (supervisor).
    pub fn set_relatives(&self, count: u64) {
        self.word(SlotWord::Relatives).store(count, Ordering::Release);
    }

    /// There is at least one, whom nobody has counted yet.
    pub fn expect_relative(&self) {
        self.set_relatives(self.relatives().max(1));
    }

    /// The latest fork whose child still needs the process's stored pages (supervisor).
    pub fn frozen_epoch(&self) -> u64 {
        self.word(SlotWord::FrozenEpoch).load(Ordering::Acquire)
    }

    /// Changes that figure.
    pub fn set_frozen_epoch(&self, epoch: u64) {
        self.word(SlotWord::FrozenEpoch).store(epoch, Ordering::Release);
    }

    /// Whether the supervisor has yet to hear of a fork: what the process shares with that child is in
    /// nobody's figures.
    pub fn is_fork_unheard(&self) -> bool {
        self.word(SlotWord::ToldEpoch).load(Ordering::Acquire) > self.heard_epoch()
    }

    /// The supervisor is about to be told of that fork (the process itself).
    pub fn note_told_epoch(&self, epoch: u64) {
        self.word(SlotWord::ToldEpoch).fetch_max(epoch, Ordering::AcqRel);
    }

    /// The latest fork that the supervisor has heard of.
    pub fn heard_epoch(&self) -> u64 {
        self.word(SlotWord::HeardEpoch).load(Ordering::Acquire)
    }

    /// The supervisor has heard of that fork. Of one by a child that the process keeps it hears under the
    /// number of the child's own, which may be an earlier one.
    pub fn note_heard_epoch(&self, epoch: u64) {
        self.word(SlotWord::HeardEpoch).fetch_max(epoch, Ordering::AcqRel);
    }

    /// Why the process can't go on; `None` while it can.
    pub fn failure(&self) -> Option<Failure> {
        Failure::from_bits(self.word(SlotWord::Failure).load(Ordering::Acquire))
    }

    /// Says why the process can't go on.
    pub fn set_failure(&self, failure: Failure) {
        self.word(SlotWord::Failure).store(failure.bits(), Ordering::Release);
    }

    /// Shows that the pager is alive.
    pub fn beat(&self) {
        self.word(SlotWord::Heartbeat).fetch_add(1, Ordering::Relaxed);
    }

    /// How often it has shown that.
    pub fn heartbeat(&self) -> u64 {
        self.word(SlotWord::Heartbeat).load(Ordering::Relaxed)
    }

    /// What that handler, of fewer than [`MAX_HANDLERS`], has in hand: a number of its own for each piece of
    /// work, 0 for nothing. Written by the handler alone. Work whose number stays is work that doesn't come
    /// to an end.
    pub fn work(&self, handler: usize) -> &'a AtomicU64 {
        &self.words[WORK_AT..][..MAX_HANDLERS][handler]
    }

    /// A figure.
    pub fn get(&self, counter: Counter) -> u64 {
        self.words[COUNTERS_AT + counter as usize].load(Ordering::Relaxed)
    }

    /// Adds to a figure.
    pub fn add(&self, counter: Counter, amount: u64) {
        self.words[COUNTERS_AT + counter as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// Takes from a figure, at most down to zero.
    pub fn subtract(&self, counter: Counter, amount: u64) {
        let word = &self.words[COUNTERS_AT + counter as usize];
        let _ = word
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |value| Some(value.saturating_sub(amount)));
    }

    /// Sets a figure.
    pub fn set(&self, counter: Counter, value: u64) {
        self.words[COUNTERS_AT + counter as usize].store(value, Ordering::Relaxed);
    }

    /// Counts a page that came back because it was wanted, by the bucket of its absence.
    pub fn note_return(&self, bucket: usize) {
        if let Some(word) = self.return_words().get(bucket) {
            word.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The pages that came back, by the bucket of their absence.
    pub fn returns(&self) -> [u64; RETURN_BUCKETS] {
        let words = self.return_words();
        core::array::from_fn(|bucket| words[bucket].load(Ordering::Relaxed))
    }

    fn return_words(&self) -> &'a [AtomicU64] {
        &self.words[RETURNS_AT..RETURNS_AT + RETURN_BUCKETS]
    }

    /// How long faults took, from when the pager read them to when the thread could go on.
    pub fn fault_latency(&self) -> Histogram<'a> {
        Histogram::new(&self.words[HISTOGRAM_AT..HISTOGRAM_AT + BUCKETS])
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn words() -> Vec<AtomicU64> {
        (0..LEDGER_BYTES / 8).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn slots_do_not_overlap() {
        let words = words();
        let ledger = Ledger::new(&words).unwrap();
        ledger.slot(3).unwrap().assign(77);
        ledger.slot(3).unwrap().fault_latency().record(u64::MAX);
        for handler in 0..MAX_HANDLERS {
            ledger.slot(3).unwrap().work(handler).store(u64::MAX, Ordering::Relaxed);
        }
        (0..=RETURN_BUCKETS).for_each(|bucket| ledger.slot(3).unwrap().note_return(bucket));
        assert_eq!(ledger.slot(3).unwrap().returns(), [1; RETURN_BUCKETS]);
        assert_eq!(ledger.slot(2).unwrap().process(), 0);
        assert_eq!(ledger.slot(4).unwrap().state(), SlotState::Free);
        assert_eq!(ledger.slot(3).unwrap().process(), 77);
    }

    fn with_processes(words: &[AtomicU64], resident: &[u64]) {
        let ledger = Ledger::new(words).unwrap();
        ledger.header(Header::SlotsUsed).store(resident.len() as u64 + 1, Ordering::Release);
        for (index, &resident) in resident.iter().enumerate() {
            let slot = ledger.slot(index).unwrap();
            slot.assign(100 + index as u32);
            slot.set(Counter::ResidentPages, resident);
            slot.set_protected(true);
        }
    }

    #[test]
    fn the_sum_counts_shared_pages_once_and_free_slots_not_at_all() {
        let words = words();
        let ledger = Ledger::new(&words).unwrap();
        with_processes(&words, &[10, 8]);
        ledger.slot(1).unwrap().set_shared(PageCount::new(5), 0);
        assert_eq!(ledger.resident(), PageCount::new(13));
        assert_eq!(ledger.resident_in_full(), PageCount::new(18));
    }

    #[test]
    fn pages_that_either_process_separates_from_count_again() {
        let words = words();
        let ledger = Ledger::new(&words).unwrap();
        with_processes(&words, &[10, 10]);
        ledger.slot(1).unwrap().set_shared(PageCount::new(10), 0);
        ledger.slot(0).unwrap().separate(PageCount::new(3));
        ledger.slot(1).unwrap().separate(PageCount::new(4));
        assert_eq!(ledger.resident(), PageCount::new(17));
        // Measured again, half of each shared page with either; one was separated from during the
        // measurement.
        ledger.slot(0).unwrap().set_shared(PageCount::new(2), 2);
        ledger.slot(1).unwrap().set_shared(PageCount::new(2), 4);
        assert_eq!(ledger.resident(), PageCount::new(17));
    }

    #[test]
    fn shared_pages_that_are_not_protected_count_in_full() {
        let words = words();
        let ledger = Ledger::new(&words).unwrap();
        with_processes(&words, &[10, 10]);
        let slot = ledger.slot(1).unwrap();
        slot.set_shared(PageCount::new(10), 0);
        slot.set_protected(false);
        assert_eq!(ledger.resident(), PageCount::new(20));
    }

    #[test]
    fn more_separated_than_shared_counts_each_process_in_full_and_no_more() {
        let words = words();
        let ledger = Ledger::new(&words).unwrap();
        with_processes(&words, &[10, 10]);
        ledger.slot(0).unwrap().separate(PageCount::new(7));
        assert_eq!(ledger.resident(), PageCount::new(20));
    }

    #[test]
    fn storage_pauses_while_one_batch_takes_long() {
        let words = words();
        let ledger = Ledger::new(&words).unwrap();
        assert!(!ledger.is_storage_pausing(u64::MAX));
        ledger.set_moving(5_000_000_000);
        assert!(!ledger.is_storage_pausing(5_900_000_000) && ledger.is_storage_pausing(7_000_000_000));
        assert!(!ledger.is_storage_pausing(0));
        ledger.set_moving(0);
        assert!(!ledger.is_storage_pausing(7_000_000_000));
    }

    #[test]
    fn a_fork_is_unheard_from_when_it_is_told_of() {
        let words = words();
        with_processes(&words, &[1]);
        let slot = Ledger::new(&words).unwrap().slot(0).unwrap();
        assert!(!slot.is_fork_unheard());
        slot.note_told_epoch(3);
        slot.note_heard_epoch(2);
        assert!(slot.is_fork_unheard());
        slot.note_heard_epoch(3);
        assert!(!slot.is_fork_unheard());
    }

    #[test]
    fn lost_pages_are_named_until_there_is_no_room_for_more() {
        let words = words();
        let ledger = Ledger::new(&words).unwrap();
        let lost = |nth: u64| LostPage { process: 7 + nth as u32, page: PageIndex::new(0x1000 + nth) };
        let named = LOST_NAMED as u64;
        (0..named + 3).for_each(|nth| ledger.name_lost(lost(nth)));
        ledger.name_lost(lost(2));
        assert_eq!(ledger.lost().collect::<Vec<_>>(), (0..named).map(lost).collect::<Vec<_>>());
        assert_eq!(ledger.slots().count(), 0, "the header's other words are untouched");
    }

    #[test]
    fn a_watch_begins_when_the_supervisor_takes_it_on_and_ends_with_either() {
        let words = words();
        with_processes(&words, &[1]);
        let slot = Ledger::new(&words).unwrap().slot(0).unwrap();
        slot.watch();
        assert!(!slot.rests(), "nobody has asked");
        assert!(!slot.ask_for_watch() && !slot.ask_for_watch() && slot.rests());
        slot.watch();
        assert!(slot.ask_for_watch());
        slot.end_watch();
        slot.watch();
        assert!(!slot.rests() && !slot.ask_for_watch());
    }

    #[test]
    fn too_little_memory_is_no_ledger() {
        assert!(Ledger::new(&[]).is_none());
    }
}

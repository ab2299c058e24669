//! Readahead for several sequential and strided streams at once: tier 1 of Canvas (§5.2), which takes it from
//! the readahead of Linux for mapped memory.
//!
//! A *stream* is a row of faults with one stride. It has a *window*: the pages that were advised at its last
//! fault and that nothing is known of yet. The pages of a window raise no fault when they are used, so the
//! proof is the next fault: if it falls right behind the window, the program came through it. Then the next
//! window is twice as long.
//!
//! A first window is a guess, a *trial*, and is paid from an *allowance*: so many pages at the start, one
//! more with every [`FAULTS_PER_PAGE`] faults, and twice its price back for every trial that succeeded.
//! Random faults use up the allowance and then cost nothing. A long line of faults is proof enough to go
//! without: four at first, twice as many after each such trial, a quarter after a trial that succeeded. Later
//! windows of a stream need no allowance, since each is at most twice as long as one that was used: of what a
//! stream fetches about half is used at worst, apart from its trial.
//!
//! A stride of more than [`STRIDE_LIMIT`] pages, such as that of a matrix's columns, is told by the faults of
//! one thread alone ([`Paces`]). Between the pages of its window lie those of others, so nothing but a fault
//! exactly on its path continues it.
//!
//! What all windows hold together is bounded ([`Prefetcher::set_cache`]): it is Farmem's swap cache, memory
//! that the program isn't known to use. A window for which there is no room is shorter, and a stream that is
//! over makes way for it; where the bound falls, the streams that were idle longest end first.
//!
//! Invariants:
//! 1. `windows[i]` is empty (`span == 0`) exactly when `streams[i].stride == 0`; else it holds the pages at
//!    which a fault continues stream `i`.
//! 2. `streams[i].window <= window_limit`.
//! 3. No window that is opened brings the sum of all above `cache_pages`.

use farmem_page::{PageIndex, PageRange};

use super::paces::{FAR_LIMIT, Paces};
use super::record::{Line, Record, STRIDE_LIMIT};
use super::{Advice, Fault, MOST_WINDOWS, Prefetcher, Run};

/// Streams followed at once.
const STREAMS: usize = MOST_WINDOWS;
/// Longest window that can be asked for, in pages.
const WINDOW_LIMIT: u32 = 128;
/// Pages of a first window when nothing is known.
const TRIAL_PAGES: u32 = 2;
/// Pages of a first window when trials have succeeded lately.
const TRIAL_PAGES_LIMIT: u32 = 8;
/// The allowance grows by a page with so many faults: at most 0.4 useless pages in 100 random faults.
const FAULTS_PER_PAGE: u32 = 256;
/// Pages of allowance at the start, and what time alone can bring it back to.
const ALLOWANCE_START: u32 = 32;
/// Pages of allowance that success can bring it to.
const ALLOWANCE_LIMIT: u32 = 128;
/// Faults in line that are proof enough for a trial without allowance: at first, and at most.
const PROOF_START: u32 = 4;
const PROOF_LIMIT: u32 = 64;
/// Trust from which a stream may skip pages (they were local already) and stray from its path.
const TRUSTED: u32 = 2;
/// Trust that is enough: a stream that goes astray must lose it soon.
const TRUST_LIMIT: u32 = 4;
/// Longest skip, in strides.
const SKIP_LIMIT: u32 = 16;
/// Faults without a sign of life after which a stream is over; twice as many with each step of trust. Among
/// random faults a stream that waits for long is met by chance.
const IDLE_FAULTS: u32 = 128;
/// Places for the streams that threads met last.
const HINTS: usize = 16;

/// One row of faults. Free while `stride` is 0.
#[derive(Clone, Copy, Debug)]
struct Stream {
    stride: i64,
    /// The page right behind the window.
    next: u64,
    /// Pages in the window; 0 for a stream that is only watched.
    window: u32,
    /// Faults in line, as long as the stream is only watched.
    length: u32,
    /// Windows that were used, less those that were not quite, at most [`TRUST_LIMIT`].
    trust: u32,
    /// Whether the window was paid from the allowance.
    is_trial: bool,
    /// Number of the fault that touched the stream last.
    touched: u32,
}

/// Pages at which a fault continues a stream: `span` pages from `low`.
#[derive(Clone, Copy, Debug)]
struct Window {
    low: u64,
    span: u64,
}

/// Follows up to sixteen forward, backward or strided streams, found from recent faults.
///
/// About a kilobyte, no allocation. Not synchronised.
#[derive(Clone, Debug)]
pub struct Streams {
    windows: [Window; STREAMS],
    streams: [Stream; STREAMS],
    record: Record,
    paces: Paces,
    /// Which stream the threads met last, by a few bits of the thread's number.
    hints: [u8; HINTS],
    /// Faults so far; wraps.
    faults: u32,
    /// In parts of a page: [`FAULTS_PER_PAGE`] of them are a page.
    allowance: u32,
    /// Faults in line that are proof enough for a trial without allowance.
    proof: u32,
    window_limit: u32,
    /// Pages that all windows may hold together.
    cache_pages: u32,
}

impl Streams {
    /// Windows grow up to `window_pages`, at least 1 and at most 128.
    pub fn new(window_pages: u32) -> Self {
        Self {
            windows: [NO_WINDOW; STREAMS],
            streams: [NO_STREAM; STREAMS],
            record: Record::new(),
            paces: Paces::new(),
            hints: [0; HINTS],
            faults: 0,
            allowance: ALLOWANCE_START * FAULTS_PER_PAGE,
            proof: PROOF_START,
            window_limit: window_pages.clamp(1, WINDOW_LIMIT),
            cache_pages: u32::MAX,
        }
    }

    /// Pages that there is room for in a window of stream `index`, its present one settled.
    fn room(&self, index: usize) -> u32 {
        self.cache_pages.saturating_sub(self.unsettled_pages() - self.streams[index].window)
    }

    /// The stream that a fault on `page` continues. Streams of the faulting thread come first.
    fn find(&self, page: u64, hint: usize) -> Option<usize> {
        if self.windows[hint].holds(page) && self.continues(hint, page) {
            return Some(hint);
        }
        (0..STREAMS).find(|&index| self.windows[index].holds(page) && self.continues(index, page))
    }

    /// Whether `page` lies on the stream's path, or close enough to it for a stream that has proved itself.
    fn continues(&self, index: usize, page: u64) -> bool {
        let stream = &self.streams[index];
        let may_stray = stream.trust >= TRUSTED && stream.stride.abs() <= STRIDE_LIMIT;
        may_stray || stream.distance(page) % stream.stride == 0
    }

    /// A fault on the path of stream `index`: settles its window and opens the next one.
    fn advance(&mut self, index: usize, page: u64, bounds: PageRange) -> Advice {
        let mut stream = self.streams[index];
        let steps = stream.distance(page).div_euclid(stream.stride);
        let is_on_path = stream.distance(page) % stream.stride == 0;
        let mut advice = Advice::default();
        let wanted;
        if stream.window == 0 {
            stream.length = stream.length.saturating_add(1);
            let length = stream.length;
            wanted = self.trial_pages(length, self.room(index));
        } else if steps >= 0 && is_on_path {
            advice.used = stream.settle(0, stream.window);
            if stream.is_trial {
                let earned = 2 * stream.window * FAULTS_PER_PAGE;
                self.allowance = (self.allowance + earned).min(ALLOWANCE_LIMIT * FAULTS_PER_PAGE);
            }
            let is_close = steps <= 1;
            stream.trust =
                if is_close { (stream.trust + 1).min(TRUST_LIMIT) } else { stream.trust.saturating_sub(1) };
            wanted = if is_close { (stream.window * 2).min(self.window_limit) } else { stream.window };
        } else {
            // Inside the window, or next to the path: part of it was of no use, or it was never fetched.
            let used = (stream.window as i64 + steps).clamp(0, stream.window as i64) as u32;
            advice.used = stream.settle(0, used);
            advice.expired = stream.settle(used + 1, stream.window);
            wanted = if stream.trust > 0 { (stream.window / 2).max(1) } else { 0 };
            // A fault on its very first page says that the pager had no room for the window: no fault of the
            // stream.
            let is_refused = used == 0 && is_on_path;
            stream.trust = stream.trust.saturating_sub(!is_refused as u32);
            stream.length = 1;
        }
        stream.is_trial = stream.window == 0;
        let run = Run::behind(PageIndex::new(page), stream.stride, wanted.min(self.room(index)), bounds);
        stream.open(page, run, self.faults);
        self.windows[index] = stream.reach();
        self.streams[index] = stream;
        if advice.expired.is_none() && self.room(index) < self.window_limit {
            advice.expired = self.make_way();
        }
        self.record.push(page);
        advice.fetch = run;
        advice
    }

    /// A fault that continues no stream: begins one if it is in line with others.
    fn observe(&mut self, page: u64, thread_line: Option<Line>, bounds: PageRange, hint: usize) -> Advice {
        let line = self.record.line_to(page).or(thread_line);
        self.record.push(page);
        let Some(Line { stride, length }) = line else {
            return Advice { expired: self.expire(), ..Advice::default() };
        };
        let index = self.oldest();
        let expired = self.streams[index].unsettled();
        let wanted = self.trial_pages(length, self.room(index));
        let run = Run::behind(PageIndex::new(page), stride, wanted, bounds);
        let mut stream = Stream { stride, length, is_trial: true, ..NO_STREAM };
        stream.open(page, run, self.faults);
        self.windows[index] = stream.reach();
        self.streams[index] = stream;
        self.hints[hint] = index as u8;
        Advice { fetch: run, used: None, expired }
    }

    /// The stream to give up for a new one: a free place, else the one idle longest, where a stream that
    /// proved itself counts as touched later than it was.
    fn oldest(&self) -> usize {
        (0..STREAMS).max_by_key(|&index| self.idle(index)).unwrap_or(0)
    }

    /// For how many faults a stream has been idle, most of all a free place.
    fn idle(&self, index: usize) -> u32 {
        let stream = &self.streams[index];
        let grace = if stream.trust > 0 { STREAMS as u32 * 8 } else { 0 };
        if stream.stride == 0 {
            u32::MAX
        } else {
            self.faults.wrapping_sub(stream.touched).saturating_sub(grace)
        }
    }

    /// Ends a stream that has been idle for too long, looking at one stream per call.
    fn expire(&mut self) -> Option<Run> {
        let index = self.faults as usize % STREAMS;
        self.is_over(index).then(|| self.end(index)).flatten()
    }

    /// Ends a stream that has been idle for too long and whose window takes room, for the sake of later
    /// windows.
    fn make_way(&mut self) -> Option<Run> {
        let index = (0..STREAMS).find(|&index| self.streams[index].window > 0 && self.is_over(index))?;
        self.end(index)
    }

    fn is_over(&self, index: usize) -> bool {
        let stream = &self.streams[index];
        stream.stride != 0 && self.faults.wrapping_sub(stream.touched) >= IDLE_FAULTS << stream.trust
    }

    /// Pages for a first window, at most `room`, paid from the allowance unless `length` faults in line are
    /// proof enough; 0 when neither suffices.
    fn trial_pages(&mut self, length: u32, room: u32) -> u32 {
        if room == 0 {
            return 0;
        }
        let trial = self.allowance / FAULTS_PER_PAGE / TRIAL_PAGES_LIMIT / 2;
        let trial = trial.clamp(TRIAL_PAGES, TRIAL_PAGES_LIMIT);
        let price = trial * FAULTS_PER_PAGE;
        let pages = if price <= self.allowance {
            self.allowance -= price;
            trial
        } else if length >= self.proof {
            self.proof = (self.proof * 2).min(PROOF_LIMIT);
            TRIAL_PAGES
        } else {
            0
        };
        pages.min(self.window_limit).min(room)
    }

    fn end(&mut self, index: usize) -> Option<Run> {
        let unsettled = self.streams[index].unsettled();
        self.streams[index] = NO_STREAM;
        self.windows[index] = NO_WINDOW;
        unsettled
    }
}

impl Default for Streams {
    /// Windows of up to 64 pages.
    fn default() -> Self {
        Self::new(64)
    }
}

impl Prefetcher for Streams {
    fn on_fault(&mut self, fault: Fault, bounds: PageRange) -> Advice {
        if !bounds.contains(fault.page) {
            return Advice::default();
        }
        self.faults = self.faults.wrapping_add(1);
        if self.allowance < ALLOWANCE_START * FAULTS_PER_PAGE {
            self.allowance += 1;
        }
        let page = fault.page.get();
        let hint = fault.thread as usize % HINTS;
        let thread_line = self.paces.line_to(fault.thread, page);
        match self.find(page, self.hints[hint] as usize % STREAMS) {
            Some(index) => {
                self.hints[hint] = index as u8;
                self.advance(index, page, bounds)
            }
            None => self.observe(page, thread_line, bounds, hint),
        }
    }

    fn forget(&mut self, range: PageRange) {
        self.record.forget(range.start.get(), range.end.get());
        for index in 0..STREAMS {
            let pages = self.streams[index].unsettled().map(Run::span);
            let next = PageIndex::new(self.streams[index].next);
            if range.contains(next) || pages.is_some_and(|pages| !pages.intersect(range).is_empty()) {
                self.end(index);
            }
        }
    }

    fn drain(&mut self) -> Option<Run> {
        (0..STREAMS).find_map(|index| self.end(index))
    }

    fn set_cache(&mut self, pages: u32) {
        self.cache_pages = pages;
    }

    /// Ends the streams that were idle longest.
    fn shrink(&mut self) -> Option<Run> {
        if self.unsettled_pages() <= self.cache_pages {
            return None;
        }
        let open = (0..STREAMS).filter(|&index| self.streams[index].window > 0);
        self.end(open.max_by_key(|&index| self.idle(index))?)
    }

    fn unsettled_pages(&self) -> u32 {
        self.streams.iter().map(|stream| stream.window).sum()
    }
}

impl Stream {
    /// Pages from behind the window to `page`: 0 or more along the stride when the whole window lies in
    /// between.
    fn distance(&self, page: u64) -> i64 {
        page.wrapping_sub(self.next) as i64
    }

    /// The pages of the window from position `from` up to, not including, `to`.
    fn settle(&self, from: u32, to: u32) -> Option<Run> {
        let count = to.checked_sub(from).filter(|&count| count > 0)?;
        let start = self.next.wrapping_add_signed(-self.stride * (self.window - from) as i64);
        Some(Run { start: PageIndex::new(start), stride: self.stride, count })
    }

    fn unsettled(&self) -> Option<Run> {
        self.settle(0, self.window)
    }

    fn open(&mut self, page: u64, run: Option<Run>, now: u32) {
        self.window = run.map_or(0, |run| run.count);
        self.next = page.wrapping_add_signed(self.stride * (self.window as i64 + 1));
        self.touched = now;
    }

    /// Where a fault continues the stream: in the window, right behind it, or a few strides on.
    fn reach(&self) -> Window {
        let skip = match self.window {
            0 => 0,
            _ if self.trust < TRUSTED => 1,
            window => (window / 2).clamp(1, SKIP_LIMIT),
        };
        let first = self.next.wrapping_add_signed(-self.stride * self.window as i64);
        let last = self.next.wrapping_add_signed(self.stride * skip as i64);
        let (low, high) = if self.stride < 0 { (last, first) } else { (first, last) };
        Window { low, span: high.wrapping_sub(low).wrapping_add(1) }
    }
}

impl Window {
    fn holds(&self, page: u64) -> bool {
        page.wrapping_sub(self.low) < self.span
    }
}

const NO_STREAM: Stream =
    Stream { stride: 0, next: 0, window: 0, length: 0, trust: 0, is_trial: false, touched: 0 };
const NO_WINDOW: Window = Window { low: 0, span: 0 };

const _: () = assert!(STREAMS <= u8::MAX as usize, "a hint holds the number of a stream");
const _: () =
    assert!(ALLOWANCE_LIMIT * FAULTS_PER_PAGE < u32::MAX / 2, "an allowance can be added to itself");
const _: () =
    assert!(TRIAL_PAGES_LIMIT <= ALLOWANCE_START, "the allowance at rest pays for the longest trial");
const _: () =
    assert!(WINDOW_LIMIT as i64 * FAR_LIMIT < 1 << 20, "no window reaches around the address space");
const _: () = assert!(STRIDE_LIMIT < FAR_LIMIT, "what one thread tells reaches farther");

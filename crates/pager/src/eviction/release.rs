//! Reservations: entries that resident pages keep, given back while the partition is short of room (Canvas
//! §5.1).
//!
//! A scan over the resident pages, a part of it in each of the bookkeeper's rounds; which pages give their
//! entries back is [`Reservations`]' to say. Nothing of it happens on the path of a fault.

use farmem_page::{PageIndex, PageRange, Place};
use farmem_policy::{Pressure, Reservations, VictimPolicy};
use farmem_sys::pagemap::{Runs, SCAN_PAGES};
use farmem_sys::thread;
use farmem_telemetry::Counter;

use crate::engine::Engine;

/// Resident pages that a round looks at.
const VISITS: u64 = 4096;
/// Windows of [`SCAN_PAGES`] pages in which a round looks for them.
const WINDOWS: u32 = 64;
/// Entries that are given back in one go: a thread that forks or reads messages waits for no more than that.
const BATCH: usize = 64;
/// Asking what the partition holds takes at most one part of the time in so many.
const QUESTION_SHARE: u64 = 100;
/// Rounds in a row in which the pool refuses pages, after which it counts as full even if the disk below it
/// has room: the disk may be failing. A slow one gets that time to make room.
const REFUSED_ROUNDS: u32 = 4;
/// Reservations that a round gives back when the pool refuses pages: what one eviction may want.
const WANTED_WHEN_FULL: u64 = 256;

/// The scan.
pub(crate) struct Releaser {
    reservations: Reservations,
    /// Where the scan goes on; `None` where the next one is to begin.
    hand: Option<PageIndex>,
    runs: Runs,
    asked_ns: u64,
    question_ns: u64,
    refused: u64,
    refused_rounds: u32,
}

impl Releaser {
    pub(crate) fn new() -> Self {
        Self {
            reservations: Reservations::new(),
            hand: None,
            runs: Runs::empty(),
            asked_ns: 0,
            question_ns: 0,
            refused: 0,
            refused_rounds: 0,
        }
    }

    /// One round, if there is need for it. How many entries were given back.
    pub(crate) fn round(&mut self, engine: &Engine) -> u64 {
        let Some((pressure, wanted)) = self.look(engine) else { return 0 };
        let (mut released, mut visited) = (0, 0);
        for _ in 0..WINDOWS {
            if released == wanted || visited >= VISITS {
                break;
            }
            let Some(mut window) = self.next_window(engine) else { break };
            while released < wanted && !window.is_empty() {
                let mut places = [None; BATCH];
                let most = BATCH.min((wanted - released) as usize);
                window = self.take_back(engine, pressure, window, &mut places[..most]);
                self.hand = Some(window.start);
                for place in places.into_iter().flatten() {
                    // No word names the entry any more.
                    engine.vault.free(place);
                    released += 1;
                }
            }
            visited += self.runs.iter().map(|run| run.count().get()).sum::<u64>();
        }
        engine.slot.add(Counter::EntriesReleased, released);
        released
    }

    /// How much room is wanted back, and how many pages' worth. `None` when it isn't yet time to ask again.
    fn look(&mut self, engine: &Engine) -> Option<(Pressure, u64)> {
        let refused = engine.slot.get(Counter::PoolFull);
        let is_refusing = refused != self.refused;
        self.refused = refused;
        self.refused_rounds = if is_refusing { self.refused_rounds + 1 } else { 0 };
        let now_ns = thread::now_ns();
        if now_ns - self.asked_ns < self.question_ns * QUESTION_SHARE {
            return None;
        }
        let partition = engine.vault.partition();
        self.asked_ns = now_ns;
        self.question_ns = thread::now_ns() - now_ns;
        let surplus = partition.surplus().get();
        let is_full = is_refusing && (surplus > 0 || self.refused_rounds >= REFUSED_ROUNDS);
        let wanted = if is_full { surplus.max(WANTED_WHEN_FULL) } else { surplus };
        let pressure = partition.pressure(is_full);
        engine.vault.set_short(pressure > Pressure::Low);
        Some((pressure, wanted))
    }

    /// The next window of managed pages; `None` without any. Windows are aligned, as the kernel's page tables
    /// are.
    fn next_window(&mut self, engine: &Engine) -> Option<PageRange> {
        let region = match self.hand.and_then(|hand| engine.pages.regions.from(hand)) {
            Some(region) => region,
            None => {
                self.reservations.begin_scan(engine.eviction.victims.now());
                self.hand = None;
                engine.pages.regions.from(PageIndex::new(0))?
            }
        };
        let start = self.hand.map_or(region.start, |hand| hand.max(region.start));
        let window_end = (start.get() / SCAN_PAGES as u64 + 1) * SCAN_PAGES as u64;
        let window = PageRange::new(start, PageIndex::new(window_end.min(region.end.get())));
        self.hand = Some(window.end);
        Some(window)
    }

    /// Takes entries from pages of the window until `places` is full. What is left of the window.
    fn take_back(
        &mut self,
        engine: &Engine,
        pressure: Pressure,
        window: PageRange,
        places: &mut [Option<Place>],
    ) -> PageRange {
        let nothing = PageRange::new(window.end, window.end);
        let _change = engine.change_as_bookkeeper();
        // As for an eviction: what is resident stays so, and no forked child is served by these very words.
        let Some(_evictor) = engine.eviction.evictor.try_lock() else { return nothing };
        if engine.eviction.is_leaving()
            || engine.pages.files.pagemap.resident(window, &mut self.runs).is_err()
        {
            return nothing;
        }
        let mut free = places.iter_mut();
        let mut place = free.next();
        for page in self.runs.iter().flat_map(PageRange::iter) {
            let Some(out) = place else { return PageRange::new(page, window.end) };
            match self.entry_of(engine, pressure, page) {
                None => place = Some(out),
                taken => {
                    *out = taken;
                    place = free.next();
                }
            }
        }
        nothing
    }

    /// The entry that a page has given back.
    fn entry_of(&self, engine: &Engine, pressure: Pressure, page: PageIndex) -> Option<Place> {
        let gives = |word| self.reservations.gives_back(&engine.eviction.victims, pressure, word);
        let word = engine.pages.table.word(page);
        let place = word.place().filter(|place| gives(word) && engine.vault.is_freeable(*place))?;
        let taken = engine.pages.table.take_if(page, |now| now == word)?;
        engine.let_go(taken, word.with_place(None));
        Some(place)
    }
}

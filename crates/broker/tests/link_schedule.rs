//! Model checks of the link schedule: its own code over atomics whose interleavings a checker chooses. A
//! space that sleeps is woken by a bell or never: so a bell that is missed is a deadlock, which the checker
//! finds.

use std::collections::HashMap;

use farmem_broker::link_schedule::link_slot::{LinkSlot, Wish};
use farmem_broker::link_schedule::{Direction, LinkSchedule, Memory, Shared, Word};
use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::{
    Config, FailurePersistence, Runner, scheduler::PctScheduler, scheduler::RandomScheduler, thread,
};

const RUNS: usize = 6_000;
const KEY: u64 = 5;
/// Half of the least window.
const BYTES: u64 = 96 << 10;
const WINDOW: u64 = 192 << 10;

struct ModelWord(AtomicU64);

impl Word for ModelWord {
    fn get(&self) -> u64 {
        self.0.load(SeqCst)
    }
    fn set(&self, value: u64) {
        self.0.store(value, SeqCst);
    }
    fn swap_if(&self, current: u64, new: u64) -> bool {
        self.0.compare_exchange(current, new, SeqCst, SeqCst).is_ok()
    }
    fn add(&self, value: u64) -> u64 {
        self.0.fetch_add(value, SeqCst)
    }
    fn raise(&self, value: u64) {
        self.0.fetch_max(value, SeqCst);
    }
}

/// The few words that a test touches, by position.
struct ModelMemory {
    words: HashMap<usize, ModelWord>,
    /// All others: no link is there.
    nothing: ModelWord,
    sleep: Mutex<()>,
    woken: Condvar,
}

impl ModelMemory {
    /// Words of the head, of one link, and of the first slots' lines.
    fn new(link_slots: usize) -> Self {
        let head = 0..8 + 8 + link_slots * 8;
        let words = head.map(|nth| (nth, ModelWord(AtomicU64::new(0)))).collect();
        let nothing = ModelWord(AtomicU64::new(0));
        Self { words, nothing, sleep: Mutex::new(()), woken: Condvar::new() }
    }
}

impl Memory for ModelMemory {
    type Word = ModelWord;

    fn word(&self, nth: usize) -> &ModelWord {
        self.words.get(&nth).unwrap_or(&self.nothing)
    }
    fn wait(&self, nth: usize, value: u32, _: u64) {
        let mut sleeping = self.sleep.lock().unwrap();
        while self.word(nth).get() as u32 == value {
            sleeping = self.woken.wait(sleeping).unwrap();
        }
    }
    fn wake(&self, _: usize) {
        let _sleepers = self.sleep.lock().unwrap();
        self.woken.notify_all();
    }
}

fn check(test: impl Fn() + Send + Sync + Copy + 'static) {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::Print;
    Runner::new(RandomScheduler::new(RUNS), config.clone()).run(test);
    Runner::new(PctScheduler::new(3, RUNS), config).run(test);
}

fn wish(bytes: u64, weight: u32) -> Wish {
    Wish { bytes, weight, is_followed: false }
}

fn take(schedule: &LinkSchedule<ModelMemory>, link_slot: usize) -> LinkSlot {
    let lines = schedule.link(KEY, Direction::In).expect("there is one link");
    LinkSlot::take(schedule, lines, link_slot)
}

/// Asks until it may.
fn pass(schedule: &LinkSchedule<ModelMemory>, link_slot: &mut LinkSlot, wish: Wish) -> u64 {
    loop {
        let bell = link_slot.bell(schedule);
        match link_slot.ask(schedule, wish, 0) {
            Ok(under_way) => return under_way,
            Err(_) => schedule.memory().wait(link_slot.bell_at(), bell, 0),
        }
    }
}

#[test]
fn no_bell_is_missed_and_what_is_under_way_is_bounded() {
    check(|| {
        let schedule = Arc::new(LinkSchedule::new(ModelMemory::new(3)));
        let spaces: Vec<_> = (0..3)
            .map(|nth| {
                let schedule = Arc::clone(&schedule);
                thread::spawn(move || {
                    let mut link_slot = take(&schedule, nth);
                    for is_followed in [true, false] {
                        let wish = Wish { is_followed, ..wish(BYTES, nth as u32 + 1) };
                        let under_way = pass(&schedule, &mut link_slot, wish);
                        // Those who looked at the same moment may both have gone: one transfer for each other
                        // space.
                        assert!(under_way <= WINDOW + 2 * BYTES, "{under_way}");
                        link_slot.end(&schedule, BYTES, 0);
                    }
                    assert_eq!(link_slot.under_way(), 0);
                })
            })
            .collect();
        spaces.into_iter().for_each(|space| space.join().unwrap());
    });
}

#[test]
fn a_space_that_withdraws_lets_the_next_one_go() {
    check(|| {
        let schedule = Arc::new(LinkSchedule::new(ModelMemory::new(3)));
        let mut holder = take(&schedule, 0);
        pass(&schedule, &mut holder, wish(BYTES, 1));
        pass(&schedule, &mut holder, wish(BYTES, 1));
        let other = |nth: usize, withdraws: bool| {
            let schedule = Arc::clone(&schedule);
            thread::spawn(move || {
                let mut link_slot = take(&schedule, nth);
                if withdraws {
                    match link_slot.ask(&schedule, wish(BYTES, 1), 0) {
                        Ok(_) => link_slot.end(&schedule, BYTES, 0),
                        Err(_) => link_slot.withdraw(&schedule, 0),
                    }
                } else {
                    pass(&schedule, &mut link_slot, wish(BYTES, 1));
                    link_slot.end(&schedule, BYTES, 0);
                }
            })
        };
        let others = [other(1, true), other(2, false)];
        holder.end(&schedule, BYTES, 0);
        holder.end(&schedule, BYTES, 0);
        others.into_iter().for_each(|space| space.join().unwrap());
    });
}

#[test]
fn a_space_that_dies_anywhere_is_cleared_away() {
    check(|| {
        let schedule = Arc::new(LinkSchedule::new(ModelMemory::new(2)));
        let dies = {
            let schedule = Arc::clone(&schedule);
            thread::spawn(move || {
                // It has two transfers under way and waits for a third.
                let mut link_slot = take(&schedule, 0);
                let _ =
                    (0..3).map(|_| link_slot.ask(&schedule, wish(BYTES, 1), 0)).filter(Result::is_ok).count();
            })
        };
        let lives = {
            let schedule = Arc::clone(&schedule);
            thread::spawn(move || {
                let mut link_slot = take(&schedule, 1);
                for _ in 0..2 {
                    pass(&schedule, &mut link_slot, wish(BYTES, 1));
                    link_slot.end(&schedule, BYTES, 0);
                }
            })
        };
        dies.join().unwrap();
        schedule.clear(0);
        lives.join().unwrap();
    });
}

#[test]
fn a_line_that_says_anything_holds_up_others_for_milliseconds_only() {
    // Not a matter of interleavings but of time, which this test alone lets pass.
    let schedule = LinkSchedule::new(Shared::create().unwrap());
    let lines = schedule.link(KEY, Direction::In).unwrap();
    let (mut liar, mut honest) = (LinkSlot::take(&schedule, lines, 0), LinkSlot::take(&schedule, lines, 1));
    let mut waited_ms = |from_ms: u64| {
        let waited = (from_ms..from_ms + 1000)
            .find(|ms| honest.ask(&schedule, wish(BYTES, 1), ms * 1_000_000).is_ok());
        honest.end(&schedule, BYTES, from_ms * 1_000_000);
        waited.unwrap() - from_ms
    };
    assert_eq!(waited_ms(0), 0);
    // It waits with the smallest tag, and never goes.
    liar.force(&schedule, BYTES, 0);
    assert!(liar.ask(&schedule, wish(u64::MAX / 2, 1), 0).is_err());
    assert!(waited_ms(0) < 10);
    // It has all bytes of the world under way.
    liar.force(&schedule, u64::MAX / 2, 50_000_000);
    assert!((100..300).contains(&waited_ms(50)));
}

//! Which handlers take faults, and where the first of them runs. What a single handler does is in
//! [`super::handler`].

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use farmem_sys::thread::{self, Class};
use farmem_sys::wait::{self, Scope, Sleepers};
use farmem_telemetry::MAX_HANDLERS;

/// Fewer faults than this between two rounds of the bookkeeper are served well enough by one handler.
const WORTH_FAULTS: u64 = 16;

/// The handlers of a process, seen from outside.
#[derive(Debug)]
pub(crate) struct Handlers {
    /// Handlers that have been started.
    started: AtomicU32,
    /// Handlers with a smaller number may take faults.
    armed: AtomicU32,
    /// Handlers that wait for what has been stored, as for a disk.
    waiting: AtomicU32,
    /// As many are armed at least: 1, or 2 when the first can't be had back from the idle class.
    least_armed: AtomicU32,
    /// The handlers' threads; 0 for one that doesn't run. The first is the one of number 0.
    threads: [AtomicU32; MAX_HANDLERS],
    /// Whether the first is of the idle class, as the bookkeeper has made it, and nobody has taken it out
    /// since.
    is_first_idle: AtomicBool,
    /// The processor that the first stays on, plus one; 0 while it stays nowhere.
    processor: AtomicU32,
    /// A bit for each thread that has faulted lately, by the lowest bits of its number.
    faulting: AtomicU64,
    /// Whether the first, which takes all faults, looks after what the bookkeeper looks after else.
    is_watching: AtomicBool,
}

impl Handlers {
    pub(crate) const fn new() -> Self {
        Self {
            started: AtomicU32::new(0),
            armed: AtomicU32::new(1),
            waiting: AtomicU32::new(0),
            least_armed: AtomicU32::new(1),
            threads: [const { AtomicU32::new(0) }; MAX_HANDLERS],
            is_first_idle: AtomicBool::new(false),
            processor: AtomicU32::new(0),
            faulting: AtomicU64::new(0),
            is_watching: AtomicBool::new(false),
        }
    }

    /// Whether the handler of that number may take faults.
    pub(crate) fn is_armed(&self, number: u32) -> bool {
        number < self.armed.load(Ordering::Acquire)
    }

    /// Sleeps until the handler of that number may take faults.
    pub(crate) fn wait_until_armed(&self, number: u32) {
        loop {
            let armed = self.armed.load(Ordering::Acquire);
            if number < armed {
                return;
            }
            wait::wait(&self.armed, armed, None, Scope::Process);
        }
    }

    /// Whether the first takes all faults.
    pub(crate) fn is_first_alone(&self) -> bool {
        self.armed.load(Ordering::Relaxed) == 1
    }

    /// A thread of the program has faulted; whether it is another one than all that have lately.
    pub(crate) fn note_fault(&self, thread: u32) -> bool {
        let bit = 1 << (thread % 64);
        let before = self.faulting.fetch_or(bit, Ordering::Relaxed);
        before != 0 && before & bit == 0
    }

    /// From now on, or no longer, the first keeps the bookkeeper's watch.
    pub(crate) fn set_watching(&self, is_watching: bool) {
        self.is_watching.store(is_watching, Ordering::Relaxed);
    }

    /// Whether the first keeps the bookkeeper's watch.
    pub(crate) fn is_watching(&self) -> bool {
        self.is_watching.load(Ordering::Relaxed)
    }

    /// Arms as many of the `regular` handlers as threads have faulted since this was called before, in
    /// `faults` faults, and `relief` more for those that wait. How many threads these were.
    pub(crate) fn arm(&self, regular: u32, relief: u32, faults: u64) -> u32 {
        let threads = self.faulting.swap(0, Ordering::Relaxed).count_ones();
        let least = self.least_armed.load(Ordering::Relaxed).min(regular);
        let wanted = relief + if faults < WORTH_FAULTS { least } else { threads.clamp(least, regular) };
        if self.armed.swap(wanted, Ordering::AcqRel) < wanted {
            wait::wake(&self.armed, Sleepers::All, Scope::Process);
        }
        threads
    }

    /// How many have been started.
    pub(crate) fn started(&self) -> u32 {
        self.started.load(Ordering::SeqCst)
    }

    /// So many are started from now on.
    pub(crate) fn note_started(&self, count: u32) {
        self.started.store(count, Ordering::SeqCst);
    }

    /// The calling handler may have to wait for something until the value is dropped.
    pub(crate) fn wait(&self) -> Wait<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Wait(self)
    }

    /// How many wait at this moment.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether as many wait as may take faults.
    pub(crate) fn do_all_wait(&self) -> bool {
        self.waiting() >= self.armed.load(Ordering::Relaxed)
    }

    /// The first can't be relied on any more: from now on a second one is armed as well.
    pub(crate) fn need_second(&self) {
        self.least_armed.store(2, Ordering::Relaxed);
    }

    /// The calling thread is the handler of that number.
    pub(crate) fn begin(&self, number: u32) {
        self.threads[number as usize].store(thread::current(), Ordering::Release);
    }

    /// Changes the nice value of all that run.
    pub(crate) fn set_nice(&self, nice: i32) {
        for thread in &self.threads {
            let thread = thread.load(Ordering::Acquire);
            if thread != 0 {
                thread::set_nice(thread, nice);
            }
        }
    }

    /// The first stays on that processor from now on.
    pub(crate) fn note_processor(&self, processor: u32) {
        self.processor.store(processor + 1, Ordering::Release);
    }

    /// The processor that the first stays on, while it takes all faults.
    pub(crate) fn processor_of_one_alone(&self) -> Option<u32> {
        if self.is_first_alone() { self.processor.load(Ordering::Acquire).checked_sub(1) } else { None }
    }

    /// Whether the first is of the idle class.
    pub(crate) fn is_first_idle(&self) -> bool {
        self.is_first_idle.load(Ordering::Relaxed)
    }

    /// Changes the first's class. `false` when it doesn't run yet, or the kernel refuses.
    pub(crate) fn set_class_of_first(&self, class: Class) -> bool {
        let first = self.threads[0].load(Ordering::Acquire);
        let is_done = first != 0 && thread::set_class(first, class);
        if is_done {
            self.is_first_idle.store(class == Class::Idle, Ordering::Relaxed);
        }
        is_done
    }

    /// Whether the first runs.
    pub(crate) fn has_first(&self) -> bool {
        self.threads[0].load(Ordering::Acquire) != 0
    }

    /// Takes the first out of the idle class, if it is there: somebody waits for it, and it may have lost its
    /// processor.
    pub(crate) fn rouse_first(&self) {
        if self.is_first_idle() {
            // Where that isn't allowed any more, the bookkeeper's next look finds out.
            let _ = self.set_class_of_first(Class::Normal);
        }
    }
}

/// A handler that waits.
#[derive(Debug)]
pub(crate) struct Wait<'a>(&'a Handlers);

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many threads of the program fault, compared with the handlers that there are for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Crowd {
    /// One. Its handler gives way to it anyhow.
    #[default]
    One,
    /// At most one for each handler. A thread that was let go is to run at once: its next fault is there when
    /// the handler goes on, which need not sleep.
    Few,
    /// More. A handler is to serve all that wait before one of them runs.
    Many,
}

/// The crowd as rounds of the bookkeeper have found it.
#[derive(Debug, Default)]
pub(crate) struct Crowding {
    crowd: Crowd,
    /// Rounds in a row that have found another one.
    rounds: u32,
}

/// Rounds that must find the same before anything changes.
const CROWD_ROUNDS: u32 = 8;

impl Crowding {
    /// One round, in which `threads` threads faulted. The crowd, if it is another one from now on.
    pub(crate) fn look(&mut self, threads: u32, handlers: u32) -> Option<Crowd> {
        let found = match threads {
            0 => self.crowd,
            1 => Crowd::One,
            _ if threads <= handlers => Crowd::Few,
            _ => Crowd::Many,
        };
        self.rounds = if found == self.crowd { 0 } else { self.rounds + 1 };
        if self.rounds < CROWD_ROUNDS {
            return None;
        }
        *self = Self { crowd: found, rounds: 0 };
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn as_many_are_armed_as_threads_fault() {
        let handlers = Handlers::new();
        for thread in [7, 8, 9, 8] {
            handlers.note_fault(thread);
        }
        handlers.arm(8, 0, WORTH_FAULTS);
        assert!(handlers.is_armed(2) && !handlers.is_armed(3));
    }

    #[test]
    fn no_more_are_armed_than_have_been_started() {
        let handlers = Handlers::new();
        for thread in 0..9 {
            handlers.note_fault(thread);
        }
        handlers.arm(2, 0, WORTH_FAULTS);
        assert!(handlers.is_armed(1) && !handlers.is_armed(2));
    }

    #[test]
    fn those_that_wait_are_relieved_also_where_one_would_do() {
        let handlers = Handlers::new();
        let (one, other) = (handlers.wait(), handlers.wait());
        assert!(handlers.do_all_wait());
        handlers.arm(2, 3, 0);
        assert!(handlers.is_armed(3) && !handlers.is_armed(4));
        assert!(!handlers.do_all_wait() && handlers.waiting() == 2);
        drop((one, other));
        assert_eq!(handlers.waiting(), 0);
    }

    #[test]
    fn one_does_for_few_faults_unless_it_can_not_be_relied_on() {
        let handlers = Handlers::new();
        for thread in 0..9 {
            handlers.note_fault(thread);
        }
        handlers.arm(8, 0, WORTH_FAULTS - 1);
        assert!(handlers.is_first_alone());
        handlers.need_second();
        handlers.arm(8, 0, 0);
        assert!(handlers.is_armed(1) && !handlers.is_armed(2));
    }

    #[test]
    fn only_a_processor_of_one_that_is_alone_counts() {
        let handlers = Handlers::new();
        assert_eq!(handlers.processor_of_one_alone(), None, "it stays nowhere yet");
        handlers.note_processor(0);
        assert_eq!(handlers.processor_of_one_alone(), Some(0));
        assert!(!handlers.note_fault(3) && handlers.note_fault(4) && !handlers.note_fault(4));
        handlers.arm(8, 0, WORTH_FAULTS);
        assert_eq!(handlers.processor_of_one_alone(), None);
    }

    #[test]
    fn a_crowd_is_what_rounds_agree_on() {
        let mut crowding = Crowding::default();
        let mut rounds =
            |threads| (0..CROWD_ROUNDS).filter_map(|_| crowding.look(threads, 2)).collect::<Vec<_>>();
        assert_eq!(rounds(1), [], "it was one from the beginning");
        assert_eq!(rounds(2), [Crowd::Few]);
        assert_eq!(rounds(2), []);
        assert_eq!(rounds(3), [Crowd::Many]);
        assert_eq!(rounds(0), [], "a handler that rests changes nothing");
        assert_eq!(rounds(1), [Crowd::One]);
    }

    #[test]
    fn a_few_rounds_change_nothing() {
        let mut crowding = Crowding::default();
        for _ in 0..100 {
            assert_eq!((1..CROWD_ROUNDS).find_map(|_| crowding.look(5, 2)), None);
            assert_eq!(crowding.look(1, 2), None);
        }
    }
}

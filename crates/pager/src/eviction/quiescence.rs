//! Processors that stand still for the few microseconds in which pages are moved.
//!
//! Each move has the kernel flush the TLBs of all processors that run the program, and wait for them: next to
//! a running thread of the program that takes ten times as long as the move itself. A processor that runs a
//! thread of another address space has nothing to flush. So on each processor an urgent thread of the pager
//! sleeps, and whoever moves several runs of pages calls those of the other processors first. The program's
//! threads there are held up once, in the place of an interruption for each run.
//!
//! Whether that pays is measured ([`Costs`]): an idle processor has nothing to flush either, and takes long
//! to wake.

use core::array;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use farmem_sys::affinity::{self, Allowed};
use farmem_sys::wait::{self, Scope, Sleepers};
use farmem_sys::{Errno, memory, thread};

/// Processors that a program may use at most for this: to call more takes longer than it saves.
const MOST: usize = 8;
/// How long to wait for those that are called.
const CALL_NS: u64 = 40_000;
/// How long they stand still at most, should their caller have lost its processor.
const STILL_NS: u64 = 300_000;

/// How a processor's thread stands.
mod stance {
    /// There is none.
    pub(super) const ABSENT: u32 = 0;
    pub(super) const ASLEEP: u32 = 1;
    pub(super) const CALLED: u32 = 2;
    /// It has its processor.
    pub(super) const STILL: u32 = 3;
}

/// A processor that can be made to stand still.
#[derive(Debug)]
#[repr(align(64))]
struct Post {
    /// Written before there is a thread.
    processor: AtomicU32,
    /// One of [`stance`]. The thread sleeps on it.
    stance: AtomicU32,
}

impl Post {
    fn new() -> Self {
        Self { processor: AtomicU32::new(0), stance: AtomicU32::new(stance::ABSENT) }
    }

    fn is(&self, which: u32) -> bool {
        self.stance.load(Ordering::Acquire) == which
    }

    /// On its thread: sleeps until it is called, then keeps the processor until it is let go. How long it has
    /// kept it, in nanoseconds.
    fn stand(&self) -> u64 {
        while !self.is(stance::CALLED) {
            wait::wait(&self.stance, stance::ASLEEP, None, Scope::Process);
        }
        let began_ns = thread::now_ns();
        let is_called =
            self.stance.compare_exchange(stance::CALLED, stance::STILL, Ordering::AcqRel, Ordering::Acquire);
        while is_called.is_ok() && self.is(stance::STILL) && thread::now_ns() - began_ns < STILL_NS {
            thread::spin();
        }
        // Called again already, it stands again.
        let _ =
            self.stance.compare_exchange(stance::STILL, stance::ASLEEP, Ordering::AcqRel, Ordering::Acquire);
        thread::now_ns() - began_ns
    }
}

/// What becomes of the threads.
mod stage {
    /// Nobody has needed them yet.
    pub(super) const UNWANTED: u32 = 0;
    pub(super) const WANTED: u32 = 1;
    /// They have been started, or can't be.
    pub(super) const DECIDED: u32 = 2;
}

/// The processors of a program, as those see them who move its pages: one thread at a time.
#[derive(Debug)]
pub(crate) struct Quiescence {
    stage: AtomicU32,
    posts: [Post; MOST],
    /// Posts that have, or may yet have, a thread.
    count: AtomicU32,
    still_ns: AtomicU64,
}

impl Quiescence {
    pub(crate) fn new() -> Self {
        Self {
            stage: AtomicU32::new(stage::UNWANTED),
            posts: array::from_fn(|_| Post::new()),
            count: AtomicU32::new(0),
            still_ns: AtomicU64::new(0),
        }
    }

    /// On the bookkeeper: starts the threads, once they are wanted and if they may be had.
    pub(crate) fn start_if_wanted(&'static self, allowed: Option<Allowed>) {
        if self.stage.load(Ordering::Relaxed) != stage::WANTED {
            return;
        }
        self.stage.store(stage::DECIDED, Ordering::Relaxed);
        let Some(allowed) = allowed.filter(|it| (2..=MOST as u32).contains(&it.count())) else { return };
        let posts = self.posts.iter().zip((0..).map_while(|nth| allowed.nth(nth)));
        for (post, processor) in posts {
            post.processor.store(processor, Ordering::Relaxed);
            if Keeper::start(self, post).is_err() {
                // A processor that nobody keeps still spoils it for all.
                return;
            }
        }
        self.count.store(allowed.count(), Ordering::Release);
    }

    /// For how long processors have been kept still since this was called before, in nanoseconds, all
    /// together.
    pub(crate) fn take_still_ns(&self) -> u64 {
        self.still_ns.swap(0, Ordering::Relaxed)
    }

    /// Lets all processors but the caller's stand still, if they can, until what is returned is dropped.
    pub(crate) fn begin(&self) -> Option<Quiet<'_>> {
        let posts = &self.posts[..self.count.load(Ordering::Acquire) as usize];
        if posts.is_empty() {
            let stage = &self.stage;
            let _ =
                stage.compare_exchange(stage::UNWANTED, stage::WANTED, Ordering::Relaxed, Ordering::Relaxed);
            return None;
        }
        let quiet = Quiet { posts, own: thread::processor() as u32 };
        if quiet.others().any(|post| post.is(stance::ABSENT)) {
            return None;
        }
        for post in quiet.others() {
            post.stance.store(stance::CALLED, Ordering::Release);
            wait::wake(&post.stance, Sleepers::One, Scope::Process);
        }
        let began_ns = thread::now_ns();
        // Whoever comes too late finds that nobody calls any more.
        while quiet.others().any(|post| post.is(stance::CALLED)) && thread::now_ns() - began_ns < CALL_NS {
            thread::spin();
        }
        Some(quiet)
    }
}

/// While it is there, the other processors stand still.
pub(crate) struct Quiet<'a> {
    posts: &'a [Post],
    own: u32,
}

impl<'a> Quiet<'a> {
    fn others(&self) -> impl Iterator<Item = &'a Post> {
        let own = self.own;
        self.posts.iter().filter(move |post| post.processor.load(Ordering::Relaxed) != own)
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.others().for_each(|post| post.stance.store(stance::ASLEEP, Ordering::Release));
    }
}

/// The thread of a post.
struct Keeper {
    quiescence: &'static Quiescence,
    post: &'static Post,
}

impl Keeper {
    fn start(quiescence: &'static Quiescence, post: &'static Post) -> Result<(), Errno> {
        thread::spawn_with(Self::run, memory::leak(Self { quiescence, post })?)?;
        Ok(())
    }

    fn run(&'static mut self) -> ! {
        thread::name(c"farmem-quiet");
        affinity::stay_on(self.post.processor.load(Ordering::Relaxed));
        if thread::become_urgent().is_none() {
            thread::exit();
        }
        self.post.stance.store(stance::ASLEEP, Ordering::Release);
        loop {
            let still_ns = self.post.stand();
            self.quiescence.still_ns.fetch_add(still_ns, Ordering::Relaxed);
        }
    }
}

/// Moves that cost less than this are left alone: no other processor had much to flush. To call one that is
/// idle costs more than it seems, since the scheduler moves threads to a processor that becomes idle again.
const WORTH_NS: u64 = 8_000;
/// Fewer runs aren't worth a call.
const FEWEST_RUNS: u64 = 4;
/// Of so many batches one is moved without a call, to see what that costs by now.
const TRIED: u64 = 32;
/// After so many batches, what calls have cost is forgotten.
const FORGOTTEN: u64 = 8 * TRIED;

/// What something has cost the last time and the time before. The smaller one counts, 0 while nothing is
/// known: now and then a thread loses its processor in between.
#[derive(Debug, Default)]
struct Lately([u64; 2]);

impl Lately {
    fn cost(&self) -> u64 {
        self.0[0].min(self.0[1])
    }

    fn note(&mut self, cost: u64) {
        self.0 = [cost, self.0[0]];
    }
}

/// What it costs to move a run, in nanoseconds: known by whoever evicts.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    batches: u64,
    /// Without a call.
    plain: Lately,
    /// With one, the call among it.
    quiet: Lately,
}

impl Costs {
    /// Whether to let processors stand still for a batch of so many runs.
    pub(crate) fn is_worth_a_call(&self, runs: usize) -> bool {
        let plain_ns = self.plain.cost();
        runs as u64 >= FEWEST_RUNS
            && plain_ns > WORTH_NS
            && self.quiet.cost() < plain_ns / 2
            && !self.batches.is_multiple_of(TRIED)
    }

    /// A batch of so many runs has taken so long.
    pub(crate) fn note(&mut self, runs: usize, was_quiet: bool, took_ns: u64) {
        if (runs as u64) < FEWEST_RUNS {
            return;
        }
        self.batches += 1;
        if self.batches.is_multiple_of(FORGOTTEN) {
            self.quiet = Lately::default();
        }
        let lately = if was_quiet { &mut self.quiet } else { &mut self.plain };
        lately.note(took_ns / runs as u64);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::time::Duration;
    use std::vec::Vec;

    use super::*;

    fn costs(plain_ns: u64, quiet_ns: u64) -> Costs {
        let mut costs = Costs::default();
        for _ in 0..TRIED + 1 {
            let is_quiet = costs.is_worth_a_call(16);
            costs.note(16, is_quiet, 16 * if is_quiet { quiet_ns } else { plain_ns });
        }
        costs
    }

    #[test]
    fn dear_moves_are_worth_a_call_unless_that_is_dearer() {
        assert!(costs(12_000, 2_000).is_worth_a_call(16));
        assert!(!costs(12_000, 2_000).is_worth_a_call(3));
        assert!(!costs(1_000, 500).is_worth_a_call(16));
        assert!(!costs(12_000, 7_000).is_worth_a_call(16));
    }

    #[test]
    fn moves_that_have_become_cheap_are_noticed() {
        let mut costs = costs(12_000, 2_000);
        let mut calls = 0;
        for _ in 0..10 * TRIED {
            let is_quiet = costs.is_worth_a_call(16);
            calls += u64::from(is_quiet);
            costs.note(16, is_quiet, 16 * 1_000);
        }
        assert!(calls < 2 * TRIED, "{calls}");
    }

    #[test]
    fn a_lost_processor_is_no_dear_move() {
        let mut costs = costs(1_000, 500);
        costs.note(16, false, 16 * 250_000);
        assert!(!costs.is_worth_a_call(16));
    }

    #[test]
    fn a_processor_lost_during_a_call_is_no_dear_call() {
        let mut costs = costs(12_000, 2_000);
        costs.note(16, true, 16 * 250_000);
        assert!(costs.is_worth_a_call(16));
    }

    #[test]
    fn calls_that_were_dear_are_tried_again_after_long() {
        let mut costs = costs(12_000, 90_000);
        let calls = (0..FORGOTTEN).filter(|_| {
            let is_quiet = costs.is_worth_a_call(16);
            costs.note(16, is_quiet, 16 * if is_quiet { 2_000 } else { 12_000 });
            is_quiet
        });
        assert!(calls.count() > 1);
    }

    #[test]
    fn without_threads_nobody_is_called_and_they_are_wanted() {
        let quiescence = Quiescence::new();
        assert!(quiescence.begin().is_none());
        assert_eq!(quiescence.stage.load(Ordering::Relaxed), stage::WANTED);
        assert!(quiescence.begin().is_none());
    }

    /// A machine whose processors are threads, the caller on none of them.
    fn with_posts(absent: usize, check: impl FnOnce(&'static Quiescence)) {
        const ELSEWHERE: u32 = 1 << 20;
        let quiescence = memory::leak(Quiescence::new()).unwrap();
        for (post, number) in quiescence.posts.iter().zip(ELSEWHERE..) {
            post.processor.store(number, Ordering::Relaxed);
            post.stance.store(stance::ASLEEP, Ordering::Relaxed);
        }
        quiescence.posts[..absent]
            .iter()
            .for_each(|post| post.stance.store(stance::ABSENT, Ordering::Relaxed));
        quiescence.count.store(MOST as u32, Ordering::Relaxed);
        for post in &quiescence.posts[absent..] {
            std::thread::spawn(|| {
                loop {
                    post.stand();
                }
            });
        }
        check(quiescence);
    }

    #[test]
    fn all_stand_still_until_they_are_let_go() {
        with_posts(0, |quiescence| {
            let mut most = 0;
            for _ in 0..1000 {
                let quiet = quiescence.begin().expect("all are there");
                let still = quiet.others().filter(|post| post.is(stance::STILL)).count();
                most = most.max(still);
                drop(quiet);
                let stances: Vec<_> =
                    quiescence.posts.iter().map(|post| post.stance.load(Ordering::Relaxed)).collect();
                assert_eq!(stances, [stance::ASLEEP; MOST]);
            }
            assert!(most > 0, "some came in time");
        });
    }

    #[test]
    fn who_is_forgotten_goes_on() {
        with_posts(0, |quiescence| {
            core::mem::forget(quiescence.begin());
            // Those that came late may still be on their way.
            for _ in 0..10_000 {
                if quiescence.posts.iter().all(|post| post.is(stance::ASLEEP)) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            panic!("a processor stands still for ever");
        });
    }

    #[test]
    fn one_that_nobody_keeps_spoils_it_for_all() {
        with_posts(1, |quiescence| assert!(quiescence.begin().is_none()));
    }

    #[test]
    fn the_own_processor_goes_on() {
        with_posts(0, |quiescence| {
            let mut quiet = quiescence.begin().unwrap();
            quiet.own = quiescence.posts[3].processor.load(Ordering::Relaxed);
            assert_eq!(quiet.others().count(), MOST - 1);
            quiescence.posts.iter().for_each(|post| post.stance.store(stance::ASLEEP, Ordering::Relaxed));
        });
    }
}

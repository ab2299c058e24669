//! Leaving a program that goes on: everything comes back, and then nothing of it is managed any more.
//!
//! 1. From the first step on nothing leaves.
//! 2. What is far comes back, a step at a time, between the faults of the program, which are served as ever.
//! 3. Children that are served here get pagers of their own, or end. Whoever needs the pager for something
//!    else than memory ([`Engine::set_needed`]) is waited for as well.
//! 4. Nobody changes pages (a [`Reading`](crate::gate::Reading) is held, and never given up) and no event
//!    waits: when now no word says that its page is far or in somebody's hands, the memory is unregistered.
//!    Threads that wait there go on by the kernel's doing.
//!
//! A fork that begins after the last look copies what is all there. Its event is read by nobody; the kernel
//! takes that child's memory from the userfaultfd when the last descriptor closes.

use core::sync::atomic::Ordering;

use farmem_page::{PageIndex, PageWord, Place};
use farmem_sys::{sparse, thread};

use crate::engine::{BATCH_PAGES, Engine};
use crate::fault::serve::{Cause, ServeBuffers};

/// A step ends after this time: meanwhile nobody else of the pager does what the bookkeeper does.
const STEP_NS: u64 = 2_000_000;
/// Words that are looked at for one batch: messages are read between two.
const LOOKED_AT: usize = 1 << 12;
/// Between two steps, only so that others get at what this thread holds.
const PAUSE_NS: u64 = 20_000;
/// Between two looks whether others are done: children, evictions, pages in flight.
const LOOK_NS: u64 = 1_000_000;

/// How far it has come.
#[derive(Debug)]
pub(crate) struct Withdrawal {
    /// Where the pass over the words goes on.
    hand: PageIndex,
}

impl Default for Withdrawal {
    fn default() -> Self {
        Self { hand: PageIndex::new(0) }
    }
}

impl Withdrawal {
    /// One step, on the bookkeeper; how long to pause after it. Without buffers nothing is managed.
    pub(crate) fn step(&mut self, engine: &Engine, buffers: Option<&mut ServeBuffers>) -> u64 {
        engine.eviction.end();
        if engine.eviction.are_stranded() {
            engine.return_stranded(&engine.hold_as_bookkeeper());
        }
        if !engine.eviction.is_over() {
            return PAUSE_NS;
        }
        if let Some(buffers) = buffers
            && self.bring_back(engine, buffers)
        {
            return PAUSE_NS;
        }
        self.hand = PageIndex::new(0);
        let is_needed = engine.family.children.are_any() || engine.is_needed.load(Ordering::Acquire);
        if is_needed || !engine.unregister_all() { LOOK_NS } else { PAUSE_NS }
    }

    /// A step of the return. Whether there is more to do.
    fn bring_back(&mut self, engine: &Engine, buffers: &mut ServeBuffers) -> bool {
        let began_ns = thread::now_ns();
        while self.hand < sparse::END {
            let mut left = LOOKED_AT;
            let hand = &mut self.hand;
            let wanted = core::iter::from_fn(|| engine.pages.table.seek(hand, &mut left, is_wanted));
            let holding = engine.hold_as_bookkeeper();
            let _ = engine.return_pages(&holding, buffers, wanted.take(BATCH_PAGES), Cause::Room);
            drop(holding);
            if thread::now_ns() - began_ns > STEP_NS {
                return true;
            }
        }
        false
    }
}

/// Whether the program would find something else than the page's content there if nobody served it.
fn is_wanted(word: PageWord) -> bool {
    word.is_far() && matches!(word.place(), Some(Place::Slot(_) | Place::Pattern(_)))
}

impl Engine {
    /// Ends the management of all memory, if nothing of it is far or in somebody's hands. From then on no
    /// thread of the pager changes anything.
    fn unregister_all(&self) -> bool {
        let reading = self.pages.gate.read();
        reading.settle();
        let (mut hand, mut left) = (PageIndex::new(0), usize::MAX);
        let is_in_hand = |word: PageWord| word.is_busy() || is_wanted(word);
        if self.pages.table.seek(&mut hand, &mut left, is_in_hand).is_some() {
            return false;
        }
        // Asked after the look: a fork that has copied the page table before it either waits to be heard of,
        // or has been.
        if self.pages.uffd.is_changing() || self.family.children.are_any() || self.eviction.are_stranded() {
            return false;
        }
        for region in self.pages.regions.iter() {
            // What the kernel refuses now it does when the last descriptor closes.
            let _ = self.pages.uffd.unregister(region);
        }
        if let Some(evictor) = self.eviction.evictor.try_lock().as_deref().and_then(Option::as_ref) {
            let _ = self.pages.uffd.unregister(evictor.frames.range());
        }
        core::mem::forget(reading);
        self.has_withdrawn.store(true, Ordering::Release);
        true
    }
}

//! The second tier of prefetching: pages that the words of a faulted page refer to (`policy/src/references`).
//!
//! The words are read where they are at hand. A far page that is to come is unpacked anyway. Of a page that
//! is local the *entry* is read, what was stored when it left last: the program may have written other words
//! since, but it is a guess which pages to fetch that depends on them, nothing else. The page itself must not
//! be read: its program may have unmapped or discarded it, and a handler that touches a missing page waits
//! for itself.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use farmem_page::{PageWord, Place};
use farmem_policy::references::{Allotment, Compression, Follower, MOST_PAGES, Pages, Settled};
use farmem_policy::{Fault, PrefetchPolicy};
use farmem_sys::lock::{Guard, Lock};
use farmem_sys::{Errno, memory, thread};
use farmem_telemetry::Counter;

use crate::address_space::table::Taken;
use crate::engine::{BATCH_PAGES, Engine};
use crate::fault::batch::{Arrival, Batch};
use crate::fault::serve::{Cause, ServeBuffers, Served, Source};
use crate::gate::Holding;

/// Threads that are followed at a time. Others take the place of one of them.
const FOLLOWERS: usize = 16;
/// Where a local page's entry is unpacked: behind what a walk may fetch.
const SCRATCH: usize = BATCH_PAGES - 1;
const _: () = assert!(MOST_PAGES < SCRATCH, "a walk never fetches into the place of a glance");

/// Which threads are followed, and how far.
#[derive(Debug)]
pub(crate) struct References {
    /// `None` where a policy was chosen that goes by addresses alone.
    followers: Option<&'static [Lock<Follower>; FOLLOWERS]>,
    /// Pages that each of them may fetch ahead.
    most: AtomicU32,
    /// How references of four bytes are to be understood: the base, and the shift plus one; 0 while nobody
    /// has said it.
    base: AtomicU64,
    shift_and_one: AtomicU32,
    /// The time that all of them may take together.
    allotment: Lock<Allotment>,
}

impl References {
    /// # Errors
    /// No memory.
    pub(crate) fn new(policy: PrefetchPolicy) -> Result<Self, Errno> {
        let followers = match policy {
            PrefetchPolicy::TwoTier => {
                let pages = memory::table_mut::<[Pages; FOLLOWERS]>(1)?.first_mut().ok_or(Errno::NOMEM)?;
                Some(&*memory::leak(pages.each_mut().map(|pages| Lock::new(Follower::new(pages))))?)
            }
            _ => None,
        };
        Ok(Self {
            followers,
            most: AtomicU32::new(MOST_PAGES as u32),
            base: AtomicU64::new(0),
            shift_and_one: AtomicU32::new(0),
            allotment: Lock::new(Allotment::new()),
        })
    }

    /// The follower that may attend `thread`, whichever thread it attends. `None` while somebody has it.
    fn place_of(&self, thread: u32) -> Option<Guard<'_, Follower>> {
        self.followers?[thread as usize % FOLLOWERS].try_lock()
    }

    /// The follower of `thread`. `None` if nobody does, or a fault of another thread is being followed at
    /// this moment: this one teaches nothing, and waits for nobody.
    fn of(&self, thread: u32) -> Option<Guard<'_, Follower>> {
        let mut follower = self.place_of(thread)?;
        follower.attend(thread);
        follower.understand(self.compression());
        Some(follower)
    }

    /// The follower that attends `thread` at this moment. None changes threads for it.
    fn attending(&self, thread: u32) -> Option<Guard<'_, Follower>> {
        let follower = self.place_of(thread)?;
        follower.attends(thread).then_some(follower)
    }

    fn understand(&self, compression: Compression) {
        self.base.store(compression.base(), Ordering::Relaxed);
        self.shift_and_one.store(compression.shift() + 1, Ordering::Release);
    }

    fn compression(&self) -> Option<Compression> {
        let shift = self.shift_and_one.load(Ordering::Acquire).checked_sub(1)?;
        Compression::new(self.base.load(Ordering::Relaxed), shift)
    }

    /// Whether there is time at `now_ns` for looking at a fault. Where another handler is asking at this
    /// moment, there isn't.
    fn has_time(&self, now_ns: u64) -> bool {
        self.allotment.try_lock().is_some_and(|mut allotment| allotment.is_any_left(now_ns))
    }

    /// Changes how many pages all together may have fetched and not know of yet.
    pub(crate) fn set_cache(&self, pages: u32) {
        self.most.store(pages / FOLLOWERS as u32, Ordering::Relaxed);
    }

    /// Pages that were fetched ahead and are not settled.
    pub(crate) fn unsettled_pages(&self) -> u32 {
        let followers = self.followers.into_iter().flatten();
        followers.filter_map(Lock::try_lock).map(|follower| follower.unsettled_pages()).sum()
    }
}

impl Engine {
    /// Whether it is of any use to know how references are written.
    pub fn follows_references(&self) -> bool {
        self.foresight.references.followers.is_some()
    }

    /// The program has said how references of four bytes stand for addresses.
    pub fn understand(&self, compression: Compression) {
        self.foresight.references.understand(compression);
    }
}

/// A fault whose references are to be followed once its page is at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Following {
    fault: Fault,
    /// Pages that may come with the faulted one.
    pub(crate) most: u32,
    /// What it took to look at the fault.
    looked_ns: u64,
}

/// The same, with the follower in hand.
pub(crate) struct FollowPlan<'a> {
    follower: Guard<'a, Follower>,
    pub(crate) following: Following,
}

impl FollowPlan<'_> {
    /// Lets go of the follower: the page is on its way.
    pub(crate) fn suspend(self) -> Following {
        self.following
    }
}

impl Engine {
    /// Tells the second tier of a fault on a stored page, and whether the first one knew what comes next.
    /// `None` unless the words of the page are of interest. With it the time that it took, as far as that was
    /// taken down.
    pub(crate) fn plan_following(&self, fault: Fault, is_streamed: bool) -> (Option<FollowPlan<'_>>, u64) {
        let Some(mut follower) = self.foresight.references.of(fault.thread) else { return (None, 0) };
        if is_streamed {
            follower.on_stream(fault.page);
            return (None, 0);
        }
        let address = fault.address();
        let looks = follower.looks_at(address, || self.foresight.references.has_time(thread::now_ns()));
        let began_ns = looks.then(thread::now_ns);
        if let Some(settled) = follower.on_fault(address) {
            self.settle_followed(&settled);
        }
        let reach = follower.reach();
        let looked_ns = began_ns.map_or(0, |began_ns| thread::now_ns().saturating_sub(began_ns));
        let Some(reach) = reach else {
            if began_ns.is_some() {
                self.spend_following(looked_ns);
            }
            return (None, looked_ns);
        };
        let most = reach.min(self.foresight.references.most.load(Ordering::Relaxed));
        (Some(FollowPlan { follower, following: Following { fault, most, looked_ns } }), looked_ns)
    }

    fn settle_followed(&self, settled: &Settled) {
        self.settle_pages(settled.pages().iter().copied(), settled.is_used);
        self.settle_probes(|page| settled.pages().contains(&page), settled.is_used == Some(true));
        if settled.is_worthwhile {
            self.foresight.references.allotment.lock().earn(settled.took_ns);
        }
    }

    /// Following references has taken so long.
    fn spend_following(&self, took_ns: u64) -> u64 {
        let took_ns = self.foresight.references.allotment.lock().spend(took_ns);
        self.slot.add(Counter::FollowingNs, took_ns);
        took_ns
    }

    /// Serves the fault on a stored page with what its words refer to. Where the page has to be asked of
    /// nodes, its references are followed when it has come.
    pub(crate) fn serve_following(
        &self,
        holding: &Holding<'_>,
        buffers: &mut ServeBuffers,
        plan: FollowPlan<'_>,
        faulted: Taken,
    ) -> Served {
        let Following { fault, looked_ns, .. } = plan.following;
        let mut batch = Batch::new();
        batch.push(faulted);
        match self.load_for(holding, buffers, &mut batch, 0, fault, Some(plan.following)) {
            Arrival::There => self.follow(holding, buffers, plan, batch, Cause::Fault(fault.page)),
            Arrival::Not(Served::Flying) => Served::Flying,
            Arrival::Not(served) => {
                self.spend_following(looked_ns);
                served
            }
        }
    }

    /// The plan for a page that has come from nodes. `None` if its thread isn't followed any more.
    pub(crate) fn resume_following(&self, following: Following) -> Option<FollowPlan<'_>> {
        let follower = self.foresight.references.attending(following.fault.thread)?;
        let most = following.most.min(follower.reach()?);
        Some(FollowPlan { follower, following: Following { most, ..following } })
    }

    /// Fetches what the words of the batch's only page refer to, which has faulted and is loaded. That page
    /// is installed last: by then the thread finds the others, or nodes have been asked for them.
    pub(crate) fn follow(
        &self,
        holding: &Holding<'_>,
        buffers: &mut ServeBuffers,
        plan: FollowPlan<'_>,
        mut batch: Batch,
        cause: Cause,
    ) -> Served {
        let FollowPlan { mut follower, following: Following { fault, most, looked_ns } } = plan;
        let began_ns = thread::now_ns();
        let address = fault.address();
        let mut pages = [fault.page; 1 + MOST_PAGES];
        let mut before = fault.page;
        let mut installed = 1;
        let mut walk = follower.walk(address, &buffers.content[0], most);
        while let Some(next) = walk.step() {
            let page = next.page();
            if let Some(at) = pages[..batch.count()].iter().position(|&there| there == page) {
                walk.arrive(&buffers.content[at]);
                continue;
            }
            let word = self.pages.table.word(page);
            let (taken, place) = if is_wanted(word) {
                if !walk.fetch(page) {
                    break;
                }
                let Some(taken) = self.pages.table.take_if(page, is_wanted) else { continue };
                let place = taken.word.place();
                let companion = core::mem::replace(&mut before, page);
                let taken = match self.foresight.probes.try_lock() {
                    Some(mut probes) => self.unless_probe(&mut probes, taken, companion),
                    None => Some(taken),
                };
                (taken, place)
            } else {
                (None, entry_of_local(word))
            };
            if taken.is_none() && !walk.reads_pages() {
                if self.pages.regions.holding(page).is_none() {
                    walk.miss();
                }
                continue;
            }
            let Some(place) = place else { continue };
            // What is stored comes near while the page before is installed.
            self.vault.prefetch(place);
            self.install_following(holding, buffers, &mut batch, installed, fault);
            installed = batch.count();
            match taken {
                Some(taken) => {
                    let at = batch.push(taken);
                    pages[at] = page;
                    match self.load_for(holding, buffers, &mut batch, at, fault, None) {
                        Arrival::There => walk.arrive(&buffers.content[at]),
                        Arrival::Not(Served::Flying) => walk.await_content(),
                        Arrival::Not(_) => walk.decline(),
                    }
                }
                None => {
                    if self.vault.glance(&mut buffers.reader, place, &mut buffers.content[SCRATCH]) {
                        walk.arrive(&buffers.content[SCRATCH]);
                    }
                }
            }
        }
        let walked = walk.end();
        follower.walked(address, &buffers.content[0], walked);
        if let Some(page) = follower.wanted()
            && let Some(place) = entry_of_local(self.pages.table.word(page))
            && self.vault.glance(&mut buffers.reader, place, &mut buffers.content[SCRATCH])
        {
            follower.show(page, &buffers.content[SCRATCH]);
        }
        self.install_following(holding, buffers, &mut batch, installed, fault);
        let walked_ns = thread::now_ns().saturating_sub(began_ns);
        follower.took(self.spend_following(looked_ns + walked_ns));
        drop(follower);
        self.install_first(holding, buffers, &mut batch, cause)
    }
}

fn is_wanted(word: PageWord) -> bool {
    word.is_far() && !word.is_busy() && Source::of(word) == Source::Stored
}

/// Where the content of a local page was stored last, if it was.
fn entry_of_local(word: PageWord) -> Option<Place> {
    word.reservation().map(Place::Slot)
}

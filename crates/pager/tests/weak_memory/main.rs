//! Model checking of the regions' sequence number and of the queue of hints under the memory model of the
//! language: every order in which relaxed loads and stores may be seen, for a few threads, regions and hints.
//! Compiled from the pager's own source files.
//!
//! Has its own `main`: the checked file's unit tests must not run on the model's primitives.

#[path = "../../src/hints/queue.rs"]
#[allow(dead_code, unreachable_pub, unused, reason = "the pager uses more of it than a model needs")]
mod hint_queue;
#[path = "../../src/address_space/regions.rs"]
#[allow(dead_code, unused, reason = "the pager uses more of it than a model needs")]
mod regions;

use farmem_page::{PageCount, PageIndex, PageRange};
use loom::sync::Arc;
use loom::thread;

use crate::hint_queue::{Hint, HintQueue};
use crate::regions::Regions;

/// The facade of the checked file.
mod sync {
    pub(crate) use farmem_sys::Errno;
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

    /// One look before sleeping: enough to have both ways.
    pub(crate) const SPINS: u32 = 1;
    /// Room for what the models put in, and for a split.
    pub(crate) const MOST_REGIONS: usize = 3;
    /// Fewer than are said: some are refused, and cells are used again.
    pub(crate) const QUEUED_HINTS: usize = 2;

    pub(crate) fn table<T: From<u64>>(count: usize) -> Result<&'static [T], Errno> {
        Ok(Vec::leak((0..count).map(|_| T::from(0)).collect()))
    }

    #[derive(Debug)]
    pub(crate) struct Lock<T>(loom::sync::Mutex<T>);

    impl<T> Lock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }
        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}

/// Preemptions of a thread in one run: nearly every error of this kind shows with two.
const PREEMPTIONS: usize = 2;

fn range(start: u64, end: u64) -> PageRange {
    PageRange::new(PageIndex::new(start), PageIndex::new(end))
}

/// One thread looks up `page` while another does `change`: what is found must be what was or what is there.
fn lookup_during(before: &[PageRange], page: u64, change: fn(&Regions), allowed: &[Option<PageRange>]) {
    let (before, allowed) = (before.to_vec(), allowed.to_vec());
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(move || {
        let regions = Regions::new().unwrap();
        before.iter().for_each(|&range| assert!(regions.insert(range)));
        let regions = Arc::new(regions);
        let reader = {
            let regions = Arc::clone(&regions);
            thread::spawn(move || regions.from(PageIndex::new(page)))
        };
        change(&regions);
        let found = reader.join().unwrap();
        assert!(allowed.contains(&found), "found {found:?}, which never was there");
    });
}

fn a_region_that_grows_is_never_seen_torn() {
    let (old, new) = (range(10, 20), range(5, 30));
    let change = |regions: &Regions| assert!(regions.insert(range(5, 30)));
    lookup_during(&[old], 12, change, &[Some(old), Some(new)]);
}

fn a_region_that_is_split_is_never_seen_torn() {
    let change = |regions: &Regions| assert!(regions.remove(range(14, 16)));
    let allowed = [Some(range(10, 20)), Some(range(16, 20))];
    lookup_during(&[range(10, 20)], 17, change, &allowed);
}

fn regions_that_move_up_are_found_where_they_are() {
    let change = |regions: &Regions| assert!(regions.remove(range(10, 20)));
    lookup_during(&[range(10, 20), range(30, 40)], 12, change, &[Some(range(10, 20)), Some(range(30, 40))]);
}

/// Two threads say something, one of them twice, while a third takes out what there is.
fn hints_come_out_whole_and_once_in_the_order_of_each_thread() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(|| {
        let queue = Arc::new(HintQueue::new().unwrap());
        let say = |queue: &HintQueue, hint, page| {
            queue.push(hint, PageRange::at(PageIndex::new(page), PageCount::new(page)))
        };
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || say(&queue, Hint::Cold, 3))
        };
        let said_twice = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || [1, 2].map(|page| say(&queue, Hint::Prefetch, page)))
        };
        let mut heard = Vec::from_iter(queue.pop());
        let is_said = [other.join().unwrap()].into_iter().chain(said_twice.join().unwrap());
        let said = is_said.filter(|&is_said| is_said).count();
        heard.extend(std::iter::from_fn(|| queue.pop()));

        assert_eq!(heard.len(), said);
        let expected = [3, 1, 2].map(|page| {
            let hint = if page == 3 { Hint::Cold } else { Hint::Prefetch };
            (hint, PageRange::at(PageIndex::new(page), PageCount::new(page)))
        });
        assert!(heard.iter().all(|hint| expected.contains(hint)), "{heard:?}");
        let position = |hint| heard.iter().position(|&other| other == hint);
        if let (Some(first), Some(second)) = (position(expected[1]), position(expected[2])) {
            assert!(first < second, "{heard:?}");
        }
    });
}

fn main() {
    let models: [(&str, fn()); 4] = [
        (
            "hints_come_out_whole_and_once_in_the_order_of_each_thread",
            hints_come_out_whole_and_once_in_the_order_of_each_thread,
        ),
        ("a_region_that_grows_is_never_seen_torn", a_region_that_grows_is_never_seen_torn),
        ("a_region_that_is_split_is_never_seen_torn", a_region_that_is_split_is_never_seen_torn),
        ("regions_that_move_up_are_found_where_they_are", regions_that_move_up_are_found_where_they_are),
    ];
    let trials = models.map(|(name, model)| {
        libtest_mimic::Trial::test(name, move || {
            model();
            Ok(())
        })
    });
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials.into()).exit();
}

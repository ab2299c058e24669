//! Model checking of the regions' sequence number under the memory model of the language: every order in which relaxed
//! loads and stores may be seen, for a few threads and regions. Compiled from the pager's own source file.
//!
//! Has its own `main`: the checked file's unit tests must not run on the model's primitives.

#[path = "../../src/regions.rs"]
#[allow(dead_code, unused, reason = "the pager uses more of it than a model needs")]
mod regions;

use farmem_page::{PageIndex, PageRange};
use loom::sync::Arc;
use loom::thread;

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

fn main() {
    let models: [(&str, fn()); 3] = [
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

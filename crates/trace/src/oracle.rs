//! What knows the future.

use std::collections::BTreeSet;

use farmem_page::PageRange;

use crate::course::{Access, Course, Step};
use crate::replay::{Decider, WINDOW_PAGES};

/// How far ahead it looks, in steps.
const HORIZON: usize = 1 << 14;

/// Brings the pages that will be asked for next, nearest first, out of those that are stored already.
/// Whatever it brings is used, unless so much comes after it that it is pushed out.
pub(crate) struct Oracle<'a> {
    course: &'a Course,
}

impl<'a> Oracle<'a> {
    pub(crate) fn new(course: &'a Course) -> Self {
        Self { course }
    }
}

impl Decider for Oracle<'_> {
    fn advise(&mut self, step: usize, _access: &Access, stored: &BTreeSet<u64>, come: &mut Vec<u64>) {
        let mut seen = BTreeSet::new();
        for next in self.course.steps.iter().skip(step + 1).take(HORIZON) {
            if come.len() >= WINDOW_PAGES as usize {
                return;
            }
            match next {
                Step::Access(access) => {
                    let page = access.fault.page.get();
                    if stored.contains(&page) && seen.insert(page) {
                        come.push(page);
                    }
                }
                // What is given up first needn't come.
                Step::Discarded(range) => seen.extend(stored.range(range.start.get()..range.end.get())),
                Step::Touch(page) => _ = seen.insert(page.get()),
                Step::Left(_) => {}
            }
        }
    }

    fn forget(&mut self, _range: PageRange) {}
}

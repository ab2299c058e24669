//! What the pages of a program may hold, whatever the pager does.
//!
//! A page holds what was written last. While a thread discards it, another may see either what it held or
//! zeros, and what is written meanwhile may stay or go: each is what some order of the two gives. What has
//! been seen can't be taken back, and what was written before a discard must not come back after it.

use std::collections::HashMap;
use std::rc::Rc;

use farmem_page::{PAGE_BYTES, PageBytes, PageIndex, PageRange};

/// A content of a page; `None` are zeros.
type Value = Option<Rc<PageBytes>>;

/// What the pages of one address space may hold.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// Of each page what it may hold, with the moment when it came about. A page that isn't here holds zeros.
    pages: HashMap<PageIndex, Vec<(u64, Value)>>,
    /// Discards under way, with the moments when they began.
    discards: Vec<(u64, PageRange)>,
}

fn is(content: Option<&PageBytes>, value: &Value) -> bool {
    const ZEROS: PageBytes = [0; PAGE_BYTES];
    content.unwrap_or(&ZEROS) == value.as_deref().unwrap_or(&ZEROS)
}

impl Expected {
    fn is_discarded(&self, page: PageIndex) -> bool {
        self.discards.iter().any(|(_, range)| range.contains(page))
    }

    /// A page is written.
    pub(crate) fn write(&mut self, page: PageIndex, value: Rc<PageBytes>, now: u64) {
        let mut values = vec![(now, Some(value))];
        if self.is_discarded(page) {
            values.push((now, None));
        }
        self.pages.insert(page, values);
    }

    /// Whether a page may hold that, zeros where there is none. From now on it may hold nothing that
    /// contradicts it.
    pub(crate) fn see(&mut self, page: PageIndex, content: Option<&PageBytes>) -> bool {
        let is_discarded = self.is_discarded(page);
        let Some(values) = self.pages.get_mut(&page) else { return is(content, &None) };
        let Some(seen) = values.iter().find(|(_, value)| is(content, value)).cloned() else { return false };
        let may_go = is_discarded && seen.1.is_some();
        values.retain(|(at, value)| *at == seen.0 && is(content, value) || may_go && value.is_none());
        true
    }

    /// A discard begins.
    pub(crate) fn begin_discard(&mut self, range: PageRange, now: u64) {
        self.discards.push((now, range));
        for page in range.iter() {
            if let Some(values) = self.pages.get_mut(&page) {
                values.push((now, None));
            }
        }
    }

    /// The discard that began at that moment has ended.
    pub(crate) fn end_discard(&mut self, began: u64) {
        let Some(at) = self.discards.iter().position(|(moment, _)| *moment == began) else { return };
        let (_, range) = self.discards.swap_remove(at);
        for page in range.iter() {
            if let Some(values) = self.pages.get_mut(&page) {
                values.retain(|(moment, _)| *moment >= began);
                if values.is_empty() {
                    self.pages.remove(&page);
                }
            }
        }
    }

    /// A page isn't mapped any more.
    pub(crate) fn unmap(&mut self, page: PageIndex) {
        self.pages.remove(&page);
    }

    /// A page is somewhere else.
    pub(crate) fn relocate(&mut self, from: PageIndex, to: PageIndex) {
        if let Some(values) = self.pages.remove(&from) {
            self.pages.insert(to, values);
        }
    }

    /// What a forked child may find. Of what is being discarded it may have either.
    pub(crate) fn fork(&self) -> Self {
        Self { pages: self.pages.clone(), discards: Vec::new() }
    }
}

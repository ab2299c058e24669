//! What the pager itself takes. It doesn't count against the program's budget.
//!
//! The words of the page table are by far the most. A program that keeps little in much address space touches
//! few of them, so how many there are can't be told from the size of its mappings; the kernel is asked, now
//! and then.

use core::sync::atomic::Ordering;

use farmem_page::PageCount;
use farmem_sys::{memory, thread};
use farmem_telemetry::Counter;

use crate::engine::Engine;

/// The table fills slowly: a page of it for each 2 MiB of the program's memory.
const PERIOD_NS: u64 = 20_000_000;
/// Asking takes at most one part of the time in so many: an application may have many pagers.
const QUESTION_SHARE: u64 = 1000;

/// When the kernel was asked.
#[derive(Debug, Default)]
pub(crate) struct OwnMemory {
    asked_ns: u64,
    question_ns: u64,
}

impl OwnMemory {
    /// One round: asks if it is time to.
    pub(crate) fn round(&mut self, engine: &Engine) {
        let now_ns = thread::now_ns();
        if now_ns - self.asked_ns >= PERIOD_NS.max(self.question_ns * QUESTION_SHARE) {
            let pagemap = &engine.pages.files.own_pagemap;
            if let Ok(own) = engine.pages.table.words().resident(pagemap)
                && let Some(childrens) = engine.family.children.table_pages(pagemap)
            {
                engine.pages.table_pages.store((own + childrens).get(), Ordering::Relaxed);
            }
            self.asked_ns = now_ns;
            self.question_ns = thread::now_ns() - now_ns;
        }
        engine.slot.set(Counter::OwnPages, engine.own_pages().get());
    }
}

impl Engine {
    /// Memory of the pager itself, in pages.
    pub(crate) fn own_pages(&self) -> PageCount {
        memory::used() + PageCount::new(self.pages.table_pages.load(Ordering::Relaxed))
    }
}

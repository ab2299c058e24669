//! Pages of zeros that the program has only read.
//!
//! They take no memory: in all of them is one and the same frame of the kernel's. When the program writes
//! such a page the kernel gives it a frame of its own, faster than any page can leave, and tells nobody. So
//! such pages are protected, those that are there when a mapping comes under management and, now and then,
//! those that have come since. The first write to one is then a fault like a write to memory that a fork has
//! left shared ([`Engine::let_write`]): it waits until there is room.

use core::sync::atomic::{AtomicU64, Ordering};

use farmem_page::PageRange;
use farmem_sys::pagemap::Runs;
use farmem_sys::thread;

use crate::engine::Engine;

/// Open pages of zeros that are worth a look for them: 2 MiB.
const MANY_PAGES: u64 = 512;
/// Looking for them takes at most one part of the time in so many.
const LOOK_SHARE: u64 = 20;

/// Pages of zeros that the pager has put in place since it last protected them.
#[derive(Debug, Default)]
pub(crate) struct OpenZeros {
    count: AtomicU64,
}

impl OpenZeros {
    /// The program has read a page that nobody has touched before.
    pub(crate) fn note(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

/// When they were looked for.
#[derive(Debug, Default)]
pub(crate) struct ZeroGuard {
    ended_ns: u64,
    took_ns: u64,
}

impl ZeroGuard {
    /// On the bookkeeper, once in each of its rounds.
    pub(crate) fn round(&mut self, engine: &Engine) {
        let open = &engine.pages.open_zeros.count;
        let now_ns = thread::now_ns();
        if open.load(Ordering::Relaxed) < MANY_PAGES || now_ns - self.ended_ns < self.took_ns * LOOK_SHARE {
            return;
        }
        open.store(0, Ordering::Relaxed);
        engine.pages.regions.iter().for_each(|region| engine.protect_zeros(region));
        self.ended_ns = thread::now_ns();
        self.took_ns = self.ended_ns - now_ns;
    }
}

impl Engine {
    /// On the bookkeeper: protects the pages of zeros of `range`, of which all is registered.
    pub(crate) fn protect_zeros(&self, range: PageRange) {
        let mut runs = Runs::empty();
        self.for_parts(range, |part| {
            let mut start = part.start;
            while start < part.end {
                let Ok(end) = self.pages.files.pagemap.open_zeros(PageRange::new(start, part.end), &mut runs)
                else {
                    break;
                };
                for run in runs.iter() {
                    self.pages.uffd.protect(run)?;
                }
                if end <= start {
                    break;
                }
                start = end;
            }
            Ok(())
        });
    }
}

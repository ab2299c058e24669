//! Prefetching: the words that pager and policies share. One policy per file.

mod choice;
mod leap;
mod neighbour;
mod none;
mod paces;
mod probes;
mod readahead;
mod record;
mod run;
mod streams;
mod windows;

pub use choice::{ChosenPrefetcher, PrefetchPolicy};
pub use leap::Leap;
pub use neighbour::Neighbour;
pub use none::NoPrefetching;
pub use probes::{Found, Probes};
pub use readahead::Readahead;
pub use run::Run;
pub use streams::Streams;

use farmem_page::{PAGE_BYTES, PageIndex, PageRange, VirtAddr};

/// No policy has more pieces of advice unsettled at a time.
pub const MOST_WINDOWS: usize = 16;

/// A page that a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The page.
    pub page: PageIndex,
    /// Where on the page, in bytes; less than a page has. Policies of prefetching by address don't look at
    /// it.
    pub offset_bytes: u16,
    /// The thread. To them a hint: it makes the search shorter, and tells wide strides of threads apart. Any
    /// number will do.
    pub thread: u32,
    /// Whether the thread is about to write.
    pub write: bool,
}

impl Fault {
    /// `thread` waits for `address`.
    pub const fn at(address: VirtAddr, thread: u32, write: bool) -> Self {
        let offset_bytes = (address.get() % PAGE_BYTES as u64) as u16;
        Self { page: address.page(), offset_bytes, thread, write }
    }

    /// The address that the thread waits for.
    pub const fn address(self) -> VirtAddr {
        VirtAddr::new(self.page.addr().get() + self.offset_bytes as u64)
    }
}

/// What a policy says to a fault. The runs hold what was advised; the pager may have fetched fewer pages
/// (some were local already), so it looks at each page's prefetched mark before it counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Advice {
    /// Pages beyond the faulted one that are worth fetching now, nearest first. Never the faulted page
    /// itself.
    pub fetch: Option<Run>,
    /// Pages of earlier advice that are now known to have been used.
    pub used: Option<Run>,
    /// Pages of earlier advice that nobody will ask about any more: as far as known they were not used.
    pub expired: Option<Run>,
}

/// A prefetching policy. Prefetched pages are mapped at once, so that their use raises no fault: a policy
/// infers it.
///
/// Not synchronised: the caller serialises calls (`&mut self`).
pub trait Prefetcher {
    /// Learns from a fault and advises. Advice lies inside `bounds`, the region that holds the page; a fault
    /// outside its bounds gets none.
    fn on_fault(&mut self, fault: Fault, bounds: PageRange) -> Advice;

    /// The pages of `range` are gone (unmapped, or discarded): advice about them is settled neither way.
    fn forget(&mut self, range: PageRange);

    /// Hands out advice that is still unsettled and forgets it; `None` when there is none left. For the final
    /// count.
    fn drain(&mut self) -> Option<Run>;

    /// Changes how many pages may be advised and not settled at a time; at first as many as the policy likes.
    /// What is advised already stays: see [`Prefetcher::shrink`].
    fn set_cache(&mut self, pages: u32);

    /// While more is unsettled than may be: gives up the oldest piece of advice, of which nothing will be
    /// known any more. `None` when enough has gone, after at most [`MOST_WINDOWS`] pieces.
    fn shrink(&mut self) -> Option<Run>;

    /// Pages that were advised and that are not settled.
    fn unsettled_pages(&self) -> u32;
}

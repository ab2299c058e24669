//! One policy of several, chosen while the program runs.

use farmem_page::PageRange;

use super::{Advice, Fault, Leap, Neighbour, NoPrefetching, Prefetcher, Readahead, Run, Streams};

/// Which policy: what a user chooses, and what a ledger says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u64)]
pub enum PrefetchPolicy {
    /// Several sequential and strided streams at once.
    Streams = 0,
    /// Nothing but what is asked for.
    None = 1,
    /// The pages next to a faulted one.
    Neighbour = 2,
    /// The kernel's readahead.
    Readahead = 3,
    /// The stride of the majority.
    Leap = 4,
    /// Streams, and where they find nothing the references that the program follows
    /// ([`references`](crate::references)).
    #[default]
    TwoTier = 5,
}

impl PrefetchPolicy {
    /// All there are.
    pub const ALL: [Self; 6] =
        [Self::None, Self::Neighbour, Self::Readahead, Self::Leap, Self::Streams, Self::TwoTier];

    /// Those that go by the addresses of faults alone, so that they can be tried on a trace.
    pub const BY_ADDRESS: [Self; 5] =
        [Self::None, Self::Neighbour, Self::Readahead, Self::Leap, Self::Streams];

    /// Its name, as a user writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::None => "none",
            Self::Neighbour => "neighbour",
            Self::Readahead => "readahead",
            Self::Leap => "leap",
            Self::TwoTier => "two-tier",
        }
    }

    /// The policy of that number; the default for a number that stands for none.
    pub fn from_number(number: u64) -> Self {
        Self::ALL.into_iter().find(|&policy| policy as u64 == number).unwrap_or_default()
    }
}

/// The chosen policy's state.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there are a few of them, and the largest is the default")]
pub enum ChosenPrefetcher {
    /// Several streams.
    Streams(Streams),
    /// Nothing.
    None(NoPrefetching),
    /// Neighbours.
    Neighbour(Neighbour),
    /// The kernel's.
    Readahead(Readahead),
    /// The majority's.
    Leap(Leap),
}

impl ChosenPrefetcher {
    /// That policy, of both tiers the first; it knows nothing yet. The windows of streams grow up to
    /// `window_pages`; the other policies have bounds of their own.
    pub fn new(policy: PrefetchPolicy, window_pages: u32) -> Self {
        match policy {
            PrefetchPolicy::Streams | PrefetchPolicy::TwoTier => Self::Streams(Streams::new(window_pages)),
            PrefetchPolicy::None => Self::None(NoPrefetching),
            PrefetchPolicy::Neighbour => Self::Neighbour(Neighbour::default()),
            PrefetchPolicy::Readahead => Self::Readahead(Readahead::default()),
            PrefetchPolicy::Leap => Self::Leap(Leap::default()),
        }
    }

    fn policy(&self) -> &dyn Prefetcher {
        match self {
            Self::Streams(policy) => policy,
            Self::None(policy) => policy,
            Self::Neighbour(policy) => policy,
            Self::Readahead(policy) => policy,
            Self::Leap(policy) => policy,
        }
    }

    fn policy_mut(&mut self) -> &mut dyn Prefetcher {
        match self {
            Self::Streams(policy) => policy,
            Self::None(policy) => policy,
            Self::Neighbour(policy) => policy,
            Self::Readahead(policy) => policy,
            Self::Leap(policy) => policy,
        }
    }
}

impl Prefetcher for ChosenPrefetcher {
    fn on_fault(&mut self, fault: Fault, bounds: PageRange) -> Advice {
        self.policy_mut().on_fault(fault, bounds)
    }

    fn forget(&mut self, range: PageRange) {
        self.policy_mut().forget(range);
    }

    fn drain(&mut self) -> Option<Run> {
        self.policy_mut().drain()
    }

    fn set_cache(&mut self, pages: u32) {
        self.policy_mut().set_cache(pages);
    }

    fn shrink(&mut self) -> Option<Run> {
        self.policy_mut().shrink()
    }

    fn unsettled_pages(&self) -> u32 {
        self.policy().unsettled_pages()
    }
}

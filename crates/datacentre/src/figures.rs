//! What is counted while it runs.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::clock::Time;

/// When a fetch that is followed took place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// While all machines were well, and nothing was lacking.
    Outside,
    /// While something was not.
    During,
    /// Of a page on a machine that is not well: these are sought out, and counted apart.
    Touching,
}

/// Requests that move no page, by what they are.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Asked {
    pub(crate) grants: u64,
    pub(crate) releases: u64,
    pub(crate) introductions: u64,
    pub(crate) questions: u64,
    pub(crate) farewells: u64,
}

/// Times in nanoseconds, to three digits.
pub(crate) struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        let longest = 7 * 86_400_000_000_000;
        #[expect(clippy::expect_used, reason = "these bounds are possible ones")]
        Self(Histogram::new_with_bounds(1, longest, 3).expect("a histogram"))
    }
}

impl Times {
    pub(crate) fn note(&mut self, time: Time) {
        self.0.saturating_record(time.max(1));
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// In nanoseconds; nothing, where there is none.
    pub(crate) fn quantile(&self, quantile: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(quantile) as f64)
    }

    pub(crate) fn most(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.max() as f64)
    }

    pub(crate) fn clear(&mut self) {
        self.0.reset();
    }
}

#[derive(Default)]
pub(crate) struct Figures {
    /// Clients that have not acted yet on what has become of a node, counted for each node.
    pub(crate) unaware: u64,
    /// Clients of which blocks lack shards after a failure.
    pub(crate) bare_clients: u64,
    /// Shards that blocks lack, and the most of them since the last look.
    pub(crate) lacking: u64,
    pub(crate) most_lacking: u64,
    /// Machines that are slow.
    pub(crate) slow: u64,
    pub(crate) lost_blocks: u64,
    /// Of these, those of which enough shards could still be had, or that had waited for repair for too long.
    pub(crate) covered_blocks: u64,
    /// Of these, those of which enough shards were still there, where nobody could reach them.
    pub(crate) given_up_blocks: u64,
    pub(crate) placed: u64,
    pub(crate) placed_bare: u64,
    pub(crate) late: u64,
    pub(crate) around: u64,
    pub(crate) failed_fetches: u64,
    pub(crate) messages: Asked,
    pub(crate) repairs: Times,
    pub(crate) outside: Times,
    pub(crate) during: Times,
    pub(crate) touching: Times,
    /// All but those that are sought out, since the last look.
    pub(crate) recent: Times,
}

impl Figures {
    /// Whether all machines are well, and nothing is lacking.
    pub(crate) fn is_calm(&self) -> bool {
        self.unaware == 0 && self.bare_clients == 0 && self.slow == 0
    }

    /// A client's blocks lack so many shards, where they lacked so many before.
    pub(crate) fn lack(&mut self, shards: u64, before: u64) {
        self.lacking = (self.lacking + shards).saturating_sub(before);
        self.most_lacking = self.most_lacking.max(self.lacking);
    }

    pub(crate) fn repaired(&mut self, time: Time) {
        self.repairs.note(time);
    }

    pub(crate) fn fetched(&mut self, seen: Seen, time: Time) {
        match seen {
            Seen::Outside => self.outside.note(time),
            Seen::During => self.during.note(time),
            Seen::Touching => return self.touching.note(time),
        }
        self.recent.note(time);
    }
}

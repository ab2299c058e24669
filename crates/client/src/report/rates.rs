//! Rates, from two looks at an application.

use farmem_page::PAGE_BYTES;

use crate::report::by_class::ByClass;
use crate::report::run::Report;

/// What an application did between two looks, for each second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rates {
    /// Faults that the pager served.
    pub faults: f64,
    /// Bytes that came back from far memory, those fetched ahead included.
    pub in_bytes: f64,
    /// Bytes that left local memory.
    pub out_bytes: f64,
    /// Time that threads waited for pages, summed over them: 1 is one thread that always waits.
    pub stall: f64,
    /// Processor time of the pager.
    pub pager: f64,
    /// Bytes that were read from memory nodes.
    pub link_in_bytes: ByClass<f64>,
    /// Bytes that were written to them.
    pub link_out_bytes: ByClass<f64>,
}

impl Rates {
    /// What happened from `before` to `now`. Nothing, where these are not the same run of an application or
    /// no time has passed.
    pub fn between(before: &Report, now: &Report) -> Self {
        let seconds = now.wall_seconds - before.wall_seconds;
        if before.process != now.process || seconds <= 0.0 {
            return Self::default();
        }
        // A counter of a report that is older than it seems must not make a rate of a billion.
        let rate_of = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let rate = |name: &str| rate_of(now.counter(name), before.counter(name));
        let by_class = |now: ByClass<u64>, before: ByClass<u64>| {
            ByClass::from_each(|class| rate_of(now.of(class), before.of(class)))
        };
        Self {
            faults: rate("faults"),
            in_bytes: (rate("fetches") + rate("prefetched") + rate("swapped_in")) * PAGE_BYTES as f64,
            out_bytes: rate("evicted") * PAGE_BYTES as f64,
            stall: rate("stall_ns") / 1e9,
            pager: rate("pager_cpu_ns") / 1e9,
            link_in_bytes: by_class(now.link_in_class_bytes, before.link_in_class_bytes),
            link_out_bytes: by_class(now.link_out_class_bytes, before.link_out_class_bytes),
        }
    }

    /// Since the application's start.
    pub fn since_start(now: &Report) -> Self {
        Self::between(&Report { process: now.process, ..Report::default() }, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(process: u32, wall_seconds: f64, faults: u64) -> Report {
        let counters = [("faults".to_owned(), faults.into())].into_iter().collect();
        Report { process, wall_seconds, counters, ..Report::default() }
    }

    #[test]
    fn a_rate_is_what_happened_in_a_second() {
        assert_eq!(Rates::between(&report(1, 1.0, 100), &report(1, 3.0, 300)).faults, 100.0);
        assert_eq!(Rates::since_start(&report(1, 4.0, 300)).faults, 75.0);
    }

    #[test]
    fn what_goes_over_links_has_a_rate_for_each_class() {
        let at = |wall_seconds: f64, demand: u64| Report {
            link_in_class_bytes: ByClass { demand, ahead: 2 * demand, bulk: 0 },
            link_out_class_bytes: ByClass { bulk: demand, ..ByClass::default() },
            ..report(1, wall_seconds, 0)
        };
        let rates = Rates::between(&at(1.0, 100), &at(3.0, 300));
        assert_eq!(rates.link_in_bytes, ByClass { demand: 100.0, ahead: 200.0, bulk: 0.0 });
        assert_eq!(rates.link_out_bytes, ByClass { bulk: 100.0, ..ByClass::default() });
    }

    #[test]
    fn another_run_and_no_time_make_no_rate() {
        assert_eq!(Rates::between(&report(1, 1.0, 100), &report(2, 3.0, 300)), Rates::default());
        assert_eq!(Rates::between(&report(1, 3.0, 100), &report(1, 3.0, 300)), Rates::default());
        assert_eq!(Rates::between(&report(1, 1.0, 300), &report(1, 2.0, 100)).faults, 0.0);
    }
}

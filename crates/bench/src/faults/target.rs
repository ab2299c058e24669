//! What Farmem is to reach, and whether it did.

use farmem_page::ByteCount;

use super::case::{CaseName, PeerName};
use super::report::Figure;
use crate::target::Target;

const RESIDENT_SPARE: f64 = 16.0 * 1024.0 * 1024.0;

/// What Farmem's time is to be at most of that with zram-lz4, and what that is called.
const OF_ZRAM: [(CaseName, f64, &str); 5] = [
    (CaseName::Sequential, 0.35, "sequential read, of zram-lz4's time"),
    (CaseName::RandomRead, 0.85, "random read, of zram-lz4's time"),
    (CaseName::RandomWrite, 0.9, "random write, of zram-lz4's time"),
    (CaseName::Zipf, 0.7, "zipf, of zram-lz4's time"),
    (CaseName::SharedRandomRead, 1.0, "random read of shared memory, of zram-lz4's time"),
];

/// What Farmem's time is to be at most of that with zram-lz4; `None` where nothing is wanted.
pub(crate) fn wanted_of_zram(case: CaseName) -> Option<f64> {
    OF_ZRAM.iter().find(|(wanted, ..)| *wanted == case).map(|&(_, at_most, _)| at_most)
}

/// Judges all targets. Where `local` is not known, memory is not judged.
pub(crate) fn judge(figures: &[Figure], local: Option<ByteCount>) -> Vec<Target> {
    let time = |case, peer| {
        figures
            .iter()
            .find(|figure| figure.case == case && figure.peer == peer)
            .map(|figure| figure.nanoseconds_per_access)
    };
    let ratio =
        |case, (other_case, other_peer)| Some(time(case, PeerName::Farmem)? / time(other_case, other_peer)?);
    let limit = local.map_or(f64::INFINITY, |local| local.get() as f64 * 1.05 + RESIDENT_SPARE);
    let resident_peak = figures
        .iter()
        .filter(|figure| {
            figure.peer == PeerName::Farmem && figure.case != CaseName::Fits && limit.is_finite()
        })
        .map(|figure| figure.resident_peak_bytes as f64 / limit)
        .reduce(f64::max);
    let over_budget = |case| {
        figures.iter().any(|figure| {
            figure.peer == PeerName::Farmem
                && figure.case == case
                && figure.resident_peak_bytes as f64 > limit
        })
    };
    let to_zram = OF_ZRAM.map(|(case, at_most, name)| {
        Target::new(name, at_most, ratio(case, (case, PeerName::ZramLz4))).counted_unless(over_budget(case))
    });
    let others = [
        Target::new(
            "random read beside a busy sibling, of the time without",
            1.3,
            ratio(CaseName::Sibling, (CaseName::RandomRead, PeerName::Farmem)),
        )
        .counted_unless(over_budget(CaseName::Sibling)),
        Target::new(
            "random read of data that fits, of native time",
            1.01,
            ratio(CaseName::Fits, (CaseName::Fits, PeerName::Native)),
        ),
        Target::new("resident peak, of budget + 5% + 16 MiB", 1.0, resident_peak),
    ];
    to_zram.into_iter().chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(case: CaseName, peer: PeerName, nanoseconds_per_access: f64) -> Figure {
        Figure { nanoseconds_per_access, ..Figure::empty(case, peer) }
    }

    #[test]
    fn a_ratio_at_the_target_passes_and_one_above_falls_short() {
        let figures = [
            figure(CaseName::Sequential, PeerName::Farmem, 35.0),
            figure(CaseName::Sequential, PeerName::ZramLz4, 100.0),
            figure(CaseName::RandomRead, PeerName::Farmem, 86.0),
            figure(CaseName::RandomRead, PeerName::ZramLz4, 100.0),
        ];

        let targets = judge(&figures, Some(ByteCount::new(1 << 26)));

        assert_eq!(targets[0].passed, Some(true));
        assert_eq!(targets[1].passed, Some(false));
    }

    #[test]
    fn a_time_reached_with_more_memory_does_not_count() {
        let greedy =
            Figure { resident_peak_bytes: 1 << 28, ..figure(CaseName::Sequential, PeerName::Farmem, 1.0) };
        let figures = [greedy, figure(CaseName::Sequential, PeerName::ZramLz4, 100.0)];

        let targets = judge(&figures, Some(ByteCount::new(1 << 26)));

        assert_eq!(targets[0].passed, Some(false));
        assert!(targets[0].over_budget);
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        assert!(judge(&[], Some(ByteCount::new(1 << 26))).iter().all(|target| target.passed.is_none()));
    }
}

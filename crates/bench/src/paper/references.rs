//! Which measures answer which figures, and what the papers say there. Their machines were others, most of
//! all their networks: the number says what to expect in kind.

use crate::record::Paper;

/// A measure, and what papers say in the same matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reference {
    /// The step of `farmem bench all` that finds it; of all steps of a benchmark its name.
    pub(super) step: &'static str,
    /// What the names of its cases have in them.
    case: &'static str,
    pub(super) measure: &'static str,
    /// Figures, tables and sections.
    pub(super) figures: &'static [&'static str],
    /// What they say.
    number: &'static str,
}

impl Reference {
    pub(super) fn bench(&self) -> &'static str {
        self.step.split('/').next().unwrap_or(self.step)
    }
}

impl From<Reference> for Paper {
    fn from(reference: Reference) -> Self {
        Self { figure: reference.figures.join(", "), number: reference.number.to_owned() }
    }
}

const fn reference(
    step: &'static str,
    case: &'static str,
    measure: &'static str,
    figures: &'static [&'static str],
    number: &'static str,
) -> Reference {
    Reference { step, case, measure, figures, number }
}

/// The first that fits counts.
pub(super) const REFERENCES: &[Reference] = &[
    reference(
        "micro",
        "page fault",
        "time",
        &["PFA Figure 10", "PFA §2.2"],
        "the kernel's handler runs after 0.8 µs (0.1 µs on the paper's in-order core), and takes 4.5 to 13 µs (Haswell)",
    ),
    reference(
        "micro",
        "fault served",
        "time",
        &["PFA Figure 10"],
        "trap, processing and network card are over half of a fetch of 4 µs in software, 8 % in hardware, which makes it 2.2 times as fast",
    ),
    reference(
        "micro",
        "wake-up",
        "time",
        &["PFA Figure 10"],
        "trap, processing and network card are over half of a fetch of 4 µs in software",
    ),
    reference(
        "micro",
        "UFFDIO_MOVE",
        "time",
        &["PFA Figure 13"],
        "bookkeeping takes 2.5 times less when 64 pages come at once",
    ),
    reference(
        "micro",
        "UFFDIO_COPY",
        "time",
        &["PFA Figure 13"],
        "bookkeeping takes 2.5 times less when 64 pages come at once",
    ),
    reference(
        "faults",
        "",
        "time of an access",
        &["PFA Figure 2"],
        "programs up to 12.5 times as slow as with all their memory, with the kernel's pages in local memory",
    ),
    reference(
        "faults/random-read",
        "",
        "part of the time of a fault",
        &["PFA Figure 10"],
        "trap, processing and network card are over half of a fetch of 4 µs in software, 8 % in hardware",
    ),
    reference(
        "prefetch",
        "",
        "contribution",
        &["Canvas Table 5", "Canvas Figure 3"],
        "two-tier 45 to 79 %, the kernel's 41 to 68 %, Leap 23 to 67 %",
    ),
    reference(
        "prefetch",
        "",
        "accuracy",
        &["Canvas Table 5"],
        "two-tier 87 to 95 %, the kernel's 80 to 96 %, Leap 6 to 36 %",
    ),
    reference(
        "prefetch",
        "",
        "run time",
        &["Canvas §6.4.2"],
        "two tiers take 8 to 33 % off the time with the kernel's prefetcher",
    ),
    reference(
        "isolation/victim",
        "memcached",
        "p99 slowdown",
        &["Canvas Figure 2"],
        "native programs 3.9 times as slow beside Spark, 2.2 beside Neo4j",
    ),
    reference(
        "isolation/victim",
        "memcached",
        "throughput left",
        &["FastSwap Table II"],
        "Redis beside another program 452 times as fast as with disk swap",
    ),
    reference(
        "isolation/victim",
        "memcached",
        "swap-outs per second",
        &["Canvas Table 4", "FastSwap Table II"],
        "beside Spark 185 000 under Linux 5.5, 309 000 with isolation, 468 000 with kept entries too; with FastSwap 4 to 25 times as many as with disk swap",
    ),
    reference(
        "isolation/victim",
        "memcached",
        "swap-ins per second",
        &["FastSwap Table II", "Canvas Figure 5"],
        "with FastSwap 24 to 30 times as many as with disk swap; next to others a third of the bandwidth of programs alone, under Linux 5.5",
    ),
    reference(
        "isolation/growth",
        "",
        "requests per second of Redis in each second of its growth",
        &["FastSwap Figure 9"],
        "a third less while pages go on to disk, and then as many as before; with zswap two thirds less, and so it stays",
    ),
    reference(
        "isolation/growth",
        "",
        "requests per second of Redis in each second after a gift of memory",
        &["FastSwap Figure 2"],
        "over 60 s after a gift of 4 GiB with disk swap until all is as before",
    ),
    reference(
        "isolation/growth",
        "",
        "requests per second of Redis as its data grows",
        &["FastSwap Figure 9"],
        "a third less while pages go on to disk, and then as many as before; with zswap two thirds less, and so it stays",
    ),
    reference(
        "isolation/growth",
        "",
        "requests per second of Redis after a gift of memory",
        &["FastSwap Figure 2"],
        "over 60 s after a gift of 4 GiB with disk swap until all is as before",
    ),
    reference(
        "isolation/co-runs-half",
        ", half local",
        "time beside others",
        &["Canvas Figure 10"],
        "with 50 % local 1.9 times as fast as under Linux 5.5, at most 3.8",
    ),
    reference(
        "nodes/speed-up",
        "",
        "found in the read buffer",
        &["COMEX Figure 14"],
        "87 % of sort, 86 % of dictionary, 85 % of hull, 44 % of breadth-first search at the least memory",
    ),
    reference(
        "isolation/recovery",
        "memcached",
        "time to full throughput for each GiB given",
        &["FastSwap Figure 2"],
        "over 60 s after a gift of 4 GiB with disk swap",
    ),
    reference(
        "isolation/swap-in",
        "before it is touched",
        "time of a page brought back",
        &["FastSwap Table IV"],
        "9.56 µs for a compressed page, 5.70 µs for one that is not",
    ),
    reference(
        "isolation/swap-in",
        "as it is touched",
        "time of a page brought back",
        &["FastSwap Table IV"],
        "all pages at once, from disk: 419.66 µs for each, the search for its entry in the page table among it",
    ),
    reference(
        "isolation/efficiency",
        "",
        "bytes used for a byte stored",
        &["FastSwap Table II"],
        "0.64 and 0.58 of what disk swap takes",
    ),
    reference(
        "isolation/entries",
        "",
        "processor time of a swap-out",
        &["Canvas Figure 13", "Canvas Figure 16"],
        "swap-outs scale with the cores where entries are kept, and fall where each is allocated",
    ),
    reference(
        "isolation/entries",
        "",
        "swap-outs per second of one program",
        &["Canvas Figure 13", "Canvas Figure 12"],
        "memcached's grow with the cores, 8 to 48, where entries are kept, and fall where each is allocated",
    ),
    reference(
        "isolation/entries",
        "",
        "entries allocated for a swap-out",
        &["Canvas Figure 13", "Canvas Figure 16", "Canvas Figure 4"],
        "orders of magnitude fewer than swap-outs where entries are kept; as many in Linux 5.5",
    ),
    reference(
        "isolation/entries",
        "",
        "time of an access beside the other",
        &["Canvas Figure 12"],
        "managed programs with dozens of threads are 1.3 to 1.8 times as fast where entries are kept",
    ),
    reference(
        "isolation/co-runs",
        "",
        "slowdown beside others",
        &["Canvas Figure 2", "Canvas Table 3"],
        "on average 3.2 times as slow under Linux 5.5, 3.8 under Fastswap, 1.5 and less under Canvas",
    ),
    reference(
        "isolation/co-runs",
        "",
        "least slowdown",
        &["Canvas Table 3"],
        "1.0 to 1.3 under Canvas, 1.4 to 2.1 under Linux 5.5 and Fastswap",
    ),
    reference(
        "isolation/co-runs",
        "",
        "largest slowdown",
        &["Canvas Table 3"],
        "1.1 to 1.9 under Canvas, 6.1 under Linux 5.5, 8.2 under Fastswap",
    ),
    reference(
        "isolation/co-runs",
        "",
        "spread of slowdowns",
        &["Canvas Table 3"],
        "a seventh of Linux 5.5's",
    ),
    reference(
        "isolation/co-runs",
        "",
        "time alone",
        &["Canvas Figure 9", "FastSwap Table III"],
        "Fastswap and Canvas's swap take about the same; FastSwap runs Spark's programs in 12 to 73 % of disk swap's time, where that comes to an end",
    ),
    reference(
        "isolation/co-runs",
        "",
        "time beside others",
        &["Canvas Figure 10", "FastSwap Table I"],
        "3.5 times as fast as under Linux 5.5 with 25 % local, at most 6.2; 1.9 and 3.8 with 50 %; over disk swap 1.4 to 8.4 times as fast with FastSwap",
    ),
    reference(
        "isolation/co-runs",
        "",
        "contribution beside others",
        &["Canvas Table 5", "Canvas Figure 14"],
        "two-tier 45 to 79 %; with the schedule 10.7 % more",
    ),
    reference(
        "isolation/co-runs",
        "",
        "accuracy beside others",
        &["Canvas Table 5", "Canvas Figure 14"],
        "two-tier 87 to 95 %; with the schedule 5.5 % more",
    ),
    reference(
        "isolation/co-runs",
        "",
        "swap-outs per second of all beside each other",
        &["Canvas Table 4"],
        "185 000 under Linux 5.5, 309 000 with isolation, 468 000 with kept entries too",
    ),
    reference("nodes/shared", "", "ratio of parts by weight", &["Canvas §6.4.3"], "0.88, weighted min-max"),
    reference(
        "nodes/shared",
        "",
        "p99 of 16 pages",
        &["Canvas Figure 14"],
        "demand takes no longer beside what is fetched ahead",
    ),
    reference(
        "nodes/shared",
        "",
        "p90 of what is fetched ahead",
        &["Canvas Figure 14"],
        "5 % less with the schedule, with Leap 9 times less",
    ),
    reference("nodes/spaces", "", "ratio of parts by weight", &["Canvas §6.4.3"], "0.88, weighted min-max"),
    reference(
        "nodes/spaces",
        "",
        "p99 of a fault",
        &["Canvas Figure 14"],
        "demand takes no longer beside what is fetched ahead",
    ),
    reference(
        "nodes/spaces",
        "",
        "reads ahead dropped",
        &["Canvas Figure 14"],
        "those that would come later than pages are used; their number isn't told",
    ),
    reference(
        "nodes/ways",
        "",
        "p99 of a page",
        &["Canvas Figure 6"],
        "99 % of demand fetches within 40 µs, by RDMA, while four programs run; here nothing else does",
    ),
    reference(
        "nodes/ways",
        "",
        "p99 of a page under load",
        &["Canvas Figure 6"],
        "99 % of demand fetches within 40 µs, by RDMA, while four programs run",
    ),
    reference(
        "nodes/ways",
        "",
        "p50 of a page",
        &["COMEX §3.3", "PFA Figure 10"],
        "10.54 µs for a round trip without queues, by RDMA over 10 Gbit/s; 4 µs assumed by PFA",
    ),
    reference(
        "nodes/speed-up",
        "",
        "time of a kernel",
        &["COMEX Figure 13", "FastSwap Table III", "PFA Figure 2"],
        "over 20 times as fast as disk swap at the least memory, 6.8 to 170",
    ),
    reference(
        "nodes/sweeps",
        "",
        "time for a parameter",
        &["COMEX Figure 10", "COMEX Figure 11", "COMEX Figure 12"],
        "best with T of 512 to 8K pages, P of 8 to 16, B of 4096",
    ),
    reference("nodes/programs", "", "found in the read buffer", &["COMEX Figure 14"], "44 to 87 %"),
];

/// The steps with a measure that answers the figure, each once.
pub(super) fn steps_of(figure: &str) -> Vec<&'static str> {
    let mut steps = Vec::new();
    for reference in REFERENCES.iter().filter(|reference| reference.figures.contains(&figure)) {
        if !steps.contains(&reference.step) {
            steps.push(reference.step);
        }
    }
    steps
}

/// What papers say of this.
pub(crate) fn of(bench: &str, case: &str, measure: &str) -> Option<Reference> {
    let fits = |reference: &&Reference| {
        reference.bench() == bench && reference.measure == measure && case.contains(reference.case)
    };
    REFERENCES.iter().find(fits).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: [(&str, &str); 5] = [
        ("micro", include_str!("../micro/records.rs")),
        ("faults", include_str!("../faults/records.rs")),
        ("prefetch", include_str!("../prefetch/records.rs")),
        ("isolation", include_str!("../isolation/records.rs")),
        ("nodes", include_str!("../nodes/records.rs")),
    ];

    #[test]
    fn the_first_reference_that_fits_counts() {
        assert_eq!(of("faults", "zipf", "time of an access").unwrap().figures, ["PFA Figure 2"]);
        let brought_back = |case| of("isolation", case, "time of a page brought back").unwrap().number;
        assert!(brought_back("before it is touched").starts_with("9.56"));
        assert!(brought_back("as it is touched").contains("419.66"));
        let paper: Paper = of("isolation", "memcached", "p99 slowdown").unwrap().into();
        assert_eq!(paper.figure, "Canvas Figure 2");
        assert_eq!(of("faults", "zipf", "resident peak"), None);
    }

    #[test]
    fn what_is_referred_to_is_measured() {
        for reference in REFERENCES {
            let (_, source) = RECORDS.iter().find(|(bench, _)| *bench == reference.bench()).unwrap();
            assert!(source.contains(&format!("\"{}\"", reference.measure)), "{}", reference.measure);
        }
    }
}

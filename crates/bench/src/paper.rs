//! What the papers say: their figures and tables, and the numbers in them, in the matters that benchmarks measure. Their machines were others, most of all their
//! networks: the number says what to expect in kind.

use crate::record::Paper;

/// A figure or table, and what it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reference {
    pub(crate) figure: &'static str,
    pub(crate) number: &'static str,
}

impl From<Reference> for Paper {
    fn from(reference: Reference) -> Self {
        Self { figure: reference.figure.to_owned(), number: reference.number.to_owned() }
    }
}

/// By benchmark, the beginning of a case's name, and measure.
const REFERENCES: &[(&str, &str, &str, Reference)] = &[
    (
        "micro",
        "page fault",
        "time",
        Reference {
            figure: "PFA §2.2",
            number: "0.8 µs until the kernel's handler runs, 4.5 to 13 µs in it (Haswell)",
        },
    ),
    (
        "micro",
        "fault served",
        "time",
        Reference {
            figure: "PFA Figures 10 and 11",
            number: "a fetch is 2.2 times as fast in hardware as in the kernel",
        },
    ),
    (
        "faults",
        "",
        "time of an access",
        Reference {
            figure: "FastSwap Table IV",
            number: "9.56 µs for a compressed page, 5.70 µs for one that is not, 419.66 µs from disk",
        },
    ),
    (
        "prefetch",
        "",
        "contribution",
        Reference {
            figure: "Canvas Table 5",
            number: "two-tier 45 to 79 %, the kernel's 41 to 68 %, Leap 23 to 67 %",
        },
    ),
    (
        "prefetch",
        "",
        "accuracy",
        Reference {
            figure: "Canvas Table 5",
            number: "two-tier 87 to 95 %, the kernel's 80 to 96 %, Leap 6 to 36 %",
        },
    ),
    (
        "prefetch",
        "",
        "run time",
        Reference {
            figure: "Canvas §6.4.2",
            number: "two tiers take 8 to 33 % off the time with the kernel's prefetcher",
        },
    ),
    (
        "isolation",
        "memcached",
        "p99 slowdown",
        Reference {
            figure: "Canvas Figures 2 and 11",
            number: "native programs 3.9 times as slow beside Spark, 2.2 beside Neo4j; isolation alone makes them 2.5 times as fast, at most 5.2",
        },
    ),
    (
        "isolation",
        "memcached",
        "time to full throughput for each GiB given",
        Reference { figure: "FastSwap Figure 2", number: "over 60 s after a gift of 4 GiB with disk swap" },
    ),
    (
        "isolation",
        "",
        "time of a page brought back",
        Reference { figure: "FastSwap Table IV", number: "9.56 µs, of disk swap 419.66 µs" },
    ),
    (
        "isolation",
        "",
        "bytes used for a byte stored",
        Reference { figure: "FastSwap Table II", number: "0.64 and 0.58 of what disk swap takes" },
    ),
    (
        "isolation",
        "",
        "processor time of a swap-out",
        Reference {
            figure: "Canvas Figures 13 and 16, Table 4",
            number: "kept entries make swap-outs 1.51 times as many, isolation 1.67 times",
        },
    ),
    (
        "isolation",
        "",
        "slowdown beside others",
        Reference {
            figure: "Canvas Figure 10 and Table 3",
            number: "programs of a group are 3.5 times as fast as under Linux 5.5 on average, 6.2 at most",
        },
    ),
    (
        "isolation",
        "",
        "spread of slowdowns",
        Reference { figure: "Canvas Table 3", number: "a seventh of Linux 5.5's" },
    ),
    (
        "nodes",
        "",
        "ratio of parts by weight",
        Reference { figure: "Canvas §6.4.3", number: "0.88, weighted min-max" },
    ),
    (
        "nodes",
        "",
        "p99 of a page",
        Reference { figure: "Canvas Figure 6", number: "99 % of demand fetches within 40 µs, by RDMA" },
    ),
    (
        "nodes",
        "",
        "p50 of a page",
        Reference {
            figure: "COMEX §3.3",
            number: "10.54 µs for a round trip without queues, by RDMA over 10 Gbit/s",
        },
    ),
    (
        "nodes",
        "",
        "time of a kernel",
        Reference {
            figure: "COMEX Figure 13",
            number: "over 20 times as fast as disk swap at the least memory, 6.8 to 170",
        },
    ),
    (
        "nodes",
        "",
        "time for a parameter",
        Reference {
            figure: "COMEX Figures 10 to 12",
            number: "best with T of 512 to 8K pages, P of 8 to 16, B of 4096",
        },
    ),
    (
        "nodes",
        "",
        "time of an access",
        Reference {
            figure: "COMEX Figures 13 and 17",
            number: "7 to 170 times as fast as disk swap, at a tenth local",
        },
    ),
    ("nodes", "", "found in the read buffer", Reference { figure: "COMEX Figure 14", number: "44 to 87 %" }),
];

/// What a paper says of this.
pub(crate) fn of(bench: &str, case: &str, measure: &str) -> Option<Reference> {
    REFERENCES
        .iter()
        .find(|(of_bench, begins, of_measure, _)| {
            *of_bench == bench && *of_measure == measure && case.starts_with(begins)
        })
        .map(|(.., reference)| *reference)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reference_that_fits_counts() {
        assert_eq!(of("faults", "zipf", "time of an access").unwrap().figure, "FastSwap Table IV");
        assert_eq!(of("isolation", "memcached", "p99 slowdown").unwrap().figure, "Canvas Figures 2 and 11");
        assert_eq!(of("faults", "zipf", "resident peak"), None);
    }
}

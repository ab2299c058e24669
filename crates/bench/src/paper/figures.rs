//! What is to be answered: the evaluations of the papers, as far as a machine without their hardware can repeat them.

/// Figures and tables, and what they show.
pub(super) const FIGURES: &[(&str, &str)] = &[
    ("Canvas Figure 2", "slowdowns of programs next to others"),
    ("Canvas Figure 9", "programs alone under several swap systems"),
    ("Canvas Figure 10", "programs alone and next to others, 25 % and 50 % of their memory local"),
    ("Canvas Table 3", "mean, least, largest and spread of slowdowns"),
    ("Canvas Figure 11", "native programs next to a managed one, isolation alone"),
    ("Canvas Figure 12", "programs with kept entries and without"),
    ("Canvas Table 4", "swap-outs per second next to others"),
    ("Canvas Figure 13", "swap-outs, and the time to find an entry, by number of cores"),
    ("Canvas Table 5", "contribution and accuracy of prefetchers"),
    ("Canvas Figure 14", "demand and prefetching on one link, with and without a schedule"),
    ("COMEX Figure 10", "frames reserved ahead (T)"),
    ("COMEX Figure 11", "pages read at once (P)"),
    ("COMEX Figure 12", "pages kept of those that were read (B)"),
    ("COMEX Figure 13", "kernels compared with disk swap, by local memory"),
    ("COMEX Figure 14", "faults served by pages that came along with others"),
    ("FastSwap Table I", "a program next to Redis: speed-up over disk swap"),
    ("FastSwap Table II", "throughput of Redis, pages in and out, space that swapped pages take"),
    ("FastSwap Table III", "run times of programs by swap system"),
    ("FastSwap Table IV", "time to bring a page back"),
    ("FastSwap Figure 2", "throughput of Redis over time, after it was given memory"),
    ("FastSwap Figure 9", "throughput of Redis over time, while swapped pages outgrow its memory"),
    ("PFA Figure 10", "where the time of a fault goes"),
    ("PFA Figure 13", "bookkeeping for each page, in the fault and batched"),
];

/// What of them is not measured, and why.
pub(super) const LEFT_OUT: &[(&str, &str)] = &[
    (
        "Canvas Figure 11",
        "a managed program next to native ones, and isolation alone: memcached runs next to a native program that writes at random, with all that Farmem does; native programs \
         next to one in Java are among the co-runs",
    ),
    (
        "Canvas Figure 12",
        "managed programs, and cores by the dozen: two programs that write instead, on two cores",
    ),
    (
        "Canvas Figure 14",
        "(b), contribution and accuracy: pages that are fetched ahead travel with the page that a thread waits for, so no schedule changes them",
    ),
    (
        "FastSwap Table I",
        "Spark and Redis next to each other: XGBoost, Snappy and a graph in Java next to memcached instead",
    ),
    (
        "FastSwap Table II",
        "Redis next to Spark: memcached next to random writes instead; the time that processors wait for a disk",
    ),
    ("FastSwap Table III", "Spark: kernels and the programs of the groups instead"),
    (
        "FastSwap Figure 2",
        "4 GiB from a balloon within seconds: a limit that is raised at once, of a server of megabytes",
    ),
    (
        "FastSwap Figure 9",
        "clients that never pause: while more data is stored nothing is asked, and those seconds are left out",
    ),
    (
        "PFA Figure 10",
        "trap, message and wake-ups one by one in a fault of Farmem's: the pager doesn't see them, so they are one part; the primitives are measured alone",
    ),
    (
        "PFA Figure 13",
        "the part of a program's time that bookkeeping takes: what is measured is moving and copying a page, one at a time and many at once",
    ),
];

//! What is to be answered: every figure and table of the papers, as far as a machine without their hardware
//! can repeat them.

/// Figures and tables, and what they show, in the order of the papers. Those that measure nothing stand
/// together.
pub(super) const FIGURES: &[(&str, &str)] = &[
    ("Canvas Figures 1, 7 and 8, Tables 1 and 2", "the data path, states of pages, tiers; issues, programs"),
    ("Canvas Figure 2", "slowdowns of programs next to others"),
    ("Canvas Figure 3", "contribution of Leap's prefetching, alone and next to others"),
    ("Canvas Figure 4", "entries allocated in a second, alone and next to others"),
    ("Canvas Figure 5", "bandwidth of swap-ins, alone and next to others"),
    ("Canvas Figure 6", "latency of demand and of prefetching, next to others"),
    ("Canvas Figure 9", "programs alone under several swap systems"),
    ("Canvas Figure 10", "programs alone and next to others, 25 % and 50 % of their memory local"),
    ("Canvas Table 3", "mean, least, largest and spread of slowdowns"),
    ("Canvas Figure 11", "native programs next to a managed one, isolation alone"),
    ("Canvas Figure 12", "programs with kept entries and without"),
    ("Canvas Table 4", "swap-outs per second next to others"),
    ("Canvas Figure 13", "swap-outs, and the time to find an entry, by number of cores"),
    ("Canvas Table 5", "contribution and accuracy of prefetchers, next to others"),
    ("Canvas Figure 14", "demand and prefetching on one link, with and without a schedule"),
    ("Canvas Figure 15", "the part of the time that goes for entries, alone and next to others"),
    ("Canvas Figure 16", "as Figure 13, compared with Linux 5.14"),
    ("COMEX Figures 1 to 9, Table 1", "a cluster's memory, flow charts, layouts; benchmarks"),
    ("COMEX Figure 10", "frames reserved ahead (T)"),
    ("COMEX Figure 11", "pages read at once (P)"),
    ("COMEX Figure 12", "pages kept of those that were read (B)"),
    ("COMEX Figure 13", "kernels compared with disk swap, by local memory"),
    ("COMEX Figure 14", "faults served by pages that came along with others"),
    ("COMEX Figure 15", "as Figure 13, ten at once on several nodes"),
    ("COMEX Figure 16", "as Figure 14, ten at once on several nodes"),
    ("COMEX Figure 17", "kernels compared with swap on a solid-state disk"),
    ("FastSwap Figures 3, 5 and 6", "the parts, the index, two levels of swap-in"),
    ("FastSwap Figure 1", "pages in and out of a program over time"),
    ("FastSwap Figure 2", "throughput of Redis over time, after it was given memory"),
    ("FastSwap Figure 4", "pages by their compressed size, of four programs"),
    ("FastSwap Table I", "a program next to Redis: speed-up over disk swap"),
    ("FastSwap Table II", "throughput of Redis, pages in and out, space that swapped pages take"),
    ("FastSwap Table III", "run times of programs by swap system"),
    ("FastSwap Figure 7", "use of processors over time"),
    ("FastSwap Figure 8", "throughput of the disk over time"),
    ("FastSwap Figure 9", "throughput of Redis over time, while swapped pages outgrow its memory"),
    ("FastSwap Figure 10", "a program whose swapped pages fill the memory for them, none moved to disk"),
    ("FastSwap Figure 11", "the same, the oldest moved to disk"),
    ("FastSwap Table IV", "time to bring a page back before it is asked for"),
    ("PFA Figures 1 and 3 to 8", "translation, the accelerator and its queues, parameters"),
    ("PFA Figure 2", "slowdown of programs whose pages go to local memory"),
    ("PFA Figure 9", "run times of two programs by local memory"),
    ("PFA Figure 10", "where the time of a fault goes"),
    ("PFA Figure 11", "the same with a blade of 1 µs"),
    ("PFA Figure 12", "faults for paging, of all faults"),
    ("PFA Figure 13", "bookkeeping for each page, in the fault and batched"),
    ("PFA Figure 14", "improvement of run times by local memory"),
];

const NOTHING_MEASURED: &str = "nothing is measured there";
const SIMULATED: &str = "no step: the accelerator is simulated, by `make hw-bench` (hw/doc/evaluation.md)";
const KMEANS: &str = "not measured: no benchmark follows processors and disk over the time of a program; KMeans on Spark isn't run";

/// What of them is not measured, and why.
pub(super) const LEFT_OUT: &[(&str, &str)] = &[
    ("Canvas Figures 1, 7 and 8, Tables 1 and 2", NOTHING_MEASURED),
    (
        "Canvas Figure 2",
        "Spark and Neo4j: a program that writes at random, and one in Java that walks through a graph, stand for them",
    ),
    ("Canvas Figure 3", "next to others: each program runs alone, under Leap's policy as under the others"),
    (
        "Canvas Figure 4",
        "several programs together: one, of several threads, and how many of its swap-outs allocate",
    ),
    (
        "Canvas Figure 5",
        "alone, and as bytes from a node: `isolation/victim` counts pages that come back from the pool in a second, next to another program",
    ),
    (
        "Canvas Figure 6",
        "programs next to each other: one client of a node, alone and next to one that reads as much as it can; Figure 14 has fetches ahead",
    ),
    (
        "Canvas Figure 9",
        "Spark, Cassandra, Neo4j; Infiniswap and Leap: a graph in Java, and the kernel's kinds of swap",
    ),
    (
        "Canvas Figure 10",
        "Spark, Cassandra, Neo4j: a graph in Java; its far memory is on a node with `--far node` alone, which is no step",
    ),
    ("Canvas Table 3", "eleven managed programs: one in Java, under three collectors"),
    (
        "Canvas Figure 11",
        "not measured: programs run with all that Farmem does, and no step turns the rest off",
    ),
    (
        "Canvas Figure 12",
        "managed programs, and cores by the dozen: two programs that write, and one of several threads whose reservations are given back, on the cores that there are",
    ),
    ("Canvas Table 4", "Spark: memcached next to a program that writes at random, and the co-runs"),
    (
        "Canvas Figure 13",
        "8 to 48 cores: a program of 1 to 16 threads, and in the pool alone threads of which each is a process of its own, on the cores that there are",
    ),
    ("Canvas Table 5", "other policies next to others: programs next to each other have the default one"),
    (
        "Canvas Figure 14",
        "(b), contribution and accuracy without a schedule: programs always have one; `nodes/spaces` and the co-runs have both with it",
    ),
    (
        "Canvas Figure 15",
        "not measured: entries are claimed without a lock, and nothing measures what part of a program's time that takes",
    ),
    ("Canvas Figure 16", "Linux 5.14, and a program on 8 to 48 cores: as Figure 13"),
    ("COMEX Figures 1 to 9, Table 1", NOTHING_MEASURED),
    (
        "COMEX Figure 10",
        "T of 0, which can't be set, and above 16384; ten programs at once: one, with T from 64 pages",
    ),
    ("COMEX Figure 11", "P of 32 and 64: a read brings 16 pages at most"),
    (
        "COMEX Figure 13",
        "gigabytes of data, and a disk with a disk's speed: the disk is whichever the machine has",
    ),
    ("COMEX Figure 15", "not measured: kernels run one at a time, with one node"),
    ("COMEX Figure 16", "not measured: kernels run one at a time, with one node"),
    ("COMEX Figure 17", "not measured: no step limits the disk to a solid-state disk's speed"),
    ("FastSwap Figures 3, 5 and 6", NOTHING_MEASURED),
    ("FastSwap Figure 1", "not measured: no benchmark follows pages in and out over the time of a program"),
    (
        "FastSwap Figure 2",
        "4 GiB from a balloon within seconds: a limit that is raised at once, of a server of megabytes",
    ),
    (
        "FastSwap Figure 4",
        "not measured for programs: `farmem stat NAME --regions` shows how well pages are packed, but no benchmark sorts them by size",
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
    ("FastSwap Figure 7", KMEANS),
    ("FastSwap Figure 8", KMEANS),
    (
        "FastSwap Figure 9",
        "clients that never pause: while more data is stored nothing is asked, and those seconds are left out",
    ),
    ("FastSwap Figure 10", KMEANS),
    ("FastSwap Figure 11", KMEANS),
    ("FastSwap Table IV", "pages that are stored as they are (`--far raw`)"),
    ("PFA Figures 1 and 3 to 8", NOTHING_MEASURED),
    (
        "PFA Figure 2",
        "their two programs: access patterns, and kernels with their far memory in the pool, and natively",
    ),
    ("PFA Figure 9", SIMULATED),
    (
        "PFA Figure 10",
        "trap, message and wake-ups one by one in a fault of Farmem's: the pager doesn't see them, so they are one part; the primitives are measured alone",
    ),
    ("PFA Figure 11", SIMULATED),
    ("PFA Figure 12", SIMULATED),
    (
        "PFA Figure 13",
        "the part of a program's time that bookkeeping takes: what is measured is moving and copying a page, one at a time and many at once",
    ),
    ("PFA Figure 14", SIMULATED),
];

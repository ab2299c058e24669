//! The one definition of what `farmem bench` accepts, and the programs that it runs. Help texts, manual pages
//! and completions all come from it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use farmem::{parse_policy, parse_size};
use farmem_bench::attach::Part as AttachPart;
use farmem_bench::faults::{CaseName, PeerName};
use farmem_bench::isolation::{CoRunsTier, Part as IsolationPart, Peer as IsolationPeer};
use farmem_bench::kernels::Kernel;
use farmem_bench::nodes::Part as NodesPart;
use farmem_bench::prefetch::{SubjectName, SubjectTier};
use farmem_bench::programs::{Peer as ProgramsPeer, ProgramName};
use farmem_bench::workload::{Compressibility, Pattern};
use farmem_page::ByteCount;
use farmem_policy::PrefetchPolicy;

/// Measure Farmem compared with the kernel's own swap.
///
/// It is called as `farmem bench`, and measures the `farmem` that was called; called by its own name, the one
/// next to it, else the one on PATH.
#[derive(Parser, Debug)]
#[command(
    name = "farmem-bench",
    bin_name = "farmem bench",
    version = farmem::version(),
    disable_help_subcommand = true,
    after_help = "Example:\n  farmem bench faults --quick"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// All benchmarks one after the other: a line of JSON for each measurement, and one report as HTML
    All(AllArguments),
    /// Access patterns over data four times the local memory: native, Farmem and each kind of kernel swap
    Faults(FaultsArguments),
    /// What pagers that come from outside cost the programs that they manage
    Attach(BenchAttachArguments),
    /// Real programs with a half and a quarter of their memory local: Farmem, zram and zswap
    Programs(ProgramsArguments),
    /// Applications side by side: Farmem and each kind of kernel swap
    Isolation(IsolationArguments),
    /// Programs and access patterns, or your own program, under each prefetching policy
    Prefetch(PrefetchArguments),
    /// Memory nodes compared with bare connections, and programs whose far memory is on nodes, in the pool or
    /// on disk
    Nodes(NodesArguments),
    /// What changed between two results of `bench all`, beyond chance
    Compare(CompareArguments),
    /// The access patterns and programs in results of `bench all` as Markdown tables, as in the README
    Table(TableArguments),
    /// Which figures and tables of the papers are measured, and by what, as a Markdown table
    Papers(PapersArguments),
    /// What each step of a fault cost, in programs that ran with `farmem run --stats`
    Steps(StepsArguments),
    /// What system calls, page faults, moves of pages and wake-ups cost on this machine
    Micro(MicroArguments),
    /// Whether the cost of a page and of a batch of pages grows with the pool, up to a terabyte
    Scale(ScaleArguments),
    /// Undo what a benchmark left behind when it was killed: swap, devices, mounts, control groups
    Cleanup(CleanupArguments),
    /// The program that `bench` measures
    #[command(hide = true)]
    Workload(WorkloadArguments),
    /// A program that `bench` measures next to others
    #[command(hide = true)]
    Compression(CompressionArguments),
    /// A numerical kernel, or a problem on graphs, keys or points, that `bench` measures
    #[command(hide = true)]
    Kernel(KernelArguments),
    /// A program that `bench` measures with a memory node
    #[command(hide = true)]
    Readers(ReadersArguments),
    /// Write the manual pages
    #[command(hide = true)]
    Man(ManArguments),
    /// Write the completions for a shell
    #[command(hide = true)]
    Completions(CompletionsArguments),
}

/// All benchmarks one after the other: a line of JSON for each measurement, and one report as HTML.
///
/// The folder gets records.jsonl, report.html and progress.json, after each step. An interrupted run goes on
/// where it stopped when it is started again with the same folder. Steps that this machine can't run are left
/// out and named, with the reason. All of it takes hours, with `--quick` about 40 minutes; kernel swap and
/// links between namespaces need root. With `--beside` another build makes each step in turn with this one,
/// and the end of the output says what changed from that one to this one.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sudo farmem bench all --out results --quick\n  sudo farmem bench all --out results --only faults/random-read\n  sudo farmem bench all --out results --only faults \
                  --beside ../before/target/release/farmem"
)]
pub(crate) struct AllArguments {
    /// Folder for the results, created if it doesn't exist
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: PathBuf,
    /// Less data, shorter measurements and fewer repetitions: rougher figures, sooner
    #[arg(long)]
    pub(crate) quick: bool,
    /// Repetitions of everything, from 1 to 100; a comparison needs at least 4 to tell differences from
    /// chance [default: 5, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeat: Option<u32>,
    /// Data of each program that is measured [default: 256M, with --quick 32M to 64M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) data: Option<ByteCount>,
    /// Only these benchmarks, such as `faults`, or parts of them, such as `faults/zipf`; `micro` is always
    /// measured
    #[arg(long, value_name = "BENCH[/PART]", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Only these peers for the access patterns
    #[arg(long, value_name = "PEER", value_delimiter = ',', value_enum)]
    pub(crate) peer: Vec<PeerName>,
    /// A Python with XGBoost, for programs next to each other and real programs, and with what else these
    /// need (see `farmem bench programs --help`)
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub(crate) python: PathBuf,
    /// Folder for swap files; it must be on a disk
    #[arg(long, value_name = "FOLDER", default_value = "/var/tmp")]
    pub(crate) swap_folder: PathBuf,
    /// Another build of farmem, to measure in turn with this one; its results go to `FOLDER/beside`
    #[arg(long, value_name = "FARMEM")]
    pub(crate) beside: Option<PathBuf>,
}

/// How long to measure, and how the figures are printed.
#[derive(Args, Debug)]
pub(crate) struct RoundsArguments {
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Less data, shorter measurements and one repetition: rougher figures, sooner
    #[arg(long)]
    pub(crate) quick: bool,
    /// Repetitions, from 1 to 100, in turn for all that is compared [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeat: Option<u32>,
}

/// How to measure compared with the kernel's swap.
#[derive(Args, Debug)]
pub(crate) struct MeasureArguments {
    #[command(flatten)]
    pub(crate) rounds: RoundsArguments,
    /// Data of each program that is measured, of which a quarter is local [default: 256M, with --quick 64M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) data: Option<ByteCount>,
    /// Folder for swap files; it must be on a disk
    #[arg(long, value_name = "FOLDER", default_value = "/var/tmp")]
    pub(crate) swap_folder: PathBuf,
}

/// Access patterns over data four times the local memory: native, Farmem and each kind of kernel swap.
///
/// Kernel swap needs root; a peer that this machine can't run is left out and named. Swap is on only while
/// its peer runs. The table goes to standard output, progress to standard error.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sudo farmem bench faults\n  sudo farmem bench faults --quick --only random-read,sequential \
                  --peer native,farmem,zram-lz4 --json"
)]
pub(crate) struct FaultsArguments {
    #[command(flatten)]
    pub(crate) measure: MeasureArguments,
    /// Only these cases
    #[arg(long, value_name = "CASE", value_delimiter = ',', value_enum)]
    pub(crate) only: Vec<CaseName>,
    /// Only these peers
    #[arg(long, value_name = "PEER", value_delimiter = ',', value_enum)]
    pub(crate) peer: Vec<PeerName>,
    /// Also say what each step of Farmem's faults cost
    #[arg(long)]
    pub(crate) steps: bool,
}

/// What pagers that come from outside cost the programs that they manage.
///
/// Programs that do nothing, started natively and below a program that is managed; processes that sleep below
/// a supervisor; threads that are busy and calls that wait while a pager comes; and memory above the budget,
/// until it has left. The programs are in C, and need a compiler (`cc`); attaching needs root. All of it
/// takes some minutes; with `--quick`, some seconds. What can't be measured is left out and named. The table
/// goes to standard output, progress to standard error.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sudo farmem bench attach --quick\n  sudo farmem bench attach --only stop,early-returns --json"
)]
pub(crate) struct BenchAttachArguments {
    #[command(flatten)]
    pub(crate) rounds: RoundsArguments,
    /// Only these parts
    #[arg(long, value_name = "PART", value_delimiter = ',', value_enum)]
    pub(crate) only: Vec<AttachPart>,
}

/// Real programs, unmodified, with a half and a quarter of their memory local: Farmem, zram and zswap.
///
/// Each program first runs with all the memory that it wants, and then under each peer with a part of what it
/// had resident. It prints a checksum; a checksum that differs from the first ends the benchmark with an
/// error. Programs whose interpreter isn't installed are left out and named. The Python programs named after
/// Polars, numpy, scikit-learn, DuckDB and XGBoost need these modules. Kernel swap reads ahead as this
/// machine is set up (`vm.page-cluster`); peers named *no-readahead* do not. Kernel swap needs root, and is
/// on only while its peer runs; in control groups of version 1, the kernel is kept from ending a program at
/// its limit. All programs take an hour for each repetition; with `--quick`, about a quarter of that. The
/// table goes to standard output, progress to standard error.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sudo farmem bench programs --only python-dict,polars --share 50\n  sudo farmem bench programs --quick --python .venv/bin/python --json"
)]
pub(crate) struct ProgramsArguments {
    #[command(flatten)]
    pub(crate) rounds: RoundsArguments,
    /// Only these programs
    #[arg(long, value_name = "PROGRAM", value_delimiter = ',', value_enum)]
    pub(crate) only: Vec<ProgramName>,
    /// The parts of a program's memory that are local, in percent of what it has resident without a limit
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "50,25", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) share: Vec<u32>,
    /// Only these peers [default: farmem, zram, zram-no-readahead, zswap]
    #[arg(long, value_name = "PEER", value_delimiter = ',', value_enum)]
    pub(crate) peer: Vec<ProgramsPeer>,
    /// A Python with the modules of the programs
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub(crate) python: PathBuf,
    /// Folder for swap files; it must be on a disk
    #[arg(long, value_name = "FOLDER", default_value = "/var/tmp")]
    pub(crate) swap_folder: PathBuf,
}

/// A server next to a program that swaps as fast as it can, and programs of several kinds side by side:
/// Farmem and each kind of kernel swap.
///
/// memcached holds data four times its local memory and gets requests at a fixed rate, alone and while
/// another program writes at random to four times its own local memory. Each has a processor of its own; what
/// they share is the paging. Then Snappy, memcached (four threads, a tenth of the requests write), XGBoost (a
/// thread for each processor) and a Java program run alone and all at once, each with the same share of a
/// processor. Under Farmem, they share one `farmem host`, with weights in proportion to their data. Kernel
/// swap reads ahead as this machine is set up (`vm.page-cluster`); peers named *no-readahead* do not. The
/// report says how much each reads at once. Kernel swap and shares of processors need root.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sudo farmem bench isolation\n  sudo farmem bench isolation --quick --only co-runs --peer farmem,zram --json\n  sudo farmem bench isolation --quick --only co-runs --far node"
)]
pub(crate) struct IsolationArguments {
    #[command(flatten)]
    pub(crate) measure: MeasureArguments,
    /// Only these parts
    #[arg(long, value_name = "PART", value_delimiter = ',', value_enum)]
    pub(crate) only: Vec<IsolationPart>,
    /// A Python with XGBoost, for the co-runs
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub(crate) python: PathBuf,
    /// Only these peers [default: farmem, zram, zswap, file, loop, zswap-no-readahead, file-no-readahead]
    #[arg(long, value_name = "PEER", value_delimiter = ',', value_enum)]
    pub(crate) peer: Vec<IsolationPeer>,
    /// Where the far memory of programs side by side is, under Farmem
    #[arg(long, value_name = "PLACE", value_enum, default_value_t)]
    pub(crate) far: CoRunsTier,
}

/// Programs and access patterns, or your own program, under each prefetching policy.
///
/// All of them take some hours; with `--quick`, about ten minutes. Programs that aren't installed are left
/// out and named. Each runs with a quarter of the memory that is resident when nothing limits it, and must
/// write the same to standard output every time. The table goes to standard output, progress to standard
/// error.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem bench prefetch --quick --only xgboost,c-hash-join\n  farmem bench prefetch --policy none,streams --local 256M -- python3 train.py"
)]
pub(crate) struct PrefetchArguments {
    #[command(flatten)]
    pub(crate) rounds: RoundsArguments,
    /// Data of each program [default: 256M, with --quick 64M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "program")]
    pub(crate) data: Option<ByteCount>,
    /// Local memory [default: a quarter of what is resident when nothing limits the program]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) local: Option<ByteCount>,
    /// Only these policies
    #[arg(long, value_name = "POLICY", value_delimiter = ',', value_parser = parse_policy(PrefetchPolicy::ALL))]
    pub(crate) policy: Vec<PrefetchPolicy>,
    /// Only these programs and access patterns
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_enum, conflicts_with = "program")]
    pub(crate) only: Vec<SubjectName>,
    /// Where far memory is
    #[arg(long, value_name = "PLACE", value_enum, default_value_t)]
    pub(crate) far: SubjectTier,
    /// A Python with numpy and XGBoost
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub(crate) python: PathBuf,
    /// Your own program and its arguments [default: about twenty programs and access patterns]
    #[arg(value_name = "PROGRAM", trailing_var_arg = true)]
    pub(crate) program: Vec<OsString>,
}

/// Memory nodes compared with bare connections, programs whose far memory is on nodes, in the pool or on
/// disk, what the loss of a node costs, how evenly nodes are loaded, and what many threads get of one.
///
/// Nodes are reached by loopback, plain and with TLS, by a Unix socket and by shared memory; and, as root, by
/// links between network namespaces, which vanish with the benchmark, however it ends. Three programs of
/// weights 1, 2 and 4 share such a link, with a limit, and so do two of which one floods it. One node of six
/// is lost while Redis runs, with parity (4+2) and with two copies. Ten programs of 64M each load twelve
/// nodes. The tables go to standard output, progress to standard error. Kernels in the manner of COMEX's
/// evaluation run with a half, a quarter and a tenth of their data local, and as root also with swap to a
/// file. One program of 96M has 1, 4 and 16 threads that read at random from a node two milliseconds away;
/// then the node falls silent, and a thread that needs nothing from it must go on.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sudo farmem bench nodes\n  farmem bench nodes --quick --json\n  farmem bench nodes --only loss\n  farmem bench nodes --only threads"
)]
pub(crate) struct NodesArguments {
    #[command(flatten)]
    pub(crate) rounds: RoundsArguments,
    /// Data of each program, of which a quarter is local [default: 256M, with --quick 32M; where several run
    /// at once 64M, with --quick 32M; of many threads 96M, with --quick 48M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) data: Option<ByteCount>,
    /// Folder for swap files, to compare with; it must be on a disk
    #[arg(long, value_name = "FOLDER", default_value = "/var/tmp")]
    pub(crate) swap_folder: PathBuf,
    /// Only these parts
    #[arg(long, value_name = "PART", value_delimiter = ',', value_enum)]
    pub(crate) only: Vec<NodesPart>,
}

/// What changed between two results of `bench all`, beyond chance.
///
/// Compares the medians of all figures that are in both, and names those that differ by more than chance
/// (Mann-Whitney U test, 5%). The exit status is 0 whatever changed; with `--json` each figure has its
/// verdict.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem bench compare results-before results-after")]
pub(crate) struct CompareArguments {
    /// The first results: a folder of `bench all`, or a file of records
    #[arg(value_name = "FIRST")]
    pub(crate) first: PathBuf,
    /// The second results, in the same form
    #[arg(value_name = "SECOND")]
    pub(crate) second: PathBuf,
    /// Print one JSON object with all figures
    #[arg(long)]
    pub(crate) json: bool,
}

/// The access patterns and programs in results of `bench all` as Markdown tables, as in the README.
///
/// The targets, and whether they were reached, follow the table of access patterns; the machine follows each
/// table. What wasn't measured has no table.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem bench table results\n  farmem bench table results --update README.md"
)]
pub(crate) struct TableArguments {
    /// A folder of `bench all`, or a file of records
    #[arg(value_name = "RESULTS")]
    pub(crate) results: PathBuf,
    /// Put the tables into this file instead of printing them: the access patterns between the lines <!--
    /// bench-table begin --> and <!-- bench-table end -->, programs between <!-- bench-programs begin --> and
    /// <!-- bench-programs end -->
    #[arg(long, value_name = "FILE")]
    pub(crate) update: Option<PathBuf>,
}

/// What each step of a fault cost, in programs that ran with `farmem run --stats`.
///
/// The steps go from the kernel's message to the thread that goes on; eviction is listed, too. Each cost is
/// divided by all faults. Reading, loading, installing and waking are measured on every 61st fault.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  farmem run --local 25% --stats run.json -- PROGRAM\n  farmem bench steps run.json"
)]
pub(crate) struct StepsArguments {
    /// Files that `farmem run --stats` wrote
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Print a JSON array instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which figures and tables of the papers are measured, and by what, as a Markdown table.
///
/// Benchmarks have the names that `farmem bench all --only` takes.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem bench papers")]
pub(crate) struct PapersArguments {}

/// What system calls, page faults, moves of pages and wake-ups cost on this machine.
///
/// The last lines are the lower bound: a fault that a handler in user space answers with a page that is
/// ready. No pager that serves faults from its own thread can be faster here.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem bench micro")]
pub(crate) struct MicroArguments {
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// Fewer calls and repetitions: rougher figures, sooner
    #[arg(long)]
    pub(crate) quick: bool,
    /// Repetitions of each primitive, from 1 to 100 [default: 5, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeat: Option<u32>,
}

/// Whether the cost of a page and of a batch of pages grows with the pool, up to a terabyte.
///
/// The pools' slabs exist without their content, so that this takes at most a gigabyte of memory.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem bench scale")]
pub(crate) struct ScaleArguments {
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// Fewer pages and repetitions: rougher figures, sooner
    #[arg(long)]
    pub(crate) quick: bool,
    /// Repetitions for each size, from 1 to 100 [default: 5, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeat: Option<u32>,
}

/// Undo what a benchmark left behind when it was killed: swap, devices, mounts, control groups.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  sudo farmem bench cleanup")]
pub(crate) struct CleanupArguments {
    /// Wait until standard input closes, then undo what this process left if it has ended
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) after: Option<u32>,
}

/// The program that `bench` measures: fills memory, reads and writes it in a pattern, checks every byte.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem workload --data 64M --pattern random-read --threads 2")]
pub(crate) struct WorkloadArguments {
    /// Amount of memory to fill
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    pub(crate) data: ByteCount,
    /// The order of accesses
    #[arg(long, value_enum, default_value_t = Pattern::RandomRead)]
    pub(crate) pattern: Pattern,
    /// Threads that access the data
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: u32,
    /// How well pages compress
    #[arg(long, value_enum, default_value_t = Compressibility::Half)]
    pub(crate) compressibility: Compressibility,
    /// Accesses of each round, over all threads [default: half the pages; all of them in order for
    /// sequential]
    #[arg(long, value_name = "N")]
    pub(crate) accesses: Option<u64>,
    /// Rounds before the measured ones
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=1000))]
    pub(crate) warm_up: u32,
    /// Measured rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Go on with rounds until standard input ends, and report what happens; the last rounds count as
    /// measured
    #[arg(long, conflicts_with = "paced")]
    pub(crate) until_end: bool,
    /// Keep one more thread busy that touches no data
    #[arg(long)]
    pub(crate) sibling: bool,
    /// Fill memory that processes may share
    #[arg(long)]
    pub(crate) shared: bool,
    /// Wait for a line on standard input before the warm-up and before the measured rounds
    #[arg(long)]
    pub(crate) paced: bool,
}

/// A program that `bench` measures next to others: compresses text, decompresses it, checks every byte.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem compression --data 64M --rounds 3")]
pub(crate) struct CompressionArguments {
    /// Memory for the text and the compressed text
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    pub(crate) data: ByteCount,
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
}

/// A numerical kernel, or a problem on graphs, keys or points, that `bench` measures: works on its data, and
/// checks the result.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem kernel sort --data 64M")]
pub(crate) struct KernelArguments {
    /// The kernel to run
    #[arg(value_enum, value_name = "KERNEL")]
    pub(crate) kernel: Kernel,
    /// Amount of data, from 1M
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    pub(crate) data: ByteCount,
}

/// A program that `bench` measures with a memory node: threads that read at random, and one that works with
/// memory of its own.
///
/// Each line of standard input is an order in JSON. When standard input ends, the program checks all of its
/// memory and exits.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  echo '{\"order\":\"read\",\"threads\":4,\"milliseconds\":1000}' | farmem readers --data 64M"
)]
pub(crate) struct ReadersArguments {
    /// Data that threads read
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    pub(crate) data: ByteCount,
    /// Memory of the thread that works with its own
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "32M")]
    pub(crate) own: ByteCount,
}

/// Write the manual pages of `farmem bench`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem-bench man target/man")]
pub(crate) struct ManArguments {
    /// Folder for the pages, created if it doesn't exist
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
}

/// Write the completions of `farmem-bench` for a shell to standard output.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  farmem-bench completions bash > /usr/share/bash-completion/completions/farmem-bench"
)]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

//! The one definition of what `farmem` accepts. Help texts, manual pages and completions all come from it.
//! What follows `bench` is defined by `farmem-bench`, and so is that of the commands that only measure.

mod attach;
mod bench;
mod cluster;
mod heading;
mod host;
mod machine;
mod node;
mod resize;
mod run;
mod simulate;
mod trace;
mod watch;

use clap::{Parser, Subcommand};

pub(crate) use self::attach::{AttachArguments, DetachArguments, SubjectArguments};
pub(crate) use self::bench::BenchArguments;
pub(crate) use self::cluster::{
    ClusterArguments, ClusterCommand, ClusterDrainArguments, ClusterJoinArguments, ClusterLeaveArguments,
    ClusterPlace, ClusterRole, ClusterShowArguments, EtcdArguments,
};
pub(crate) use self::host::HostArguments;
pub(crate) use self::machine::{CompletionsArguments, DoctorArguments, ManArguments};
pub(crate) use self::node::{
    NodeArguments, NodeCommand, NodeKeygenArguments, NodeStatArguments, SecurityArguments, TransportName,
};
pub(crate) use self::resize::{GrowArguments, ResizeWatching, ShrinkArguments};
pub(crate) use self::run::{ApplicationArguments, Entries, Far, PagerArguments, Progress, RunArguments};
pub(crate) use self::simulate::SimulateArguments;
pub(crate) use self::trace::{
    TraceArguments, TraceCommand, TraceRecordArguments, TraceReplayArguments, TraceShowArguments,
};
pub(crate) use self::watch::{
    ExplainArguments, MetricsHosts, SetArguments, StatArguments, TopArguments, WebArguments,
};

/// More memory than the machine has, for unmodified programs.
#[derive(Parser, Debug)]
#[command(
    name = "farmem",
    version = farmem::version(),
    disable_help_subcommand = true,
    after_help = "Example:\n  farmem run --local 25% --summary -- python3 analysis.py\n\nExit status: the program's own \
                  for `run`; else 0 done, 1 failed, 2 cannot start, 126 program not executable, 127 no such program."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a program within a budget of local memory
    Run(Box<RunArguments>),
    /// Manage programs that run already, within a budget of local memory
    Attach(Box<AttachArguments>),
    /// Bring back an application's far memory, and stop managing it
    Detach(DetachArguments),
    /// Share one pool and local memory among all applications of this machine
    Host(Box<HostArguments>),
    /// Lend this machine's memory to programs on other machines
    Node(Box<NodeArguments>),
    /// Show and change the memory nodes of a cluster
    Cluster(Box<ClusterArguments>),
    /// Show what an application waits for and what would help
    Explain(ExplainArguments),
    /// Show the applications that run under Farmem now
    Stat(StatArguments),
    /// Watch the applications that run under Farmem and change their limits
    Top(TopArguments),
    /// Show the applications that run under Farmem in a browser and to Prometheus
    Web(WebArguments),
    /// Change the limits of an application while it runs
    Set(SetArguments),
    /// Make an idle application small, and remember how large it was
    Shrink(ShrinkArguments),
    /// Give an application that was shrunk its budget again
    Grow(GrowArguments),
    /// Check what this machine and user can do, and how to fix what is missing
    Doctor(DoctorArguments),
    /// Record what happens to a program's pages, and try policies on the recordings
    Trace(TraceArguments),
    /// Simulate a datacentre: what is lost, how soon it is made good, and how long fetches take
    Simulate(Box<SimulateArguments>),
    /// Measure Farmem against the kernel's own swap
    #[command(disable_help_flag = true)]
    Bench(BenchArguments),
    /// The pager of a process, started by its application's supervisor
    #[command(hide = true)]
    Pager(PagerArguments),
    /// The program that `bench` measures
    #[command(hide = true, disable_help_flag = true)]
    Workload(BenchArguments),
    /// A program that `bench` measures next to others
    #[command(hide = true, disable_help_flag = true)]
    Compression(BenchArguments),
    /// A numerical kernel, or a problem on graphs, keys or points, that `bench` measures
    #[command(hide = true, disable_help_flag = true)]
    Kernel(BenchArguments),
    /// A program that `bench` measures with a memory node
    #[command(hide = true, disable_help_flag = true)]
    Readers(BenchArguments),
    /// Write the manual pages
    #[command(hide = true)]
    Man(ManArguments),
    /// Write the completions for a shell
    #[command(hide = true)]
    Completions(CompletionsArguments),
}

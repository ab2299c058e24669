//! `farmem run`: checks everything that can be checked, then hands over to the supervisor.
//!
//! Nothing is started before every check has passed, so that bad input leaves nothing behind.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use farmem::Failure;
use farmem_broker::is_listening;
use farmem_client::ManagedBy;
use farmem_machine::Memory;
use farmem_page::ByteCount;
use farmem_supervisor::{
    Bandwidth, ClusterSource, Destination, DiskOptions, FarForm, HostChoice, MembershipOptions, NodeTuning,
    NodesOptions, Options, PrefetchPolicy, Roster, SizingOptions, supervise,
};
use farmem_transport::{Connector, Security, Travel};
use farmem_web::{Address, HostName};
use rustix::fs::{Access, access};

use crate::amount::{AUTO_LEAST, DiskAmount, LocalAmount};
use crate::arguments::{
    ApplicationArguments, Entries, Far, Progress, RunArguments, SecurityArguments, TransportName,
};
use crate::cluster;
use crate::host::default_socket;
use crate::host_nodes;
use crate::log;
use crate::node;
use crate::program;
use crate::web;

/// A pool of default size is never smaller, however little the machine can spare: the program may need none
/// of it.
const SMALLEST_POOL: ByteCount = ByteCount::new(16 << 20);

/// A run that can start: every value checked, every amount in bytes.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Local memory that the application may keep.
    pub(crate) local: ByteCount,
    /// If the budget is to follow the program: how.
    pub(crate) sizing: Option<SizingOptions>,
    /// Limit of the pool.
    pub(crate) pool: ByteCount,
    /// What it gets of a host's whenever it wants it.
    pub(crate) pool_guaranteed: ByteCount,
    /// Limit of what is in the pool and on disk together.
    pub(crate) partition: Option<ByteCount>,
    /// Limit of what may be fetched ahead and not used yet.
    pub(crate) cache: ByteCount,
    /// Where leases come from.
    pub(crate) host: HostChoice,
    /// The part against others of the same host.
    pub(crate) weight: u32,
    /// Whether local memory is lent and borrowed.
    pub(crate) borrows: bool,
    /// What is read from and written to nodes at most.
    pub(crate) bandwidth: Bandwidth,
    /// What that limit can be raised to later.
    pub(crate) pool_capacity: ByteCount,
    /// What decides which pages are fetched ahead.
    pub(crate) prefetch: PrefetchPolicy,
    /// How pages are kept away from local memory.
    pub(crate) far: FarForm,
    /// Whether a page that was fetched keeps its entry.
    pub(crate) keeps_entries: bool,
    /// Where pages go when the pool is full.
    pub(crate) disk: Option<DiskAmount>,
    /// Memory nodes between the two.
    pub(crate) nodes: Option<NodesOptions>,
    /// The name to show.
    pub(crate) name: String,
    /// If a host's rule has it managed: which one.
    pub(crate) managed_by: Option<ManagedBy>,
    /// Where statistics are written at exit.
    pub(crate) stats: Option<PathBuf>,
    /// Where a trace is recorded.
    pub(crate) trace: Option<PathBuf>,
    /// Where Prometheus asks for figures.
    pub(crate) metrics: Option<Address>,
    /// By which names, in addition to addresses.
    pub(crate) metrics_names: Vec<HostName>,
    /// Whether to show how it goes.
    pub(crate) progress: bool,
    /// Whether to print a summary at exit.
    pub(crate) summary: bool,
    /// The program as it was written; becomes its first argument.
    pub(crate) program: OsString,
    /// The file that was found for it.
    pub(crate) executable: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<OsString>,
}

/// Runs the program; its exit status is the result.
pub(crate) fn run(arguments: RunArguments) -> Result<ExitCode, Failure> {
    let log = arguments.application.log;
    let plan = plan(arguments)?;
    log::begin(log)?;
    start(plan)
}

/// Checks what can be checked without starting anything.
fn plan(arguments: RunArguments) -> Result<Plan, Failure> {
    if let Some(stats) = &arguments.stats {
        writable_file("--stats", stats)?;
    }
    if let Some(trace) = &arguments.trace {
        writable_file("--trace", trace)?;
    }
    let mut plan = application(arguments.application)?;
    let mut words = arguments.program.into_iter();
    let program = words
        .next()
        .filter(|word| !word.is_empty())
        .ok_or_else(|| Failure::Unusable("the program's name is empty; name one after `--`".to_owned()))?;
    let executable = program::find(&program)?;
    program::check(&executable)?;
    if plan.name.is_empty() {
        plan.name = shown_name(&executable);
    }
    Ok(Plan {
        stats: arguments.stats,
        trace: arguments.trace,
        progress: arguments.progress.is_some_and(is_shown),
        summary: arguments.summary,
        program,
        executable,
        arguments: words.collect(),
        ..plan
    })
}

/// What can be checked of what an application is given, without starting anything. It has no program yet, and
/// no name unless it was given one.
pub(crate) fn application(mut arguments: ApplicationArguments) -> Result<Plan, Failure> {
    let memory = Memory::current().map_err(|error| Failure::Unusable(error.to_string()))?;
    let local = arguments.local.resolve(memory.usable()).map_err(Failure::Unusable)?;
    let sizing = match arguments.local {
        LocalAmount::Auto(range) => {
            let least = range.least.unwrap_or(AUTO_LEAST.min(local));
            LocalAmount::Bytes(least).resolve(memory.usable()).map_err(Failure::Unusable)?;
            Some(SizingOptions { least, stall_share: arguments.stall })
        }
        LocalAmount::Bytes(_) | LocalAmount::Percent(_) => None,
    };
    // What such a budget gives up is what the pool holds, and that takes less room there.
    let kept = sizing.map_or(local, |sizing| sizing.least);
    if let Some(disk) = &arguments.disk {
        writable("--disk", &disk.path)?;
    }
    let host = host_choice(arguments.host.take());
    let named_by = host_nodes::complete(&mut arguments, &host)?;
    let as_named = |failure| match (failure, &named_by) {
        (Failure::Unusable(sentence), Some(who)) => Failure::Unusable(format!("{sentence}; {who}")),
        (failure, _) => failure,
    };
    let transport = arguments.transport.unwrap_or(TransportName::Auto);
    let source = match arguments.cluster {
        Some(source) => Some(cluster::reached(source, &arguments.etcd).map_err(as_named)?),
        None => {
            cluster::without(&arguments.etcd)?;
            None
        }
    };
    let named = host_nodes::named(arguments.node)?;
    let nodes = nodes(named, source.as_ref(), &arguments.node_security).map_err(as_named)?;
    let travel = match &nodes {
        Some((nodes, security)) => {
            travel(transport, arguments.rdma.as_deref(), nodes, security).map_err(as_named)?
        }
        None => Travel::Connection,
    };
    let membership = source.map(|source| {
        let is_bare = matches!(nodes, Some((_, Security::Plain))) && !arguments.node_security.plain;
        let unfit = move |node: &Destination| {
            if is_bare && !node.is_local() {
                return Some(format!(
                    "{node} is not on this machine alone, and this run has neither --key nor --plain"
                ));
            }
            (!is_fit(transport, node))
                .then(|| format!("node {node} is not reached by this run's --transport"))
        };
        MembershipOptions { source, unfit: Arc::new(unfit) }
    });
    let nodes = nodes.map(|(nodes, security)| NodesOptions {
        nodes,
        membership,
        named_by: named_by.clone(),
        redundancy: arguments.redundancy.unwrap_or_default(),
        rebuild_per_second: arguments.rebuild_rate,
        security,
        travel,
        device: arguments.rdma,
        tuning: NodeTuning {
            read: arguments.node_read,
            read_buffer: arguments.read_buffer,
            reserve: arguments.node_reserve,
        },
    });
    let default_pool = || match &host {
        HostChoice::None => memory.spare(kept).max(SMALLEST_POOL),
        // The broker's total is the limit.
        HostChoice::At(_) => memory.total,
    };
    Ok(Plan {
        local,
        sizing,
        pool: arguments.pool.map_or_else(default_pool, |pool| pool.most),
        pool_guaranteed: arguments.pool.and_then(|pool| pool.guaranteed).unwrap_or_default(),
        weight: arguments.weight,
        borrows: !arguments.no_borrow,
        bandwidth: Bandwidth { bytes_in: arguments.bandwidth_in, bytes_out: arguments.bandwidth_out },
        partition: arguments.partition,
        cache: arguments.cache,
        host,
        pool_capacity: memory.total,
        prefetch: arguments.prefetch,
        far: match arguments.far {
            Far::Packed => FarForm::Packed,
            Far::Raw => FarForm::Raw,
        },
        keeps_entries: arguments.entries == Entries::Kept,
        disk: arguments.disk,
        nodes,
        name: arguments.name.unwrap_or_default(),
        managed_by: None,
        stats: None,
        trace: None,
        metrics: arguments.metrics,
        metrics_names: arguments.metrics_hosts.names,
        progress: false,
        summary: false,
        program: OsString::new(),
        executable: PathBuf::new(),
        arguments: Vec::new(),
    })
}

/// How pages travel to these nodes. What can't be had is refused before anything begins.
fn travel(
    transport: TransportName,
    device: Option<&str>,
    nodes: &[Destination],
    security: &Security,
) -> Result<Travel, Failure> {
    if let Some(node) = nodes.iter().find(|node| !is_fit(transport, node)) {
        let wanted = if transport == TransportName::Shm { "shm:PATH" } else { "HOST:PORT" };
        return Err(Failure::Unusable(format!(
            "node {node} is not reached that way; with this --transport name nodes as {wanted}, or use --transport auto"
        )));
    }
    let travel = match transport {
        TransportName::Auto => Travel::Auto,
        TransportName::Tcp | TransportName::Shm => Travel::Connection,
        TransportName::Rdma => Travel::Rdma,
    };
    match Connector::new(security.clone(), travel, device) {
        Ok(_) => Ok(travel),
        Err(error) => Err(Failure::Unusable(error.to_string())),
    }
}

/// Whether pages can travel so to a node at such an address.
fn is_fit(transport: TransportName, node: &Destination) -> bool {
    match transport {
        TransportName::Auto => true,
        TransportName::Tcp | TransportName::Rdma => matches!(node, Destination::Tcp { .. }),
        TransportName::Shm => matches!(node, Destination::Shared(_)),
    }
}

/// The memory nodes that were named, or those of the cluster.
fn nodes(
    named: Vec<Destination>,
    cluster: Option<&ClusterSource>,
    security: &SecurityArguments,
) -> Result<Option<(Vec<Destination>, Security)>, Failure> {
    let nodes = match cluster {
        Some(source) => in_cluster(source)?,
        None => named,
    };
    if nodes.is_empty() {
        return Ok(None);
    }
    for (nth, node) in nodes.iter().enumerate() {
        if nodes[..nth].contains(node) {
            return Err(Failure::Unusable(format!("node {node} is named twice")));
        }
    }
    let security = node::security(security, &nodes)?;
    Ok(Some((nodes, security)))
}

fn in_cluster(source: &ClusterSource) -> Result<Vec<Destination>, Failure> {
    let unusable = |reason: String| Failure::Unusable(format!("cannot use --cluster {source}: {reason}"));
    let text = source.read().map_err(unusable)?;
    let roster = Roster::parse(&text).map_err(|error| unusable(error.to_string()))?;
    let nodes: Vec<Destination> = roster.active().cloned().collect();
    if nodes.is_empty() {
        return Err(unusable("every node of it is to be emptied; leave one of them active".to_owned()));
    }
    Ok(nodes)
}

/// The broker that was named, or the one that runs.
fn host_choice(asked: Option<PathBuf>) -> HostChoice {
    match asked {
        Some(word) if word == Path::new("none") => HostChoice::None,
        Some(socket) => HostChoice::At(std::path::absolute(&socket).unwrap_or(socket)),
        None => match default_socket().filter(|socket| is_listening(socket)) {
            Some(socket) => HostChoice::At(socket),
            None => HostChoice::None,
        },
    }
}

pub(crate) fn is_shown(progress: Progress) -> bool {
    match progress {
        Progress::Terminal => std::io::stderr().is_terminal(),
        Progress::Always => true,
    }
}

fn shown_name(executable: &Path) -> String {
    executable.file_name().unwrap_or(executable.as_os_str()).to_string_lossy().into_owned()
}

/// The same of one that is no folder.
fn writable_file(option: &str, path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        let shown = path.display();
        return Err(Failure::Unusable(format!(
            "cannot write {option} {shown}: it is a folder; name a file in it"
        )));
    }
    writable(option, path)
}

/// A file that will be written must be writable now, or its folder, so that the program's work isn't lost at
/// exit.
fn writable(option: &str, path: &Path) -> Result<(), Failure> {
    let target = if path.exists() {
        path
    } else {
        match path.parent() {
            Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
            Some(folder) => folder,
            None => path,
        }
    };
    access(target, Access::WRITE_OK).map_err(|error| {
        Failure::Unusable(format!(
            "cannot write {option} {}: {}; name a file in a folder that exists and that you may write to",
            path.display(),
            std::io::Error::from(error)
        ))
    })
}

/// Hands over to the supervisor, which returns when the program has ended.
fn start(plan: Plan) -> Result<ExitCode, Failure> {
    supervise(&plan.options()?).map(ExitCode::from).map_err(|error| Failure::Unusable(format!("{error:#}")))
}

impl Plan {
    /// What the supervisor is told.
    pub(crate) fn options(self) -> Result<Options, Failure> {
        let plan = self;
        let side_service = |address| web::side_service(address, &plan.metrics_names);
        let side_services = plan.metrics.iter().map(side_service).collect::<Result<Vec<_>, _>>()?;
        Ok(Options {
            local: plan.local,
            sizing: plan.sizing,
            pool: plan.pool,
            pool_guaranteed: plan.pool_guaranteed,
            host: plan.host,
            weight: plan.weight,
            borrows: plan.borrows,
            bandwidth: plan.bandwidth,
            far: plan.far,
            keeps_entries: plan.keeps_entries,
            partition: plan.partition,
            cache: plan.cache,
            pool_capacity: plan.pool_capacity,
            prefetch: plan.prefetch,
            nodes: plan.nodes,
            disk: plan.disk.map(|disk| DiskOptions { path: disk.path, size: disk.size }),
            name: plan.name,
            managed_by: plan.managed_by,
            stats: plan.stats,
            trace: plan.trace,
            side_services,
            progress: plan.progress,
            summary: plan.summary,
            program: plan.program,
            executable: plan.executable,
            arguments: plan.arguments,
        })
    }
}

//! What a run is asked for.

use std::ffi::OsString;
use std::path::PathBuf;

use farmem_client::ManagedBy;
use farmem_page::ByteCount;
use farmem_policy::PrefetchPolicy;
use farmem_wire::host::{LEASED_SLAB_BYTES, MOST_SLABS, Terms};

use crate::carrier::NodesOptions;
use crate::limits::lease_client::HostChoice;
use crate::limits::sizing::SizingOptions;
use crate::threads::side_service::SideService;

/// Where pages go when the pool is full.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// A file, made if it doesn't exist, or a folder to make a nameless file in.
    pub path: PathBuf,
    /// How much of it may be used; `None` for what is free there.
    pub size: Option<ByteCount>,
}

/// How pages are kept in far memory, and so how they cross the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FarForm {
    /// Compressed, where they get smaller by it.
    #[default]
    Packed,
    /// As they are.
    Raw,
}

/// Limits of what goes over links to memory nodes, in bytes per second; `None` for no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bandwidth {
    /// From the nodes.
    pub bytes_in: Option<ByteCount>,
    /// To the nodes.
    pub bytes_out: Option<ByteCount>,
}

/// A run, every value checked.
#[derive(Clone, Debug)]
pub struct Options {
    /// Local memory that the application may keep, all its processes together.
    pub local: ByteCount,
    /// If the budget is to follow the program, up to `local`: how.
    pub sizing: Option<SizingOptions>,
    /// Limit of the pool.
    pub pool: ByteCount,
    /// What the pool gets of a host's whenever it wants it.
    pub pool_guaranteed: ByteCount,
    /// What that limit can be raised to later.
    pub pool_capacity: ByteCount,
    /// Limit of what is in the pool, on nodes and on disk together; `None` for all that both may hold.
    pub partition: Option<ByteCount>,
    /// Limit of what may be fetched ahead and not used yet; it counts against `local`.
    pub cache: ByteCount,
    /// Where leases come from.
    pub host: HostChoice,
    /// The application's part against others of the same host.
    pub weight: u32,
    /// Whether it lends local memory that it doesn't use to others of the same host, and borrows theirs.
    pub borrows: bool,
    /// What decides which pages are fetched before they are asked for.
    pub prefetch: PrefetchPolicy,
    /// How pages are kept away from local memory.
    pub far: FarForm,
    /// Whether a page that was fetched keeps its entry, to leave into it again. If not, each that leaves gets
    /// a new one.
    pub keeps_entries: bool,
    /// The tier below the pool, or below memory nodes.
    pub disk: Option<DiskOptions>,
    /// The tier between pool and disk: memory of other machines.
    pub nodes: Option<NodesOptions>,
    /// What is read from and written to nodes at most.
    pub bandwidth: Bandwidth,
    /// The name to show.
    pub name: String,
    /// If a host's rule has it managed: which one.
    pub managed_by: Option<ManagedBy>,
    /// Where to write the report at exit.
    pub stats: Option<PathBuf>,
    /// Where to record what happens to pages.
    pub trace: Option<PathBuf>,
    /// Whether to show a line on standard error that says how it goes.
    pub progress: bool,
    /// Services that run next to the supervisor.
    pub side_services: Vec<SideService>,
    /// Whether to print a summary on standard error at exit.
    pub summary: bool,
    /// The program's first argument: its name as the user wrote it.
    pub program: OsString,
    /// The program's file.
    pub executable: PathBuf,
    /// The program's further arguments.
    pub arguments: Vec<OsString>,
}

impl Options {
    /// Whether something is to be there when the program has ended: then whoever called must wait for that as
    /// well.
    pub(crate) fn reports_at_end(&self) -> bool {
        self.summary
            || self.progress
            || self.stats.is_some()
            || self.trace.is_some()
            || !self.side_services.is_empty()
            || tracing::enabled!(tracing::Level::INFO)
    }

    /// What the application asks of its host. A budget that follows the program is neither lent nor borrowed:
    /// its bound is counted.
    pub(crate) fn terms(&self) -> Terms {
        let slabs = |bytes: ByteCount| (bytes.get() / LEASED_SLAB_BYTES).min(MOST_SLABS);
        Terms {
            weight: self.weight,
            pool_guaranteed: slabs(self.pool_guaranteed),
            pool_most: slabs(self.pool),
            local_own: self.local.pages().get(),
            borrows: self.borrows && self.sizing.is_none(),
        }
    }
}

//! What an application looks like inside: its processes, and the regions of one. For `farmem stat --regions`,
//! `farmem top` and `farmem web`.

use farmem_telemetry::ABSENCE_SPANS;
use serde::{Deserialize, Serialize};

/// A process of an application, in figures.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessReport {
    /// Its number.
    pub process: u32,
    /// Its name, as the kernel has it.
    pub name: String,
    /// Whether its memory is under management. Before the budget comes near it isn't.
    pub is_managed: bool,
    /// Local memory that it may have.
    pub limit_bytes: u64,
    /// Local memory that it has.
    pub resident_bytes: u64,
    /// Its pages in far memory.
    pub far_bytes: u64,
    /// Mappings under management.
    pub managed_bytes: u64,
    /// Faults so far.
    pub faults: u64,
    /// Pages that a thread waited for and that came from far memory, so far.
    pub fetches: u64,
    /// Pages that left, so far.
    pub evicted: u64,
    /// Time that its threads waited for pages, so far.
    pub stall_ns: u64,
    /// Refault distance: half of the pages that came back would have stayed with so much more local memory;
    /// `None` when none came back.
    pub refault_distance_bytes: Option<u64>,
}

/// A region of a process's memory, in figures.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RegionReport {
    /// Its first address; 0 of several regions together.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// Pages that are local.
    pub resident_bytes: u64,
    /// Of these, those that came back soon after they had last left.
    pub hot_bytes: u64,
    /// Pages in far memory.
    pub far_bytes: u64,
    /// Of these, those that take room in the pool; the others are zeros, or one word repeated.
    pub stored_bytes: u64,
    /// The room that these take, compressed.
    pub packed_bytes: u64,
    /// Far pages by how long they have been away: while less than a quarter of the local memory left, less
    /// than all of it, less than four times as much, and longer.
    pub away_bytes: [u64; ABSENCE_SPANS],
}

/// The regions of a process.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RegionsReport {
    /// The process.
    pub process: u32,
    /// The regions with most pages, in the order of addresses.
    pub regions: Vec<RegionReport>,
    /// How many there are in all.
    pub count: u64,
    /// Those that are not among `regions`, together.
    pub rest: RegionReport,
}

impl RegionReport {
    /// Part of its local pages that came back soon after they had last left: how hot it is.
    pub fn heat(&self) -> f64 {
        self.hot_bytes as f64 / self.resident_bytes.max(1) as f64
    }

    /// What its far pages take of their size, zeros and repeated words included; `None` without far pages.
    pub fn packed_share(&self) -> Option<f64> {
        (self.far_bytes > 0).then(|| self.packed_bytes as f64 / self.far_bytes as f64)
    }

    /// Part of its far pages that have been away while all of the local memory left, or longer: what nobody
    /// seems to need.
    pub fn idle(&self) -> Option<f64> {
        let idle: u64 = self.away_bytes.iter().skip(2).fold(0, |sum, &more| sum.saturating_add(more));
        (self.far_bytes > 0).then(|| idle as f64 / self.far_bytes as f64)
    }
}

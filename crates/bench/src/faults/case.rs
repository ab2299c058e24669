//! What is measured, and under whom.

use std::collections::BTreeMap;
use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

use super::measure::Harness;
use super::report::{FailedRun, PeerNote};
use crate::option;
use crate::peer::Kind;
use crate::workload::{Compressibility, Pattern};

/// A case of the benchmark. Half-compressible data and one thread, unless the name says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaseName {
    /// Reads at random.
    RandomRead,
    /// Writes at random.
    RandomWrite,
    /// Reads in order.
    Sequential,
    /// Reads every fifth page.
    Strided,
    /// Reads popular pages often, for as long as the pager takes to learn which these are.
    Zipf,
    /// Reads popular pages often, from the start.
    ZipfStart,
    /// Reads where to go next.
    Chase,
    /// Random reads while a sibling thread keeps another core busy.
    Sibling,
    /// Random reads by two threads.
    #[value(name = "random-read-2-threads")]
    #[serde(rename = "random-read-2-threads")]
    RandomReadTwoThreads,
    /// Random reads by four threads.
    #[value(name = "random-read-4-threads")]
    #[serde(rename = "random-read-4-threads")]
    RandomReadFourThreads,
    /// Random writes by two threads.
    #[value(name = "random-write-2-threads")]
    #[serde(rename = "random-write-2-threads")]
    RandomWriteTwoThreads,
    /// Random reads of nearly empty pages.
    RandomReadZero,
    /// Random reads of pages that compress to a quarter.
    RandomReadQuarter,
    /// Random reads of pages that don't compress.
    RandomReadIncompressible,
    /// Random reads of memory that processes may share.
    SharedRandomRead,
    /// Random writes to it.
    SharedRandomWrite,
    /// Random reads of data that fits its budget; measures what Farmem costs who doesn't need it.
    Fits,
}

impl CaseName {
    /// What it is called in a table for people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::RandomRead => "random read",
            Self::RandomWrite => "random write",
            Self::Sequential => "sequential read",
            Self::Strided => "every fifth page, read",
            Self::Zipf => "zipf (0.99) read",
            Self::ZipfStart => "zipf, from the start",
            Self::Chase => "pointer chase",
            Self::Sibling => "random read, another thread busy",
            Self::RandomReadTwoThreads => "random read, 2 threads",
            Self::RandomReadFourThreads => "random read, 4 threads",
            Self::RandomWriteTwoThreads => "random write, 2 threads",
            Self::RandomReadZero => "random read, nearly empty pages",
            Self::RandomReadQuarter => "random read, compresses to a quarter",
            Self::RandomReadIncompressible => "random read, incompressible",
            Self::SharedRandomRead => "random read, shared memory",
            Self::SharedRandomWrite => "random write, shared memory",
            Self::Fits => "random read, data that fits",
        }
    }
}

/// The system that provides the memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerName {
    /// Memory without limit.
    Native,
    /// `farmem run`.
    Farmem,
    /// Kernel swap on zram with lz4.
    ZramLz4,
    /// Kernel swap on a file, behind zswap.
    Zswap,
    /// Kernel swap on a file.
    SwapFile,
    /// Kernel swap on a loop device over tmpfs.
    SwapLoop,
}

impl PeerName {
    /// The kernel swap that it takes.
    pub(super) fn swap(self) -> Option<Kind> {
        match self {
            Self::Native | Self::Farmem => None,
            Self::ZramLz4 => Some(Kind::ZramLz4),
            Self::Zswap => Some(Kind::Zswap),
            Self::SwapFile => Some(Kind::File),
            Self::SwapLoop => Some(Kind::Loop),
        }
    }
}

impl fmt::Display for CaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&option::name(self))
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&option::name(self))
    }
}

/// Rounds until the hit ratios of zipf no longer change: ninety-six budgets of accesses
/// (`cargo run --release -p farmem-policy --example learning`).
const LEARNING_ROUNDS: u32 = 48;

/// What a case asks of the workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) name: CaseName,
    pub(super) pattern: Pattern,
    pub(super) threads: u32,
    pub(super) compressibility: Compressibility,
    pub(super) sibling: bool,
    /// Whether the data is memory that processes may share.
    pub(super) is_shared: bool,
    /// Rounds before the measured ones.
    pub(super) warm_up: u32,
    /// Whether the data fits the local memory.
    pub(super) fits: bool,
}

impl Case {
    fn new(name: CaseName) -> Self {
        use Compressibility::{Half, Quarter, Random, Zero};
        let (pattern, threads, compressibility) = match name {
            CaseName::RandomRead | CaseName::Sibling | CaseName::Fits | CaseName::SharedRandomRead => {
                (Pattern::RandomRead, 1, Half)
            }
            CaseName::RandomWrite | CaseName::SharedRandomWrite => (Pattern::RandomWrite, 1, Half),
            CaseName::Sequential => (Pattern::Sequential, 1, Half),
            CaseName::Strided => (Pattern::Strided, 1, Half),
            CaseName::Zipf | CaseName::ZipfStart => (Pattern::Zipf, 1, Half),
            CaseName::Chase => (Pattern::Chase, 1, Half),
            CaseName::RandomReadTwoThreads => (Pattern::RandomRead, 2, Half),
            CaseName::RandomReadFourThreads => (Pattern::RandomRead, 4, Half),
            CaseName::RandomWriteTwoThreads => (Pattern::RandomWrite, 2, Half),
            CaseName::RandomReadZero => (Pattern::RandomRead, 1, Zero),
            CaseName::RandomReadQuarter => (Pattern::RandomRead, 1, Quarter),
            CaseName::RandomReadIncompressible => (Pattern::RandomRead, 1, Random),
        };
        Self {
            name,
            pattern,
            threads,
            compressibility,
            sibling: name == CaseName::Sibling,
            is_shared: matches!(name, CaseName::SharedRandomRead | CaseName::SharedRandomWrite),
            warm_up: if name == CaseName::Zipf { LEARNING_ROUNDS } else { 1 },
            fits: name == CaseName::Fits,
        }
    }

    /// The cases of these names, or all of them.
    pub(super) fn selected(only: &[CaseName]) -> Vec<Self> {
        option::chosen(only, CaseName::value_variants()).into_iter().map(Self::new).collect()
    }
}

/// The peers that are still in the race, and why the others aren't.
pub(super) struct Peers {
    running: Vec<PeerName>,
    left_out: BTreeMap<PeerName, String>,
    failures: Vec<FailedRun>,
}

impl Peers {
    pub(super) fn new(only: &[PeerName]) -> Self {
        Self {
            running: option::chosen(only, PeerName::value_variants()),
            left_out: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    /// The peers that measure this case; a different one goes first in each repetition.
    pub(super) fn in_turn(&self, case: &Case, repetition: u32) -> Vec<PeerName> {
        let mut peers = self.running.clone();
        if case.fits {
            // What fits needs no swap: the kernel's peers would all be native.
            peers.retain(|peer| peer.swap().is_none());
        }
        if !peers.is_empty() {
            let first = (repetition as usize - 1) % peers.len();
            peers.rotate_left(first);
        }
        peers
    }

    pub(super) fn leave_out(&mut self, peer: PeerName, reason: String) {
        self.running.retain(|&running| running != peer);
        self.left_out.insert(peer, reason);
    }

    pub(super) fn failed(&mut self, case: CaseName, peer: PeerName, reason: String) {
        self.failures.push(FailedRun { case, peer, reason });
    }

    pub(super) fn failures(&self) -> Vec<FailedRun> {
        self.failures.clone()
    }

    pub(super) fn notes(&self, harness: &Harness) -> Vec<PeerNote> {
        let running = self.running.iter().map(|&peer| PeerNote {
            peer,
            available: true,
            note: harness.detail(peer).unwrap_or_default().to_owned(),
        });
        let left_out = self.left_out.iter().map(|(&peer, reason)| PeerNote {
            peer,
            available: false,
            note: reason.clone(),
        });
        running.chain(left_out).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_take_turns_at_going_first() {
        let peers = Peers::new(&[PeerName::Native, PeerName::Farmem]);
        let case = Case::new(CaseName::RandomRead);

        assert_eq!(peers.in_turn(&case, 1), [PeerName::Native, PeerName::Farmem]);
        assert_eq!(peers.in_turn(&case, 2), [PeerName::Farmem, PeerName::Native]);
    }

    #[test]
    fn what_fits_is_not_swapped() {
        let peers = Peers::new(&[]);

        assert_eq!(peers.in_turn(&Case::new(CaseName::Fits), 1), [PeerName::Native, PeerName::Farmem]);
    }

    #[test]
    fn who_is_left_out_has_no_more_turns() {
        let mut peers = Peers::new(&[PeerName::Native, PeerName::Zswap]);

        peers.leave_out(PeerName::Zswap, "missing".to_owned());

        assert_eq!(peers.in_turn(&Case::new(CaseName::RandomRead), 1), [PeerName::Native]);
    }
}

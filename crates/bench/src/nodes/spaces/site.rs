//! Where programs share a link: a broker, and a node behind the link, each a process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use farmem_page::ByteCount;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::space::{Space, Terms};
use crate::host::Host;
use crate::member::Member;
use crate::nodes::namespace::{FAR, Link};

/// Memory for the pools of all programs. It limits none of them: each has a limit of its own.
const POOL: &str = "64M";
/// More of the node than a program's data takes: what it has granted ahead of need.
const RESERVE_BYTES: u64 = 16 << 20;

/// What limits what comes from the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Limit {
    /// The link, at a rate as `tc` takes it.
    Link(&'static str),
    /// The broker, at a rate as `--bandwidth-in` takes it; the link is as fast as the machine.
    Host(&'static str),
}

impl Limit {
    pub(super) fn name(self) -> String {
        match self {
            Self::Link(rate) => format!("veth-{rate}"),
            Self::Host(rate) => format!("veth, host {rate}"),
        }
    }
}

/// Bytes by what they were read for.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Classes {
    /// A thread waited.
    pub demand: f64,
    /// Nobody waited yet.
    pub ahead: f64,
    /// Whole slabs on their way back.
    pub bulk: f64,
}

impl Classes {
    /// What a function makes of each of several.
    pub(super) fn of<T>(them: &[T], classes: impl Fn(&T) -> Self, make: impl Fn(Vec<f64>) -> f64) -> Self {
        let each = |class: &dyn Fn(Self) -> f64| make(them.iter().map(|one| class(classes(one))).collect());
        Self {
            demand: each(&|classes| classes.demand),
            ahead: each(&|classes| classes.ahead),
            bulk: each(&|classes| classes.bulk),
        }
    }

    pub(super) fn sum(self) -> f64 {
        self.demand + self.ahead + self.bulk
    }

    /// What came since an earlier moment, for each second.
    pub(super) fn rate_since(self, earlier: Self, time: Duration) -> Self {
        let rate = |now: f64, before: f64| (now - before) / time.as_secs_f64();
        Self {
            demand: rate(self.demand, earlier.demand),
            ahead: rate(self.ahead, earlier.ahead),
            bulk: rate(self.bulk, earlier.bulk),
        }
    }
}

/// What `farmem stat` says about a program, as far as it matters.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub(super) struct Standing {
    pub(super) name: String,
    pub(super) node_bytes: u64,
    pub(super) link_in_bytes: f64,
    pub(super) link_in_class_bytes: Classes,
    pub(super) link_wait_seconds: f64,
}

/// See the module's text. Ended when dropped; the network namespaces go with the last process in them.
pub(super) struct Site {
    farmem: PathBuf,
    // What uses something stands before it.
    host: Host,
    node: Member,
    link: Link,
    folder: TempDir,
}

impl Site {
    /// Opens one for so many programs with so much data each.
    pub(super) fn open(farmem: &Path, limit: Limit, programs: usize, data: ByteCount) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        // Entries that are kept are room as well, and a slab is full of one size of page.
        let memory = ByteCount::new(programs as u64 * (2 * data.get() + RESERVE_BYTES));
        let (rate, bandwidth) = match limit {
            Limit::Link(rate) => (Some(rate), None),
            Limit::Host(rate) => (None, Some(rate)),
        };
        let link = Link::new(rate)?;
        let node = link.far.within(|| Member::start_at(farmem, folder.path(), memory, FAR))?;
        let limit: Vec<&str> = bandwidth.into_iter().flat_map(|rate| ["--bandwidth-in", rate]).collect();
        let host = link.near.within(|| Host::start(farmem, folder.path(), POOL, &limit))?;
        Ok(Self { farmem: farmem.to_owned(), host, node, link, folder })
    }

    /// Starts a program there.
    pub(super) fn start(&self, terms: &Terms<'_>) -> Result<Space> {
        let (socket, node) = (self.host.socket(), self.node.address());
        self.link.near.within(|| Space::start(&self.farmem, self.folder.path(), socket, node, terms))
    }

    /// How programs of these names stand, all at one moment.
    pub(super) fn standings(&self, names: &[&str]) -> Result<Vec<Standing>> {
        // Programs are found by sockets that belong to their network.
        let output = self.link.near.within(|| {
            Ok(Command::new(&self.farmem).args(["stat", "--json"]).stdin(Stdio::null()).output()?)
        })?;
        let standings: Vec<Standing> =
            serde_json::from_slice(&output.stdout).context("farmem stat tells something else")?;
        let of = |name: &&str| {
            let standing = standings.iter().find(|standing| standing.name == **name);
            standing.cloned().with_context(|| format!("{name} has ended"))
        };
        names.iter().map(of).collect()
    }
}

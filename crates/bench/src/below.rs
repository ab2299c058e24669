//! What is below the pools of programs under Farmem: nothing, a memory node, or a disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use farmem_page::ByteCount;

use crate::member::Member;
use crate::relay::Relay;

/// How many times more data than pool where most is to go beyond it, and the least pool.
const BEYOND: u64 = 16;
pub(crate) const LEAST_POOL: ByteCount = ByteCount::new(4 << 20);

/// The pool of a program with so much data of which most is to go beyond it: it has room for what is on its
/// way.
pub(crate) fn small_pool(data: ByteCount) -> ByteCount {
    ByteCount::new(data.get() / BEYOND).max(LEAST_POOL)
}

/// See the module's text. It ends when dropped.
pub(crate) enum Below {
    Nothing,
    Node {
        address: String,
        // What uses something stands before it.
        _relay: Option<Relay>,
        _node: Member,
    },
    /// In files in this folder.
    Disk(PathBuf),
}

impl Below {
    /// A node that lends so much memory, by the loopback device, on which what is said takes `delay` longer
    /// each way. `folder` is for what it says.
    ///
    /// # Errors
    /// When it can't be started.
    pub(crate) fn node(
        farmem: &Path,
        folder: &Path,
        memory: ByteCount,
        delay: Option<Duration>,
    ) -> Result<Self> {
        let node = Member::start(farmem, folder, memory)?;
        let relay = delay.map(|delay| Relay::start(node.address(), delay)).transpose()?;
        let address =
            relay.as_ref().map_or_else(|| node.address().to_owned(), |relay| relay.address().to_string());
        Ok(Self::Node { address, _relay: relay, _node: node })
    }

    /// Options of `farmem run`. A disk has so much room.
    pub(crate) fn options(&self, room: ByteCount) -> Vec<String> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Node { address, .. } => vec!["--node".to_owned(), address.clone()],
            Self::Disk(folder) => {
                vec!["--disk".to_owned(), format!("{}:{}", folder.display(), room.get())]
            }
        }
    }
}

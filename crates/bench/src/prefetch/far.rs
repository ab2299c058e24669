//! Where the far memory of programs is.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use farmem_page::ByteCount;
use serde::Serialize;

use crate::member::Member;
use crate::relay::Relay;

/// Where far memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Far {
    /// Compressed, in this machine's memory.
    #[default]
    Pool,
    /// On a memory node whose answers take half a millisecond longer than by the loopback device. Next to
    /// nothing stays in the pool.
    Node,
}

/// Each way to the node.
const DELAY: Duration = Duration::from_micros(250);
/// Memory that the node lends, which is more than any of the programs has.
const NODE_MEMORY: ByteCount = ByteCount::new(4 << 30);
/// What is on its way to the node is in the pool.
const POOL: &str = "4M";

/// What is below the pools of programs. It ends when dropped.
pub(super) enum Site {
    Pool,
    Node { relay: Relay, _node: Member },
}

impl Site {
    /// `folder` is for what a node says.
    ///
    /// # Errors
    /// When a node can't be started.
    pub(super) fn open(farmem: &Path, far: Far, folder: &Path) -> Result<Self> {
        match far {
            Far::Pool => Ok(Self::Pool),
            Far::Node => {
                let node = Member::start(farmem, folder, NODE_MEMORY)?;
                let relay = Relay::start(node.address(), DELAY)?;
                Ok(Self::Node { relay, _node: node })
            }
        }
    }

    /// Options of `farmem run`.
    pub(super) fn options(&self) -> Vec<String> {
        match self {
            Self::Pool => Vec::new(),
            Self::Node { relay, .. } => {
                let address = relay.address().to_string();
                ["--plain", "--pool", POOL, "--node", &address].map(str::to_owned).to_vec()
            }
        }
    }
}

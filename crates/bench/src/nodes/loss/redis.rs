//! Redis under `farmem run`, with most of its data on nodes.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use farmem_page::ByteCount;
use rustix::process::{Pid, Signal, kill_process};

use crate::{redis, supervisor};

const NAME: &str = "bench-loss";

/// A server that runs. Ended when dropped.
pub(super) struct Server {
    farmem: PathBuf,
    socket: PathBuf,
    process: Child,
}

impl Server {
    pub(super) fn start(
        farmem: &Path,
        folder: &Path,
        data: ByteCount,
        nodes: &[&str],
        redundancy: &str,
    ) -> Result<Self> {
        let socket = folder.join("redis");
        let (local, pool) = (data.get() / 4, (data.get() / 16).max(4 << 20));
        let mut command = Command::new(farmem);
        command.args(["run", "--host", "none", "--plain", "--name", NAME, "--local", &local.to_string()]);
        command.args(["--pool", &pool.to_string(), "--node", &nodes.join(","), "--redundancy", redundancy]);
        command.arg("--").args(redis::command(&socket));
        let process = command
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start Redis")?;
        Ok(Self { farmem: farmem.to_owned(), socket, process })
    }

    /// Where it listens.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// A figure of `farmem stat`.
    pub(super) fn figure(&self, key: &str) -> Result<u64> {
        let output =
            Command::new(&self.farmem).args(["stat", NAME, "--json"]).stdin(Stdio::null()).output()?;
        let applications: serde_json::Value =
            serde_json::from_slice(&output.stdout).context("the server has ended")?;
        applications[0][key].as_u64().with_context(|| format!("farmem stat doesn't tell {key}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // If it has ended already, waiting says so.
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
        supervisor::wait_for_end(NAME);
    }
}

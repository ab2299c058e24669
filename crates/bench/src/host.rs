//! A broker as a process of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::run::end;

/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// `farmem host`. Ended when dropped.
pub(crate) struct Host {
    socket: PathBuf,
    process: Child,
}

impl Host {
    /// Starts one with that much memory for pools, and these options besides. `folder` is for its socket, and
    /// for what it says.
    ///
    /// # Errors
    /// When it doesn't listen.
    pub(crate) fn start(farmem: &Path, folder: &Path, pool: &str, options: &[&str]) -> Result<Self> {
        let (said, socket) = (folder.join("host-said"), folder.join("host.socket"));
        let mut command = Command::new(farmem);
        command.args(["host", "--pool", pool, "--socket"]).arg(&socket).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&said)?);
        let mut host = Self { socket, process: command.spawn().context("cannot start a broker")? };
        let began = Instant::now();
        loop {
            let text = fs::read_to_string(&said)?;
            if text.contains("farmem host:") {
                return Ok(host);
            }
            let is_there = host.process.try_wait()?.is_none() && began.elapsed() < PATIENCE;
            ensure!(is_there, "the broker doesn't listen: {text}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

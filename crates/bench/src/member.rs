//! A memory node as a process of its own, that can be killed and asked how it stands.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use farmem_page::ByteCount;
use serde::Deserialize;

/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// What `farmem node stat` says, as far as it matters.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(crate) struct NodeFigures {
    pub(crate) memory_bytes: u64,
    pub(crate) free_bytes: u64,
    pub(crate) written_bytes: u64,
}

pub(crate) struct Member {
    farmem: PathBuf,
    said: PathBuf,
    memory: ByteCount,
    address: String,
    process: Child,
}

impl Member {
    /// Starts one on a free port of the loopback device. `folder` is for what it says.
    pub(crate) fn start(farmem: &Path, folder: &Path, memory: ByteCount) -> Result<Self> {
        Self::start_at(farmem, folder, memory, "127.0.0.1")
    }

    /// The same at this address, which is one of the calling thread's network. It is reached from there
    /// alone.
    pub(crate) fn start_at(farmem: &Path, folder: &Path, memory: ByteCount, host: &str) -> Result<Self> {
        let said = tempfile::Builder::new().prefix("node").tempfile_in(folder)?.into_temp_path().keep()?;
        let (process, address) = listen(farmem, &said, memory, &format!("{host}:0"))?;
        Ok(Self { farmem: farmem.to_owned(), said, memory, address, process })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// How it stands.
    pub(crate) fn figures(&self) -> Result<NodeFigures> {
        let output = Command::new(&self.farmem)
            .args(["node", "stat", &self.address, "--json"])
            .stdin(Stdio::null())
            .output()?;
        let said = || String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice(&output.stdout).with_context(|| format!("a node doesn't answer: {}", said()))
    }

    /// It can do nothing more.
    pub(crate) fn kill(&mut self) {
        // Both only fail when it has ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts it where it listened before.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        (self.process, self.address) = listen(&self.farmem, &self.said, self.memory, &self.address)?;
        Ok(())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

fn listen(farmem: &Path, said: &Path, memory: ByteCount, address: &str) -> Result<(Child, String)> {
    let mut process = Command::new(farmem)
        .args(["node", "--plain", "--memory", &memory.get().to_string(), "--listen", address])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(said)?)
        .spawn()
        .context("cannot start a node")?;
    let began = Instant::now();
    loop {
        let text = fs::read_to_string(said)?;
        // A line is written in several parts.
        let is_whole = |line: &&str| line.starts_with("farmem node:") && line.ends_with('\n');
        let line = text.split_inclusive('\n').find(is_whole);
        if let Some(address) = line.and_then(|line| line.split_whitespace().next_back()) {
            return Ok((process, address.to_owned()));
        }
        let has_ended = process.try_wait()?.is_some() || began.elapsed() > PATIENCE;
        if has_ended {
            let _ = process.kill();
            let _ = process.wait();
        }
        ensure!(!has_ended, "a node doesn't listen: {text}");
        thread::sleep(Duration::from_millis(10));
    }
}

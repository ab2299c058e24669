//! Redis under `farmem run`, and a client of it that asks at a fixed rate and looks at every byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use farmem_page::ByteCount;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};

/// Bytes of a value, and what the server needs for it with its key.
const VALUE_BYTES: usize = 1024;
const ITEM_BYTES: u64 = 1200;
const PATIENCE: Duration = Duration::from_secs(60);
const NAME: &str = "bench-loss";
const SEED: u64 = 0x7265_6469;

/// The server's version, if it is installed.
pub(super) fn version() -> Result<()> {
    let output = Command::new("redis-server").arg("--version").stdin(Stdio::null()).output();
    output.map(|_| ()).context("redis-server can't be started; install Redis")
}

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
        command.args(["--", "redis-server", "--port", "0", "--save", "", "--appendonly", "no"]);
        command.arg("--unixsocket").arg(&socket);
        let process = command
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start Redis")?;
        Ok(Self { farmem: farmem.to_owned(), socket, process })
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
        // `farmem run` passes it on. If it has ended already, waiting says so.
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }
}

/// A request and what came of it.
pub(super) struct Asked {
    /// When it was due, from the beginning.
    pub(super) due: Duration,
    /// From then until it was answered.
    pub(super) took: Duration,
    /// Whether the answer was what had been stored.
    pub(super) is_right: bool,
}

pub(super) struct Client {
    stream: BufReader<UnixStream>,
    random: SmallRng,
    items: u64,
}

impl Client {
    /// Connects as soon as the server listens.
    pub(super) fn connect(server: &Server) -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        let stream = loop {
            match UnixStream::connect(&server.socket) {
                Ok(stream) => break stream,
                Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(error).context("Redis doesn't listen"),
            }
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream), random: SmallRng::seed_from_u64(SEED), items: 0 })
    }

    /// Stores so many bytes of values.
    pub(super) fn load(&mut self, data: ByteCount) -> Result<()> {
        const AT_ONCE: u64 = 32;
        self.items = (data.get() / ITEM_BYTES).max(1);
        for first in (0..self.items).step_by(AT_ONCE as usize) {
            let keys = first..(first + AT_ONCE).min(self.items);
            let mut request = Vec::new();
            for key in keys.clone() {
                write!(request, "*3\r\n$3\r\nSET\r\n$9\r\nk{key:08}\r\n${VALUE_BYTES}\r\n")?;
                request.extend_from_slice(&content(key));
                request.extend_from_slice(b"\r\n");
            }
            self.stream.get_mut().write_all(&request)?;
            for _ in keys {
                let mut line = String::new();
                self.stream.read_line(&mut line)?;
                ensure!(line == "+OK\r\n", "Redis doesn't store: {line}");
            }
        }
        Ok(())
    }

    /// Asks for values at random, `rate` times a second, until it is over. A request's time counts from when it was due, so that one that is held up
    /// is charged for those behind it.
    pub(super) fn ask_at(&mut self, rate: f64, is_over: &AtomicBool) -> Result<Vec<Asked>> {
        let began = Instant::now();
        let mut all = Vec::new();
        while !is_over.load(Ordering::Acquire) {
            let due = Duration::from_secs_f64(all.len() as f64 / rate);
            thread::sleep(due.saturating_sub(began.elapsed()));
            let key = self.random.random_range(0..self.items);
            let is_right = self.ask(key)?;
            all.push(Asked { due, took: began.elapsed().saturating_sub(due), is_right });
        }
        Ok(all)
    }

    fn ask(&mut self, key: u64) -> Result<bool> {
        self.stream.get_mut().write_all(format!("*2\r\n$3\r\nGET\r\n$9\r\nk{key:08}\r\n").as_bytes())?;
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            bail!("Redis has closed the connection");
        }
        if line != format!("${VALUE_BYTES}\r\n") {
            return Ok(false);
        }
        let mut value = [0; VALUE_BYTES + 2];
        self.stream.read_exact(&mut value)?;
        Ok(value[..VALUE_BYTES] == content(key)[..])
    }
}

/// The value of a key: a page of them compresses to about half.
fn content(key: u64) -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(key);
    let mut value = Vec::with_capacity(VALUE_BYTES);
    while value.len() < VALUE_BYTES {
        value.extend_from_slice(&random.next_u64().to_le_bytes());
        value.extend_from_slice(&0x0101_0101_0101_0101_u64.to_le_bytes());
    }
    value
}

//! The readers under `farmem run`, most of their data on a node.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Sizes;
use crate::interrupt::Interrupt;
use crate::own;
use crate::readers::{Event, Order};
use crate::run::end;

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);

/// A program that runs. Ended when dropped.
pub(super) struct Program<'a> {
    interrupt: &'a Interrupt,
    process: Child,
    /// Closed when there is nothing more to do.
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: PathBuf,
    statistics: PathBuf,
}

impl<'a> Program<'a> {
    /// Starts it; `folder` is for what it says.
    pub(super) fn start(
        interrupt: &'a Interrupt,
        farmem: &Path,
        folder: &Path,
        sizes: Sizes,
        node: SocketAddr,
    ) -> Result<Self> {
        let [errors, statistics] = ["errors", "statistics"].map(|what| folder.join(what));
        let [data, own, local, pool] =
            [sizes.data, sizes.own, sizes.local, sizes.pool].map(|size| size.get().to_string());
        let mut command = Command::new(farmem);
        command.args(["run", "--host", "none", "--plain", "--node", &node.to_string()]);
        command.args(["--local", &local, "--pool", &pool, "--stats"]).arg(&statistics);
        command.arg("--").arg(own::program()?).args(["readers", "--data", &data, "--own", &own]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&errors)?);
        let mut process = command.spawn().context("cannot start a program")?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let (sender, lines) = mpsc::channel();
        let program = Self { interrupt, process, input, lines, errors, statistics };
        let output = output.context("a program has no output")?;
        // It ends with the program's output.
        thread::Builder::new().spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            for line in lines {
                if sender.send(line).is_err() {
                    break;
                }
            }
        })?;
        Ok(program)
    }

    /// Tells it what to do.
    pub(super) fn tell(&mut self, order: Order) -> Result<()> {
        let line = serde_json::to_string(&order)? + "\n";
        let input = self.input.as_mut().context("a program was told to end")?;
        input.write_all(line.as_bytes()).context("a program has ended before its time")
    }

    /// Waits for what it tells next.
    pub(super) fn next(&self) -> Result<Event> {
        let event = self.next_within(PATIENCE)?;
        event.context("a program doesn't come to an end")
    }

    /// The same for so long at most; `None` if it tells nothing in that time.
    pub(super) fn next_within(&self, patience: Duration) -> Result<Option<Event>> {
        let deadline = Instant::now() + patience;
        loop {
            self.interrupt.check()?;
            match self.lines.recv_timeout(LOOK) {
                Ok(line) => {
                    let event = serde_json::from_str(&line);
                    return Ok(Some(event.with_context(|| format!("not a word of the readers: {line}"))?));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("a program ended before its time: {}", self.last_word())
                }
            }
        }
    }

    /// Lets it check all of its memory and end, and returns what `farmem run` counted.
    pub(super) fn finish(mut self) -> Result<Value> {
        drop(self.input.take());
        let told = self.next()?;
        ensure!(told == Event::Done { mismatches: 0 }, "pages came back with other bytes: {told:?}");
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.process.try_wait()? {
                break status;
            }
            self.interrupt.check()?;
            ensure!(Instant::now() < deadline, "a program doesn't end");
            thread::sleep(LOOK);
        };
        ensure!(status.success(), "a program ended with {status}: {}", self.last_word());
        let text = fs::read(&self.statistics).context("no statistics were written")?;
        Ok(serde_json::from_slice(&text)?)
    }

    fn last_word(&self) -> String {
        let words = fs::read_to_string(&self.errors).unwrap_or_default();
        let last = words.lines().next_back().unwrap_or("no word why");
        last.trim_start_matches("farmem: ").to_owned()
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

//! A program under `farmem run` with a weight: the workload, in one process or several.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use farmem_page::ByteCount;
use serde_json::Value;

use crate::run::end;
use crate::workload::{Event, Outcome, Pattern};
use crate::{option, own};

/// Local memory: data divided by it. Several processes need some in any case.
const PART: u64 = 4;
const LEAST_LOCAL: u64 = 12 << 20;
/// What stays compressed on this machine: next to nothing, but each process fills slabs of its own.
const POOL_BYTES: u64 = 4 << 20;
const POOL_BYTES_EACH: u64 = 1 << 20;
/// Starts as many as its first word says, and ends well when all have. They live as long as standard input
/// does; a signal ends them sooner.
const SEVERAL: &str = "left=$1; shift; exec 3<&0; trap 'kill $all; exit 143' TERM\n\
    while [ $left -gt 0 ]; do \"$@\" <&3 & all=\"$all $!\"; left=$((left - 1)); done\n\
    for one in $all; do wait $one || exit; done";

/// What a program gets and does.
pub(super) struct Terms<'a> {
    pub(super) name: &'a str,
    pub(super) weight: u32,
    /// Of all of its processes together.
    pub(super) data: ByteCount,
    pub(super) pattern: Pattern,
    pub(super) processes: u32,
    /// Of each process.
    pub(super) threads: u32,
    /// Accesses of a round, where it is not the pattern's own number.
    pub(super) accesses: Option<u64>,
    /// How often it goes through its pattern, once it is told to; `None` for on and on from the start.
    pub(super) rounds: Option<u32>,
    /// Options of `farmem run` besides.
    pub(super) options: &'a [&'a str],
}

impl Terms<'_> {
    fn program(&self) -> Result<Vec<String>> {
        let mut words: Vec<String> = Vec::new();
        if self.processes > 1 {
            words.extend(["sh", "-c", SEVERAL, "sh"].map(str::to_owned));
            words.push(self.processes.to_string());
        }
        words.push(own::word()?);
        let data = self.data.get() / u64::from(self.processes);
        let pattern = option::name(&self.pattern);
        words.extend(["workload", "--compressibility", "random", "--warm-up", "0"].map(str::to_owned));
        let named = [
            ("--data", data.to_string()),
            ("--pattern", pattern),
            ("--threads", self.threads.to_string()),
            ("--rounds", self.rounds.unwrap_or(1).to_string()),
        ];
        words.extend(named.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
        words
            .extend(self.accesses.into_iter().flat_map(|count| ["--accesses".to_owned(), count.to_string()]));
        words.push(if self.rounds.is_none() { "--until-end" } else { "--paced" }.to_owned());
        Ok(words)
    }
}

/// A program that runs. Ended when dropped.
pub(super) struct Space {
    name: String,
    processes: u32,
    output: PathBuf,
    errors: PathBuf,
    statistics: PathBuf,
    process: Child,
}

impl Space {
    /// Starts one that leases from the broker at `socket`. `folder` is for what it says.
    pub(super) fn start(
        farmem: &Path,
        folder: &Path,
        socket: &Path,
        node: &str,
        terms: &Terms<'_>,
    ) -> Result<Self> {
        let name = terms.name.to_owned();
        let [output, errors, statistics] =
            ["output", "errors", "statistics"].map(|what| folder.join(format!("{name}-{what}")));
        let local = (terms.data.get() / PART).max(LEAST_LOCAL).to_string();
        let pool = (POOL_BYTES + POOL_BYTES_EACH * u64::from(terms.processes)).to_string();
        let weight = terms.weight.to_string();
        let mut command = Command::new(farmem);
        command.args(["run", "--plain", "--no-borrow", "--name", &name, "--local", &local, "--pool", &pool]);
        command.args(["--node", node, "--weight", &weight, "--host"]).arg(socket);
        command.args(terms.options).arg("--stats").arg(&statistics);
        command.arg("--").args(terms.program()?);
        command.stdin(Stdio::piped()).stdout(File::create(&output)?).stderr(File::create(&errors)?);
        let process = command.spawn().context("cannot start a program")?;
        let mut space = Self { name, processes: terms.processes, output, errors, statistics, process };
        if terms.rounds.is_some() {
            space.pace(1)?;
        }
        Ok(space)
    }

    /// Lets one that has been filled go through its rounds.
    pub(super) fn begin_rounds(&mut self) -> Result<()> {
        // It waits after the data was written, and after its rounds of warming up, of which there are none.
        self.pace(2)
    }

    fn pace(&mut self, lines: usize) -> Result<()> {
        let input = self.process.stdin.as_mut().context("a program has no input any more")?;
        // What has ended reads no more; whoever waits for it says how it ended.
        let _ = input.write_all("\n".repeat(lines).as_bytes());
        Ok(())
    }

    /// Whether all of its data was written.
    pub(super) fn is_filled(&mut self) -> Result<bool> {
        let output = fs::read(&self.output)?;
        let events = output.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        let filled = events.filter(|event: &Event| *event == Event::Filled).count();
        self.check()?;
        Ok(filled >= self.processes as usize)
    }

    /// An error when it has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended before its time with {status}: {}", self.name, self.last_word()),
        }
    }

    /// Lets one that goes on and on come to its end: it looks at all of its data once more.
    pub(super) fn finish(&mut self) {
        drop(self.process.stdin.take());
    }

    /// Whether it has ended, having found what it wrote.
    pub(super) fn has_ended_well(&mut self) -> Result<bool> {
        match self.process.try_wait()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => bail!("{} ended with {status}: {}", self.name, self.last_word()),
        }
    }

    /// What the workload measured, and what `farmem run` says about one that has ended.
    pub(super) fn outcome(&self) -> Result<(Outcome, Value)> {
        let outcome = Outcome::last_of(&fs::read(&self.output)?).context("the workload tells nothing")?;
        let statistics = fs::read(&self.statistics).context("no statistics were written")?;
        Ok((outcome, serde_json::from_slice(&statistics)?))
    }

    fn last_word(&self) -> String {
        let words = fs::read_to_string(&self.errors).unwrap_or_default();
        let last = words.lines().next_back().unwrap_or("no word why");
        last.trim_start_matches("farmem: ").to_owned()
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.finish();
        end(&mut self.process);
    }
}

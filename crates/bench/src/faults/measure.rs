//! One run of the workload under one peer.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use farmem_page::ByteCount;
use procfs::process::Process;
use serde_json::Value;
use tempfile::TempDir;

use super::Options;
use super::case::{Case, PeerName};
use crate::interrupt::Interrupt;
use crate::peer::{Group, Kind, LocalBytes, Readahead, Swap};
use crate::run;
use crate::stolen::{self, Times};
use crate::undo::Journal;
use crate::workload::{Event, Outcome};
use crate::{option, own};

/// The longest that a run may take.
const RUN_MAXIMUM: Duration = Duration::from_secs(300);
/// How often the workload's resident memory is looked at.
const POLL: Duration = Duration::from_millis(10);
/// Rounds, and accesses of each round, of a case whose data fits: an access takes nanoseconds there.
const FITS_ROUNDS: u32 = 9;
const FITS_ACCESSES: u64 = 1 << 22;
const ROUNDS: u32 = 3;
/// Swap beyond the data, for what else a process has.
const SWAP_SPARE: u64 = 64 << 20;

/// Why there is no sample.
#[derive(Debug)]
pub(super) enum Failure {
    /// The benchmark is to stop.
    Interrupted(anyhow::Error),
    /// The machine doesn't offer this peer.
    Unavailable(String),
    /// This run failed.
    Run(String),
}

/// What one run showed.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) outcome: Outcome,
    /// The largest amount of resident memory that was seen, private and shared.
    pub(super) resident_peak: ByteCount,
    /// The part of the processors' time in the measured rounds that the machine's host took.
    pub(super) stolen_share: f64,
    /// Processor time of the measured rounds that other processes of the application took.
    pub(super) helper_cpu_seconds: f64,
    /// The control group's limit, where there was one.
    pub(super) local: Option<LocalBytes>,
    /// What `farmem run --stats` wrote.
    pub(super) statistics: Option<Value>,
}

/// Runs workloads, one at a time.
pub(super) struct Harness {
    farmem: PathBuf,
    data: ByteCount,
    local: ByteCount,
    swap_folder: PathBuf,
    interrupt: Interrupt,
    /// Opened when the machine is first to be changed.
    journal: Option<Rc<Journal>>,
    scratch: TempDir,
    details: BTreeMap<PeerName, String>,
}

impl Harness {
    pub(super) fn new(
        options: &Options,
        data: ByteCount,
        local: ByteCount,
        interrupt: Interrupt,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            farmem: options.farmem.clone(),
            data,
            local,
            swap_folder: options.swap_folder.clone(),
            interrupt,
            journal: None,
            scratch: tempfile::tempdir()?,
            details: BTreeMap::new(),
        })
    }

    /// What there is to know of a peer that ran.
    pub(super) fn detail(&self, peer: PeerName) -> Option<&str> {
        self.details.get(&peer).map(String::as_str)
    }

    /// Runs the workload of `case` under `peer`; again while the machine's host takes much of the processors'
    /// time, and keeps the run that lost least.
    pub(super) fn measure(&mut self, case: &Case, peer: PeerName) -> Result<Sample, Failure> {
        let mut best = self.measure_once(case, peer)?;
        for _ in 1..stolen::ATTEMPTS {
            if best.stolen_share <= stolen::TOLERATED {
                break;
            }
            match self.measure_once(case, peer) {
                Ok(again) if again.stolen_share < best.stolen_share => best = again,
                Ok(_) => {}
                Err(Failure::Run(_)) => break,
                Err(failure) => return Err(failure),
            }
        }
        Ok(best)
    }

    /// Runs the workload of `case` once under `peer`. All changes of the machine are undone when it returns.
    fn measure_once(&mut self, case: &Case, peer: PeerName) -> Result<Sample, Failure> {
        self.interrupt.check().map_err(Failure::Interrupted)?;
        let unavailable = |error: anyhow::Error| Failure::Unavailable(format!("{error:#}"));
        // The group goes first when this ends: its processes must be gone before swap is turned off.
        let mut swap = None;
        let mut group = None;
        if let Some(kind) = peer.swap() {
            let journal = self.journal().map_err(unavailable)?;
            let size = ByteCount::new(self.data.get() + self.data.get() / 4 + SWAP_SPARE);
            // What zswap holds is as near as what would be read ahead; the note in the report says so.
            let readahead = if kind == Kind::Zswap { Readahead::Off } else { Readahead::AsSet };
            let on = Swap::on(kind, readahead, size, &self.swap_folder, &journal).map_err(unavailable)?;
            self.details.insert(peer, on.detail.clone());
            swap = Some(on);
            group = Some(Group::create(&journal, "workload", self.local).map_err(unavailable)?);
        }
        let result = self.run(case, peer, group.as_ref());
        drop(group);
        drop(swap);
        self.interrupt.check().map_err(Failure::Interrupted)?;
        result
    }

    fn journal(&mut self) -> anyhow::Result<Rc<Journal>> {
        if let Some(journal) = &self.journal {
            return Ok(Rc::clone(journal));
        }
        if !rustix::process::geteuid().is_root() {
            bail!("kernel swap needs root");
        }
        let journal = Journal::open()?;
        self.journal = Some(Rc::clone(&journal));
        Ok(journal)
    }

    fn run(&self, case: &Case, peer: PeerName, group: Option<&Group>) -> Result<Sample, Failure> {
        let statistics = self.scratch.path().join("statistics.json");
        let command = self.command(case, peer, &statistics);
        let mut command = command.map_err(|error| Failure::Run(format!("{error:#}")))?;
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.map_err(|error| Failure::Run(format!("cannot start the workload: {error}")))?;
        let mut running = Running::new(child).map_err(|error| Failure::Run(format!("{error:#}")))?;
        match running.watch(&self.interrupt, group) {
            Ok(mut sample) => {
                if peer == PeerName::Farmem {
                    sample.statistics =
                        fs::read(&statistics).ok().and_then(|text| serde_json::from_slice(&text).ok());
                }
                Ok(sample)
            }
            Err(error) => {
                let words = running.last_words();
                self.interrupt.check().map_err(Failure::Interrupted)?;
                // Status 2 before anything ran: `farmem run` says that it can't work here at all.
                if peer == PeerName::Farmem && !running.has_started && words.status == Some(2) {
                    return Err(Failure::Unavailable(words.text));
                }
                Err(Failure::Run(format!("{error:#}: {}", words.text)))
            }
        }
    }

    fn command(&self, case: &Case, peer: PeerName, statistics: &PathBuf) -> anyhow::Result<Command> {
        let workload = own::program()?;
        let mut command = if peer == PeerName::Farmem {
            let mut command = Command::new(&self.farmem);
            // What fits, fits with room to spare.
            let local = if case.fits { self.data.get() * 2 } else { self.local.get() };
            command.args(["run", "--host", "none", "--local", &local.to_string(), "--stats"]).arg(statistics);
            command.arg("--").arg(workload);
            command
        } else {
            Command::new(workload)
        };
        command.args(["workload", "--paced", "--data", &self.data.get().to_string()]);
        command.args(["--pattern", &option::name(&case.pattern)]);
        command.args(["--compressibility", &option::name(&case.compressibility)]);
        command.args(["--threads", &case.threads.to_string()]);
        if case.sibling {
            command.arg("--sibling");
        }
        if case.is_shared {
            command.arg("--shared");
        }
        command.args(["--warm-up", &case.warm_up.to_string()]);
        let rounds = if case.fits { FITS_ROUNDS } else { ROUNDS };
        command.args(["--rounds", &rounds.to_string()]);
        if case.fits {
            command.args(["--accesses", &FITS_ACCESSES.to_string()]);
        }
        Ok(command)
    }
}

/// A workload that runs. Ended when dropped.
struct Running {
    child: Child,
    lines: Receiver<String>,
    complaints: Receiver<String>,
    deadline: Instant,
    has_started: bool,
}

/// How a run that failed ended.
struct LastWords {
    status: Option<i32>,
    text: String,
}

impl Running {
    fn new(mut child: Child) -> anyhow::Result<Self> {
        let output = child.stdout.take().context("no standard output")?;
        let errors = child.stderr.take().context("no standard error")?;
        Ok(Self {
            lines: read_lines(output),
            complaints: read_lines(errors),
            child,
            deadline: Instant::now() + RUN_MAXIMUM,
            has_started: false,
        })
    }

    /// Leads the workload through its stages, looking at its memory all the while.
    fn watch(&mut self, interrupt: &Interrupt, group: Option<&Group>) -> anyhow::Result<Sample> {
        let mut watched = None;
        let mut resident_peak = 0;
        let mut helper_before = 0.0;
        let mut times_before = Times::default();
        let mut local = None;
        loop {
            interrupt.check()?;
            if let Some(process) = watched {
                resident_peak = resident_peak.max(resident_of(process).unwrap_or(0));
            }
            let line = match self.lines.recv_timeout(POLL) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) if Instant::now() < self.deadline => continue,
                Err(RecvTimeoutError::Timeout) => bail!("not done after {} s", RUN_MAXIMUM.as_secs()),
                Err(RecvTimeoutError::Disconnected) => bail!("the workload ended early"),
            };
            let event =
                serde_json::from_str(&line).with_context(|| format!("not a word of the workload: {line}"))?;
            match event {
                Event::Started { process } => {
                    self.has_started = true;
                    watched = Some(i32::try_from(process)?);
                    if let Some(group) = group {
                        group.add(process)?;
                    }
                }
                Event::Filled => local = group.map(Group::calibrate).transpose()?,
                Event::Warm => {
                    local = group.map(Group::calibrate).transpose()?.or(local);
                    times_before = Times::now();
                    helper_before = self.helper_cpu_seconds(watched);
                }
                Event::Done(outcome) => {
                    let stolen_share = Times::now().stolen_share_since(times_before);
                    let helper_cpu_seconds = self.helper_cpu_seconds(watched) - helper_before;
                    self.finish()?;
                    return Ok(Sample {
                        outcome,
                        resident_peak: ByteCount::new(resident_peak),
                        stolen_share,
                        helper_cpu_seconds,
                        local,
                        statistics: None,
                    });
                }
            }
            let input = self.child.stdin.as_mut().context("no standard input")?;
            input.write_all(b"\n").context("the workload doesn't listen")?;
        }
    }

    /// Processor time of the process that was started, where the workload is another one.
    fn helper_cpu_seconds(&self, workload: Option<i32>) -> f64 {
        let helper = self.child.id() as i32;
        if workload == Some(helper) {
            return 0.0;
        }
        let times = Process::new(helper).and_then(|process| process.stat());
        times.map_or(0.0, |times| (times.utime + times.stime) as f64 / procfs::ticks_per_second() as f64)
    }

    /// Waits for the end of a workload that is done.
    fn finish(&mut self) -> anyhow::Result<()> {
        drop(self.child.stdin.take());
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the workload ended with {status}"),
                None if Instant::now() < self.deadline => thread::sleep(POLL),
                None => bail!("the workload is done but doesn't end"),
            }
        }
    }

    fn last_words(&mut self) -> LastWords {
        // It may be about to end by itself, with a status that tells more than that it was killed.
        for _ in 0..20 {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                break;
            }
            thread::sleep(POLL);
        }
        self.end();
        let mut words: Vec<String> = Vec::new();
        while let Ok(line) = self.complaints.recv_timeout(Duration::from_millis(200)) {
            words.push(line);
        }
        let status = self.child.try_wait().ok().flatten();
        let text = match (words.pop(), status) {
            (Some(line), _) => line.trim_start_matches("farmem: ").to_owned(),
            (None, Some(status)) => status.to_string(),
            (None, None) => "no word why".to_owned(),
        };
        LastWords { status: status.and_then(|status| status.code()), text }
    }

    fn end(&mut self) {
        run::end(&mut self.child);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Lines of a stream as they come; the thread ends with the stream.
fn read_lines(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Resident memory of a process, private and shared, without its files, in bytes.
fn resident_of(process: i32) -> Option<u64> {
    let status = Process::new(process).and_then(|process| process.status()).ok()?;
    Some((status.rssanon? + status.rssshmem.unwrap_or(0)) * 1024)
}

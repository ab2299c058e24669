//! The program that swaps: Farmem's workload, led to where all its data has been written and most of it has
//! left.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};

use anyhow::{Context, bail, ensure};
use farmem_page::ByteCount;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::setting::{Application, Room, Setting};
use crate::interrupt::Interrupt;
use crate::workload::{Compressibility, Event, Outcome, Pattern};
use crate::{option, own};

/// More rounds than anybody waits for.
const ENDLESS: u32 = 1000;
/// Between two looks at whether the benchmark is to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// What it does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) local: ByteCount,
    pub(super) data: ByteCount,
    pub(super) pattern: Pattern,
    pub(super) compressibility: Compressibility,
    pub(super) rounds: u32,
    /// Accesses of a round, unless it is to be the pattern's own number.
    pub(super) accesses: Option<u64>,
    /// Whether Farmem lets pages keep their entries.
    pub(super) keeps_entries: bool,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            local: ByteCount::new(0),
            data: ByteCount::new(0),
            pattern: Pattern::RandomWrite,
            compressibility: Compressibility::Half,
            rounds: ENDLESS,
            accesses: None,
            keeps_entries: true,
        }
    }
}

/// The program, which waits to be let go.
pub(super) struct Swapper {
    pub(super) application: Application,
    /// Its own process, which may be another one's child.
    pub(super) process: u32,
    input: ChildStdin,
    output: Words,
}

impl Swapper {
    /// Lets it go on, for as long as it may live.
    pub(super) fn go(mut self) -> anyhow::Result<Application> {
        self.input.write_all(b"\n")?;
        Ok(self.application)
    }

    /// Lets it go on, and waits until it is done.
    pub(super) fn finish(mut self) -> anyhow::Result<Outcome> {
        self.begin()?;
        self.outcome()
    }

    /// Lets it go on.
    pub(super) fn begin(&mut self) -> anyhow::Result<()> {
        Ok(self.input.write_all(b"\n")?)
    }

    /// Waits until it is done.
    pub(super) fn outcome(&mut self) -> anyhow::Result<Outcome> {
        match self.output.next()? {
            Event::Done(outcome) => Ok(outcome),
            other => bail!("{other:?} is not the end of the workload"),
        }
    }
}

/// Starts the program. Returns once it has been through all its data.
pub(super) fn start(
    setting: &Setting,
    name: &str,
    processor: usize,
    workload: Workload,
) -> anyhow::Result<Swapper> {
    let mut command = vec![own::word()?];
    command.extend(["workload", "--paced", "--pattern"].map(str::to_owned));
    command.push(option::name(&workload.pattern));
    command.extend(["--compressibility".to_owned(), option::name(&workload.compressibility)]);
    command.extend(["--data".to_owned(), workload.data.get().to_string()]);
    command.extend(["--rounds".to_owned(), workload.rounds.to_string()]);
    if let Some(accesses) = workload.accesses {
        command.extend(["--accesses".to_owned(), accesses.to_string()]);
    }
    let options: &[String] =
        if workload.keeps_entries { &[] } else { &["--entries".to_owned(), "new".to_owned()] };
    let room =
        Room { name, local: workload.local, processor: Some(processor), share: None, broker: None, options };
    let mut application = setting.start(room, &command)?;
    let mut input = application.child.stdin.take().context("no standard input")?;
    let output = application.child.stdout.take().context("no standard output")?;
    let mut output = Words { output: BufReader::new(output), interrupt: setting.interrupt().clone() };
    let mut process = 0;
    loop {
        match output.next()? {
            Event::Started { process: started } => process = started,
            Event::Filled => application.limit()?,
            Event::Warm => return Ok(Swapper { application, process, input, output }),
            Event::Done(_) => bail!("the program that swaps ended early"),
        }
        input.write_all(b"\n")?;
    }
}

/// What the program says.
struct Words {
    output: BufReader<ChildStdout>,
    interrupt: Interrupt,
}

impl Words {
    /// The next line, unless the benchmark is asked to stop before it comes.
    fn next(&mut self) -> anyhow::Result<Event> {
        while self.output.buffer().is_empty() {
            self.interrupt.check()?;
            let mut set = [PollFd::new(self.output.get_ref(), PollFlags::IN)];
            match poll(&mut set, Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let mut line = String::new();
        ensure!(self.output.read_line(&mut line)? > 0, "the program that swaps ended early");
        serde_json::from_str(&line).context("not a word of the workload")
    }
}

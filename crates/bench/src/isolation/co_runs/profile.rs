//! What a program is without anybody who pages: what it takes, and what it says.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use farmem_page::ByteCount;
use procfs::process::Process;

use super::program::{Kit, Program};
use crate::interrupt::Interrupt;
use crate::isolation::server;
use crate::isolation::setting::on_processor;

/// Between two looks at how much it takes.
const LOOK: Duration = Duration::from_millis(5);
/// No program here takes so long.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);

/// A program with all the memory that it wants.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    pub(super) program: Program,
    /// The most anonymous memory that it had at a time.
    pub(super) peak: ByteCount,
    /// What it printed; memcached prints nothing.
    pub(super) output: String,
}

impl Profile {
    /// Runs the program once, alone and as the kernel runs it.
    pub(super) fn take(kit: &Kit, program: Program, interrupt: &Interrupt) -> anyhow::Result<Self> {
        let command = kit.command(program);
        let mut start = Command::new(&command[0]);
        start.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = on_processor(program.processor(), || start.spawn())?
            .with_context(|| format!("cannot start {}", command[0]))?;
        let mut running = Running(child);
        let deadline = Instant::now() + PATIENCE;
        if program == Program::Memcached {
            // Its client goes with it: what it holds stays.
            server::fill(&kit.socket(), program.processor(), kit.data(), interrupt)?;
            let peak = running.anonymous()?;
            return Ok(Self { program, peak, output: String::new() });
        }
        let mut peak = ByteCount::ZERO;
        let status = loop {
            if let Some(status) = running.0.try_wait()? {
                break status;
            }
            interrupt.check()?;
            ensure!(Instant::now() < deadline, "it doesn't end");
            // It may end at any moment.
            peak = peak.max(running.anonymous().unwrap_or(ByteCount::ZERO));
            thread::sleep(LOOK);
        };
        ensure!(status.success(), "it ended with {status}");
        Ok(Self { program, peak, output: printed(&mut running.0)? })
    }
}

/// What a program that has ended has printed, which is little.
pub(super) fn printed(child: &mut Child) -> anyhow::Result<String> {
    let mut text = String::new();
    child.stdout.take().context("no standard output")?.read_to_string(&mut text)?;
    Ok(text)
}

/// Ended when dropped.
struct Running(Child);

impl Running {
    fn anonymous(&self) -> anyhow::Result<ByteCount> {
        let status = Process::new(self.0.id() as i32)?.status()?;
        Ok(ByteCount::new(status.rssanon.context("it has no memory any more")? << 10))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

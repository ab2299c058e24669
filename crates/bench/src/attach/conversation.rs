//! A program that is talked with: a line to its standard input, a line from its standard output.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::interrupt::Interrupt;
use crate::run::end;

/// The longest that an answer, or an end, may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether the benchmark is to end.
pub(super) const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Such a program. Ended when dropped.
pub(super) struct Conversation<'a> {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    heard: Vec<u8>,
    interrupt: &'a Interrupt,
}

impl<'a> Conversation<'a> {
    pub(super) fn begin(command: &mut Command, interrupt: &'a Interrupt) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("it cannot be started")?;
        let (input, output) = child.stdin.take().zip(child.stdout.take()).context("it has no pipes")?;
        Ok(Self { child, input, output, heard: Vec::new(), interrupt })
    }

    /// The process.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Says a line.
    pub(super) fn say(&mut self, line: &str) -> Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes()).context("it has ended")
    }

    /// Says a line, and hears one.
    pub(super) fn ask(&mut self, line: &str) -> Result<String> {
        self.say(line)?;
        self.hear()
    }

    /// The next line.
    pub(super) fn hear(&mut self) -> Result<String> {
        let began = Instant::now();
        loop {
            if let Some(line) = self.hear_within(LOOK)? {
                return Ok(line);
            }
            self.interrupt.check()?;
            ensure!(began.elapsed() < PATIENCE, "it says nothing for {} s", PATIENCE.as_secs());
        }
    }

    /// The next line, if it comes within that time.
    pub(super) fn hear_within(&mut self, time: Timespec) -> Result<Option<String>> {
        if !self.heard.contains(&b'\n') {
            let mut set = [PollFd::from_borrowed_fd(self.output.as_fd(), PollFlags::IN)];
            if poll(&mut set, Some(&time))? == 0 {
                return Ok(None);
            }
            let mut more = [0; 4096];
            match self.output.read(&mut more)? {
                0 => bail!("it has ended early"),
                length => self.heard.extend_from_slice(&more[..length]),
            }
        }
        let Some(end) = self.heard.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
        let line: Vec<u8> = self.heard.drain(..=end).collect();
        Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()))
    }
}

impl Drop for Conversation<'_> {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

//! A memory node of the test's own.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::launch::farmem_binary;
use crate::scratch::Scratch;
use crate::trial::wait_for;

/// `farmem node` on this machine's loopback address, for as long as the value lives.
#[derive(Debug)]
pub struct Node {
    scratch: Scratch,
    address: String,
    process: Option<Child>,
}

impl Node {
    /// Starts one that lends so much (as `--memory` takes it), and waits until it listens.
    ///
    /// # Panics
    /// When it doesn't.
    #[must_use]
    pub fn start(memory: &str) -> Self {
        Self::start_with(memory, &[])
    }

    /// The same, with more options.
    ///
    /// # Panics
    /// When it doesn't listen.
    #[must_use]
    pub fn start_with(memory: &str, options: &[&OsStr]) -> Self {
        let scratch = Scratch::new();
        let said = std::fs::File::create(scratch.file("said")).expect("the test's own folder");
        let process = Command::new(farmem_binary())
            .args(["node", "--memory", memory, "--listen", "127.0.0.1:0"])
            .args(options)
            .stdin(Stdio::null())
            .stderr(said)
            .spawn()
            .expect("farmem can be started");
        let mut node = Self { scratch, address: String::new(), process: Some(process) };
        node.address = wait_for("a node that listens", || {
            let said = std::fs::read_to_string(node.said()).unwrap_or_default();
            let line = said.lines().find(|line| line.starts_with("farmem node:"))?;
            line.split_whitespace().next_back().map(str::to_owned)
        });
        node
    }

    fn said(&self) -> PathBuf {
        self.scratch.file("said")
    }

    /// Where it listens, as `HOST:PORT`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("a node that was not killed");
        let process = Pid::from_raw(i32::try_from(process.id()).expect("a process number"));
        kill_process(process.expect("a process number"), signal).expect("it is running");
    }

    /// Kills it: it can do nothing more.
    ///
    /// # Panics
    /// When it has been killed already.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("a node that was not killed");
        process.kill().expect("own child");
        process.wait().expect("own child");
    }

    /// Stops it: it answers nothing, and its connections stay.
    ///
    /// # Panics
    /// When it has been killed.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// When it has been killed.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

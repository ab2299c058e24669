//! A memory node of the test's own.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::launch::farmem_binary;
use crate::scratch::Scratch;
use crate::trial::wait_for;

/// `farmem node` on this machine, for as long as the value lives.
#[derive(Debug)]
pub struct Node {
    scratch: Scratch,
    address: String,
    memory: String,
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
        Self::start_at("127.0.0.1:0", memory, options)
    }

    /// The same, at another address.
    pub(crate) fn start_at(address: &str, memory: &str, options: &[&OsStr]) -> Self {
        let (scratch, address) = (Scratch::new(), address.to_owned());
        let mut node = Self { scratch, address, memory: memory.to_owned(), process: None };
        node.listen(options);
        node
    }

    fn listen(&mut self, options: &[&OsStr]) {
        let said = File::create(self.said()).expect("the test's own folder");
        let process = Command::new(farmem_binary())
            .args(["node", "--memory", &self.memory, "--listen", &self.address])
            .args(options)
            .stdin(Stdio::null())
            .stderr(said)
            .spawn()
            .expect("farmem can be started");
        self.process = Some(process);
        self.address = wait_for("a node that listens", || {
            let said = fs::read_to_string(self.said()).unwrap_or_default();
            // A line is written in several parts.
            let is_whole = |line: &&str| line.starts_with("farmem node:") && line.ends_with('\n');
            let line = said.split_inclusive('\n').find(is_whole)?;
            line.split_whitespace().next_back().map(str::to_owned)
        });
    }

    /// Starts it again where it listened, after it was killed: it has forgotten everything.
    ///
    /// # Panics
    /// When it doesn't listen.
    pub fn start_again(&mut self) {
        self.start_again_with(&[]);
    }

    /// The same, with more options.
    ///
    /// # Panics
    /// When it doesn't listen.
    pub fn start_again_with(&mut self, options: &[&OsStr]) {
        self.listen(options);
    }

    /// Changes a byte in each KiB of the memory that it lends: from now on it lies.
    ///
    /// # Panics
    /// When its memory can't be reached.
    pub fn damage(&self) {
        let process = self.process.as_ref().expect("a node that was not killed").id();
        let open = fs::read_dir(format!("/proc/{process}/fd")).expect("own child");
        let is_region = |path: &PathBuf| {
            fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains("farmem-node"))
        };
        let path = open.flatten().map(|entry| entry.path()).find(is_region).expect("its memory");
        let region = File::options().read(true).write(true).open(path).expect("its memory");
        let length = region.metadata().expect("a file").len();
        let mut page = [0; 4096];
        for at in (0..length).step_by(page.len()) {
            // What was never written has no memory behind it, and stays so.
            region.read_exact_at(&mut page, at).expect("inside the file");
            if page.iter().any(|byte| *byte != 0) {
                (0..page.len()).step_by(1024).for_each(|byte| page[byte] ^= 0x55);
                region.write_all_at(&page, at).expect("inside the file");
            }
        }
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

//! A broker of the test's own, which other tests don't see.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::launch::{Launcher, farmem_binary};
use crate::scratch::Scratch;
use crate::trial::wait_for;

/// `farmem host`, for as long as the value lives.
#[derive(Debug)]
pub struct Host {
    scratch: Scratch,
    options: Vec<String>,
    /// Whether it is in a PID namespace of its own, as in a container.
    is_apart: bool,
    broker: Option<Child>,
}

impl Host {
    /// Starts one with these options in addition to its socket, and waits until it listens.
    ///
    /// # Panics
    /// When it doesn't.
    #[must_use]
    pub fn start(options: &[&str]) -> Self {
        Self::start_as(options, false)
    }

    /// The same in a PID namespace of its own, as in a container: there the processes of applications have no
    /// numbers.
    ///
    /// # Panics
    /// When it doesn't listen.
    #[must_use]
    pub fn start_apart(options: &[&str]) -> Self {
        Self::start_as(options, true)
    }

    fn start_as(options: &[&str], is_apart: bool) -> Self {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut host = Self { scratch: Scratch::new(), options, is_apart, broker: None };
        host.restart();
        host
    }

    /// The file of its socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.scratch.file("host.socket")
    }

    /// A launcher of applications that lease from it.
    #[must_use]
    pub fn launcher(&self, name: &str, budget_bytes: u64) -> Launcher {
        Launcher::managed(budget_bytes).option("--host").option(self.socket()).option("--name").option(name)
    }

    /// Starts it, again if it has been killed.
    ///
    /// # Panics
    /// When it can't be started.
    pub fn restart(&mut self) {
        let said = std::fs::File::create(self.scratch.file("said")).expect("the test's own folder");
        let mut command = Command::new(farmem_binary());
        if self.is_apart {
            command = Command::new("unshare");
            command.args(["--pid", "--fork", "--kill-child"]).arg(farmem_binary());
        }
        let mut broker = command
            .args(["host", "--socket"])
            .arg(self.socket())
            .args(&self.options)
            .stdin(Stdio::null())
            .stderr(said)
            .spawn()
            .expect("farmem can be started");
        wait_for("a broker that listens", || {
            assert!(broker.try_wait().expect("own child").is_none(), "the broker has ended: {}", self.said());
            self.said().contains("farmem host:").then_some(())
        });
        self.broker = Some(broker);
    }

    /// What it has said since it was last started.
    #[must_use]
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.scratch.file("said")).unwrap_or_default()
    }

    /// The number of its process.
    ///
    /// # Panics
    /// When it was killed.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.broker.as_ref().expect("a broker").id()
    }

    /// Kills it: it can do nothing more.
    ///
    /// # Panics
    /// When it had ended already.
    pub fn kill(&mut self) {
        let mut broker = self.broker.take().expect("a broker");
        assert!(broker.try_wait().expect("own child").is_none(), "the broker has ended: {}", self.said());
        broker.kill().expect("own child");
        broker.wait().expect("own child");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let Some(mut broker) = self.broker.take() else { return };
        if self.is_apart {
            // The process that made the namespace is deaf to requests, and takes the broker along when it is
            // killed.
            let _ = broker.kill();
        } else if let Some(pid) = i32::try_from(broker.id()).ok().and_then(Pid::from_raw) {
            // As a person ends it; it removes its socket.
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = broker.wait();
    }
}

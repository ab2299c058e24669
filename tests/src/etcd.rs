//! An etcd of the test's own.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use crate::scratch::Scratch;
use crate::trial::wait_for;

/// An etcd of one member on this machine, for as long as the value lives.
#[derive(Debug)]
pub struct Etcd {
    scratch: Scratch,
    endpoint: String,
    peers: String,
    process: Option<Child>,
}

/// A port that nobody listens at now.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").to_string()
}

impl Etcd {
    /// Starts one, and waits until it answers.
    ///
    /// # Panics
    /// When it doesn't; `scripts/setup` installs it.
    #[must_use]
    pub fn start() -> Self {
        let (scratch, endpoint, peers) = (Scratch::new(), free_address(), free_address());
        let mut etcd = Self { scratch, endpoint, peers, process: None };
        etcd.start_again();
        etcd
    }

    /// Starts it again where it was, with what it knew.
    ///
    /// # Panics
    /// When it doesn't answer.
    pub fn start_again(&mut self) {
        let (client, peer) = (format!("http://{}", self.endpoint), format!("http://{}", self.peers));
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(self.scratch.file("etcd"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--unsafe-no-fsync"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd can be started; scripts/setup installs it");
        self.process = Some(process);
        wait_for("an etcd that answers", || self.control(&["endpoint", "health"]).then_some(()));
    }

    fn control(&self, arguments: &[&str]) -> bool {
        let status = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.endpoint])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.expect("etcdctl can be started; scripts/setup installs it").success()
    }

    /// Writes a key.
    ///
    /// # Panics
    /// When etcd refuses.
    pub fn put(&self, key: &str, text: &str) {
        assert!(self.control(&["put", "--", key, text]), "etcd takes what is put");
    }

    /// Removes a key.
    ///
    /// # Panics
    /// When etcd refuses.
    pub fn remove(&self, key: &str) {
        assert!(self.control(&["del", key]), "etcd removes what is there");
    }

    /// Where it listens, as `HOST:PORT`.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Kills it.
    ///
    /// # Panics
    /// When it has been killed already.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("an etcd that was not killed");
        process.kill().expect("own child");
        process.wait().expect("own child");
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

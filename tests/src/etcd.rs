//! An etcd of the test's own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::scratch::Scratch;
use crate::trial::wait_for;

/// An etcd of one member on this machine, for as long as the value lives.
#[derive(Debug)]
pub struct Etcd {
    scratch: Scratch,
    endpoint: String,
    peers: String,
    secure: Option<Secure>,
    process: Option<Child>,
}

/// TLS with the certificate of a node, and a user without whom nothing can be read or written.
#[derive(Debug)]
struct Secure {
    folder: PathBuf,
    login: String,
    is_wanted: bool,
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
        let mut etcd = Self { scratch, endpoint, peers, secure: None, process: None };
        etcd.start_again();
        etcd
    }

    /// Starts one with TLS, by the certificates of a folder that `farmem node keygen` made, and with a user and password, as `USER:PASSWORD`, without whom nothing is
    /// told.
    ///
    /// # Panics
    /// When it doesn't answer.
    #[must_use]
    pub fn start_secure(folder: &Path, login: &str) -> Self {
        let (scratch, endpoint, peers) = (Scratch::new(), free_address(), free_address());
        let secure = Secure { folder: folder.to_owned(), login: login.to_owned(), is_wanted: false };
        let mut etcd = Self { scratch, endpoint, peers, secure: Some(secure), process: None };
        etcd.start_again();
        let user = login.split_once(':').expect("a user and a password").0;
        for arguments in [
            &["user", "add", "root:of the test's own"][..],
            &["user", "add", login],
            &["role", "add", "operator"],
            &["role", "grant-permission", "operator", "--prefix=true", "readwrite", "farmem/"],
            &["user", "grant-role", user, "operator"],
            &["user", "grant-role", "root", "root"],
            &["auth", "enable"],
        ] {
            assert!(etcd.control(arguments), "{arguments:?}");
        }
        if let Some(secure) = &mut etcd.secure {
            secure.is_wanted = true;
        }
        etcd
    }

    /// Starts it again where it was, with what it knew.
    ///
    /// # Panics
    /// When it doesn't answer.
    pub fn start_again(&mut self) {
        let scheme = if self.secure.is_some() { "https" } else { "http" };
        let (client, peer) = (format!("{scheme}://{}", self.endpoint), format!("http://{}", self.peers));
        let mut command = Command::new("etcd");
        if let Some(Secure { folder, .. }) = &self.secure {
            command.arg("--cert-file").arg(folder.join("node.pem"));
            command.arg("--key-file").arg(folder.join("node.key"));
        }
        let process = command
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
        wait_for("an etcd that answers", || self.control(&["get", "farmem/"]).then_some(()));
    }

    fn control(&self, arguments: &[&str]) -> bool {
        self.told(arguments).is_some()
    }

    /// What `etcdctl` prints, where it succeeds.
    fn told(&self, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3");
        match &self.secure {
            None => command.args(["--endpoints", &self.endpoint]),
            Some(Secure { folder, login, is_wanted }) => {
                command.args(["--endpoints", &format!("https://{}", self.endpoint)]);
                command.arg("--cacert").arg(folder.join("authority.pem"));
                if *is_wanted { command.args(["--user", login]) } else { &mut command }
            }
        };
        let output = command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output();
        let output = output.expect("etcdctl can be started; scripts/setup installs it");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What is under a key.
    ///
    /// # Panics
    /// When etcd doesn't tell.
    #[must_use]
    pub fn get(&self, key: &str) -> String {
        self.told(&["get", "--print-value-only", key]).expect("etcd tells what is there")
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

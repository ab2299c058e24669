//! An etcd of the test's own.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair};

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

/// TLS, and who is let in.
#[derive(Debug)]
struct Secure {
    /// The member's own certificate, with its key.
    own: (PathBuf, PathBuf),
    /// By whom it has that.
    authority: PathBuf,
    /// A user without whom nothing can be read or written, once there is one.
    login: Option<String>,
    /// Which clients may come at all.
    clients: Option<Clients>,
}

/// Those with a certificate.
#[derive(Debug)]
struct Clients {
    /// By whom.
    authorities: PathBuf,
    /// Such a certificate, with its key.
    one: (PathBuf, PathBuf),
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

    /// Starts one with TLS, by the certificates of a folder that `farmem node keygen` made, and with a user
    /// and password, as `USER:PASSWORD`, without whom nothing is told.
    ///
    /// # Panics
    /// When it doesn't answer.
    #[must_use]
    pub fn start_secure(folder: &Path, login: &str) -> Self {
        let (scratch, endpoint, peers) = (Scratch::new(), free_address(), free_address());
        let secure = Secure {
            own: (folder.join("node.pem"), folder.join("node.key")),
            authority: folder.join("authority.pem"),
            login: None,
            clients: None,
        };
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
            secure.login = Some(login.to_owned());
        }
        etcd
    }

    /// Starts one with TLS that lets nobody in but clients with a certificate by the authority of a folder
    /// that `farmem node keygen` made.
    ///
    /// # Panics
    /// When it doesn't answer.
    #[must_use]
    pub fn start_for_clients(folder: &Path) -> Self {
        let (scratch, endpoint, peers) = (Scratch::new(), free_address(), free_address());
        let own = (scratch.file("etcd.pem"), scratch.file("etcd.key"));
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("an address can be named");
        // Its gateway comes to the member itself as a client, with the same certificate.
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.self_signed(&key).expect("a certificate can be made").pem();
        fs::write(&own.0, &certificate).expect("the test's own folder");
        fs::write(&own.1, key.serialize_pem()).expect("the test's own folder");
        let authorities = scratch.file("authorities.pem");
        let of_clients = fs::read_to_string(folder.join("authority.pem")).expect("the test's own folder");
        fs::write(&authorities, certificate + &of_clients).expect("the test's own folder");
        let secure = Secure {
            authority: own.0.clone(),
            own,
            login: None,
            clients: Some(Clients {
                authorities,
                one: (folder.join("client.pem"), folder.join("client.key")),
            }),
        };
        let mut etcd = Self { scratch, endpoint, peers, secure: Some(secure), process: None };
        etcd.start_again();
        etcd
    }

    /// The certificates of those by whom it has its own.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn authority(&self) -> &Path {
        &self.secure.as_ref().expect("an etcd with TLS").authority
    }

    /// Starts it again where it was, with what it knew.
    ///
    /// # Panics
    /// When it doesn't answer.
    pub fn start_again(&mut self) {
        let scheme = if self.secure.is_some() { "https" } else { "http" };
        let (client, peer) = (format!("{scheme}://{}", self.endpoint), format!("http://{}", self.peers));
        let mut command = Command::new("etcd");
        if let Some(Secure { own: (certificate, key), clients, .. }) = &self.secure {
            command.arg("--cert-file").arg(certificate).arg("--key-file").arg(key);
            if let Some(Clients { authorities, .. }) = clients {
                command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(authorities);
            }
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
            Some(Secure { authority, login, clients, .. }) => {
                command.args(["--endpoints", &format!("https://{}", self.endpoint)]);
                command.arg("--cacert").arg(authority);
                if let Some(Clients { one: (certificate, key), .. }) = clients {
                    command.arg("--cert").arg(certificate).arg("--key").arg(key);
                }
                command.args(login.iter().flat_map(|login| ["--user", login]))
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

    /// The number of its process.
    ///
    /// # Panics
    /// When it has been killed.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process.as_ref().expect("an etcd that was not killed").id()
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

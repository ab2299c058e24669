//! `farmem node` as a process: what it says, who it lets in, and that it may be killed at any step of any
//! exchange.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use farmem_transport::{
    Answer, CertificateFiles, Chunk, ClientIdentity, Completion, Destination, Failure, Frame, Identity,
    LinkError, Order, Refusal, Request, Security, SharedKey, Ticket, Transport, connect,
};
use tempfile::TempDir;

use super::{FARMEM, farmem, text};

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(30);
const CLIENT: ClientIdentity = ClientIdentity { space: 0x1234_5678, lane: 0 };

struct Node {
    process: Child,
    /// Kept open, so that the node can go on to say things.
    said: BufReader<ChildStderr>,
    address: Destination,
}

impl Node {
    fn start(options: &[&str], fault: &str) -> Self {
        Self::listen(options, fault, "127.0.0.1:0")
    }

    fn listen(options: &[&str], fault: &str, at: &str) -> Self {
        Self::begin(Command::new(FARMEM), options, fault, at)
    }

    /// One that may have so many descriptors.
    fn limited(descriptors: u32) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {descriptors} && exec \"$0\" \"$@\""), FARMEM]);
        Self::begin(command, &[], "", "127.0.0.1:0")
    }

    fn begin(mut command: Command, options: &[&str], fault: &str, at: &str) -> Self {
        let mut process = command
            .args(["node", "--memory", "16M", "--drain", "0", "--listen", at])
            .args(options)
            .env("FARMEM_NODE_FAULT", fault)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("farmem can be started");
        let mut said = BufReader::new(process.stderr.take().expect("it is piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("it says where it listens");
        let address = line.trim().rsplit(' ').next().and_then(|address| address.parse().ok());
        Self { process, said, address: address.unwrap_or_else(|| panic!("it says: {line}")) }
    }

    fn connect(&self, security: &Security) -> Result<Box<dyn Transport>, LinkError> {
        connect(&self.address, CLIENT, security, PATIENCE)
    }

    fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().expect("own child") {
                return status;
            }
            assert!(Instant::now() < end, "the node doesn't end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Asks for one thing, and waits until it comes or the link ends.
fn ask(link: &mut dyn Transport, ticket: u64, request: Request) -> Result<Completion, LinkError> {
    let deadline = Instant::now() + PATIENCE;
    link.submit(Ticket(ticket), request, deadline).expect("one request at a time fits");
    let mut done = Vec::new();
    while done.is_empty() {
        link.complete(&mut done, PATIENCE)?;
    }
    Ok(done.remove(0))
}

/// Every kind of exchange, one after the other. The memory is empty before the chunk is given back.
fn converse(link: &mut dyn Transport) -> Result<(), LinkError> {
    let Ok(Answer::Granted(frames)) = ask(link, 1, Request::Grant { order: Order::SLAB, count: 2 })?.result
    else {
        panic!("an empty node grants")
    };
    let at = frames[0].offset();
    assert_eq!(ask(link, 2, Request::Write { at, data: vec![7; 256 << 10] })?.result, Ok(Answer::Written));
    let read = ask(link, 3, Request::Read { at, length_bytes: 256 << 10, buffer: Vec::new() })?;
    assert!(matches!(read.request, Request::Read { buffer, .. } if buffer == [7; 256 << 10]));
    let chunks = vec![Chunk::new(frames[0], Order::SLAB).expect("as granted")];
    assert_eq!(ask(link, 4, Request::Release { chunks })?.result, Ok(Answer::Released));
    assert!(matches!(ask(link, 5, Request::Statistics)?.result, Ok(Answer::Statistics(_))));
    assert_eq!(ask(link, 6, Request::Renew)?.result, Ok(Answer::Renewed));
    assert_eq!(ask(link, 7, Request::Leave)?.result, Ok(Answer::Left));
    Ok(())
}

#[test]
fn connections_of_strangers_make_room_for_a_client_where_descriptors_run_out() {
    let mut node = Node::limited(40);
    let mut first = node.connect(&Security::Plain).unwrap();
    let Destination::Tcp { host, port } = &node.address else { panic!("{}", node.address) };
    let _strangers: Vec<TcpStream> =
        (0..64).map(|_| TcpStream::connect((host.as_str(), *port)).unwrap()).collect();
    let second = ClientIdentity { lane: 1, ..CLIENT };
    let mut second = connect(&node.address, second, &Security::Plain, PATIENCE).unwrap();
    for link in [&mut first, &mut second] {
        assert_eq!(ask(&mut **link, 1, Request::Renew).unwrap().result, Ok(Answer::Renewed));
    }
    // They went at once, and not after the time in which they might have introduced themselves.
    let mut lines = (&mut node.said).lines().map(|line| line.unwrap());
    let closed = lines.find(|line| line.contains("was closed")).unwrap();
    assert!(closed.contains("there are too many connections"), "{closed}");
}

#[test]
fn a_node_serves_and_ends_when_it_is_told_to() {
    let mut node = Node::start(&[], "");
    let mut link = node.connect(&Security::Plain).unwrap();
    converse(&mut *link).unwrap();
    let process = rustix::process::Pid::from_child(&node.process);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    assert!(node.wait().success());
}

#[test]
fn a_node_may_be_killed_at_any_step_and_nobody_takes_the_next_one_for_it() {
    // By step: how often it is passed in a conversation, at least.
    let steps = [
        ("accepted", 1),
        ("introduced", 1),
        ("half-answered", 8),
        ("before-change", 4),
        ("changed", 4),
        ("answered", 7),
        ("before-emptying", 1),
        ("emptied", 1),
    ];
    for (step, times) in steps {
        for time in 1..=times {
            let fault = format!("{step}:{time}");
            let mut node = Node::start(&[], &fault);
            let before = node.connect(&Security::Plain).map(|mut link| {
                let error = converse(&mut *link).expect_err(&fault);
                assert!(matches!(error, LinkError::Closed | LinkError::Kernel(_)), "{fault}: {error}");
                assert!(link.take_unanswered().len() <= 1, "{fault}");
                link.node().incarnation
            });
            assert!(!node.wait().success(), "{fault}");

            let node = Node::listen(&[], "", &node.address.to_string());
            let mut link = node.connect(&Security::Plain).unwrap();
            assert!(before.is_err() || before.unwrap() != link.node().incarnation, "{fault}");
            let read = Request::Read { at: Frame::new(0).offset(), length_bytes: 1, buffer: Vec::new() };
            let lost = ask(&mut *link, 1, read).unwrap().result;
            assert_eq!(lost, Err(Failure::Refused(Refusal::NotGranted)), "{fault}");
        }
    }
}

#[test]
fn a_shared_key_lets_in_those_who_have_it() {
    let folder = TempDir::new().unwrap();
    let key = folder.path().join("node.key");
    let key = key.to_str().unwrap();
    assert!(farmem(["node", "keygen", key]).status.success());
    let node = Node::start(&["--key", key], "");
    let security = Security::Tls(Identity::with_key(&SharedKey::load(Path::new(key)).unwrap()).unwrap());
    converse(&mut *node.connect(&security).unwrap()).unwrap();

    let address = node.address.to_string();
    let asked = farmem(["node", "stat", &address, "--key", key, "--json"]);
    let figures: serde_json::Value = serde_json::from_slice(&asked.stdout).expect("JSON");
    assert_eq!((&figures["memory_bytes"], &figures["clients"]), (&(16 << 20).into(), &0.into()));
    let stranger = farmem(["node", "stat", &address]);
    assert_eq!(stranger.status.code(), Some(1), "{}", text(&stranger.stderr));
    let again = farmem(["node", "keygen", key]);
    assert_eq!(again.status.code(), Some(2), "a key is not overwritten");
}

#[test]
fn certificates_let_in_those_of_the_same_authority() {
    let folder = TempDir::new().unwrap();
    let make = |name: &str| {
        let folder = folder.path().join(name);
        let made =
            farmem(["node", "keygen", "--certificates", folder.to_str().unwrap(), "127.0.0.1", "memory-1"]);
        assert!(made.status.success(), "{}", text(&made.stderr));
        let file = move |name: &str| folder.join(name);
        move |role: &str| CertificateFiles {
            certificate: file(&format!("{role}.pem")),
            key: file(&format!("{role}.key")),
            authority: file("authority.pem"),
        }
    };
    let (ours, theirs) = (make("ours"), make("theirs"));
    let files = ours("node");
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let words = [path(&files.certificate), path(&files.key), path(&files.authority)];
    let node = Node::start(
        &["--certificate", &words[0], "--certificate-key", &words[1], "--authority", &words[2]],
        "",
    );
    let with = |files: CertificateFiles| Security::Tls(Identity::with_certificates(&files).unwrap());

    converse(&mut *node.connect(&with(ours("client"))).unwrap()).unwrap();

    for stranger in [theirs("client"), ours("node")] {
        // Whether a client hears why depends on which comes first, the alert or the end of the connection.
        let refused = node.connect(&with(stranger)).map(|_| ());
        assert!(matches!(refused, Err(LinkError::Untrusted(_) | LinkError::Closed)), "{refused:?}");
    }
    converse(&mut *node.connect(&with(ours("client"))).unwrap()).unwrap();
}

#[test]
fn a_node_is_not_started_on_terms_that_nobody_wants() {
    let folder = TempDir::new().unwrap();
    let open = folder.path().join("open.key");
    SharedKey::generate().unwrap().save(&open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o644)).unwrap();
    let open = open.to_str().unwrap();
    for (words, fragment) in [
        ("node", "--memory <SIZE>"),
        ("node --memory 1M", "too little to lend"),
        ("node --memory 9999T", "more than the"),
        ("node --memory 16M --listen nowhere", "neither HOST:PORT nor unix:PATH nor shm:PATH"),
        ("node --memory 16M --listen 0.0.0.0:0", "give --key"),
        ("node --memory 16M --listen 192.0.2.1:7431 --plain", "cannot listen at 192.0.2.1:7431"),
        ("node --memory 16M --listen unix:/no/such/folder/socket", "cannot listen at unix:"),
        ("node --memory 16M --key /no/such/key", "cannot use /no/such/key"),
        (&format!("node --memory 16M --key {open}"), "can be read by other users"),
        ("node --memory 16M --key /x --plain", "cannot be used with"),
        ("node --memory 16M --certificate /x", "--authority"),
        (
            "node --memory 16M --certificate /no/such/pem --certificate-key /x --authority /y",
            "cannot use /no/such/pem",
        ),
        ("node keygen", "<FILE>"),
        ("node keygen --certificates /nowhere", "name the hosts"),
        ("node stat somewhere:1", "give --key"),
    ] {
        let output = farmem(words.split_whitespace());
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {complaint}");
        assert!(complaint.lines().count() == 1 && complaint.contains(fragment), "{words}: {complaint}");
    }
}

#[test]
fn a_socket_is_closed_to_others_and_made_anew_after_a_kill() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("node.socket");
    let at = format!("unix:{}", path.display());
    let mut first = Node::listen(&[], "", &at);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    first.process.kill().unwrap();
    first.wait();

    let second = Node::listen(&[], "", &at);
    converse(&mut *second.connect(&Security::Plain).unwrap()).unwrap();
    let third = farmem(["node", "--memory", "16M", "--listen", &at]);
    assert!(text(&third.stderr).contains("another process listens"), "{}", text(&third.stderr));
}

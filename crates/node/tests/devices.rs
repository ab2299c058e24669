//! What may happen where pages go by RDMA: nodes that die at any step, peers that say anything, links that
//! end at any time. Each for a bounded time; `scripts/test-rdma` makes a machine that has a device.
#![cfg(feature = "rdma")]

mod support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farmem_sys::shared::SharedMemory;
use farmem_transport::trouble::Troubled;
use farmem_transport::wire::{
    HEADER_BYTES, Header, Heard, INTRODUCTION_BYTES, decode_hello, decode_request, decode_welcome,
    encode_answer, encode_hello, encode_request, encode_welcome,
};
use farmem_transport::{
    Answer, Chunk, ClientIdentity, Completion, Connector, Destination, Endpoint, FRAME_BYTES, Failure, Frame,
    Incarnation, LinkError, Mailbox, NodeDescription, Order, Refusal, RegionOffset, RemoteKey, Request,
    Security, Ticket, Traffic, Transport, Travel, rdma,
};
use farmem_verbs::{Device, Domain, Queue, Registration, Remote};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use support::*;

/// For how long each test of those that try many things goes on.
const COURSE: Duration = Duration::from_secs(10);

fn connector() -> Connector {
    Connector::new(Security::Plain, Travel::Rdma, None).unwrap()
}

fn reach(node: &Destination, client: ClientIdentity) -> Result<Box<dyn Transport>, LinkError> {
    connector().connect(node, client, Traffic::Demand, PATIENCE)
}

/// A node as a process of its own.
struct Process {
    process: Child,
    _said: BufReader<ChildStderr>,
    address: Destination,
}

impl Process {
    fn start(fault: &str, port: u16) -> Self {
        let program = std::env::var("FARMEM_TEST_PROGRAM").expect("where farmem is");
        let Destination::Tcp { host, .. } = at_device(&tempfile::tempdir().unwrap()) else { unreachable!() };
        let mut process = Command::new(program)
            .args([
                "node",
                "--memory",
                "16M",
                "--drain",
                "0",
                "--plain",
                "--listen",
                &format!("{host}:{port}"),
            ])
            .env("FARMEM_NODE_FAULT", fault)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().and_then(|address| address.parse().ok());
        Self { process, _said: said, address: address.unwrap_or_else(|| panic!("it says: {line}")) }
    }

    fn wait(&mut self) -> ExitStatus {
        let end = soon();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "the node does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn port(&self) -> u16 {
        let Destination::Tcp { port, .. } = self.address else { unreachable!() };
        port
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn ask_once(link: &mut dyn Transport, ticket: u64, request: Request) -> Result<Completion, LinkError> {
    link.submit(Ticket(ticket), request, soon()).unwrap();
    let mut done = Vec::new();
    while done.is_empty() {
        link.complete(&mut done, PATIENCE)?;
    }
    Ok(done.remove(0))
}

/// Every kind of exchange, one after the other.
fn converse(link: &mut dyn Transport) -> Result<(), LinkError> {
    let Ok(Answer::Granted(frames)) =
        ask_once(link, 1, Request::Grant { order: Order::SLAB, count: 2 })?.result
    else {
        panic!("an empty node grants")
    };
    let at = frames[0].offset();
    let length_bytes = Order::SLAB.bytes() as u32;
    let write = Request::Write { at, data: vec![7; Order::SLAB.bytes()] };
    assert_eq!(ask_once(link, 2, write)?.result, Ok(Answer::Written));
    let read = ask_once(link, 3, Request::Read { at, length_bytes, buffer: Vec::new() })?;
    assert!(matches!(read.request, Request::Read { buffer, .. } if buffer == vec![7; Order::SLAB.bytes()]));
    let chunks = vec![Chunk::new(frames[0], Order::SLAB).unwrap()];
    assert_eq!(ask_once(link, 4, Request::Release { chunks })?.result, Ok(Answer::Released));
    assert!(matches!(ask_once(link, 5, Request::Statistics)?.result, Ok(Answer::Statistics(_))));
    assert_eq!(ask_once(link, 6, Request::Renew)?.result, Ok(Answer::Renewed));
    assert_eq!(ask_once(link, 7, Request::Leave)?.result, Ok(Answer::Left));
    Ok(())
}

#[test]
#[ignore = "needs an RDMA device"]
fn a_node_may_be_killed_at_any_step_and_nobody_takes_the_next_one_for_it() {
    // By step: how often it is passed in a conversation, at least. Reads and writes pass none.
    let steps = [
        ("accepted", 1),
        ("introduced", 1),
        ("attached", 1),
        ("registered", 1),
        ("revoked", 1),
        ("half-answered", 8),
        ("before-change", 3),
        ("changed", 3),
        ("answered", 7),
        ("before-emptying", 1),
        ("emptied", 1),
    ];
    let mut deaths = 0;
    for (step, time) in steps.iter().flat_map(|(step, times)| (1..=*times).map(move |time| (*step, time))) {
        let fault = format!("{step}:{time}");
        let mut node = Process::start(&fault, 0);
        let before = reach(&node.address, client(1)).map(|mut link| {
            let error = converse(&mut *link).expect_err(&fault);
            let is_end = matches!(error, LinkError::Closed | LinkError::Kernel(_) | LinkError::Rdma(_));
            assert!(is_end, "{fault}: {error}");
            assert!(link.take_unanswered().len() <= 1, "{fault}");
            link.node().incarnation
        });
        assert!(!node.wait().success(), "{fault}: {before:?}");

        deaths += 1;
        if time > 1 {
            continue;
        }
        let next = Process::start("", node.port());
        let mut link = reach(&next.address, client(1)).unwrap();
        assert!(before.is_err() || before.unwrap() != link.node().incarnation, "{fault}");
        let read = Request::Read { at: Frame::new(0).offset(), length_bytes: 1, buffer: Vec::new() };
        let lost = ask_once(&mut *link, 1, read).unwrap().result;
        assert_eq!(lost, Err(Failure::Refused(Refusal::NotGranted)), "{fault}");
    }
    println!("\na node was killed at {deaths} steps of a conversation by RDMA");
}

#[test]
#[ignore = "needs an RDMA device"]
fn a_node_that_is_killed_while_devices_transfer_leaves_nothing_unheard_of() {
    for nth in 0..4_u64 {
        let mut node = Process::start("", 0);
        let mut link = reach(&node.address, client(1)).unwrap();
        let chunk = slab(&mut *link, 1);
        write(&mut *link, 2, chunk.first().offset(), &content(1, chunk.order().bytes())).unwrap();
        let at = |page: u64| chunk.first().offset().checked_add(page % 64 * FRAME_BYTES as u64).unwrap();
        let mut submitted = 0;
        for page in 0..200 {
            let request = match page % 3 {
                0 => Request::Write { at: at(page), data: content(page, FRAME_BYTES) },
                _ => Request::Read { at: at(page), length_bytes: FRAME_BYTES as u32, buffer: Vec::new() },
            };
            submitted += u64::from(link.submit(Ticket(3 + page), request, soon()).is_ok());
        }
        let mut done = Vec::new();
        for _ in 0..nth {
            link.complete(&mut done, Duration::from_millis(1)).unwrap();
        }
        node.process.kill().unwrap();
        node.process.wait().unwrap();

        let end = soon();
        while link.complete(&mut done, Duration::from_millis(100)).is_ok() && link.pending() > 0 {
            assert!(Instant::now() < end, "nobody says that the node is gone");
        }
        assert!(done.iter().all(|done| done.result.is_ok()));
        assert_eq!(done.len() + link.take_unanswered().len(), submitted as usize);
    }
}

/// A well-behaved client gets what it wants.
fn assert_serves(node: &Destination, space: u128) {
    let mut link = reach(node, client(space)).unwrap();
    let at = slab(&mut *link, 1).first().offset();
    write(&mut *link, 2, at, b"still there").unwrap();
    assert_eq!(read(&mut *link, 3, at, 11).unwrap(), b"still there");
    say_goodbye(&mut *link, 4);
}

/// A well-formed end of a connection: this machine's own address as a rule, for finding out that there is
/// nobody at another one takes the kernel seconds.
fn any_endpoint(dice: &mut SmallRng, gid: [u8; 16]) -> Endpoint {
    Endpoint {
        gid: if dice.random_ratio(1, 200) { dice.random() } else { gid },
        lid: dice.random(),
        number: dice.random_range(0..1 << 24),
        sequence: dice.random_range(0..1 << 24),
        mtu: dice.random_range(1..=5),
        reads: dice.random_range(1..=255),
    }
}

fn any_request(dice: &mut SmallRng, gid: [u8; 16]) -> Request {
    let at = RegionOffset::new(dice.random_range(0..1200 * FRAME_BYTES as u64));
    let length_bytes = dice.random_range(1..=1 << 20);
    match dice.random_range(0..10) {
        0..3 => Request::Attach { endpoint: any_endpoint(dice, gid) },
        3..6 => Request::Keys { at, length_bytes },
        6 => Request::Grant {
            order: Order::new(dice.random_range(0..=6)).unwrap(),
            count: dice.random_range(1..=3),
        },
        7 => {
            let first = Frame::new(dice.random_range(0..1024));
            Request::Release { chunks: vec![Chunk::new(first, Order::new(0).unwrap()).unwrap()] }
        }
        8 => Request::Write { at, data: content(1, dice.random_range(1..5000)) },
        _ => Request::Statistics,
    }
}

fn own_gid() -> [u8; 16] {
    let device = std::env::var("FARMEM_TEST_RDMA").unwrap().parse().unwrap();
    Device::open(None, Some(device)).unwrap().place().gid
}

#[test]
#[ignore = "needs an RDMA device"]
fn whatever_clients_say_of_devices_the_node_goes_on() {
    let gid = own_gid();
    let node = TestNode::start(&Wanted { listen: at_device, ..Wanted::default() });
    let Destination::Tcp { host, port } = &node.address else { unreachable!() };
    let mut dice = SmallRng::seed_from_u64(8);
    let (end, mut clients, mut messages) = (Instant::now() + COURSE, 0, 0);
    while Instant::now() < end {
        clients += 1;
        let mut socket = TcpStream::connect((host.as_str(), *port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let lane = dice.random_range(0..4);
        socket.write_all(&encode_hello(ClientIdentity { space: dice.random_range(1..6), lane })).unwrap();
        let mut welcome = [0; INTRODUCTION_BYTES];
        socket.read_exact(&mut welcome).unwrap();
        decode_welcome(&welcome).unwrap().unwrap();
        for ticket in 1..dice.random_range(2..12) {
            messages += 1;
            let mut message = Vec::new();
            encode_request(Ticket(ticket), &any_request(&mut dice, gid), &mut message);
            // Now and then it is no message.
            if dice.random_ratio(1, 20) {
                let bit = dice.random_range(0..8 * message.len());
                message[bit / 8] ^= 1 << (bit % 8);
            }
            // The node may have ended the connection.
            if socket.write_all(&message).is_err() {
                break;
            }
        }
        if dice.random() {
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let _ = socket.read_to_end(&mut Vec::new());
        }
        if clients % 32 == 0 {
            (1..6).for_each(|space| leave(&node.address, space));
            assert_serves(&node.address, 99);
        }
    }
    (1..6).for_each(|space| leave(&node.address, space));
    assert_serves(&node.address, 99);
    println!("\nthe node was sent {messages} messages by {clients} clients, and serves");
}

fn leave(node: &Destination, space: u128) {
    say_goodbye(&mut *reach(node, ClientIdentity { space, lane: 9 }).unwrap(), 1);
}

/// The node may close the connection as soon as it has answered.
fn say_goodbye(link: &mut dyn Transport, ticket: u64) {
    link.submit(Ticket(ticket), Request::Leave, soon()).unwrap();
    let mut done = Vec::new();
    while done.is_empty() && link.complete(&mut done, PATIENCE).is_ok() {}
    assert_eq!(done.pop().map(|done| done.result), Some(Ok(Answer::Left)));
}

/// A node that has a device and the right words, and says nonsense from some point on.
struct Liar {
    listener: TcpListener,
    device: Arc<Device>,
}

/// What a client's queue is connected with, for as long as that lasts.
struct Attached {
    _queue: Queue,
    _mailbox: Registration,
}

impl Liar {
    fn start() -> Self {
        let host = std::env::var("FARMEM_TEST_RDMA").unwrap();
        let listener = TcpListener::bind((host.as_str(), 0)).unwrap();
        Self { device: Device::open(None, Some(host.parse().unwrap())).unwrap(), listener }
    }

    fn address(&self) -> Destination {
        let address = self.listener.local_addr().unwrap();
        Destination::Tcp { host: address.ip().to_string(), port: address.port() }
    }

    fn attach(&self, theirs: &Endpoint) -> (Attached, Answer) {
        let domain = Domain::new(&self.device).unwrap();
        let memory = Arc::new(SharedMemory::create(c"mailbox", 4096).unwrap());
        let mailbox = Registration::new(&domain, &memory, 0..4096, Remote::Peer).unwrap();
        let mut queue = Queue::new(&domain, None, 1).unwrap();
        queue.connect(&rdma::address(theirs)).unwrap();
        let endpoint = rdma::endpoint(&queue.address());
        let place = Mailbox { address: mailbox.remote_address(), key: mailbox.remote_key() };
        (Attached { _queue: queue, _mailbox: mailbox }, Answer::Attached { endpoint, mailbox: place })
    }

    /// One connection, until the client ends it.
    fn serve(&self, dice: &mut SmallRng) {
        let (mut socket, _) = self.listener.accept().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut hello = [0; INTRODUCTION_BYTES];
        socket.read_exact(&mut hello).unwrap();
        decode_hello(&hello).unwrap();
        let node = NodeDescription {
            incarnation: Incarnation(dice.random()),
            frames: 1024,
            lease: LEASE,
            rack: None,
        };
        socket.write_all(&encode_welcome(Ok(node))).unwrap();
        let mut attached = None;
        let (is_bare, is_garbled) = (dice.random_ratio(1, 16), dice.random_ratio(1, 4));
        let mut header = [0; HEADER_BYTES];
        while socket.read_exact(&mut header).is_ok() {
            let header = Header::decode(&header).unwrap();
            let mut body = vec![0; header.body_bytes()];
            socket.read_exact(&mut body).unwrap();
            let answer = match decode_request(&header, &body).unwrap() {
                Heard::Attach { endpoint } if !is_bare => {
                    let (queue, answer) = self.attach(&endpoint);
                    attached = Some(queue);
                    Ok(answer)
                }
                // Nobody is there.
                Heard::Attach { endpoint } => Ok(Answer::Attached {
                    endpoint: any_endpoint(dice, endpoint.gid),
                    mailbox: Mailbox { address: dice.random::<u64>() >> 1, key: dice.random() },
                }),
                Heard::Keys { at, length_bytes } => match dice.random_range(0..4) {
                    0 => Err([Refusal::NoRdma, Refusal::NotGranted, Refusal::Full][dice.random_range(0..3)]),
                    _ => Ok(Answer::Keys(any_keys(dice, at, length_bytes as usize))),
                },
                Heard::Grant { .. } => Ok(Answer::Granted(vec![Frame::new(dice.random_range(0..16) * 64)])),
                Heard::Statistics | Heard::Read { .. } => Err(Refusal::NotGranted),
                Heard::Write { .. } => Ok(Answer::Written),
                Heard::Release(_) => Ok(Answer::Released),
                _ => Ok(Answer::Renewed),
            };
            let mut message = Vec::new();
            encode_answer(header.ticket(), &answer, &mut message);
            if is_garbled && dice.random_ratio(1, 6) {
                let bit = dice.random_range(0..8 * message.len());
                message[bit / 8] ^= 1 << (bit % 8);
            }
            if socket.write_all(&message).is_err() {
                break;
            }
        }
        drop(attached);
    }
}

/// Keys that look as they should, mostly.
fn any_keys(dice: &mut SmallRng, at: RegionOffset, length: usize) -> Vec<RemoteKey> {
    let frames = at.frames(length).unwrap();
    let (mut keys, mut next) = (Vec::new(), frames.start);
    while next < frames.end {
        let count = dice.random_range(1..=64);
        let first = if dice.random_ratio(1, 40) { dice.random() } else { next as u32 };
        let address = if dice.random_ratio(1, 40) { u64::MAX } else { dice.random::<u64>() >> 1 };
        keys.push(RemoteKey { first: Frame::new(first), frames: count, address, key: dice.random() });
        next += u64::from(count);
    }
    keys
}

/// Whoever gets bytes from such a node can't tell; but none may come that no device has sent, and each
/// request ends.
#[test]
#[ignore = "needs an RDMA device"]
fn whatever_a_node_says_of_devices_the_client_goes_on() {
    let liar = Liar::start();
    let (address, end) = (liar.address(), Instant::now() + COURSE);
    let serving = std::thread::spawn(move || {
        let mut dice = SmallRng::seed_from_u64(9);
        let mut connections = 0;
        while Instant::now() < end {
            liar.serve(&mut dice);
            connections += 1;
        }
        connections
    });
    let (mut dice, mut ends, mut answers) = (SmallRng::seed_from_u64(10), 0, 0);
    while !serving.is_finished() {
        let Ok(mut link) = reach(&address, client(dice.random())) else {
            ends += 1;
            continue;
        };
        let mut done = Vec::new();
        let mut submitted = 0;
        for ticket in 1..20 {
            let at = RegionOffset::new(dice.random_range(0..1000 * FRAME_BYTES as u64));
            let request = match dice.random_range(0..5) {
                0..2 => Request::Read { at, length_bytes: dice.random_range(1..20_000), buffer: Vec::new() },
                2 => Request::Write { at, data: vec![1; dice.random_range(1..20_000)] },
                3 => Request::Grant { order: Order::SLAB, count: 1 },
                _ => Request::Statistics,
            };
            submitted += usize::from(link.submit(Ticket(ticket), request, soon()).is_ok());
        }
        let limit = soon();
        let result = loop {
            assert!(Instant::now() < limit, "requests do not end");
            match link.complete(&mut done, Duration::from_millis(50)) {
                Ok(()) if link.pending() > 0 => {}
                ended => break ended,
            }
        };
        ends += usize::from(result.is_err());
        answers += done.len();
        assert_eq!(done.len() + link.take_unanswered().len(), submitted);
        let is_read = |done: &&Completion| done.result == Ok(Answer::Read);
        assert_eq!(done.iter().filter(is_read).count(), 0, "no key was good for anything");
    }
    println!(
        "\na client was lied to on {} connections, of which {ends} ended by that; {answers} answers",
        serving.join().unwrap()
    );
}

/// One client, what it has, and what it believes to be there.
struct Model {
    space: u128,
    /// It knows what this client has written, whatever becomes of links.
    connector: Connector,
    link: Troubled,
    ticket: u64,
    chunks: Vec<Chunk>,
    /// Of each page: what it was when all had ended, and what was written since.
    bytes: HashMap<u64, Vec<Vec<u8>>>,
    /// By the ticket of a read: the page, and which of these it is to find. A read that is repeated may find
    /// a later one.
    awaited: HashMap<u64, (u64, usize)>,
    links: u64,
}

impl Model {
    fn new(node: &Destination, space: u128) -> Self {
        let connector = connector();
        let link = connector.connect(node, client(space), Traffic::Demand, PATIENCE).unwrap();
        let link = Troubled::new(link, space as u64);
        Self {
            space,
            connector,
            link,
            ticket: 0,
            chunks: Vec::new(),
            bytes: HashMap::new(),
            awaited: HashMap::new(),
            links: 1,
        }
    }

    fn submit(&mut self, request: Request) -> Ticket {
        self.ticket += 1;
        let mut request = request;
        loop {
            match self.link.submit(Ticket(self.ticket), request, soon()) {
                Ok(()) => return Ticket(self.ticket),
                Err(refused) => request = refused.request,
            }
        }
    }

    /// Until everything has ended that was submitted: what came of the latest.
    fn settle(&mut self, node: &Destination) -> Option<Result<Answer, Failure>> {
        let (mut latest, end) = (None, soon());
        while self.link.pending() > 0 {
            assert!(Instant::now() < end, "requests do not end");
            let mut done = Vec::new();
            let heard = self.link.complete(&mut done, Duration::from_millis(20));
            for Completion { ticket, request, result } in done {
                if let (Request::Read { buffer, .. }, Some((page, from))) =
                    (&request, self.awaited.get(&ticket.0))
                {
                    assert_eq!(result, Ok(Answer::Read));
                    let is_known = self.bytes[page][*from..].contains(buffer);
                    assert!(is_known, "other bytes than were written, ticket {}", ticket.0);
                }
                if ticket.0 == self.ticket {
                    latest = Some(result);
                }
            }
            if heard.is_err() {
                let unanswered = self.link.take_unanswered();
                self.links += 1;
                let client = client(self.space);
                let link = self.connector.connect(node, client, Traffic::Demand, PATIENCE).unwrap();
                self.link = Troubled::new(link, self.links ^ (self.space as u64) << 32);
                for (ticket, mut request) in unanswered {
                    while let Err(refused) = self.link.submit(ticket, request, soon()) {
                        request = refused.request;
                    }
                }
            }
        }
        self.awaited.clear();
        self.bytes.values_mut().for_each(|versions| _ = versions.drain(..versions.len() - 1));
        latest
    }

    fn step(&mut self, node: &Destination, dice: &mut SmallRng) {
        if self.chunks.is_empty() || self.chunks.len() < 3 && dice.random_ratio(1, 3) {
            self.submit(Request::Grant { order: Order::SLAB, count: 1 });
            let Some(Ok(Answer::Granted(frames))) = self.settle(node) else { panic!("there is room") };
            self.chunks.push(Chunk::new(frames[0], Order::SLAB).unwrap());
        }
        for _ in 0..dice.random_range(1..30) {
            let chunk = self.chunks[dice.random_range(0..self.chunks.len())];
            let page = u64::from(chunk.first().get()) + dice.random_range(0..64);
            let at = RegionOffset::new(page * FRAME_BYTES as u64);
            let versions = self.bytes.entry(page).or_insert_with(|| vec![vec![0; FRAME_BYTES]]);
            if dice.random() {
                let data = content(dice.next_u64(), FRAME_BYTES);
                versions.push(data.clone());
                self.submit(Request::Write { at, data });
            } else {
                let latest = versions.len() - 1;
                let request = Request::Read { at, length_bytes: FRAME_BYTES as u32, buffer: Vec::new() };
                let ticket = self.submit(request);
                self.awaited.insert(ticket.0, (page, latest));
            }
        }
        self.settle(node);
        if dice.random_ratio(1, 5) {
            let chunk = self.chunks.swap_remove(dice.random_range(0..self.chunks.len()));
            chunk.frames().for_each(|page| _ = self.bytes.remove(&page));
            self.submit(Request::Release { chunks: vec![chunk] });
            self.settle(node);
        }
    }
}

#[test]
#[ignore = "needs an RDMA device"]
fn links_that_end_at_any_time_lose_and_repeat_nothing() {
    let node = TestNode::start(&Wanted { listen: at_device, ..Wanted::default() });
    let mut clients = [Model::new(&node.address, 1), Model::new(&node.address, 2)];
    let mut dice = SmallRng::seed_from_u64(11);
    let end = Instant::now() + COURSE;
    while Instant::now() < end {
        clients.iter_mut().for_each(|client| client.step(&node.address, &mut dice));
    }
    let [one, other] = clients;
    assert!(one.links + other.links > 4, "links end");
    println!("\n{} requests by {} links that ended", one.ticket + other.ticket, one.links + other.links);
}

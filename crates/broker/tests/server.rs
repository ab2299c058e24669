//! The broker at its socket, with spaces that are played by the test.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use farmem_broker::link_schedule::{Direction, Gate, LINK_SLOTS, LinkSchedule, Pass, Shared};
use farmem_broker::{Options, Server, named_nodes};
use farmem_page::ByteCount;
use farmem_policy::links::Class;
use farmem_sys::Errno;
use farmem_sys::link::{Link, listen_on};
use farmem_wire::host::{
    FromBroker, HOST_PACKET_BYTES, Holding, LEASED_SLAB_BYTES, RefusalReason, Terms, ToBroker, packed_name,
};
use rustix::net::{SocketFlags, accept_with};

const SLABS: u64 = 400;
const PATIENCE: Duration = Duration::from_secs(20);

struct Broker {
    thread: Option<JoinHandle<()>>,
    is_ending: Arc<AtomicBool>,
    folder: tempfile::TempDir,
    nodes: Option<String>,
}

impl Broker {
    fn start() -> Self {
        Self::start_naming(None)
    }

    fn start_naming(nodes: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let nodes = nodes.map(str::to_owned);
        let mut broker = Self { thread: None, is_ending: Arc::default(), folder, nodes };
        broker.restart(false);
        broker
    }

    fn options(&self, is_successor: bool) -> Options {
        Options {
            socket: self.folder.path().join("run/host.socket"),
            pool: ByteCount::new(SLABS * LEASED_SLAB_BYTES),
            local: None,
            is_successor,
            bandwidth_in: None,
            bandwidth_out: None,
            nodes: self.nodes.clone(),
        }
    }

    fn restart(&mut self, is_successor: bool) {
        self.end();
        let mut server = Server::bind(&self.options(is_successor)).expect("a broker");
        let is_ending = Arc::new(AtomicBool::new(false));
        self.is_ending = Arc::clone(&is_ending);
        self.thread = Some(std::thread::spawn(move || {
            while !is_ending.load(Ordering::Acquire) {
                server.turn(None::<OwnedFd>).expect("a turn");
            }
        }));
    }

    fn end(&mut self) {
        self.is_ending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the broker has not panicked");
        }
    }

    fn connect(&self) -> Link {
        connect(&self.options(false).socket)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.end();
    }
}

fn connect(socket: &Path) -> Link {
    Link::connect_to(&CString::new(socket.as_os_str().as_bytes()).unwrap()).expect("a broker that listens")
}

/// The next packet; `None` when the broker has closed the connection.
fn receive(link: &Link) -> Option<FromBroker> {
    let began = Instant::now();
    let mut packet = [0; HOST_PACKET_BYTES];
    loop {
        match link.receive(&mut packet) {
            Ok((0, _)) | Err(Errno::CONNRESET) => return None,
            Ok((length, _)) => return Some(FromBroker::decode(&packet[..length]).expect("a message")),
            Err(Errno::AGAIN) => assert!(began.elapsed() < PATIENCE, "the broker says nothing"),
            Err(error) => panic!("{error}"),
        }
        sleep(Duration::from_millis(1));
    }
}

fn lease(link: &Link) -> (u64, u64) {
    match receive(link) {
        Some(FromBroker::Lease { serial, pool_slabs, .. }) => (serial, pool_slabs),
        other => panic!("{other:?} is no lease"),
    }
}

/// The serial of the lease of so many slabs, which may come in steps.
fn lease_of(link: &Link, slabs: u64) -> u64 {
    loop {
        let (serial, given) = lease(link);
        if given == slabs {
            return serial;
        }
    }
}

fn terms(guaranteed: u64) -> Terms {
    Terms { weight: 1, pool_guaranteed: guaranteed, pool_most: SLABS, local_own: 1000, borrows: true }
}

fn attach_with(link: &Link, guaranteed: u64, held: u64) {
    let message = ToBroker::Attach {
        terms: terms(guaranteed),
        pool_held: held,
        pool_movable: SLABS,
        local_held: 0,
        name: packed_name("test"),
    };
    link.send(&message.encode(), &[]).expect("a broker that listens");
    assert_eq!(receive(link), Some(FromBroker::Accepted));
}

fn attach(broker: &Broker, guaranteed: u64) -> Link {
    let link = broker.connect();
    attach_with(&link, guaranteed, 0);
    link
}

fn report(link: &Link, serial: u64, held: u64, wanted: u64) {
    let holding = Holding {
        pool_held: held,
        pool_used: held,
        pool_needed: wanted.max(held),
        pool_wanted: wanted.max(held),
        pool_movable: SLABS,
        local_held: 0,
        local_needed: 500,
        local_wanted: 500,
    };
    let message = ToBroker::Report { serial, holding, moved_pages: serial + wanted };
    link.send(&message.encode(), &[]).expect("a broker that listens");
}

#[test]
fn slabs_go_from_one_space_to_another() {
    let broker = Broker::start();
    let one = attach(&broker, 0);
    report(&one, 0, 0, SLABS);
    let serial = lease_of(&one, SLABS);
    report(&one, serial, SLABS, SLABS);
    let two = attach(&broker, 0);
    report(&two, 0, 0, SLABS);
    let serial = lease_of(&one, SLABS / 2);
    report(&one, serial, SLABS / 2, SLABS);
    lease_of(&two, SLABS / 2);
}

#[test]
fn who_asks_which_nodes_there_are_is_told_and_can_change_nothing_of_it() {
    let broker = Broker::start_naming(Some("all of them"));
    let socket = broker.options(false).socket;
    for _ in 0..2 {
        assert_eq!(named_nodes(&socket).unwrap().as_deref(), Some("all of them"));
        let link = broker.connect();
        link.send(&ToBroker::Ask.encode(), &[]).unwrap();
        let mut packet = [0; HOST_PACKET_BYTES];
        let file = loop {
            match link.receive(&mut packet) {
                Ok((_, [file, ..])) => break File::from(file.expect("a file comes along")),
                Err(Errno::AGAIN) => sleep(Duration::from_millis(1)),
                Err(error) => panic!("{error}"),
            }
        };
        assert!(file.write_at(b"none", 0).is_err());
        assert!(file.set_len(1).is_err());
    }
    let silent = Broker::start();
    assert_eq!(named_nodes(&silent.options(false).socket).unwrap(), None);
    let nowhere = named_nodes(Path::new("/nowhere/host.socket")).unwrap_err().to_string();
    assert!(nowhere.contains("no broker listens on /nowhere/host.socket"), "{nowhere}");
    let mut options = broker.options(false);
    options.socket = broker.folder.path().join("other.socket");
    options.nodes = Some("x".repeat(64 << 10 | 1));
    let refused = Server::bind(&options).err().expect("a refusal").to_string();
    assert!(refused.contains("too many memory nodes"), "{refused}");
}

#[test]
fn a_broker_that_tells_of_nodes_in_a_way_that_it_may_not_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("host.socket");
    let listener = listen_on(&CString::new(socket.as_os_str().as_bytes()).unwrap()).unwrap();
    let (no_file, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let nodes = FromBroker::Nodes { length_bytes: 5 }.encode();
    for (packet, file) in [
        (&nodes[..], None),
        (&nodes[..], Some(no_file.as_fd())),
        (&nodes[1..], None),
        (&FromBroker::Accepted.encode()[..], None),
    ] {
        let asking = {
            let socket = socket.clone();
            std::thread::spawn(move || named_nodes(&socket))
        };
        let link = loop {
            match accept_with(&listener, SocketFlags::CLOEXEC) {
                Ok(link) => break Link::from(link),
                Err(Errno::AGAIN) => sleep(Duration::from_millis(1)),
                Err(error) => panic!("{error}"),
            }
        };
        let files: Vec<_> = file.into_iter().collect();
        link.send(packet, &files).unwrap();
        let said = asking.join().unwrap().unwrap_err().to_string();
        assert!(said.contains("broker doesn't answer"), "{said}");
    }
}

#[test]
fn what_a_killed_space_held_goes_to_the_others() {
    let broker = Broker::start();
    let one = attach(&broker, 100);
    report(&one, 0, 0, SLABS);
    lease_of(&one, SLABS);
    let two = attach(&broker, 0);
    report(&two, 0, 0, SLABS);
    drop(one);
    lease_of(&two, SLABS);
}

#[test]
fn garbage_is_dropped_and_harms_its_sender_alone() {
    let broker = Broker::start();
    let honest = attach(&broker, 100);
    report(&honest, 0, 0, 200);
    let serial = lease_of(&honest, 200);

    let garbage: [&[u8]; 5] =
        [b"x", &[0; HOST_PACKET_BYTES], &[0xff; HOST_PACKET_BYTES], &[1; HOST_PACKET_BYTES + 9], &[7; 4000]];
    for bytes in garbage {
        let stranger = broker.connect();
        stranger.send(bytes, &[]).expect("a broker that listens");
        assert_eq!(receive(&stranger), None, "{} bytes of garbage", bytes.len());
    }
    // Reports before it is attached, a second attachment, a lease that it never had, more than it may hold.
    let early = broker.connect();
    report(&early, 0, 0, 0);
    assert_eq!(receive(&early), None);
    let twice = attach(&broker, 0);
    twice.send(&ToBroker::Change { terms: terms(0) }.encode(), &[]).unwrap();
    let liars = [(u64::MAX, 0), (0, SLABS + 1)].map(|(serial, held)| {
        let liar = attach(&broker, 0);
        report(&liar, serial, held, held);
        liar
    });
    for liar in &liars {
        while receive(liar).is_some() {}
    }
    let flood = attach(&broker, 0);
    let packet = ToBroker::Change { terms: terms(0) }.encode();
    let began = Instant::now();
    while !matches!(flood.send(&packet, &[]), Err(Errno::PIPE | Errno::CONNRESET)) {
        assert!(began.elapsed() < PATIENCE, "a flood is let in");
    }

    report(&honest, serial, 200, 300);
    lease_of(&honest, 300);
}

#[test]
fn a_promise_that_cannot_be_kept_is_refused() {
    let broker = Broker::start();
    let _one = attach(&broker, 300);
    let two = broker.connect();
    let message = ToBroker::Attach {
        terms: terms(101),
        pool_held: 0,
        pool_movable: 0,
        local_held: 0,
        name: packed_name("two"),
    };
    two.send(&message.encode(), &[]).unwrap();
    assert_eq!(receive(&two), Some(FromBroker::Refused { reason: RefusalReason::Pool, most: 100 }));
    assert_eq!(receive(&two), None);
}

#[test]
fn a_second_broker_is_refused_and_a_killed_ones_socket_is_no_hindrance() {
    let mut broker = Broker::start();
    let refusal = Server::bind(&broker.options(false)).err().expect("there is a broker").to_string();
    assert!(refusal.contains("another broker"), "{refusal}");
    broker.end();
    // Its file stays when it is closed, as that of a killed broker does.
    drop(std::os::unix::net::UnixListener::bind(broker.options(false).socket).unwrap());
    broker.restart(false);
    attach(&broker, 0);
}

#[test]
fn a_new_broker_leases_only_what_spaces_of_the_old_one_don_t_hold() {
    let mut broker = Broker::start();
    broker.restart(true);
    let hasty = attach(&broker, 0);
    report(&hasty, 0, 0, SLABS);
    let old = broker.connect();
    attach_with(&old, 0, SLABS - 10);
    report(&old, 0, SLABS - 10, SLABS - 10);
    assert!(lease(&hasty).1 <= 10);
}

/// The link slot that the broker gives.
fn take_link_slot(link: &Link) -> (usize, LinkSchedule) {
    link.send(&ToBroker::TakeLinkSlot.encode(), &[]).expect("a broker that listens");
    let began = Instant::now();
    let mut packet = [0; HOST_PACKET_BYTES];
    loop {
        match link.receive(&mut packet) {
            Ok((length, mut descriptors)) => match FromBroker::decode(&packet[..length]) {
                Some(FromBroker::LinkSlot { number }) => {
                    let memory =
                        Shared::attach(descriptors[0].take().expect("a memory file")).expect("a schedule");
                    return (number as usize, LinkSchedule::new(memory));
                }
                Some(_) => {}
                None => panic!("no message"),
            },
            Err(Errno::AGAIN) => assert!(began.elapsed() < PATIENCE, "no link slot is given"),
            Err(error) => panic!("{error}"),
        }
        sleep(Duration::from_millis(1));
    }
}

fn gate((link_slot, schedule): (usize, LinkSchedule)) -> Arc<Gate> {
    let lines = schedule.link(7, Direction::In).expect("room for a link");
    Gate::new(Arc::new(schedule), lines, link_slot, Arc::default(), 1)
}

/// As much as may be under way.
fn take_all(gate: &Arc<Gate>) -> Vec<Pass> {
    std::iter::from_fn(|| gate.turn(Class::Demand, 1 << 16).take().ok()).collect()
}

#[test]
fn what_a_killed_space_had_under_way_is_free_for_the_others() {
    let broker = Broker::start();
    let (one, other) = (attach(&broker, 0), attach(&broker, 0));
    let (gate_of_one, gate_of_other) = (gate(take_link_slot(&one)), gate(take_link_slot(&other)));
    std::mem::forget(take_all(&gate_of_one));
    let mut turn = gate_of_other.turn(Class::Demand, 1 << 16);
    assert!(turn.take().is_err());
    drop(one);
    let began = Instant::now();
    while turn.take().is_err() {
        assert!(began.elapsed() < PATIENCE, "what has gone is under way still");
        sleep(Duration::from_millis(1));
    }
    let (link_slot, _) = take_link_slot(&attach(&broker, 0));
    assert_eq!(link_slot, 0, "its link slot is the next one's");
}

#[test]
fn a_second_link_slot_or_one_before_it_has_said_who_it_is_ends_a_space() {
    let broker = Broker::start();
    let early = broker.connect();
    early.send(&ToBroker::TakeLinkSlot.encode(), &[]).expect("a broker that listens");
    assert_eq!(receive(&early), None);
    let greedy = attach(&broker, 0);
    assert!(take_link_slot(&greedy).0 < LINK_SLOTS);
    greedy.send(&ToBroker::TakeLinkSlot.encode(), &[]).expect("a broker that listens");
    while receive(&greedy).is_some() {}
}

#[test]
fn spaces_have_link_slots_of_their_own_in_one_schedule() {
    let broker = Broker::start();
    let links = [attach(&broker, 0), attach(&broker, 0), attach(&broker, 0)];
    let mut link_slots: Vec<(usize, LinkSchedule)> = links.iter().map(take_link_slot).collect();
    link_slots.sort_unstable_by_key(|(link_slot, _)| *link_slot);
    assert!(link_slots.iter().map(|(link_slot, _)| *link_slot).eq(0..3));
    let gates: Vec<Arc<Gate>> = link_slots.into_iter().map(gate).collect();
    let all = take_all(&gates[0]);
    assert!(gates[2].turn(Class::Demand, 1 << 16).take().is_err());
    drop(all);
    assert!(gates[2].turn(Class::Demand, 1 << 16).take().is_ok());
}

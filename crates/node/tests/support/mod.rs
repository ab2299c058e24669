//! A node in a thread of the test, and the little that every test says to it.
#![allow(dead_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farmem_node::{Options, Server, WantedRdma};
use farmem_page::ByteCount;
use farmem_transport::{
    Answer, Chunk, ClientIdentity, Completion, Destination, FRAME_BYTES, Failure, Frame, Identity, Order,
    Refusal, RegionOffset, Request, Security, SharedKey, Ticket, Transport,
};
use tempfile::TempDir;

/// Longer than anything takes that works, also in a guest of an emulator on a machine that has other work.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// So that no test waits for a lease that it doesn't mean to end.
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// A node, until it is dropped.
pub(crate) struct TestNode {
    pub(crate) address: Destination,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    security: Security,
    _folder: TempDir,
}

/// What a test wants of its node.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) frames: u64,
    pub(crate) lease: Duration,
    pub(crate) listen: fn(&TempDir) -> Destination,
    pub(crate) security: Security,
    pub(crate) rack: Option<farmem_transport::Rack>,
    pub(crate) rdma: bool,
}

/// Where a machine with an RDMA device is found, by the address of that.
pub(crate) fn at_device(_: &TempDir) -> Destination {
    let host =
        std::env::var("FARMEM_TEST_RDMA").expect("the address of the network card that the device is at");
    Destination::Tcp { host, port: 0 }
}

pub(crate) fn at_loopback(_: &TempDir) -> Destination {
    Destination::Tcp { host: "127.0.0.1".to_owned(), port: 0 }
}

pub(crate) fn at_socket(folder: &TempDir) -> Destination {
    Destination::Unix(folder.path().join("node.socket"))
}

pub(crate) fn at_memory(folder: &TempDir) -> Destination {
    Destination::Shared(folder.path().join("node.memory"))
}

/// A key that nobody else has.
pub(crate) fn new_key() -> Security {
    Security::Tls(Identity::with_key(&SharedKey::generate().unwrap()).unwrap())
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            frames: 1024,
            lease: LEASE,
            listen: at_loopback,
            security: Security::Plain,
            rack: None,
            rdma: true,
        }
    }
}

impl TestNode {
    pub(crate) fn start(wanted: &Wanted) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            listen: vec![(wanted.listen)(&folder)],
            security: wanted.security.clone(),
            memory: ByteCount::new(wanted.frames * FRAME_BYTES as u64),
            lease: wanted.lease,
            rack: wanted.rack,
            rdma: if wanted.rdma { WantedRdma::Auto } else { WantedRdma::None },
        };
        let mut server = Server::bind(&options, None::<&std::fs::File>).unwrap();
        let address = server.addresses().unwrap().remove(0);
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                server.turn().unwrap();
            }
        });
        Self { address, stop, thread: Some(thread), security: wanted.security.clone(), _folder: folder }
    }

    pub(crate) fn security(&self) -> Security {
        self.security.clone()
    }

    pub(crate) fn connect(&self, client: ClientIdentity) -> Box<dyn Transport> {
        farmem_transport::connect(&self.address, client, &self.security, PATIENCE).unwrap()
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) fn client(space: u128) -> ClientIdentity {
    ClientIdentity { space, lane: 0 }
}

pub(crate) fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// Waits until so many requests are completed.
pub(crate) fn await_all(link: &mut dyn Transport, count: usize) -> Vec<Completion> {
    let (mut done, end) = (Vec::new(), soon());
    while done.len() < count {
        assert!(Instant::now() < end, "{} of {count} came", done.len());
        link.complete(&mut done, Duration::from_millis(100)).unwrap();
    }
    assert_eq!(done.len(), count);
    done
}

/// One request, and what comes of it.
pub(crate) fn ask(link: &mut dyn Transport, ticket: u64, request: Request) -> Completion {
    link.submit(Ticket(ticket), request, soon()).unwrap();
    await_all(link, 1).remove(0)
}

pub(crate) fn grant(
    link: &mut dyn Transport,
    ticket: u64,
    order: Order,
    count: u16,
) -> Result<Vec<Frame>, Failure> {
    match ask(link, ticket, Request::Grant { order, count }).result {
        Ok(Answer::Granted(frames)) => Ok(frames),
        Ok(other) => panic!("{other:?}"),
        Err(failure) => Err(failure),
    }
}

pub(crate) fn slab(link: &mut dyn Transport, ticket: u64) -> Chunk {
    Chunk::new(grant(link, ticket, Order::SLAB, 1).unwrap()[0], Order::SLAB).unwrap()
}

pub(crate) fn write(
    link: &mut dyn Transport,
    ticket: u64,
    at: RegionOffset,
    data: &[u8],
) -> Result<Answer, Failure> {
    ask(link, ticket, Request::Write { at, data: data.to_vec() }).result
}

pub(crate) fn read(
    link: &mut dyn Transport,
    ticket: u64,
    at: RegionOffset,
    length: usize,
) -> Result<Vec<u8>, Failure> {
    let request = Request::Read { at, length_bytes: length as u32, buffer: vec![0xee; 3] };
    let done = ask(link, ticket, request);
    let Request::Read { buffer, .. } = done.request else { panic!("{:?}", done.request) };
    done.result.map(|_| buffer)
}

pub(crate) const NOT_GRANTED: Failure = Failure::Refused(Refusal::NotGranted);

/// Bytes that tell where they belong.
pub(crate) fn content(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 7 ^ seed.wrapping_mul(31)) as u8).collect()
}

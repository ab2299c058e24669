//! What every way to a node promises: the same tests over each of them, the node that is only memory
//! included.

mod support;

use std::time::{Duration, Instant};

use farmem_transport::memory::MemoryNode;
use farmem_transport::{
    Answer, Chunk, ClientIdentity, FRAME_BYTES, Failure, Frame, MOST_BYTES, MOST_REQUESTS,
    MOST_TRANSFER_BYTES, Order, Refusal, Request, SubmitError, Ticket, Transport,
};
use support::*;

/// A way to a node of 1024 frames.
trait Way {
    fn connect(&self, client: ClientIdentity) -> Box<dyn Transport>;
    /// Any of its kind.
    fn start() -> Self;
}

impl Way for MemoryNode {
    fn connect(&self, client: ClientIdentity) -> Box<dyn Transport> {
        Box::new(MemoryNode::connect(self, client))
    }
    fn start() -> Self {
        Self::new(1024)
    }
}

struct Loopback(TestNode);

impl Way for Loopback {
    fn connect(&self, client: ClientIdentity) -> Box<dyn Transport> {
        self.0.connect(client)
    }
    fn start() -> Self {
        Self(TestNode::start(&Wanted::default()))
    }
}

struct Socket(TestNode);

impl Way for Socket {
    fn connect(&self, client: ClientIdentity) -> Box<dyn Transport> {
        self.0.connect(client)
    }
    fn start() -> Self {
        Self(TestNode::start(&Wanted { listen: at_socket, ..Wanted::default() }))
    }
}

struct Shared(TestNode);

impl Way for Shared {
    fn connect(&self, client: ClientIdentity) -> Box<dyn Transport> {
        self.0.connect(client)
    }
    fn start() -> Self {
        Self(TestNode::start(&Wanted { listen: at_memory, ..Wanted::default() }))
    }
}

struct Sealed(TestNode);

impl Way for Sealed {
    fn connect(&self, client: ClientIdentity) -> Box<dyn Transport> {
        self.0.connect(client)
    }
    fn start() -> Self {
        Self(TestNode::start(&Wanted { security: new_key(), ..Wanted::default() }))
    }
}

fn what_was_written_is_read<W: Way>() {
    let node = W::start();
    let mut link = node.connect(client(1));
    let chunk = slab(&mut *link, 1);
    let whole = content(1, chunk.order().bytes());
    let inside = chunk.first().offset().checked_add(5000).unwrap();

    assert_eq!(write(&mut *link, 2, chunk.first().offset(), &whole), Ok(Answer::Written));
    assert_eq!(write(&mut *link, 3, inside, b"in the middle"), Ok(Answer::Written));

    let found = read(&mut *link, 4, chunk.first().offset(), whole.len()).unwrap();
    assert_eq!(found[..5000], whole[..5000]);
    assert_eq!(&found[5000..5013], b"in the middle");
    assert_eq!(found[5013..], whole[5013..]);
    assert_eq!(read(&mut *link, 5, inside, 13).unwrap(), b"in the middle");
}

fn frames_that_were_not_written_read_as_zeros<W: Way>() {
    let node = W::start();
    let mut link = node.connect(client(1));
    let chunk = slab(&mut *link, 1);
    assert_eq!(read(&mut *link, 2, chunk.first().offset(), 8192), Ok(vec![0; 8192]));
}

fn a_batch_is_completed_in_order<W: Way>() {
    let node = W::start();
    let mut link = node.connect(client(1));
    let chunk = slab(&mut *link, 1);
    let at = |page: u64| chunk.first().offset().checked_add(page * FRAME_BYTES as u64).unwrap();

    for page in 0..64 {
        let data = content(page, FRAME_BYTES);
        link.submit(Ticket(10 + 2 * page), Request::Write { at: at(page), data }, soon()).unwrap();
        let read = Request::Read { at: at(page), length_bytes: FRAME_BYTES as u32, buffer: Vec::new() };
        link.submit(Ticket(11 + 2 * page), read, soon()).unwrap();
    }
    assert_eq!(link.pending(), 128);
    let done = await_all(&mut *link, 128);

    assert_eq!(link.pending(), 0);
    assert!(done.iter().map(|done| done.ticket.0).eq(10..138));
    for (page, pair) in done.chunks(2).enumerate() {
        assert_eq!(pair[0].result, Ok(Answer::Written));
        let Request::Read { buffer, .. } = &pair[1].request else { panic!() };
        assert_eq!(*buffer, content(page as u64, FRAME_BYTES));
    }
}

/// More in each direction than a connection holds, all the time: either end waits now for bytes, now for
/// room, and must miss neither.
fn as_much_as_goes_each_way_comes_to_an_end<W: Way>() {
    const LENGTH: usize = 64 << 10;
    const TICKETS: std::ops::Range<u64> = 8..2008;
    let node = W::start();
    let mut link = node.connect(client(1));
    let chunk = slab(&mut *link, 1);
    let (mut next, mut awaited, mut done) = (TICKETS.start, TICKETS, Vec::new());
    // Four places are written, then read, and so on.
    while !awaited.is_empty() {
        while next < TICKETS.end && link.pending() < 64 {
            let at = chunk.first().offset().checked_add(next % 4 * LENGTH as u64).unwrap();
            let request = match next % 8 {
                0..4 => Request::Write { at, data: vec![next as u8; LENGTH] },
                _ => Request::Read { at, length_bytes: LENGTH as u32, buffer: Vec::new() },
            };
            link.submit(Ticket(next), request, soon()).unwrap();
            next += 1;
        }
        link.complete(&mut done, PATIENCE).unwrap();
        for completion in done.drain(..) {
            let ticket = awaited.next().unwrap();
            assert_eq!(completion.ticket, Ticket(ticket));
            match completion.request {
                Request::Read { buffer, .. } => {
                    assert_eq!(completion.result, Ok(Answer::Read));
                    assert!(buffer == vec![(ticket - 4) as u8; LENGTH]);
                }
                _ => assert_eq!(completion.result, Ok(Answer::Written)),
            }
        }
    }
}

fn what_was_not_granted_is_refused_and_the_link_goes_on<W: Way>() {
    let node = W::start();
    let mut owner = node.connect(client(1));
    let mut stranger = node.connect(client(2));
    let chunk = slab(&mut *owner, 1);
    let at = chunk.first().offset();
    write(&mut *owner, 2, at, b"secret").unwrap();

    assert_eq!(read(&mut *stranger, 1, at, 6), Err(NOT_GRANTED));
    assert_eq!(write(&mut *stranger, 2, at, b"spoilt"), Err(NOT_GRANTED));
    let taken = ask(&mut *stranger, 3, Request::Release { chunks: vec![chunk] });
    assert_eq!(taken.result, Err(NOT_GRANTED));
    let behind = Frame::new(chunk.first().get() + 64).offset();
    assert_eq!(read(&mut *owner, 3, behind, 1), Err(NOT_GRANTED));
    assert_eq!(read(&mut *owner, 4, Frame::new(u32::MAX).offset(), 4096), Err(NOT_GRANTED));
    // Half of it is granted.
    let last = Frame::new(chunk.first().get() + 63).offset();
    assert_eq!(write(&mut *owner, 5, last, &[1; 4097]), Err(NOT_GRANTED));

    assert_eq!(read(&mut *owner, 6, at, 6).unwrap(), b"secret");
    assert_eq!(read(&mut *owner, 7, last, 1).unwrap(), [0]);
    assert!(grant(&mut *stranger, 4, Order::SLAB, 1).is_ok());
}

fn a_full_node_says_so_until_something_is_given_back<W: Way>() {
    let node = W::start();
    let mut link = node.connect(client(1));
    let frames = grant(&mut *link, 1, Order::SLAB, 100).unwrap();
    assert_eq!(frames.len(), 16);
    assert_eq!(grant(&mut *link, 2, Order::new(0).unwrap(), 1), Err(Failure::Refused(Refusal::Full)));

    let chunks = vec![Chunk::new(frames[3], Order::SLAB).unwrap()];
    assert_eq!(ask(&mut *link, 3, Request::Release { chunks }).result, Ok(Answer::Released));

    assert_eq!(grant(&mut *link, 4, Order::SLAB, 2).unwrap().len(), 1);
}

fn parts_of_a_chunk_can_be_given_back<W: Way>() {
    let node = W::start();
    let mut link = node.connect(client(1));
    let chunk = slab(&mut *link, 1);
    let page = |at| Chunk::new(Frame::new(chunk.first().get() + at), Order::new(0).unwrap()).unwrap();

    let released = ask(&mut *link, 2, Request::Release { chunks: vec![page(7), page(9)] });
    assert_eq!(released.result, Ok(Answer::Released));

    assert_eq!(read(&mut *link, 3, page(7).first().offset(), 1), Err(NOT_GRANTED));
    assert_eq!(read(&mut *link, 4, page(8).first().offset(), 1), Ok(vec![0]));
    let again = ask(&mut *link, 5, Request::Release { chunks: vec![chunk] });
    assert_eq!(again.result, Err(NOT_GRANTED));
}

fn frames_are_empty_for_their_next_owner<W: Way>() {
    let node = W::start();
    let mut first = node.connect(client(1));
    let frames = grant(&mut *first, 1, Order::SLAB, 16).unwrap();
    for (ticket, frame) in (2..).zip(&frames) {
        write(&mut *first, ticket, frame.offset(), &[0xab; 256 << 10]).unwrap();
    }
    assert_eq!(ask(&mut *first, 100, Request::Leave).result, Ok(Answer::Left));

    let mut second = node.connect(client(2));
    let frames = grant(&mut *second, 1, Order::SLAB, 16).unwrap();
    assert_eq!(frames.len(), 16);
    for (ticket, frame) in (2..).zip(&frames) {
        assert_eq!(read(&mut *second, ticket, frame.offset(), 256 << 10), Ok(vec![0; 256 << 10]));
    }
}

fn lanes_of_a_client_share_what_is_granted<W: Way>() {
    let node = W::start();
    let mut demand = node.connect(ClientIdentity { space: 1, lane: 0 });
    let mut writes = node.connect(ClientIdentity { space: 1, lane: 1 });
    let at = slab(&mut *writes, 1).first().offset();
    write(&mut *writes, 2, at, b"by one").unwrap();
    assert_eq!(read(&mut *demand, 1, at, 6).unwrap(), b"by one");
    assert_eq!(demand.node(), writes.node());
}

fn a_change_that_is_repeated_happens_once<W: Way>() {
    let node = W::start();
    let mut link = node.connect(client(1));
    let chunk = slab(&mut *link, 1);
    let at = chunk.first().offset();
    write(&mut *link, 2, at, b"first").unwrap();
    write(&mut *link, 3, at, b"later").unwrap();
    let behind = Frame::new(chunk.first().get() + 64).offset();
    assert_eq!(write(&mut *link, 4, behind, b"never"), Err(NOT_GRANTED));
    drop(link);

    let mut link = node.connect(client(1));
    assert_eq!(slab(&mut *link, 1), chunk);
    assert_eq!(write(&mut *link, 2, at, b"first"), Ok(Answer::Written));
    assert_eq!(write(&mut *link, 4, behind, b"never"), Err(NOT_GRANTED));
    assert_eq!(read(&mut *link, 5, at, 5).unwrap(), b"later");
    let done = ask(&mut *link, 6, Request::Statistics);
    assert!(matches!(done.result, Ok(Answer::Statistics(figures)) if figures.own_frames == 64));
}

fn statistics_count<W: Way>() {
    let node = W::start();
    let mut link = node.connect(client(1));
    let at = slab(&mut *link, 1).first().offset();
    write(&mut *link, 2, at, &[1; 5000]).unwrap();
    read(&mut *link, 3, at, 300).unwrap();

    let Ok(Answer::Statistics(figures)) = ask(&mut *link, 4, Request::Statistics).result else { panic!() };

    assert_eq!((figures.frames, figures.free_frames, figures.own_frames), (1024, 960, 64));
    assert_eq!((figures.written_bytes, figures.read_bytes, figures.clients), (5000, 300, 1));
}

fn what_waits_is_bounded<W: Way>() {
    let node = W::start();
    let mut link = node.connect(client(1));
    for ticket in 1..=MOST_REQUESTS as u64 {
        link.submit(Ticket(ticket), Request::Statistics, soon()).unwrap();
    }
    let back = link.submit(Ticket(1000), Request::Renew, soon()).unwrap_err();
    assert_eq!((back.why, back.request), (SubmitError::Full, Request::Renew));
    await_all(&mut *link, MOST_REQUESTS);

    let at = Frame::new(0).offset();
    let read = || Request::Read { at, length_bytes: MOST_TRANSFER_BYTES as u32, buffer: Vec::new() };
    let most = (MOST_BYTES / MOST_TRANSFER_BYTES) as u64;
    for ticket in 1000..1000 + most {
        link.submit(Ticket(ticket), read(), soon()).unwrap();
    }
    assert_eq!(link.submit(Ticket(2000), read(), soon()).unwrap_err().why, SubmitError::Full);
    await_all(&mut *link, most as usize);
    link.submit(Ticket(2000), read(), soon()).unwrap();
}

fn what_is_no_request_is_not_taken<W: Way>() {
    let node = W::start();
    let mut link = node.connect(client(1));
    let at = Frame::new(0).offset();
    let refused =
        |link: &mut dyn Transport, request: Request| link.submit(Ticket(5), request, soon()).unwrap_err().why;
    let read = |length_bytes| Request::Read { at, length_bytes, buffer: Vec::new() };
    assert_eq!(refused(&mut *link, read(0)), SubmitError::Malformed);
    assert_eq!(refused(&mut *link, read(MOST_TRANSFER_BYTES as u32 + 1)), SubmitError::Malformed);
    assert_eq!(refused(&mut *link, Request::Write { at, data: Vec::new() }), SubmitError::Malformed);
    assert_eq!(refused(&mut *link, Request::Release { chunks: Vec::new() }), SubmitError::Malformed);
    assert_eq!(refused(&mut *link, Request::Grant { order: Order::SLAB, count: 0 }), SubmitError::Malformed);
    link.submit(Ticket(5), Request::Renew, soon()).unwrap();
    assert_eq!(refused(&mut *link, Request::Renew), SubmitError::Ticket);
}

fn nothing_comes_of_nothing<W: Way>() {
    let node = W::start();
    let mut link = node.connect(client(1));
    let (mut done, began) = (Vec::new(), Instant::now());
    link.complete(&mut done, Duration::from_millis(20)).unwrap();
    link.complete(&mut done, Duration::ZERO).unwrap();
    assert!(done.is_empty() && began.elapsed() >= Duration::from_millis(20));
}

/// Each of them, over one way.
macro_rules! conformance {
    ($way:ident, $module:ident, $($test:ident),* $(,)?) => {
        mod $module {
            use super::*;
            $(#[test] fn $test() { super::$test::<$way>(); })*
        }
    };
}

/// What every way promises: `$then` is a macro that takes the names of these tests, behind arguments of its
/// own.
macro_rules! every_promise {
    ($then:ident $(, $argument:ident)*) => {
        $then!(
            $($argument,)*
            what_was_written_is_read,
            frames_that_were_not_written_read_as_zeros,
            a_batch_is_completed_in_order,
            as_much_as_goes_each_way_comes_to_an_end,
            what_was_not_granted_is_refused_and_the_link_goes_on,
            a_full_node_says_so_until_something_is_given_back,
            parts_of_a_chunk_can_be_given_back,
            frames_are_empty_for_their_next_owner,
            lanes_of_a_client_share_what_is_granted,
            a_change_that_is_repeated_happens_once,
            statistics_count,
            what_waits_is_bounded,
            what_is_no_request_is_not_taken,
            nothing_comes_of_nothing,
        );
    };
}

macro_rules! conformances {
    ($($way:ident as $module:ident),*) => {
        $(every_promise!(conformance, $way, $module);)*
    };
}

conformances!(
    MemoryNode as memory,
    Loopback as loopback,
    Socket as unix_socket,
    Shared as shared_memory,
    Sealed as tls
);

/// By RDMA, on a machine that has a device: `scripts/test-rdma` makes one. The address is that of the
/// device's network card.
#[cfg(feature = "rdma")]
mod rdma {
    use super::*;
    use farmem_transport::rdma::{Figures, figures};
    use farmem_transport::{Connector, Traffic, Travel};

    struct Remote(TestNode, Connector);

    impl Way for Remote {
        fn connect(&self, client: ClientIdentity) -> Box<dyn Transport> {
            self.1.connect(&self.0.address, client, Traffic::Demand, PATIENCE).unwrap()
        }
        fn start() -> Self {
            let security = new_key();
            let connector = Connector::new(security.clone(), Travel::Rdma, None).unwrap();
            Self(TestNode::start(&Wanted { listen: at_device, security, ..Wanted::default() }), connector)
        }
    }

    macro_rules! on_devices {
        ($($test:ident),* $(,)?) => { $(
            #[test]
            #[ignore = "needs an RDMA device"]
            fn $test() { super::$test::<Remote>(); }
        )* };
    }

    every_promise!(on_devices);

    fn since(before: Figures) -> Figures {
        let now = figures();
        Figures {
            reads: now.reads - before.reads,
            writes: now.writes - before.writes,
            doorbells: now.doorbells - before.doorbells,
            letters: now.letters - before.letters,
            completions: now.completions - before.completions,
            copies: now.copies - before.copies,
            keys: now.keys - before.keys,
            detours: now.detours - before.detours,
        }
    }

    fn requests_done(link: &mut dyn Transport, ticket: u64) -> u64 {
        match ask(link, ticket, Request::Statistics).result {
            Ok(Answer::Statistics(figures)) => figures.requests,
            other => panic!("{other:?}"),
        }
    }

    /// Counts are the process's: this test runs alone.
    #[test]
    #[ignore = "needs an RDMA device"]
    fn what_a_page_and_a_batch_of_writes_take_is_counted() {
        let node = Remote::start();
        let mut link = node.connect(client(1));
        let chunk = slab(&mut *link, 1);
        let at = |page: u64| chunk.first().offset().checked_add(page * FRAME_BYTES as u64).unwrap();
        write(&mut *link, 2, at(0), &[1; FRAME_BYTES]).unwrap();
        let heard = requests_done(&mut *link, 3);

        let before = figures();
        assert_eq!(read(&mut *link, 4, at(0), FRAME_BYTES).unwrap(), [1; FRAME_BYTES]);
        let page = since(before);

        let before = figures();
        for nth in 0..64 {
            let data = content(nth, FRAME_BYTES);
            link.submit(Ticket(5 + nth), Request::Write { at: at(nth), data }, soon()).unwrap();
        }
        await_all(&mut *link, 64);
        let batch = since(before);

        println!("\na page: {page:?}");
        println!("64 pages written: {batch:?}");
        let nothing = Figures::default();
        assert_eq!(page, Figures { reads: 1, doorbells: 1, completions: 1, copies: 1, ..nothing });
        assert_eq!(batch, Figures { writes: 64, doorbells: 1, completions: 1, copies: 64, ..nothing });
        // The node's processor has heard of these statistics, and of nothing else. A letter has told it what
        // was moved.
        let before = figures();
        assert_eq!(requests_done(&mut *link, 100) - heard, 1);
        assert_eq!(since(before), Figures { letters: 1, ..nothing });
        for nth in 0..64 {
            assert_eq!(read(&mut *link, 101 + nth, at(nth), FRAME_BYTES).unwrap(), content(nth, FRAME_BYTES));
        }
    }

    /// What the device shows is worth nothing any more, whoever shows it.
    #[test]
    #[ignore = "needs an RDMA device"]
    fn a_key_of_frames_that_were_given_back_opens_nothing() {
        let node = Remote::start();
        let mut lane = node.connect(client(1));
        let chunk = slab(&mut *lane, 1);
        let at = chunk.first().offset();
        write(&mut *lane, 2, at, b"mine").unwrap();
        // As another process of the client would: this one's lane keeps its keys.
        let other = Connector::new(node.0.security(), Travel::Rdma, None).unwrap();
        let identity = ClientIdentity { space: 1, lane: 1 };
        let mut elsewhere = other.connect(&node.0.address, identity, Traffic::Demand, PATIENCE).unwrap();
        ask(&mut *elsewhere, 1, Request::Release { chunks: vec![chunk] }).result.unwrap();
        let mut stranger = node.connect(client(2));
        for ticket in 1..=16 {
            let first = grant(&mut *stranger, 2 * ticket, Order::SLAB, 1).unwrap()[0];
            write(&mut *stranger, 2 * ticket + 1, first.offset(), b"other").unwrap();
        }

        let request = Request::Read { at, length_bytes: 5, buffer: Vec::new() };
        lane.submit(Ticket(3), request.clone(), soon()).unwrap();
        let mut done = Vec::new();
        while lane.complete(&mut done, PATIENCE).is_ok() {
            assert!(done.is_empty(), "{done:?}");
        }

        assert_eq!(lane.take_unanswered(), [(Ticket(3), request)]);
        let mut anew = other.connect(&node.0.address, client(1), Traffic::Background, PATIENCE).unwrap();
        assert_eq!(read(&mut *anew, 3, at, 5), Err(NOT_GRANTED));
    }

    #[test]
    #[ignore = "needs an RDMA device"]
    fn a_node_without_rdma_is_reached_by_tcp_unless_rdma_is_wanted() {
        let security = new_key();
        let wanted =
            Wanted { listen: at_device, security: security.clone(), rdma: false, ..Wanted::default() };
        let node = TestNode::start(&wanted);
        let connect = |travel| {
            Connector::new(security.clone(), travel, None).unwrap().connect(
                &node.address,
                client(1),
                Traffic::Demand,
                PATIENCE,
            )
        };
        let Err(error) = connect(Travel::Rdma) else { panic!("the node has none") };
        assert!(error.to_string().contains("the node has no RDMA"), "{error}");
        let mut link = connect(Travel::Auto).unwrap();
        let at = slab(&mut *link, 1).first().offset();
        write(&mut *link, 2, at, b"hello").unwrap();
        assert_eq!(read(&mut *link, 3, at, 5).unwrap(), b"hello");
    }
}

//! How the space's links to nodes are shared: among its own threads by class, and with other spaces of the host by weight (docs/adr/0029).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farmem_broker::board::{Board, Direction, Gate, Pass, Purse, Shared, Turn, key_of};
use farmem_page::ByteCount;
use farmem_policy::links::Class;
use farmem_sys::shared::SharedMemoryError;
use farmem_transport::Request;

use super::NodeAddress;
use super::by_class::ByClass;
use super::slots::Slots;
use crate::options::Bandwidth;

/// The gates of all links.
pub(crate) struct Sharing {
    links: Slots<SharedLink>,
    purses: [Arc<Purse>; 2],
    /// Where the space sits, so that nodes which join find it there. Held while links are added or moved.
    seat: Mutex<Seat>,
}

/// The way to a node.
struct SharedLink {
    /// What stands for it on boards.
    key: u64,
    /// In, out.
    gates: [Arc<Gate>; 2],
}

/// A space's place among others.
struct Seat {
    /// The host's board, and which seat there.
    at: Option<(Arc<Board>, usize)>,
    weight: u32,
}

/// What went over links.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkFigures {
    /// From nodes.
    pub(crate) in_bytes: ByClass<u64>,
    /// To nodes.
    pub(crate) out_bytes: ByClass<u64>,
    /// How long what threads waited for had waited for its turn.
    pub(crate) wait: Duration,
}

/// It is not a transfer's turn.
pub(super) struct Pause {
    gate: Arc<Gate>,
    bell: u32,
    /// To be asked again after this time, or when the bell rings.
    pub(super) at_most: Duration,
}

impl Pause {
    /// Waits for the bell.
    pub(super) fn sleep(&self) {
        self.gate.sleep(self.bell, self.at_most);
    }
}

const DIRECTIONS: [Direction; 2] = [Direction::In, Direction::Out];

impl Sharing {
    /// With a board for the space alone, until it gets a seat at the host's. So many nodes may join later.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn new(
        nodes: &[NodeAddress],
        joins: usize,
        bandwidth: Bandwidth,
    ) -> Result<Self, SharedMemoryError> {
        let purses = [bandwidth.bytes_in, bandwidth.bytes_out].map(|limit| {
            let purse = Purse::default();
            purse.set(limit.map_or(0, ByteCount::get));
            Arc::new(purse)
        });
        let links: Result<Vec<_>, _> = nodes.iter().map(|node| SharedLink::new(node, &purses)).collect();
        let seat = Mutex::new(Seat { at: None, weight: 1 });
        Ok(Self { links: Slots::new(links?, joins), purses, seat })
    }

    /// The way to a node that joins: it has the next number.
    ///
    /// # Errors
    /// What the kernel says, or that there can be no more.
    pub(super) fn add(&self, node: &NodeAddress) -> Result<(), SharedMemoryError> {
        let link = SharedLink::new(node, &self.purses)?;
        let seat = self.seat.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((board, seat)) = &seat.at {
            link.sit(board, *seat);
        }
        link.gates.iter().for_each(|gate| gate.set_weight(seat.weight));
        if self.links.add(link) { Ok(()) } else { Err(SharedMemoryError::Unsuitable) }
    }

    /// Takes a seat at the host's board.
    pub(crate) fn sit(&self, board: &Arc<Board>, seat: usize) {
        let mut own = self.seat.lock().unwrap_or_else(PoisonError::into_inner);
        own.at = Some((Arc::clone(board), seat));
        self.links.iter().for_each(|link| link.sit(board, seat));
    }

    /// Changes the space's part against others.
    pub(crate) fn set_weight(&self, weight: u32) {
        let mut own = self.seat.lock().unwrap_or_else(PoisonError::into_inner);
        own.weight = weight;
        self.links.iter().flat_map(|link| &link.gates).for_each(|gate| gate.set_weight(weight));
    }

    /// The gate to or from a node.
    pub(super) fn gate(&self, node: usize, direction: Direction) -> &Arc<Gate> {
        &self.links[node].gates[direction as usize]
    }

    /// Asks for the turn of a part of a whole slab. `None` for requests that move no content. `turn` is kept until its turn has come.
    ///
    /// # Errors
    /// It has not come yet.
    pub(super) fn bulk(
        &self,
        node: usize,
        request: &Request,
        turn: &mut Option<Turn>,
    ) -> Result<Option<Pass>, Pause> {
        let direction = match request {
            Request::Read { .. } => Direction::In,
            Request::Write { .. } => Direction::Out,
            _ => return Ok(None),
        };
        let gate = self.gate(node, direction);
        let bell = gate.bell();
        let waiting = turn.get_or_insert_with(|| gate.turn(Class::Bulk, request.transfer_bytes() as u64));
        match waiting.take() {
            Ok(pass) => {
                *turn = None;
                Ok(Some(pass))
            }
            Err(at_most) => Err(Pause { gate: Arc::clone(gate), bell, at_most }),
        }
    }

    /// What went over all links.
    pub(crate) fn figures(&self) -> LinkFigures {
        let mut sum = LinkFigures::default();
        for SharedLink { gates: [inward, outward], .. } in self.links.iter() {
            let (inward, outward) = (inward.figures(), outward.figures());
            sum.in_bytes += ByClass::from_each(|class| inward.bytes[class.nth()]);
            sum.out_bytes += ByClass::from_each(|class| outward.bytes[class.nth()]);
            sum.wait += Duration::from_nanos(inward.waited_ns[Class::Demand.nth()]);
        }
        sum
    }
}

impl SharedLink {
    fn new(node: &NodeAddress, purses: &[Arc<Purse>; 2]) -> Result<Self, SharedMemoryError> {
        let key = key_of(&node.to_string());
        let board = Arc::new(Board::new(Shared::create()?));
        let gate = |direction: Direction| {
            // A board without any link has room for one.
            let lines = board.link(key, direction)?;
            Some(Gate::new(Arc::clone(&board), lines, 0, Arc::clone(&purses[direction as usize]), 1))
        };
        let [Some(inward), Some(outward)] = DIRECTIONS.map(gate) else {
            return Err(SharedMemoryError::Unsuitable);
        };
        Ok(Self { key, gates: [inward, outward] })
    }

    fn sit(&self, board: &Arc<Board>, seat: usize) {
        for (gate, direction) in self.gates.iter().zip(DIRECTIONS) {
            // A link for which the board has no place is not shared.
            if let Some(lines) = board.link(self.key, direction) {
                gate.move_to(Arc::clone(board), lines, seat);
            }
        }
    }
}

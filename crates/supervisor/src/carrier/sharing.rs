//! How the space's links to nodes are shared: among its own threads by class, and with other spaces of the host by weight (docs/adr/0029).

use std::sync::Arc;
use std::time::Duration;

use farmem_broker::board::{Board, Direction, Gate, Pass, Purse, Shared, Turn, key_of};
use farmem_page::ByteCount;
use farmem_policy::links::Class;
use farmem_sys::shared::SharedMemoryError;
use farmem_transport::Request;

use super::NodeAddress;
use crate::options::Bandwidth;

/// The gates of all links.
pub(crate) struct Sharing {
    /// What stands for each node.
    keys: Vec<u64>,
    /// For each node: in, out.
    gates: Vec<[Arc<Gate>; 2]>,
}

/// What went over links.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkFigures {
    /// From nodes.
    pub(crate) in_bytes: u64,
    /// To nodes.
    pub(crate) out_bytes: u64,
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
    /// With a board for the space alone, until it gets a seat at the host's.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn new(nodes: &[NodeAddress], bandwidth: Bandwidth) -> Result<Self, SharedMemoryError> {
        let keys: Vec<u64> = nodes.iter().map(|node| key_of(&node.to_string())).collect();
        let purses = [bandwidth.bytes_in, bandwidth.bytes_out].map(|limit| {
            let purse = Purse::default();
            purse.set(limit.map_or(0, ByteCount::get));
            Arc::new(purse)
        });
        let mut gates = Vec::new();
        for &key in &keys {
            let board = Arc::new(Board::new(Shared::create()?));
            let gate = |direction: Direction| {
                // A board without any link has room for one.
                let lines = board.link(key, direction)?;
                Some(Gate::new(Arc::clone(&board), lines, 0, Arc::clone(&purses[direction as usize]), 1))
            };
            let [Some(inward), Some(outward)] = DIRECTIONS.map(gate) else {
                return Err(SharedMemoryError::Unsuitable);
            };
            gates.push([inward, outward]);
        }
        Ok(Self { keys, gates })
    }

    /// Takes a seat at the host's board.
    pub(crate) fn sit(&self, board: &Arc<Board>, seat: usize) {
        for (&key, gates) in self.keys.iter().zip(&self.gates) {
            for (gate, direction) in gates.iter().zip(DIRECTIONS) {
                // A link for which the board has no place is not shared.
                if let Some(lines) = board.link(key, direction) {
                    gate.move_to(Arc::clone(board), lines, seat);
                }
            }
        }
    }

    /// Changes the space's part against others.
    pub(crate) fn set_weight(&self, weight: u32) {
        self.gates.iter().flatten().for_each(|gate| gate.set_weight(weight));
    }

    /// The gate to or from a node.
    pub(super) fn gate(&self, node: usize, direction: Direction) -> &Arc<Gate> {
        &self.gates[node][direction as usize]
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
        for [inward, outward] in &self.gates {
            let (inward, outward) = (inward.figures(), outward.figures());
            sum.in_bytes += inward.bytes.iter().sum::<u64>();
            sum.out_bytes += outward.bytes.iter().sum::<u64>();
            sum.wait += Duration::from_nanos(inward.waited_ns[Class::Demand.nth()]);
        }
        sum
    }
}

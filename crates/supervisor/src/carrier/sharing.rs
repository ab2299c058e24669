//! How the space's links to nodes are shared: among its own threads by class, and with other spaces of the
//! host by weight (docs/adr/0029).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farmem_broker::link_schedule::{Direction, Gate, LinkSchedule, Pass, RateLimit, Shared, Turn, key_of};
use farmem_client::ByClass;
use farmem_page::ByteCount;
use farmem_policy::links::Class;
use farmem_sys::shared::SharedMemoryError;
use farmem_transport::Request;

use super::NodeAddress;
use super::slots::Slots;
use crate::options::Bandwidth;

/// The gates of all links.
pub(crate) struct Sharing {
    links: Slots<SharedLink>,
    rate_limits: [Arc<RateLimit>; 2],
    /// Which slot the space has, so that nodes which join find it there. Held while links are added or moved.
    link_slot: Mutex<LinkSlot>,
}

/// The way to a node.
struct SharedLink {
    /// What stands for it in link schedules.
    key: u64,
    /// In, out.
    gates: [Arc<Gate>; 2],
}

/// A space's place among others.
struct LinkSlot {
    /// The host's link schedule, and which slot there.
    at: Option<(Arc<LinkSchedule>, usize)>,
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
    /// With a schedule for the space alone, until it gets a slot in the host's. So many nodes may join later.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn new(
        nodes: &[NodeAddress],
        joins: usize,
        bandwidth: Bandwidth,
    ) -> Result<Self, SharedMemoryError> {
        let rate_limits = [bandwidth.bytes_in, bandwidth.bytes_out].map(|limit| {
            let rate_limit = RateLimit::default();
            rate_limit.set(limit.map_or(0, ByteCount::get));
            Arc::new(rate_limit)
        });
        let links: Result<Vec<_>, _> = nodes.iter().map(|node| SharedLink::new(node, &rate_limits)).collect();
        let link_slot = Mutex::new(LinkSlot { at: None, weight: 1 });
        Ok(Self { links: Slots::new(links?, joins), rate_limits, link_slot })
    }

    /// The way to a node that joins: it has the next number.
    ///
    /// # Errors
    /// What the kernel says, or that there can be no more.
    pub(super) fn add(&self, node: &NodeAddress) -> Result<(), SharedMemoryError> {
        let link = SharedLink::new(node, &self.rate_limits)?;
        let link_slot = self.link_slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((schedule, link_slot)) = &link_slot.at {
            link.take_link_slot(schedule, *link_slot);
        }
        link.gates.iter().for_each(|gate| gate.set_weight(link_slot.weight));
        if self.links.add(link) { Ok(()) } else { Err(SharedMemoryError::Unsuitable) }
    }

    /// Takes a slot in the host's link schedule.
    pub(crate) fn take_link_slot(&self, schedule: &Arc<LinkSchedule>, link_slot: usize) {
        let mut own = self.link_slot.lock().unwrap_or_else(PoisonError::into_inner);
        own.at = Some((Arc::clone(schedule), link_slot));
        self.links.iter().for_each(|link| link.take_link_slot(schedule, link_slot));
    }

    /// Changes the space's part against others.
    pub(crate) fn set_weight(&self, weight: u32) {
        let mut own = self.link_slot.lock().unwrap_or_else(PoisonError::into_inner);
        own.weight = weight;
        self.links.iter().flat_map(|link| &link.gates).for_each(|gate| gate.set_weight(weight));
    }

    /// The gate to or from a node.
    pub(super) fn gate(&self, node: usize, direction: Direction) -> &Arc<Gate> {
        &self.links[node].gates[direction as usize]
    }

    /// Asks for the turn of a part of a whole slab. `None` for requests that move no content. `turn` is kept
    /// until its turn has come.
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
    fn new(node: &NodeAddress, rate_limits: &[Arc<RateLimit>; 2]) -> Result<Self, SharedMemoryError> {
        let key = key_of(&node.to_string());
        let schedule = Arc::new(LinkSchedule::new(Shared::create()?));
        let gate = |direction: Direction| {
            // A schedule without any link has room for one.
            let lines = schedule.link(key, direction)?;
            Some(Gate::new(Arc::clone(&schedule), lines, 0, Arc::clone(&rate_limits[direction as usize]), 1))
        };
        let [Some(inward), Some(outward)] = DIRECTIONS.map(gate) else {
            return Err(SharedMemoryError::Unsuitable);
        };
        Ok(Self { key, gates: [inward, outward] })
    }

    fn take_link_slot(&self, schedule: &Arc<LinkSchedule>, link_slot: usize) {
        for (gate, direction) in self.gates.iter().zip(DIRECTIONS) {
            // A link for which the schedule has no room is not shared.
            if let Some(lines) = schedule.link(self.key, direction) {
                gate.move_to(Arc::clone(schedule), lines, link_slot);
            }
        }
    }
}

//! What clients have in common: the clock, the machines and the network, which are what they are; and what is
//! counted.

use farmem_remote::Roster;
use farmem_transport::Destination;

use crate::calendar::Happening;
use crate::client::Reading;
use crate::clock::Clock;
use crate::cost::Costs;
use crate::figures::Figures;
use crate::machines::{Identity, Machines};
use crate::network::Network;
use crate::options::Options;

/// What happens next; most of it to one client.
pub(crate) enum Event {
    Happening(Happening),
    /// Memory is needed, or not needed any more.
    Demand(u32),
    /// More is to leave memory.
    Move(u32),
    /// What was leaving memory has left it.
    Moved(u32),
    /// A node has answered to a request for chunks.
    Granted(u32, Grant),
    /// A client notices that this node doesn't answer.
    Doubt(u32, u16, Identity),
    /// The node monitor looks at a node that is not well.
    Look(u32, u16),
    /// The rebuilder looks for work.
    Mend(u32),
    /// It has done a piece.
    Mended(u32),
    /// A fetch that is followed begins.
    Fetch(u32),
    /// One that could not be served goes on, or one of a page that lies on a machine which is not well
    /// begins.
    Read(u32, Box<Reading>),
    /// A client hears which nodes there are.
    Follow(u32),
    /// A look at how everything is.
    Sample,
}

/// What a node has answered.
pub(crate) struct Grant {
    pub(crate) node: u16,
    pub(crate) identity: Identity,
    pub(crate) frames: Vec<farmem_transport::Frame>,
    pub(crate) took: u64,
}

pub(crate) struct Shared<'a> {
    pub(crate) options: &'a Options,
    pub(crate) clock: Clock<Event>,
    pub(crate) machines: Machines,
    pub(crate) network: Network,
    pub(crate) figures: Figures,
    pub(crate) costs: Costs,
    /// Where nodes listen.
    pub(crate) addresses: Vec<Destination>,
    /// Which of them are to be used.
    pub(crate) roster: Roster,
}

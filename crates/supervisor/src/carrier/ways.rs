//! The links of a lane: to each node one for what threads wait for, and one for what nobody waits for yet, so
//! that the second holds up nothing else.

use std::ops::{Index, IndexMut};

use super::link::NodeLink;
use super::links::Links;
use super::{AHEAD_LANE, Carrier};

/// One of a lane's links.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Way {
    pub(super) node: usize,
    pub(super) is_ahead: bool,
}

pub(super) struct Ways {
    awaited: Links,
    ahead: Links,
}

impl Ways {
    pub(super) fn new(carrier: &'static Carrier, lane: u8) -> Self {
        Self { awaited: Links::new(carrier, lane), ahead: Links::new(carrier, AHEAD_LANE + lane) }
    }

    /// Has all of them made before they are needed.
    pub(super) fn prepare(&mut self) {
        self.awaited.prepare();
        self.ahead.prepare();
    }

    fn of(&self, is_ahead: bool) -> &Links {
        if is_ahead { &self.ahead } else { &self.awaited }
    }

    /// Those that were asked for.
    pub(super) fn known(&self) -> Vec<Way> {
        let all = |is_ahead| (0..self.of(is_ahead).known().len()).map(move |node| Way { node, is_ahead });
        all(false).chain(all(true)).collect()
    }

    /// Those of one kind by which something is under way.
    pub(super) fn busy(&self, is_ahead: bool) -> Vec<Way> {
        let links = self.of(is_ahead).known().iter();
        links.filter(|link| link.pending() > 0).map(|link| Way { node: link.node(), is_ahead }).collect()
    }
}

impl Index<Way> for Ways {
    type Output = NodeLink;

    fn index(&self, way: Way) -> &NodeLink {
        &self.of(way.is_ahead)[way.node]
    }
}

impl IndexMut<Way> for Ways {
    fn index_mut(&mut self, Way { node, is_ahead }: Way) -> &mut NodeLink {
        let links = if is_ahead { &mut self.ahead } else { &mut self.awaited };
        &mut links[node]
    }
}

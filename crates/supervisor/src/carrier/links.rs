//! The links of one thread, one to each node. Nodes that join get theirs when they are first asked for.

use std::ops::{Index, IndexMut};

use super::Carrier;
use super::link::NodeLink;

pub(super) struct Links {
    carrier: &'static Carrier,
    lane: u8,
    links: Vec<NodeLink>,
}

impl Links {
    pub(super) fn new(carrier: &'static Carrier, lane: u8) -> Self {
        let mut links = Self { carrier, lane, links: Vec::new() };
        links.grow();
        links
    }

    fn grow(&mut self) {
        let (carrier, lane) = (self.carrier, self.lane);
        self.links
            .extend((self.links.len()..carrier.nodes.len()).map(|node| NodeLink::new(carrier, node, lane)));
    }

    /// To all nodes that there are by now, by their numbers.
    pub(super) fn all(&mut self) -> &mut [NodeLink] {
        self.grow();
        &mut self.links
    }

    /// Has all of them made before they are needed.
    pub(super) fn prepare(&mut self) {
        self.all().iter_mut().for_each(NodeLink::prepare);
    }

    /// Those that were asked for.
    pub(super) fn known(&self) -> &[NodeLink] {
        &self.links
    }
}

impl Index<usize> for Links {
    type Output = NodeLink;

    fn index(&self, node: usize) -> &NodeLink {
        &self.links[node]
    }
}

impl IndexMut<usize> for Links {
    fn index_mut(&mut self, node: usize) -> &mut NodeLink {
        if node >= self.links.len() {
            self.grow();
        }
        &mut self.links[node]
    }
}

/// To all nodes that there are by now.
impl<'a> IntoIterator for &'a mut Links {
    type Item = &'a mut NodeLink;
    type IntoIter = std::slice::IterMut<'a, NodeLink>;

    fn into_iter(self) -> Self::IntoIter {
        self.all().iter_mut()
    }
}

//! Where the shards of one block are.

use farmem_transport::RemoteAddress;

use crate::redundancy::MOST_SHARDS;

/// Where shards of a block are, those of its own bytes first. No two are on the same node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shards([Option<RemoteAddress>; MOST_SHARDS]);

impl Shards {
    /// Where one is.
    pub fn get(&self, shard: usize) -> Option<RemoteAddress> {
        self.0.get(shard).copied().flatten()
    }
    /// Those there are, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (usize, RemoteAddress)> + use<> {
        self.0.into_iter().enumerate().filter_map(|(shard, address)| Some((shard, address?)))
    }
    /// How many there are.
    pub fn count(&self) -> usize {
        self.iter().count()
    }
    pub(super) fn set(&mut self, shard: usize, address: RemoteAddress) {
        if let Some(place) = self.0.get_mut(shard) {
            *place = Some(address);
        }
    }
    pub(super) fn clear(&mut self, shard: usize) {
        if let Some(place) = self.0.get_mut(shard) {
            *place = None;
        }
    }
    pub(super) fn on(&self, node: usize) -> Option<usize> {
        self.iter().find(|(_, address)| usize::from(address.node) == node).map(|(shard, _)| shard)
    }
}

impl FromIterator<(usize, RemoteAddress)> for Shards {
    fn from_iter<T: IntoIterator<Item = (usize, RemoteAddress)>>(addresses: T) -> Self {
        let mut shards = Self::default();
        addresses.into_iter().for_each(|(shard, address)| shards.set(shard, address));
        shards
    }
}

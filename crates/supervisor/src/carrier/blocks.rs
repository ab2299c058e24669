//! Whole blocks, from whichever of their shards can be had.

use std::time::Duration;

use farmem_remote::{Located, Piece, Redundancy};
use farmem_store::SLAB_BYTES;
use farmem_transport::{Answer, Failure, Request};

use super::Carrier;
use super::link::NodeLink;

/// A shard that takes longer is left out.
const PATIENCE: Duration = Duration::from_secs(2);

/// As many shards of a block as are enough for all of it, those of its own bytes first; each is what was written.
pub(super) fn read_shards(
    carrier: &Carrier,
    links: &mut [NodeLink],
    block: u32,
    located: &Located,
) -> Option<Vec<(usize, Vec<u8>)>> {
    let redundancy = carrier.redundancy();
    let mut shards = Vec::new();
    for (shard, address) in located.shards.iter() {
        if shards.len() == redundancy.data() {
            break;
        }
        let length_bytes = redundancy.order().bytes() as u32;
        let request = Request::Read { at: address.frame.offset(), length_bytes, buffer: Vec::new() };
        let link = links.get_mut(usize::from(address.node))?;
        match link.exchange(vec![request], PATIENCE).pop().flatten() {
            Some((Request::Read { buffer, .. }, Ok(Answer::Read))) => {
                let whole = Piece { shard, first: 0, count: redundancy.shard_pages() };
                if carrier.is_right(located, whole, &buffer) {
                    shards.push((shard, buffer));
                } else if !carrier.caught(block, located, shard) {
                    return None;
                }
            }
            Some((_, Err(Failure::Refused(_)))) => carrier.lose_shard(block, located, shard),
            _ => {}
        }
    }
    (shards.len() == redundancy.data()).then_some(shards)
}

/// The block's bytes from those shards.
pub(super) fn assemble(redundancy: Redundancy, shards: &[(usize, Vec<u8>)]) -> Option<Vec<u8>> {
    let mut content = Vec::with_capacity(SLAB_BYTES);
    for wanted in 0..redundancy.data() {
        match shards.iter().find(|(shard, _)| *shard == wanted) {
            Some((_, bytes)) => content.extend_from_slice(bytes),
            None => content.extend(restore(redundancy, shards, wanted)?),
        }
    }
    (content.len() == SLAB_BYTES).then_some(content)
}

/// A shard that is not among those.
pub(super) fn restore(redundancy: Redundancy, shards: &[(usize, Vec<u8>)], wanted: usize) -> Option<Vec<u8>> {
    let known: Vec<(usize, &[u8])> = shards.iter().map(|(shard, bytes)| (*shard, &bytes[..])).collect();
    redundancy.restore(wanted, &known)
}

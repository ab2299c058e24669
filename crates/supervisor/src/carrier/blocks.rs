//! Whole blocks, from whichever of their shards can be had.

use std::time::{Duration, Instant};

use farmem_remote::{Located, Piece, Redundancy};
use farmem_store::SLAB_BYTES;
use farmem_transport::{Answer, Failure, RemoteAddress, Request};

use super::Carrier;
use super::link::NodeLink;
use super::links::Links;

/// A shard that takes longer is left out.
const PATIENCE: Duration = Duration::from_secs(2);
/// When so much time has gone by with those that were tried, no other is tried.
const ALL_PATIENCE: Duration = Duration::from_secs(3);
/// It is read in parts of so much, each of which takes its turn at the link: so a page that somebody waits
/// for waits for one of them at most.
const PART_BYTES: usize = 64 << 10;

/// As many shards of a block as are enough for all of it, those of its own bytes first; each is what was
/// written.
pub(super) fn read_shards(
    carrier: &Carrier,
    links: &mut Links,
    block: u32,
    located: &Located,
) -> Option<Vec<(usize, Vec<u8>)>> {
    let redundancy = carrier.redundancy();
    let mut shards = Vec::new();
    let began = Instant::now();
    // Nodes that owe an answer come last: each might be waited for.
    let mut known: Vec<_> = located.shards.iter().collect();
    known
        .sort_by_key(|(_, address)| links.known().get(usize::from(address.node)).is_some_and(NodeLink::owes));
    for (shard, address) in known {
        if shards.len() == redundancy.data() || began.elapsed() > ALL_PATIENCE {
            break;
        }
        match read_right(carrier, &mut links[usize::from(address.node)], block, located, (shard, address)) {
            Ok(bytes) => shards.push((shard, bytes)),
            Err(Unread::Changed) => return None,
            Err(Unread::Refused | Unread::Failed) => {}
        }
    }
    (shards.len() == redundancy.data()).then_some(shards)
}

/// One shard, if its node sends it, and it is what was written. What is wrong with it is noted.
pub(super) fn read_right(
    carrier: &Carrier,
    link: &mut NodeLink,
    block: u32,
    located: &Located,
    (shard, address): (usize, RemoteAddress),
) -> Result<Vec<u8>, Unread> {
    let redundancy = carrier.redundancy();
    let whole = Piece { shard, first: 0, count: redundancy.shard_pages() };
    let mut read = read_shard(link, address, redundancy.order().bytes());
    // Where there is one copy on nodes, whoever asks would give up the one on disk for this, or this for what
    // is to be written elsewhere. What was changed on its way comes right when it is read again.
    let is_alone = redundancy.parity() == 0;
    let is_wrong = |bytes: &Vec<u8>| is_alone && !carrier.is_as_written(located, whole, bytes);
    if read.as_ref().is_ok_and(is_wrong) {
        read = read_shard(link, address, redundancy.order().bytes());
    }
    match read {
        // Of what has no other copy, pages that are right are still to be had.
        Ok(bytes) if carrier.pool.has_disk_copy(block as usize) && is_wrong(&bytes) => {
            match carrier.caught(block, located, shard) {
                true => Err(Unread::Failed),
                false => Err(Unread::Changed),
            }
        }
        Ok(bytes) => {
            if carrier.is_right(block, located, whole, &bytes) {
                Ok(bytes)
            } else if carrier.caught(block, located, shard) {
                Err(Unread::Failed)
            } else {
                Err(Unread::Changed)
            }
        }
        Err(Unread::Refused) => {
            carrier.lose_shard(block, located, shard);
            Err(Unread::Refused)
        }
        Err(unread) => Err(unread),
    }
}

/// Why a shard could not be read.
pub(super) enum Unread {
    /// The block was written, moved or freed meanwhile.
    Changed,
    /// The node hasn't got it.
    Refused,
    /// It may have it, and doesn't say so.
    Failed,
}

fn read_shard(link: &mut NodeLink, address: RemoteAddress, bytes: usize) -> Result<Vec<u8>, Unread> {
    let part = |from: usize| {
        let at = address.frame.offset().checked_add(from as u64)?;
        let length_bytes = PART_BYTES.min(bytes - from) as u32;
        Some(Request::Read { at, length_bytes, buffer: Vec::new() })
    };
    let parts: Option<Vec<Request>> = (0..bytes).step_by(PART_BYTES).map(part).collect();
    let mut shard = Vec::with_capacity(bytes);
    for outcome in link.exchange(parts.ok_or(Unread::Failed)?, PATIENCE) {
        match outcome {
            Some((Request::Read { buffer, .. }, Ok(Answer::Read))) => shard.extend_from_slice(&buffer),
            Some((_, Err(Failure::Refused(_)))) => return Err(Unread::Refused),
            _ => return Err(Unread::Failed),
        }
    }
    Ok(shard)
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

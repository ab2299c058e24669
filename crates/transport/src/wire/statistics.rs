//! A node's figures.

use super::{Malformed, number};
use crate::{MOST_ORDER, NodeStatistics};

const STATISTICS_WORDS: usize = 8 + MOST_ORDER as usize + 1;
const STATISTICS_BYTES: usize = 8 * STATISTICS_WORDS;

pub(super) fn statistics_bytes(figures: &NodeStatistics) -> Vec<u8> {
    words_of(figures).iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words_of(figures: &NodeStatistics) -> [u64; STATISTICS_WORDS] {
    let NodeStatistics {
        frames,
        free_frames,
        free_chunks,
        clients,
        own_frames,
        requests,
        refused,
        read_bytes,
        written_bytes,
    } = *figures;
    let mut words = [0; STATISTICS_WORDS];
    let plain =
        [frames, free_frames, clients.into(), own_frames, requests, refused, read_bytes, written_bytes];
    words[..8].copy_from_slice(&plain);
    for (word, chunks) in words[8..].iter_mut().zip(free_chunks) {
        *word = chunks.into();
    }
    words
}

pub(super) fn statistics_of(body: &[u8]) -> Result<NodeStatistics, Malformed> {
    let body: &[u8; STATISTICS_BYTES] = body.try_into().map_err(|_| Malformed::Length)?;
    let word = |at: usize| u64::from_le_bytes(number(body, 8 * at));
    let small = |at: usize| u32::try_from(word(at)).map_err(|_| Malformed::Range);
    let mut free_chunks = [0; MOST_ORDER as usize + 1];
    for (at, chunks) in free_chunks.iter_mut().enumerate() {
        *chunks = small(8 + at)?;
    }
    Ok(NodeStatistics {
        frames: word(0),
        free_frames: word(1),
        free_chunks,
        clients: small(2)?,
        own_frames: word(3),
        requests: word(4),
        refused: word(5),
        read_bytes: word(6),
        written_bytes: word(7),
    })
}

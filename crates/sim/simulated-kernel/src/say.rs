//! What would be written to standard error.

use crate::world;

/// Keeps the sentence.
pub fn say(sentence: &[u8]) {
    world::with(|world| world.said.push(String::from_utf8_lossy(sentence).into_owned()));
}

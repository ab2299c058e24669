//! What the kernel tells of any process, in `/proc`.

use std::fs;

/// One process, until its number may be another's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Identity {
    pub(crate) number: u32,
    /// In the kernel's ticks since it started.
    pub(crate) began: u64,
}

pub(crate) fn identity(number: u32) -> Option<Identity> {
    let [began] = figures(number, [22])?;
    Some(Identity { number, began })
}

/// Whether it has ended, and its parent has not asked yet how. A process of which only the first thread has ended looks the same but for its threads.
pub(crate) fn is_zombie(number: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
        && figures(number, [20]).is_none_or(|[threads]| threads <= 1)
}

/// Some of the numbers that the kernel tells of a process on one line, counted as its documentation does, from 1.
pub(crate) fn figures<const COUNT: usize>(number: u32, places: [usize; COUNT]) -> Option<[u64; COUNT]> {
    let text = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // What follows the name, which may hold anything, begins with the third.
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let mut figures = [0; COUNT];
    for (figure, place) in figures.iter_mut().zip(places) {
        *figure = fields.get(place - 3)?.parse().ok()?;
    }
    Some(figures)
}

/// Those that any of its threads has made.
pub(crate) fn children(number: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{number}/task")) else { return Vec::new() };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

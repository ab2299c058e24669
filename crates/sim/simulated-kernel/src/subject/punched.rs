//! Whether a program punches a hole in an object: what a real pager reads in `/proc`.

use farmem_page::PageRange;

use crate::{schedule, world};

/// Ranges that threads of a process are punching holes in at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Punches {
    ranges: Vec<PageRange>,
}

impl Punches {
    /// What the threads of a process are in, one of which has that number; of all processes when that isn't
    /// known.
    pub(crate) fn of(thread: Option<u32>) -> Self {
        schedule::point();
        world::with(|world| {
            let space = match thread {
                None => None,
                Some(thread) => match world.threads.get(&thread) {
                    Some((space, _)) => Some(*space),
                    None => return Self::default(),
                },
            };
            let punches = world.punches.iter().filter(|(of, _)| space.is_none_or(|space| *of == space));
            Self { ranges: punches.map(|(_, range)| *range).collect() }
        })
    }

    /// What they punch of a range that is discarded.
    pub(crate) fn within(&self, range: PageRange) -> impl Iterator<Item = PageRange> + '_ {
        self.ranges.iter().map(move |punched| punched.intersect(range))
    }
}

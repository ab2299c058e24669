//! What a simulated program does, drawn from a seed before it begins: so that a part of it can be left out.

use rand::Rng;
use rand::rngs::SmallRng;

/// One thing that a thread of the program does. Places are numbers that are taken modulo what there is at
/// that time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Reads pages that follow each other.
    Read {
        /// The first one.
        at: u32,
        /// How many.
        count: u32,
    },
    /// Writes a page.
    Write {
        /// Which.
        at: u32,
        /// What; see `values`.
        value: u32,
    },
    /// Writes pages that follow each other.
    Fill {
        /// The first one.
        at: u32,
        /// How many.
        count: u32,
        /// What the first gets; the others what follows.
        value: u32,
    },
    /// A new mapping.
    Map {
        /// Its pages.
        count: u32,
    },
    /// Unmaps the end of a mapping, or all of it.
    Unmap {
        /// Which.
        at: u32,
        /// How much.
        count: u32,
    },
    /// Discards pages that follow each other.
    Discard {
        /// The first one.
        at: u32,
        /// How many.
        count: u32,
    },
    /// Guards pages that follow each other, for a moment.
    Guard {
        /// The first one.
        at: u32,
        /// How many.
        count: u32,
    },
    /// Moves a mapping.
    Move {
        /// Which.
        at: u32,
    },
    /// Forks; the child reads and writes, and ends.
    Fork {
        /// What it does.
        value: u32,
    },
    /// Rests, in microseconds.
    Rest {
        /// For how long.
        time_us: u32,
    },
}

/// What a program likes to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Habits {
    /// Places that are touched most; 0 for none in particular.
    pub(crate) hot: u32,
    /// Of a hundred operations so many change the address space.
    pub(crate) changes: u32,
    /// Whether it forks.
    pub(crate) forks: bool,
}

impl Habits {
    /// The habits of a forked child.
    pub(crate) const CHILD: Self = Self { hot: 0, changes: 15, forks: false };

    pub(crate) fn draw(random: &mut SmallRng) -> Self {
        Self {
            hot: [0, 2, 6, 20][random.random_range(0..4)],
            changes: [5, 15, 50][random.random_range(0..3)],
            forks: random.random_ratio(1, 3),
        }
    }
}

impl Operation {
    /// Any operation.
    pub(crate) fn draw(random: &mut SmallRng, habits: Habits) -> Self {
        let is_hot = habits.hot > 0 && random.random_ratio(3, 4);
        let at = random.random_range(0..if is_hot { habits.hot } else { 1 << 16 });
        let count = random.random_range(1..24);
        let value = random.random_range(0..1 << 20);
        if random.random_range(0..100) >= habits.changes {
            return match random.random_range(0..16) {
                0..7 => Self::Read { at, count: if random.random_ratio(1, 4) { count } else { 1 } },
                7..12 => Self::Write { at, value },
                12..15 => Self::Fill { at, count, value },
                _ => Self::Rest { time_us: random.random_range(1..3000) },
            };
        }
        match random.random_range(0..16) {
            0..4 => Self::Map { count: 16 + count },
            4 => Self::Guard { at, count },
            5..8 => Self::Unmap { at, count: if random.random_ratio(1, 2) { count } else { 1 << 10 } },
            8..12 => Self::Discard { at, count },
            12..14 => Self::Move { at },
            _ if habits.forks => Self::Fork { value },
            _ => Self::Discard { at, count },
        }
    }
}

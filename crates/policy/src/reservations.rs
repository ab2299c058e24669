//! Which resident pages give their entries back when the partition fills (Canvas §5.1).
//!
//! The entry of a resident page is room spent to save work: its next eviction needs no allocation, and no
//! write if the page is clean. Past three quarters of the partition Canvas takes that room from *hot* pages
//! first: they stay local for long, so they miss it least. It scans the head of the active list again and
//! again; a page is hot if consecutive scans meet it there.
//!
//! Here the victim policy stands for that list: a page is hot in a scan if the policy says so of its word.
//! What the policy says changes only when a page leaves and comes back, so a page that has been resident
//! since before the previous scan was hot in that one too, and nothing needs to be noted about single pages.
//!
//! When the store takes no page at all, every reservation goes: a page that must leave needs the room more
//! than a page that stays, and otherwise nothing could move any more.

use farmem_page::{AgeStamp, ByteCount, PageCount, PageWord};

use crate::VictimPolicy;

/// Part of the partition, in percent, past which hot pages lose their reservations (Canvas §5.1).
pub const RESERVED_PERCENT: u64 = 75;

/// How much room is wanted back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Pressure {
    /// None: there is enough.
    Low,
    /// The partition is more than three quarters full: that of hot pages.
    High,
    /// The store takes nothing any more: that of all pages.
    Full,
}

/// What a partition holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Partition {
    /// What all stored pages take, reservations among them.
    pub stored: ByteCount,
    /// How many they are.
    pub stored_pages: PageCount,
    /// What they may take.
    pub limit: ByteCount,
}

impl Partition {
    /// How many of the pages, at their average size, are beyond three quarters of the limit.
    pub const fn surplus(self) -> PageCount {
        if self.stored.get() == 0 {
            return PageCount::ZERO;
        }
        let pages = self.stored_pages.get() as u128 * self.surplus_bytes() as u128;
        PageCount::new(pages.div_ceil(self.stored.get() as u128) as u64)
    }

    /// Bytes stored beyond three quarters of the limit.
    const fn surplus_bytes(self) -> u64 {
        // In this order: a limit may be as large as a number gets.
        let reserved =
            self.limit.get() / 100 * RESERVED_PERCENT + self.limit.get() % 100 * RESERVED_PERCENT / 100;
        self.stored.get().saturating_sub(reserved)
    }

    /// How much room is wanted back. `is_refusing` says that pages could not be stored lately.
    pub const fn pressure(self, is_refusing: bool) -> Pressure {
        if is_refusing {
            Pressure::Full
        } else if self.surplus_bytes() > 0 {
            Pressure::High
        } else {
            Pressure::Low
        }
    }
}

/// Scans of all resident pages, one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reservations {
    /// When this scan and the one before it began; `None` before there were so many.
    began: [Option<AgeStamp>; 2],
}

impl Reservations {
    /// No scan has begun yet.
    pub const fn new() -> Self {
        Self { began: [None; 2] }
    }

    /// A scan begins at `now`, by the policy's clock.
    pub const fn begin_scan(&mut self, now: AgeStamp) {
        self.began = [Some(now), self.began[0]];
    }

    /// Whether a resident page that the scan has come to gives its entry back. Never for a page whose entry
    /// is more than a reservation.
    pub fn gives_back(&self, policy: &impl VictimPolicy, pressure: Pressure, word: PageWord) -> bool {
        word.reservation().is_some()
            && match (pressure, self.began[1]) {
                (Pressure::Low, _) | (Pressure::High, None) => false,
                (Pressure::High, Some(before)) => policy.is_hot(word, before),
                (Pressure::Full, _) => true,
            }
    }
}

//! A limit of bytes per second, as one word: when what has gone will be paid for.

/// What may go at once after a pause, as time at the limit: idle time is not saved up beyond it.
const BURST_NS: u64 = 2_000_000;
/// Nothing that was let go takes longer to pay for; a word that says so is damaged, and counts as paid.
const LONGEST_NS: u64 = 10_000_000_000;

/// A limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    bytes_per_second: u64,
}

impl Rate {
    /// So many bytes in a second; `None` for 0, which is no limit.
    pub fn new(bytes_per_second: u64) -> Option<Self> {
        (bytes_per_second > 0).then_some(Self { bytes_per_second })
    }

    /// Lets a transfer go when `due_ns` is the word: the new word.
    ///
    /// # Errors
    /// It is too early, by so many nanoseconds.
    pub fn take(self, due_ns: u64, now_ns: u64, bytes: u64) -> Result<u64, u64> {
        let due_ns = Self::believable(due_ns, now_ns);
        match due_ns.saturating_sub(now_ns.saturating_add(BURST_NS)) {
            0 => Ok(self.after(due_ns, now_ns, bytes)),
            early_ns => Err(early_ns),
        }
    }

    /// The new word when a transfer goes, early or not.
    pub fn after(self, due_ns: u64, now_ns: u64, bytes: u64) -> u64 {
        Self::believable(due_ns, now_ns).max(now_ns).saturating_add(self.cost_ns(bytes))
    }

    fn believable(due_ns: u64, now_ns: u64) -> u64 {
        if due_ns > now_ns.saturating_add(LONGEST_NS) { now_ns } else { due_ns }
    }

    fn cost_ns(self, bytes: u64) -> u64 {
        let cost_ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        u64::try_from(cost_ns).unwrap_or(u64::MAX).min(LONGEST_NS / 2)
    }
}

//! What walks of one kind may still cost: along links, or through arrays.
//!
//! Pages are paid from an *allowance*, as trials of [`Streams`](crate::Streams) are: pages that were of no
//! use use it up, those that were used replenish it. Each kind has its own, so that one that misleads doesn't
//! use up the other's.

/// Pages of a first walk.
const FIRST_PAGES: u32 = 2;
/// The allowance grows by a page in so many faults, up to what it was at the start, and with what was used up
/// to its limit.
const FAULTS_PER_PAGE: i32 = 256;
const ALLOWANCE_START: i32 = 32 * FAULTS_PER_PAGE;
const ALLOWANCE_LIMIT: i32 = 128 * FAULTS_PER_PAGE;
/// A page that was of no use counts so many times: it costs more than another one saves, and a third one has
/// left for it. So six of seven must be of use.
const LOSS: i32 = 6;
/// Walks in a row that nothing was known of before one is dry.
const UNJUDGED_WALKS: u32 = 7;

/// A walk that is over, as far as it costs anything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// Pages that it has fetched.
    pub(super) pages: u32,
    /// Whether it was to fetch none, so that it could be judged.
    pub(super) is_dry: bool,
}

/// The account of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    /// In parts of a page, [`FAULTS_PER_PAGE`] of them.
    allowance: i32,
    /// Pages of the next walk.
    pages: u32,
    /// Walks in a row that nothing is known of, and what they fetched.
    unjudged: u32,
    unjudged_pages: u32,
    /// Whether the last walk that could be judged had led where the program went.
    is_proven: bool,
}

impl Account {
    pub(super) const fn new() -> Self {
        Self {
            allowance: ALLOWANCE_START,
            pages: FIRST_PAGES,
            unjudged: 0,
            unjudged_pages: 0,
            is_proven: false,
        }
    }

    /// Another fault.
    pub(super) fn grow(&mut self) {
        if self.allowance < ALLOWANCE_START {
            self.allowance += 1;
        }
    }

    /// Whether there is enough for a page, `faults` faults from now.
    pub(super) fn is_enough_in(&self, faults: i32) -> bool {
        self.allowance >= FAULTS_PER_PAGE - faults
    }

    /// Pages that the next walk may fetch: none if it is to be dry.
    pub(super) fn most(&self) -> u32 {
        if self.unjudged >= UNJUDGED_WALKS {
            return 0;
        }
        self.pages.min((self.allowance / FAULTS_PER_PAGE) as u32)
    }

    /// A walk is over, and `has_led` where the program went, or has not, if that is known. Whether it was
    /// worth its time: what isn't known is taken for what the last one was of which it is.
    pub(super) fn judge(&mut self, cost: Cost, has_led: Option<bool>) -> bool {
        let part = |pages: u32| pages as i32 * FAULTS_PER_PAGE;
        let (fetched, owed) = (part(cost.pages), part(self.unjudged_pages));
        let Some(has_led) = has_led else {
            self.unjudged += 1;
            self.unjudged_pages += cost.pages;
            return self.is_proven;
        };
        if has_led {
            let earned = if cost.is_dry { owed.max(FAULTS_PER_PAGE) } else { fetched };
            self.allowance = (self.allowance + earned).min(ALLOWANCE_LIMIT);
            if !cost.is_dry {
                self.pages = (self.pages * 2).min(super::MOST_PAGES as u32);
            }
        } else {
            let lost = if cost.is_dry { owed } else { fetched };
            self.allowance = (self.allowance - LOSS * lost).max(0);
            self.pages = (self.pages / 2).max(1);
        }
        (self.unjudged, self.unjudged_pages) = (0, 0);
        self.is_proven = has_led;
        has_led
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FETCHED: Cost = Cost { pages: 1, is_dry: false };
    const DRY: Cost = Cost { pages: 0, is_dry: true };

    #[test]
    fn walks_that_mislead_use_it_up_and_time_brings_it_back() {
        let mut account = Account::new();
        let mut fetched = 0;
        while account.most() > 0 {
            let pages = account.most();
            fetched += pages;
            assert!(!account.judge(Cost { pages, is_dry: false }, Some(false)));
        }
        assert_eq!(fetched, 32_u32.div_ceil(LOSS as u32));
        (0..FAULTS_PER_PAGE).for_each(|_| account.grow());
        assert_eq!(account.most(), 1);
    }

    #[test]
    fn what_nothing_is_known_of_is_judged_by_a_dry_walk() {
        for has_led in [true, false] {
            let mut account = Account::new();
            for _ in 0..UNJUDGED_WALKS {
                assert!(account.most() > 0);
                assert!(!account.judge(FETCHED, None));
            }
            assert_eq!(account.most(), 0);
            assert_eq!(account.judge(DRY, Some(has_led)), has_led);
            let before = ALLOWANCE_START;
            let owed = UNJUDGED_WALKS as i32 * FAULTS_PER_PAGE;
            assert_eq!(
                account.allowance,
                if has_led { before + owed } else { (before - LOSS * owed).max(0) }
            );
            account.allowance = before;
            assert!(account.most() > 0);
            assert_eq!(account.judge(FETCHED, None), has_led, "the last verdict counts");
        }
    }
}

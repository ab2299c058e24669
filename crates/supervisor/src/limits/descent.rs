//! A program that was attached to has more than its budget, perhaps by far. Its budget falls to what it is to
//! be at a bounded pace, so that faults need not wait until all that is too much has left.

use std::time::{Duration, Instant};

use farmem_page::PageCount;
use farmem_telemetry::Ledger;

/// Pages that leave in a second at most: 256 MiB.
const PAGES_PER_SECOND: f64 = 65536.0;
/// After a pause the budget falls by no more than in this time.
const LONGEST_STEP: Duration = Duration::from_millis(40);

/// The budget on its way down.
#[derive(Debug)]
pub(super) struct Descent {
    wanted: PageCount,
    /// What was set last: anything else was set by somebody else, whose word counts.
    set: PageCount,
    last: Instant,
}

impl Descent {
    /// From what the application has to its budget; `None` where that is enough.
    pub(super) fn begin(ledger: Ledger<'_>, resident: PageCount) -> Option<Self> {
        let wanted = ledger.budget();
        if resident <= wanted {
            return None;
        }
        ledger.set_budget(resident);
        Some(Self { wanted, set: resident, last: Instant::now() })
    }

    /// One step. `false` when there is no further one.
    pub(super) fn step(&mut self, ledger: Ledger<'_>, resident: PageCount) -> bool {
        self.step_after(self.last.elapsed(), ledger, resident)
    }

    fn step_after(&mut self, passed: Duration, ledger: Ledger<'_>, resident: PageCount) -> bool {
        if ledger.budget() != self.set {
            return false;
        }
        self.last = Instant::now();
        let pages = (passed.min(LONGEST_STEP).as_secs_f64() * PAGES_PER_SECOND) as u64;
        // No further ahead of what has left than by a step.
        let next = self.set.min(resident).saturating_sub(PageCount::new(pages)).max(self.wanted);
        ledger.set_budget(next);
        self.set = next;
        next > self.wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::Application;

    #[test]
    fn a_budget_falls_no_faster_than_pages_leave_and_ends_where_it_should() {
        let ledger = Application::for_test().ledger;
        ledger.set_budget(PageCount::new(1000));
        assert!(Descent::begin(ledger, PageCount::new(1000)).is_none());
        let mut descent = Descent::begin(ledger, PageCount::new(9000)).expect("there is too much");
        let step = Duration::from_millis(10);

        assert!(descent.step_after(step, ledger, PageCount::new(9000)));
        assert_eq!(ledger.budget(), PageCount::new(9000 - 655));
        assert!(descent.step_after(Duration::from_secs(9), ledger, PageCount::new(8900)));
        assert_eq!(ledger.budget(), PageCount::new(9000 - 655 - 2621));
        assert!(!descent.step_after(step, ledger, PageCount::new(1200)));
        assert_eq!(ledger.budget(), PageCount::new(1000));
    }

    #[test]
    fn whoever_sets_another_budget_ends_it() {
        let ledger = Application::for_test().ledger;
        ledger.set_budget(PageCount::new(1000));
        let mut descent = Descent::begin(ledger, PageCount::new(9000)).expect("there is too much");
        ledger.set_budget(PageCount::new(3000));
        assert!(!descent.step(ledger, PageCount::new(9000)));
        assert_eq!(ledger.budget(), PageCount::new(3000));
    }
}

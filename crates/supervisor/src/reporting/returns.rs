//! Which pages have come back, as far as that says what another budget would do.

use farmem_page::PageCount;
use farmem_policy::absence::Absences;

/// A budget that differs by more than this part is another one: what happened under the former says nothing
/// of it.
const ANOTHER: f64 = 0.125;

/// What has happened under the present budget.
#[derive(Debug)]
pub(crate) struct Returns {
    budget: PageCount,
    before: Absences,
}

impl Returns {
    pub(crate) fn new(budget: PageCount, now: Absences) -> Self {
        Self { budget, before: now }
    }

    /// Begins again if the budget has become another one. `now` is all that has happened so far.
    pub(crate) fn follow(&mut self, budget: PageCount, now: impl FnOnce() -> Absences) {
        let change = budget.get() as f64 / self.budget.get().max(1) as f64 - 1.0;
        if change.abs() > ANOTHER {
            *self = Self::new(budget, now());
        }
    }

    /// The part of `now` that happened under the present budget.
    pub(crate) fn under_budget(&self, now: &Absences) -> Absences {
        now.since(&self.before)
    }
}

#[cfg(test)]
mod tests {
    use farmem_policy::absence::BUCKETS;

    use super::*;

    #[test]
    fn only_another_budget_begins_anew() {
        let all = |count| Absences::new([count; BUCKETS], count);
        let mut returns = Returns::new(PageCount::new(1000), all(0));
        returns.follow(PageCount::new(1100), || all(10));
        assert_eq!(returns.under_budget(&all(20)), all(20));
        returns.follow(PageCount::new(1200), || all(20));
        assert_eq!(returns.under_budget(&all(50)), all(30));
    }
}

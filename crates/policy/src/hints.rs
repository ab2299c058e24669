//! How much of its local memory a program may decide about by itself.

use farmem_page::PageCount;

/// Pages that an application may pin, of a budget: the rest must be enough for everything else, and for pages
/// on their way.
pub const fn most_pinned(budget: PageCount) -> PageCount {
    PageCount::new(budget.get() - budget.get().div_ceil(4))
}

/// Pages that one piece of advice may bring in, of a process's limit. More would push each other out before
/// they are used.
pub const fn most_hinted(limit: PageCount) -> PageCount {
    PageCount::new(limit.get() / 2)
}

/// Pages that one of an application's processes unpins when all together have pinned `total` and may pin
/// `most`: in proportion to what it has pinned.
pub fn to_give_up(own: PageCount, total: PageCount, most: PageCount) -> PageCount {
    let over = u128::from(total.saturating_sub(most).get());
    let total = u128::from(total.get()).max(1);
    PageCount::new((over * u128::from(own.get())).div_ceil(total) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_any_budget_is_never_pinned() {
        for budget in [1, 2, 3, 4, 5, 4096, u64::MAX / 8] {
            assert!(most_pinned(PageCount::new(budget)).get() <= budget / 4 * 3 + budget % 4);
            assert!(most_pinned(PageCount::new(budget)).get() < budget);
        }
    }

    #[test]
    fn what_is_too_much_is_given_up_by_all_together() {
        let [own, other, most] = [30, 71, 50].map(PageCount::new);
        let total = PageCount::new(own.get() + other.get());
        let given_up = to_give_up(own, total, most).get() + to_give_up(other, total, most).get();
        assert!((51..=52).contains(&given_up), "{given_up}");
        assert_eq!(to_give_up(own, most, most), PageCount::ZERO);
        assert_eq!(to_give_up(PageCount::ZERO, total, most), PageCount::ZERO);
    }
}

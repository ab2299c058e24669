//! What the broker knows: what each space was promised, is leased, and may still hold. No socket and no
//! clock: time and messages come in, leases go out.
//!
//! Invariants, for slabs of the pool and, where the host has a total of it, for pages of local memory:
//! 1. A space is *charged* with what it may hold at this moment: the largest of its lease and of what it held
//!    when the lease became smaller, until it has confirmed that it holds less.
//! 2. All charges together are no more than there is, but for the *excess*: slabs that spaces brought with
//!    them and of which nobody had so many to give. They are charged with these, too, and give them back
//!    first; until then nothing is free. So what honest spaces hold is no more than there is, and than they
//!    brought.
//! 3. Until `settled_at` nothing is leased beyond what spaces bring with them: those that an earlier broker
//!    has left may still come.

use std::time::Duration;

use farmem_page::ByteCount;
use farmem_policy::leases::{Claim, can_guarantee, divide};
use farmem_wire::host::{Holding, LEASED_SLAB_BYTES, RefusalReason, Terms};

/// Slabs that every space is promised: what the classes of its pages need to be told apart at all.
pub const LEAST_SLABS: u64 = 8;
/// The same in bytes: 2 MiB.
pub const LEAST_POOL: ByteCount = ByteCount::new(LEAST_SLABS * LEASED_SLAB_BYTES);
/// Pages that no space's budget falls below (1 MiB).
const LEAST_PAGES: u64 = 256;
/// Slabs that a space's processes may have claimed at the moment at which they learn that they mustn't.
const SLACK_SLABS: u64 = 16;
/// Most spaces at a time.
const MOST_SPACES: usize = 1024;
/// A space that has moved no page for so long is idle.
const IDLE: Duration = Duration::from_secs(10);
/// A space that is to give something back, and for so long has given nothing, is dropped.
const OVERDUE: Duration = Duration::from_secs(30);

/// A space, for as long as it is attached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SpaceId(u64);

/// Slabs and pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amounts {
    /// Of the pool.
    pub slabs: u64,
    /// Of local memory.
    pub pages: u64,
}

/// What a space may hold from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Grows from one lease of the space to the next.
    pub serial: u64,
    /// How much.
    pub amounts: Amounts,
}

/// Terms can't be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// What is short.
    pub reason: RefusalReason,
    /// How much of it could be had: slabs or pages.
    pub most: u64,
}

/// A report says what no honest space says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// It knows a lease that it was never given.
    #[error("it confirms a lease that it was never given")]
    UnknownLease,
    /// It holds more than it may.
    #[error("it holds {held} slabs, and may hold {charged}")]
    OverHeld {
        /// What it says.
        held: u64,
        /// What it may hold at most.
        charged: u64,
    },
    /// It doesn't give back what it must.
    #[error("it has given back nothing for {} seconds", OVERDUE.as_secs())]
    Overdue,
}

#[derive(Clone, Copy, Debug)]
struct Space {
    id: SpaceId,
    terms: Terms,
    holding: Holding,
    moved_pages: u64,
    moved_at: Duration,
    lease: Lease,
    charged: Amounts,
    /// Slabs of those that it brought, and that nobody had to give.
    excess_slabs: u64,
    /// Since when it has been charged with more slabs than its lease, and has not got closer to it.
    owing_since: Option<Duration>,
}

/// The table of leases.
#[derive(Clone, Debug)]
pub struct LeaseTable {
    pool_slabs: u64,
    /// All local memory of the spaces; without it, the sum of what they own.
    local_pages: Option<u64>,
    settled_at: Duration,
    spaces: Vec<Space>,
    next: u64,
}

impl LeaseTable {
    /// An empty table for a host with so much to give. Until `settled_at` nothing is leased; see invariant 3.
    pub fn new(pool_slabs: u64, local_pages: Option<u64>, settled_at: Duration) -> Self {
        Self { pool_slabs, local_pages, settled_at, spaces: Vec::new(), next: 0 }
    }

    /// A space comes, with what it says that it holds already, and how much of its pool could move to a disk.
    /// It keeps that as far as so much is there; slabs beyond that it is to give back, as if they had been
    /// leased.
    ///
    /// # Errors
    /// What it asks for is not there.
    pub fn attach(
        &mut self,
        now: Duration,
        terms: Terms,
        held: Amounts,
        movable_slabs: u64,
    ) -> Result<SpaceId, Refusal> {
        if self.spaces.len() >= MOST_SPACES {
            return Err(Refusal { reason: RefusalReason::Spaces, most: 0 });
        }
        self.check(None, &terms)?;
        let free = self.free();
        let charged = Amounts { slabs: held.slabs, pages: held.pages.min(free.pages) };
        let id = SpaceId(self.next);
        self.next += 1;
        self.spaces.push(Space {
            id,
            terms,
            holding: Holding {
                pool_held: charged.slabs,
                pool_used: charged.slabs,
                pool_needed: charged.slabs,
                pool_wanted: charged.slabs,
                pool_movable: movable_slabs,
                local_held: held.pages,
                local_needed: terms.local_own,
                local_wanted: terms.local_own,
            },
            moved_pages: 0,
            moved_at: now,
            lease: Lease { serial: 0, amounts: charged },
            charged,
            excess_slabs: held.slabs.saturating_sub(free.slabs),
            owing_since: None,
        });
        Ok(id)
    }

    /// A space wants other terms.
    ///
    /// # Errors
    /// They can't be had; the old ones stay.
    pub fn change(&mut self, id: SpaceId, terms: Terms) -> Result<(), Refusal> {
        self.check(Some(id), &terms)?;
        if let Some(space) = self.space(id) {
            space.terms = terms;
        }
        Ok(())
    }

    /// A space says how it is.
    ///
    /// # Errors
    /// It is not honest, and should be dropped.
    pub fn report(
        &mut self,
        now: Duration,
        id: SpaceId,
        serial: u64,
        holding: Holding,
        moved_pages: u64,
    ) -> Result<(), Violation> {
        let Some(space) = self.space(id) else { return Ok(()) };
        if serial > space.lease.serial {
            return Err(Violation::UnknownLease);
        }
        if holding.pool_held > space.charged.slabs + SLACK_SLABS {
            return Err(Violation::OverHeld { held: holding.pool_held, charged: space.charged.slabs });
        }
        if serial == space.lease.serial {
            let Lease { amounts: lease, .. } = space.lease;
            let charged = Amounts {
                slabs: holding.pool_held.min(space.charged.slabs).max(lease.slabs),
                // Resident memory hovers about its limit.
                pages: holding.local_held.clamp(lease.pages, space.charged.pages.max(lease.pages)),
            };
            space.owing_since = match space.owing_since {
                _ if charged.slabs == lease.slabs => None,
                Some(since) if charged.slabs == space.charged.slabs => Some(since),
                _ => Some(now),
            };
            let given_slabs = space.charged.slabs.saturating_sub(charged.slabs);
            space.excess_slabs = space.excess_slabs.saturating_sub(given_slabs);
            space.charged = charged;
        }
        if moved_pages != space.moved_pages {
            space.moved_at = now;
        }
        space.moved_pages = moved_pages;
        space.holding = holding;
        Ok(())
    }

    /// A space has gone, and all that it held with it.
    pub fn leave(&mut self, id: SpaceId) {
        self.spaces.retain(|space| space.id != id);
    }

    /// The leases that are to be sent now.
    pub fn leases(&mut self, now: Duration) -> Vec<(SpaceId, Lease)> {
        let slabs = self.shares(self.pool_slabs, |space| space.pool_claim(now));
        let pages = self.shares(self.local_total(), |space| space.local_claim(now));
        let wanted: Vec<Amounts> =
            slabs.into_iter().zip(pages).map(|(slabs, pages)| Amounts { slabs, pages }).collect();
        let mut new: Vec<Amounts> = self
            .spaces
            .iter()
            .zip(&wanted)
            .map(|(space, share)| Amounts {
                slabs: share.slabs.min(space.charged.slabs),
                pages: share.pages.min(space.charged.pages),
            })
            .collect();
        if now >= self.settled_at {
            self.raise(&wanted, &mut new);
        }
        let mut leases = Vec::new();
        for (space, amounts) in self.spaces.iter_mut().zip(new) {
            if amounts == space.lease.amounts {
                continue;
            }
            space.lease = Lease { serial: space.lease.serial + 1, amounts };
            space.charged.slabs = space.charged.slabs.max(amounts.slabs);
            space.charged.pages = space.charged.pages.max(amounts.pages);
            space.owing_since =
                (space.charged.slabs > amounts.slabs).then(|| space.owing_since.unwrap_or(now));
            leases.push((space.id, space.lease));
        }
        leases
    }

    /// Gives what is free to those who shall have more: guarantees first, then who has least for their
    /// weight.
    fn raise(&self, wanted: &[Amounts], new: &mut [Amounts]) {
        let mut free = self.free();
        let mut order: Vec<usize> = (0..new.len()).collect();
        order.sort_by_key(|&at| {
            new[at].slabs.saturating_mul(1000) / u64::from(self.spaces[at].terms.weight.max(1))
        });
        // What a space is charged with anyway costs nothing.
        let raised = |now: u64, upto: u64, charged: u64, free: &mut u64| {
            let paid = now.max(charged);
            let more = upto.saturating_sub(paid).min(*free);
            *free -= more;
            now.max(upto.min(paid + more))
        };
        let mut give = |at: usize, upto: Amounts| {
            let charged = self.spaces[at].charged;
            new[at].slabs = raised(new[at].slabs, upto.slabs, charged.slabs, &mut free.slabs);
            new[at].pages = raised(new[at].pages, upto.pages, charged.pages, &mut free.pages);
        };
        for &at in &order {
            let terms = &self.spaces[at].terms;
            let Amounts { slabs, pages } = wanted[at];
            give(
                at,
                Amounts { slabs: slabs.min(terms.guaranteed_slabs()), pages: pages.min(terms.local_own) },
            );
        }
        for &at in &order {
            give(at, wanted[at]);
        }
    }

    /// The spaces that have long owed what they must give back.
    pub fn overdue(&self, now: Duration) -> Vec<SpaceId> {
        let is_overdue =
            |space: &&Space| space.owing_since.is_some_and(|since| now.saturating_sub(since) > OVERDUE);
        self.spaces.iter().filter(is_overdue).map(|space| space.id).collect()
    }

    /// What nobody is charged with.
    pub fn free(&self) -> Amounts {
        let slabs: u64 = self.spaces.iter().map(|space| space.charged.slabs).sum();
        let pages: u64 = self.spaces.iter().map(|space| space.charged.pages).sum();
        Amounts {
            slabs: self.pool_slabs.saturating_sub(slabs),
            pages: self.local_total().saturating_sub(pages),
        }
    }

    /// What a space is charged with.
    pub fn charged(&self, id: SpaceId) -> Option<Amounts> {
        self.spaces.iter().find(|space| space.id == id).map(|space| space.charged)
    }

    fn local_total(&self) -> u64 {
        self.local_pages.unwrap_or_else(|| self.spaces.iter().map(|space| space.terms.local_own).sum())
    }

    fn space(&mut self, id: SpaceId) -> Option<&mut Space> {
        self.spaces.iter_mut().find(|space| space.id == id)
    }

    /// Whether such terms can be had, by a newcomer or by somebody who is there.
    fn check(&self, whose: Option<SpaceId>, terms: &Terms) -> Result<(), Refusal> {
        let others = || self.spaces.iter().filter(|space| Some(space.id) != whose);
        let now = self.spaces.iter().map(|space| space.moved_at).max().unwrap_or_default();
        let pool: Vec<Claim> = others().map(|space| space.pool_claim(now)).collect();
        let refuse = |reason, total: u64, claims: &[Claim]| {
            let firm: u64 = claims.iter().map(|claim| claim.guaranteed.max(claim.kept)).sum();
            Err(Refusal { reason, most: total.saturating_sub(firm) })
        };
        if !can_guarantee(self.pool_slabs, &pool, terms.guaranteed_slabs()) {
            return refuse(RefusalReason::Pool, self.pool_slabs, &pool);
        }
        let Some(local_pages) = self.local_pages else { return Ok(()) };
        let local: Vec<Claim> = others().map(|space| space.local_claim(now)).collect();
        if !can_guarantee(local_pages, &local, terms.local_own) {
            return refuse(RefusalReason::Local, local_pages, &local);
        }
        Ok(())
    }

    fn shares(&self, total: u64, claim: impl Fn(&Space) -> Claim) -> Vec<u64> {
        let claims: Vec<Claim> = self.spaces.iter().map(claim).collect();
        let mut shares = vec![0; claims.len()];
        divide(total, &claims, &mut shares);
        shares
    }
}

/// What follows from terms.
trait Promised {
    fn guaranteed_slabs(&self) -> u64;
    fn most_slabs(&self) -> u64;
}

impl Promised for Terms {
    fn guaranteed_slabs(&self) -> u64 {
        self.pool_guaranteed.max(LEAST_SLABS).min(self.most_slabs())
    }
    fn most_slabs(&self) -> u64 {
        self.pool_most.max(1)
    }
}

impl Space {
    fn is_idle(&self, now: Duration) -> bool {
        now.saturating_sub(self.moved_at) > IDLE
    }

    fn pool_claim(&self, now: Duration) -> Claim {
        let most = self.terms.most_slabs();
        let guaranteed = self.terms.guaranteed_slabs();
        let wanted = self.holding.pool_wanted.max(guaranteed.min(LEAST_SLABS)).min(most);
        Claim {
            weight: self.terms.weight,
            guaranteed,
            // Nobody holds more than they are charged with, whatever they say; and what they brought is kept
            // only where it was there.
            kept: self
                .holding
                .pool_used
                .saturating_sub(self.holding.pool_movable)
                .min(self.charged.slabs.saturating_sub(self.excess_slabs)),
            needed: self.holding.pool_needed.min(most),
            wanted,
            is_idle: self.is_idle(now),
            is_elastic: self.holding.pool_movable >= wanted,
        }
    }

    fn local_claim(&self, now: Duration) -> Claim {
        let Terms { weight, local_own, borrows, .. } = self.terms;
        let (needed, wanted) = if borrows {
            (self.holding.local_needed.max(LEAST_PAGES), self.holding.local_wanted.max(LEAST_PAGES))
        } else {
            (local_own, local_own)
        };
        // A budget can always be given back: pages go to far memory.
        Claim {
            weight,
            guaranteed: local_own,
            kept: 0,
            needed,
            wanted,
            is_idle: self.is_idle(now),
            is_elastic: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Duration = Duration::ZERO;
    const LATER: Duration = Duration::from_secs(1);

    fn terms(weight: u32, pool_guaranteed: u64, pool_most: u64) -> Terms {
        Terms { weight, pool_guaranteed, pool_most, local_own: 1000, borrows: true }
    }

    /// Wants `wanted` slabs, uses `used`, and has a disk for all of them.
    fn holding(held: u64, used: u64, wanted: u64) -> Holding {
        Holding {
            pool_held: held,
            pool_used: used,
            pool_needed: used,
            pool_wanted: wanted.max(used),
            pool_movable: 1 << 20,
            local_held: 0,
            local_needed: 1000,
            local_wanted: 1000,
        }
    }

    fn lease_of(leases: &[(SpaceId, Lease)], id: SpaceId) -> Lease {
        leases.iter().find(|(space, _)| *space == id).expect("a lease for that space").1
    }

    #[test]
    fn slabs_are_leased_to_another_only_when_the_first_has_confirmed() {
        let mut table = LeaseTable::new(100, None, START);
        let one = table.attach(START, terms(1, 0, 100), Amounts::default(), 0).unwrap();
        table.report(START, one, 0, holding(0, 0, 100), 1).unwrap();
        let first = lease_of(&table.leases(START), one);
        assert_eq!(first.amounts.slabs, 100);

        let two = table.attach(LATER, terms(1, 0, 100), Amounts::default(), 0).unwrap();
        table.report(LATER, one, first.serial, holding(100, 100, 100), 2).unwrap();
        table.report(LATER, two, 0, holding(0, 100, 100), 2).unwrap();
        let leases = table.leases(LATER);
        let second = lease_of(&leases, one);
        assert_eq!(second.amounts.slabs, 50);
        assert_eq!(table.free().slabs, 0, "nothing is free before it is confirmed");

        table.report(LATER, one, second.serial, holding(80, 80, 100), 3).unwrap();
        assert_eq!(lease_of(&table.leases(LATER), two).amounts.slabs, 20);
        table.report(LATER, one, second.serial, holding(50, 50, 100), 4).unwrap();
        assert_eq!(lease_of(&table.leases(LATER), two).amounts.slabs, 50);
    }

    #[test]
    fn what_a_space_held_is_free_when_it_has_gone() {
        let mut table = LeaseTable::new(100, None, START);
        let one = table.attach(START, terms(1, 0, 100), Amounts::default(), 0).unwrap();
        table.report(START, one, 0, holding(0, 0, 100), 1).unwrap();
        table.leases(START);
        table.leave(one);
        assert_eq!(table.free(), Amounts { slabs: 100, pages: 0 });
    }

    #[test]
    fn a_promise_that_cannot_be_kept_is_not_made() {
        let mut table = LeaseTable::new(100, Some(1500), START);
        let one = table.attach(START, terms(1, 60, 100), Amounts::default(), 0).unwrap();
        let refusal = table.attach(START, terms(1, 60, 100), Amounts::default(), 0).unwrap_err();
        assert_eq!(refusal, Refusal { reason: RefusalReason::Pool, most: 40 });
        let refusal = table.attach(START, terms(1, 40, 100), Amounts::default(), 0).unwrap_err();
        assert_eq!(refusal, Refusal { reason: RefusalReason::Local, most: 500 });
        assert!(table.change(one, terms(1, 101, 101)).is_err());
        assert_eq!(table.change(one, terms(1, 100, 100)), Ok(()));
    }

    #[test]
    fn a_new_broker_first_hears_what_spaces_hold() {
        let mut table = LeaseTable::new(100, None, LATER);
        let hasty = table.attach(START, terms(1, 0, 100), Amounts::default(), 0).unwrap();
        table.report(START, hasty, 0, holding(0, 0, 100), 1).unwrap();
        assert_eq!(table.leases(START), [], "those of before may still come");
        let old = table.attach(START, terms(1, 0, 100), Amounts { slabs: 90, pages: 0 }, 0).unwrap();
        table.leases(LATER);
        assert_eq!(table.charged(old).unwrap().slabs, 90);
        assert_eq!(table.charged(hasty).unwrap().slabs, 10);
    }

    #[test]
    fn spaces_that_bring_more_than_there_is_give_it_back() {
        let mut table = LeaseTable::new(100, None, START);
        let bring = |table: &mut LeaseTable| {
            table.attach(START, terms(1, 0, 100), Amounts { slabs: 90, pages: 0 }, 90).unwrap()
        };
        let spaces = [bring(&mut table), bring(&mut table)];
        let mut known = [Lease { serial: 0, amounts: Amounts { slabs: 90, pages: 0 } }; 2];
        for _ in 0..3 {
            for (id, lease) in spaces.iter().zip(&known) {
                let held = lease.amounts.slabs;
                assert_eq!(table.report(START, *id, lease.serial, holding(held, held, 90), 1), Ok(()));
            }
            for (id, lease) in table.leases(START) {
                known[spaces.iter().position(|space| *space == id).unwrap()] = lease;
            }
        }
        assert_eq!(known.map(|lease| lease.amounts.slabs), [50, 50]);
        assert_eq!(spaces.map(|id| table.charged(id).unwrap().slabs), [50, 50]);
    }

    #[test]
    fn who_brings_more_than_there_is_and_cannot_give_it_back_costs_others_nothing_they_have() {
        let mut table = LeaseTable::new(100, None, START);
        let full = |held| Holding { pool_movable: 0, ..holding(held, held, held) };
        let one = table.attach(START, terms(1, 0, 100), Amounts { slabs: 90, pages: 0 }, 0).unwrap();
        let two = table.attach(START, terms(1, 0, 100), Amounts { slabs: 90, pages: 0 }, 0).unwrap();
        table.report(START, one, 0, full(90), 1).unwrap();
        table.report(START, two, 0, full(90), 1).unwrap();
        let leases = table.leases(START);
        assert_eq!(lease_of(&leases, one).amounts.slabs, 90);
        assert_eq!(lease_of(&leases, two).amounts.slabs, 10);
        table.report(LATER, two, 1, full(90), 1).unwrap();
        assert_eq!(table.overdue(START + OVERDUE + LATER), [two]);
    }

    #[test]
    fn what_no_honest_space_says_is_a_violation() {
        let mut table = LeaseTable::new(100, None, START);
        let one = table.attach(START, terms(1, 0, 100), Amounts::default(), 0).unwrap();
        assert_eq!(table.report(START, one, 1, holding(0, 0, 5), 1), Err(Violation::UnknownLease));
        let over = Violation::OverHeld { held: 17, charged: 0 };
        assert_eq!(table.report(START, one, 0, holding(17, 1, 5), 1), Err(over));
        assert_eq!(table.report(START, one, 0, holding(16, 1, 5), 1), Ok(()));
    }

    #[test]
    fn who_gives_nothing_back_is_overdue_in_the_end() {
        let mut table = LeaseTable::new(100, None, START);
        let one = table.attach(START, terms(1, 0, 100), Amounts::default(), 0).unwrap();
        table.report(START, one, 0, holding(0, 0, 100), 1).unwrap();
        let first = lease_of(&table.leases(START), one);
        table.report(START, one, first.serial, holding(100, 100, 100), 1).unwrap();
        let two = table.attach(START, terms(1, 50, 100), Amounts::default(), 0).unwrap();
        table.report(START, two, 0, holding(0, 60, 60), 1).unwrap();
        table.leases(START);
        assert_eq!(table.overdue(OVERDUE), []);
        assert_eq!(table.overdue(OVERDUE + LATER), [one]);
    }

    #[test]
    fn local_memory_that_its_owner_does_not_use_is_lent_and_given_back() {
        let mut table = LeaseTable::new(100, None, START);
        let attach =
            |table: &mut LeaseTable| table.attach(START, terms(1, 0, 50), Amounts::default(), 0).unwrap();
        let (owner, borrower) = (attach(&mut table), attach(&mut table));
        let with_local = |held, wanted| Holding {
            local_held: held,
            local_needed: wanted,
            local_wanted: wanted,
            ..holding(0, 0, 0)
        };
        let first = table.leases(START);
        let (of_owner, of_borrower) = (lease_of(&first, owner), lease_of(&first, borrower));
        assert_eq!((of_owner.amounts.pages, of_borrower.amounts.pages), (1000, 1000));

        table.report(LATER, owner, of_owner.serial, with_local(300, 300), 1).unwrap();
        table.report(LATER, borrower, of_borrower.serial, with_local(1000, 5000), 1).unwrap();
        let second = table.leases(LATER);
        let of_owner = lease_of(&second, owner);
        table.report(LATER, owner, of_owner.serial, with_local(300, 300), 1).unwrap();
        let third = table.leases(LATER);
        let latest = second.iter().chain(&third).rfind(|(id, _)| *id == borrower).unwrap().1;
        assert_eq!(latest.amounts.pages, 1700);

        table.report(LATER, borrower, latest.serial, with_local(1700, 5000), 1).unwrap();
        table.report(LATER, owner, of_owner.serial, with_local(300, 1000), 1).unwrap();
        let asked_back = lease_of(&table.leases(LATER), borrower);
        assert_eq!(asked_back.amounts.pages, 1000);
        table.report(LATER, borrower, asked_back.serial, with_local(1000, 5000), 1).unwrap();
        assert_eq!(lease_of(&table.leases(LATER), owner).amounts.pages, 1000);
    }

    /// A space that does what it is told, a message late.
    struct Honest {
        id: SpaceId,
        known: Lease,
        used: u64,
        held: u64,
    }

    #[derive(Clone, Debug)]
    enum Step {
        Come { guaranteed: u64, weight: u32, held: u64 },
        Go { which: usize },
        Use { which: usize, slabs: u64 },
        Lie { which: usize, held: u64, serial: u64 },
        Restart,
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => (0_u64..60, 1_u32..5, prop_oneof![2 => Just(0), 1 => 0..2 * TOTAL])
                .prop_map(|(guaranteed, weight, held)| Step::Come { guaranteed, weight, held }),
            1 => any::<usize>().prop_map(|which| Step::Go { which }),
            6 => (any::<usize>(), 0_u64..250).prop_map(|(which, slabs)| Step::Use { which, slabs }),
            1 => (any::<usize>(), 0_u64..500, 0_u64..9).prop_map(|(which, held, serial)| Step::Lie { which, held, serial }),
            1 => Just(Step::Restart),
        ]
    }

    const TOTAL: u64 = 200;

    /// Leases go out, each space obeys and reports, until nobody has anything to say.
    fn converge(table: &mut LeaseTable, spaces: &mut [Honest], now: Duration) {
        let charged = |table: &LeaseTable| table.spaces.iter().map(|space| space.charged.slabs).sum::<u64>();
        // What they brought they may still hold, and nothing is leased to anybody meanwhile.
        let mut most = charged(table).max(TOTAL);
        for _ in 0..20 {
            for space in spaces.iter_mut() {
                // All of them have a disk: what is not leased any more leaves the pool.
                space.held = space.known.amounts.slabs;
                let used = space.used.min(space.held);
                let report =
                    Holding { pool_needed: space.used, ..holding(space.held, used, space.used + 10) };
                table.report(now, space.id, space.known.serial, report, now.as_nanos() as u64).unwrap();
            }
            let leases = table.leases(now);
            assert!(charged(table) <= most, "more than was brought");
            most = charged(table).max(TOTAL);
            if leases.is_empty() {
                assert!(charged(table) <= TOTAL);
                return;
            }
            for (id, lease) in leases {
                if let Some(space) = spaces.iter_mut().find(|space| space.id == id) {
                    space.known = lease;
                    space.held = space.held.max(lease.amounts.slabs);
                }
            }
            let held: u64 = spaces.iter().map(|space| space.held).sum();
            assert!(held <= most, "more is held than there is");
        }
        panic!("leases go back and forth");
    }

    proptest! {
        #[test]
        fn honest_spaces_never_hold_more_than_there_is_and_get_what_they_were_promised(
            steps in proptest::collection::vec(any_step(), 1..40),
        ) {
            let mut table = LeaseTable::new(TOTAL, None, START);
            let mut spaces: Vec<Honest> = Vec::new();
            let mut now = START;
            for step in steps {
                now += Duration::from_millis(100);
                match step {
                    Step::Come { guaranteed, weight, held } => {
                        let brought = Amounts { slabs: held, pages: 0 };
                        if let Ok(id) = table.attach(now, terms(weight, guaranteed, TOTAL), brought, held) {
                            spaces.push(Honest { id, known: Lease { serial: 0, amounts: brought }, used: held, held });
                        }
                    }
                    Step::Go { which } if !spaces.is_empty() => {
                        table.leave(spaces.remove(which % spaces.len()).id);
                    }
                    Step::Use { which, slabs } if !spaces.is_empty() => {
                        let at = which % spaces.len();
                        spaces[at].used = slabs;
                    }
                    Step::Lie { which, held, serial } if !spaces.is_empty() => {
                        let at = which % spaces.len();
                        if table.report(now, spaces[at].id, serial, holding(held, 0, held), 0).is_err() {
                            table.leave(spaces.remove(at).id);
                        } else {
                            // It holds what it says.
                            spaces[at].held = spaces[at].held.min(table.charged(spaces[at].id).unwrap().slabs);
                        }
                    }
                    Step::Restart => {
                        let old = std::mem::replace(&mut table, LeaseTable::new(TOTAL, None, now + LATER));
                        for space in &mut spaces {
                            let terms = old.spaces.iter().find(|other| other.id == space.id).unwrap().terms;
                            space.id = table.attach(now, terms, Amounts { slabs: space.held, pages: 0 }, TOTAL).unwrap();
                            space.known = Lease { serial: 0, amounts: Amounts { slabs: space.held, pages: 0 } };
                        }
                        now += LATER;
                    }
                    _ => {}
                }
                converge(&mut table, &mut spaces, now);
            }
            for space in &spaces {
                let terms = table.spaces.iter().find(|other| other.id == space.id).unwrap().terms;
                prop_assert!(space.held >= terms.guaranteed_slabs().min(space.used));
            }
        }
    }
}

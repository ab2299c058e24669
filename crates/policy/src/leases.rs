//! Which space may hold how much of what several share: slabs of the host's pool, or pages of local memory.
//!
//! A space has a *guarantee*: it gets that much whenever it wants it. What is left is divided by max-min
//! fairness with weights: nobody gets more, for their weight, than somebody who wants more and has less. It
//! is divided in an order (FastSwap §II tells idle, inactive and active pages apart, and takes them in this
//! order; idle ones, nobody's, are there for the asking):
//!
//! 1. guarantees, as far as they are wanted;
//! 2. what spaces that swap at present need for what they hold, and a little to grow by (*active*);
//! 3. what spaces that don't swap hold;
//! 4. what spaces want beyond that, to be there before they need it (*inactive*).
//!
//! So when nothing is free, what nobody fills is taken back first, then what idle spaces hold; and among
//! active ones those give that have more than their share.
//!
//! What a space can't give back (its content has nowhere to go) is never asked back. It must not come out of
//! a guarantee that somebody else has not called on yet, for that could not be honoured any more: such room
//! goes only to spaces that are *elastic*.

/// What a space has, needs and wants. All amounts are in the same unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Claim {
    /// Its part against others. 0 is taken for 1.
    pub weight: u32,
    /// What it gets whenever it wants it.
    pub guaranteed: u64,
    /// What it can't give back.
    pub kept: u64,
    /// What it needs for what it holds at present.
    pub needed: u64,
    /// What it would like to have; at least what it needs.
    pub wanted: u64,
    /// Whether it has not swapped for a while.
    pub is_idle: bool,
    /// Whether it can give back whatever it gets.
    pub is_elastic: bool,
}

impl Claim {
    fn weight(&self) -> u128 {
        u128::from(self.weight.max(1))
    }

    /// What no division takes from it.
    fn floor(&self) -> u64 {
        self.guaranteed.min(self.wanted()).max(self.kept)
    }

    fn wanted(&self) -> u64 {
        self.wanted.max(self.needed).max(self.kept)
    }
}

/// Whether `guaranteed` more can be promised to a newcomer, of `total`, in addition to what the others were
/// promised or can't give back.
pub fn can_guarantee(total: u64, claims: &[Claim], guaranteed: u64) -> bool {
    let firm: u128 = claims.iter().map(|claim| u128::from(claim.guaranteed.max(claim.kept))).sum();
    firm + u128::from(guaranteed) <= u128::from(total)
}

/// Divides `total`: how much each may hold, in the order of `claims`. Never more than `total` in sum, unless
/// what spaces can't give back, and their guarantees, are more already; then these alone.
///
/// # Panics
/// When `shares` is shorter than `claims`.
pub fn divide(total: u64, claims: &[Claim], shares: &mut [u64]) {
    let shares = &mut shares[..claims.len()];
    for (share, claim) in shares.iter_mut().zip(claims) {
        *share = claim.floor();
    }
    if sum(shares) > u128::from(total) {
        return scale_guarantees(total, claims, shares);
    }
    let active = |claim: &Claim| if claim.is_idle { 0 } else { claim.needed };
    let held = |claim: &Claim| claim.needed;
    let wanted = Claim::wanted;
    raise_within(total, claims, shares, active);
    raise_within(total, claims, shares, held);
    raise_within(total, claims, shares, wanted);
}

/// More was promised than there is, as when a host's total was lowered: what can't be given back stays, and
/// the promises are honoured in part, all in the same part.
fn scale_guarantees(total: u64, claims: &[Claim], shares: &mut [u64]) {
    let kept: u128 = claims.iter().map(|claim| u128::from(claim.kept)).sum();
    let room = u128::from(total).saturating_sub(kept);
    let asked: u128 = claims.iter().map(|claim| u128::from(claim.floor() - claim.kept)).sum();
    for (share, claim) in shares.iter_mut().zip(claims) {
        let more = u128::from(claim.floor() - claim.kept) * room / asked.max(1);
        *share = claim.kept + more as u64;
    }
}

/// Raises shares towards a cap of each. Those who can't give back get no more than is left after all
/// guarantees.
fn raise_within(total: u64, claims: &[Claim], shares: &mut [u64], cap: impl Fn(&Claim) -> u64) {
    let before = sum(shares);
    let guarantees: u128 = claims.iter().map(|claim| u128::from(claim.guaranteed)).sum();
    let is_firm = |claim: &Claim| !claim.is_elastic;
    let beyond = |claim: &Claim, share: u64| u128::from(share.saturating_sub(claim.guaranteed));
    let firm_before: u128 = pairs(claims, shares, is_firm).map(|(claim, share)| beyond(claim, share)).sum();
    let firm_most = u128::from(total).saturating_sub(guarantees).max(firm_before);
    let room = u128::from(total).saturating_sub(before);
    let all = Level::reaching(claims, shares, &cap, |_| true, room);
    let firm_then: u128 = pairs(claims, shares, is_firm)
        .map(|(claim, share)| beyond(claim, all.share(claim, share, cap(claim))))
        .sum();
    let given: u128 = pairs(claims, shares, |_| true)
        .map(|(claim, share)| u128::from(all.share(claim, share, cap(claim)) - share))
        .sum();
    // What is left below the next level may all go to them.
    if firm_then + room.saturating_sub(given) <= firm_most {
        all.apply(claims, shares, &cap, |_| true, room);
        return;
    }
    // Below its guarantee a space takes nothing from anybody.
    let mut firm_room = 0_u128;
    for (claim, share) in pairs(claims, shares, is_firm) {
        firm_room += u128::from(claim.guaranteed.min(cap(claim)).saturating_sub(share));
    }
    let firm_room = (firm_room + firm_most - firm_before).min(room);
    let level = Level::reaching(claims, shares, &cap, is_firm, firm_room);
    level.apply(claims, shares, &cap, is_firm, firm_room);
    let left = u128::from(total).saturating_sub(sum(shares));
    let level = Level::reaching(claims, shares, &cap, |claim| claim.is_elastic, left);
    level.apply(claims, shares, &cap, |claim| claim.is_elastic, left);
}

fn sum(shares: &[u64]) -> u128 {
    shares.iter().map(|&share| u128::from(share)).sum()
}

fn pairs<'a>(
    claims: &'a [Claim],
    shares: &'a [u64],
    counts: impl Fn(&Claim) -> bool + 'a,
) -> impl Iterator<Item = (&'a Claim, u64)> + 'a {
    claims.iter().zip(shares.iter().copied()).filter(move |(claim, _)| counts(claim))
}

/// The height to which everybody's share, for their weight, is filled up: as water in vessels that are
/// connected.
#[derive(Clone, Copy)]
struct Level(u128);

impl Level {
    /// The highest level at which those who count get no more than `room` beyond what they have.
    fn reaching(
        claims: &[Claim],
        shares: &[u64],
        cap: &impl Fn(&Claim) -> u64,
        counts: impl Fn(&Claim) -> bool,
        room: u128,
    ) -> Self {
        let (mut low, mut high) = (0_u128, u128::from(u64::MAX));
        while low < high {
            let middle = Self((low + high).div_ceil(2));
            let needed: u128 = pairs(claims, shares, &counts)
                .map(|(claim, share)| u128::from(middle.share(claim, share, cap(claim)) - share))
                .sum();
            if needed <= room { low = middle.0 } else { high = middle.0 - 1 }
        }
        Self(low)
    }

    fn share(self, claim: &Claim, share: u64, cap: u64) -> u64 {
        let height = self.0.saturating_mul(claim.weight());
        u64::try_from(height).unwrap_or(u64::MAX).min(cap).max(share)
    }

    /// Raises them, and gives what is left below the next level to those who come first.
    fn apply(
        self,
        claims: &[Claim],
        shares: &mut [u64],
        cap: &impl Fn(&Claim) -> u64,
        counts: impl Fn(&Claim) -> bool,
        mut room: u128,
    ) {
        let next = Self(self.0.saturating_add(1));
        for (claim, share) in claims.iter().zip(shares.iter_mut()).filter(|(claim, _)| counts(claim)) {
            let before = *share;
            *share = self.share(claim, before, cap(claim));
            room = room.saturating_sub(u128::from(*share - before));
        }
        for (claim, share) in claims.iter().zip(shares.iter_mut()).filter(|(claim, _)| counts(claim)) {
            let more = u128::from(next.share(claim, *share, cap(claim)) - *share).min(room);
            *share += more as u64;
            room -= more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    fn divided(total: u64, claims: &[Claim]) -> Vec<u64> {
        let mut shares = vec![0; claims.len()];
        divide(total, claims, &mut shares);
        shares
    }

    /// One that swaps, with somewhere to put what it gives back.
    fn claim(weight: u32, guaranteed: u64, needed: u64, wanted: u64) -> Claim {
        Claim { weight, guaranteed, kept: 0, needed, wanted, is_idle: false, is_elastic: true }
    }

    #[test]
    fn who_wants_little_gets_it_and_the_rest_share_by_weight() {
        let claims = [claim(1, 0, 10, 10), claim(1, 0, 500, 500), claim(2, 0, 500, 500)];
        assert_eq!(divided(310, &claims), [10, 100, 200]);
        assert_eq!(divided(2000, &claims), [10, 500, 500]);
    }

    #[test]
    fn a_guarantee_stands_before_any_share() {
        let claims = [claim(1, 80, 100, 100), claim(10, 0, 100, 100)];
        assert_eq!(divided(100, &claims), [80, 20]);
        // Unless it isn't wanted.
        let claims = [claim(1, 80, 5, 5), claim(10, 0, 100, 100)];
        assert_eq!(divided(100, &claims), [5, 95]);
    }

    #[test]
    fn what_nobody_fills_goes_before_what_idle_spaces_hold_and_that_before_what_active_ones_do() {
        let idle = Claim { is_idle: true, ..claim(1, 0, 60, 60) };
        let active = claim(1, 0, 30, 90);
        assert_eq!(divided(150, &[idle, active]), [60, 90]);
        assert_eq!(divided(100, &[idle, active]), [60, 40]);
        assert_eq!(divided(80, &[idle, active]), [50, 30]);
        assert_eq!(divided(20, &[idle, active]), [0, 20]);
    }

    #[test]
    fn who_cannot_give_back_gets_nothing_of_a_guarantee_that_waits() {
        let firm = Claim { is_elastic: false, ..claim(1, 0, 100, 100) };
        let elastic = claim(1, 0, 100, 100);
        let waiting = claim(1, 60, 0, 0);
        assert_eq!(divided(100, &[firm, waiting]), [40, 0]);
        assert_eq!(divided(100, &[elastic, waiting]), [100, 0]);
        assert_eq!(divided(100, &[firm, elastic, waiting]), [40, 60, 0]);
    }

    #[test]
    fn what_cannot_be_given_back_stays() {
        let stuck = Claim { kept: 70, is_elastic: false, is_idle: true, ..claim(1, 0, 70, 70) };
        assert_eq!(divided(100, &[stuck, claim(100, 0, 100, 100)]), [70, 30]);
        assert!(can_guarantee(100, &[stuck], 30));
        assert!(!can_guarantee(100, &[stuck], 31));
    }

    #[test]
    fn a_total_below_the_promises_honours_all_in_part() {
        let claims = [claim(1, 100, 100, 100), claim(1, 50, 50, 50)];
        assert_eq!(divided(75, &claims), [50, 25]);
    }

    fn any_claim() -> impl Strategy<Value = Claim> {
        let amount = || prop_oneof![0_u64..50, 0_u64..2000];
        (0_u32..20, amount(), amount(), amount(), amount(), any::<bool>(), any::<bool>()).prop_map(
            |(weight, guaranteed, kept, needed, more, is_idle, is_elastic)| Claim {
                weight,
                guaranteed,
                kept: if is_elastic { 0 } else { kept.min(needed) },
                needed,
                wanted: needed + more,
                is_idle,
                is_elastic,
            },
        )
    }

    fn total_of(claims: &[Claim], of: impl Fn(&Claim) -> u64) -> u64 {
        claims.iter().map(of).sum()
    }

    #[test]
    fn what_rounding_leaves_is_not_taken_from_a_guarantee_that_waits() {
        let firm =
            |weight, guaranteed, wanted| Claim { is_elastic: false, ..claim(weight, guaranteed, 0, wanted) };
        let claims = [firm(4, 0, 115), firm(1, 28, 27), firm(1, 0, 27), firm(2, 0, 1162)];
        // One of the 28 is not wanted yet, and nobody gets it.
        assert_eq!(divided(1330, &claims).iter().sum::<u64>(), 1329);
    }

    proptest! {
        #[test]
        fn no_division_gives_more_than_there_is_or_is_wanted_or_less_than_it_must(
            total in 0_u64..20_000,
            claims in proptest::collection::vec(any_claim(), 0..12),
        ) {
            let shares = divided(total, &claims);
            let firm = total_of(&claims, |claim| claim.kept);
            prop_assert!(shares.iter().sum::<u64>() <= total.max(firm));
            for (share, claim) in shares.iter().zip(&claims) {
                prop_assert!(*share <= claim.wanted());
                prop_assert!(*share >= claim.kept);
            }
            if total_of(&claims, |claim| claim.guaranteed.max(claim.kept)) <= total {
                for (share, claim) in shares.iter().zip(&claims) {
                    prop_assert!(*share >= claim.guaranteed.min(claim.wanted()));
                }
            }
        }

        #[test]
        fn nothing_is_left_while_an_elastic_space_wants_it(
            total in 0_u64..20_000,
            claims in proptest::collection::vec(any_claim(), 1..12),
        ) {
            let shares = divided(total, &claims);
            let left = total.saturating_sub(shares.iter().sum());
            let floors = total_of(&claims, Claim::floor);
            for (share, claim) in shares.iter().zip(&claims) {
                prop_assert!(left == 0 || floors > total || !claim.is_elastic || *share == claim.wanted());
            }
        }

        #[test]
        fn guarantees_that_wait_can_be_called_on_at_any_moment(
            total in 0_u64..20_000,
            claims in proptest::collection::vec(any_claim(), 1..12),
        ) {
            prop_assume!(total_of(&claims, |claim| claim.guaranteed.max(claim.kept)) <= total);
            let shares = divided(total, &claims);
            // What elastic spaces have beyond their guarantees they give back; the rest stays.
            let firm: u64 = shares
                .iter()
                .zip(&claims)
                .map(|(&share, claim)| if claim.is_elastic { claim.guaranteed } else { share.max(claim.guaranteed) })
                .sum();
            prop_assert!(firm <= total, "{shares:?}");
        }

        #[test]
        fn active_spaces_share_fairly(
            total in 0_u64..20_000,
            wants in proptest::collection::vec((1_u32..10, 0_u64..200, 0_u64..3000), 2..10),
        ) {
            let claims: Vec<Claim> =
                wants.iter().map(|&(weight, guaranteed, needed)| claim(weight, guaranteed, needed, needed)).collect();
            prop_assume!(total_of(&claims, Claim::floor) <= total);
            let shares = divided(total, &claims);
            for (poor, poor_share) in claims.iter().zip(&shares) {
                if *poor_share == poor.wanted() {
                    continue;
                }
                for (rich, rich_share) in claims.iter().zip(&shares) {
                    // A space that has more for its weight than one that wants more has it by guarantee,
                    // apart from rounding.
                    let level = (poor_share + u64::from(poor.weight)) * u64::from(rich.weight);
                    let is_fair = (rich_share.saturating_sub(u64::from(rich.weight))) * u64::from(poor.weight) <= level;
                    prop_assert!(is_fair || *rich_share <= rich.guaranteed, "{claims:?} {shares:?}");
                }
            }
        }

        #[test]
        fn huge_figures_do_no_harm(
            total in any::<u64>(),
            claims in proptest::collection::vec((any::<u32>(), any::<[u64; 4]>(), any::<[bool; 2]>()), 0..6),
        ) {
            let claims: Vec<Claim> = claims
                .iter()
                .map(|&(weight, [guaranteed, kept, needed, wanted], [is_idle, is_elastic])| Claim {
                    weight, guaranteed, kept, needed, wanted, is_idle, is_elastic,
                })
                .collect();
            divided(total, &claims);
        }
    }
}

//! The Mann-Whitney U test, exact, ties included: how often chance alone sets two samples of one distribution
//! as far apart as these.
//!
//! Every way to choose which of all values belong to the first sample is as likely as any other. What is
//! counted is how many of them have a sum of ranks as far from the middle as the one that was seen. Tied
//! values have the mean of their ranks; ranks are doubled, so that all are whole.

/// The chance, two-sided; 1 where there is nothing to compare.
pub(super) fn chance(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    let ranks = doubled_ranks(a, b);
    let seen: usize = ranks[..a.len()].iter().sum();
    let ways = ways(&ranks, a.len());
    // Doubled ranks of all values sum up to n (n + 1); the first sample has its part of that on average.
    let total = ranks.len() * (ranks.len() + 1);
    let distance = |sum: usize| (sum * ranks.len()).abs_diff(total * a.len());
    let all: f64 = ways.iter().sum();
    let as_far = ways.iter().enumerate().filter(|(sum, _)| distance(*sum) >= distance(seen));
    as_far.map(|(_, ways)| ways).sum::<f64>() / all
}

/// The least that [`chance`] can be for samples of these sizes: all of one below all of the other, or the
/// other way round.
pub(super) fn least_chance(a: usize, b: usize) -> f64 {
    let ways: f64 = (1..=a).map(|at| (b + at) as f64 / at as f64).product();
    (2.0 / ways).min(1.0)
}

/// Twice the rank of each value, those of `a` first.
fn doubled_ranks(a: &[f64], b: &[f64]) -> Vec<usize> {
    let values: Vec<f64> = a.iter().chain(b).copied().collect();
    let doubled = |value: f64| {
        let below = values.iter().filter(|other| **other < value).count();
        let same = values.iter().filter(|other| **other == value).count();
        // The mean of ranks below + 1 to below + same, twice.
        2 * below + same + 1
    };
    values.iter().map(|value| doubled(*value)).collect()
}

/// In how many ways `count` of these can be chosen, by their sum.
fn ways(ranks: &[usize], count: usize) -> Vec<f64> {
    let most: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0; most + 1]; count + 1];
    ways[0][0] = 1.0;
    for rank in ranks {
        for chosen in (1..=count).rev() {
            let [fewer, more] =
                ways.get_disjoint_mut([chosen - 1, chosen]).expect("they differ, and are there");
            more[*rank..].iter_mut().zip(fewer.iter()).for_each(|(more, fewer)| *more += fewer);
        }
    }
    ways.swap_remove(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    #[test]
    fn chances_are_those_of_tables() {
        // Two of the 70 ways to choose four of eight; two of 252 for five and five.
        assert!(near(chance(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0]), 2.0 / 70.0));
        assert!(near(chance(&[6.0, 7.0, 8.0, 9.0, 10.0], &[1.0, 2.0, 3.0, 4.0, 5.0]), 2.0 / 252.0));
        // U is 2 of five and five: 4 of 252 are as far on each side.
        assert!(near(chance(&[1.0, 2.0, 3.0, 4.0, 7.0], &[5.0, 6.0, 8.0, 9.0, 10.0]), 8.0 / 252.0));
        // Samples of other sizes: U is 4 of five and four, as in a known example of ages (19 22 16 29 24 and
        // 20 11 17 12).
        let ages = chance(&[19.0, 22.0, 16.0, 29.0, 24.0], &[20.0, 11.0, 17.0, 12.0]);
        assert!((ages - 0.111_11).abs() < 1e-4, "{ages}");
    }

    #[test]
    fn ties_share_their_ranks() {
        assert_eq!(doubled_ranks(&[1.0, 2.0], &[2.0, 3.0]), [2, 5, 5, 8]);
        assert!(near(chance(&[1.0, 1.0], &[1.0, 1.0]), 1.0));
        // Of the 20 ways to choose three of 1 1 1 2 2 2, two are as far apart.
        assert!(near(chance(&[1.0, 1.0, 1.0], &[2.0, 2.0, 2.0]), 2.0 / 20.0));
    }

    #[test]
    fn the_least_chance_is_that_of_samples_apart() {
        let (a, b) = ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]);
        assert!(near(chance(&a, &b), least_chance(3, 4)));
        assert_eq!(least_chance(1, 1), 1.0);
    }

    #[test]
    fn many_repetitions_can_be_compared() {
        let a: Vec<f64> = (0..30).map(f64::from).collect();
        let b: Vec<f64> = (0..30).map(|at| f64::from(at) + 0.5).collect();
        assert!(chance(&a, &b) > 0.5);
        assert_eq!(chance(&[], &b), 1.0);
    }
}

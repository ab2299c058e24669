//! `farmem bench compare`: what changed between two sets of records, and what of it is more than chance.

mod ranks;
mod table;

use std::collections::BTreeMap;

use serde::Serialize;

use ranks::{chance, least_chance};

use crate::median::median;
use crate::record::{Better, Record};

/// A difference counts when chance alone would make one as large less often than this.
pub const CHANCE: f64 = 0.05;

/// What is to be said of a figure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The second is worse, beyond chance.
    Worse,
    /// The second is better, beyond chance.
    Better,
    /// What differs may be chance.
    Same,
    /// However the repetitions had come out, they could not have told.
    TooFew,
}

/// One figure in both.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Difference {
    /// The benchmark.
    pub bench: String,
    /// What was done.
    pub case: String,
    /// Under whom.
    pub peer: String,
    /// What was measured.
    pub measure: String,
    /// What the figures count.
    pub unit: String,
    /// Medians.
    pub medians: [f64; 2],
    /// Repetitions.
    pub repetitions: [usize; 2],
    /// The second median divided by the first; `None` where that is zero.
    pub ratio: Option<f64>,
    /// How often chance alone makes a difference as large: Mann-Whitney U, two-sided.
    pub chance: f64,
    /// What follows.
    pub verdict: Verdict,
}

/// All figures that both have, the worst first.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// The figures.
    pub differences: Vec<Difference>,
    /// How many figures only one of them has.
    pub only_in: [usize; 2],
    /// Whether both were measured on the same machine.
    pub same_machine: bool,
}

type Key<'a> = (&'a str, &'a str, &'a str, &'a str);

/// Compares.
pub fn compare(first: &[Record], second: &[Record]) -> Comparison {
    let [a, b] = [first, second].map(sorted);
    let mut differences: Vec<Difference> =
        a.iter().filter_map(|(key, first)| Some(difference(first, b.get(key)?))).collect();
    // Those that lie furthest apart first, within each verdict.
    let distance =
        |one: &Difference| one.ratio.filter(|ratio| *ratio > 0.0).map_or(0.0, |ratio| ratio.ln().abs());
    differences.sort_by(|one, other| {
        one.verdict.cmp(&other.verdict).then(distance(other).total_cmp(&distance(one)))
    });
    let machine = |records: &[Record]| records.first().map(|record| record.machine.clone());
    Comparison {
        only_in: [
            a.keys().filter(|key| !b.contains_key(*key)).count(),
            b.keys().filter(|key| !a.contains_key(*key)).count(),
        ],
        same_machine: machine(first) == machine(second),
        differences,
    }
}

fn sorted(records: &[Record]) -> BTreeMap<Key<'_>, Vec<&Record>> {
    let mut sorted: BTreeMap<Key<'_>, Vec<&Record>> = BTreeMap::new();
    for record in records {
        let key = (&*record.bench, &*record.case, &*record.peer, &*record.measure);
        sorted.entry(key).or_default().push(record);
    }
    sorted
}

/// Neither is empty.
fn difference(first: &[&Record], second: &[&Record]) -> Difference {
    let [a, b] = [first, second].map(|records| records.iter().map(|record| record.value).collect::<Vec<_>>());
    let medians = [median(a.clone()), median(b.clone())];
    let record = first[0];
    let chance = chance(&a, &b);
    let is_worse = match record.better {
        Better::Less => medians[1] > medians[0],
        Better::More => medians[1] < medians[0],
    };
    let verdict = if least_chance(a.len(), b.len()) >= CHANCE {
        Verdict::TooFew
    } else if chance >= CHANCE || medians[0] == medians[1] {
        Verdict::Same
    } else if is_worse {
        Verdict::Worse
    } else {
        Verdict::Better
    };
    Difference {
        bench: record.bench.clone(),
        case: record.case.clone(),
        peer: record.peer.clone(),
        measure: record.measure.clone(),
        unit: record.unit.clone(),
        ratio: (medians[0] != 0.0).then(|| medians[1] / medians[0]),
        medians,
        repetitions: [a.len(), b.len()],
        chance,
        verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    fn records(peer: &str, values: &[f64]) -> Vec<Record> {
        (1..).zip(values).map(|(repetition, value)| record("zipf", peer, repetition, *value)).collect()
    }

    fn compared(a: &[f64], b: &[f64]) -> Difference {
        compare(&records("farmem", a), &records("farmem", b)).differences.remove(0)
    }

    #[test]
    fn a_slower_second_is_worse_and_a_faster_one_better() {
        let (fast, slow) = ([1.0, 1.1, 1.2, 1.3, 1.4], [2.0, 2.1, 2.2, 2.3, 2.4]);
        assert_eq!(compared(&fast, &slow).verdict, Verdict::Worse);
        assert_eq!(compared(&slow, &fast).verdict, Verdict::Better);
        assert_eq!(compared(&fast, &[1.15, 1.05, 1.25, 1.35, 1.45]).verdict, Verdict::Same);
    }

    #[test]
    fn more_is_better_where_it_is() {
        let rates = |values: &[f64]| -> Vec<Record> {
            records("farmem", values)
                .into_iter()
                .map(|record| Record { better: Better::More, ..record })
                .collect()
        };
        let comparison = compare(&rates(&[1.0, 2.0, 3.0, 4.0]), &rates(&[5.0, 6.0, 7.0, 8.0]));
        assert_eq!(comparison.differences[0].verdict, Verdict::Better);
    }

    #[test]
    fn three_repetitions_cannot_tell() {
        let difference = compared(&[1.0, 1.1, 1.2], &[9.0, 9.1, 9.2]);
        assert_eq!(difference.verdict, Verdict::TooFew);
        assert_eq!(difference.medians, [1.1, 9.1]);
    }

    #[test]
    fn what_only_one_has_is_counted_and_the_worst_comes_first() {
        let mut a = records("farmem", &[1.0, 1.1, 1.2, 1.3]);
        a.extend(records("zram-lz4", &[1.0, 1.1, 1.2, 1.3]));
        a.extend(records("zswap", &[1.0]));
        let mut b = records("farmem", &[1.0, 1.1, 1.2, 1.3]);
        b.extend(records("zram-lz4", &[3.0, 3.1, 3.2, 3.3]));

        let comparison = compare(&a, &b);

        assert_eq!(comparison.only_in, [1, 0]);
        let verdicts: Vec<Verdict> = comparison.differences.iter().map(|one| one.verdict).collect();
        assert_eq!(verdicts, [Verdict::Worse, Verdict::Same]);
        assert!(comparison.same_machine);
    }
}

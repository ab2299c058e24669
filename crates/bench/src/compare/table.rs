//! A comparison as a table.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets};

use super::{CHANCE, Comparison, Difference, Verdict};

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with = |verdict: Verdict| self.differences.iter().filter(move |one| one.verdict == verdict);
        let [worse, better, same, too_few] =
            [Verdict::Worse, Verdict::Better, Verdict::Same, Verdict::TooFew]
                .map(|verdict| with(verdict).count());
        if worse + better > 0 {
            let mut table = Table::new();
            table.load_preset(presets::NOTHING);
            table.set_header([
                "",
                "benchmark",
                "case",
                "peer",
                "measure",
                "first",
                "second",
                "unit",
                "ratio",
                "chance",
            ]);
            for one in with(Verdict::Worse).chain(with(Verdict::Better)) {
                table.add_row(row(one));
            }
            for at in [5, 6, 8, 9] {
                if let Some(column) = table.column_mut(at) {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
            writeln!(f, "{table}\n")?;
        }
        let told = worse + better + same;
        writeln!(f, "{worse} worse, {better} better, {same} the same within chance, of {told} figures")?;
        if told > 0 {
            let by_chance = told as f64 * CHANCE;
            writeln!(f, "of so many, chance alone makes about {by_chance:.0} look worse or better")?;
        }
        if too_few > 0 {
            writeln!(
                f,
                "{too_few} figures have too few repetitions to tell: it takes 4 on each side (`farmem bench all --repeat 5`)"
            )?;
        }
        for (count, which) in self.only_in.iter().zip(["first", "second"]) {
            if *count > 0 {
                writeln!(f, "{count} figures are only in the {which}")?;
            }
        }
        if !self.same_machine {
            writeln!(
                f,
                "the two are of different machines, or of one that was changed: ratios say more about these"
            )?;
        }
        Ok(())
    }
}

fn row(one: &Difference) -> [String; 10] {
    let verdict = match one.verdict {
        Verdict::Worse => "worse",
        Verdict::Better => "better",
        Verdict::Same => "same",
        Verdict::TooFew => "too few",
    };
    let [first, second] = one.medians.map(|median| format!("{median:.3}"));
    [
        verdict.to_owned(),
        one.bench.clone(),
        one.case.clone(),
        one.peer.clone(),
        one.measure.clone(),
        first,
        second,
        one.unit.clone(),
        one.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}")),
        format!("{:.4}", one.chance),
    ]
}

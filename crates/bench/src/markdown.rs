//! Records of the access patterns as a table in Markdown: that of the README.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::median::median;
use crate::record::Record;

/// The peers of the table, and what they are called there.
const PEERS: [(&str, &str); 3] =
    [("native", "native, µs"), ("zram-lz4", "zram-lz4, µs"), ("farmem", "Farmem, µs")];

/// The table, with a note that says what it is of. `None` where no access pattern was measured.
pub fn table(records: &[Record]) -> Option<String> {
    let of = |case: &str, peer: &str, measure: &str| -> Option<f64> {
        let fits = |record: &&Record| {
            record.bench == "faults"
                && record.case == case
                && record.peer == peer
                && record.measure == measure
        };
        let values: Vec<f64> = records.iter().filter(fits).map(|record| record.value).collect();
        (!values.is_empty()).then(|| median(values))
    };
    let mut cases: Vec<&str> = Vec::new();
    for record in records.iter().filter(|record| record.bench == "faults") {
        if !cases.contains(&record.case.as_str()) {
            cases.push(&record.case);
        }
    }
    let first = records.iter().find(|record| record.bench == "faults")?;
    let mut text = String::from("| access |");
    PEERS.iter().for_each(|(_, title)| text += &format!(" {title} |"));
    text += " Farmem / zram | peak, MiB |\n|---|---|---|---|---|---|\n";
    let cell = |value: Option<f64>| match value {
        None => "–".to_owned(),
        Some(value) if value < 1.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.1}"),
    };
    for case in cases {
        let time = |peer| of(case, peer, "time of an access");
        // Writing to a String does not fail.
        let _ = write!(text, "| {case} |");
        for (peer, _) in PEERS {
            let _ = write!(text, " {} |", cell(time(peer)));
        }
        let ratio = time("farmem").zip(time("zram-lz4")).map(|(ours, zram)| ours / zram);
        let _ = writeln!(
            text,
            " {} | {} |",
            ratio.map_or_else(|| cell(None), |ratio| format!("{ratio:.2}")),
            cell(of(case, "farmem", "resident peak"))
        );
    }
    let repetitions: BTreeSet<u32> = records.iter().map(|record| record.repetition).collect();
    let machine = &first.machine;
    let _ = writeln!(
        text,
        "\n*Medians of {} repetition{}; Farmem {} ({}), {} cores of {}{}, Linux {}.*",
        repetitions.len(),
        if repetitions.len() == 1 { "" } else { "s" },
        first.version,
        first.commit,
        machine.cores,
        machine.processor,
        if machine.is_virtual { " (virtual)" } else { "" },
        machine.kernel
    );
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn a_row_has_times_and_their_ratio_and_names_what_is_missing() {
        let records = [
            record("zipf", "native", 1, 0.02),
            record("zipf", "farmem", 1, 3.0),
            record("zipf", "farmem", 2, 5.0),
            record("zipf", "zram-lz4", 1, 8.0),
            record("fits", "farmem", 1, 1.0),
        ];
        let table = table(&records).unwrap();
        assert!(table.contains("| zipf | 0.02 | 8.0 | 4.0 | 0.50 | – |"), "{table}");
        assert!(table.contains("| fits | – | – | 1.0 | – | – |"), "{table}");
        assert!(table.contains("Medians of 2 repetitions; Farmem 1.2.3 (unknown)"), "{table}");
    }

    #[test]
    fn without_access_patterns_there_is_no_table() {
        assert_eq!(table(&[]), None);
    }
}

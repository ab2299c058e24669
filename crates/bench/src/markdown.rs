//! Records of the access patterns and of real programs as tables in Markdown, and what of them is as wanted:
//! what the README has.

use std::collections::BTreeSet;
use std::fmt::Write;

use clap::ValueEnum;
use farmem_page::{ByteCount, mebibytes};

use crate::faults::{CaseName, Figure, OVERSUBSCRIPTION, PeerName, judge, wanted_of_zram};
use crate::median::median;
use crate::option;
use crate::programs::{self, Peer};
use crate::record::Record;

/// The peers of the table, and what they are called there.
const PEERS: [(PeerName, &str); 3] =
    [(PeerName::Native, "native, µs"), (PeerName::ZramLz4, "zram-lz4, µs"), (PeerName::Farmem, "Farmem, µs")];
/// What peers are called in the table of programs.
const TITLES_OF_PROGRAMS: [&str; 4] = ["native, s", "zram, s", "zswap, s", "Farmem, s"];
const TIME: &str = "time of an access";
const PEAK: &str = "resident peak";
/// Between these lines a document has the table of access patterns.
const MARKS: [&str; 2] = ["<!-- bench-table begin -->\n", "<!-- bench-table end -->"];
/// Between these lines it has the table of programs.
const MARKS_OF_PROGRAMS: [&str; 2] = ["<!-- bench-programs begin -->\n", "<!-- bench-programs end -->"];

/// The table, what of it is as wanted, and what it is of. `None` where no access pattern was measured.
pub fn table(records: &[Record]) -> Option<String> {
    let records: Vec<&Record> = records.iter().filter(|record| record.bench == "faults").collect();
    let figures = figures(&records);
    let first = records.first().filter(|_| !figures.is_empty())?;
    let data =
        first.data_bytes.filter(|_| records.iter().all(|record| record.data_bytes == first.data_bytes));
    let local = data.map(|data| ByteCount::new(data / OVERSUBSCRIPTION));
    let mut text = String::from("| access |");
    PEERS.iter().for_each(|(_, title)| text += &format!(" {title} |"));
    text += " Farmem / zram | wanted at most | peak, MiB |\n|---|---|---|---|---|---|---|\n";
    // Data that fits is in the last lines: there is nothing to compare it with in the middle.
    let cases = CaseName::value_variants().iter().filter(|case| **case != CaseName::Fits);
    cases.filter_map(|&case| row(case, &figures)).for_each(|row| text += &row);
    text += "\n";
    for target in judge(&figures, local) {
        // Writing to a String does not fail.
        let _ = writeln!(text, "- {}", target.sentence());
    }
    let sizes = data.zip(local).map(|(data, local)| {
        format!("{} MiB of half-compressible data at {} MiB and ", data >> 20, local.get() >> 20)
    });
    let _ = writeln!(
        text,
        "\n*{}one thread unless said otherwise; {}.*",
        sizes.unwrap_or_default(),
        origin(first, &records)
    );
    Some(text)
}

/// The table of real programs: each with the parts of its memory that were local. `None` where no program was
/// measured.
pub fn programs_table(records: &[Record]) -> Option<String> {
    let records: Vec<&Record> = records.iter().filter(|record| record.bench == "programs").collect();
    let of = |case: &str, peer: &str, measure: &str| -> Vec<f64> {
        let fits = |record: &&&Record| {
            (record.case.as_str(), record.peer.as_str(), record.measure.as_str()) == (case, peer, measure)
        };
        records.iter().filter(fits).map(|record| record.value).collect()
    };
    let first = records.first()?;
    let mut text = String::from("| program |");
    TITLES_OF_PROGRAMS.iter().for_each(|title| text += &format!(" {title} |"));
    text += " Farmem / zram | Farmem / zswap | peak, MiB |\n|---|---|---|---|---|---|---|---|\n";
    let mut cases: Vec<&str> = Vec::new();
    for record in &records {
        if !cases.contains(&record.case.as_str()) {
            cases.push(&record.case);
        }
    }
    for case in cases {
        let time =
            |peer: &str| Some(of(case, peer, programs::TIME)).filter(|times| !times.is_empty()).map(median);
        let shortest =
            |peers: &[Peer]| peers.iter().filter_map(|peer| time(&option::name(peer))).reduce(f64::min);
        let (zram, zswap) = (shortest(&Peer::OF_ZRAM), shortest(&Peer::OF_ZSWAP));
        let farmem = shortest(&[Peer::Farmem]);
        let ratio = |peer: Option<f64>| Some(farmem? / peer?);
        let peak = of(case, &option::name(&Peer::Farmem), programs::PEAK).into_iter().reduce(f64::max);
        let cells = |values: &[Option<f64>], digits: usize| -> String {
            let cell = |value: &Option<f64>| match value {
                None => "–".to_owned(),
                Some(value) => format!("{value:.digits$}"),
            };
            values.iter().map(cell).collect::<Vec<_>>().join(" | ")
        };
        let times = [time(programs::NATIVE), zram, zswap, farmem];
        let ratios = [zram, zswap].map(ratio);
        text +=
            &format!("| {case} | {} | {} | {} |\n", cells(&times, 1), cells(&ratios, 2), cells(&[peak], 1));
    }
    // Writing to a String does not fail.
    let _ = writeln!(
        text,
        "\n*Local: a part of what the program has resident without a limit; {}.*",
        origin(first, &records)
    );
    Some(text)
}

/// How often, by what and on what it was measured.
fn origin(first: &Record, records: &[&Record]) -> String {
    let repetitions: BTreeSet<u32> = records.iter().map(|record| record.repetition).collect();
    let machine = &first.machine;
    format!(
        "medians of {} repetition{}, in which peers took turns; Farmem {} ({}) on {} cores of {}{}, Linux {}",
        repetitions.len(),
        if repetitions.len() == 1 { "" } else { "s" },
        first.version,
        first.commit,
        machine.cores,
        machine.processor,
        if machine.is_virtual { " (virtual)" } else { "" },
        machine.kernel
    )
}

/// A document with the table of access patterns in place of the one that it has between its marks; `None` if
/// it lacks one of these.
pub fn with_table(document: &str, table: &str) -> Option<String> {
    between(document, MARKS, table)
}

/// The same with the table of programs.
pub fn with_programs_table(document: &str, table: &str) -> Option<String> {
    between(document, MARKS_OF_PROGRAMS, table)
}

fn between(document: &str, [begin, end]: [&str; 2], table: &str) -> Option<String> {
    let (before, rest) = document.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}{table}{end}{after}"))
}

/// Times and peaks of what was measured. A peak is the largest, the others are medians.
fn figures(records: &[&Record]) -> Vec<Figure> {
    let of = |case: CaseName, peer: PeerName, measure: &str| -> Vec<f64> {
        let (case, peer) = (option::name(&case), option::name(&peer));
        let fits =
            |record: &&&Record| (&record.case, &record.peer) == (&case, &peer) && record.measure == measure;
        records.iter().filter(fits).map(|record| record.value).collect()
    };
    let pairs = CaseName::value_variants().iter().flat_map(|&case| PEERS.map(|(peer, _)| (case, peer)));
    let figure = |(case, peer)| {
        let times = of(case, peer, TIME);
        let peak = of(case, peer, PEAK).into_iter().fold(0.0, f64::max);
        (!times.is_empty()).then(|| Figure {
            nanoseconds_per_access: median(times) * 1e3,
            resident_peak_bytes: (peak * f64::from(1 << 20)) as u64,
            ..Figure::empty(case, peer)
        })
    };
    pairs.filter_map(figure).collect()
}

/// The row of a case that was measured.
fn row(case: CaseName, figures: &[Figure]) -> Option<String> {
    let of = |peer| figures.iter().find(|figure| (figure.case, figure.peer) == (case, peer));
    let time = |peer| Some(of(peer)?.nanoseconds_per_access / 1e3);
    let cell = |value: Option<f64>| match value {
        None => "–".to_owned(),
        Some(value) if value < 1.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.1}"),
    };
    let times = PEERS.map(|(peer, _)| time(peer));
    times.iter().any(Option::is_some).then(|| {
        let ratio = time(PeerName::Farmem).zip(time(PeerName::ZramLz4)).map(|(ours, zram)| ours / zram);
        let ratio = ratio.map_or_else(|| cell(None), |ratio| format!("{ratio:.2}"));
        let wanted = wanted_of_zram(case).map_or_else(|| cell(None), |wanted| wanted.to_string());
        let peak = of(PeerName::Farmem).map(|figure| figure.resident_peak_bytes).filter(|peak| *peak > 0);
        let peak = cell(peak.map(mebibytes));
        format!("| {} | {} | {ratio} | {wanted} | {peak} |\n", case.title(), times.map(cell).join(" | "))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::record;
    use crate::record::tests::record;

    const README: &str = include_str!("../../../README.md");

    #[test]
    fn a_row_has_times_and_their_ratio_and_names_what_is_missing() {
        let peak = |repetition, value| Record {
            measure: PEAK.to_owned(),
            ..record("zipf", "farmem", repetition, value)
        };
        let records = [
            record("zipf", "native", 1, 0.02),
            record("zipf", "farmem", 1, 3.0),
            record("zipf", "farmem", 2, 5.0),
            record("zipf", "zram-lz4", 1, 8.0),
            peak(1, 17.0),
            peak(2, 18.0),
            record("chase", "farmem", 1, 1.0),
        ];
        let table = table(&records).unwrap();
        assert!(table.contains("| zipf (0.99) read | 0.02 | 8.0 | 4.0 | 0.50 | 0.7 | 18.0 |\n"), "{table}");
        assert!(table.contains("| pointer chase | – | – | 1.0 | – | – | – |\n"), "{table}");
        assert!(table.contains("medians of 2 repetitions, "), "{table}");
        assert!(table.contains("64 MiB of half-compressible data at 16 MiB"), "{table}");
        assert!(table.contains("Farmem 1.2.3 (unknown)"), "{table}");
    }

    #[test]
    fn what_is_wanted_is_said_whether_it_was_reached_missed_or_not_measured() {
        let fits = |peer, value| record("fits", peer, 1, value);
        let sequential = |peer, value| record("sequential", peer, 1, value);
        let records = [
            fits("native", 1.0),
            fits("farmem", 1.0),
            sequential("farmem", 4.0),
            sequential("zram-lz4", 10.0),
        ];
        let table = table(&records).unwrap();
        for line in [
            "- sequential read, of zram-lz4's time: 0.40, at most 0.35 wanted: falls short\n",
            "- random read, of zram-lz4's time: at most 0.85 wanted: not measured\n",
            "- random read of data that fits, of native time: 1.00, at most 1.01 wanted: pass\n",
        ] {
            assert!(table.contains(line), "{table}");
        }
        assert!(!table.contains("| random read, data that fits |"), "{table}");
    }

    #[test]
    fn without_access_patterns_there_is_no_table() {
        assert_eq!(table(&[]), None);
        let other = Record { bench: "nodes".to_owned(), ..record("ways", "tcp", 1, 1.0) };
        assert_eq!(table(&[other]), None);
    }

    #[test]
    fn a_table_takes_the_place_of_what_is_between_the_marks() {
        let [begin, end] = MARKS;
        let document = format!("before\n{begin}old\n{end}\nafter\n");
        assert_eq!(with_table(&document, "new\n").unwrap(), format!("before\n{begin}new\n{end}\nafter\n"));
        assert_eq!(with_table("no marks", "new\n"), None);
    }

    #[test]
    fn a_program_has_a_row_for_each_share_with_what_was_measured() {
        let of = |case: &str, peer: &str, measure: &str, repetition, value| Record {
            bench: "programs".to_owned(),
            measure: measure.to_owned(),
            ..record(case, peer, repetition, value)
        };
        let half = "polars, 50% local";
        let records = [
            of(half, "native", programs::TIME, 1, 1.0),
            of(half, "farmem", programs::TIME, 1, 3.0),
            of(half, "farmem", programs::TIME, 2, 5.0),
            of(half, "zram", programs::TIME, 1, 9.0),
            of(half, "zram-no-readahead", programs::TIME, 1, 8.0),
            of(half, "farmem", programs::PEAK, 1, 17.0),
            of("sqlite, 25% local", "zswap", programs::TIME, 1, 2.0),
        ];
        let table = programs_table(&records).unwrap();
        assert!(table.contains("| polars, 50% local | 1.0 | 8.0 | – | 4.0 | 0.50 | – | 17.0 |\n"), "{table}");
        assert!(table.contains("| sqlite, 25% local | – | – | 2.0 | – | – | – | – |\n"), "{table}");
        assert!(table.contains("medians of 2 repetitions, "), "{table}");
        assert_eq!(programs_table(&[record("zipf", "farmem", 1, 1.0)]), None);
        let [begin, end] = MARKS_OF_PROGRAMS;
        let document = format!("{begin}old\n{end}\n");
        assert_eq!(with_programs_table(&document, "new\n").unwrap(), format!("{begin}new\n{end}\n"));
        assert_eq!(with_table(&document, "new\n"), None);
    }

    /// What a table has whatever was measured: its rows, its columns, and what is wanted.
    fn without_figures(table: &str) -> Vec<String> {
        let mut lines = table.lines().filter(|line| line.starts_with('|') || line.starts_with('-'));
        let header: Vec<String> = lines.by_ref().take(2).map(str::to_owned).collect();
        let rows = lines.map(|line| match line.split('|').collect::<Vec<_>>()[..] {
            [_, access, .., wanted, _, _] => format!("{access}:{wanted}"),
            _ => {
                let (name, rest) = line.split_once(": ").unwrap_or((line, ""));
                let wanted = rest.split_once("at ").map_or("", |(_, wanted)| wanted);
                format!("{name}: {}", wanted.split(':').next().unwrap_or_default())
            }
        });
        header.into_iter().chain(rows).collect()
    }

    #[test]
    fn the_readme_has_the_rows_and_columns_of_the_table() {
        // A case that is new is measured with the next results.
        let newest = record::read(&newest_results()).unwrap();
        let is_measured = |name: &String| newest.iter().any(|record| record.case == *name);
        let names = CaseName::value_variants().iter().map(option::name).filter(is_measured);
        let records: Vec<Record> = names
            .flat_map(|case| PEERS.map(|(peer, _)| record(&case, &option::name(&peer), 1, 1.0)))
            .collect();
        let table = table(&records).unwrap();
        let [begin, end] = MARKS;
        let (_, rest) = README.split_once(begin).unwrap();
        let (of_readme, _) = rest.split_once(end).unwrap();
        assert_eq!(without_figures(of_readme), without_figures(&table));
    }

    /// The file of records of the newest version that has one.
    fn newest_results() -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let version = |path: &PathBuf| -> Option<Vec<u64>> {
            let name = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
            name.split('.').map(|number| number.parse().ok()).collect()
        };
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| version(path).is_some()).max_by_key(version).unwrap()
    }

    #[test]
    fn the_readme_has_the_figures_of_the_newest_results() {
        let newest = newest_results();
        let table = table(&record::read(&newest).unwrap()).unwrap();
        let name = newest.file_name().unwrap().display();
        assert!(
            with_table(README, &table).unwrap() == README,
            "`farmem bench table docs/results/{name} --update README.md` puts this into the README:\n{table}"
        );
    }
}

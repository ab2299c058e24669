//! The report: one HTML file that asks for nothing from elsewhere.

mod axis;
mod course;
mod plot;
mod series;

use std::collections::BTreeSet;

use farmem_machine::Description;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use axis::words;
use series::{Chart, charts};

use crate::micro::FLOOR;
use crate::paper::Answers;
use crate::record::{Better, LeftOut, Record};

const STYLE: &str = include_str!("style.css");

/// Benchmarks: name, title, and what they do, in the order of the report.
const SECTIONS: [(&str, &str, &str); 6] = [
    (
        "micro",
        "This machine",
        "What the primitives of a pager in user space cost here. Everything below is made of them.",
    ),
    (
        "faults",
        "Faults",
        "Access patterns over data four times the local memory: with all memory local (native), under Farmem, and under the kernel's own \
         kinds of swap with the same limit.",
    ),
    (
        "programs",
        "Programs",
        "Real programs, unmodified, with a half and a quarter of the memory local that they have without a limit: under Farmem, and under the kernel's swap on zram and behind \
         zswap.",
    ),
    (
        "prefetch",
        "Prefetching",
        "Patterns of access, programs in C, Python and Java, and Redis, under each policy of prefetching, with a quarter of their memory local. Contribution: faults that \
         found their page there already, of all that needed far data. Accuracy: pages fetched ahead that were used. The oracle knows the future.",
    ),
    (
        "isolation",
        "Isolation",
        "Applications side by side, each with a quarter of its memory local: how far one is slowed down by the paging of the others.",
    ),
    (
        "nodes",
        "Memory nodes",
        "Pages on a memory node compared with bare connections that go the same way, programs whose far memory is there, in the pool or on disk, and \
         what the loss of a node costs.",
    ),
];

/// What is not drawn: it says how far others can be trusted.
const STOLEN: &str = "time taken by the machine's host";

/// Makes the report.
pub(super) fn page(records: &[Record], left_out: &[LeftOut]) -> String {
    let charts = charts(records);
    let sections: Vec<_> =
        SECTIONS.iter().filter(|(bench, ..)| charts.iter().any(|chart| chart.bench == *bench)).collect();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Farmem, measured" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Farmem, measured" }
                p.soft { (origin(records)) }
                (in_short(&charts))
                nav {
                    @for (bench, title, _) in &sections { a href={ "#" (bench) } { (title) } }
                    a href="#papers" { "The papers" }
                    a href="#how" { "How to read this" }
                }
                @for (bench, title, what) in &sections {
                    h2 id=(bench) { (title) }
                    p.soft { (what) }
                    @if *bench == "micro" { (floor(&charts)) }
                    @for chart in charts.iter().filter(|chart| chart.bench == *bench && chart.measure != STOLEN) {
                        (drawn(chart))
                    }
                    (missing(left_out, bench))
                }
                (papers(&charts))
                (how(records))
            }
        }
    }
    .into_string()
}

fn origin(records: &[Record]) -> String {
    let versions: BTreeSet<String> =
        records.iter().map(|record| format!("version {} ({})", record.version, record.commit)).collect();
    let machines: BTreeSet<String> = records.iter().map(|record| machine(&record.machine)).collect();
    let join = |words: BTreeSet<String>| words.into_iter().collect::<Vec<_>>().join("; ");
    if records.is_empty() {
        "Nothing was measured yet.".to_owned()
    } else {
        format!("{}. {}.", join(versions), join(machines))
    }
}

fn machine(machine: &Description) -> String {
    format!(
        "{} cores of {}{}, {:.1} GiB, Linux {}, {}, huge pages: {}",
        machine.cores,
        machine.processor,
        if machine.is_virtual { " (virtual)" } else { "" },
        machine.memory_bytes as f64 / f64::from(1 << 30),
        machine.kernel,
        machine.architecture,
        machine.huge_pages
    )
}

fn figure(charts: &[Chart], bench: &str, measure: &str, case: &str, peer: &str) -> Option<f64> {
    let chart = charts.iter().find(|chart| chart.bench == bench && chart.measure == measure)?;
    Some(chart.rows.iter().find(|row| row.case == case)?.of(peer)?.median())
}

/// The time of a fault under a peer: that of an access, divided by the part of accesses that fault.
fn fault(charts: &[Chart], peer: &str) -> Option<f64> {
    let of = |measure| figure(charts, "faults", measure, "random-read", peer);
    let faults = of("faults of an access")?;
    (faults > 0.0).then_some(of("time of an access")? / faults)
}

/// A few figures that say most.
fn in_short(charts: &[Chart]) -> Markup {
    let to_zram = |case| {
        let of = |peer| figure(charts, "faults", "time of an access", case, peer);
        Some(of("farmem")? / of("zram-lz4")?)
    };
    let ratio = |value: Option<f64>| value.map(|value| format!("{value:.2} ×"));
    let floor = figure(charts, "micro", "time", FLOOR, "machine");
    let above = fault(charts, "farmem").zip(floor).map(|(fault, floor)| fault / floor);
    let isolation = |measure, case| figure(charts, "isolation", measure, case, "farmem");
    let found = [
        (ratio(to_zram("random-read")), "of zram's time for a random read at a quarter local"),
        (ratio(to_zram("sequential")), "of zram's time for a sequential read"),
        (ratio(above), "of the floor: a fault here against the least that one served in user space takes"),
        (
            figure(charts, "faults", "time of an access", "fits", "farmem")
                .zip(figure(charts, "faults", "time of an access", "fits", "native"))
                .map(|(ours, native)| format!("{:+.1} %", (ours / native - 1.0) * 100.0)),
            "of time compared with native, where the data fits its budget",
        ),
        (
            ratio(isolation("p99 slowdown", "memcached")),
            "a server's p99 next to a program that swaps as fast as it can",
        ),
    ];
    html! {
        @if found.iter().any(|(value, _)| value.is_some()) {
            div.short {
                @for (value, what) in found {
                    @if let Some(value) = value { div { b { (value) } span { (what) } } }
                }
            }
        }
    }
}

/// What no pager in user space here can beat, and how far Farmem is from it.
fn floor(charts: &[Chart]) -> Markup {
    let floor = figure(charts, "micro", "time", FLOOR, "machine");
    let rows = ["farmem", "zram-lz4", "zswap", "swap-file", "swap-loop"]
        .map(|peer| (peer, fault(charts, peer)))
        .into_iter()
        .filter_map(|(peer, time)| Some((peer, time?, time? / floor?)));
    let rows: Vec<_> = rows.collect();
    html! {
        @if let Some(floor) = floor {
            h3 { "The floor" }
            p {
                "A fault costs at least " b { (words(floor)) " µs" } " here, if a thread in user space serves it: it is woken on the same core, reads the \
                 message, and copies in a page that is at hand. Nothing is unpacked, and nothing leaves. Only who serves faults in the faulting thread, which programs notice, or \
                 in the kernel, gets below it."
            }
            @if !rows.is_empty() {
                div.wide { table {
                    tr { th { "random read, for each fault" } th { "µs" } th { "of the floor" } }
                    @for (peer, time, ratio) in rows {
                        tr { td { (peer) } td { (words(time)) } td { (format!("{ratio:.2} ×")) } }
                    }
                } }
                p.soft { "Times of faults include that another page leaves to make room, and is compressed." }
            }
        }
    }
}

fn drawn(chart: &Chart) -> Markup {
    let better = match chart.better {
        Better::Less => "less is better",
        Better::More => "more is better",
    };
    html! {
        h3 id=(anchor(&chart.bench, &chart.measure)) { (capital(&chart.measure)) small { " · " (chart.unit) ", " (better) } }
        @for (figure, number) in &chart.papers {
            p.papers { "Answers " b { (figure) } ": " (number) "." }
        }
        (plot::legend(chart))
        @if course::is_course(chart) { (course::course(chart)) } @else { (plot::plot(chart)) }
        details {
            summary { "Figures" }
            (table(chart))
        }
    }
}

/// What a chart's heading is called in links.
fn anchor(bench: &str, measure: &str) -> String {
    format!("{bench}-{}", measure.replace(' ', "-"))
}

/// Which figures of the papers are answered above.
fn papers(charts: &[Chart]) -> Markup {
    let drawn = |(bench, measure): &(&str, &str)| {
        charts.iter().any(|chart| chart.bench == *bench && chart.measure == *measure)
    };
    html! {
        h2 id="papers" { "The papers" }
        p.soft { "Figures and tables of the papers, what answers them here, and what doesn't." }
        div.wide { table.words {
            tr { th { "figure" } th { "shows" } th { "answered by" } th { "not answered" } }
            @for answer in Answers.all() {
                @let found: BTreeSet<_> = answer.measures().filter(drawn).collect();
                tr {
                    td { (answer.figure) }
                    td { (answer.shows) }
                    td {
                        @for (bench, measure) in &found {
                            a href={ "#" (anchor(bench, measure)) } { (bench) ": " (measure) }
                            br;
                        }
                        @if found.is_empty() && !answer.steps.is_empty() {
                            "not measured in this run: " (answer.steps.join(", "))
                        }
                    }
                    td { (answer.missing) }
                }
            }
        } }
    }
}

fn table(chart: &Chart) -> Markup {
    let repetitions =
        chart.rows.iter().flat_map(|row| &row.series).map(|series| series.values.len()).max().unwrap_or(0);
    let best = |row: &series::Row| {
        let ours = row.of("farmem")?.median();
        let others = row.series.iter().filter(|series| !["farmem", "native"].contains(&series.peer.as_str()));
        let medians = others.map(series::Series::median);
        let best = match chart.better {
            Better::Less => medians.reduce(f64::min),
            Better::More => medians.reduce(f64::max),
        };
        best.filter(|best| *best > 0.0).map(|best| format!("{:.2}", ours / best))
    };
    let has_ratio = chart.rows.iter().any(|row| best(row).is_some());
    html! {
        div.wide { table {
            tr {
                th { "" }
                @for peer in &chart.peers { th { (peer) } }
                @if has_ratio { th { "farmem / best peer" } }
            }
            @for row in &chart.rows {
                tr {
                    td { (row.case) }
                    @for peer in &chart.peers {
                        td {
                            @if let Some(series) = row.of(peer) {
                                (words(series.median()))
                                @if series.values.len() > 1 {
                                    @let [least, most] = series.range();
                                    small { (words(least)) "–" (words(most)) }
                                }
                            } @else { "–" }
                        }
                    }
                    @if has_ratio { td { (best(row).unwrap_or_else(|| "–".to_owned())) } }
                }
            }
        } }
        p.soft { (if repetitions > 1 { format!("Medians of up to {repetitions} repetitions, and their range.") } else { "One repetition.".to_owned() }) }
    }
}

fn missing(left_out: &[LeftOut], bench: &str) -> Markup {
    let left_out: Vec<_> = left_out.iter().filter(|one| one.bench == bench).collect();
    html! {
        @if !left_out.is_empty() {
            h3 { "Not run here" }
            div.wide { table.words {
                @for one in left_out { tr { td { (one.what) } td { (one.reason) } } }
            } }
        }
    }
}

fn how(records: &[Record]) -> Markup {
    let stolen = records.iter().filter(|record| record.measure == STOLEN);
    let stolen = stolen.map(|record| record.value).reduce(f64::max);
    html! {
        h2 id="how" { "How to read this" }
        p { "A mark is the median of its repetitions, a faint dot one of them; point at a mark for its figure. Peers took turns within each repetition. Each pattern of \
             access checks every byte that it reads." }
        p { "Times depend on the cost of exceptions, of waking threads and of interrupting other cores, which differ by a factor of several between machines. Compare \
             within this report; between two, use " code { "farmem bench compare" } ", which says what is more than chance." }
        p { "The numbers of papers are theirs, on their machines and networks: they say what to expect in kind." }
        @if let Some(stolen) = stolen.filter(|stolen| *stolen > 0.5) {
            p { "The host of this virtual machine took up to " (format!("{stolen:.0}")) " % of the processors' time in a run of the access patterns." }
        }
    }
}

fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Paper;
    use crate::record::tests::record;

    #[test]
    fn the_page_shows_figures_papers_and_what_was_left_out_and_asks_for_nothing() {
        let paper = Paper { figure: "Canvas Table 5".to_owned(), number: "4 < 5".to_owned() };
        let mut records =
            vec![record("random-read", "farmem", 1, 12.0), record("random-read", "zram-lz4", 1, 16.0)];
        records[0].paper = Some(paper);
        let left_out =
            LeftOut { bench: "faults".into(), what: "zswap".into(), reason: "not in this kernel".into() };

        let page = page(&records, &[left_out]);

        for words in ["Canvas Table 5", "4 &lt; 5", "not in this kernel", "12.0", "0.75", "version 1.2.3"] {
            assert!(page.contains(words), "{words}");
        }
        assert!(
            page.contains("href=\"#faults-time-of-an-access\"") && page.contains("not measured in this run")
        );
        for outside in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn nothing_measured_is_a_page_too() {
        assert!(page(&[], &[]).contains("Nothing was measured yet"));
    }
}

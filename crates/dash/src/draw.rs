//! The screen as cells of a terminal. All of it is there in 80 columns and 24 lines.

use farmem_client::{Rates, Report};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row as TableRow, Table, TableState};

use crate::draw_inside::draw_inside;
use crate::inside::Level;
use crate::screen::{Row, Screen};

/// Lines below the table: a border and what is said of the selected application.
const DETAIL_LINES: u16 = 10;
/// A program that waits for pages for more than this share of a thread's time is worth a look, for more than
/// that is slowed much.
const STALL_WORTH_A_LOOK: f64 = 0.05;
const STALL_SLOWED: f64 = 0.25;

/// Puts the screen into a frame.
pub(crate) fn draw(screen: &Screen, frame: &mut Frame<'_>) {
    if screen.level != Level::Applications {
        return draw_inside(screen, frame);
    }
    let [top, middle, detail, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(if screen.rows.is_empty() { 0 } else { DETAIL_LINES }),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(headline(screen), top);
    if screen.rows.is_empty() {
        frame.render_widget(
            "Nothing runs under Farmem. Start something: farmem run --local 25% -- PROGRAM",
            middle,
        );
    } else {
        table(screen, frame, middle);
    }
    if let Some(row) = screen.selection() {
        frame.render_widget(details(row), detail);
    }
    frame.render_widget(footer(screen), bottom);
}

fn headline(screen: &Screen) -> Line<'static> {
    let sum = |figure: fn(&Report) -> u64| screen.rows.iter().map(|row| figure(&row.report)).sum::<u64>();
    let words = format!(
        "farmem: {} applications, local {}, pool {}, nodes {}, disk {}",
        screen.rows.len(),
        size(sum(|report| report.resident_bytes) as f64),
        size(sum(|report| report.pool_bytes) as f64),
        size(sum(|report| report.node_bytes) as f64),
        size(sum(|report| report.disk_bytes) as f64)
    );
    Line::from(words).bold()
}

fn table(screen: &Screen, frame: &mut Frame<'_>, area: Rect) {
    let header = ["NAME", "BUDGET", "LOCAL", "FAR", "POOL", "NODES", "DISK", "FAULT/s", "WAITS", "AHEAD"];
    let widths = [12, 7, 7, 7, 7, 7, 7, 7, 5, 5].map(Constraint::Length);
    let rows = screen.rows.iter().map(|row| {
        let report = &row.report;
        let cells = [
            size(report.budget_bytes as f64),
            size(report.resident_bytes as f64),
            size(report.far_bytes() as f64),
            size(report.pool_bytes as f64),
            size(report.node_bytes as f64),
            size(report.disk_bytes as f64),
            count(row.rates.faults),
        ]
        .map(right);
        let waits = right(percent(row.rates.stall)).style(stall_style(row.rates.stall));
        let ahead = right(percent(report.contribution));
        TableRow::new([Cell::from(report.name.clone())].into_iter().chain(cells).chain([waits, ahead]))
    });
    let header = TableRow::new(header.iter().enumerate().map(|(at, &word)| match at {
        0 => Cell::from(word),
        _ => right(word.to_owned()),
    }));
    let table = Table::new(rows, widths)
        .header(header.style(Style::new().underlined()))
        .row_highlight_style(Style::new().reversed());
    let mut state = TableState::new().with_selected(screen.position());
    frame.render_stateful_widget(table, area, &mut state);
}

fn details(row: &Row) -> Paragraph<'static> {
    let report = &row.report;
    let Rates { in_bytes, out_bytes, pager, .. } = row.rates;
    let packed =
        report.pool_stored_bytes as f64 / (report.pool_stored_pages << farmem_page::PAGE_SHIFT).max(1) as f64;
    let mut lines = vec![
        format!(
            "budget   {} of {}",
            bar(report.resident_bytes, report.budget_bytes),
            size(report.budget_bytes as f64)
        ),
        format!(
            "pool     {} of {}",
            bar(report.pool_bytes, report.pool_limit_bytes),
            size(report.pool_limit_bytes as f64)
        ),
        format!(
            "cache    {} of {}",
            bar(report.cache_bytes, report.cache_limit_bytes),
            size(report.cache_limit_bytes as f64)
        ),
        format!(
            "far      {} pages, packed to {} of their size{}",
            report.far_pages,
            percent(packed),
            from_nodes(report)
        ),
        format!(
            "moving   in {}/s, out {}/s; the pager uses {} of a processor",
            size(in_bytes),
            size(out_bytes),
            percent(pager)
        ),
    ];
    if report.has_nodes() {
        lines.push(over_links(&row.rates));
    }
    lines.extend(shared_memory(report));
    lines.extend([
        format!(
            "a fault  half of them within {:.0} µs, 99% within {:.0} µs",
            report.fault_p50_us, report.fault_p99_us
        ),
        format!(
            "ahead    {} by {}, {} of what was fetched ahead was used",
            percent(report.contribution),
            report.prefetch,
            percent(report.accuracy)
        ),
        format!(
            "since    {:.0} s; at most {} local; processes {}; weight {}; {}",
            report.wall_seconds,
            size(report.resident_peak_bytes as f64),
            report.processes,
            report.weight,
            trouble(report)
        ),
    ]);
    let title = format!(" {} ({}) ", report.name, report.process);
    Paragraph::new(lines.into_iter().map(Line::from).collect::<Vec<_>>())
        .block(Block::new().borders(Borders::TOP).title(title))
}

/// What processes share, where they share any.
fn shared_memory(report: &Report) -> Option<String> {
    let bytes = [report.shared_resident_bytes, report.shared_far_bytes, report.shared_local_bytes];
    let [resident, far, stays] = bytes.map(|bytes| size(bytes as f64));
    let has_any = bytes.iter().any(|&bytes| bytes > 0);
    has_any.then(|| {
        format!(
            "shared   {resident} local, {far} far; besides, {stays} with a name or a descriptor stay local"
        )
    })
}

/// What goes over links to memory nodes, by what it is for.
fn over_links(rates: &Rates) -> String {
    let inward = rates.link_in_bytes.named().map(|(class, bytes)| format!("{}/s {class}", size(bytes)));
    format!("links    in {}; out {}/s", inward.join(", "), size(rates.link_out_bytes.sum()))
}

/// How often what lay on nodes was here before it was asked for, if anything was.
fn from_nodes(report: &Report) -> String {
    match report.node_fetches + report.read_buffer_hits {
        0 => String::new(),
        all => format!("; from nodes {} ahead", percent(report.read_buffer_hits as f64 / all as f64)),
    }
}

/// What went wrong, worst first.
fn trouble(report: &Report) -> String {
    match (report.counter("lost"), report.disk_writes_failed) {
        (0, 0) => "no losses".to_owned(),
        (0, failed) => format!("{failed} DISK WRITES REFUSED"),
        (lost, _) => format!("{lost} PAGES LOST"),
    }
}

fn footer(screen: &Screen) -> Line<'static> {
    if let Some(entry) = &screen.entry {
        return Line::from(vec![
            Span::from(format!("{}={}", entry.limit.name(), entry.text)).bold(),
            Span::from("_   Enter: change it   Esc: leave it"),
        ]);
    }
    if screen.message.is_empty() {
        Line::from("↑↓ select  ⏎ inside  l local  p pool  t partition  c cache  w weight  q quit")
    } else {
        Line::from(screen.message.clone())
    }
}

pub(crate) fn stall_style(stall: f64) -> Style {
    match stall {
        stall if stall > STALL_SLOWED => Style::new().fg(Color::Red),
        stall if stall > STALL_WORTH_A_LOOK => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

pub(crate) fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

/// Twenty cells, filled as far as `part` fills `whole`.
fn bar(part: u64, whole: u64) -> String {
    const CELLS: u64 = 20;
    let filled = (part.saturating_mul(CELLS) / whole.max(1)).min(CELLS) as usize;
    format!("[{:<20}] {:>4}", "#".repeat(filled), percent(part as f64 / whole.max(1) as f64))
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// A size in at most seven letters.
pub(crate) fn size(bytes: f64) -> String {
    let (unit, letter) = [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')]
        .into_iter()
        .map(|(shift, letter)| ((1_u64 << shift) as f64, letter))
        .find(|&(unit, _)| bytes >= unit)
        .unwrap_or((1.0, 'B'));
    format!("{:.1}{letter}", bytes / unit)
}

pub(crate) fn count(number: f64) -> String {
    if number < 100_000.0 { format!("{number:.0}") } else { format!("{:.0}k", number / 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farmem_client::ByClass;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn text(screen: &Screen) -> String {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(screen, frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn everything_has_its_place_in_80_by_24() {
        let counters = [("faults", 3000), ("fetches", 1024), ("evicted", 2048), ("stall_ns", 600_000_000)];
        let report = Report {
            name: "redis-server".to_owned(),
            process: 4711,
            processes: 2,
            wall_seconds: 2.0,
            budget_bytes: 128 << 20,
            resident_bytes: 96 << 20,
            resident_peak_bytes: 130 << 20,
            far_pages: 1 << 16,
            contribution: 0.75,
            accuracy: 0.9,
            pool_bytes: 1 << 27,
            pool_limit_bytes: 1 << 30,
            node_bytes: 64 << 20,
            node_fetches: 200,
            read_buffer_hits: 800,
            pool_stored_pages: 1 << 16,
            pool_stored_bytes: 1 << 27,
            cache_bytes: 1 << 20,
            pinned_bytes: 0,
            cache_limit_bytes: 32 << 20,
            prefetch: "streams".to_owned(),
            redundancy: "none".to_owned(),
            link_in_class_bytes: ByClass { demand: 8 << 20, ahead: 4 << 20, bulk: 2 << 20 },
            link_out_class_bytes: ByClass { bulk: 1 << 30, ..ByClass::default() },
            fault_p50_us: 9.0,
            fault_p99_us: 61.0,
            weight: 1,
            counters: counters.map(|(name, value)| (name.to_owned(), value.into())).into_iter().collect(),
            ..Report::default()
        };
        let mut screen = Screen::default();
        screen.update(vec![report]);

        let text = text(&screen);

        for words in [
            "farmem: 1 applications, local 96.0M, pool 128.0M, nodes 64.0M, disk 0.0B",
            "redis-server  128.0M   96.0M  256.0M  128.0M   64.0M    0.0B    1500   30%   75%",
            "budget   [###############     ]  75% of 128.0M",
            "cache    [                    ]   3% of 32.0M",
            "far      65536 pages, packed to 50% of their size; from nodes 80% ahead",
            "moving   in 2.0M/s, out 4.0M/s",
            "links    in 4.0M/s demand, 2.0M/s ahead, 1.0M/s bulk; out 512.0M/s",
            "half of them within 9 µs, 99% within 61 µs",
            "ahead    75% by streams, 90% of what was fetched ahead was used",
            "weight 1; no losses",
            "q quit",
        ] {
            assert!(text.contains(words), "{words} is missing:\n{text}");
        }
    }

    #[test]
    fn nothing_is_said_of_links_where_there_are_no_nodes() {
        let mut screen = Screen::default();
        screen.update(vec![Report { name: "alone".to_owned(), ..Report::default() }]);
        assert!(!text(&screen).contains("links "));
    }

    #[test]
    fn an_empty_screen_says_what_to_do() {
        assert!(text(&Screen::default()).contains("farmem run --local 25% -- PROGRAM"));
    }

    #[test]
    fn sizes_and_counts_are_short() {
        assert_eq!(
            ["0.0B", "1.5K", "1.0T"],
            [0.0, 1536.0, (1_u64 << 40) as f64].map(size).each_ref().map(String::as_str)
        );
        assert_eq!((count(99_999.0), count(1_234_567.0)), ("99999".to_owned(), "1235k".to_owned()));
    }
}

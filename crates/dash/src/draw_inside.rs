//! The inside of an application as cells of a terminal: its processes, or the regions of one. All of it is
//! there in 80 columns and 24 lines.

use farmem_client::RegionReport;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState};

use crate::draw::{count, percent, right, size, stall_style};
use crate::inside::Level;
use crate::screen::Screen;

/// Lines that say what the columns mean, below a border.
const LEGEND_LINES: u16 = 5;

/// Puts it into a frame.
pub(crate) fn draw_inside(screen: &Screen, frame: &mut Frame<'_>) {
    let [top, middle, legend, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(LEGEND_LINES),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Line::from(headline(screen)).bold(), top);
    if !screen.inside.problem.is_empty() {
        frame.render_widget(Paragraph::new(screen.inside.problem.as_str()), middle);
    } else if let Level::Regions { .. } = screen.level {
        regions(screen, frame, middle);
    } else {
        processes(screen, frame, middle);
    }
    let words = if let Level::Regions { .. } = screen.level { REGION_WORDS } else { PROCESS_WORDS };
    let lines: Vec<Line<'_>> = words.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::new().borders(Borders::TOP)), legend);
    let keys = match screen.level {
        Level::Regions { .. } => "↑↓ select   Esc back to the processes   q quit",
        _ => "↑↓ select   ⏎ its regions   Esc back to all applications   q quit",
    };
    frame.render_widget(Line::from(keys), bottom);
}

const PROCESS_WORDS: [&str; 4] = [
    "LIMIT: local memory that it may have. LOCAL: what it has. FAR: in far memory",
    "WAITS: time that its threads wait for pages; 100% is one that always waits",
    "REFAULT: refault distance, as memory: with so much more of it half of the",
    "pages that came back would have stayed",
];
const REGION_WORDS: [&str; 4] = [
    "LOCAL, FAR: its pages here and in far memory. The largest regions come first",
    "HOT: local pages that came back soon after they had last left",
    "PACKED: what far pages take, of their size; zeros take nothing",
    "IDLE: far pages that nobody wanted while all local memory left once",
];

fn headline(screen: &Screen) -> String {
    let inside = &screen.inside;
    let name = screen.selection().map_or("", |row| row.report.name.as_str());
    match screen.level {
        Level::Regions { process, .. } => {
            let regions = &inside.regions;
            let whose = inside.processes.iter().find(|row| row.report.process == process);
            let whose = whose.map_or("", |row| row.report.name.as_str());
            let shown = regions.regions.len() as u64;
            let more = match regions.count.saturating_sub(shown) {
                0 => String::new(),
                more => format!("; {more} smaller ones hold {}", size(held(&regions.rest) as f64)),
            };
            format!("{name}, process {process} {whose}: {} regions{more}", regions.count)
        }
        _ => format!("{name}: {} processes", inside.processes.len()),
    }
}

fn held(region: &RegionReport) -> u64 {
    region.resident_bytes.saturating_add(region.far_bytes)
}

fn header<const N: usize>(words: [&'static str; N], left: usize) -> Row<'static> {
    let cells = words.into_iter().enumerate().map(|(at, word)| match at < left {
        true => Cell::from(word),
        false => right(word.to_owned()),
    });
    Row::new(cells).style(Style::new().underlined())
}

fn processes(screen: &Screen, frame: &mut Frame<'_>, area: Rect) {
    let rows = screen.inside.processes.iter().map(|row| {
        let report = &row.report;
        let is_managed = report.is_managed;
        let cells = [
            size(report.limit_bytes as f64),
            size(report.resident_bytes as f64),
            size(report.far_bytes as f64),
            count(row.faults_per_second),
        ]
        .map(right);
        let distance = match report.refault_distance_bytes {
            Some(bytes) => size(bytes as f64),
            None if is_managed => "-".to_owned(),
            None => "untouched".to_owned(),
        };
        let waits = right(percent(row.stall)).style(stall_style(row.stall));
        let first = [Cell::from(report.process.to_string()), Cell::from(report.name.clone())];
        Row::new(first.into_iter().chain(cells).chain([waits, right(distance)]))
    });
    let widths = [10, 16, 8, 8, 8, 8, 6, 9].map(Constraint::Length);
    let table = Table::new(rows, widths)
        .header(header(["PID", "NAME", "LIMIT", "LOCAL", "FAR", "FAULT/s", "WAITS", "REFAULT"], 2))
        .row_highlight_style(Style::new().reversed());
    let mut state = TableState::new().with_selected(screen.inside.process_position());
    frame.render_stateful_widget(table, area, &mut state);
}

fn regions(screen: &Screen, frame: &mut Frame<'_>, area: Rect) {
    let part = |part: Option<f64>| part.map_or_else(|| "-".to_owned(), percent);
    let rows = screen.inside.regions.regions.iter().map(|region| {
        let cells = [
            size(region.end.saturating_sub(region.start) as f64),
            size(region.resident_bytes as f64),
            size(region.far_bytes as f64),
            part((region.resident_bytes > 0).then(|| region.heat())),
            part(region.packed_share()),
            part(region.idle()),
        ]
        .map(right);
        Row::new([Cell::from(format!("{:#x}", region.start))].into_iter().chain(cells))
    });
    let widths = [18, 9, 9, 9, 7, 8, 7].map(Constraint::Length);
    let table = Table::new(rows, widths)
        .header(header(["ADDRESS", "SIZE", "LOCAL", "FAR", "HOT", "PACKED", "IDLE"], 1))
        .row_highlight_style(Style::new().reversed());
    let mut state = TableState::new().with_selected(screen.inside.region_position());
    frame.render_stateful_widget(table, area, &mut state);
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use farmem_client::{ProcessReport, RegionsReport, Report};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn screen(level: Level) -> Screen {
        let mut screen = Screen::default();
        screen.update(vec![Report { name: "shop".to_owned(), process: 40, ..Report::default() }]);
        screen.level = level;
        let process = |process: u32, faults: u64| ProcessReport {
            process,
            name: "redis-server".to_owned(),
            is_managed: true,
            limit_bytes: 64 << 20,
            resident_bytes: 60 << 20,
            far_bytes: 256 << 20,
            faults,
            stall_ns: faults * 100_000,
            refault_distance_bytes: (faults > 0).then_some(96 << 20),
            ..ProcessReport::default()
        };
        let now = Instant::now();
        screen.inside.update_processes(Ok(vec![process(40, 1000), process(41, 0)]), now);
        let later = now + Duration::from_secs(2);
        screen.inside.update_processes(Ok(vec![process(40, 9000), process(41, 0)]), later);
        let region = |start: u64, resident: u64, far: u64| RegionReport {
            start,
            end: start + (512 << 20),
            resident_bytes: resident,
            hot_bytes: resident / 4,
            far_bytes: far,
            stored_bytes: far,
            packed_bytes: far / 2,
            away_bytes: [far / 2, far / 4, far / 8, far / 8],
        };
        let regions = vec![region(0x5555_0000_0000, 1 << 20, 0), region(0x7fff_1234_5000, 59 << 20, 1 << 28)];
        let rest = region(0, 1 << 20, 1 << 20);
        screen.inside.update_regions(Ok(RegionsReport { process: 40, regions, count: 5, rest }));
        screen
    }

    fn lines(screen: &Screen) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw_inside(screen, frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |cells: &[ratatui::buffer::Cell]| {
            cells.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()
        };
        buffer.content().chunks(80).map(line).collect()
    }

    #[test]
    fn the_processes_of_an_application_have_their_place_in_80_by_24() {
        let lines = lines(&screen(Level::Processes { application: 40 }));
        assert_eq!(
            lines[..4],
            [
                "shop: 2 processes",
                "PID        NAME                LIMIT    LOCAL      FAR  FAULT/s  WAITS   REFAULT",
                "40         redis-server        64.0M    60.0M   256.0M     4000    40%     96.0M",
                "41         redis-server        64.0M    60.0M   256.0M        0     0%         -",
            ]
        );
        assert_eq!(lines[22], PROCESS_WORDS[3]);
        assert!(lines[23].ends_with("q quit"), "{lines:?}");
    }

    #[test]
    fn the_regions_of_a_process_have_their_place_in_80_by_24() {
        let lines = lines(&screen(Level::Regions { application: 40, process: 40 }));
        assert_eq!(
            lines[..4],
            [
                "shop, process 40 redis-server: 5 regions; 3 smaller ones hold 2.0M",
                "ADDRESS                 SIZE     LOCAL       FAR     HOT   PACKED    IDLE",
                "0x7fff12345000        512.0M     59.0M    256.0M     25%      50%     25%",
                "0x555500000000        512.0M      1.0M      0.0B     25%        -       -",
            ]
        );
        assert!(lines[23].contains("Esc back to the processes"), "{lines:?}");
    }

    #[test]
    fn why_nothing_is_known_is_said() {
        let mut screen = screen(Level::Regions { application: 40, process: 40 });
        screen.inside.update_regions(Err("process 40 doesn't answer".to_owned()));
        assert!(lines(&screen)[1].contains("doesn't answer"));
    }
}

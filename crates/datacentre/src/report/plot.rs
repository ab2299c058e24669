//! Lines over time, as SVG within the page.

use std::fmt::Write;

use maud::{Markup, html};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const FOOT: f64 = 40.0;
const TICKS: usize = 4;

/// One line; gaps where there is nothing.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) points: Vec<(f64, Option<f64>)>,
}

/// Draws lines over the same hours, from zero on.
pub(super) fn plot(unit: &str, lines: &[Line]) -> Markup {
    let points = || lines.iter().flat_map(|line| line.points.iter());
    let end = points().map(|(hours, _)| *hours).fold(0.0, f64::max).max(1e-9);
    let top = nice(points().filter_map(|(_, value)| *value).fold(0.0, f64::max));
    let x = |hours: f64| LEFT + hours / end * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - FOOT - value / top * (HEIGHT - FOOT - TOP);
    let ticks = || (0..=TICKS).map(|tick| tick as f64 / TICKS as f64);
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(unit) {
            @for part in ticks() {
                line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(round(y(part * top))) y2=(round(y(part * top))) {}
                text.tick x=(LEFT - 8.0) y=(round(y(part * top) + 4.0)) text-anchor="end" { (number(part * top)) }
                text.tick x=(round(x(part * end))) y=(HEIGHT - FOOT + 16.0) text-anchor="middle" { (number(part * end)) }
            }
            text.unit x=(WIDTH - RIGHT) y=(HEIGHT - 6.0) text-anchor="end" { (unit) ", over hours" }
            @for (at, line) in lines.iter().enumerate() {
                path class={ "line p" (at) } d=(path(line, &x, &y)) {}
            }
        }
        @if lines.len() > 1 {
            p.legend {
                @for (at, line) in lines.iter().enumerate() {
                    span class={ "key p" (at) } { (line.name) }
                }
            }
        }
    }
}

fn path(line: &Line, x: &impl Fn(f64) -> f64, y: &impl Fn(f64) -> f64) -> String {
    let (mut path, mut is_drawing) = (String::new(), false);
    for (hours, value) in &line.points {
        if let Some(value) = value {
            let letter = if is_drawing { 'L' } else { 'M' };
            // Writing to a String does not fail.
            let _ = write!(path, "{letter}{} {}", round(x(*hours)), round(y(*value)));
        }
        is_drawing = value.is_some();
    }
    path
}

/// The next number of one digit that is no smaller.
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let unit = 10_f64.powf(value.log10().floor());
    (value / unit).ceil() * unit
}

fn number(value: f64) -> String {
    let digits = if value >= 100.0 || value == 0.0 { 0 } else { 2 };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn round(place: f64) -> f64 {
    (place * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_gaps_where_there_is_nothing() {
        let line = Line {
            name: "a",
            points: vec![(0.0, Some(1.0)), (1.0, None), (2.0, Some(3.0)), (3.0, Some(4.0))],
        };
        assert_eq!(path(&line, &|x| x, &|y| y), "M0 1M2 3L3 4");
    }

    #[test]
    fn numbers_are_written_without_what_says_nothing() {
        assert_eq!([0.0, 0.25, 7.5, 30.0, 1200.0].map(number), ["0", "0.25", "7.5", "30", "1200"]);
        assert_eq!([0.0, 0.03, 7.2, 130.0].map(nice).map(number), ["1", "0.03", "8", "200"]);
    }
}

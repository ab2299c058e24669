//! A chart of what happened second by second, as SVG: a line for each peer through the medians of its
//! repetitions.

use maud::{Markup, html};

use super::axis::{Axis, round_words, words};
use super::plot::{round, style};
use super::series::Chart;
use crate::isolation::SECOND;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 10.0;
const FOOT: f64 = 40.0;

/// The second that a case is, if it is one.
fn second(case: &str) -> Option<f64> {
    case.strip_prefix(SECOND)?.trim_start().parse().ok()
}

/// Whether the cases of a chart are seconds.
pub(super) fn is_course(chart: &Chart) -> bool {
    chart.rows.iter().all(|row| second(&row.case).is_some())
}

/// Draws the chart.
pub(super) fn course(chart: &Chart) -> Markup {
    let of = |peer: &str| -> Vec<(f64, f64)> {
        let rows = chart.rows.iter();
        let mut points: Vec<(f64, f64)> =
            rows.filter_map(|row| Some((second(&row.case)?, row.of(peer)?.median()))).collect();
        points.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        points
    };
    let all: Vec<(f64, f64)> = chart.peers.iter().flat_map(|peer| of(peer)).collect();
    let values: Vec<f64> = all.iter().map(|&(_, value)| value).collect();
    let upwards = Axis::over(&values, &[]);
    // Seconds are at regular places, wherever most of them lie.
    let last = all.iter().map(|&(second, _)| second).fold(1.0, f64::max);
    let across = Axis::over(&[last], &[]);
    let bottom = HEIGHT - FOOT;
    let x = |second: f64| round(LEFT + across.place(second) * (WIDTH - LEFT - RIGHT));
    let y = |value: f64| round(bottom - upwards.place(value) * (bottom - TOP));
    let scale = if upwards.is_logarithmic() { ", logarithmic" } else { "" };
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label={ (chart.bench) ": " (chart.measure) } {
            @for tick in upwards.ticks() {
                line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(y(tick)) y2=(y(tick)) {}
                text.tick x=(LEFT - 8.0) y=(y(tick) + 4.0) text-anchor="end" { (round_words(tick)) }
            }
            @for tick in across.ticks() {
                text.tick x=(x(tick)) y=(bottom + 16.0) text-anchor="middle" { (round_words(tick)) }
            }
            text.unit x=(WIDTH - RIGHT) y=(bottom + 34.0) text-anchor="end" { (chart.unit) (scale) ", by seconds" }
            @for peer in &chart.peers {
                @let points = of(peer);
                @let line: Vec<String> = points.iter().map(|&(second, value)| format!("{},{}", x(second), y(value))).collect();
                g class={ "peer" (style(chart, peer)) } {
                    title { (peer) }
                    polyline.course points=(line.join(" ")) {}
                    @for &(second, value) in &points {
                        circle.mark cx=(x(second)) cy=(y(value)) r="2.5" {
                            title { (peer) ", " (SECOND) " " (second) ": " (words(value)) " " (chart.unit) }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::series::charts;
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn seconds_are_a_line_in_their_order_whatever_order_they_came_in() {
        let records =
            [10, 2, 1].map(|at| record(&format!("second {at}"), "farmem", 1, f64::from(at) * 100.0));
        let chart = &charts(&records)[0];

        assert!(is_course(chart));
        let drawn = course(chart).into_string();
        let (_, points) = drawn.split_once("points=\"").unwrap();
        let across: Vec<f64> = points
            .split('"')
            .next()
            .unwrap()
            .split(' ')
            .map(|point| point.split(',').next().unwrap().parse().unwrap())
            .collect();
        assert!(across.len() == 3 && across.is_sorted(), "{drawn}");
    }

    #[test]
    fn other_cases_are_no_course() {
        assert!(!is_course(&charts(&[record("second hand", "farmem", 1, 1.0)])[0]));
        assert!(!is_course(&charts(&[record("zipf", "farmem", 1, 1.0)])[0]));
    }
}

//! A chart as SVG: a row for each case, a mark for each peer at the median of its repetitions, and a faint
//! dot for each repetition.

use maud::{Markup, PreEscaped, html};

use super::axis::{Axis, round_words, words};
use super::series::Chart;

const WIDTH: f64 = 860.0;
const LABELS: f64 = 290.0;
const RIGHT: f64 = 24.0;
const ROW: f64 = 26.0;
const FOOT: f64 = 40.0;
const MARK: f64 = 5.0;

/// Ways to draw a mark; the first is ours. Colours are by class, `peer0` on.
const SHAPES: usize = 7;
/// Peers that look the same in all charts. Others take what is left.
const KNOWN: [(&str, usize); 12] = [
    ("farmem", 0),
    ("node", 0),
    ("two-tier", 0),
    ("native", 1),
    ("zram-lz4", 2),
    ("zram", 2),
    ("zswap", 3),
    ("swap-file", 4),
    ("swap file", 4),
    ("file", 4),
    ("swap-loop", 5),
    ("loop", 5),
];
/// Whose figures are not to be compared with, but to be known.
const BESIDE: &str = "native";

/// A series without peers: the row says what it is.
const ALONE: &str = "machine";

/// The number by which a peer is drawn.
pub(super) fn style(chart: &Chart, peer: &str) -> usize {
    let known = |peer: &str| KNOWN.iter().find(|(name, _)| *name == peer).map(|(_, number)| *number);
    known(peer).unwrap_or_else(|| {
        let taken: Vec<usize> = chart.peers.iter().filter_map(|peer| known(peer)).collect();
        let free: Vec<usize> = (1..SHAPES).filter(|number| !taken.contains(number)).collect();
        let mut others = chart.peers.iter().filter(|other| known(other).is_none());
        let at = others.position(|other| other == peer).unwrap_or(0);
        // With more peers than marks some share one.
        free.get(at % free.len().max(1)).copied().unwrap_or(1)
    })
}

/// Draws the chart.
pub(super) fn plot(chart: &Chart) -> Markup {
    let values = |is_beside: bool| -> Vec<f64> {
        let series = chart.rows.iter().flat_map(|row| &row.series);
        let series = series.filter(|series| (series.peer == BESIDE) == is_beside);
        series.flat_map(|series| series.values.iter().copied()).collect()
    };
    let axis = Axis::over(&values(false), &values(true));
    let height = chart.rows.len() as f64 * ROW + FOOT;
    let bottom = height - FOOT;
    let x = |value: f64| LABELS + axis.place(value) * (WIDTH - LABELS - RIGHT);
    let scale = if axis.is_logarithmic() { ", logarithmic" } else { "" };
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label={ (chart.bench) ": " (chart.measure) } {
            @for tick in axis.ticks() {
                line.grid x1=(round(x(tick))) x2=(round(x(tick))) y1="0" y2=(bottom) {}
                text.tick x=(round(x(tick))) y=(bottom + 16.0) text-anchor="middle" { (round_words(tick)) }
            }
            text.unit x=(WIDTH - RIGHT) y=(bottom + 34.0) text-anchor="end" { (chart.unit) (scale) }
            @for (at, row) in chart.rows.iter().enumerate() {
                @let y = at as f64 * ROW + ROW / 2.0;
                text.case x=(LABELS - 14.0) y=(y + 4.0) text-anchor="end" { (row.case) }
                line.row x1=(LABELS) x2=(WIDTH - RIGHT) y1=(y) y2=(y) {}
                // Ours last, on top.
                @for series in row.series.iter().filter(|one| style(chart, &one.peer) > 0)
                    .chain(row.series.iter().filter(|one| style(chart, &one.peer) == 0)) {
                    @let number = style(chart, &series.peer);
                    g class={ "peer" (number) } {
                        title { (series.peer) ", " (row.case) ": " (words(series.median())) " " (chart.unit) }
                        @if series.values.len() > 1 {
                            @for value in &series.values {
                                circle.one cx=(round(x(*value))) cy=(y) r="2" {}
                            }
                        }
                        (mark(number, x(series.median()), y))
                    }
                }
            }
        }
    }
}

/// What the marks mean.
pub(super) fn legend(chart: &Chart) -> Markup {
    html! {
        @if chart.peers != [ALONE] {
            p.legend {
                @for peer in &chart.peers {
                    @let number = style(chart, peer);
                    span {
                        svg.key viewBox="0 0 14 14" aria-hidden="true" {
                            g class={ "peer" (number) } { (mark(number, 7.0, 7.0)) }
                        }
                        (peer)
                    }
                }
            }
        }
    }
}

fn mark(number: usize, x: f64, y: f64) -> PreEscaped<String> {
    let [left, right, top, bottom] = [x - MARK, x + MARK, y - MARK, y + MARK].map(round);
    let (x, y) = (round(x), round(y));
    let side = 2.0 * MARK - 1.0;
    html! {
        @match number {
            0 => circle.mark cx=(x) cy=(y) r=(MARK + 1.0) {},
            1 => path.mark d={ "M" (x) " " (top) "V" (bottom) "M" (left) " " (y) "H" (right) } {},
            2 => rect.mark x=(round(x - side / 2.0)) y=(round(y - side / 2.0)) width=(side) height=(side) {},
            3 => path.mark d={ "M" (left) " " (bottom) "H" (right) "L" (x) " " (top) "Z" } {},
            4 => path.mark d={ "M" (x) " " (top) "L" (right) " " (y) "L" (x) " " (bottom) "L" (left) " " (y) "Z" } {},
            5 => path.mark d={ "M" (left) " " (top) "L" (right) " " (bottom) "M" (left) " " (bottom) "L" (right) " " (top) } {},
            _ => circle.mark.ring cx=(x) cy=(y) r=(MARK) {},
        }
    }
}

pub(super) fn round(place: f64) -> f64 {
    (place * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::series::charts;
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn peers_of_a_chart_do_not_look_alike() {
        for peers in
            [["native", "swap file", "pool", "node"], ["a", "b", "native", "zram"], ["farmem", "a", "b", "c"]]
        {
            let records: Vec<_> = peers.iter().map(|peer| record("sort", peer, 1, 1.0)).collect();
            let chart = &charts(&records)[0];
            let styles: BTreeSet<usize> = peers.iter().map(|peer| style(chart, peer)).collect();
            assert_eq!(styles.len(), peers.len(), "{peers:?}");
        }
    }

    #[test]
    fn who_was_measured_alone_is_named_and_the_machine_is_not() {
        let legend_of = |peer| legend(&charts(&[record("sort", peer, 1, 1.0)])[0]).into_string();
        assert!(legend_of("farmem").contains("farmem"));
        assert!(legend_of("machine").is_empty());
    }
}

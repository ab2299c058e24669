//! The report: one HTML file that asks for nothing from elsewhere.

mod plot;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::outcome::{Outcome, Point};
use plot::{Line, plot};

const STYLE: &str = include_str!("style.css");

/// Makes the report.
pub fn page(outcome: &Outcome) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "A datacentre, simulated" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "A datacentre, simulated" }
                p.soft {
                    (outcome.nodes) " nodes in " (outcome.racks) " racks, " (outcome.clients) " clients, " (outcome.hours) " hours, redundancy "
                    (outcome.redundancy) ", seed " (outcome.seed) ". Farmem's own policies decided; machines, network and demand for memory were simulated."
                }
                (targets(outcome))
                (charts(outcome))
                h2 { "All figures" }
                pre { (outcome) }
            }
        }
    }
    .into_string()
}

fn targets(outcome: &Outcome) -> Markup {
    html! {
        table {
            thead { tr { th { "wanted" } th { "at most" } th { "reached" } th { "verdict" } } }
            tbody {
                @for target in &outcome.targets {
                    tr {
                        td { (target.wanted) }
                        td { (target.at_most) }
                        td { @if let Some(reached) = target.reached { (format!("{reached:.2}")) } @else { "–" } }
                        td class=(if target.is_met { "met" } else { "missed" }) {
                            @if target.is_met { "met" } @else { "missed" }
                        }
                    }
                }
            }
        }
    }
}

fn charts(outcome: &Outcome) -> Markup {
    let line = |name: &'static str, value: fn(&Point) -> Option<f64>| Line {
        name,
        points: outcome.course.iter().map(|point| (point.hours, value(point))).collect(),
    };
    html! {
        h2 { "Fetches" }
        p { "How long a thread waited for a page, among those that were followed." }
        (plot("µs", &[line("p50", |point| point.fetch_p50_us), line("p99", |point| point.fetch_p99_us)]))
        h2 { "Redundancy" }
        p { "Shards that blocks lacked, at most between one look and the next." }
        (plot("shards", &[line("lacking", |point| Some(point.lacking_shards as f64))]))
        h2 { "Losses" }
        p { "Pages lost until then." }
        (plot("pages", &[line("lost", |point| Some(point.lost_pages as f64))]))
        h2 { "Machines" }
        p { "Machines that didn't answer." }
        (plot("machines", &[line("down", |point| Some(point.down as f64))]))
        h2 { "Load" }
        p { "How full nodes were, of what each lends." }
        (plot("%", &[
            line("emptiest", |point| Some(point.least_percent)),
            line("middle", |point| Some(point.p50_percent)),
            line("fullest", |point| Some(point.most_percent)),
        ]))
        h2 { "Demand" }
        p { "Far memory of all clients." }
        (plot("GiB", &[line("far", |point| Some(point.far_pages as f64 / 262_144.0))]))
        h2 { "Control messages" }
        p { "Requests that move no page, in a second, for each node; signs of life of idle links are not among them." }
        (plot("a second", &[line("messages", |point| Some(point.messages_per_second))]))
    }
}

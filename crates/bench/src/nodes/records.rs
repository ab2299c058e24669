//! A report as records.

use super::report::{Report, Side};
use crate::record::{Findings, Measurement};

impl Report {
    /// What it found.
    pub(crate) fn findings(&self) -> Findings {
        let mut found = Vec::new();
        for way in &self.ways {
            found.extend(side(&way.way, "node", &way.node));
            found.extend(side(&way.way, "bare connection", &way.bare));
        }
        for program in &self.programs {
            let (case, peer) = (program.pattern.as_str(), program.far.as_str());
            found.push(Measurement::less(case, peer, "time of an access", program.access_us, "µs"));
            let fetched = program.node_fetches + program.read_buffer_hits;
            if program.node_fetches > 0.0 {
                let share = program.read_buffer_hits / fetched * 100.0;
                found.push(Measurement::more(case, peer, "found in the read buffer", share, "%"));
            }
        }
        for link in &self.shared {
            let (case, board) = (link.way.as_str(), "farmem");
            let us = |peer, measure, value: f64| Measurement::less(case, peer, measure, value, "µs");
            found.extend([
                Measurement::more(case, board, "ratio of parts by weight", link.ratio, ""),
                us("alone", "p99 of 16 pages", link.demand_p99_us),
                us("beside what is fetched ahead", "p99 of 16 pages", link.flooded_p99_us),
                us("beside it, in one class", "p99 of 16 pages", link.one_class_p99_us),
                us("beside it, without a schedule", "p99 of 16 pages", link.unscheduled_p99_us),
                us(board, "p90 of what is fetched ahead", link.ahead_p90_us),
                us("late ones dropped", "p99 of 16 pages", link.dropping_p99_us),
                us("late ones dropped", "p90 of what is fetched ahead", link.dropping_p90_us),
                us("in one class", "p90 of what is fetched ahead", link.one_class_p90_us),
                us("without a schedule", "p90 of what is fetched ahead", link.unscheduled_p90_us),
            ]);
        }
        for figure in &self.spaces {
            let case = format!("three programs, {}", figure.way);
            found.extend([
                Measurement::more(case.as_str(), "farmem", "ratio of parts by weight", figure.ratio, ""),
                Measurement::more(case, "farmem", "rate of all three", figure.bytes_per_second / 1e6, "MB/s"),
            ]);
        }
        for figure in &self.walks {
            let case = format!("{}, {}", figure.pattern, figure.way);
            for (beside, walk) in [("alone", &figure.alone), ("beside a flood", &figure.flooded)] {
                let less = |measure, value, unit| Measurement::less(&case, beside, measure, value, unit);
                let more = |measure, value| Measurement::more(&case, beside, measure, value, "%");
                found.extend([
                    less("p50 of a fault", walk.fault_p50_us, "µs"),
                    less("p99 of a fault", walk.fault_p99_us, "µs"),
                    less("time of a visit", walk.access_us, "µs"),
                    less("reads ahead dropped", walk.ahead_dropped, "reads"),
                    less("reads ahead awaited", walk.ahead_awaited, "reads"),
                    more("contribution on a node", walk.contribution * 100.0),
                    more("accuracy on a node", walk.accuracy * 100.0),
                ]);
            }
        }
        for figure in &self.speed_ups {
            let case = format!("{}, 1/{} local", figure.kernel, figure.part);
            let swap_file = if figure.is_swap_file_ended { "swap file, ended then" } else { "swap file" };
            let places = [
                ("native", Some(figure.native_seconds)),
                (swap_file, figure.swap_file_seconds),
                ("pool", Some(figure.pool_seconds)),
                ("node", Some(figure.node_seconds)),
            ];
            found.extend(places.into_iter().filter_map(|(place, seconds)| {
                Some(Measurement::less(case.as_str(), place, "time of a kernel", seconds?, "s"))
            }));
            let share = figure.read_buffer_share * 100.0;
            found.push(Measurement::more(case, "node", "found in the read buffer", share, "%"));
        }
        for figure in &self.sweeps {
            let case = format!("{} with {}", figure.kernel, figure.parameter);
            let pages = figure.pages.map_or_else(|| "default".to_owned(), words_of);
            found.push(Measurement::less(case, &pages, "time for a parameter", figure.seconds, "s"));
        }
        for loss in &self.losses {
            let redundancy = loss.redundancy.as_str();
            let less = |case, measure, value, unit| Measurement::less(case, redundancy, measure, value, unit);
            let (loss_case, request) = ("a node of six killed", "time of a request");
            let kept = loss.kept_bytes.max(1) as f64;
            found.extend([
                less("p99 before a node of six is killed", request, loss.before.p99_us / 1e3, "ms"),
                less("p99 until all is redundant again", request, loss.during.p99_us / 1e3, "ms"),
                less("the longest of all", request, loss.longest_ms, "ms"),
                less(loss_case, "requests that failed", loss.failed as f64, "requests"),
                less(loss_case, "time until all is redundant again", loss.seconds_to_whole, "s"),
                less(loss_case, "memory for a byte kept", loss.stored_bytes as f64 / kept, "bytes"),
            ]);
        }
        for spread in &self.spreads {
            let case = format!("{} programs on {} nodes", spread.programs, spread.written_bytes.len());
            let less = |measure, value| Measurement::less(case.as_str(), "farmem", measure, value, "");
            found.extend([
                less("bytes on the fullest node, of the mean", spread.written.largest),
                less("memory granted by the fullest node, of the mean", spread.granted.largest),
                less("deviation of bytes on a node, of the mean", spread.written.deviation),
            ]);
        }
        for figure in &self.threads {
            for rate in &figure.rates {
                let plural = if rate.threads == 1 { "" } else { "s" };
                let case =
                    format!("{} thread{plural}, a node {} ms away", rate.threads, figure.round_trip_ms);
                found.extend([
                    Measurement::more(&case, "farmem", "pages a second", rate.pages_per_second, "pages"),
                    Measurement::more(&case, "farmem", "pages of one thread's", rate.of_one, ""),
                ]);
            }
            let case = format!("next to {} threads that wait", figure.bystander.threads);
            let longest = figure.bystander.longest_step_ms;
            found.push(Measurement::less(case, "farmem", "longest step of a thread", longest, "ms"));
        }
        let links = self.left_out.iter().map(|link| {
            (format!("a link of {}", link.rate.as_deref().unwrap_or("any rate")), link.reason.clone())
        });
        let loss = self.loss_left_out.iter().map(|reason| ("the loss of a node".to_owned(), reason.clone()));
        let sweeps = self.sweeps_not_set.iter().map(|(value, why)| ((*value).to_owned(), (*why).to_owned()));
        let swap = self.swap_left_out.iter().map(|reason| ("swap to a file".to_owned(), reason.clone()));
        Findings {
            measurements: found,
            data_bytes: Some(self.data_bytes),
            left_out: links.chain(swap).chain(sweeps).chain(loss).collect(),
        }
    }
}

fn words_of(pages: u64) -> String {
    if pages == 1 { "1 page".to_owned() } else { format!("{pages} pages") }
}

fn side(way: &str, peer: &str, side: &Side) -> [Measurement; 5] {
    [
        Measurement::less(way, peer, "p50 of a page", side.page.p50_us, "µs"),
        Measurement::less(way, peer, "p99 of a page", side.page.p99_us, "µs"),
        Measurement::less(way, peer, "p99 of a page under load", side.page_under_load.p99_us, "µs"),
        Measurement::more(way, peer, "rate of writes", side.write_bytes_per_second / 1e6, "MB/s"),
        Measurement::more(way, peer, "rate of reads", side.read_bytes_per_second / 1e6, "MB/s"),
    ]
}

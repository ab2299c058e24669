//! Redis whose data outgrows its memory, and then what holds its compressed pages, and which is given memory
//! in the end (FastSwap, Figures 2 and 9).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use farmem_page::ByteCount;
use serde::Serialize;

use super::setting::{Room, Setting, on_processor};
use super::victim::Scale;
use crate::interrupt::Interrupt;
use crate::median::median;
use crate::redis::{self, Client};

/// Where server and client run.
const PROCESSOR: usize = 0;
/// Steps in which the data grows to four times the local memory.
const STEPS: u64 = 8;
/// The least pool.
const LEAST_POOL: u64 = 8 << 20;
/// A disk file is made in it. Folders for what is temporary are often memory.
const DISK_FOLDER: &str = "/var/tmp";
/// How many times longer than other measurements the server is watched after it was given memory.
const WATCHED: u32 = 2;
/// Requests are counted for so long at a time.
const WINDOW: Duration = Duration::from_millis(100);

/// One turn.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Growth {
    /// The data as it grows.
    pub sizes: Vec<Size>,
    /// Requests per second as it grows: when a window began, in seconds, and what was answered in it. While
    /// more data is stored nothing is asked.
    pub growing: Vec<(f64, f64)>,
    /// Requests per second after it was given memory for all of it: when a window began, in seconds, and what
    /// was answered in it.
    pub after: Vec<(f64, f64)>,
}

/// The server with so much data.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Size {
    /// The data, as a multiple of its local memory.
    pub of_local: f64,
    /// From the beginning until it had all of that.
    pub seconds: f64,
    /// Reads and writes of values at random, as often the one as the other, one after the other.
    pub requests_per_second: f64,
}

/// Runs one turn.
pub(super) fn turn(setting: &Setting, folder: &Path, scale: Scale) -> anyhow::Result<Growth> {
    redis::available()?;
    let (local, plenty) = (scale.local(), ByteCount::new(scale.data.get() * 2));
    // What doesn't fit the pool goes to disk, as with the kernel's compressed memory in front of a file.
    let pool = (scale.data.get() / 4).max(LEAST_POOL);
    let disk = format!("{DISK_FOLDER}:{}", scale.data.get() * 2);
    let options = ["--pool".to_owned(), pool.to_string(), "--disk".to_owned(), disk];
    let room = Room {
        name: "bench-growth",
        local,
        processor: Some(PROCESSOR),
        share: None,
        broker: None,
        options: &options,
    };
    let socket = folder.join("redis");
    let words = redis::command(&socket).into_iter();
    let command: Option<Vec<String>> = words.map(|word| word.into_string().ok()).collect();
    let mut server = setting.start(room, &command.context("a folder for a socket has an odd name")?)?;
    let mut client = Client::connect(&socket)?;
    let interrupt = setting.interrupt();

    let began = Instant::now();
    let (mut sizes, mut growing) = (Vec::new(), Vec::new());
    for step in 1..=STEPS {
        let data = ByteCount::new(scale.data.get() * step / STEPS);
        on_processor(PROCESSOR, || client.load(data, interrupt))??;
        server.limit()?;
        let seconds = began.elapsed().as_secs_f64();
        let of_local = data.get() as f64 / local.get() as f64;
        let windows = ask(&mut client, began, scale.measured / 4, interrupt)?;
        let requests_per_second = mean(windows.iter().map(|&(_, rate)| rate));
        sizes.push(Size { of_local, seconds, requests_per_second });
        growing.extend(windows);
    }
    let began = Instant::now();
    server.set_local(plenty)?;
    let after = ask(&mut client, began, scale.measured * WATCHED, interrupt)?;
    server.end()?;
    Ok(Growth { sizes, growing, after })
}

/// Asks as fast as it can for so long. When each window began, in seconds from `began`, and requests per
/// second in it.
fn ask(
    client: &mut Client,
    began: Instant,
    duration: Duration,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<(f64, f64)>> {
    let (mut windows, deadline) = (Vec::new(), Instant::now() + duration);
    while Instant::now() < deadline {
        let seconds = began.elapsed().as_secs_f64();
        let rate = on_processor(PROCESSOR, || client.as_fast_as_it_can(WINDOW, interrupt))??;
        windows.push((seconds, rate));
    }
    Ok(windows)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / f64::max(count, 1.0)
}

/// What is told of the server: what it answered for each size, for some spans of time after it was given
/// memory, and second by second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Grows,
    Given,
    SecondsOfGrowth,
    SecondsGiven,
}

/// How cases begin that are seconds.
pub(crate) const SECOND: &str = "second";
/// Of slower growth, over disk swap, only the beginning is told second by second.
const MOST_SECONDS: u64 = 120;

/// Spans after it was given memory, each from the end of the one before, in seconds; the last one has no end.
const SPANS: [f64; 5] = [0.2, 0.5, 1.0, 2.0, f64::INFINITY];

/// Phase, case, and requests per second: medians over the turns.
pub(super) fn cases(turns: &[Growth]) -> Vec<(Phase, String, f64)> {
    let Some(first) = turns.first() else { return Vec::new() };
    let sizes = first.sizes.iter().enumerate().map(|(nth, size)| {
        let rates = turns.iter().filter_map(|turn| Some(turn.sizes.get(nth)?.requests_per_second));
        (Phase::Grows, format!("data {:.1} times local", size.of_local), median(rates.collect()))
    });
    let mut found: Vec<_> = sizes.collect();
    let mut from = 0.0;
    for until in SPANS {
        let windows = turns.iter().flat_map(|turn| &turn.after);
        let rates = windows.filter(|(began, _)| (from..until).contains(began)).map(|&(_, rate)| rate);
        let rates: Vec<f64> = rates.collect();
        let case = match until.is_finite() {
            true => format!("{from} to {until} s after"),
            false => format!("later than {from} s"),
        };
        if !rates.is_empty() {
            found.push((Phase::Given, case, median(rates)));
        }
        from = until;
    }
    found
}

/// The same second by second.
pub(super) fn seconds(turns: &[Growth]) -> Vec<(Phase, String, f64)> {
    let grows = by_second(turns.iter().flat_map(|turn| &turn.growing));
    let given = by_second(turns.iter().flat_map(|turn| &turn.after));
    let named = |phase, (second, rate)| (phase, format!("{SECOND} {second}"), rate);
    let grows = grows.into_iter().map(|found| named(Phase::SecondsOfGrowth, found));
    grows.chain(given.into_iter().map(|found| named(Phase::SecondsGiven, found))).collect()
}

/// The median of the windows that began in a second, for each in which one did, from 1.
fn by_second<'a>(windows: impl Iterator<Item = &'a (f64, f64)>) -> BTreeMap<u64, f64> {
    let mut sorted: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for &(began, rate) in windows {
        let second = began as u64 + 1;
        if second <= MOST_SECONDS {
            sorted.entry(second).or_default().push(rate);
        }
    }
    sorted.into_iter().map(|(second, rates)| (second, median(rates))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_told_by_spans_and_sizes_by_their_part_of_local() {
        let growth = |rate: f64| Growth {
            sizes: vec![Size { of_local: 0.5, seconds: 1.0, requests_per_second: rate }],
            growing: Vec::new(),
            after: vec![(0.1, rate), (0.3, 2.0 * rate), (9.0, 4.0 * rate)],
        };

        let cases = cases(&[growth(10.0), growth(20.0), growth(30.0)]);

        let told: Vec<(&str, f64)> = cases.iter().map(|(_, case, rate)| (case.as_str(), *rate)).collect();
        let expected = [
            ("data 0.5 times local", 20.0),
            ("0 to 0.2 s after", 20.0),
            ("0.2 to 0.5 s after", 40.0),
            ("later than 2 s", 80.0),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn windows_are_told_by_their_second_and_seconds_without_any_are_left_out() {
        let windows = [(0.0, 10.0), (0.4, 30.0), (0.9, 20.0), (3.2, 5.0), (1e9, 1.0)];
        let growth =
            Growth { sizes: Vec::new(), growing: windows.to_vec(), after: vec![(1.5, 7.0), (1.6, 9.0)] };

        let seconds = seconds(&[growth]);

        let told: Vec<(Phase, &str, f64)> =
            seconds.iter().map(|(phase, case, rate)| (*phase, case.as_str(), *rate)).collect();
        let expected = [
            (Phase::SecondsOfGrowth, "second 1", 20.0),
            (Phase::SecondsOfGrowth, "second 4", 5.0),
            (Phase::SecondsGiven, "second 2", 8.0),
        ];
        assert_eq!(told, expected);
    }
}

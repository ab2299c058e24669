//! A link that several spaces share, and within one of them a flood of what is fetched ahead: what the
//! schedule makes of both (Canvas §6.4.3).

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use farmem_broker::link_schedule::{Direction, Gate, LinkSchedule, Shared, key_of};
use farmem_policy::links::Class;
use serde::Serialize;

use super::client::{Client, Course};
use super::report::FLOODED;
use super::route::Route;
use crate::median::median;
use crate::target::Target;

/// Parts of a link that is shared, by weight, may differ by so much: a ratio of 0.97.
pub(super) const PARTS: f64 = 1.031;

/// Weights of spaces that all want as much as they can get.
pub(super) const WEIGHTS: [u32; 3] = [1, 2, 4];

/// Reads that each of them has under way or waiting, so that one always waits.
const WANTED: usize = 16;
const SPAN_PAGES: usize = 16;
/// What is fetched ahead is used so soon, where it is dropped if it would come later.
const USEFUL: Duration = Duration::from_millis(2);

/// A link that three spaces of weights 1, 2 and 4 share, and one within which what is fetched ahead floods
/// it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SharedFigure {
    /// Which.
    pub way: String,
    /// What each space got, while all wanted more.
    pub bytes_per_second: Vec<f64>,
    /// The smallest part divided by its weight, of the largest.
    pub ratio: f64,
    /// Reads of 16 pages that a thread waits for, one after the other.
    pub demand_p99_us: f64,
    /// The same while as much as goes is fetched ahead.
    pub flooded_p99_us: f64,
    /// What was fetched ahead meanwhile: all but a tenth had come so long after it was wanted.
    pub ahead_p90_us: f64,
    /// How much of it came.
    pub ahead_bytes_per_second: f64,
    /// The same where what would come more than 2 ms after it was wanted is dropped: the p99 of what a thread
    /// waits for.
    pub dropping_p99_us: f64,
    /// How late all but a tenth came of what was fetched ahead and not dropped.
    pub dropping_p90_us: f64,
    /// How much of it came.
    pub dropping_bytes_per_second: f64,
    /// The part of the reads that was dropped.
    pub dropped: f64,
    /// Both again, where what is fetched ahead is not told from what a thread waits for: the p99 of what a
    /// thread waits for.
    pub one_class_p99_us: f64,
    /// How late all but a tenth of the others came.
    pub one_class_p90_us: f64,
    /// Both without any schedule, so that each read goes as soon as it is wanted: the p99 of what a thread
    /// waits for.
    pub unscheduled_p99_us: f64,
    /// How late all but a tenth of the others came then.
    pub unscheduled_p90_us: f64,
    /// How much of them came.
    pub unscheduled_bytes_per_second: f64,
}

impl SharedFigure {
    /// Of the same link, measured several times.
    pub(super) fn median(samples: &[Self]) -> Self {
        let of = |figure: &dyn Fn(&Self) -> f64| median(samples.iter().map(figure).collect());
        let part = |nth: usize| of(&|sample: &Self| sample.bytes_per_second[nth]);
        Self {
            way: samples.first().map(|sample| sample.way.clone()).unwrap_or_default(),
            bytes_per_second: (0..WEIGHTS.len()).map(part).collect(),
            ratio: of(&|sample| sample.ratio),
            demand_p99_us: of(&|sample| sample.demand_p99_us),
            flooded_p99_us: of(&|sample| sample.flooded_p99_us),
            ahead_p90_us: of(&|sample| sample.ahead_p90_us),
            ahead_bytes_per_second: of(&|sample| sample.ahead_bytes_per_second),
            dropping_p99_us: of(&|sample| sample.dropping_p99_us),
            dropping_p90_us: of(&|sample| sample.dropping_p90_us),
            dropping_bytes_per_second: of(&|sample| sample.dropping_bytes_per_second),
            dropped: of(&|sample| sample.dropped),
            one_class_p99_us: of(&|sample| sample.one_class_p99_us),
            one_class_p90_us: of(&|sample| sample.one_class_p90_us),
            unscheduled_p99_us: of(&|sample| sample.unscheduled_p99_us),
            unscheduled_p90_us: of(&|sample| sample.unscheduled_p90_us),
            unscheduled_bytes_per_second: of(&|sample| sample.unscheduled_bytes_per_second),
        }
    }

    pub(super) fn targets(&self) -> [Target; 3] {
        let Self { way, .. } = self;
        [
            Target::new(
                format!("{way}: largest part of three spaces by weight, of the smallest"),
                PARTS,
                Some(1.0 / self.ratio),
            ),
            Target::new(
                format!("{way}: p99 of 16 pages beside what is fetched ahead, of without"),
                FLOODED,
                Some(self.flooded_p99_us / self.demand_p99_us),
            ),
            Target::new(
                format!("{way}: the same where what would come too late is dropped"),
                FLOODED,
                Some(self.dropping_p99_us / self.demand_p99_us),
            ),
        ]
    }
}

/// Measures one link, for so long each time.
pub(super) fn measure(route: &Route, time: Duration) -> Result<SharedFigure> {
    let mut clients =
        (0..WEIGHTS.len()).map(|nth| route.client(10 + nth as u64)).collect::<Result<Vec<Client>>>()?;
    let schedule = Arc::new(LinkSchedule::new(Shared::create()?));
    let gates = gates(&schedule, &WEIGHTS)?;
    let course = |class, wanted| Course { class, pages: SPAN_PAGES, wanted, useful: None, time };
    let bytes = thread::scope(|scope| {
        let readers: Vec<_> = clients
            .iter_mut()
            .zip(&gates)
            .map(|(client, gate)| {
                scope.spawn(move || client.read_by(Some(gate), course(Class::Demand, WANTED)))
            })
            .collect();
        readers
            .into_iter()
            .map(|reader| Ok(reader.join().map_err(|_| anyhow!("a reader has panicked"))??.bytes))
            .collect::<Result<Vec<u64>>>()
    })?;
    let [waited, ahead, ..] = &mut clients[..] else { unreachable!("there are three") };
    // One space alone: its own classes.
    let gate = &self::gates(&Arc::new(LinkSchedule::new(Shared::create()?)), &[1])?[0];
    let demand = course(Class::Demand, 1);
    let alone = waited.read_by(Some(gate), demand)?;
    let mut flooded_by = |gate, class, useful| {
        thread::scope(|scope| -> Result<_> {
            let flood = scope.spawn(|| ahead.read_by(gate, Course { useful, ..course(class, WANTED) }));
            let flooded = waited.read_by(gate, demand)?;
            Ok((flooded, flood.join().map_err(|_| anyhow!("the flood has panicked"))??))
        })
    };
    let (flooded, flood) = flooded_by(Some(gate), Class::Ahead, None)?;
    let (beside_dropped, kept) = flooded_by(Some(gate), Class::Ahead, Some(USEFUL))?;
    let (beside_alike, alike) = flooded_by(Some(gate), Class::Demand, None)?;
    let (beside_unscheduled, unscheduled) = flooded_by(None, Class::Ahead, None)?;
    let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    Ok(SharedFigure {
        way: route.name.clone(),
        bytes_per_second: bytes.iter().map(|bytes| *bytes as f64 / time.as_secs_f64()).collect(),
        ratio: weighted_ratio(bytes.iter().map(|bytes| *bytes as f64).zip(WEIGHTS)),
        demand_p99_us: us(alone.nanoseconds.value_at_quantile(0.99)),
        flooded_p99_us: us(flooded.nanoseconds.value_at_quantile(0.99)),
        ahead_p90_us: us(flood.nanoseconds.value_at_quantile(0.9)),
        ahead_bytes_per_second: flood.bytes as f64 / time.as_secs_f64(),
        dropping_p99_us: us(beside_dropped.nanoseconds.value_at_quantile(0.99)),
        dropping_p90_us: us(kept.nanoseconds.value_at_quantile(0.9)),
        dropping_bytes_per_second: kept.bytes as f64 / time.as_secs_f64(),
        dropped: kept.dropped as f64 / (kept.dropped + kept.nanoseconds.len()).max(1) as f64,
        one_class_p99_us: us(beside_alike.nanoseconds.value_at_quantile(0.99)),
        one_class_p90_us: us(alike.nanoseconds.value_at_quantile(0.9)),
        unscheduled_p99_us: us(beside_unscheduled.nanoseconds.value_at_quantile(0.99)),
        unscheduled_p90_us: us(unscheduled.nanoseconds.value_at_quantile(0.9)),
        unscheduled_bytes_per_second: unscheduled.bytes as f64 / time.as_secs_f64(),
    })
}

/// The weighted min-max ratio of parts with their weights (Canvas §6.4.3): the smallest part divided by its
/// weight, of the largest.
pub(super) fn weighted_ratio(parts: impl Iterator<Item = (f64, u32)>) -> f64 {
    let (least, most) = parts
        .map(|(part, weight)| part / f64::from(weight))
        .fold((f64::MAX, 0.0_f64), |(least, most), part| (least.min(part), most.max(part)));
    least / most
}

/// Gates of spaces with these weights, at one link.
fn gates(schedule: &Arc<LinkSchedule>, weights: &[u32]) -> Result<Vec<Arc<Gate>>> {
    let lines = schedule.link(key_of("node"), Direction::In).context("a new schedule has no room")?;
    let gate = |(link_slot, weight): (usize, &u32)| {
        Gate::new(Arc::clone(schedule), lines, link_slot, Arc::default(), *weight)
    };
    Ok(weights.iter().enumerate().map(gate).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_as_their_weights_have_a_ratio_of_one_and_the_least_of_others_counts() {
        assert_eq!(weighted_ratio([(1.0, 1), (2.0, 2), (4.0, 4)].into_iter()), 1.0);
        assert_eq!(weighted_ratio([(2.0, 1), (2.0, 2), (2.0, 4)].into_iter()), 0.25);
    }
}

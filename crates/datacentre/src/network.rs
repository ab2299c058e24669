//! The network: machines in racks, racks below a spine that carries less than their machines can send.
//!
//! Transfers are not queued one behind the other. What links carry is known as bytes a second: of all
//! fetches, which are spread as what is stored is, and of what moves whole shards, which is counted. From
//! that follows how likely a transfer is to find a link busy, and how long it waits then, as in a queue with
//! one server.

use crate::chance::Chance;
use crate::clock::Time;
use crate::options::Options;

/// A round trip between racks, compared with one within a rack.
const BETWEEN_RACKS: f64 = 1.5;
/// How far round trips vary.
const SPREAD: f64 = 0.25;
/// What a fetch reads on average: the page and what lies next to it.
const FETCH_BYTES: f64 = 32_768.0;
/// For so long what went over a link counts.
const MEMORY_NS: f64 = 1e9;
/// No link is taken to be busier.
const BUSIEST: f64 = 0.98;

/// What whole shards a link carries, of late.
#[derive(Clone, Copy, Default)]
struct Meter {
    bytes: f64,
    at: Time,
}

impl Meter {
    fn add(&mut self, now: Time, bytes: f64) {
        self.bytes = self.bytes * self.kept(now) + bytes;
        self.at = self.at.max(now);
    }

    fn per_second(&self, now: Time) -> f64 {
        self.bytes * self.kept(now) / (MEMORY_NS / 1e9)
    }

    fn kept(&self, now: Time) -> f64 {
        (-(now.saturating_sub(self.at) as f64) / MEMORY_NS).exp()
    }
}

/// From where to where.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub(crate) client_rack: usize,
    pub(crate) node: usize,
    pub(crate) node_rack: usize,
}

pub(crate) struct Network {
    latency_ns: f64,
    link: f64,
    uplink: f64,
    /// All fetches, in bytes a second, and those of one client.
    fetched: f64,
    fetched_by_one: f64,
    shares: Vec<f64>,
    rack_shares: Vec<f64>,
    nodes: Vec<Meter>,
    uplinks: Vec<Meter>,
}

impl Network {
    pub(crate) fn new(options: &Options) -> Self {
        let racks = options.racks();
        let fetched_by_one = options.fetches * FETCH_BYTES;
        Self {
            latency_ns: options.latency.as_nanos() as f64,
            link: options.bandwidth as f64,
            uplink: options.bandwidth as f64 * options.rack_size as f64 / options.oversubscription,
            fetched: fetched_by_one * options.clients as f64,
            fetched_by_one,
            shares: vec![1.0 / options.nodes as f64; options.nodes],
            rack_shares: vec![1.0 / racks as f64; racks],
            nodes: vec![Meter::default(); options.nodes],
            uplinks: vec![Meter::default(); racks],
        }
    }

    /// Fetches go where what is stored lies: so much on each node, in racks of that size.
    pub(crate) fn set_shares(&mut self, stored: &[u64], rack_size: usize) {
        let all = stored.iter().sum::<u64>().max(1) as f64;
        self.shares = stored.iter().map(|stored| *stored as f64 / all).collect();
        self.rack_shares = self.shares.chunks(rack_size).map(|shares| shares.iter().sum()).collect();
    }

    /// A round trip without content.
    pub(crate) fn round_trip(&self, chance: &mut Chance, way: Way) -> Time {
        let racks = if way.client_rack == way.node_rack { 1.0 } else { BETWEEN_RACKS };
        (self.latency_ns * racks * chance.about_one(SPREAD)) as Time
    }

    /// How long so many bytes take on an idle link.
    pub(crate) fn on_the_wire(&self, bytes: u64) -> Time {
        (bytes as f64 / self.link * 1e9) as Time
    }

    /// How long a request takes that moves so many bytes.
    pub(crate) fn transfer(
        &self,
        chance: &mut Chance,
        now: Time,
        way: Way,
        bytes: u64,
        slowness: f64,
    ) -> Time {
        let alone = (self.round_trip(chance, way) + self.on_the_wire(bytes)) as f64 * slowness;
        let load = self.shares[way.node] * self.fetched + self.nodes[way.node].per_second(now);
        let mut waits = wait(chance, load, self.link) + wait(chance, self.fetched_by_one, self.link);
        if way.client_rack != way.node_rack {
            let elsewhere = 1.0 - self.rack_shares[way.node_rack];
            let out = self.rack_shares[way.node_rack] * self.fetched * elsewhere;
            let inward = self.fetched / self.rack_shares.len() as f64 * elsewhere;
            waits += wait(chance, out + self.uplinks[way.node_rack].per_second(now), self.uplink);
            waits += wait(chance, inward + self.uplinks[way.client_rack].per_second(now), self.uplink);
        }
        (alone + waits) as Time
    }

    /// Whole shards go that way.
    pub(crate) fn went(&mut self, now: Time, way: Way, bytes: u64) {
        self.nodes[way.node].add(now, bytes as f64);
        if way.client_rack != way.node_rack {
            self.uplinks[way.node_rack].add(now, bytes as f64);
            self.uplinks[way.client_rack].add(now, bytes as f64);
        }
    }
}

/// How long a transfer waits for a link that carries so much of what it can, in nanoseconds.
fn wait(chance: &mut Chance, carries: f64, can: f64) -> f64 {
    let busy = (carries / can).min(BUSIEST);
    let service_ns = FETCH_BYTES / can * 1e9;
    if chance.happens(busy) { chance.exponential(service_ns / (1.0 - busy)) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Way = Way { client_rack: 0, node: 0, node_rack: 0 };
    const BETWEEN: Way = Way { client_rack: 1, ..WITHIN };

    fn mean(options: &Options, way: Way) -> f64 {
        let (mut chance, network) = (Chance::new(1, 1), Network::new(options));
        let all: Time = (0..10_000).map(|_| network.transfer(&mut chance, 0, way, 32_768, 1.0)).sum();
        all as f64 / 10_000.0
    }

    #[test]
    fn what_crosses_racks_takes_longer_and_longer_still_where_their_uplinks_are_narrow() {
        let even = Options { oversubscription: 1.0, ..Options::default() };
        let narrow = Options { oversubscription: 40.0, ..Options::default() };
        assert!(mean(&even, WITHIN) < mean(&even, BETWEEN));
        assert!(mean(&even, BETWEEN) < mean(&narrow, BETWEEN));
    }
}

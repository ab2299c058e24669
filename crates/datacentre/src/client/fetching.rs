//! Pages that threads wait for, as the supervisor's lanes fetch them: whom to ask is
//! `farmem_remote::Gather`'s, when others are asked as well `farmem_remote::Lateness`', how much is read
//! `farmem_remote::Span`'s.
//!
//! Few fetches are followed. Of the others it is noted, before one is followed, how long they took: by that
//! nodes are known.

use std::time::Duration;

use farmem_policy::links::Class;
use farmem_remote::{BLOCK_PAGES, Gather, Piece, Redundancy, Shards};

use super::Client;
use super::blocks::space_of;
use crate::clock::{Time, seconds};
use crate::cost::Decision;
use crate::figures::Seen;
use crate::machines::Presence;
use crate::shared::{Event, Shared};

/// Fetches of each client that are followed, in a second.
const FOLLOWED_PER_SECOND: f64 = 0.1;
/// A read that takes longer is tried elsewhere.
const PATIENCE: Time = 1_000_000_000;
/// What can't be had is tried again after so long: nothing changes before the node monitor's next look.
const PARKED: Time = 50_000_000;
const PAGE_BYTES: u64 = 4096;
/// Answers that were not followed count up to so many: with more the average is the same.
const MOST_NOTED: u64 = 16;
/// The part of the pages next to a fetched one that turn out to be wanted.
const USED: f64 = 0.4;
/// Fetches of pages on a machine that is not well, for each client that has some there; and in which time.
const TOUCHES: usize = 3;
const TOUCHED_SECONDS: f64 = 12.0;

/// A page that is waited for.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    block: u32,
    page: usize,
    /// When it was wanted; `None` until it is.
    began: Option<Time>,
    seen: Seen,
}

/// What comes of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Comes {
    Content,
    Nothing,
    Late,
}

enum Outcome {
    /// The page is there.
    At(Time),
    /// It can't be had for now: known at that time.
    Parked(Time),
}

impl Client {
    /// Plans the next fetch that is followed.
    pub(super) fn plan_fetch(&mut self, shared: &mut Shared) {
        let pause = seconds(self.chance.exponential(1.0 / FOLLOWED_PER_SECOND));
        shared.clock.after(pause, Event::Fetch(self.number));
    }

    /// A fetch that is followed.
    pub(crate) fn fetch(&mut self, shared: &mut Shared) {
        self.plan_fetch(shared);
        let kept = [0, 1].map(|space| self.blocks.kept(space));
        if kept[0] + kept[1] == 0 {
            return;
        }
        let space = usize::from(self.chance.below(kept[0] + kept[1]) >= kept[0]);
        let Some(block) = self.blocks.any(&mut self.chance, space) else { return };
        let page = self.chance.below(BLOCK_PAGES);
        let seen = if shared.figures.is_calm() { Seen::Outside } else { Seen::During };
        self.read(shared, Reading { block, page, began: None, seen });
    }

    /// Plans fetches of pages that lie on a machine which is not well any more.
    pub(crate) fn plan_touches(&mut self, shared: &mut Shared, node: u16, lasts_seconds: f64) {
        if self.block_table.used_on(node.into()) == 0 {
            return;
        }
        let pages = shared.options.redundancy.shard_pages();
        let on_node = |block: u32| {
            let shards = self.block_table.located(block)?.shards;
            let (shard, _) = shards.iter().find(|(_, address)| address.node == node)?;
            (shard < shared.options.redundancy.data()).then_some((block, shard))
        };
        let touched: Vec<(u32, usize)> = self.blocks.iter().filter_map(on_node).collect();
        if touched.is_empty() {
            return;
        }
        for _ in 0..TOUCHES {
            let (block, shard) = touched[self.chance.below(touched.len())];
            let page = shard * pages + self.chance.below(pages);
            let reading = Reading { block, page, began: None, seen: Seen::Touching };
            let pause = seconds(self.chance.between(0.0, lasts_seconds.min(TOUCHED_SECONDS)));
            shared.clock.after(pause, Event::Read(self.number, Box::new(reading)));
        }
    }

    /// Fetches of this client in a second that a node is asked for.
    pub(super) fn fetches_at(&self, shared: &Shared, node: u16) -> f64 {
        let shards = (self.blocks.all() * shared.options.redundancy.shards()).max(1);
        shared.options.fetches * self.block_table.used_on(node.into()) as f64 / shards as f64
    }

    /// Reads a page, or goes on with that.
    pub(crate) fn read(&mut self, shared: &mut Shared, reading: Reading) {
        let now = shared.clock.now();
        let began = reading.began.unwrap_or(now);
        let Some(shards) = self.block_table.located(reading.block).map(|located| located.shards) else {
            if reading.began.is_some() && self.blocks.is_lost(reading.block) {
                shared.figures.failed_fetches += 1;
            }
            return;
        };
        match self.pursue(shared, &reading, shards) {
            Outcome::At(at) => shared.figures.fetched(reading.seen, at - began),
            Outcome::Parked(at) => {
                let again = Box::new(Reading { began: Some(began), ..reading });
                shared.clock.at(at + PARKED, Event::Read(self.number, again));
            }
        }
    }

    /// One attempt: others are asked as well where answers are late, until the page is there or nobody is
    /// left.
    fn pursue(&mut self, shared: &mut Shared, reading: &Reading, shards: Shards) -> Outcome {
        let redundancy = shared.options.redundancy;
        let piece = self.piece_around(redundancy, reading);
        for shard in 0..redundancy.shards() {
            self.note_others(shared, shards, shard);
        }
        let mut gather = Gather::new(redundancy, piece, shards);
        let mut now = shared.clock.now();
        let (lateness, health) = (&mut self.lateness, &self.health);
        let mut patience = Time::MAX;
        if redundancy.parity() > 0 {
            let count = health.len() as u64;
            let elapsed = shared.clock.elapsed();
            let counted =
                shared.costs.of(Decision::Read, || (lateness.patience(elapsed, health.iter()), count));
            patience = crate::clock::ns(counted);
        }
        let mut late_at = now.saturating_add(patience);
        let mut pending: Vec<(Time, usize, Comes, Time)> = Vec::new();
        let mut probed = None;
        let sender = space_of(reading.block);
        loop {
            if gather.is_there() {
                // What a slow node sends may still come, though nobody waits for it.
                for (at, shard, comes, takes) in pending {
                    if probed == Some(shard) && comes == Comes::Content {
                        self.learn(shards, shard, at, takes, true);
                    }
                }
                shared.figures.around += u64::from(gather.is_made());
                return Outcome::At(now);
            }
            let asked = shared.costs.of(Decision::Read, || {
                let steps = std::cell::Cell::new(0);
                let answer_time = |node: u16| {
                    steps.set(steps.get() + 1);
                    self.answer_time(node)
                };
                (gather.ask(answer_time), steps.get())
            });
            if asked.is_none() && !gather.is_awaited() {
                return Outcome::Parked(now);
            }
            for shard in asked.unwrap_or_default() {
                let Some(address) = gather.address(shard) else {
                    gather.fail(shard);
                    continue;
                };
                let (takes, comes) = self.request(shared, now, address.node, piece.count, sender);
                pending.push((now + takes, shard, comes, takes));
                late_at = now.saturating_add(patience);
            }
            if let Some((shard, node)) = gather.avoided(|node| self.answer_time(node))
                && self.health[usize::from(node)].take_probe(Duration::from_nanos(now))
            {
                gather.probe(shard);
                let (takes, comes) = self.request(shared, now, node, piece.count, sender);
                pending.push((now + takes, shard, comes, takes));
                probed = Some(shard);
            }
            pending.sort_unstable();
            match pending.first().copied() {
                Some((at, shard, comes, takes)) if at <= late_at => {
                    pending.remove(0);
                    now = at;
                    let Some(address) = gather.address(shard) else { continue };
                    if comes == Comes::Content {
                        gather.take(shard, Vec::new());
                        self.learn(shards, shard, at, takes, probed == Some(shard));
                    } else {
                        gather.fail(shard);
                        let identity = self.believed[usize::from(address.node)];
                        shared.clock.at(now, Event::Doubt(self.number, address.node, identity));
                    }
                }
                // All that was asked has failed, and others are to be asked.
                None => {}
                Some(_) => {
                    now = late_at;
                    patience = patience.saturating_mul(2);
                    late_at = now.saturating_add(patience);
                    shared.figures.late += 1;
                    for shard in gather.set_late() {
                        let Some(address) = gather.address(shard) else { continue };
                        self.health[usize::from(address.node)].answered(Duration::from_nanos(patience));
                    }
                }
            }
        }
    }

    /// How long a node takes to answer, if it is up.
    fn answer_time(&self, node: u16) -> Option<Duration> {
        self.health[usize::from(node)].answer_time_if_up()
    }

    /// A node has answered.
    fn learn(&mut self, shards: Shards, shard: usize, at: Time, took: Time, is_probe: bool) {
        let Some(address) = shards.get(shard) else { return };
        let (health, took) = (&mut self.health[usize::from(address.node)], Duration::from_nanos(took));
        match is_probe {
            true => health.probed(Duration::from_nanos(at), took),
            false => health.answered(took),
        }
    }

    /// What comes of asking a node for some pages, and after how long.
    fn request(
        &mut self,
        shared: &Shared,
        now: Time,
        node: u16,
        pages: usize,
        sender: usize,
    ) -> (Time, Comes) {
        let way = self.way(shared, node);
        let bytes = pages as u64 * PAGE_BYTES;
        match shared.machines.presence(node.into()) {
            Presence::Silent => (PATIENCE, Comes::Late),
            Presence::Up if self.is_reachable(shared, node) => {
                let slowness = shared.machines.slowness(node.into());
                let takes = shared.network.transfer(&mut self.chance, now, way, bytes, slowness);
                let gate = self.gates.get_mut(&node);
                let waits = gate.map_or(0, |gate| gate.pass(now, sender, Class::Demand, bytes, takes));
                (waits + takes, Comes::Content)
            }
            Presence::Up | Presence::Refusing => {
                (shared.network.round_trip(&mut self.chance, way), Comes::Nothing)
            }
        }
    }

    /// The pages to read: those around it that lie in the same shard.
    fn piece_around(&mut self, redundancy: Redundancy, reading: &Reading) -> Piece {
        let span = &mut self.spans[space_of(reading.block)];
        let (first, count) = span.around(reading.page, 1);
        let pages = redundancy.shard_pages();
        let shard = reading.page / pages;
        let from = first.max(shard * pages);
        let end = (first + count).min((shard + 1) * pages);
        let used = 1 + self.chance.count((end - from) as f64 * USED) as usize;
        span.learn(end - from, used);
        Piece { shard, first: from - shard * pages, count: end - from }
    }

    /// Notes how long reads have taken lately that were not followed: of the node that has a shard, as far as
    /// such reads go there.
    fn note_others(&mut self, shared: &mut Shared, shards: Shards, shard: usize) {
        let Some(address) = shards.get(shard) else { return };
        let (node, now) = (usize::from(address.node), shared.clock.now());
        if !self.health[node].is_up() || !self.is_reachable(shared, address.node) {
            return;
        }
        let since = self.noted[node].max(shared.machines.changed_at(node));
        let count = self.fetches_at(shared, address.node) * now.saturating_sub(since) as f64 / 1e9;
        if count < 1.0 {
            return;
        }
        self.noted[node] = now;
        let redundancy = shared.options.redundancy;
        let piece = Piece { shard, first: 0, count: 1 };
        let way = self.way(shared, address.node);
        for _ in 0..(count as u64).min(MOST_NOTED) {
            let is_asked = |client: &Self| {
                let asked = Gather::new(redundancy, piece, shards).ask(|node| client.answer_time(node));
                asked == Some(vec![shard])
            };
            let (bytes, slowness) = (8 * PAGE_BYTES, shared.machines.slowness(node));
            let took = shared.network.transfer(&mut self.chance, now, way, bytes, slowness);
            if is_asked(self) {
                self.health[node].answered(Duration::from_nanos(took));
                continue;
            }
            // Reads go around it. Of these, some ask it as well.
            let pause = (now - since) as f64 / count;
            let mut at = Duration::from_nanos(since).max(self.health[node].probe_at());
            loop {
                at += Duration::from_nanos(self.chance.exponential(pause) as u64 + 1);
                if at.as_nanos() as Time > now || is_asked(self) {
                    return;
                }
                if self.health[node].take_probe(at) {
                    let took = shared.network.transfer(&mut self.chance, now, way, bytes, slowness);
                    self.health[node].probed(at, Duration::from_nanos(took));
                }
                at = at.max(self.health[node].probe_at());
            }
        }
    }

    /// Notes all reads until now of a node that seems slow, which is otherwise done before one is followed.
    /// Whether there is anything to read.
    pub(super) fn note_reads(&mut self, shared: &mut Shared, node: u16) -> bool {
        let data = shared.options.redundancy.data();
        let of_node = |block: u32| {
            let shards = self.block_table.located(block)?.shards;
            let (shard, _) = shards.iter().find(|(shard, at)| at.node == node && *shard < data)?;
            Some((shards, shard))
        };
        let found = self.blocks.iter().find_map(of_node);
        if let Some((shards, shard)) = found {
            self.note_others(shared, shards, shard);
        }
        found.is_some()
    }
}

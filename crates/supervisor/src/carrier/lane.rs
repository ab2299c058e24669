//! A lane: the thread that answers what readers on one processor call for.
//!
//! It takes calls from shared memory, reads from the nodes, puts what came into the read buffer, and answers.
//! Several calls are under way at a time. What can't be had now, but may be had soon, is parked.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use farmem_broker::link_schedule::{Direction, Pass, Turn};
use farmem_page::PAGE_BYTES;
use farmem_policy::links::Class;
use farmem_remote::{BLOCK_PAGES, Gather, Located, Redundancy};
use farmem_store::{Answer, Call, SLAB_BYTES, TakenCall};
use farmem_sys::affinity::{Allowed, stay_on};
use farmem_transport::{Answer as NodeAnswer, Completion, Failure, Request, Ticket};

use super::Carrier;
use super::figures::count;
use super::link::wait_for_any;
use super::timing::Timing;
use super::ways::{Way, Ways};
use crate::threads::worker::Worker;

/// How long a lane sleeps when nobody calls. Then it sees that it should end, and that its links live.
const IDLE: Duration = Duration::from_millis(100);
/// How long it waits for nodes before it looks for new calls. Usually an answer comes sooner.
const LISTEN: Duration = Duration::from_millis(1);
/// How long it waits while all that is called for is parked.
const PARKED: Duration = Duration::from_millis(2);
/// How long it waits at a time for a turn at a link: it hears either the bell for its turn or new calls.
const TURN: Duration = Duration::from_micros(250);
/// A read that takes longer is tried elsewhere.
const PATIENCE: Duration = Duration::from_secs(1);
/// Buffers kept for further reads.
const SPARE_BUFFERS: usize = 16;
const _: () = assert!(BLOCK_PAGES * PAGE_BYTES == SLAB_BYTES, "a block is a slab's worth of room");

/// A call that nodes have been asked about.
struct Reading {
    taken: TakenCall,
    /// The pages that come.
    pages: Call,
    located: Located,
    /// The ranges that they lie in, one or two.
    gathers: Vec<Gather>,
    /// When others are asked as well, and how long after that again; never where there are no others. It
    /// counts from when the latest request was sent.
    late: Option<Late>,
    since: Instant,
    /// Others that want no more than this.
    joined: Vec<TakenCall>,
}

impl Reading {
    /// All that it answers.
    fn calls(&self) -> impl Iterator<Item = &TakenCall> {
        [&self.taken].into_iter().chain(&self.joined)
    }
}

struct Late {
    at: Instant,
    patience: Duration,
}

/// What a request to a node is for, and by which of the lane's links it goes.
#[derive(Clone, Copy)]
struct Purpose {
    reading: u64,
    gather: usize,
    shard: usize,
    way: Way,
    /// Whether others are asked instead, and it is only to show how long the node takes.
    is_probe: bool,
}

/// A request to a node.
struct Asked {
    purpose: Purpose,
    since: Instant,
    /// Its part of the link. `None` when its reading has ended without it.
    pass: Option<Pass>,
}

/// A request that waits for its turn at the link to a node.
struct Waiting {
    purpose: Purpose,
    node: usize,
    turn: Turn,
}

pub(super) struct Lane {
    carrier: &'static Carrier,
    number: usize,
    links: Ways,
    readings: HashMap<u64, Reading>,
    latest: u64,
    pending: HashMap<(Way, Ticket), Asked>,
    /// For each node the oldest first.
    waiting: Vec<Waiting>,
    parked: Vec<TakenCall>,
    completions: Vec<Completion>,
    buffers: Vec<Vec<u8>>,
    looked_at: Instant,
    timing: Timing,
}

impl Lane {
    pub(super) fn start(carrier: &'static Carrier, number: usize) -> Worker {
        let mut lane = Self {
            carrier,
            number,
            links: Ways::new(carrier, number as u8),
            readings: HashMap::new(),
            latest: 0,
            pending: HashMap::new(),
            waiting: Vec::new(),
            parked: Vec::new(),
            completions: Vec::new(),
            buffers: Vec::new(),
            looked_at: Instant::now(),
            timing: Timing::default(),
        };
        lane.links.prepare();
        let mut is_placed = false;
        Worker::start(move || {
            if !is_placed {
                // In addition to the threads that call it: waking another processor takes longer than all the
                // rest (docs/adr/0026).
                if let Some(processor) = Allowed::now().and_then(|allowed| allowed.nth(number as u32)) {
                    stay_on(processor);
                }
                is_placed = true;
            }
            lane.step();
            Duration::ZERO
        })
    }

    fn step(&mut self) {
        while let Some(taken) = self.carrier.pool.take_call(self.number) {
            self.begin(taken);
        }
        if self.readings.is_empty() {
            let probed = self.probed();
            let wait = match (probed.is_empty(), self.parked.is_empty()) {
                // How long the node takes is not to be how long this lane sleeps.
                (false, _) => TURN,
                (true, false) => PARKED,
                (true, true) => IDLE,
            };
            self.carrier.pool.wait_for_call(self.number, wait.as_nanos() as u64);
            probed.into_iter().for_each(|way| self.hear_from(way, Duration::ZERO));
            self.retry();
            self.look_after_links();
        } else if self.pending.is_empty() && !self.waiting.is_empty() {
            self.await_turn();
            self.retry();
        } else {
            self.hear();
            self.go_around_late();
            self.go_around_overdue();
            self.take_turns();
            self.retry();
            // Those that are not used now live by it, too.
            self.look_after_links();
        }
    }

    /// Answers a call, or asks nodes, or parks it.
    fn begin(&mut self, taken: TakenCall) {
        let call = taken.call;
        let pool = self.carrier.pool;
        if call.first + call.count > BLOCK_PAGES {
            return pool.answer(&taken, Answer::Nowhere);
        }
        let redundancy = self.carrier.redundancy();
        if let Some(entry) = pool.buffered(&call) {
            if !call.is_retry {
                return pool.answer(&taken, Answer::Entry(entry));
            }
            // What the reader got is damaged. Where there is more than one copy it was checked when it came:
            // so that happened here.
            pool.forget_buffered(&call);
            if redundancy.parity() == 0 {
                return self.refuse(&taken);
            }
        }
        if self.join(&taken) {
            return;
        }
        let now = self.carrier.now();
        let found = {
            let mut state = self.carrier.state();
            let span = state.span(taken.owner().0).around(call.first, call.count);
            let late = (redundancy.parity() > 0).then(|| state.late_after(now));
            state.block_table.located(call.block as u32).cloned().map(|located| (located, span, late))
        };
        let Some((located, span, late)) = found else { return self.refuse(&taken) };
        let (first, count) = within_shard(redundancy, &call, span);
        let gathers = redundancy
            .pieces(first, count)
            .map(|piece| Gather::new(redundancy, piece, located.shards))
            .collect();
        let late = late.map(|patience| Late { at: Instant::now() + patience, patience });
        let pages = Call { first, count, is_retry: false, ..call };
        self.latest += 1;
        let since = Instant::now();
        self.readings
            .insert(self.latest, Reading { taken, pages, located, gathers, late, since, joined: Vec::new() });
        self.pursue(self.latest);
    }

    /// Asks the nodes that are to be asked now. Gives a reading up that none can answer at present.
    fn pursue(&mut self, number: u64) {
        let Some(mut reading) = self.readings.remove(&number) else { return };
        for nth in 0..reading.gathers.len() {
            if !self.ask(number, &mut reading, nth) {
                return self.give_up(number, reading);
            }
        }
        if reading.gathers.iter().all(Gather::is_there) {
            return self.complete(number, reading);
        }
        self.readings.insert(number, reading);
    }

    /// Asks nodes for a range. False when it can't come any more.
    fn ask(&mut self, number: u64, reading: &mut Reading, nth: usize) -> bool {
        let carrier = self.carrier;
        let Reading { taken, gathers, late, .. } = reading;
        let gather = &mut gathers[nth];
        let is_ahead = taken.is_ahead;
        loop {
            let asked = {
                let state = carrier.state();
                gather.ask(|node| state.answer_time(node))
            };
            let Some(shards) = asked else { return gather.is_awaited() };
            if shards.is_empty() {
                return true;
            }
            for shard in shards {
                let Some(address) = gather.address(shard) else {
                    gather.fail(shard);
                    continue;
                };
                let node = usize::from(address.node);
                let way = Way { node, is_ahead };
                let purpose = Purpose { reading: number, gather: nth, shard, way, is_probe: false };
                let mut turn = self.turn(way, gather);
                // Nobody overtakes those who wait already, but for what nobody waits for.
                let is_before = |waiting: &Waiting| is_ahead || !waiting.purpose.way.is_ahead;
                let is_overtaking =
                    self.waiting.iter().any(|waiting| waiting.node == node && is_before(waiting));
                match (!is_overtaking).then(|| turn.take().ok()).flatten() {
                    Some(pass) => {
                        if !self.submit(gather, late, purpose, pass) {
                            gather.fail(shard);
                        }
                    }
                    None => self.waiting.push(Waiting { purpose, node, turn }),
                }
            }
            self.probe((number, nth), is_ahead, gather, late);
        }
    }

    /// Asks a node as well that was gone around because it is slow, now and then, and where that holds up
    /// nobody: it may be quick again.
    fn probe(
        &mut self,
        (reading, nth): (u64, usize),
        is_ahead: bool,
        gather: &mut Gather,
        late: &mut Option<Late>,
    ) {
        let carrier = self.carrier;
        // Nearly always the node that has it was asked, and nobody needs the state.
        if gather.avoided(|_| Some(Duration::ZERO)).is_none() {
            return;
        }
        let avoided = {
            let mut state = carrier.state();
            let avoided = gather.avoided(|node| state.answer_time(node));
            let now = carrier.now();
            avoided.filter(|(_, node)| state.health[usize::from(*node)].take_probe(now))
        };
        let Some((shard, node)) = avoided else { return };
        let way = Way { node: usize::from(node), is_ahead };
        if self.waiting.iter().any(|waiting| waiting.node == way.node) {
            return;
        }
        let Ok(pass) = self.turn(way, gather).take() else { return };
        gather.probe(shard);
        let purpose = Purpose { reading, gather: nth, shard, way, is_probe: true };
        if !self.submit(gather, late, purpose, pass) {
            gather.fail(shard);
        }
    }

    /// A turn at a link, for a range that comes by it.
    fn turn(&self, way: Way, gather: &Gather) -> Turn {
        let class = if way.is_ahead { Class::Ahead } else { Class::Demand };
        let bytes = (gather.piece().count * PAGE_BYTES) as u64;
        self.carrier.sharing.gate(way.node, Direction::In).turn(class, bytes)
    }

    /// The links by which nothing is awaited but what shows how long their nodes take; not for long, since a
    /// node that takes longer is slow in any case.
    fn probed(&self) -> Vec<Way> {
        let is_probe = |asked: &Asked| asked.purpose.is_probe && asked.since.elapsed() < IDLE;
        self.pending.iter().filter(|(_, asked)| is_probe(asked)).map(|((way, _), _)| *way).collect()
    }

    /// Sends a request whose turn has come. False when it can't be sent.
    fn submit(&mut self, gather: &Gather, late: &mut Option<Late>, purpose: Purpose, pass: Pass) -> bool {
        let Some(address) = gather.address(purpose.shard) else { return false };
        let (way, piece) = (purpose.way, gather.piece());
        let Some(at) = address.frame.offset().checked_add((piece.first * PAGE_BYTES) as u64) else {
            return false;
        };
        let buffer = self.buffers.pop().unwrap_or_default();
        let request = Request::Read { at, length_bytes: (piece.count * PAGE_BYTES) as u32, buffer };
        let Some(ticket) = self.links[way].submit(request, PATIENCE) else { return false };
        let since = Instant::now();
        if let Some(late) = late {
            late.at = since + late.patience;
        }
        self.pending.insert((way, ticket), Asked { purpose, since, pass: Some(pass) });
        true
    }

    /// Sends what waits for its turn, as far as that has come.
    fn take_turns(&mut self) {
        self.timing.look(self.carrier.pool, Instant::now());
        let mut denied: Vec<Way> = Vec::new();
        for mut waiting in std::mem::take(&mut self.waiting) {
            let Purpose { reading: number, way, .. } = waiting.purpose;
            let purpose = waiting.purpose;
            if way.is_ahead && self.drops(number) {
                continue;
            }
            if denied.contains(&way) {
                self.waiting.push(waiting);
                continue;
            }
            // What others were quicker with is withdrawn.
            let Some(mut reading) = self.readings.remove(&number) else { continue };
            let is_sent = match waiting.turn.take() {
                Ok(pass) => self.submit(&reading.gathers[purpose.gather], &mut reading.late, purpose, pass),
                Err(_) => {
                    denied.push(way);
                    self.waiting.push(waiting);
                    true
                }
            };
            self.readings.insert(number, reading);
            if !is_sent {
                self.fail(purpose);
            }
        }
    }

    /// Nothing is under way, and all that is called for waits for its turn: sleeps until the bell rings, but
    /// not for long, since other gates and new calls are not heard meanwhile.
    fn await_turn(&mut self) {
        let Some(first) = self.waiting.first() else { return };
        let gate = self.carrier.sharing.gate(first.node, Direction::In);
        let bell = gate.bell();
        self.take_turns();
        if self.pending.is_empty() && !self.waiting.is_empty() {
            gate.sleep(bell, TURN);
        }
    }

    /// A reading has ended. What of it is still under way, or waits, takes no part of links from others any
    /// more.
    fn forget(&mut self, number: u64) {
        self.waiting.retain(|waiting| waiting.purpose.reading != number);
        self.pending
            .values_mut()
            .filter(|asked| asked.purpose.reading == number)
            .for_each(|asked| asked.pass = None);
    }

    /// Whether a reading is over, because nobody waits for it and nobody asked for it any more, or because it
    /// would come too late.
    fn drops(&mut self, number: u64) -> bool {
        let Some(reading) = self.readings.get(&number) else { return false };
        let pool = self.carrier.pool;
        let is_wanted = pool.is_awaited(&reading.taken) || !reading.joined.is_empty();
        let is_dropped = reading.taken.is_ahead && (!is_wanted || self.timing.drops(reading.since.elapsed()));
        if is_dropped && let Some(reading) = self.readings.remove(&number) {
            self.forget(number);
            count(&self.carrier.counts.ahead_dropped);
            reading.calls().for_each(|taken| pool.answer(taken, Answer::Late));
        }
        is_dropped
    }

    /// Adds a call to a reading that brings what it wants. If a thread waits for it, and nobody waited for
    /// that reading, it is asked for as what threads wait for unless it is on its way. `false` where there is
    /// no such reading.
    fn join(&mut self, taken: &TakenCall) -> bool {
        let covers = |reading: &Reading| !taken.call.is_retry && reading.pages.covers(&taken.call);
        let Some((&number, reading)) = self.readings.iter_mut().find(|(_, reading)| covers(reading)) else {
            return false;
        };
        reading.joined.push(*taken);
        if reading.taken.is_ahead && !taken.is_ahead {
            reading.taken.is_ahead = false;
            count(&self.carrier.counts.ahead_awaited);
            for Waiting { purpose, .. } in
                self.waiting.extract_if(.., |waiting| waiting.purpose.reading == number)
            {
                reading.gathers[purpose.gather].withdraw(purpose.shard);
            }
            self.pursue(number);
        }
        true
    }

    /// What threads have come to wait for, and has been under way for too long by a link for what nobody
    /// waits for, is asked for again by the other one. What comes of the first request is nobody's then.
    fn go_around_overdue(&mut self) {
        let is_awaited =
            |number: &u64| self.readings.get(number).is_some_and(|reading| !reading.taken.is_ahead);
        let overdue: Vec<(Way, Ticket)> = self
            .pending
            .iter()
            .filter(|((way, _), asked)| way.is_ahead && is_awaited(&asked.purpose.reading))
            .filter(|(_, asked)| self.timing.is_overdue(asked.since.elapsed()))
            .map(|(key, _)| *key)
            .collect();
        for key in overdue {
            let Some(Asked { purpose: Purpose { reading: number, gather, shard, .. }, .. }) =
                self.pending.remove(&key)
            else {
                continue;
            };
            if let Some(reading) = self.readings.get_mut(&number) {
                reading.gathers[gather].withdraw(shard);
                self.pursue(number);
            }
        }
    }

    /// No node can answer at present. Another one may be back soon; what is on disk need not wait for that.
    fn give_up(&mut self, number: u64, reading: Reading) {
        self.forget(number);
        match self.carrier.pool.has_disk_copy(reading.taken.call.block) {
            true => reading.calls().for_each(|taken| match taken.is_ahead {
                true => self.carrier.pool.answer(taken, Answer::Late),
                false => self.refuse(taken),
            }),
            false => self.put_off(reading.calls()),
        }
    }

    /// What threads wait for is tried again; what nobody waits for is given up.
    fn put_off<'a>(&mut self, calls: impl Iterator<Item = &'a TakenCall>) {
        for taken in calls {
            match taken.is_ahead {
                true => self.carrier.pool.answer(taken, Answer::Late),
                false => self.parked.push(*taken),
            }
        }
    }

    fn refuse(&self, taken: &TakenCall) {
        self.carrier.pool.count_failed_fetch();
        self.carrier.pool.answer(taken, Answer::Nowhere);
    }

    /// Tries again what is parked.
    fn retry(&mut self) {
        for taken in std::mem::take(&mut self.parked) {
            self.begin(taken);
        }
    }

    /// Where answers are late, asks others as well (Hydra's late binding): what comes first counts.
    fn go_around_late(&mut self) {
        let now = Instant::now();
        let is_late = |reading: &Reading| reading.late.as_ref().is_some_and(|late| late.at <= now);
        let late: Vec<u64> =
            self.readings.iter().filter(|(_, reading)| is_late(reading)).map(|(number, _)| *number).collect();
        for number in late {
            if self.waits_for_turn(number, now) {
                continue;
            }
            let Some(reading) = self.readings.get_mut(&number) else { continue };
            // What still waits for its turn waits at a node that is late with others.
            for Waiting { purpose, .. } in
                self.waiting.extract_if(.., |waiting| waiting.purpose.reading == number)
            {
                reading.gathers[purpose.gather].fail(purpose.shard);
            }
            let mut nodes = Vec::new();
            for gather in reading.gathers.iter_mut().filter(|gather| !gather.is_there()) {
                let late = gather.set_late();
                nodes.extend(late.into_iter().filter_map(|shard| gather.address(shard)).map(|at| at.node));
            }
            if let Some(Late { at, patience }) = &mut reading.late {
                *patience *= 2;
                *at = now + *patience;
                let mut state = self.carrier.state();
                // At least: so that a node that says nothing isn't counted on by the next reading.
                nodes.iter().for_each(|node| state.health[usize::from(*node)].answered(*patience));
            }
            count(&self.carrier.counts.late);
            self.pursue(number);
        }
    }

    /// Whether a reading waits for its turn at the link to a node that is not late itself: then there is no
    /// reason to go around it, which would take more of links that are busy.
    fn waits_for_turn(&self, number: u64, now: Instant) -> bool {
        let Some(late) = self.readings.get(&number).and_then(|reading| reading.late.as_ref()) else {
            return false;
        };
        let owes = |node: usize| {
            self.pending
                .iter()
                .any(|((way, _), asked)| way.node == node && now.duration_since(asked.since) > late.patience)
        };
        let mut nodes = self
            .waiting
            .iter()
            .filter(|waiting| waiting.purpose.reading == number)
            .map(|waiting| waiting.node)
            .peekable();
        nodes.peek().is_some() && !nodes.any(owes)
    }

    /// Waits for a node's answer.
    fn hear(&mut self) {
        let (awaited, ahead) = (self.links.busy(false), self.links.busy(true));
        // New calls are not heard meanwhile, and somebody may be waiting for one of these.
        let listen = if self.waiting.is_empty() && !awaited.is_empty() { LISTEN } else { TURN };
        if let ([way], _) | ([], [way]) = (&awaited[..], &ahead[..]) {
            // Nobody waits for what comes by the other links: they are looked at first, and not waited for.
            ahead
                .iter()
                .filter(|other| *other != way)
                .for_each(|&other| self.hear_from(other, Duration::ZERO));
            self.hear_from(*way, listen);
        } else {
            let busy = [awaited, ahead].concat();
            let before = self.pending.len();
            busy.iter().for_each(|&way| self.hear_from(way, Duration::ZERO));
            if self.pending.len() == before && wait_for_any(busy.iter().map(|way| &self.links[*way]), listen)
            {
                busy.iter().for_each(|&way| self.hear_from(way, Duration::ZERO));
            }
        }
        let is_gone = |way: &Way| !self.links[*way].is_open();
        let gone: Vec<Way> = self.pending.keys().map(|(way, _)| *way).filter(is_gone).collect();
        gone.into_iter().for_each(|way| self.abandon(way));
    }

    fn hear_from(&mut self, way: Way, timeout: Duration) {
        let heard = self.links[way].hear(&mut self.completions, timeout);
        for completion in std::mem::take(&mut self.completions) {
            self.finish(way, completion);
        }
        if heard.is_err() {
            self.abandon(way);
        }
    }

    /// A link has ended: what was asked by it is asked elsewhere, or there again.
    fn abandon(&mut self, way: Way) {
        let of_link: Vec<_> = self.pending.keys().copied().filter(|(other, _)| *other == way).collect();
        for key in of_link {
            if let Some(asked) = self.pending.remove(&key) {
                self.fail(asked.purpose);
            }
        }
    }

    /// A node has not sent what it was asked for.
    fn fail(&mut self, Purpose { reading: number, gather, shard, .. }: Purpose) {
        if let Some(reading) = self.readings.get_mut(&number) {
            reading.gathers[gather].fail(shard);
            self.pursue(number);
        }
    }

    fn finish(&mut self, way: Way, completion: Completion) {
        let Some(asked) = self.pending.remove(&(way, completion.ticket)) else { return };
        let Asked { purpose, since, pass } = asked;
        let (carrier, node) = (self.carrier, way.node);
        match (completion.result, completion.request) {
            (Ok(NodeAnswer::Read), Request::Read { buffer, .. }) => {
                pass.map(Pass::finish);
                let took = since.elapsed();
                if purpose.is_probe {
                    let now = carrier.now();
                    carrier.state().health[node].probed(now, took);
                } else {
                    carrier.state().health[node].answered(took);
                    self.timing.took(way.is_ahead, took);
                }
                self.take(purpose, buffer);
            }
            (Err(Failure::Refused(_)), _) => {
                drop(pass);
                if let Some(Reading { taken, located, .. }) = self.readings.get(&purpose.reading) {
                    carrier.lose_shard(taken.call.block as u32, located, purpose.shard);
                }
                self.fail(purpose);
            }
            (result, _) => {
                drop(pass);
                if result == Err(Failure::Late) {
                    self.links[way].doubt();
                }
                self.fail(purpose);
            }
        }
    }

    /// A range of a shard has come.
    fn take(&mut self, purpose: Purpose, buffer: Vec<u8>) {
        let Purpose { reading: number, gather, shard, .. } = purpose;
        let Some(reading) = self.readings.get_mut(&number) else {
            // Others were quicker.
            return self.keep_buffer(buffer);
        };
        let gather = &mut reading.gathers[gather];
        let piece = farmem_remote::Piece { shard, ..gather.piece() };
        let block = reading.taken.call.block as u32;
        if self.carrier.is_right(block, &reading.located, piece, &buffer) {
            gather.take(shard, buffer);
            return self.pursue(number);
        }
        if self.carrier.caught(block, &reading.located, shard) {
            return self.fail(purpose);
        }
        // The block was written, moved or freed meanwhile: where it is now is looked up again.
        if let Some(reading) = self.readings.remove(&number) {
            self.forget(number);
            reading.calls().for_each(|taken| self.begin(*taken));
        }
    }

    /// Puts what has come into the read buffer, and answers.
    fn complete(&mut self, number: u64, mut reading: Reading) {
        let carrier = self.carrier;
        if reading.gathers.iter().any(Gather::is_awaited) {
            self.forget(number);
        }
        if reading.gathers.iter().any(Gather::is_made) {
            count(&carrier.counts.around);
        }
        let mut ranges: Vec<Vec<u8>> = reading.gathers.iter_mut().filter_map(Gather::bytes).collect();
        let content = if ranges.len() == 1 { ranges.swap_remove(0) } else { ranges.concat() };
        let Some(filling) = carrier.pool.begin_fill() else {
            // Others are filling every entry at this moment.
            self.keep_buffer(content);
            return self.put_off(reading.calls());
        };
        let displaced = filling.displaced;
        let answer = carrier.pool.fill(filling, &reading.pages, reading.taken.owner(), &content);
        reading.calls().for_each(|taken| carrier.pool.answer(taken, answer));
        self.keep_buffer(content);
        // Not before: nobody else can have the entry while it is being filled.
        if let Some(displaced) = displaced {
            carrier.state().span(displaced.owner.0).learn(displaced.fetched, displaced.used);
        }
    }

    fn keep_buffer(&mut self, buffer: Vec<u8>) {
        if self.buffers.len() < SPARE_BUFFERS {
            self.buffers.push(buffer);
        }
    }

    /// Keeps links alive, and lets go those that have ended.
    fn look_after_links(&mut self) {
        if self.looked_at.elapsed() < IDLE {
            return;
        }
        self.looked_at = Instant::now();
        for way in self.links.known() {
            self.links[way].close_if_left();
            // What comes late teaches how long the node takes.
            self.hear_from(way, Duration::ZERO);
            if !self.links[way].is_open() {
                self.abandon(way);
            }
        }
        // One that has ended is made again before it is needed.
        self.links.prepare();
    }
}

/// The pages to read for a call: those around it that lie in the same shard, or itself alone where it lies in
/// two.
fn within_shard(redundancy: Redundancy, call: &Call, (first, count): (usize, usize)) -> (usize, usize) {
    let pages = redundancy.shard_pages();
    let (start, end) = (call.first - call.first % pages, call.first - call.first % pages + pages);
    if call.first + call.count > end {
        return (call.first, call.count);
    }
    let from = first.max(start);
    (from, (first + count).min(end) - from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_come_along_up_to_the_end_of_the_shard() {
        let redundancy = Redundancy::new(8, 2).unwrap();
        let call = |first, count| Call { block: 0, version: 0, first, count, is_retry: false };
        assert_eq!(within_shard(redundancy, &call(9, 1), (0, 16)), (8, 8));
        assert_eq!(within_shard(redundancy, &call(9, 2), (8, 4)), (8, 4));
        assert_eq!(within_shard(redundancy, &call(7, 2), (0, 16)), (7, 2));
        assert_eq!(within_shard(Redundancy::NONE, &call(7, 2), (0, 16)), (0, 16));
    }
}

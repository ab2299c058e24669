//! A lane: the thread that answers what readers on one processor call for.
//!
//! It takes calls from shared memory, reads from the nodes, puts what came into the read buffer, and answers. Several calls are under way at a
//! time. What can't be had now, but may be had soon, is parked.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use farmem_page::PAGE_BYTES;
use farmem_store::{Answer, Call, SLAB_BYTES, TakenCall};
use farmem_sys::affinity::{Allowed, stay_on};
use farmem_transport::{Answer as NodeAnswer, Completion, Failure, Request, Ticket};

use super::Carrier;
use super::link::NodeLink;
use crate::worker::Worker;

/// How long a lane sleeps when nobody calls. Then it sees that it should end, and that its links live.
const IDLE: Duration = Duration::from_millis(100);
/// How long it waits for nodes before it looks for new calls. Usually an answer comes sooner.
const LISTEN: Duration = Duration::from_millis(1);
/// How long it waits while all that is called for is parked.
const PARKED: Duration = Duration::from_millis(2);
/// A read that takes longer is tried elsewhere.
const PATIENCE: Duration = Duration::from_secs(1);
/// Buffers kept for further reads.
const SPARE_BUFFERS: usize = 16;
const BLOCK_PAGES: usize = SLAB_BYTES / PAGE_BYTES;

/// A call that a node has been asked about.
struct Pending {
    taken: TakenCall,
    /// The pages that come.
    pages: Call,
    since: Instant,
}

pub(super) struct Lane {
    carrier: &'static Carrier,
    number: usize,
    links: Vec<NodeLink>,
    pending: HashMap<(usize, Ticket), Pending>,
    /// With the node that should rather not be asked again, if one failed.
    parked: Vec<(TakenCall, Option<u16>)>,
    completions: Vec<Completion>,
    buffers: Vec<Vec<u8>>,
    looked_at: Instant,
}

impl Lane {
    pub(super) fn start(carrier: &'static Carrier, number: usize) -> Worker {
        let mut lane = Self {
            carrier,
            number,
            links: NodeLink::all(carrier, number as u8),
            pending: HashMap::new(),
            parked: Vec::new(),
            completions: Vec::new(),
            buffers: Vec::new(),
            looked_at: Instant::now(),
        };
        let mut is_placed = false;
        Worker::start(move || {
            if !is_placed {
                // Beside those who call it: waking another processor takes longer than all the rest (docs/adr/0026).
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
            self.begin(taken, None);
        }
        if self.pending.is_empty() {
            let wait = if self.parked.is_empty() { IDLE } else { PARKED };
            self.carrier.pool.wait_for_call(self.number, wait.as_nanos() as u64);
            self.retry();
            self.look_after_links();
        } else {
            self.hear();
            self.retry();
        }
    }

    /// Answers a call, or asks a node, or parks it.
    fn begin(&mut self, taken: TakenCall, mut avoid: Option<u16>) {
        let call = taken.call;
        let pool = self.carrier.pool;
        if call.first + call.count > BLOCK_PAGES {
            return pool.answer(&taken, Answer::Nowhere);
        }
        if let Some(entry) = pool.buffered(&call) {
            if !call.is_retry || avoid.is_some() {
                return pool.answer(&taken, Answer::Entry(entry));
            }
            // What the reader got is damaged: it shall come from elsewhere.
            avoid = self.carrier.state().sources.get(&entry).copied();
            pool.forget_buffered(&call);
        }
        let (copies, nearest, (first, count)) = {
            let mut state = self.carrier.state();
            let copies = state.books.copies(call.block as u32);
            let span = state.spans.entry(taken.owner().0).or_default().around(call.first, call.count);
            // One that is late is better than none; one that is damaged isn't.
            let nearest = match state.nearest(copies, avoid) {
                None if !call.is_retry => state.nearest(copies, None),
                nearest => nearest,
            };
            (copies, nearest, span)
        };
        let is_hopeful = copies.iter().any(|copy| !call.is_retry || Some(copy.node) != avoid);
        let is_late = avoid.is_some() && nearest.is_some_and(|address| Some(address.node) == avoid);
        let Some(address) = nearest.filter(|_| !is_late || !pool.has_disk_copy(call.block)) else {
            if is_hopeful && !pool.has_disk_copy(call.block) {
                // Its node is away, and may come back.
                self.parked.push((taken, avoid));
            } else {
                self.refuse(&taken);
            }
            return;
        };
        let offset = (first * PAGE_BYTES) as u64;
        let Some(at) = address.frame.offset().checked_add(offset) else { return self.refuse(&taken) };
        let buffer = self.buffers.pop().unwrap_or_default();
        let request = Request::Read { at, length_bytes: (count * PAGE_BYTES) as u32, buffer };
        let node = usize::from(address.node);
        match self.links[node].submit(request, PATIENCE) {
            Some(ticket) => {
                let pages = Call { first, count, is_retry: false, ..call };
                self.pending.insert((node, ticket), Pending { taken, pages, since: Instant::now() });
            }
            None => self.parked.push((taken, avoid)),
        }
    }

    fn refuse(&self, taken: &TakenCall) {
        self.carrier.pool.count_failed_fetch();
        self.carrier.pool.answer(taken, Answer::Nowhere);
    }

    /// Tries again what is parked.
    fn retry(&mut self) {
        for (taken, avoid) in std::mem::take(&mut self.parked) {
            self.begin(taken, avoid);
        }
    }

    /// Waits for a node's answer.
    fn hear(&mut self) {
        let busy: Vec<usize> = (0..self.links.len()).filter(|&node| self.links[node].pending() > 0).collect();
        // With several nodes each gets a part of the time; what they send meanwhile waits in their sockets.
        let timeout = LISTEN / busy.len().max(1) as u32;
        for node in busy {
            let heard = self.links[node].hear(&mut self.completions, timeout);
            for completion in std::mem::take(&mut self.completions) {
                self.finish(node, completion);
            }
            if heard.is_err() {
                self.abandon(node);
            }
        }
        let gone: Vec<usize> = self.links.iter().filter(|link| !link.is_open()).map(NodeLink::node).collect();
        gone.into_iter().for_each(|node| self.abandon(node));
    }

    /// The link to a node has ended: what it was asked is asked elsewhere, or of it again.
    fn abandon(&mut self, node: usize) {
        let of_node: Vec<_> = self.pending.keys().copied().filter(|(other, _)| *other == node).collect();
        for key in of_node {
            if let Some(Pending { taken, .. }) = self.pending.remove(&key) {
                self.parked.push((taken, None));
            }
        }
    }

    fn finish(&mut self, node: usize, completion: Completion) {
        let Some(Pending { taken, pages, since }) = self.pending.remove(&(node, completion.ticket)) else {
            return;
        };
        let carrier = self.carrier;
        match (completion.result, completion.request) {
            (Ok(NodeAnswer::Read), Request::Read { buffer, .. }) => {
                let filling = carrier.pool.begin_fill();
                {
                    let mut state = carrier.state();
                    state.health[node].answered(since.elapsed());
                    if let Some(displaced) = filling.as_ref().and_then(|filling| filling.displaced) {
                        let span = state.spans.entry(displaced.owner.0).or_default();
                        span.learn(displaced.fetched, displaced.used);
                    }
                }
                let answer = match filling {
                    Some(filling) => carrier.pool.fill(filling, &pages, taken.owner(), &buffer),
                    None => Answer::Nowhere,
                };
                if let Answer::Entry(entry) = answer {
                    carrier.state().sources.insert(entry, node as u16);
                }
                carrier.pool.answer(&taken, answer);
                if self.buffers.len() < SPARE_BUFFERS {
                    self.buffers.push(buffer);
                }
            }
            (Err(Failure::Refused(_)), _) => {
                carrier.lose_copy(taken.call.block, node as u16);
                self.begin(taken, Some(node as u16));
            }
            (result, _) => {
                if result == Err(Failure::Late) {
                    self.links[node].doubt();
                }
                self.begin(taken, Some(node as u16));
            }
        }
    }

    /// Keeps links alive, and lets go those that have ended.
    fn look_after_links(&mut self) {
        if self.looked_at.elapsed() < IDLE {
            return;
        }
        self.looked_at = Instant::now();
        for link in &mut self.links {
            // One that has ended is made anew when it is needed.
            let _ = link.hear(&mut self.completions, Duration::ZERO);
        }
        self.completions.clear();
    }
}

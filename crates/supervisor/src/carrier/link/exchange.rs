//! Requests whose answers are waited for, by one link or several at once.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use farmem_broker::link_schedule::{Pass, Turn};
use farmem_transport::{Answer, Completion, Failure, Request, SubmitError, Ticket, Unsubmitted};

use super::{NodeLink, wait_for_any};
use crate::carrier::sharing::Pause;

/// How long completions are waited for before a look at the deadlines.
pub(in super::super) const SLICE: Duration = Duration::from_millis(100);
/// How often a link is made again within one exchange: once may be an accident.
const RECONNECTIONS: u32 = 1;

/// What came of a request: itself with its buffers, and the answer. The request is lost with a link that
/// broke for good.
pub(super) type Outcome = Option<(Request, Result<Answer, Failure>)>;

/// What one node is asked, in order, each when its turn at the link has come; and what came of it, in the
/// same order. If the link breaks and the same node answers again, what was not answered is repeated.
struct Exchange {
    /// The ticket of the first request; those of the others follow.
    first: u64,
    patience: Duration,
    deadline: Instant,
    waiting: VecDeque<(Ticket, Request)>,
    /// Submitted, and without an outcome.
    under_way: usize,
    outcomes: Vec<Outcome>,
    passes: HashMap<Ticket, Pass>,
    turn: Option<Turn>,
    /// It is not the turn of what waits.
    pause: Option<Pause>,
    reconnections: u32,
    has_ended: bool,
}

impl Exchange {
    fn begin(link: &mut NodeLink, requests: Vec<Request>, patience: Duration) -> Self {
        let (first, count) = (link.ticket + 1, requests.len());
        link.close_if_outdated();
        let is_possible = link.is_usable();
        let mut waiting = VecDeque::new();
        if is_possible {
            link.ticket += count as u64;
            waiting.extend((first..).map(Ticket).zip(requests));
        }
        Self {
            first,
            patience,
            deadline: Instant::now() + patience,
            waiting,
            under_way: 0,
            outcomes: (0..count).map(|_| None).collect(),
            passes: HashMap::new(),
            turn: None,
            pause: None,
            reconnections: 0,
            has_ended: !is_possible,
        }
    }

    /// Submits what has its turn and for which the link has room.
    fn submit(&mut self, link: &mut NodeLink) {
        self.pause = None;
        let Some(transport) = &mut link.transport else {
            self.has_ended = true;
            return;
        };
        while let Some((ticket, request)) = self.waiting.pop_front() {
            // One for which the link had no room has its pass already.
            if !self.passes.contains_key(&ticket) {
                match link.carrier.sharing.bulk(link.node, &request, &mut self.turn) {
                    Ok(pass) => {
                        // Time that is spent waiting for a turn is not the node's.
                        self.deadline = Instant::now() + self.patience;
                        self.passes.extend(pass.map(|pass| (ticket, pass)));
                    }
                    Err(denied) => {
                        self.waiting.push_front((ticket, request));
                        self.pause = Some(denied);
                        break;
                    }
                }
            }
            match transport.submit(ticket, request, self.deadline) {
                Ok(()) => self.under_way += 1,
                Err(Unsubmitted { why: SubmitError::Full, request }) => {
                    self.waiting.push_front((ticket, request));
                    break;
                }
                // It has no outcome.
                Err(Unsubmitted { .. }) => {}
            }
        }
        self.has_ended = self.under_way == 0 && self.waiting.is_empty();
    }

    /// Hears what has come, waiting at most so long. Whether anything has.
    fn hear(&mut self, link: &mut NodeLink, timeout: Duration) -> bool {
        let Some(transport) = &mut link.transport else { return true };
        let mut completions = Vec::new();
        let heard = transport.complete(&mut completions, timeout);
        let is_something = heard.is_err() || !completions.is_empty();
        for completion in completions {
            if let Some(completion) = link.note(completion, true) {
                self.finish(link, completion);
            }
        }
        if heard.is_err() {
            self.reconnect(link);
        }
        is_something
    }

    fn finish(&mut self, link: &mut NodeLink, Completion { ticket, request, result }: Completion) {
        let nth = ticket.0.checked_sub(self.first).and_then(|nth| usize::try_from(nth).ok());
        // Of what comes twice the first counts, and what was asked earlier was given up.
        let Some(outcome) = nth.and_then(|nth| self.outcomes.get_mut(nth)).filter(|known| known.is_none())
        else {
            return;
        };
        if result == Err(Failure::Late) {
            link.owes = true;
            link.doubt();
            // Those behind it would each be waited for as long, one after the other. They have no outcome.
            self.waiting.clear();
        }
        if let Some(pass) = self.passes.remove(&ticket).filter(|_| result.is_ok()) {
            Pass::finish(pass);
        }
        *outcome = Some((request, result));
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// The link has broken.
    fn reconnect(&mut self, link: &mut NodeLink) {
        let Some(mut transport) = link.transport.take() else { return };
        // Nothing of it is under way any more, and what is repeated waits for its turn again.
        self.under_way = 0;
        self.passes.clear();
        self.turn = None;
        let incarnation = link.incarnation;
        let own = transport.take_unanswered().into_iter().filter(|(ticket, _)| ticket.0 >= self.first);
        let own: Vec<_> = own.collect();
        drop(transport);
        link.suspect();
        if self.reconnections == RECONNECTIONS || !link.open() {
            self.has_ended = true;
            return;
        }
        self.reconnections += 1;
        if link.incarnation != incarnation {
            // It is another node: what was asked of the one before means nothing to it.
            self.has_ended = true;
            return;
        }
        own.into_iter().rev().for_each(|request| self.waiting.push_front(request));
    }

    fn is_overdue(&self) -> bool {
        Instant::now() > self.deadline + SLICE
    }
}

impl NodeLink {
    /// Does all of these and waits for it: outcomes in the same order.
    pub(in super::super) fn exchange(&mut self, requests: Vec<Request>, patience: Duration) -> Vec<Outcome> {
        let links = std::slice::from_mut(self);
        exchange(links, vec![(0, requests)], patience).pop().unwrap_or_default()
    }
}

/// Does all of these, each of them what the link of a number is asked, and waits for it: outcomes in the same
/// order. None of the nodes waits for another.
pub(in super::super) fn exchange(
    links: &mut [NodeLink],
    requests: Vec<(usize, Vec<Request>)>,
    patience: Duration,
) -> Vec<Vec<Outcome>> {
    let begin = |(at, requests)| (at, Exchange::begin(&mut links[at], requests, patience));
    let mut exchanges: Vec<(usize, Exchange)> = requests.into_iter().map(begin).collect();
    loop {
        let mut going: Vec<&mut (usize, Exchange)> = Vec::new();
        for one in &mut exchanges {
            let (at, exchange) = &mut *one;
            if !exchange.has_ended {
                exchange.submit(&mut links[*at]);
            }
            if !exchange.has_ended {
                going.push(one);
            }
        }
        if going.is_empty() {
            return exchanges.into_iter().map(|(_, exchange)| exchange.outcomes).collect();
        }
        let at_most = going.iter().filter_map(|(_, exchange)| exchange.pause.as_ref()?.at_most.into()).min();
        let at_most = at_most.map_or(SLICE, |pause| pause.min(SLICE));
        // Only a thread that has nothing under way sleeps until the bell rings: others may wait for what
        // comes.
        let is_idle = going.iter().all(|(_, exchange)| exchange.under_way == 0);
        if is_idle && let Some(pause) = going.iter().find_map(|(_, exchange)| exchange.pause.as_ref()) {
            pause.sleep();
            continue;
        }
        if let [(at, exchange)] = &mut going[..] {
            exchange.hear(&mut links[*at], at_most);
        } else {
            let mut is_something = false;
            for (at, exchange) in &mut going {
                is_something |= exchange.hear(&mut links[*at], Duration::ZERO);
            }
            if !is_something {
                let busy = going.iter().filter(|(_, exchange)| exchange.under_way > 0);
                wait_for_any(busy.map(|(at, _)| &links[*at]), at_most);
            }
        }
        for (_, exchange) in going {
            exchange.has_ended |= exchange.is_overdue();
        }
    }
}

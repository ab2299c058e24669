//! The node monitor: tries to reach nodes that are away or have joined, decides that they are lost, and parts
//! with those that have been emptied.
//!
//! It waits for no node. What takes time is done by a thread for each node that is tried, and one that can't
//! be reached keeps no other waiting: the leases of those that are there are renewed meanwhile. A link that
//! answers is kept: another one is tried only for a node by whose link nothing comes.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use farmem_remote::{Member, Standing};
use farmem_transport::{Failure, LinkError, Transport};

use super::link::NodeLink;
use super::links::Links;
use super::{Carrier, MONITOR_LANE};
use crate::threads::worker::Worker;

const LOOK: Duration = Duration::from_millis(50);
/// A node that is asked whether it is there answers within this time, or is away.
const PATIENCE: Duration = Duration::from_secs(1);
/// After this time another link is tried as well: an answer may be under way by neither of them.
const SOON: Duration = Duration::from_millis(250);

pub(super) struct NodeMonitor {
    carrier: &'static Carrier,
    links: Links,
    /// By node.
    watched: Vec<Watched>,
}

#[derive(Default)]
struct Watched {
    attempt: Option<Attempt>,
    /// Since when it has been asked by its link, while that has not answered.
    asked_at: Option<Duration>,
    /// Whether it is to be emptied, and is.
    is_emptied: bool,
}

/// A try to reach a node.
struct Attempt {
    began: Duration,
    /// The incarnation that the node had then.
    incarnation: u32,
    thread: Option<JoinHandle<Reached>>,
}

type Reached = Result<(Box<dyn Transport>, u32), LinkError>;

impl Attempt {
    fn begin(carrier: &'static Carrier, node: usize) -> Self {
        let (began, incarnation) = (carrier.now(), carrier.incarnation(node));
        let thread =
            thread::Builder::new().name("farmem-reach".to_owned()).spawn(move || carrier.reach(node));
        Self { began, incarnation, thread: thread.ok() }
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// What came of it; an error of this machine's where there was no thread for it.
    fn end(&mut self) -> Reached {
        let missing = || LinkError::Kernel(rustix::io::Errno::AGAIN.into());
        let thread = self.thread.take().ok_or_else(missing)?;
        thread.join().unwrap_or(Err(LinkError::Closed))
    }
}

/// None of them goes on when the monitor has ended: a copy of the supervisor has one thread only.
impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl NodeMonitor {
    pub(super) fn start(carrier: &'static Carrier) -> Worker {
        let mut monitor = Self { carrier, links: Links::new(carrier, MONITOR_LANE), watched: Vec::new() };
        Worker::start(move || {
            monitor.look();
            LOOK
        })
    }

    fn look(&mut self) {
        for link in &mut self.links {
            let node = link.node();
            if node >= self.watched.len() {
                self.watched.resize_with(node + 1, Watched::default);
            }
            self.watched[node].look(self.carrier, link);
        }
    }
}

impl Watched {
    fn look(&mut self, carrier: &'static Carrier, link: &mut NodeLink) {
        let node = link.node();
        self.mind_parting(carrier, link);
        link.close_if_left();
        link.close_if_outdated();
        self.hear(carrier, link);
        if self.attempt.as_ref().is_some_and(Attempt::has_ended) {
            self.end_attempt(carrier, link);
        }
        let now = carrier.now();
        let (standing, is_doubted, is_due) = {
            let mut state = carrier.state();
            let health = &mut state.health[node];
            (health.standing(), health.take_doubt(), health.is_retry_due(now))
        };
        if !link.is_open() {
            self.asked_at = None;
            if is_doubted {
                link.doubt();
            }
        } else if is_doubted || standing == Standing::Away {
            link.ask_whether_there(PATIENCE);
            self.asked_at.get_or_insert(now);
        }
        let is_wanted = match standing {
            Standing::Up => !link.is_open(),
            Standing::Away => self.asked_at.is_none_or(|at| now >= at + SOON),
            Standing::Lost => true,
        };
        if is_wanted && is_due && self.attempt.is_none() {
            self.attempt = Some(Attempt::begin(carrier, node));
        }
        let loss = {
            let mut state = carrier.state();
            state.health[node].is_just_lost(now).then(|| carrier.lose(&mut state, node))
        };
        if let Some(loss) = loss {
            loss.tell();
        }
    }

    fn mind_parting(&mut self, carrier: &'static Carrier, link: &mut NodeLink) {
        let node = link.node();
        let (member, is_empty) = carrier.member(node);
        let was_emptied = std::mem::replace(&mut self.is_emptied, member == Member::Draining && is_empty);
        if self.is_emptied && !was_emptied {
            tracing::info!(node = %carrier.nodes[node].address, "nothing is left on the node");
        }
        // A node that is up and to which there is no link gets one soon.
        if member == Member::Leaving && is_empty && (link.is_open() || !carrier.is_up(node)) {
            carrier.part(link);
        }
    }

    /// Hears what its link says, which renews the lease of what is granted.
    fn hear(&mut self, carrier: &Carrier, link: &mut NodeLink) {
        let mut completions = Vec::new();
        let described = link.described();
        if link.hear(&mut completions, Duration::ZERO).is_err() {
            link.doubt();
        }
        for completion in completions {
            match (completion.result, described) {
                (Err(Failure::Late), _) => link.doubt(),
                (_, Some(description)) => {
                    self.asked_at = None;
                    if !carrier.is_up(link.node()) {
                        carrier.met(link.node(), link.incarnation(), &description);
                    }
                }
                _ => {}
            }
        }
    }

    fn end_attempt(&mut self, carrier: &Carrier, link: &mut NodeLink) {
        let Some(mut attempt) = self.attempt.take() else { return };
        let node = link.node();
        match attempt.end() {
            Ok((transport, incarnation)) => {
                link.put(transport, incarnation);
                self.asked_at = None;
            }
            Err(error) => {
                tracing::debug!(node = %carrier.nodes[node].address, %error, "node was not reached");
                if error.is_lack() {
                    let now = carrier.now();
                    carrier.state().health[node].put_off(now);
                } else if !link.is_open() || !carrier.is_up(node) {
                    carrier.tried(node, attempt.incarnation, attempt.began);
                }
            }
        }
    }
}

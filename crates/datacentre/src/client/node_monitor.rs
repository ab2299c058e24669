//! Nodes that are not well: noticed, tried again, given up, met again. It is what the supervisor's node
//! monitor does; how a node stands is `farmem_remote::Health`'s.

use std::time::Duration;

use farmem_remote::{Member, Reunion, Standing};

use super::Client;
use crate::clock::{Time, ns};
use crate::machines::Presence;
use crate::shared::{Event, Shared};

const LOOK: Time = 50_000_000;
/// After this time another link is tried as well.
const SOON: Time = 250_000_000;
/// Making a connection takes no longer.
const CONNECT_PATIENCE: Time = 1_000_000_000;
/// A read that takes longer is tried elsewhere, and its node is asked whether it is there.
const READ_PATIENCE: f64 = 1e9;
/// A link by which nothing goes gives a sign of life after a quarter of a lease, and ends when for so long
/// nothing has come.
const SILENCE: f64 = 10e9;
const SIGN_OF_LIFE: f64 = 7.5e9;

/// A node that is not well, or may not be.
#[derive(Default)]
pub(super) struct Watched {
    attempt: Option<Attempt>,
    is_look_due: bool,
    /// Whether it doesn't answer, and that is not acted on yet.
    is_unaware: bool,
}

struct Attempt {
    began: Duration,
    ends: Time,
    reaches: bool,
}

impl Client {
    /// A node has failed, which this client will notice in some time.
    pub(crate) fn stricken(&mut self, shared: &mut Shared, node: u16) {
        let at = usize::from(node);
        if self.members[at] == Member::Left || !self.health[at].is_up() {
            return;
        }
        let was_unaware = std::mem::replace(&mut self.watched.entry(node).or_default().is_unaware, true);
        shared.figures.unaware += u64::from(!was_unaware);
        let pause = match shared.machines.presence(at) {
            // Links end at once.
            Presence::Up | Presence::Refusing => self.chance.between(0.0, LOOK as f64),
            Presence::Silent => {
                let idle = SILENCE + self.chance.between(0.0, SIGN_OF_LIFE);
                let fetches = self.fetches_at(shared, node);
                let read = match fetches > 0.0 {
                    true => READ_PATIENCE + self.chance.exponential(1e9 / fetches),
                    false => idle,
                };
                idle.min(read)
            }
        };
        shared.clock.after(pause as Time, Event::Doubt(self.number, node, self.believed[at]));
    }

    /// This client acts on what has become of a node.
    pub(super) fn set_aware(&mut self, shared: &mut Shared, node: u16) {
        if let Some(watched) = self.watched.get_mut(&node)
            && std::mem::take(&mut watched.is_unaware)
        {
            shared.figures.unaware -= 1;
        }
    }

    /// A node that was known as this one doesn't answer, unless it does again by now.
    pub(crate) fn notice(&mut self, shared: &mut Shared, node: u16, identity: crate::machines::Identity) {
        self.asked.remove(&node);
        if identity != self.believed[usize::from(node)] {
            return;
        }
        if self.is_reachable(shared, node) {
            return self.set_aware(shared, node);
        }
        self.doubt(shared, node);
    }

    /// A node doesn't answer.
    pub(super) fn doubt(&mut self, shared: &mut Shared, node: u16) {
        let at = usize::from(node);
        if self.members[at] == Member::Left {
            return;
        }
        self.health[at].failed(shared.clock.elapsed());
        self.block_table.suspend(at);
        let is_silent = shared.machines.presence(at) == Presence::Silent;
        self.watch(shared, node, if is_silent { SOON } else { LOOK });
    }

    pub(super) fn watch(&mut self, shared: &mut Shared, node: u16, pause: Time) {
        let watched = self.watched.entry(node).or_default();
        if !std::mem::replace(&mut watched.is_look_due, true) {
            shared.clock.after(pause, Event::Look(self.number, node));
        }
    }

    /// The node monitor looks at a node.
    pub(crate) fn look(&mut self, shared: &mut Shared, node: u16) {
        let at = usize::from(node);
        let Some(watched) = self.watched.get_mut(&node) else { return };
        watched.is_look_due = false;
        let (now, elapsed) = (shared.clock.now(), shared.clock.elapsed());
        match watched.attempt.take_if(|attempt| attempt.ends <= now) {
            Some(Attempt { reaches: true, .. }) => self.meet(shared, node),
            Some(Attempt { began, .. }) => {
                self.health[at].tried(began, elapsed);
                self.block_table.suspend(at);
            }
            // By the link that there is.
            None if self.health[at].standing() == Standing::Away && self.is_reachable(shared, node) => {
                shared.machines.message(at);
                shared.figures.messages.questions += 1;
                self.meet(shared, node);
            }
            None => {}
        }
        if self.health[at].is_just_lost(elapsed) {
            self.lose(shared, node);
        }
        if self.health[at].is_up() {
            self.set_aware(shared, node);
            self.watched.remove(&node);
            return;
        }
        let Some(watched) = self.watched.get_mut(&node) else { return };
        if watched.attempt.is_none() && self.health[at].is_retry_due(elapsed) {
            shared.machines.message(at);
            shared.figures.messages.introductions += 1;
            let (rack, node_rack) = (self.rack, shared.machines.rack(at));
            let way = crate::network::Way { client_rack: rack, node: at, node_rack };
            let round_trip = shared.network.round_trip(&mut self.chance, way);
            let (takes, reaches) = match shared.machines.presence(at) {
                Presence::Up => (2 * round_trip, true),
                Presence::Refusing => (round_trip, false),
                Presence::Silent => (CONNECT_PATIENCE, false),
            };
            watched.attempt = Some(Attempt { began: elapsed, ends: now + takes, reaches });
        }
        let next = watched.attempt.as_ref().map_or(ns(self.health[at].retry_at()), |attempt| attempt.ends);
        let looks = next.saturating_sub(now).div_ceil(LOOK).max(1);
        self.watch(shared, node, looks * LOOK);
    }

    /// A node has introduced itself.
    pub(super) fn meet(&mut self, shared: &mut Shared, node: u16) {
        let at = usize::from(node);
        let now = shared.clock.elapsed();
        let mut identity = shared.machines.identity(at, self.number);
        match self.health[at].connected(now, identity.incarnation()) {
            Reunion::Same => {}
            Reunion::Other => self.lose(shared, node),
            Reunion::Remains => {
                shared.machines.forget(at, self.number);
                shared.machines.message(at);
                shared.figures.messages.farewells += 1;
                self.health[at].forgot();
                identity = shared.machines.identity(at, self.number);
                self.health[at].connected(now, identity.incarnation());
                self.lose(shared, node);
            }
        }
        if self.health[at].is_up() {
            self.believed[at] = identity;
            self.asked.remove(&node);
            self.block_table.set_rack(at, shared.machines.rack_name(at));
            self.block_table.admit(at, shared.machines.lent(at));
        }
    }
}

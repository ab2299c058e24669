//! The steward: tries to reach nodes that are away, and decides that they are lost.

use std::time::Duration;

use super::link::NodeLink;
use super::{Carrier, STEWARD_LANE};
use crate::worker::Worker;

const LOOK: Duration = Duration::from_millis(50);

pub(super) struct Steward {
    carrier: &'static Carrier,
    links: Vec<NodeLink>,
}

impl Steward {
    pub(super) fn start(carrier: &'static Carrier) -> Worker {
        let mut steward = Self { carrier, links: NodeLink::all(carrier, STEWARD_LANE) };
        Worker::start(move || {
            steward.look();
            LOOK
        })
    }

    fn look(&mut self) {
        let mut completions = Vec::new();
        for link in &mut self.links {
            let node = link.node();
            let now = self.carrier.now();
            let (is_due, is_up) = {
                let state = self.carrier.state();
                (
                    state.health[node].is_retry_due(now),
                    state.health[node].standing() == farmem_remote::Standing::Up,
                )
            };
            if is_due {
                link.reopen();
            } else if is_up {
                link.open();
            }
            // Hears that the link has ended, and renews the lease of what is granted. Nothing else is asked here.
            let _ = link.hear(&mut completions, Duration::ZERO);
            completions.clear();
            let mut state = self.carrier.state();
            if state.health[node].is_just_lost(now) {
                self.carrier.lose(&mut state, node);
            }
        }
    }
}

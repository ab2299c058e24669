//! The steward: tries to reach nodes that are away or have joined, decides that they are lost, and parts with those that have been emptied.

use std::collections::BTreeSet;
use std::time::Duration;

use farmem_remote::Member;

use super::links::Links;
use super::{Carrier, STEWARD_LANE};
use crate::worker::Worker;

const LOOK: Duration = Duration::from_millis(50);

pub(super) struct Steward {
    carrier: &'static Carrier,
    links: Links,
    /// Nodes that are to be emptied, and are.
    emptied: BTreeSet<usize>,
}

impl Steward {
    pub(super) fn start(carrier: &'static Carrier) -> Worker {
        let mut steward =
            Self { carrier, links: Links::new(carrier, STEWARD_LANE), emptied: BTreeSet::new() };
        Worker::start(move || {
            steward.look();
            LOOK
        })
    }

    fn look(&mut self) {
        let mut completions = Vec::new();
        for link in &mut self.links {
            let node = link.node();
            let (member, is_empty) = self.carrier.member(node);
            match member {
                Member::Leaving if is_empty => self.carrier.part(link),
                Member::Draining if is_empty => {
                    if self.emptied.insert(node) {
                        tracing::info!(node = %self.carrier.nodes[node].address, "nothing is left on the node");
                    }
                }
                _ => drop(self.emptied.remove(&node)),
            }
            link.close_if_left();
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

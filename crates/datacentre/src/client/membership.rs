//! Nodes that join, are emptied and leave, as the supervisor follows a cluster. What changes is
//! `farmem_remote::changes`'.

use farmem_remote::{Change, Health, Member, changes};

use super::Client;
use crate::cost::Decision;
use crate::shared::{Event, Shared};

/// Between two looks at what the cluster says.
pub(crate) const LOOK: u64 = 500_000_000;

impl Client {
    /// Hears within a look that the list of nodes has changed.
    pub(crate) fn hear_of_change(&mut self, shared: &mut Shared) {
        let pause = self.chance.between(0.0, LOOK as f64) as u64;
        shared.clock.after(pause, Event::Follow(self.number));
    }

    /// Begins what makes the nodes in use those of the list.
    pub(crate) fn follow(&mut self, shared: &mut Shared) {
        let (members, addresses, roster) = (&self.members, &shared.addresses, &shared.roster);
        let changes = shared.costs.of(Decision::Follow, || {
            let members: Vec<_> = addresses.iter().zip(members.iter().copied()).collect();
            (changes(&members, roster), (members.len() + roster.all().count()) as u64)
        });
        for change in changes {
            match change {
                Change::Rejoin(node) => {
                    self.health[node] = Health::joining();
                    self.set_member(node, Member::Active);
                    self.watch(shared, node as u16, 0);
                }
                Change::Activate(node) => self.set_member(node, Member::Active),
                Change::Drain(node) => self.set_member(node, Member::Draining),
                Change::Leave(node) => self.set_member(node, Member::Leaving),
                // All addresses are known from the start.
                Change::Join(_) => {}
            }
        }
        self.part_with_emptied(shared);
        if self.block_table.is_any_leaving() {
            self.mend_soon(shared);
        }
    }

    fn set_member(&mut self, node: usize, member: Member) {
        self.members[node] = member;
        self.block_table.set_leaving(node, member.is_leaving());
        if member.is_leaving() {
            self.leaving.insert(node as u16);
        } else {
            self.leaving.remove(&(node as u16));
        }
    }

    /// Parts with a node that holds nothing any more: it is told so.
    pub(super) fn part(&mut self, shared: &mut Shared, node: u16) {
        let at = usize::from(node);
        self.block_table.retire(at);
        if self.is_reachable(shared, node) {
            shared.machines.forget(at, self.number);
            shared.machines.message(at);
            shared.figures.messages.farewells += 1;
        }
        self.set_aware(shared, node);
        self.members[at] = Member::Left;
        self.health[at] = Health::gone();
        self.leaving.remove(&node);
        self.watched.remove(&node);
    }
}

//! A client's link to a node, as its applications and its repairs share it: by the product's turns and
//! window. The board in shared memory, by which processes of a machine tell each other of turns, is not
//! simulated; its rules are.

use farmem_policy::links::{Class, Turns, VirtualTime, Window};

use crate::clock::Time;

/// Two applications, and what nobody waits for.
const SENDERS: usize = 3;
/// The sender of whole shards.
pub(crate) const BULK: usize = 2;

#[derive(Default)]
pub(crate) struct Gate {
    window: Window,
    turns: [Turns; SENDERS],
    now: VirtualTime,
    under_way: Vec<Transfer>,
}

struct Transfer {
    begins: Time,
    ends: Time,
    bytes: u64,
}

impl Gate {
    /// A transfer that takes so long once its turn has come: how long it waits for that.
    pub(crate) fn pass(&mut self, now: Time, sender: usize, class: Class, bytes: u64, takes: Time) -> Time {
        self.under_way.retain(|transfer| transfer.ends > now);
        // Of what nobody waits for half a window may be under way.
        let most = match class {
            Class::Demand => self.window.bytes(),
            Class::Ahead | Class::Bulk => self.window.bytes() / 2,
        };
        let mut ends: Vec<Time> = self.under_way.iter().map(|transfer| transfer.ends).collect();
        ends.sort_unstable();
        let has_room = |at: &Time| {
            let sum = self.under_way_at(*at);
            sum == 0 || sum + bytes <= most
        };
        // When the last one has ended nothing is under way.
        let begins = std::iter::once(now).chain(ends).find(has_room).unwrap_or(now);
        let tag = self.turns[sender].next(self.now);
        self.turns[sender].took(tag, bytes, 1);
        self.now = self.now.max(tag);
        self.window.note(begins + takes, self.under_way_at(begins) + bytes, takes);
        self.under_way.push(Transfer { begins, ends: begins + takes, bytes });
        begins - now
    }

    fn under_way_at(&self, at: Time) -> u64 {
        let is_under_way = |transfer: &&Transfer| transfer.begins <= at && at < transfer.ends;
        self.under_way.iter().filter(is_under_way).map(|transfer| transfer.bytes).sum()
    }

    pub(crate) fn is_idle(&self, now: Time) -> bool {
        self.under_way.iter().all(|transfer| transfer.ends <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_shards_go_one_after_the_other_and_a_page_beside_them() {
        let mut gate = Gate::default();
        let shard = |gate: &mut Gate| gate.pass(0, BULK, Class::Bulk, 64 << 10, 1_000_000);
        assert_eq!([shard(&mut gate), shard(&mut gate)], [0, 1_000_000]);
        assert_eq!(gate.pass(1, 0, Class::Demand, 16 << 10, 20_000), 0);
        // More than may be under way waits until all the rest has ended.
        assert_eq!(gate.pass(1, 1, Class::Demand, 1 << 20, 300_000), 1_999_999);
    }
}

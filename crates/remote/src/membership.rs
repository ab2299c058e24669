//! Which nodes take part: what the cluster says, against what is in use (docs/adr/0044).
//!
//! ```text
//!           joins                 drained               nothing is left there
//!  (unknown) ────► Active ◄──────────────────► Draining        Leaving ────► Parting ────► Left
//!                    ▲  └── no longer named ──► Leaving ◄──────┘                            │
//!                    └───────────────────────── named again ─────────────────────────────────┘
//! ```
//! What is wanted is compared with what is as often as one likes: the same roster twice changes nothing, and
//! what can't be done yet is done later.

use std::collections::{HashMap, HashSet};

use farmem_transport::Destination;

use crate::cluster::{Cluster, ClusterError};

/// How a node takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Member {
    /// It takes what leaves memory.
    Active,
    /// It gets nothing new, and what it holds goes elsewhere. It may take part again.
    Draining,
    /// The same; once nothing is left there its links are closed.
    Leaving,
    /// Nothing is left there, and it is being told so.
    Parting,
    /// It has no part in anything, until it is named again.
    Left,
}

impl Member {
    /// Whether it gets nothing new.
    pub const fn is_leaving(self) -> bool {
        !matches!(self, Self::Active)
    }
}

/// The nodes that a cluster wants to be used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Roster {
    /// Each once: where it listens, and whether it is to be emptied.
    nodes: Vec<(Destination, bool)>,
}

impl Roster {
    /// These nodes. The second words say which of them are to be emptied.
    pub fn new(nodes: Vec<(Destination, bool)>) -> Self {
        Self { nodes }
    }

    /// The nodes of the cluster that a text describes.
    ///
    /// # Errors
    /// It describes none that makes sense.
    pub fn parse(text: &str) -> Result<Self, ClusterError> {
        Cluster::parse(text)?.roster()
    }

    /// Those that are to be used.
    pub fn active(&self) -> impl Iterator<Item = &Destination> {
        self.nodes.iter().filter(|(_, is_drained)| !is_drained).map(|(address, _)| address)
    }

    /// All that are named.
    pub fn all(&self) -> impl Iterator<Item = &Destination> {
        self.nodes.iter().map(|(address, _)| address)
    }
}

/// One step from what is to what is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A node that was never known joins.
    Join(Destination),
    /// One that has left joins again.
    Rejoin(usize),
    /// A node that gets nothing new takes part again.
    Activate(usize),
    /// A node is to be emptied, and stays.
    Drain(usize),
    /// A node is to be emptied, and leaves.
    Leave(usize),
}

/// What is to be done, so that these members become what the roster says.
pub fn changes(members: &[(&Destination, Member)], roster: &Roster) -> Vec<Change> {
    let wanted: HashMap<&Destination, bool> =
        roster.nodes.iter().map(|(address, is_drained)| (address, *is_drained)).collect();
    let of_member = |(number, (address, member)): (usize, &(&Destination, Member))| {
        let change = match (member, wanted.get(address)) {
            (Member::Active, Some(true)) | (Member::Leaving, Some(true)) => Change::Drain,
            (Member::Draining | Member::Leaving, Some(false)) => Change::Activate,
            (Member::Left, Some(false)) => Change::Rejoin,
            (Member::Active | Member::Draining, None) => Change::Leave,
            // Once it has been told, it is asked again.
            _ => return None,
        };
        Some(change(number))
    };
    let of_members = members.iter().enumerate().filter_map(of_member);
    let known: HashSet<&Destination> = members.iter().map(|(address, _)| *address).collect();
    let joins = roster.active().filter(|address| !known.contains(address)).cloned().map(Change::Join);
    of_members.chain(joins).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(number: u16) -> Destination {
        Destination::Tcp { host: "10.0.0.1".to_owned(), port: number }
    }

    fn roster(nodes: &[(u16, bool)]) -> Roster {
        Roster::new(nodes.iter().map(|(number, is_drained)| (address(*number), *is_drained)).collect())
    }

    #[test]
    fn what_is_named_joins_what_is_not_leaves_and_what_is_drained_stays() {
        let [one, two, three] = [1, 2, 3].map(address);
        let members = [(&one, Member::Active), (&two, Member::Active), (&three, Member::Left)];
        let wanted = roster(&[(2, true), (3, false), (4, false), (5, true)]);
        assert_eq!(
            changes(&members, &wanted),
            [Change::Leave(0), Change::Drain(1), Change::Rejoin(2), Change::Join(address(4))]
        );
    }

    #[test]
    fn a_node_that_is_being_told_to_forget_all_is_asked_again_only_when_it_has() {
        let one = address(1);
        assert_eq!(changes(&[(&one, Member::Parting)], &roster(&[(1, false)])), []);
        assert_eq!(changes(&[(&one, Member::Left)], &roster(&[(1, false)])), [Change::Rejoin(0)]);
    }

    /// What becomes of members by these changes, where all goes at once.
    fn carry_out(members: &mut Vec<(Destination, Member)>, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Join(address) => members.push((address.clone(), Member::Active)),
                Change::Rejoin(number) | Change::Activate(number) => members[*number].1 = Member::Active,
                Change::Drain(number) => members[*number].1 = Member::Draining,
                Change::Leave(number) => members[*number].1 = Member::Left,
            }
        }
    }

    proptest! {
        #[test]
        fn after_any_rosters_exactly_the_active_ones_of_the_last_are_used(
            rosters in prop::collection::vec(prop::collection::btree_map(0_u16..6, any::<bool>(), 0..6), 1..6)
        ) {
            let mut members = Vec::new();
            for wanted in rosters {
                let wanted = roster(&wanted.into_iter().collect::<Vec<_>>());
                let of = |members: &[(Destination, Member)]| {
                    let members: Vec<_> = members.iter().map(|(address, member)| (address, *member)).collect();
                    changes(&members, &wanted)
                };
                let first = of(&members);
                carry_out(&mut members, &first);
                prop_assert_eq!(of(&members), [], "the same twice changes nothing");
                let used: Vec<_> = members.iter().filter(|(_, member)| *member == Member::Active).collect();
                prop_assert_eq!(used.len(), wanted.active().count());
                prop_assert!(used.iter().all(|(address, _)| wanted.active().any(|active| active == address)));
            }
        }
    }
}

//! Which process reads whose stored pages, and which may have memory in common: a forked child reads what its
//! ancestors had stored when they forked, and shares what neither has written since.
//!
//! Most forks are made before a process has a pager, and nobody reports them. Those processes are known by
//! the layout of their memory.

use farmem_machine::process;

/// Where a process's stack, heap and arguments are. Chance decides that for each program that begins, and a
/// fork takes it over, so that processes of the same layout have been forked by one.
pub(super) type Layout = [u64; 3];

/// That of a process; `None` if it can't be told.
pub(super) fn layout(number: u32) -> Option<Layout> {
    process::figures(number, [28, 47, 48]).filter(|layout| *layout != [0; 3])
}

/// What a process has from those before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lineage {
    layout: Option<Layout>,
    /// Slots, oldest first, each with the count of forks up to which its entries are read.
    ancestors: Vec<(usize, u64)>,
}

impl Lineage {
    /// That of a process of which no fork has been told.
    pub(super) fn of_program(layout: Option<Layout>) -> Self {
        Self { layout, ancestors: Vec::new() }
    }

    /// That of the child which came of the fork of that count in the process of that slot, whose lineage this
    /// is.
    pub(crate) fn of_child(&self, slot: usize, epoch: u64) -> Self {
        let mut child = self.clone();
        child.ancestors.push((slot, epoch));
        child
    }

    /// The fork that the process came of.
    pub(crate) fn fork(&self) -> Option<(usize, u64)> {
        self.ancestors.last().copied()
    }

    /// Whether entries of that slot are read.
    pub(crate) fn reads(&self, slot: usize) -> bool {
        self.slots().any(|ancestor| ancestor == slot)
    }

    /// The slots whose entries are read.
    pub(crate) fn slots(&self) -> impl Iterator<Item = usize> {
        self.ancestors.iter().map(|(slot, _)| *slot)
    }

    /// Whether two processes may have memory in common since a fork: one descends from the other, or both
    /// from a third, or from a process whose forks nobody has told of. Each is told by its own slot, if it
    /// has one, and its lineage.
    pub(crate) fn are_related(one: (Option<usize>, &Self), other: (Option<usize>, &Self)) -> bool {
        let is_above = |slot: Option<usize>, lineage: &Self| slot.is_some_and(|slot| lineage.reads(slot));
        is_above(one.0, other.1)
            || is_above(other.0, one.1)
            || one.1.slots().any(|slot| other.1.reads(slot))
            || one.1.layout.is_some() && one.1.layout == other.1.layout
    }

    /// Up to which fork the entries of that slot must stay as they are; 0 when they need not.
    pub(crate) fn frozen_epoch(&self, slot: usize) -> u64 {
        self.ancestors
            .iter()
            .filter(|(ancestor, _)| *ancestor == slot)
            .map(|(_, epoch)| *epoch)
            .max()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grandchild_reads_both_generations_and_freezes_each_up_to_its_fork() {
        let child = Lineage::default().of_child(3, 7);
        let grandchild = child.of_child(5, 1);
        assert!(grandchild.reads(3) && grandchild.reads(5) && !grandchild.reads(4));
        assert_eq!((grandchild.frozen_epoch(3), grandchild.frozen_epoch(5)), (7, 1));
        assert_eq!(grandchild.fork(), Some((5, 1)));
        assert!(!child.reads(5));
    }

    #[test]
    fn parents_children_and_siblings_are_related_and_other_processes_are_not() {
        let parent = Lineage::default();
        let (one, other) = (parent.of_child(3, 1), parent.of_child(3, 2));
        assert!(Lineage::are_related((Some(3), &parent), (Some(4), &one)));
        assert!(Lineage::are_related((Some(4), &one), (Some(3), &parent)));
        assert!(Lineage::are_related((Some(4), &one), (None, &other)));
        assert!(!Lineage::are_related((Some(3), &parent), (Some(6), &Lineage::default())));
    }

    #[test]
    fn processes_of_one_layout_are_related_and_so_are_their_children() {
        let [one, twin, other] = [[1, 2, 3], [1, 2, 3], [1, 2, 4]].map(|at| Lineage::of_program(Some(at)));
        assert!(Lineage::are_related((Some(3), &one), (Some(4), &twin)));
        assert!(Lineage::are_related((Some(3), &one), (None, &twin.of_child(4, 1))));
        assert!(!Lineage::are_related((Some(3), &one), (Some(5), &other)));
        let unknown = Lineage::of_program(None);
        assert!(!Lineage::are_related((Some(3), &unknown), (Some(4), &unknown)));
    }

    #[test]
    fn who_has_no_ancestors_freezes_nothing() {
        assert_eq!(Lineage::default().frozen_epoch(0), 0);
        assert_eq!(Lineage::default().fork(), None);
    }
}

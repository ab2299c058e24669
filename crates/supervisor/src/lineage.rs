//! Who reads whose stored pages: a forked child reads what its ancestors had stored when they forked.

/// The processes whose entries a process reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lineage {
    /// Slots, oldest first, each with the count of forks up to which its entries are read.
    ancestors: Vec<(usize, u64)>,
}

impl Lineage {
    /// That of the child which came of the fork of that count in the process of that slot, whose lineage this is.
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
    fn who_has_no_ancestors_freezes_nothing() {
        assert_eq!(Lineage::default().frozen_epoch(0), 0);
        assert_eq!(Lineage::default().fork(), None);
    }
}

//! The family: other processes that have some of the program's pages.

use farmem_sys::link::Link;

use crate::forks::children::Children;
use crate::forks::fork::Teller;
use crate::forks::sharing::Sharing;

/// What is known of parents and children.
#[derive(Debug)]
pub(crate) struct Family {
    /// Those that have no pager of their own yet.
    pub(crate) children: Children,
    /// Whoever is told of forks.
    pub(crate) teller: Teller,
    /// Pages that are shared since a fork.
    pub(crate) sharing: Sharing,
}

impl Family {
    /// `is_protected`: the process is a child whose pages are protected since it was forked.
    pub(crate) fn new(link: Link, is_protected: bool) -> Self {
        Self { children: Children::new(), teller: Teller::new(link), sharing: Sharing::new(is_protected) }
    }
}

//! What is told about an application: its figures, what they mean, and the words for them.

pub(crate) mod by_class;
pub(crate) mod explanation;
pub(crate) mod figures;
pub(crate) mod inside;
pub(crate) mod managed_by;
pub(crate) mod rates;
pub(crate) mod run;
mod summary;
pub(crate) mod troubles;

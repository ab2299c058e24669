//! Headings of help texts. Options of several commands stand below the same words.

/// How much memory there is, and where.
pub(super) const MEMORY: &str = "Memory";
/// Figures, logs, recordings.
pub(super) const WATCHING: &str = "Seeing what happens";
/// Applications next to each other.
pub(super) const SHARING: &str = "Sharing the machine";
/// Memory of other machines, for those who use it.
pub(super) const NODES: &str = "Memory nodes";
/// The same for those who lend it.
pub(super) const LENDING: &str = "Memory to lend";
/// Keys and certificates.
pub(super) const SECURITY: &str = "Node security";
/// How an etcd is reached.
pub(super) const ETCD: &str = "Cluster in etcd";
/// The process of `farmem host` itself.
pub(super) const BROKER: &str = "The broker";
/// What nobody needs at first; `-h` leaves it out.
pub(super) const TUNING: &str = "Tuning";

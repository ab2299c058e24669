//! Where it is said which memory nodes there are: a file, or a key of etcd; how that is read, watched and
//! changed.
//!
//! What is written there is text here: nodes and their states are `farmem-remote`'s. Nothing here knows the
//! application or its links to nodes; the carrier asks a source, and the command edits one.

pub(crate) mod etcd;
mod file;
pub(crate) mod source;

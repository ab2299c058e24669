//! By which rule of a host an application is managed.

use serde::{Deserialize, Serialize};

/// The rule of a host by which an application is managed. Its supervisor tells it to whoever asks, so that
/// the next host knows what the last one has begun.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ManagedBy {
    /// The host, by its socket.
    pub host: String,
    /// The rule's name.
    pub rule: String,
    /// What is managed: the folder of a control group, or a process and when it began, as `4711@123456`.
    pub subject: String,
    /// What the rule gave it, in the words of the command line.
    pub terms: Vec<String>,
}

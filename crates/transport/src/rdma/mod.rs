//! Reads and writes by RDMA: the client's device reaches the node's memory, and the node's processor hears
//! nothing of it. All else, and what can't go that way, goes over the connection by which client and node
//! know each other; docs/adr/0037-rdma.md.

mod figures;
mod keys;
mod link;
mod ring;

use std::sync::Arc;
use std::time::Instant;

use farmem_verbs::{Address, VerbsError, Wanted};

pub use figures::{Figures, figures};
pub use keys::Spaces;

use crate::link::Link;
use crate::{ClientIdentity, Endpoint, LinkError, Transport};

/// Why a link doesn't go by RDMA.
#[derive(Debug, thiserror::Error)]
pub enum NoRdma {
    /// This machine can't.
    #[error(transparent)]
    Here(#[from] VerbsError),
    /// The node can't, or doesn't want to.
    #[error("the node has no RDMA device that it could use; its log says why")]
    There,
    /// Both ends can, and nothing comes through.
    #[error(
        "nothing comes through between the RDMA devices of both machines; `ibv_rc_pingpong -g INDEX` tries them, and RoCE needs UDP port 4791 between them"
    )]
    Silent,
    /// The node didn't answer at all.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Adds RDMA to a link. Without success the link comes back, and is as good as before; unless it has ended
/// meanwhile.
pub(crate) fn attach(
    link: Link,
    client: ClientIdentity,
    wanted: Option<&Wanted>,
    spaces: &Spaces,
    is_awaited: bool,
    deadline: Instant,
) -> Result<Box<dyn Transport>, (Box<dyn Transport>, NoRdma)> {
    match link::RdmaLink::attach(link, client, wanted, spaces, is_awaited, deadline) {
        Ok(link) => Ok(Box::new(link)),
        Err((link, why)) => Err((link, why)),
    }
}

/// Whether this machine has RDMA at all.
pub(crate) fn probe(wanted: Option<&Wanted>) -> Result<(), VerbsError> {
    match wanted {
        Some(_) => farmem_verbs::Device::open(wanted, None).map(drop),
        None => farmem_verbs::Device::any(),
    }
}

/// As it goes over the connection.
pub fn endpoint(address: &Address) -> Endpoint {
    let Address { gid, lid, number, sequence, mtu, reads } = *address;
    Endpoint { gid, lid, number, sequence, mtu, reads }
}

/// As a device wants it.
pub fn address(endpoint: &Endpoint) -> Address {
    let Endpoint { gid, lid, number, sequence, mtu, reads } = *endpoint;
    Address { gid, lid, number, sequence, mtu, reads }
}

pub(crate) type Shared<T> = Arc<std::sync::Mutex<T>>;

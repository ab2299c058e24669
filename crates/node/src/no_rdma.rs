//! In place of `rdma.rs`, in a node that is built without: nobody is given a key.

use std::net::IpAddr;
use std::ops::Range;

use anyhow::{Result, bail};
use farmem_transport::{ClientIdentity, Endpoint, Mailbox, Refusal, RemoteKey};

use crate::region::Region;
use crate::server::WantedRdma;

pub(crate) struct Rdma;

impl Rdma {
    pub(crate) fn new(wanted: &WantedRdma) -> Result<Self> {
        match wanted {
            WantedRdma::Device(_) => {
                bail!(
                    "this program was built without RDMA; `cargo build --release -p farmem --features rdma` has it"
                )
            }
            WantedRdma::Auto | WantedRdma::None => Ok(Self),
        }
    }

    pub(crate) fn attach(
        &mut self,
        _: ClientIdentity,
        _: Option<IpAddr>,
        _: &Endpoint,
    ) -> Result<(Endpoint, Mailbox), Refusal> {
        Err(Refusal::NoRdma)
    }

    pub(crate) fn keys(
        &mut self,
        _: u128,
        _: &Region,
        _: Range<u64>,
        _: impl Fn(u64) -> bool,
    ) -> Result<Vec<RemoteKey>, Refusal> {
        Err(Refusal::NoRdma)
    }

    pub(crate) fn moved_bytes(&self) -> (u64, u64) {
        (0, 0)
    }

    pub(crate) fn revoke(&mut self, _: u128, _: &Range<u64>) {}

    pub(crate) fn detach(&mut self, _: ClientIdentity) {}

    pub(crate) fn forget(&mut self, _: u128) {}
}

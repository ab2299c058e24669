//! Where a space has its leases from: the machine's broker, or, where there is none, a lease table that it
//! keeps for itself alone.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use farmem_broker::{Amounts, Lease, LeaseTable, SpaceId};
use farmem_sys::link::Link;
use farmem_sys::{Errno, OwnedFd};
use farmem_wire::host::{FromBroker, HOST_PACKET_BYTES, Holding, RefusalReason, Terms, ToBroker};

/// What comes from a source of leases.
pub(crate) enum Word {
    Accepted,
    Refused(RefusalReason, u64),
    Lease(Lease),
    /// A slot in the link schedule, and the schedule's memory.
    LinkSlot(usize, OwnedFd),
}

/// The source has gone.
pub(crate) struct Gone;

/// What a space holds when it comes.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub(crate) amounts: Amounts,
    pub(crate) movable_slabs: u64,
}

/// A source of leases.
pub(crate) enum LeaseSource {
    /// The machine's broker.
    Host(Link),
    /// None but the space itself: it gets what its terms allow.
    Own { table: Box<LeaseTable>, space: SpaceId, began: Instant },
}

impl LeaseSource {
    /// A table for one space alone, of so many slabs that its terms can be raised to them.
    pub(crate) fn own(capacity_slabs: u64, terms: Terms, held: Held) -> Option<Self> {
        let mut table = Box::new(LeaseTable::new(capacity_slabs, None, Duration::ZERO));
        let space = table.attach(Duration::ZERO, terms, held.amounts, held.movable_slabs).ok()?;
        Some(Self::Own { table, space, began: Instant::now() })
    }

    /// The broker that listens there, asked to take the space in.
    pub(crate) fn host(
        socket: &Path,
        terms: Terms,
        held: Held,
        name: [u8; farmem_wire::host::NAME_BYTES],
        uses_nodes: bool,
    ) -> Result<Self, Errno> {
        let path = CString::new(socket.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
        let link = Link::connect_to(&path)?;
        let message = ToBroker::Attach {
            terms,
            pool_held: held.amounts.slabs,
            pool_movable: held.movable_slabs,
            local_held: held.amounts.pages,
            name,
        };
        link.send(&message.encode(), &[])?;
        if uses_nodes {
            link.send(&ToBroker::TakeLinkSlot.encode(), &[])?;
        }
        Ok(Self::Host(link))
    }

    pub(crate) fn is_own(&self) -> bool {
        matches!(self, Self::Own { .. })
    }

    /// Says how the space is. A broker that doesn't listen at this moment hears the next report.
    pub(crate) fn report(&mut self, serial: u64, holding: Holding, moved_pages: u64) -> Result<(), Gone> {
        match self {
            Self::Host(link) => send(link, &ToBroker::Report { serial, holding, moved_pages }).map(drop),
            Self::Own { table, space, began } => {
                // What the space itself says is true.
                let _ = table.report(began.elapsed(), *space, serial, holding, moved_pages);
                Ok(())
            }
        }
    }

    /// Asks for other terms. The answer is the next word but leases; an own table answers at once.
    pub(crate) fn change(&mut self, terms: Terms) -> Result<Option<Word>, Gone> {
        match self {
            Self::Host(link) => match send(link, &ToBroker::Change { terms })? {
                true => Ok(None),
                false => Err(Gone),
            },
            Self::Own { table, space, .. } => Ok(Some(match table.change(*space, terms) {
                Ok(()) => Word::Accepted,
                Err(refusal) => Word::Refused(refusal.reason, refusal.most),
            })),
        }
    }

    /// The next word, if there is one. What is no message comes from no broker that one could go on with.
    pub(crate) fn hear(&mut self) -> Result<Option<Word>, Gone> {
        match self {
            Self::Host(link) => {
                let mut packet = [0; HOST_PACKET_BYTES + 1];
                let (length, mut descriptors) = match link.receive(&mut packet) {
                    Err(Errno::AGAIN) => return Ok(None),
                    Ok((0, _)) | Err(_) => return Err(Gone),
                    Ok(received) => received,
                };
                Ok(Some(match FromBroker::decode(&packet[..length]).ok_or(Gone)? {
                    FromBroker::Accepted => Word::Accepted,
                    FromBroker::Refused { reason, most } => Word::Refused(reason, most),
                    FromBroker::Lease { serial, pool_slabs, local_pages } => Word::Lease(Lease {
                        serial,
                        amounts: Amounts { slabs: pool_slabs, pages: local_pages },
                    }),
                    FromBroker::LinkSlot { number } => {
                        Word::LinkSlot(number as usize, descriptors[0].take().ok_or(Gone)?)
                    }
                    // Nobody has asked.
                    FromBroker::Nodes { .. } => return Err(Gone),
                }))
            }
            Self::Own { table, began, .. } => {
                Ok(table.leases(began.elapsed()).pop().map(|(_, lease)| Word::Lease(lease)))
            }
        }
    }
}

/// Whether the broker's socket took it.
fn send(link: &Link, message: &ToBroker) -> Result<bool, Gone> {
    match link.send(&message.encode(), &[]) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(_) => Err(Gone),
    }
}

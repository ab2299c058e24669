//! How a machine reaches the memory of another one: requests, their answers, and the ways that both travel.
//!
//! A *node* lends a region of frames of 4 KiB. A *client* (one application's space on one machine) is granted
//! chunks of it, and then reads and writes bytes in them without a word from anybody on the other side: what
//! RDMA does in the network card, the node's daemon does here. One trait, [`Transport`], stands for one
//! connection (a *lane*) of one client to one node.
//!
//! What a link promises:
//! 1. Requests of a lane take effect in the order of their tickets. Between lanes there is no order.
//! 2. A request that changes something (a grant, a release, a write) takes effect once, however often it is
//!    repeated with its ticket.
//! 3. Every request ends: by a [`Completion`] before or at its deadline, or by being handed back after a
//!    [`LinkError`].
//! 4. What waits is bounded: [`SubmitError::Full`] is back-pressure, to be passed on.
#![forbid(unsafe_code)]

mod address;
mod connect;
mod destination;
mod inbox;
mod link;
pub mod memory;
mod names;
mod outbox;
mod rack;
#[cfg(feature = "rdma")]
pub mod rdma;
mod request;
mod rings;
mod security;
mod sending;
mod server;
pub mod stream;
mod tls;
pub mod trouble;
pub mod wire;

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

pub use address::{Chunk, FRAME_BYTES, Frame, MOST_ORDER, Order, RegionOffset, RemoteAddress};
pub use connect::{Connector, Traffic, Travel, connect};
pub use destination::{Destination, NoDestination};
pub use rack::{MOST_RACK_BYTES, NoRack, Rack};
pub use request::{
    Answer, ClientIdentity, Completion, Endpoint, Failure, Incarnation, LinkError, MAIL_BYTES, MOST_BYTES,
    MOST_CHUNKS, MOST_REQUESTS, MOST_TRANSFER_BYTES, Mailbox, NodeDescription, NodeStatistics, Refusal,
    RemoteKey, Request, SubmitError, Ticket, Unsubmitted, VERSION,
};

pub use security::{CertificateFiles, Security, SecurityError, SharedKey, read_secret, save_secret};
pub use server::{ServerStream, ServerTrust};

pub use tls::Identity;

/// One lane from a client to a node. Not shared between threads; whoever owns it sends and hears by it.
pub trait Transport: Send {
    /// The peer at the other end, as it introduced itself.
    fn node(&self) -> NodeDescription;

    /// Takes a request on. It may stay in a buffer until [`Transport::complete`] is next called, so that
    /// several go out as one.
    ///
    /// New tickets rise strictly, from 1 on. A request that an earlier link of this lane left unanswered is
    /// repeated with the ticket it had, before anything new is submitted, and in the order of tickets.
    ///
    /// # Errors
    /// The request comes back, with why.
    fn submit(&mut self, ticket: Ticket, request: Request, deadline: Instant) -> Result<(), Unsubmitted>;

    /// Sends what was submitted, and appends what has been completed; waits at most `timeout` for the first
    /// of them. What is past its deadline is completed with [`Failure::Late`]: nobody knows then whether it
    /// took effect. (A grant that comes later still is completed once more, with what was granted: the frames
    /// are the client's.)
    ///
    /// Must be called every quarter of the node's lease ([`NodeDescription::lease`]) even while nothing is
    /// submitted: it renews the lease.
    ///
    /// # Errors
    /// The link has ended. What came before that is appended all the same; the rest is to be had from
    /// [`Transport::take_unanswered`].
    fn complete(&mut self, into: &mut Vec<Completion>, timeout: Duration) -> Result<(), LinkError>;

    /// After a [`LinkError`]: the requests without an answer, in the order of their tickets. To a node of the
    /// same incarnation they may be repeated; with another incarnation all that was on the node is lost.
    fn take_unanswered(&mut self) -> Vec<(Ticket, Request)>;

    /// Requests that were submitted and are not completed.
    fn pending(&self) -> usize;

    /// A descriptor that becomes readable when [`Transport::complete`] has something to do, for owners that
    /// wait for several things; and writable, where [`Transport::waits_to_send`].
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Whether the link has bytes left that its descriptor did not take.
    fn waits_to_send(&self) -> bool;
}

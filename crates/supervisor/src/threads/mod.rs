//! The supervisor's threads next to its loop, apart from those of the carrier and of the lease client: how a
//! thread works in steps and is stopped, and what each does.
//!
//! Mover, packer and recorder know the ledger and the pool, and no connection; a service next to the
//! supervisor ([`side_service`]) knows as much as whoever asks the supervisor. All of them end before the
//! supervisor splits for the background, and begin again in the copy.

pub(crate) mod mover;
pub(crate) mod packer;
pub(crate) mod recorder;
pub(crate) mod side_service;
pub(crate) mod worker;

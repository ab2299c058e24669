//! RDMA by libibverbs, safe to call: memory that a network card reads and writes, and queues of what it is to
//! do.
//!
//! The library is opened when it is first wanted, so that a program that never wants it runs on machines that
//! don't have it. What is done often (posting and polling) is no function of the library but one of the
//! card's driver, found in a table that the library fills; its layout has not changed since the library's
//! first stable version, for both are compiled into every program that uses it.
//!
//! Invariants:
//! 1. What the library has made is given back once, and in this order: queue pair, completion queue, channel,
//!    registrations, domain, device. Each value holds what it depends on.
//! 2. A card reaches memory only through a [`Registration`], which keeps the memory mapped. All of it is
//!    memory that concurrent writers can't make undefined
//!    ([`SharedMemory`](farmem_sys::shared::SharedMemory)).

mod device;
mod domain;
mod library;
mod names;
mod queue;
mod raw;

pub use device::{Device, Place};
pub use domain::{Domain, Registration, Remote};
pub use names::{NoName, Wanted};
pub use queue::{Address, Done, MESSAGE_BYTES, Queue, Transfer, Way};

/// RDMA can't be used.
#[derive(Debug, thiserror::Error)]
pub enum VerbsError {
    /// The library isn't there.
    #[error(
        "libibverbs cannot be opened ({0}); `apt-get install libibverbs1 ibverbs-providers` has it on Debian"
    )]
    Library(String),
    /// There is no device at all, or none of that name.
    #[error(
        "there is no RDMA device{of}; `rdma link` lists them, `rdma link add rxe0 type rxe netdev eth0` makes one of a network card"
    )]
    Device {
        /// Of which name, or for which address.
        of: String,
    },
    /// The port has no such address.
    #[error("{device} has no GID {index} at port {port}; `ibv_devinfo -v -d {device}` lists them")]
    Gid {
        /// The device.
        device: String,
        /// Its port.
        port: u8,
        /// Which one was asked for.
        index: u8,
    },
    /// The port is down.
    #[error(
        "port {port} of {device} is not active; `rdma link show {device}/{port}` tells its state, `ip link set … up` starts its network card"
    )]
    Port {
        /// The device.
        device: String,
        /// Its port.
        port: u8,
    },
    /// The limit of locked memory is too low.
    #[error(
        "the limit of locked memory is too low for {length_bytes} bytes more; `ulimit -l unlimited` raises it, or LimitMEMLOCK=infinity in a unit of systemd"
    )]
    Locked {
        /// How much was to be locked.
        length_bytes: usize,
    },
    /// The library or the driver refuses.
    #[error("{what} failed: {error}")]
    Kernel {
        /// What was asked of it.
        what: &'static str,
        /// What it says.
        error: std::io::Error,
    },
    /// What was asked for lies outside of what is registered, or the queue has no room.
    #[error("{0}")]
    Unsuitable(&'static str),
}

impl VerbsError {
    /// What errno says now.
    pub(crate) fn last(what: &'static str) -> Self {
        Self::Kernel { what, error: std::io::Error::last_os_error() }
    }

    /// What a function of the library has returned: 0, or an errno.
    pub(crate) fn check(what: &'static str, returned: i32) -> Result<(), Self> {
        match returned {
            0 => Ok(()),
            errno => Err(Self::Kernel { what, error: std::io::Error::from_raw_os_error(errno.abs()) }),
        }
    }
}

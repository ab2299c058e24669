//! Which peer may reach which memory: a domain for each peer, and in it what that peer was given.

use core::ops::Range;
use core::ptr::NonNull;
use std::sync::Arc;

use farmem_sys::shared::SharedMemory;

use crate::raw::{MemoryRegion, ProtectionDomain, access};
use crate::{Device, VerbsError};

/// Queues of a domain reach its registrations and nobody else's.
pub struct Domain {
    pub(crate) device: Arc<Device>,
    pub(crate) raw: NonNull<ProtectionDomain>,
}

// SAFETY: the library allows calls with a domain from any thread.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    /// A new one, with nothing in it.
    ///
    /// # Errors
    /// The device has no more of them.
    pub fn new(device: &Arc<Device>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the device is open.
        let raw = unsafe { (device.library.make_domain)(device.context.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(|| VerbsError::last("making a protection domain"))?;
        Ok(Arc::new(Self { device: Arc::clone(device), raw }))
    }

    /// The device that it belongs to.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: invariant 1 of the crate.
        unsafe { (self.device.library.free_domain)(self.raw.as_ptr()) };
    }
}

/// What reaches registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remote {
    /// This end alone.
    Nobody,
    /// Whoever is at the other end of the domain's queues, to read and to write.
    Peer,
}

/// Memory that a card may reach, until this is dropped. It stays in memory for so long.
pub struct Registration {
    pub(crate) domain: Arc<Domain>,
    raw: NonNull<MemoryRegion>,
    memory: Arc<SharedMemory>,
    range_bytes: Range<usize>,
}

// SAFETY: the library allows calls with a registration from any thread.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers bytes of a memory file.
    ///
    /// # Errors
    /// They leave it, may not be locked, or the device has no room.
    pub fn new(
        domain: &Arc<Domain>,
        memory: &Arc<SharedMemory>,
        range_bytes: Range<usize>,
        remote: Remote,
    ) -> Result<Self, VerbsError> {
        if range_bytes.is_empty() || range_bytes.end > memory.length_bytes() {
            return Err(VerbsError::Unsuitable("what is to be registered leaves the memory"));
        }
        let address = memory.addresses().start + range_bytes.start;
        let may = match remote {
            Remote::Nobody => access::LOCAL_WRITE,
            Remote::Peer => access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ,
        };
        let address = core::ptr::with_exposed_provenance_mut(address);
        // SAFETY: the range lies in a mapping that lives as long as this value, which holds it. Whatever the
        // card writes there, when it likes, is no more than another process may write that has the file.
        let raw =
            unsafe { (domain.device.library.register)(domain.raw.as_ptr(), address, range_bytes.len(), may) };
        let Some(raw) = NonNull::new(raw) else {
            let length_bytes = range_bytes.len();
            return Err(match VerbsError::last("registering memory") {
                VerbsError::Kernel { error, .. } if is_limit(&error) => VerbsError::Locked { length_bytes },
                other => other,
            });
        };
        Ok(Self { domain: Arc::clone(domain), raw, memory: Arc::clone(memory), range_bytes })
    }

    /// Bytes of it.
    pub fn length_bytes(&self) -> usize {
        self.range_bytes.len()
    }

    /// Where a peer finds it.
    pub fn remote_address(&self) -> u64 {
        (self.memory.addresses().start + self.range_bytes.start) as u64
    }

    /// What a peer has to show to reach it.
    pub fn remote_key(&self) -> u32 {
        // SAFETY: the library's value lives until this one is dropped, and this field doesn't change.
        unsafe { (*self.raw.as_ptr()).remote_key }
    }

    pub(crate) fn local_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.raw.as_ptr()).local_key }
    }
}

fn is_limit(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::OutOfMemory
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: invariant 1 of the crate. From here on no card reaches the memory through it.
        unsafe { (self.domain.device.library.deregister)(self.raw.as_ptr()) };
    }
}

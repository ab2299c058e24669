//! Services that run next to the supervisor, in threads of their own: the program depends on none of them.
//!
//! The supervisor has one thread only when it splits for the background, so services are ended before that,
//! and begin again in the copy.

use std::fmt;
use std::sync::Arc;

use anyhow::Result;

use farmem_client::Own;

/// Ends a service, and waits until its threads have gone.
pub type Ending = Box<dyn FnOnce() + Send>;

/// A service: how to begin it, and what to do when it will not be begun again.
#[derive(Clone)]
pub struct SideService {
    begin: Arc<dyn Fn(Own) -> Result<Ending> + Send + Sync>,
    leave: Arc<dyn Fn() + Send + Sync>,
}

impl SideService {
    /// One that is begun so; it may be begun again after its end, in a copy of the calling process. `leave`
    /// is called at the end of the last of these, or when there was none.
    pub fn new(
        begin: impl Fn(Own) -> Result<Ending> + Send + Sync + 'static,
        leave: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self { begin: Arc::new(begin), leave: Arc::new(leave) }
    }

    pub(crate) fn begin(&self, own: Own) -> Result<Ending> {
        (self.begin)(own)
    }

    pub(crate) fn leave(&self) {
        (self.leave)();
    }
}

impl fmt::Debug for SideService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SideService")
    }
}
